/* SPDX-License-Identifier: MIT
 *
 * See signals.h. */
#include "config.h"

#include "launcher/signals.h"

#include "core/log.h"
#include "launcher/cluster.h"
#include "launcher/report.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
static const int passed_signals[] = {SIGUSR1, SIGUSR2};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void watch(sigset_t *set, const int *signals, size_t count)
{
    struct sigaction now;
    for (size_t i = 0; i < count; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(set, signals[i]); /* nohup's SIGHUP stays ignored */
}

enum ddp_status signals_open(struct job *job)
{
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    sigset_t watched, all;
    sigaction(SIGCHLD, &normal, NULL); /* ignored, it would hide how children ended */
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTSTP);
    watch(&watched, (const int[]){SIGQUIT}, 1);
    watch(&watched, ending_signals, COUNT(ending_signals));
    watch(&watched, passed_signals, COUNT(passed_signals));
    for (int signal = 1; signal < 64; signal++)
        if (job->plan->settings->ending_signals >> signal & 1)
            watch(&watched, &signal, 1);
    sigfillset(&all);
    sigdelset(&all, SIGTTIN);
    sigprocmask(SIG_SETMASK, &all, NULL);
    job->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch signals: %s", strerror(errno));
    return DDP_OK;
}

int signals_ending_fd(const struct job *job)
{
    sigset_t ending;
    sigemptyset(&ending);
    for (int signal = 1; signal < 64; signal++)
        if (signals_end_job(job, signal))
            watch(&ending, &signal, 1);
    return signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A request that the workers answer by themselves: no deadline runs, for a step and a checkpoint
 * take their time. */
static void ask_to_stop(struct job *job, int signal)
{
    char name[32];
    if (!job->stop_request)
        ddp_log(DDP_LOG_INFO, "%s: stopping after this step%s",
                report_signal_name(signal, name, sizeof name),
                signal == SIGINT ? "; again: ending at once" : "");
    job_request_stop(job, signal);
}

static void end_workers(struct job *job, int signal, bool kills)
{
    job->interrupted = true;
    if (kills)
        job_kill(job);
    else
        job_end(job, signal);
}

static void handle_ending_signal(struct job *job, int signal)
{
    char name[32];
    const bool asked = job->stop_request == SIGINT || job->stop_request == SIGTERM;
    if (job->state < ENDING && !asked && (signal == SIGINT || signal == SIGTERM) &&
        job_accepts_stop(job)) {
        ask_to_stop(job, signal);
        return;
    }
    bool again = signal == SIGINT && (job->state >= ENDING || job->stop_request == SIGINT);
    if (job->state >= ENDING && !again) {
        job_signal(job, signal);
        return;
    }
    if (cluster_signal(job, signal, again) && !again)
        return; /* node 0 says what becomes of it */
    ddp_log(DDP_LOG_INFO, "%s: %s %d worker%s", report_signal_name(signal, name, sizeof name),
            again ? "killing" : "ending", job->running, job->running == 1 ? "" : "s");
    end_workers(job, signal, again);
}

void signals_from_node(struct job *job, int node, int signal, bool kills)
{
    char name[32];
    if (!signals_end_job(job, signal)) {
        job_signal(job, signal);
    } else if (kills ? job->state < KILLED : job->state < ENDING) {
        ddp_log(DDP_LOG_INFO, "%s on %s: %s %d worker%s",
                report_signal_name(signal, name, sizeof name), cluster_node_name(job, node),
                kills ? "killing" : "ending", job->running, job->running == 1 ? "" : "s");
        end_workers(job, signal, kills);
    }
}

bool signals_end_job(const struct job *job, int signal)
{
    if (job->plan->settings->ending_signals >> signal & 1)
        return true;
    for (size_t i = 0; i < COUNT(ending_signals); i++)
        if (signal == ending_signals[i])
            return true;
    return false;
}

void signals_handle(struct job *job, int signal)
{
    if (signal == SIGTSTP && job->cluster)
        ddp_log(DDP_LOG_WARNING, "Ctrl-Z has no effect: the other nodes would take this one for "
                                 "lost if it stopped");
    else if (signal == SIGTSTP)
        job_pause(job);
    if (signal == SIGQUIT && !signals_end_job(job, signal))
        job_show(job);
    if (signals_end_job(job, signal)) {
        handle_ending_signal(job, signal);
        return;
    }
    if (signal == SIGUSR1 && job_accepts_stop(job)) {
        ask_to_stop(job, signal);
        return;
    }
    if (signal == SIGUSR1)
        job_request_stop(job, signal);
    for (size_t i = 0; i < COUNT(passed_signals); i++)
        if (signal == passed_signals[i]) {
            cluster_signal(job, signal, false);
            job_signal(job, signal);
        }
}
