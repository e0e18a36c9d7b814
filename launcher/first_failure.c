/* SPDX-License-Identifier: MIT
 *
 * See first_failure.h. Several workers may have ended by the time we look. */
#include "config.h"

#include "launcher/first_failure.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/cluster.h"
#include "launcher/error_file.h"
#include "launcher/system/limits.h"
#include "launcher/system/proc.h"
#include "launcher/report.h"

#include <signal.h>
#include <stdlib.h>
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
        if (starts) {
            ddp_log(DDP_LOG_WARNING, "%s", text);
            continue;
        }
        if (cluster_fail_here(job, error.rank, spawn_error_exit_code(&error), text))
            continue;
        ddp_log(DDP_LOG_ERROR, "%s", text);
        job_decide(job, spawn_error_exit_code(&error));
        job_end(job, SIGTERM);
    }
}

static bool exited_with(int wait_status, enum ddp_status status)
{
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == ddp_status_exit_code(status);
}

static enum suspicion suspicion(const struct job *job, int rank)
{
    int status = job->workers[rank].wait_status;
    if (exited_with(status, DDP_ERR_ABORTED))
        return VICTIM;
    if (exited_with(status, DDP_ERR_PREEMPTED))
        return PREEMPTED;
    if (atomic_load(&job->board.memory->abort_word) == (uint32_t)(job->plan->first_rank + rank) + 1)
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

/* A mistake in a program makes all its workers exit, one after the other: the time to see that. On
 * a busy machine those that are about to wait for a processor. */
static double alike_seconds(const struct job *job)
{
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].running && proc_state(job->workers[rank].pid) == 'R')
            return CULPRIT_WAIT_SECONDS;
    const double part = (double)(ddp_clock_ns() - job->start_ns) / 5e9;
    return part < 0.1 ? 0.1 : part > CULPRIT_WAIT_SECONDS ? CULPRIT_WAIT_SECONDS : part;
}

static void report(struct job *job, int rank)
{
    const struct worker *worker = &job->workers[rank];
    const struct report_end end = {
        .rank = rank,
        .pid = worker->pid,
        .wait_status = worker->wait_status,
        .peak_kib = worker->peak_kib,
        .no_memory = memory_kills() > job->kills_at_start,
        .left = job->running,
        .alike = failed_alike(job, rank) && !job->cluster ? job->plan->nproc : 0,
        .node = cluster_node_name(job, job->plan->node),
    };
    report_failure(&job->board, &end);
}

static void name_failed(struct job *job, int rank)
{
    if (failed_alike(job, rank))
        output_failed_alike(&job->output);
    if (!is_refusal(job, rank))
        report(job, rank);
    job->failed_rank = rank;
}

/* Shows what the worker itself gave as the reason, and its last words; returns whether these are in
 * sight. */
static bool show_words(struct job *job, int rank, bool always)
{
    char text[RELAY_TAIL + 1];
    struct error_text reason;
    bool in_sight;
    const int named = job->plan->first_rank + rank;
    output_tail(&job->output, rank, text, &in_sight);
    if (in_sight && !always)
        text[0] = 0;
    char *path = output_error_file(&job->output, rank);
    if (path && error_file_read(path, &reason)) {
        /* Python writes the same stack to standard error. */
        if (output_shows_errors(&job->output, rank) || strstr(text, reason.message))
            reason.stack[0] = 0;
        report_reason(named, reason.message, reason.stack);
    }
    free(path);
    report_last_words(named, text);
    return in_sight;
}

void first_failure_last_words(struct job *job, int rank)
{
    show_words(job, rank, false);
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

/* A refusal is not tried again, and a worker that the request to stop has killed did not fail. */
static bool is_restartable(const struct job *job, int rank, enum suspicion how)
{
    const int status = job->workers[rank].wait_status;
    const bool asked = WIFSIGNALED(status) && WTERMSIG(status) == job->stop_request;
    return how != PREEMPTED && !asked &&
           !(is_refusal(job, rank) &&
             (exited_with(status, DDP_ERR_INVALID) || exited_with(status, DDP_ERR_UNSUPPORTED)));
}

/* Reports the failure of a worker to all nodes. What it wrote last is in sight here at most. */
static void report_to_nodes(struct job *job, int rank, enum suspicion how)
{
    char *text = NULL;
    size_t size, shown = SIZE_MAX;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        report_collect(out);
        report(job, rank);
        fflush(out);
        shown = count_lines(text);
        if (!show_words(job, rank, true))
            shown = SIZE_MAX;
        report_collect(NULL);
        if (fclose(out) != 0)
            text = NULL;
    }
    const struct cluster_failure failure = {.how = how,
                                            .local = rank,
                                            .exit_code =
                                                report_exit_code(job->workers[rank].wait_status),
                                            .restartable = is_restartable(job, rank, how),
                                            .disk_full = disk_is_full(job, rank),
                                            .refused = is_refusal(job, rank),
                                            .text = text && how != PREEMPTED ? text : "",
                                            .shown = shown};
    cluster_fail(job, &failure);
    free(text);
}

/* Over several nodes node 0 decides. That a node's workers have all stopped on request is no
 * failure. */
static void wait_for_verdict(struct job *job, int rank, enum suspicion how)
{
    job_decide(job, report_exit_code(job->workers[rank].wait_status));
    if (failed_alike(job, rank))
        output_failed_alike(&job->output);
    if (!cluster_has_reported(job, how) && (how != PREEMPTED || job->running > 0))
        report_to_nodes(job, rank, how);
    if (job->state >= ENDING) /* by the verdict, which was there at once */
        return;
    job->state = DOUBTING;
    job->deadline_ns = INT64_MAX;
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
    /* A worker that has stopped before it joined the others leaves them waiting. */
    final = final || job->workers[rank].wait_status == REPORT_STOPPED;
    if (job->cluster && (how > PREEMPTED || final || job->running == 0)) {
        wait_for_verdict(job, rank, how);
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
    job->restartable = is_restartable(job, rank, how);
    if (how != PREEMPTED)
        name_failed(job, rank);
    job->disk_full = disk_is_full(job, rank);
    ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
    job_end(job, SIGTERM);
}
