/* SPDX-License-Identifier: MIT
 *
 * See supervise.h. What is made for each attempt is unmade with it; signals, the terminal and the
 * log directory are the job's. */
#include "config.h"

#include "launcher/supervise.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"
#include "launcher/activity.h"
#include "launcher/cluster.h"
#include "launcher/first_failure.h"
#include "launcher/system/limits.h"
#include "launcher/report.h"
#include "launcher/job.h"
#include "launcher/signals.h"
#include "launcher/board_table.h"
#include "launcher/watch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is wrong was logged. */
static void fail_here(struct job *job)
{
    job_decide(job, EXIT_LAUNCHER);
    cluster_fail_here(job, -1, EXIT_LAUNCHER, "ddprun cannot start its workers");
}

static void start_workers(struct job *job)
{
    keeper_wait(&job->keeper);
    for (int rank = 0; rank < job->plan->nproc; rank++) {
        struct worker *worker = &job->workers[rank];
        enum ddp_status status =
            output_start_worker(&job->output, &job->spawner, rank, &worker->pid);
        worker->start_ns = ddp_clock_ns();
        atomic_store(&job->board.memory->lines[rank].started, (int32_t)worker->pid);
        worker->running = worker->pid > 0; /* also when only its output could not be relayed */
        job->running += worker->running;
        if (status != DDP_OK) {
            fail_here(job);
            job_end(job, SIGKILL);
            return;
        }
    }
}

/* What lives as long as ddprun does. */
static enum ddp_status open_job(struct job *job)
{
    job->workers = ddp_array_alloc((size_t)job->plan->nproc, sizeof *job->workers);
    if (!job->workers)
        return DDP_ERR_MEMORY;
    children_adopt(&job->children);
    terminal_open(&job->terminal);
    mark_make(job->plan->mark);
    if (job->plan->runs_python)
        python_open(&job->plan->python, job->plan->nproc);
    enum ddp_status status = signals_open(job);
    if (status == DDP_OK &&
        (job->plan->settings->max_restarts > 0 || place_is_elastic(job->plan->place)))
        status = ddp_board_create_copy(&job->plan->copy_fd);
    if (status == DDP_OK)
        status = cluster_open(job);
    if (status != DDP_OK)
        return status;
    cgroup_open(&job->cgroup, job->plan->mark);
    status = keeper_start(&job->keeper, job->plan->nproc, job->plan->place->node_count,
                          job->plan->mark, &job->cgroup);
    if (status != DDP_OK) {
        cgroup_remove(&job->cgroup);
        fail_here(job);
    }
    return status;
}

static enum ddp_status open_board(struct job *job)
{
    const struct settings *settings = job->plan->settings;
    enum ddp_status status = ddp_board_create(&job->board, &job->board_fd, job->plan->starts,
                                              job->plan->node, job->plan->node_count);
    if (status != DDP_OK)
        return status;
    struct ddp_board_memory *memory = job->board.memory;
    ddp_bar_share(&memory->bar_columns);
    ddp_bar_set_terminal(isatty(STDOUT_FILENO) ? STDOUT_FILENO : -1);
    memory->restart = (uint32_t)job->plan->restart;
    if (job->plan->first_size == 0)
        job->plan->first_size = job->plan->job_size;
    memory->first_size = (uint32_t)job->plan->first_size;
    atomic_store(&memory->begun_before, job->plan->begun);
    cluster_note_members(job);
    if (job->plan->copy_fd >= 0)
        ddp_board_know_copy(&job->board, job->plan->copy_fd);
    if (job->plan->restart == 0) { /* a fault comes once */
        memcpy(memory->faults, settings->faults, sizeof settings->faults);
        memory->fault_count = (uint32_t)settings->fault_count;
    }
    if (settings->straggler_report)
        memory->flags |= DDP_BOARD_TIMES;
    atomic_store(&memory->stop_request, job->stop_request != 0);
    status = ddp_board_create_heap(&job->board, &job->heap_fd);
    if (status != DDP_OK) {
        ddp_board_unmap(&job->board);
        close(job->board_fd);
    }
    return status;
}

