/* SPDX-License-Identifier: MIT
 *
 * See gnuplot.h. Colours are Okabe's and Ito's, which colour-blind people tell apart. An SVG has
 * those for light screens; rules of CSS replace them on dark ones, so that a viewer without CSS
 * shows the picture too. */
#include "config.h"

#include "reporter/gnuplot.h"

#include "core/log.h"
#include "core/text.h"
#include "core/write.h"
#include "reporter/child.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SECONDS 60 /* that a picture may take */

struct colour {
    int red, green, blue;
};

/* On light and on dark screens. The first two are text and lines of the grid. */
static const struct colour light[] = {{0x22, 0x26, 0x2b}, {0xd0, 0xd4, 0xd9}, {0x00, 0x72, 0xb2},
                                      {0xd5, 0x5e, 0x00}, {0x00, 0x9e, 0x73}, {0xcc, 0x79, 0xa7},
                                      {0xe6, 0x9f, 0x00}, {0x56, 0xb4, 0xe9}};
static const struct colour dark[] = {{0xdd, 0xe1, 0xe6}, {0x3c, 0x42, 0x4a}, {0x4f, 0xa8, 0xe0},
                                     {0xf0, 0x7c, 0x2e}, {0x2b, 0xc4, 0x97}, {0xe0, 0x99, 0xc2},
                                     {0xf2, 0xb8, 0x35}, {0x8c, 0xd0, 0xf5}};

#define COLOURS    (sizeof light / sizeof light[0])
#define LIGHT_PAGE "#ffffff"
#define DARK_PAGE  "#16191d"

enum ddp_status plot_begin(struct plot *plot, enum plot_kind kind, const char *name, int width,
                           int height)
{
    *plot = (struct plot){.kind = kind};
    plot->script = open_memstream(&plot->text, &plot->bytes);
    if (!plot->script)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    FILE *out = plot->script;
    fputs("set encoding utf8\n", out);
    if (kind == PLOT_TEXT) {
        fprintf(out, "set terminal dumb noenhanced size %d,%d\n", width, height);
        fputs("set tics scale 0.5\n", out);
        return DDP_OK;
    }
    if (kind == PLOT_SVG)
        fprintf(out,
                "set terminal svg size %d,%d dynamic noenhanced font 'sans-serif,13' background "
                "'" LIGHT_PAGE "' name '%s'\n",
                width, height, name);
    else
        fprintf(out,
                "set terminal pngcairo size %d,%d noenhanced font 'sans,11' background "
                "'" LIGHT_PAGE "'\n",
                width, height);
    fprintf(out, "set linetype 1 lc rgb '#%02x%02x%02x'\n", light[0].red, light[0].green,
            light[0].blue);
    for (size_t i = 0; i < 2; i++)
        fprintf(out, "set style line %zu lc rgb '#%02x%02x%02x' lw 1\n", 101 + i, light[i].red,
                light[i].green, light[i].blue);
    fputs("set border 3 ls 101\nset grid ls 102 dt solid\nset tics nomirror\n"
          "set key tmargin right horizontal samplen 3 width 1\nset autoscale xfix\n",
          out);
    for (const char *at = "key xlabel ylabel tics title "; *at; at = strchr(at, ' ') + 1)
        fprintf(out, "set %.*s %s textcolor rgb '#%02x%02x%02x'\n", (int)strcspn(at, " "), at,
                at[0] == 'x' || at[0] == 'y' || strncmp(at, "title", 5) == 0 ? "''" : "",
                light[0].red, light[0].green, light[0].blue);
    return DDP_OK;
}

/* In single quotes a quote is written twice, and nothing else has a meaning. */
void plot_string(struct plot *plot, const char *text)
{
    char clean[512];
    ddp_text_clean(clean, sizeof clean, text, strlen(text));
    fputc('\'', plot->script);
    for (const char *at = clean; *at; at++) {
        if (*at == '\'')
            fputc('\'', plot->script);
        fputc(*at, plot->script);
    }
    fputc('\'', plot->script);
}

void plot_colour(struct plot *plot, size_t i, bool pale)
{
    const struct colour *colour = &light[2 + i % PLOT_COLOURS];
    if (plot->kind != PLOT_TEXT)
        fprintf(plot->script, " lc rgb '#%s%02x%02x%02x'", pale ? "b0" : "", colour->red,
                colour->green, colour->blue);
}

