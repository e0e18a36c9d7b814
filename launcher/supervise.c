/* SPDX-License-Identifier: MIT
 *
 * See supervise.h. One loop around poll(): signals come through a signalfd, deadlines through
 * poll's time limit; there is no handler and nothing spins. */
#include "config.h"

#include "launcher/supervise.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "job/board.h"
#include "launcher/children.h"
#include "launcher/keeper.h"
#include "launcher/memory_limit.h"
#include "launcher/output.h"
#include "launcher/report.h"
#include "launcher/spawn.h"
#include "launcher/table.h"
#include "launcher/terminal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long to wait for the rank that failed first when only its victims (exit code of
 * DDP_ERR_ABORTED) are seen. */
#define CULPRIT_WAIT_SECONDS 0.5

enum state {
    RUNNING,
    DOUBTING, /* a victim has exited; the culprit should follow at once */
    ENDING,   /* SIGTERM is sent; SIGKILL follows at the deadline */
    KILLED,   /* SIGKILL is sent */
};

struct worker {
    pid_t pid; /* 0: not started */
    bool running;
    bool suspect; /* has failed, and whether it failed first is not judged yet */
    int wait_status;
    long peak_kib; /* of its memory */
};

struct job {
    struct plan *plan;
    struct ddp_board board;
    int board_fd;
    int heap_fd;
    struct children children;
    struct keeper keeper;
    struct spawner spawner;
    struct terminal terminal;
    struct output output;
    struct worker *workers;
    int running;
    int signal_fd;
    enum state state;
    int64_t deadline_ns;
    uint64_t progress; /* of the board, as last seen */
    int64_t progress_ns;
    bool interrupted; /* by a signal to ddprun */
    bool decided;     /* exit_code is */
    bool restartable; /* it failed in a way that may not come again */
    int exit_code;
    int failed_rank;          /* the one that was named, or -1 */
    long long kills_at_start; /* for want of memory */
};

/* --- signals --------------------------------------------------------------------------------- */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int passed_signals[] = {SIGUSR1, SIGUSR2};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void watch(sigset_t *set, const int *signals, size_t count)
{
    struct sigaction now;
    for (size_t i = 0; i < count; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(set, signals[i]); /* nohup's SIGHUP stays ignored */
}

/* All signals are blocked: around fork they must be, and elsewhere they are read from the
 * descriptor. */
static enum ddp_status open_signals(struct job *job)
{
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    sigset_t watched, all;
    sigaction(SIGCHLD, &normal, NULL); /* ignored, it would hide how children ended */
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTSTP);
    watch(&watched, ending_signals, COUNT(ending_signals));
    watch(&watched, passed_signals, COUNT(passed_signals));
    sigfillset(&all);
    sigdelset(&all, SIGTTIN);
    sigprocmask(SIG_SETMASK, &all, NULL);
    job->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch signals: %s", strerror(errno));
    return DDP_OK;
}

static void signal_workers(const struct job *job, int signal)
{
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].running)
            kill(-job->workers[rank].pid, signal);
}

static void kill_workers(struct job *job)
{
    signal_workers(job, SIGKILL);
    job->state = KILLED;
    job->deadline_ns = INT64_MAX;
}

static void set_deadline(struct job *job, double seconds)
{
    job->deadline_ns = ddp_clock_ns() + (int64_t)(seconds * 1e9);
}

/* Asks all workers to end; who does not within the grace period is killed. */
static void end_workers(struct job *job, int signal)
{
    signal_workers(job, signal);
    signal_workers(job, SIGCONT); /* who is stopped must hear it too */
    job->state = ENDING;
    set_deadline(job, job->plan->settings->grace_seconds);
}

static void handle_ending_signal(struct job *job, int signal)
{
    if (signal == SIGQUIT)
        table_log(&job->board);
    char name[32];
    bool again = job->state >= ENDING && signal == SIGINT;
    if (job->state >= ENDING && !again) {
        signal_workers(job, signal);
        return;
    }
    job->interrupted = true;
    ddp_log(DDP_LOG_INFO, "%s: %s %d worker%s", report_signal_name(signal, name, sizeof name),
            again ? "killing" : "ending", job->running, job->running == 1 ? "" : "s");
    if (again)
        kill_workers(job);
    else
        end_workers(job, signal);
}

