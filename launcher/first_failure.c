/* SPDX-License-Identifier: MIT
 *
 * See first_failure.h. Several workers may have ended by the time we look. */
#include "config.h"

#include "launcher/first_failure.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/limits.h"
#include "launcher/report.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* How long to wait for the rank that failed first when only its victims (exit code of
 * DDP_ERR_ABORTED) are seen. */
#define CULPRIT_WAIT_SECONDS 0.5

void first_failure_at_start(struct job *job)
{
    struct spawn_error error;
    char text[512];
    while (spawner_next_error(&job->spawner, &error)) {
        bool starts = error.stage == SPAWN_BIND;
        if (job->decided && !starts)
            continue;
        spawn_error_text(&error, job->plan, text, sizeof text);
        ddp_log(starts ? DDP_LOG_WARNING : DDP_LOG_ERROR, "%s", text);
        if (starts)
            continue;
        job_decide(job, spawn_error_exit_code(&error));
        job_end(job, SIGTERM);
    }
}

static bool exited_with(int wait_status, enum ddp_status status)
{
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == ddp_status_exit_code(status);
}

enum suspicion {
    VICTIM,    /* gave up because another rank had failed */
    PREEMPTED, /* stopped on request, as the others will */
    EXITED,
    SIGNALED,
    ABORTED, /* took the job down itself */
};

static enum suspicion suspicion(const struct job *job, int rank)
{
    int status = job->workers[rank].wait_status;
    if (exited_with(status, DDP_ERR_ABORTED))
        return VICTIM;
    if (exited_with(status, DDP_ERR_PREEMPTED))
        return PREEMPTED;
    if (atomic_load(&job->board.memory->abort_word) == (uint32_t)rank + 1)
        return ABORTED;
    return WIFSIGNALED(status) ? SIGNALED : EXITED;
}

/* The suspect that most likely failed first; -1 when there is none. Several may have ended by the
 * time we look: those that only noticed another's failure come last. */
static int first_suspect(const struct job *job)
{
    int first = -1;
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].suspect &&
            (first < 0 || suspicion(job, rank) > suspicion(job, first)))
            first = rank;
    return first;
}

/* Only programs that use libddp say so; with the same exit code of others it may be worth a try. */
static bool disk_is_full(const struct job *job, int rank)
{
    struct ddp_board_view view;
    ddp_board_read(&job->board, rank, &view);
    return view.disk_full && exited_with(job->workers[rank].wait_status, DDP_ERR_IO);
}

/* Refused before the work began, by a program that uses libddp and has said why: a mistake in its
 * options, its data or its surroundings. There is nothing to add. */
static bool is_refusal(const struct job *job, int rank)
{
    static const enum ddp_status statuses[] = {DDP_ERR_INVALID, DDP_ERR_FORMAT, DDP_ERR_IO,
                                               DDP_ERR_MEMORY, DDP_ERR_UNSUPPORTED};
    struct ddp_board_view view;
    ddp_board_read(&job->board, rank, &view);
    bool listed = false;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        listed = listed || exited_with(job->workers[rank].wait_status, statuses[i]);
    return listed && view.told && view.step <= 0 &&
           (!view.phase[0] || strcmp(view.phase, "start") == 0);
}

/* Have all workers exited with the same code? */
static bool failed_alike(const struct job *job, int rank)
{
    const int status = job->workers[rank].wait_status;
    for (int other = 0; other < job->plan->nproc; other++)
        if (job->workers[other].running || job->workers[other].wait_status != status)
            return false;
    return job->plan->nproc > 1 && WIFEXITED(status);
}

/* A mistake in a program makes all its workers exit, one after the other: the time to see that. */
static double alike_seconds(const struct job *job)
{
    const double part = (double)(ddp_clock_ns() - job->start_ns) / 5e9;
    return part < 0.1 ? 0.1 : part > CULPRIT_WAIT_SECONDS ? CULPRIT_WAIT_SECONDS : part;
}

static void name_failed(struct job *job, int rank)
{
    const struct worker *worker = &job->workers[rank];
    const struct report_end end = {
        .rank = rank,
        .pid = worker->pid,
        .wait_status = worker->wait_status,
        .peak_kib = worker->peak_kib,
        .no_memory = memory_kills() > job->kills_at_start,
        .left = job->running,
        .alike = failed_alike(job, rank) ? job->plan->nproc : 0,
    };
    if (end.alike)
        output_failed_alike(&job->output);
    if (!is_refusal(job, rank))
        report_failure(&job->board, &end);
    job->failed_rank = rank;
}

void first_failure_decide(struct job *job, bool final)
{
    int rank = job->exited_rank < 0 ? first_suspect(job) : job->exited_rank;
    if (rank < 0)
        return;
    enum suspicion how = suspicion(job, rank);
    int status = job->workers[rank].wait_status;
    if (job->state >= ENDING) {
        job_decide(job, report_exit_code(status));
        if (how != PREEMPTED) /* the others may hold back the signal that has ended this one */
            ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
        return;
    }
    if (how <= PREEMPTED && job->running > 0 && !final) {
        if (job->state == RUNNING)
            job_set_deadline(job, how == VICTIM ? CULPRIT_WAIT_SECONDS
                                                : job->plan->settings->grace_seconds);
        job->state = DOUBTING;
        return;
    }
    if (how == EXITED && job->running > 0 && !final && !is_refusal(job, rank)) {
        if (job->exited_rank < 0)
            job_set_deadline(job, alike_seconds(job));
        job->exited_rank = rank;
        job->state = DOUBTING;
        return;
    }
    job_decide(job, report_exit_code(status));
    /* A worker that the request to stop has killed did not fail. */
    const bool asked = WIFSIGNALED(status) && WTERMSIG(status) == job->stop_request;
    job->restartable = how != PREEMPTED && !asked &&
                       !(is_refusal(job, rank) && (exited_with(status, DDP_ERR_INVALID) ||
                                                   exited_with(status, DDP_ERR_UNSUPPORTED)));
    if (how != PREEMPTED)
        name_failed(job, rank);
    job->disk_full = disk_is_full(job, rank);
    ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
    job_end(job, SIGTERM);
}
