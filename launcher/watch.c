/* SPDX-License-Identifier: MIT
 *
 * See watch.h. One loop around poll(): signals come through a signalfd, deadlines through poll's
 * time limit; there is no handler and nothing spins. */
#include "config.h"

#include "launcher/watch.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/terminal.h"
#include "launcher/activity.h"
#include "launcher/cluster.h"
#include "launcher/first_failure.h"
#include "launcher/report.h"
#include "launcher/signals.h"
#include "launcher/board_table.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LATE_NS             INT64_C(2000000000)
#define FAR_NS              INT64_C(1250000000) /* at most so old is what other nodes tell */
#define ABSENT_MS           5000
#define HELD_MS             3 /* between two looks at whether workers can take a request to stop */
#define LAST_OUTPUT_SECONDS 0.5 /* for what ended workers wrote, once a signal ends ddprun */

static int rank_of(const struct job *job, pid_t pid)
{
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].running && job->workers[rank].pid == pid)
            return rank;
    return -1;
}

/* A program that uses libddp has worked with the other ranks, and has not said that it is done:
 * they may wait for it, and its results may be missing. */
static bool has_left(const struct job *job, int rank)
{
    struct ddp_board_view view;
    ddp_board_read(&job->board, rank, &view);
    return view.pid > 0 && !view.closed && (view.step >= 0 || view.entered > 0);
}

/* A batch system sends a request to stop to workers too: one that it kills before it could take it
 * has stopped, as ddprun was asked to. */
static bool has_stopped(const struct job *job, int rank, int status)
{
    struct ddp_board_view view;
    const int asked = job->held_signal      ? job->held_signal
                      : job->without_signal ? job->stop_request
                                            : 0;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != asked)
        return false;
    ddp_board_read(&job->board, rank, &view);
    return view.pid == 0;
}

/* What counts as its wait status. */
static int judge(const struct job *job, int rank, int status)
{
    if (status == 0 && has_left(job, rank))
        return REPORT_LEFT;
    if (has_stopped(job, rank, status))
        return REPORT_STOPPED;
    return status;
}

/* Reaps one child. A worker's group is killed with it; until it is reaped its number cannot be
 * reused. */
static void reap(struct job *job, pid_t pid)
{
    int status = 0, rank = rank_of(job, pid);
    struct rusage usage = {.ru_maxrss = 0};
    if (rank >= 0) {
        kill(-pid, SIGKILL);
        atomic_store(&job->keeper.table->groups[rank], 0);
    }
    if (wait4(pid, &status, 0, &usage) < 0)
        return;
    keeper_replace(&job->keeper, pid, status);
    if (rank < 0)
        return;
    struct worker *worker = &job->workers[rank];
    worker->running = false;
    worker->wait_status = judge(job, rank, status);
    worker->peak_kib = usage.ru_maxrss;
    worker->suspect = worker->wait_status != 0;
    job->running--;
}

static void reap_ended(struct job *job)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            break;
        reap(job, info.si_pid);
    }
}

/* A worker was stopped because it uses the terminal. In the background the whole job stops with it,
 * but over several nodes: the others would take this one for lost. */
static void lend_terminal(struct job *job, pid_t group)
{
    bool away = !terminal_is_ours(&job->terminal);
    bool ours = !away;
    if (away && !job->cluster) {
        job_signal(job, SIGSTOP);
        ours = terminal_wait(&job->terminal);
    }
    if (!ours) {
        ddp_log(DDP_LOG_ERROR, "rank %d uses the terminal, but %s",
                job->plan->first_rank + rank_of(job, group),
                job->cluster ? "the job is in the background, and cannot stop because it has "
                               "several nodes"
                             : "there is no shell to bring the job to the foreground");
        kill(-group, job->refused == group ? SIGKILL : SIGHUP);
        job->refused = group;
    }
    terminal_lend(&job->terminal, group);
    if (away)
        job_signal(job, SIGCONT);
}