/* Ctrl-Z: all stop, and go on together. */
static void pause_job(struct job *job)
{
    signal_workers(job, SIGSTOP);
    terminal_pause(&job->terminal);
    signal_workers(job, SIGCONT);
}

static void handle_signal(struct job *job, int signal)
{
    if (signal == SIGTSTP)
        pause_job(job);
    for (size_t i = 0; i < COUNT(passed_signals); i++)
        if (signal == passed_signals[i])
            signal_workers(job, signal);
    for (size_t i = 0; i < COUNT(ending_signals); i++)
        if (signal == ending_signals[i])
            handle_ending_signal(job, signal);
}

/* --- who failed first ------------------------------------------------------------------------ */

static void decide(struct job *job, int exit_code)
{
    if (!job->decided)
        job->exit_code = exit_code;
    job->decided = true;
}

/* Shows why a child could not start: once, the others fail in the same way. */
static void show_start_errors(struct job *job)
{
    struct spawn_error error;
    char text[512];
    while (spawner_next_error(&job->spawner, &error)) {
        if (job->decided)
            continue;
        spawn_error_text(&error, job->plan, text, sizeof text);
        ddp_log(DDP_LOG_ERROR, "%s", text);
        decide(job, spawn_error_exit_code(&error));
        end_workers(job, SIGTERM);
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

static void name_failed(struct job *job, int rank)
{
    const struct worker *worker = &job->workers[rank];
    bool killed = WIFSIGNALED(worker->wait_status) && WTERMSIG(worker->wait_status) == SIGKILL;
    const struct report_end end = {
        .rank = rank,
        .pid = worker->pid,
        .wait_status = worker->wait_status,
        .peak_kib = worker->peak_kib,
        .no_memory = killed && memory_limit_kills() > job->kills_at_start,
        .left = job->running,
    };
    report_failure(&job->board, &end);
    job->failed_rank = rank;
}

/* Takes the job down because of the first suspect. `final`: nobody worse will turn up. */
static void judge(struct job *job, bool final)
{
    int rank = first_suspect(job);
    if (rank < 0)
        return;
    enum suspicion how = suspicion(job, rank);
    int status = job->workers[rank].wait_status;
    if (job->state >= ENDING) {
        decide(job, report_exit_code(status));
        return;
    }
    if (how <= PREEMPTED && job->running > 0 && !final) {
        if (job->state == RUNNING)
            set_deadline(job,
                         how == VICTIM ? CULPRIT_WAIT_SECONDS : job->plan->settings->grace_seconds);
        job->state = DOUBTING;
        return;
    }
    decide(job, report_exit_code(status));
    job->restartable = how != PREEMPTED;
    if (job->restartable)
        name_failed(job, rank);
    ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
    end_workers(job, SIGTERM);
}

/* --- children that ended or stopped ---------------------------------------------------------- */

static int rank_of(const struct job *job, pid_t pid)
{
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].running && job->workers[rank].pid == pid)
            return rank;
    return -1;
}

/* Reaps one child. A worker's group goes with it, and while it is not reaped its number cannot
 * belong to others. */
static void reap(struct job *job, pid_t pid)
{
    int status = 0, rank = rank_of(job, pid);
    struct rusage usage = {.ru_maxrss = 0};
    if (rank >= 0) {
        kill(-pid, SIGKILL);
        atomic_store(&job->keeper.groups[rank], 0);
    }
    if (wait4(pid, &status, 0, &usage) < 0 || rank < 0)
        return;
    struct worker *worker = &job->workers[rank];
    worker->running = false;
    worker->wait_status = status;
    worker->peak_kib = usage.ru_maxrss;
    worker->suspect = status != 0;
    job->running--;
}

static void handle_children(struct job *job)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            break;
        reap(job, info.si_pid);
    }
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) < 0 || info.si_pid == 0)
            break;
        if (rank_of(job, info.si_pid) < 0)
            continue;
        if (info.si_status == SIGTTIN || info.si_status == SIGTTOU)
            terminal_lend(&job->terminal, info.si_pid);
        else if (info.si_status == SIGTSTP && info.si_pid == job->terminal.borrower)
            pause_job(job);
    }
    show_start_errors(job);
    judge(job, false);
}