/* The last line that gnuplot wrote to standard error says what is wrong. */
static enum ddp_status run(int in, int out)
{
    char *argv[] = {(char *)"gnuplot", (char *)"-d", NULL};
    const struct child child = {.argv = argv, .in = in, .out = out, .seconds = SECONDS};
    int code = 0;
    char *said = NULL;
    enum ddp_status status = child_run(&child, &code, &said);
    if (status != DDP_OK || code == 0) {
        free(said);
        return status;
    }
    size_t length = strlen(said);
    while (length > 0 && (said[length - 1] == '\n' || said[length - 1] == ' '))
        said[--length] = '\0';
    const char *line = strrchr(said, '\n');
    char shown[DDP_TEXT_SHOWN];
    if (code == CHILD_MISSING)
        status = ddp_fail(DDP_ERR_UNSUPPORTED, "gnuplot, which draws the pictures, is not "
                                               "installed: install Debian's package gnuplot-nox");
    else if (code == CHILD_LATE)
        status =
            ddp_fail(DDP_ERR_SYSTEM, "gnuplot did not end within %d s and was killed", SECONDS);
    else
        status = ddp_fail(DDP_ERR_SYSTEM, "gnuplot failed with exit status %d: %s", code,
                          ddp_text_show(shown, line ? line + 1 : said));
    free(said);
    return status;
}

enum ddp_status plot_end(struct plot *plot, char **picture, size_t *bytes)
{
    enum ddp_status status = DDP_OK;
    size_t drawn = 0;
    *picture = NULL;
    int in = -1, out = -1;
    if (fputc('\n', plot->script) == EOF || fclose(plot->script) != 0)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    else if ((in = memfd_create("script", MFD_CLOEXEC)) < 0 ||
             (out = memfd_create("picture", MFD_CLOEXEC)) < 0 ||
             ddp_write_all(in, plot->text, plot->bytes) < 0 || lseek(in, 0, SEEK_SET) < 0)
        status = ddp_fail(ddp_errno_status(errno, DDP_ERR_SYSTEM), "gnuplot: no file for it: %s",
                          strerror(errno));
    if (status == DDP_OK)
        status = run(in, out);
    if (status == DDP_OK)
        status = child_read(out, SIZE_MAX, picture, &drawn);
    if (status == DDP_OK && drawn == 0)
        status = ddp_fail(DDP_ERR_SYSTEM, "gnuplot has drawn nothing: is it gnuplot?");
    if (bytes)
        *bytes = drawn;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    free(plot->text);
    plot->text = NULL;
    return status;
}

void plot_drop(struct plot *plot)
{
    if (plot->script)
        fclose(plot->script);
    free(plot->text);
}

static void print_rule(FILE *out, const struct colour *from, const struct colour *to)
{
    static const char *const properties[] = {"stroke", "fill", "color"};
    for (size_t p = 0; p < 3; p++) /* gnuplot writes a colour in two ways */
        fprintf(out, "[%s='rgb(%3d, %3d, %3d)'],[%s='rgb(%d,%d,%d)']{%s:#%02x%02x%02x}\n",
                properties[p], from->red, from->green, from->blue, properties[p], from->red,
                from->green, from->blue, properties[p], to->red, to->green, to->blue);
}

void plot_print_css(FILE *out)
{
    fputs("@media (prefers-color-scheme: dark) {\n", out);
    for (size_t i = 0; i < COLOURS; i++)
        print_rule(out, &light[i], &dark[i]);
    fputs("[fill='" LIGHT_PAGE "'],[fill='rgb(255,255,255)'],[fill='rgb(255, 255, 255)']"
          "{fill:" DARK_PAGE "}\n[color='#FFFFFF']{color:" DARK_PAGE "}\n"
          "[color='black']{color:#dde1e6}\n}\n",
          out);
}

static void print_variables(FILE *out, const struct colour *colours, const char *page)
{
    fprintf(out, ":root{--page:%s", page);
    for (size_t i = 0; i < COLOURS; i++) {
        fputs(i == 0 ? ";--text" : i == 1 ? ";--grid" : "", out);
        if (i >= 2)
            fprintf(out, ";--c%zu", i - 2);
        fprintf(out, ":#%02x%02x%02x", colours[i].red, colours[i].green, colours[i].blue);
    }
    fputs("}\n", out);
}

void plot_print_colours(FILE *out)
{
    print_variables(out, light, LIGHT_PAGE);
    fputs("@media (prefers-color-scheme: dark){", out);
    print_variables(out, dark, DARK_PAGE);
    fputs("}\n", out);
    for (size_t i = 0; i < PLOT_COLOURS; i++)
        fprintf(out, ".c%zu{color:var(--c%zu)}\n", i, i);
}