static void handle_children(struct job *job)
{
    siginfo_t info;
    reap_ended(job);
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) < 0 || info.si_pid == 0)
            break;
        if (rank_of(job, info.si_pid) < 0)
            continue;
        if (info.si_status == SIGTTIN || info.si_status == SIGTTOU)
            lend_terminal(job, info.si_pid);
        else if (info.si_status == SIGTSTP && info.si_pid == job->terminal.borrower)
            job_pause(job);
    }
    first_failure_at_start(job);
    first_failure_decide(job, false);
}

static void handle_deadline(struct job *job)
{
    if (!ddp_deadline_passed(job->deadline_ns))
        return;
    if (job->state == DOUBTING) {
        first_failure_decide(job, true);
        return;
    }
    ddp_log(DDP_LOG_WARNING, "%d worker%s did not end within %g s: SIGKILL", job->running,
            job->running == 1 ? "" : "s", job->plan->settings->grace_seconds);
    job_kill(job);
}

/* How often progress is looked at: ten times in the time limit, but not more often than is of use;
 * to look at programs that do not use libddp means to read all of /proc. */
static int64_t watch_interval_ns(const struct job *job)
{
    const double interval = job->plan->settings->timeout_seconds / 10;
    const double most = job->progress || job->watch_ns == 0 ? 1 : 10;
    return (int64_t)((interval < most ? interval : most) * 1e9) + 1;
}

/* Workers that compute may as well wait in a loop. Says so when they have been silent for the time
 * limit. */
static void note_silence(struct job *job, enum activity_kind kind, int64_t now)
{
    const double limit = job->plan->settings->timeout_seconds;
    if (kind == ACTIVITY_WRITES || job->output_ns == 0)
        job->output_ns = now;
    if (kind != ACTIVITY_COMPUTES || job->output_ns == INT64_MAX ||
        (double)(now - job->output_ns) < limit * 1e9)
        return;
    ddp_log(
        DDP_LOG_WARNING,
        "the workers have written nothing for %g s but use CPU time: they compute, or wait in a "
        "loop, which --timeout cannot tell apart; ddprun status --stack shows where they are",
        limit);
    job->output_ns = INT64_MAX; /* once, until they write */
}

/* Has any worker done anything since the last look? */
static bool has_moved(struct job *job, int64_t now)
{
    const uint64_t before = job->progress;
    job->progress = board_table_progress(&job->board);
    if (job->progress != 0)
        return job->progress != before;
    if (!activity_visible()) {
        if (job->output_ns == 0)
            ddp_log(DDP_LOG_WARNING,
                    "--timeout: /proc is missing, so only programs that use libddp "
                    "can be watched");
        job->output_ns = now;
        return true;
    }
    const enum activity_kind kind = activity_since(job);
    note_silence(job, kind, now);
    return kind != ACTIVITY_NONE;
}

/* Setting up takes longer than a step: GPUs, connections, data. Of programs that do not use libddp
 * no steps are known. */
static bool sets_up(struct job *job)
{
    job->stepped = job->stepped || board_table_stepped(&job->board) || cluster_stepped(job);
    return job->progress != 0 && !job->stepped;
}

static double limit_seconds(struct job *job)
{
    const struct settings *settings = job->plan->settings;
    return sets_up(job) && settings->setup_timeout_seconds > settings->timeout_seconds
               ? settings->setup_timeout_seconds
               : settings->timeout_seconds;
}

/* Of one node. */
static void end_here(struct job *job, int exit_code, const char *why)
{
    ddp_log(DDP_LOG_ERROR, "%s; ending the job", why);
    if (exit_code == EXIT_HANG)
        job_show(job);
    job_decide(job, exit_code);
    job->restartable = true;
    ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
    job_end(job, SIGTERM);
}

static void end_hanging(struct job *job, double limit)
{
    char text[160];
    snprintf(text, sizeof text, "%s for %g s%s%s",
             job->progress ? "no rank has made progress"
                           : "no worker has used CPU time or written anything",
             limit, sets_up(job) ? " before the first step was finished (--setup-timeout)" : "",
             job->cluster ? "; ending the job" : "");
    if (job->cluster)
        cluster_hangs(job, text);
    else
        end_here(job, EXIT_HANG, text);
}