/* --- the loop
 * ------------------------------------------------------------------------------------------------
 */

/* How long poll() may sleep until `deadline_ns`. */
static int milliseconds_until(int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX)
        return -1;
    int64_t left_ms = (deadline_ns - ddp_clock_ns() + 999999) / 1000000;
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

static void handle_deadline(struct job *job)
{
    if (!ddp_deadline_passed(job->deadline_ns))
        return;
    if (job->state == DOUBTING) {
        judge(job, true);
        return;
    }
    ddp_log(DDP_LOG_WARNING, "%d worker%s did not end within %g s: SIGKILL", job->running,
            job->running == 1 ? "" : "s", job->plan->settings->grace_seconds);
    kill_workers(job);
}

/* How often the board is looked at for progress: a tenth of the time limit, at most a second. */
static int64_t watch_interval_ns(const struct job *job)
{
    double interval = job->plan->settings->timeout_seconds / 10;
    return (int64_t)((interval < 1 ? interval : 1) * 1e9) + 1;
}

static void watch_progress(struct job *job)
{
    double limit = job->plan->settings->timeout_seconds;
    if (limit <= 0 || job->state != RUNNING)
        return;
    uint64_t progress = table_progress(&job->board);
    int64_t now = ddp_clock_ns();
    if (progress != job->progress || progress == 0) {
        job->progress = progress;
        job->progress_ns = now;
        return;
    }
    if ((double)(now - job->progress_ns) < limit * 1e9)
        return;
    ddp_log(DDP_LOG_ERROR, "no rank has got on for %g s; ending the job", limit);
    table_log(&job->board);
    decide(job, EXIT_HANG);
    job->restartable = true;
    ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
    end_workers(job, SIGTERM);
}

static void wait_for_workers(struct job *job)
{
    struct signalfd_siginfo info;
    struct pollfd watched = {.fd = job->signal_fd, .events = POLLIN};
    while (job->running > 0) {
        int64_t until_ns = job->deadline_ns;
        if (job->state == RUNNING && job->plan->settings->timeout_seconds > 0)
            until_ns = ddp_clock_ns() + watch_interval_ns(job);
        poll(&watched, 1, milliseconds_until(until_ns));
        bool children = false;
        while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
            children = children || info.ssi_signo == SIGCHLD;
            handle_signal(job, (int)info.ssi_signo);
        }
        if (children)
            handle_children(job);
        if (job->running > 0) {
            handle_deadline(job);
            watch_progress(job);
        }
    }
    judge(job, true);
}

/* Waits until the last line is written. Who reads it may be slow, or stopped: a signal ends the
 * wait. */
