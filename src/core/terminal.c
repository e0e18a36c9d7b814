/* SPDX-License-Identifier: MIT
 *
 * See terminal.h. */
#include "config.h"

#include "core/terminal.h"

#include "core/text.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define INDENT    2  /* of a broken line's further rows */
#define ROWS_MOST 50 /* of a bar: what another process says is not trusted further */

int ddp_terminal_columns(int fd)
{
    struct winsize size;
    return fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* --- lines --- */

/* One line without its end. A word that fits in no row stays whole. */
static void print_folded(FILE *out, const char *line, size_t bytes, int columns)
{
    const char *end = line + bytes;
    int used = 0;
    bool empty = true; /* no word stands in the row yet */
    while (line < end) {
        const size_t spaces = strspn(line, " ");
        const size_t whole = spaces + strcspn(line + spaces, " \n");
        const int width = ddp_text_columns(line, whole);
        if (!empty && used + width > columns) {
            fprintf(out, "\n%*s", INDENT, "");
            used = INDENT + width - (int)spaces;
            fwrite(line + spaces, 1, whole - spaces, out);
        } else {
            used += width;
            fwrite(line, 1, whole, out);
        }
        empty = false;
        line += whole;
    }
}

void ddp_terminal_print(FILE *out, const char *format, ...)
{
    char *text;
    va_list args;
    const int columns = ddp_terminal_columns(fileno(out));
    va_start(args, format);
    if (columns <= 2 * INDENT) {
        vfprintf(out, format, args);
    } else if (vasprintf(&text, format, args) >= 0) {
        for (const char *line = text; *line;) {
            const size_t bytes = strcspn(line, "\n");
            print_folded(out, line, bytes, columns);
            line += bytes;
            if (*line) {
                putc('\n', out);
                line++;
            }
        }
        free(text);
    }
    va_end(args);
}

/* --- the bar --- */

static _Atomic uint32_t own_columns;
static _Atomic uint32_t *_Atomic shown_columns = &own_columns;
static atomic_int terminal = -1;

void ddp_bar_set_terminal(int fd)
{
    atomic_store(&terminal, fd);
}

void ddp_bar_share(_Atomic uint32_t *columns)
{
    atomic_store(&shown_columns, columns);
}

void ddp_bar_unshare(_Atomic uint32_t *columns)
{
    atomic_compare_exchange_strong(&shown_columns, &columns, &own_columns);
}

void ddp_bar_shown(int columns)
{
    atomic_store(atomic_load(&shown_columns), (uint32_t)columns);
}

/* In a signal handler too: nothing but write(). */
static void put(int fd, const char *text)
{
    const int saved_errno = errno;
    if (write(fd, text, strlen(text)) < 0)
        errno = saved_errno;
}

/* A window that became narrower has wrapped the bar over several rows. */
bool ddp_bar_clear(void)
{
    const int fd = atomic_load(&terminal);
    const uint32_t shown = fd >= 0 ? atomic_exchange(atomic_load(&shown_columns), 0) : 0;
    if (shown == 0)
        return false;
    const int columns = ddp_terminal_columns(fd);
    const uint32_t rows_above = columns > 0 ? (shown - 1) / (uint32_t)columns : 0;
    for (uint32_t i = 0; i < rows_above && i < ROWS_MOST; i++)
        put(fd, "\033[A");
    put(fd, "\r\033[J");
    return true;
}

void ddp_bar_end_line(void)
{
    if (!ddp_bar_clear() && isatty(STDERR_FILENO))
        put(STDERR_FILENO, "\n");
}

static void clear_and_end(int signal)
{
    ddp_bar_clear();
    raise(signal); /* SA_RESETHAND: the default action */
}

void ddp_bar_guard(int signal)
{
    struct sigaction now;
    const struct sigaction guard = {.sa_handler = clear_and_end,
                                    .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    if (atomic_load(&terminal) >= 0 && sigaction(signal, NULL, &now) == 0 &&
        !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        sigaction(signal, &guard, NULL);
}

void ddp_bar_unguard(int signal)
{
    struct sigaction now;
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    if (sigaction(signal, NULL, &now) == 0 && now.sa_handler == clear_and_end)
        sigaction(signal, &normal, NULL);
}
