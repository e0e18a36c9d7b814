/* SPDX-License-Identifier: MIT
 *
 * See job.h. */
#include "config.h"

#include "launcher/job.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "launcher/board_table.h"
#include "launcher/report.h"
#include "launcher/stacks.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>

void job_decide(struct job *job, int exit_code)
{
    if (!job->decided)
        job->exit_code = exit_code;
    job->decided = true;
}

void job_signal(const struct job *job, int signal)
{
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].running)
            kill(-job->workers[rank].pid, signal);
}

void job_kill(struct job *job)
{
    job_signal(job, SIGKILL);
    job->state = KILLED;
    job->deadline_ns = INT64_MAX;
}

void job_set_deadline(struct job *job, double seconds)
{
    job->deadline_ns = ddp_clock_ns() + (int64_t)(seconds * 1e9);
}

uint32_t job_accepts(const struct job *job)
{
    uint32_t accepts = 0;
    for (int rank = 0; rank < job->plan->nproc; rank++) {
        if (!job->workers[rank].running)
            continue;
        const uint32_t word = atomic_load(&job->board.memory->lines[rank].accepts_stop);
        if (word == DDP_BOARD_ACCEPTS_STOP)
            accepts |= JOB_ACCEPTS_STOP | JOB_ACCEPTS_CHANGE;
        if (word == DDP_BOARD_ACCEPTS_CHANGE)
            accepts |= JOB_ACCEPTS_CHANGE;
    }
    return accepts;
}

bool job_accepts_stop(const struct job *job)
{
    return job_accepts(job) & JOB_ACCEPTS_STOP;
}

void job_request_stop(struct job *job, int signal)
{
    job->stop_request = signal;
    atomic_store(&job->board.memory->stop_request, 1);
}

void job_end(struct job *job, int signal)
{
    job_signal(job, signal);
    job_signal(job, SIGCONT); /* stopped ones must get it too */
    job->state = ENDING;
    job_set_deadline(job, job->plan->settings->grace_seconds);
}

static void log_stacks(const struct job *job)
{
    char *text = NULL;
    size_t size;
    const int count = job->plan->nproc;
    struct stack_source *sources = ddp_array_alloc((size_t)count, sizeof *sources);
    FILE *out = sources ? open_memstream(&text, &size) : NULL;
    for (int rank = 0; out && rank < count; rank++)
        sources[rank] = (struct stack_source){
            .rank = job->plan->first_rank + rank,
            .pid = job->workers[rank].running ? job->workers[rank].pid : 0,
            .fd = python_stack_fd(&job->plan->python, rank),
        };
    if (out)
        stacks_write(sources, count, out);
    if (out && fclose(out) == 0)
        report_lines(text);
    free(text);
    free(sources);
}

void job_show(const struct job *job)
{
    if (board_table_progress(&job->board)) /* the program uses libddp */
        board_table_log(&job->board);
    log_stacks(job);
}

void job_pause(struct job *job)
{
    if (job->cluster) {
        ddp_log(DDP_LOG_WARNING, "Ctrl-Z has no effect: the other nodes would take this one for "
                                 "lost if it stopped");
    } else {
        job_signal(job, SIGSTOP);
        terminal_pause(&job->terminal);
    }
    job_signal(job, SIGCONT);
}

int job_milliseconds(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX)
        return -1;
    int64_t left_ms = (deadline_ns - ddp_clock_ns() + 999999) / 1000000;
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