static bool wait_for_output(struct job *job)
{
    struct signalfd_siginfo info;
    struct pollfd watched[] = {{.fd = output_end(&job->output), .events = POLLIN},
                               {.fd = job->signal_fd, .events = POLLIN}};
    if (watched[0].fd < 0)
        return true;
    if (job->interrupted)
        set_deadline(job, job->plan->settings->grace_seconds);
    for (;;) {
        if (poll(watched, 2, job->interrupted ? milliseconds_until(job->deadline_ns) : -1) == 0)
            return false;
        if (watched[0].revents)
            return true;
        if (read(job->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        if (info.ssi_signo == SIGTSTP)
            terminal_pause(&job->terminal);
        else if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGUSR1 &&
                 info.ssi_signo != SIGUSR2) {
            decide(job, 128 + (int)info.ssi_signo);
            return false;
        }
    }
}

static void start_workers(struct job *job)
{
    for (int rank = 0; rank < job->plan->nproc; rank++) {
        struct worker *worker = &job->workers[rank];
        if (output_start_worker(&job->output, &job->spawner, rank, &worker->pid) != DDP_OK) {
            decide(job, EXIT_LAUNCHER);
            end_workers(job, SIGKILL);
            return;
        }
        worker->running = true;
        job->running++;
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
    return open_signals(job);
}

static enum ddp_status open_board(struct job *job)
{
    const struct settings *settings = job->plan->settings;
    enum ddp_status status =
        ddp_board_create(&job->board, &job->board_fd, job->plan->nproc, (uint64_t)getpid());
    if (status != DDP_OK)
        return status;
    struct ddp_board_memory *memory = job->board.memory;
    memory->restart = (uint32_t)job->plan->restart;
    if (job->plan->restart == 0) { /* a fault comes once */
        memcpy(memory->faults, settings->faults, sizeof settings->faults);
        memory->fault_count = (uint32_t)settings->fault_count;
    }
    if (settings->straggler_report)
        memory->flags |= DDP_BOARD_TIMES;
    status = ddp_board_create_heap(&job->heap_fd);
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
    if ((status = keeper_start(&job->keeper, job->plan->nproc)) != DDP_OK)
        goto no_keeper;
    if ((status = spawner_open(&job->spawner, job->plan, &job->keeper, job->board_fd,
                               job->heap_fd)) != DDP_OK)
        goto no_spawner;
    if ((status = output_open(&job->output, job->plan, &job->board,
                              output_take_directory(&job->output))) == DDP_OK)
        return DDP_OK;
    spawner_close(&job->spawner);
no_spawner:
    keeper_stop(&job->keeper);
no_keeper:
    ddp_board_unmap(&job->board);
    close(job->board_fd);
    close(job->heap_fd);
    return status;
}

static void show_last_words(struct job *job)
{
    char text[RELAY_TAIL + 1];
    if (job->failed_rank < 0)
        return;
    output_tail(&job->output, job->failed_rank, text);
    report_last_words(job->failed_rank, text);
}

/* Starts all workers once and waits for their end. */
static void run_attempt(struct job *job)
{
    memset(job->workers, 0, (size_t)job->plan->nproc * sizeof *job->workers);
    job->state = RUNNING;
    job->deadline_ns = INT64_MAX;
    job->decided = job->restartable = false;
    job->exit_code = 0;
    job->failed_rank = -1;
    job->kills_at_start = memory_limit_kills();
    if (open_attempt(job) != DDP_OK) {
        decide(job, EXIT_LAUNCHER);
        return;
    }
    start_workers(job);
    wait_for_workers(job);
    keeper_stop(&job->keeper);
    children_end_all(&job->children);
    show_last_words(job);
    bool written = wait_for_output(job);
    char *directory = output_take_directory(&job->output);
    output_close(&job->output, written);
    job->output.directory = directory;
    spawner_close(&job->spawner);
    if (job->plan->settings->straggler_report)
        table_stragglers(&job->board);
    if (written) /* else the relay is still there, and looks at it */
        ddp_board_unmap(&job->board);
    else
        job->restartable = false;
    close(job->board_fd);
    close(job->heap_fd);
}

/* Waits before another attempt, each time twice as long, at most half a minute. False when a signal
 * came that ends the job. */
static bool back_off(struct job *job)
{
    struct signalfd_siginfo info;
    struct pollfd watched = {.fd = job->signal_fd, .events = POLLIN};
    int doublings = job->plan->restart < 8 ? job->plan->restart : 8;
    double seconds = 0.2 * (1 << doublings);
    ddp_log(DDP_LOG_INFO, "restarting all workers (%d of %d)", job->plan->restart + 1,
            (int)job->plan->settings->max_restarts);
    set_deadline(job, seconds < 30 ? seconds : 30);
    while (poll(&watched, 1, milliseconds_until(job->deadline_ns)) != 0) {
        if (read(job->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        for (size_t i = 0; i < COUNT(ending_signals); i++)
            if ((int)info.ssi_signo == ending_signals[i]) {
                job->exit_code = 128 + ending_signals[i];
                return false;
            }
    }
    return true;
}

int supervise(struct plan *plan)
{
    struct job job = {.plan = plan, .terminal = {.fd = -1}, .exit_code = EXIT_LAUNCHER};
    if (open_job(&job) == DDP_OK) {
        run_attempt(&job);
        while (job.restartable && !job.interrupted &&
               plan->restart < plan->settings->max_restarts && back_off(&job)) {
            plan_next(plan);
            run_attempt(&job);
        }
        close(job.signal_fd);
    }
    terminal_close(&job.terminal);
    free(output_take_directory(&job.output));
    free(job.workers);
    return job.exit_code;
}