/* What is new in each attempt. */
static enum ddp_status open_attempt(struct job *job)
{
    enum ddp_status status = open_board(job);
    if (status != DDP_OK)
        return status;
    keeper_forget(&job->keeper);
    if ((status = spawner_open(&job->spawner, job->plan, &job->keeper, job->board_fd,
                               job->heap_fd)) != DDP_OK)
        goto no_spawner;
    if ((status = output_open(&job->output, job->plan, &job->board,
                              output_take_directory(&job->output))) == DDP_OK) {
        if (output_only_shows_errors(&job->output))
            job->board.memory->flags |= DDP_BOARD_ONE_SPEAKS;
        return DDP_OK;
    }
    spawner_close(&job->spawner);
no_spawner:
    ddp_board_unmap(&job->board);
    close(job->board_fd);
    close(job->heap_fd);
    return status;
}

/* Over several nodes node 0 knows which of all ranks came last. */
static void report_stragglers(const struct job *job)
{
    struct board_times times = board_table_times(&job->board);
    board_table_stragglers(&job->board);
    cluster_add_times(job, &times);
    if (job->plan->node == 0)
        board_times_log(&times);
}

/* Has a worker been where the fault waits? */
static bool fault_reached(const struct job *job, const struct ddp_board_fault *fault, bool *joined)
{
    struct ddp_board_view view;
    bool reached = false;
    for (int rank = 0; rank < job->plan->nproc; rank++) {
        ddp_board_read(&job->board, rank, &view);
        *joined = *joined || view.pid > 0;
        if ((fault->rank < 0 || fault->rank == job->plan->first_rank + rank) && view.step >= 0)
            reached = reached || view.step >= fault->step;
    }
    return reached;
}

/* A job that ends well shows nothing when its faults never came. */
static void report_missed_faults(const struct job *job)
{
    const struct settings *settings = job->plan->settings;
    for (int i = 0; i < settings->fault_count; i++) {
        const int local = settings->faults[i].rank - job->plan->first_rank;
        bool joined = false;
        if (settings->faults[i].rank >= 0 && (local < 0 || local >= job->plan->nproc))
            continue; /* another node's */
        if (!fault_reached(job, &settings->faults[i], &joined))
            ddp_log(DDP_LOG_WARNING, "DDP_FAULTS: %s did not happen: %s", settings->fault_texts[i],
                    joined ? "the program ended before that step"
                           : "the program does not use libddp");
    }
}

/* Starts all workers once and waits for their end. */
static void run_attempt(struct job *job)
{
    memset(job->workers, 0, (size_t)job->plan->nproc * sizeof *job->workers);
    job->state = RUNNING;
    job->deadline_ns = INT64_MAX;
    job->decided = job->restartable = job->disk_full = job->members_change = false;
    job->exit_code = 0;
    job->failed_rank = job->exited_rank = -1;
    job->start_ns = job->progress_ns = ddp_clock_ns();
    job->watch_ns = job->output_ns = job->absent_ns = 0;
    job->stepped = false;
    activity_free(&job->activity);
    job->kills_at_start = memory_kills();
    cluster_begin(job);
    if (open_attempt(job) != DDP_OK) {
        fail_here(job);
        return;
    }
    cluster_start(job);
    if (job->plan->settings->report_bindings)
        launch_plan_report_bindings(job->plan);
    start_workers(job);
    if (job->late_signal)
        signals_handle(job, job->late_signal);
    job->late_signal = 0;
    watch_workers(job);
    job->stepped = job->stepped || board_table_stepped(&job->board);
    const uint64_t begun = atomic_load(&job->board.memory->begun);
    job->plan->begun = begun ? begun : job->plan->begun;
    children_end_all(&job->children, &job->keeper); /* what the workers have left behind */
    output_check_files(&job->output);
    if (job->failed_rank >= 0 && !job->cluster)
        first_failure_last_words(job, job->failed_rank);
    bool written = watch_output(job);
    char *directory = output_take_directory(&job->output);
    output_close(&job->output, written);
    job->output.directory = directory;
    spawner_close(&job->spawner);
    if (job->plan->settings->straggler_report)
        report_stragglers(job);
    if (job->exit_code == EXIT_SUCCESS && job->plan->restart == 0)
        report_missed_faults(job);
    cluster_pause(job);
    if (written) /* else the relay is still there, and looks at it */
        ddp_board_unmap(&job->board);
    else
        job->restartable = false;
    close(job->board_fd);
    close(job->heap_fd);
}