static void watch_progress(struct job *job)
{
    const int64_t now = ddp_clock_ns(), interval_ns = watch_interval_ns(job);
    if (job->plan->settings->timeout_seconds <= 0 || job->state != RUNNING || now < job->watch_ns)
        return;
    const double limit = limit_seconds(job);
    /* Of the other nodes we hear later. */
    const int64_t limit_ns = (int64_t)(limit * 1e9) + (job->cluster ? interval_ns + FAR_NS : 0);
    /* Very late: ddprun itself was stopped, and perhaps all the job. */
    const bool late = job->watch_ns > 0 && now - job->watch_ns > interval_ns + LATE_NS;
    job->watch_ns = now + interval_ns;
    if ((job->running > 0 && has_moved(job, now)) || late)
        job->progress_ns = now;
    else if (job->plan->node == 0 && now - cluster_moved_ns(job) >= limit_ns)
        end_hanging(job, limit);
}

/* A worker that ends well without joining leaves those that use libddp waiting. The rank of one
 * such here, or -1; whether others have joined and may wait. */
static int find_absent(const struct job *job, bool *waits)
{
    int absent = -1;
    struct ddp_board_view view;
    for (int rank = 0; rank < job->plan->nproc; rank++) {
        const struct worker *worker = &job->workers[rank];
        ddp_board_read(&job->board, rank, &view);
        if (worker->running && view.pid > 0 && view.step <= 0)
            *waits = true;
        else if (!worker->running && worker->pid > 0 && worker->wait_status == 0 && view.pid == 0)
            absent = job->plan->first_rank + rank;
    }
    return absent;
}

static void watch_absent(struct job *job)
{
    bool waits = false;
    char text[160];
    if (job->absent_ns == INT64_MAX || job->state != RUNNING)
        return;
    int absent = find_absent(job, &waits);
    if (job->cluster)
        absent = cluster_find_absent(job, absent, &waits);
    if (absent < 0)
        job->absent_ns = 0;
    else if (job->absent_ns == 0 || (!waits && ddp_deadline_passed(job->absent_ns)))
        job->absent_ns = ddp_deadline_ns(ABSENT_MS);
    if (absent < 0 || !waits || !ddp_deadline_passed(job->absent_ns))
        return;
    job->absent_ns = INT64_MAX;
    snprintf(text, sizeof text,
             "rank %d has ended without joining the other ranks, which wait for it; do all ranks "
             "run the same program?",
             absent);
    if (!cluster_fail_here(job, -1, EXIT_LEFT, text))
        end_here(job, EXIT_LEFT, text);
}

/* When the loop must look around, though nothing has come. */
static int64_t next_look_ns(const struct job *job)
{
    const int64_t verdict_ns = cluster_deadline_ns(job);
    int64_t until_ns = job->running > 0 ? job->deadline_ns : INT64_MAX;
    if (job->state == RUNNING && job->plan->settings->timeout_seconds > 0)
        until_ns = job->watch_ns;
    if (job->state == RUNNING && job->absent_ns > 0 && job->absent_ns < until_ns)
        until_ns = job->absent_ns;
    if (job->held_signal && ddp_deadline_ns(HELD_MS) < until_ns)
        until_ns = ddp_deadline_ns(HELD_MS);
    return verdict_ns < until_ns ? verdict_ns : until_ns;
}

/* Does a worker run, or is the job not over on other nodes? */
static bool goes_on(struct job *job)
{
    if (job->running > 0)
        return true;
    first_failure_decide(job, true);
    cluster_done(job);
    return cluster_waits(job);
}

/* Reads the signals that have come; returns whether a child has changed. */
static bool take_signals(struct job *job)
{
    struct signalfd_siginfo info;
    bool children = false;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        children = children || info.ssi_signo == SIGCHLD;
        if (info.ssi_code == SI_KERNEL &&
            (info.ssi_signo == SIGQUIT || signals_end_job(job, (int)info.ssi_signo)))
            ddp_bar_end_line(); /* the terminal has just shown "^C" or "^\" */
        signals_handle(job, (int)info.ssi_signo);
    }
    return children;
}

