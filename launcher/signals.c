/* SPDX-License-Identifier: MIT
 *
 * See signals.h. */
#include "config.h"

#include "launcher/signals.h"

#include "core/log.h"
#include "launcher/early.h"
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
    early_end(); /* those that have come are read like any other */
    job->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch signals: %s", strerror(errno));
    return DDP_OK;
}

int signals_joining_fd(const struct job *job)
{
    sigset_t ending;
    sigemptyset(&ending);
    for (int signal = 1; signal < 64; signal++)
        if (signal == SIGUSR1 || signals_end_job(job, signal))
            watch(&ending, &signal, 1);
    return signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
}

void signals_end_workers(struct job *job, int signal, bool kills)
{
    job->interrupted = true;
    if (kills)
        job_kill(job);
    else
        job_end(job, signal);
}

void signals_from_node(struct job *job, const char *node, int signal, bool kills)
{
    char name[32];
    if (!signals_end_job(job, signal)) {
        job_signal(job, signal);
    } else if (kills ? job->state < KILLED : job->state < ENDING) {
        ddp_log(DDP_LOG_INFO, "%s on %s: %s %d worker%s",
                report_signal_name(signal, name, sizeof name), node, kills ? "killing" : "ending",
                job->running, job->running == 1 ? "" : "s");
        signals_end_workers(job, signal, kills);
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