/* Whether the next attempt begins with steps of the last one, which were left in memory. */
static bool has_copy(const struct job *job)
{
    struct stat info;
    return job->stepped && job->plan->copy_fd >= 0 && fstat(job->plan->copy_fd, &info) == 0 &&
           info.st_size > DDP_PAGE;
}

/* Logs the restart and waits, each time twice as long, at most half a minute; not at all for a
 * program that goes on from memory. False: a signal has ended the job. */
static bool back_off(struct job *job, int before, const char *why)
{
    const int failures = job->plan->failures, most = (int)job->plan->settings->max_restarts;
    double seconds = has_copy(job) ? 0 : 0.2 * (1 << (failures < 8 ? failures : 8));
    if (job->late_signal)
        return watch_pause(job); /* which it ends */
    if (!*why)
        ddp_log(DDP_LOG_INFO, "restarting all workers (%d of %d)", failures + 1, most);
    else
        ddp_log(DDP_LOG_WARNING, "restarting with %d of %d workers (%d of %d): %s",
                job->plan->nproc, before, failures + 1, most, why);
    job_set_deadline(job, seconds < 30 ? seconds : 30);
    return watch_pause(job);
}

/* After a failure. */
static bool may_retry(struct job *job, bool *shrunk)
{
    struct launch_plan *plan = job->plan;
    char why[320];
    int before = plan->nproc;
    if (plan->failures >= plan->settings->max_restarts)
        return false;
    if (job->disk_full) {
        ddp_log(DDP_LOG_ERROR,
                "not restarting: rank %d found the disk full; free space and start again",
                job->failed_rank);
        return false;
    }
    if (!shrink_decide(plan, &job->failures, job->failed_rank, why, sizeof why) ||
        !back_off(job, before, why))
        return false;
    *shrunk = *why;
    plan->failures++;
    return true;
}

/* Prepares another attempt, if there may be one. */
static bool next_attempt(struct job *job)
{
    struct launch_plan *plan = job->plan;
    bool shrunk = false;
    if (!job->restartable || (job->interrupted && !job->late_signal))
        return false;
    if (cluster_leaves(job)) {
        job->exit_code = ddp_status_exit_code(DDP_ERR_PREEMPTED);
        return false;
    }
    job->deadline_ns = 0;
    if (!(job->members_change ? watch_pause(job) : may_retry(job, &shrunk)))
        return false;
    const int port = cluster_restart_port(job);
    if (launch_plan_next(plan, shrunk) == DDP_OK) {
        plan->master_port = port ? port : plan->master_port;
        return true;
    }
    job->exit_code = EXIT_LAUNCHER;
    return false;
}

int supervise(struct launch_plan *plan)
{
    struct job job = {
        .plan = plan, .terminal = {.fd = -1}, .exit_code = EXIT_LAUNCHER, .failures = {.rank = -1}};
    if (open_job(&job) == DDP_OK) {
        do
            run_attempt(&job);
        while (next_attempt(&job));
        close(job.signal_fd);
        cgroup_kill(&job.cgroup);
        cgroup_remove(&job.cgroup);
        keeper_stop(&job.keeper);
        if (children_left(&job.children))
            ddp_log(DDP_LOG_WARNING, "workers left processes behind that cannot be found, "
                                     "because /proc is missing; these still run");
    }
    cluster_close(&job);
    if (job.exit_code == EXIT_SUCCESS && relay_has_lost())
        job.exit_code = EXIT_LAUNCHER;
    terminal_close(&job.terminal);
    if (plan->copy_fd >= 0)
        close(plan->copy_fd);
    python_close(&plan->python);
    free(output_take_directory(&job.output));
    activity_free(&job.activity);
    free(job.workers);
    return job.exit_code;
}