void watch_workers(struct job *job)
{
    struct pollfd watched[2 + CLUSTER_FDS] = {{.fd = job->signal_fd, .events = POLLIN},
                                              {.fd = job->spawner.error_read, .events = POLLIN}};
    cluster_watch(job, watched + 2);
    while (goes_on(job)) {
        poll(watched, 2 + CLUSTER_FDS, job_milliseconds(next_look_ns(job)));
        cluster_work(job); /* first: when this node is lost, that is why its workers have ended */
        const bool children = take_signals(job);
        signals_handle_held(job);
        if (children)
            handle_children(job);
        else if (watched[1].revents)
            first_failure_at_start(job);
        if (job->running > 0)
            handle_deadline(job);
        if (job->running > 0 || cluster_waits(job)) {
            watch_progress(job);
            watch_absent(job);
        }
    }
}

bool watch_output(struct job *job)
{
    struct signalfd_siginfo info;
    struct pollfd watched[2 + CLUSTER_FDS] = {{.fd = output_end(&job->output), .events = POLLIN},
                                              {.fd = job->signal_fd, .events = POLLIN}};
    if (watched[0].fd < 0)
        return true;
    cluster_watch(job, watched + 2);
    int last_signal = 0; /* the workers have ended: what they wrote gets a moment to arrive */
    if (job->interrupted)
        job_set_deadline(job, job->plan->settings->grace_seconds);
    for (;;) {
        const int milliseconds = job->interrupted ? job_milliseconds(job->deadline_ns) : -1;
        if (poll(watched, 2 + CLUSTER_FDS, milliseconds) == 0) {
            if (last_signal)
                job_decide(job, 128 + last_signal);
            return false;
        }
        if (watched[0].revents)
            return true;
        cluster_work(job);
        if (read(job->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        if (info.ssi_signo == SIGCHLD)
            reap_ended(job);
        if (info.ssi_signo == SIGTSTP)
            job_pause(job);
        else if (signals_end_job(job, (int)info.ssi_signo)) {
            if (!last_signal)
                job_set_deadline(job, LAST_OUTPUT_SECONDS);
            last_signal = (int)info.ssi_signo;
            if (!job->interrupted)
                job->late_signal = last_signal;
            job->interrupted = true;
        }
    }
}

/* A signal between two attempts: false when it ends the job. Of several nodes node 0 ends it;
 * should the next attempt begin meanwhile, it gets the signal. */
static bool take_pause_signal(struct job *job, int signal)
{
    if (signal == SIGCHLD)
        reap_ended(job);
    if (signal == SIGUSR1)
        job->stop_request = SIGUSR1; /* the next attempt is asked at once */
    if (!signals_end_job(job, signal))
        return true;
    if (cluster_leave(job, signal)) {
        job->exit_code = ddp_status_exit_code(DDP_ERR_PREEMPTED);
        return false;
    }
    if (job->late_signal == 0 && cluster_end(job, signal)) {
        job->late_signal = signal;
        return true;
    }
    job->exit_code = 128 + signal;
    return false;
}

bool watch_pause(struct job *job)
{
    struct signalfd_siginfo info;
    struct pollfd watched[1 + CLUSTER_FDS] = {{.fd = job->signal_fd, .events = POLLIN}};
    const int late_signal = job->late_signal;
    job->late_signal = 0;
    if (late_signal)
        job->interrupted = false; /* what it means is found out now: perhaps this node leaves */
    if (late_signal && !take_pause_signal(job, late_signal))
        return false;
    for (;;) {
        const bool over = ddp_deadline_passed(job->deadline_ns);
        if (over && cluster_ready(job))
            return true;
        if (cluster_over(job))
            return false;
        cluster_watch(job, watched + 1); /* another link, when node 0 is another */
        poll(watched, 1 + CLUSTER_FDS, over ? -1 : job_milliseconds(job->deadline_ns));
        cluster_work(job);
        if (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info &&
            !take_pause_signal(job, (int)info.ssi_signo))
            return false;
    }
}
