/* SPDX-License-Identifier: MIT
 *
 * See report.h. */
#include "config.h"

#include "launcher/report.h"

#include "core/log.h"
#include "core/memory.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static FILE *collected;

void report_collect(FILE *out)
{
    collected = out;
}

static void say(const char *format, ...) DDP_PRINTF(1, 2);

static void say(const char *format, ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0)
        return;
    if (collected)
        fprintf(collected, "%s\n", line);
    else
        ddp_log(DDP_LOG_ERROR, "%s", line);
    free(line);
}

int report_exit_code(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

const char *report_signal_name(int signal, char *text, size_t size)
{
    const char *name = sigabbrev_np(signal);
    if (name)
        snprintf(text, size, "SIG%s", name);
    else
        snprintf(text, size, "signal %d", signal);
    return text;
}

static void describe_end(int wait_status, char *text, size_t size)
{
    char name[32];
    if (wait_status == REPORT_LEFT) {
        snprintf(text, size,
                 "exited with code 0 without closing the job (ddp_train_close(), ddp_job_close())");
    } else if (WIFSIGNALED(wait_status)) {
        int signal = WTERMSIG(wait_status);
        const char *words = sigdescr_np(signal);
        snprintf(text, size, "was killed by %s (%s%s)",
                 report_signal_name(signal, name, sizeof name), words ? words : "no description",
                 WCOREDUMP(wait_status) ? ", core dumped" : "");
    } else {
        snprintf(text, size, "exited with code %d", WEXITSTATUS(wait_status));
    }
}

/* What the worker did last; "" when it never joined the board. */
static void describe_line(const struct ddp_board *board, int rank, char *text, size_t size)
{
    struct ddp_board_view view;
    size_t used = 0;
    text[0] = 0;
    ddp_board_read(board, rank, &view);
    if (view.pid == 0)
        return;
    if (view.phase[0])
        used += (size_t)snprintf(text + used, size - used, " in phase %s", view.phase);
    if (view.step >= 0)
        used += (size_t)snprintf(text + used, size - used, "%s step %" PRId64, used ? "," : " at",
                                 view.step + 1);
    if (view.inside)
        snprintf(text + used, size - used, ", inside %s %" PRIu64, view.name, view.number);
}

/* The worker itself may have been ended, or a process of which it waited for something. */
static void describe_want(int wait_status, char *text, size_t size)
{
    bool hit = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    const size_t limit = ddp_memory_limit();
    int used = snprintf(text, size, "; %s",
                        hit ? "the kernel killed it because memory ran out"
                            : "the kernel's out-of-memory killer ended a process meanwhile");
    if (limit < SIZE_MAX)
        snprintf(text + used, size - (size_t)used, " (its cgroup may use %zu MiB)", limit >> 20);
}

void report_alike(int workers, int wait_status, char *text, size_t size)
{
    char how[128];
    describe_end(wait_status, how, sizeof how);
    if (workers == 2)
        snprintf(text, size, "both workers %s", how);
    else
        snprintf(text, size, "all %d workers %s", workers, how);
}

void report_failure(const struct ddp_board *board, const struct report_end *end)
{
    char how[192], last[128], memory[192] = "", others[64] = "";
    describe_end(end->wait_status, how, sizeof how);
    describe_line(board, end->rank, last, sizeof last);
    if (end->no_memory)
        describe_want(end->wait_status, memory, sizeof memory);
    if (end->peak_kib > 0) {
        size_t used = strlen(memory);
        snprintf(memory + used, sizeof memory - used, "; peak memory %ld MiB",
                 (end->peak_kib + 1023) / 1024);
    }
    if (*end->node)
        snprintf(others, sizeof others, "; ending all nodes");
    else if (end->left == 1)
        snprintf(others, sizeof others, "; ending the other worker");
    else if (end->left > 1)
        snprintf(others, sizeof others, "; ending the other %d workers", end->left);
    if (end->alike) {
        report_alike(end->alike, end->wait_status, how, sizeof how);
        say("%s%s", how, memory);
    } else {
        say("rank %d (pid %ld)%s%s %s%s%s%s", ddp_board_first_rank(board) + end->rank,
            (long)end->pid, *end->node ? " on " : "", end->node, how, last, memory, others);
    }
}

void report_lines(char *text)
{
    for (char *line = text, *save = NULL; (line = strtok_r(line, "\n", &save)); line = NULL)
        ddp_log(DDP_LOG_INFO, "%s", line);
}

/* Cuts line ends off; what a terminal must not see is the log's to escape. */
static void cut_line_ends(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        text[--length] = 0;
}

/* Shows the last lines of a text whose line ends are cut off. */
static void show_end(char *text)
{
    enum { LINES = 10 };
    char *start = text + strlen(text);
    for (int lines = 0; start > text; start--)
        if (start[-1] == '\n' && ++lines == LINES)
            break;
    for (char *line = start, *save = NULL; (line = strtok_r(line, "\n", &save)); line = NULL)
        say("  | %s", line);
}

void report_last_words(int rank, char *text)
{
    cut_line_ends(text);
    if (!*text)
        return;
    say("the last lines of rank %d on standard error:", rank);
    show_end(text);
}

void report_reason(int rank, char *message, char *stack)
{
    enum { MORE = 3 };
    char *save = NULL;
    cut_line_ends(message);
    cut_line_ends(stack);
    const char *line = strtok_r(message, "\n", &save);
    say("rank %d reported: %s", rank, line ? line : "");
    for (int i = 0; i < MORE && (line = strtok_r(NULL, "\n", &save)); i++)
        say("  | %s", line);
    if (*stack)
        show_end(stack);
}
