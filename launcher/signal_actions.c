/* SPDX-License-Identifier: MIT
 *
 * What a signal to ddprun does to the job. See signals.h. */
#include "config.h"

#include "core/log.h"
#include "launcher/cluster.h"
#include "launcher/readiness.h"
#include "launcher/report.h"
#include "launcher/signals.h"

#include <signal.h>

/* A request that the workers answer by themselves: no deadline runs, for a step and a checkpoint
 * take their time. */
static void ask_to_stop(struct job *job, int signal)
{
    char name[32];
    if (!job->stop_request)
        ddp_log(DDP_LOG_INFO, "%s: stopping after this step%s",
                report_signal_name(signal, name, sizeof name),
                signal == SIGINT ? "; again: ending at once" : "");
    job->without_signal = true;
    job_request_stop(job, signal);
    cluster_request_stop(job, signal);
}

static void handle_ending_signal(struct job *job, int signal)
{
    char name[32];
    if (cluster_has_asked(job, signal) || cluster_leave(job, signal))
        return;
    const bool asked = job->stop_request == SIGINT || job->stop_request == SIGTERM;
    if (job->state < ENDING && !asked && (signal == SIGINT || signal == SIGTERM) &&
        job_accepts_stop(job)) {
        ask_to_stop(job, signal);
        return;
    }
    bool again = signal == SIGINT && (job->state >= ENDING || job->stop_request == SIGINT ||
                                      job->held_signal == SIGINT);
    if (job->state >= ENDING && !job->interrupted)
        job->late_signal = signal;
    if (job->state >= ENDING && !again) {
        job_signal(job, signal);
        return;
    }
    if (cluster_signal(job, signal, again) && !again)
        return; /* node 0 says what becomes of it */
    ddp_log(DDP_LOG_INFO, "%s: %s %d worker%s", report_signal_name(signal, name, sizeof name),
            again ? "killing" : "ending", job->running, job->running == 1 ? "" : "s");
    signals_end_workers(job, signal, again);
}

/* Workers whose program has not come so far yet that it can take a request would die of it. */
static bool must_wait(const struct job *job, int signal)
{
    const bool asks = signal == SIGINT || signal == SIGTERM || signal == SIGUSR1;
    return asks && job->state < ENDING && !job_accepts_stop(job) &&
           readiness_some_start(job, signal);
}

void signals_handle_held(struct job *job)
{
    const int signal = job->held_signal;
    if (!signal || must_wait(job, signal))
        return;
    job->held_signal = 0;
    signals_handle(job, signal);
}

void signals_handle(struct job *job, int signal)
{
    if (signal == SIGTSTP)
        job_pause(job);
    if (signal == SIGQUIT && !signals_end_job(job, signal))
        job_show(job);
    if (!(signal == SIGINT && job->held_signal == SIGINT) && must_wait(job, signal)) {
        if (job->held_signal != SIGINT && job->held_signal != SIGTERM)
            job->held_signal = signal;
        if (signal == SIGINT)
            job->held_signal = signal; /* again, it does not wait */
        return;
    }
    if (signals_end_job(job, signal)) {
        handle_ending_signal(job, signal);
        job->held_signal = 0;
        return;
    }
    if (signal == SIGUSR1 && job_accepts_stop(job)) {
        ask_to_stop(job, signal);
        return;
    }
    if (signal == SIGUSR1) {
        job_request_stop(job, signal);
        cluster_request_stop(job, signal);
    }
    if (signal == SIGUSR1 || signal == SIGUSR2) {
        cluster_signal(job, signal, false);
        job_signal(job, signal);
    }
}
