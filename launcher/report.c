/* SPDX-License-Identifier: MIT
 *
 * See report.h. */
#include "config.h"

#include "launcher/report.h"

#include "core/log.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

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
    if (WIFSIGNALED(wait_status)) {
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
                                 view.step);
    if (view.inside)
        snprintf(text + used, size - used, ", inside %s %" PRIu64, view.name, view.number);
}

void report_failure(const struct ddp_board *board, int rank, pid_t pid, int wait_status, int left)
{
    char end[128], last[128], others[64] = "";
    describe_end(wait_status, end, sizeof end);
    describe_line(board, rank, last, sizeof last);
    if (left == 1)
        snprintf(others, sizeof others, "; ending the other worker");
    else if (left > 1)
        snprintf(others, sizeof others, "; ending the other %d workers", left);
    ddp_log(DDP_LOG_ERROR, "rank %d (pid %ld) %s%s%s", rank, (long)pid, end, last, others);
}
