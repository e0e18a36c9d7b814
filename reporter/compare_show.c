/* SPDX-License-Identifier: MIT
 *
 * See compare_show.h. */
#include "config.h"

#include "reporter/compare_show.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "reporter/bars.h"
#include "reporter/compare_table.h"
#include "reporter/page.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const void *arg, size_t bar)
{
    const struct comparison *comparison = arg;
    return comparison->variants[bar].name;
}

/* What is neither communication nor waiting counts as computing. */
static double time_of(const void *arg, size_t bar, size_t part)
{
    const struct measured *measured = &((const struct comparison *)arg)->measured[bar];
    const double parts[] = {measured->times.median - measured->communication - measured->waiting,
                            measured->communication, measured->waiting};
    return 1e3 * parts[part];
}

static double memory_of(const void *arg, size_t bar, size_t part)
{
    const struct measured *measured = &((const struct comparison *)arg)->measured[bar];
    const double parts[] = {measured->weights, measured->gradients, measured->optimizer,
                            measured->activations};
    return parts[part] / 1e6;
}

static double speedup_of(const void *arg, size_t bar, size_t part)
{
    const struct comparison *comparison = arg;
    const struct variant *variant = &comparison->variants[bar];
    (void)part;
    return comparison->measured[variant->baseline].times.median /
           comparison->measured[bar].times.median;
}

static enum ddp_status add_pictures(struct page *page, const struct comparison *comparison)
{
    const size_t count = (size_t)comparison->count;
    const struct bars pictures[] = {
        {"time",
         "ms a step",
         count,
         3,
         {"computing", "communication", "waiting"},
         name_of,
         time_of,
         comparison},
        {"speedup",
         "times as fast as accumulation with the same shards",
         count,
         1,
         {"speed-up"},
         name_of,
         speedup_of,
         comparison},
        {"memory",
         "MB, as planned",
         count,
         4,
         {"weights", "gradients", "optimizer", "activations"},
         name_of,
         memory_of,
         comparison},
    };
    static const char *const titles[] = {"Time of a step", "Speed-up", "Memory of a worker"};
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < 3; i++) {
        char *picture;
        size_t bytes;
        status = bars_draw(&pictures[i], &picture, &bytes);
        if (status == DDP_OK)
            page_picture(page, titles[i], picture);
        free(picture);
    }
    return status;
}

static enum ddp_status write_page(const struct comparison *comparison, const struct table *time,
                                  const struct table *memory, const char *path)
{
    struct page page;
    char *text = NULL;
    size_t bytes;
    enum ddp_status status = page_begin(&page, "Accumulation, DataParallel and DDP compared");
    if (status != DDP_OK)
        return status;
    FILE *out = open_memstream(&text, &bytes);
    if (out) {
        compare_describe(comparison, out);
        fclose(out);
        page_paragraph(&page, text);
        free(text);
    }
    table_print_html(time, page.out);
    table_print_html(memory, page.out);
    page_paragraph(&page, compare_notes);
    return page_end(&page, path, add_pictures(&page, comparison));
}

static enum ddp_status show(const struct comparison *comparison, const struct settings *settings)
{
    struct table time, memory;
    struct ddp_terminal_text lines;
    enum ddp_status status = compare_tables_make(&time, &memory, comparison);
    if (status == DDP_OK) {
        compare_describe(comparison, ddp_terminal_begin(&lines, stdout));
        ddp_terminal_end(&lines);
        fputc('\n', stdout);
        table_print(&time, stdout);
        fputc('\n', stdout);
        table_print(&memory, stdout);
        fputc('\n', stdout);
        ddp_terminal_print(stdout, "%s", compare_notes);
        fflush(stdout);
    }
    if (status == DDP_OK && !comparison->all_equal)
        status =
            ddp_fail(DDP_ERR_MISMATCH, "compare: weights differ that must be equal: see the table");
    if ((status == DDP_OK || status == DDP_ERR_MISMATCH) && settings->output) {
        const enum ddp_status written = write_page(comparison, &time, &memory, settings->output);
        status = status == DDP_OK ? written : status;
    }
    table_free(&time);
    table_free(&memory);
    return status;
}

enum ddp_status compare_show(const struct settings *settings, int *exit_code)
{
    struct comparison *comparison = ddp_array_alloc(1, sizeof *comparison);
    if (!comparison)
        return DDP_ERR_MEMORY;
    enum ddp_status status = page_check_file(settings->output);
    if (status == DDP_OK)
        status = compare_run(comparison, settings, exit_code);
    if (status == DDP_OK)
        status = show(comparison, settings);
    comparison_free(comparison);
    free(comparison);
    return status;
}
