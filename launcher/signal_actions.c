/* SPDX-License-Identifier: MIT
 *
 * What a signal to ddprun does to the job. See signals.h. */
#include "config.h"

#include "core/log.h"
#include "launcher/cluster.h"
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
    job_request_stop(job, signal);
    cluster_request_stop(job, signal);
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

void signals_handle(struct job *job, int signal)
{
    if (signal == SIGTSTP)
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
    if (signal == SIGUSR1) {
        job_request_stop(job, signal);
        cluster_request_stop(job, signal);
    }
    if (signal == SIGUSR1 || signal == SIGUSR2) {
        cluster_signal(job, signal, false);
        job_signal(job, signal);
    }
}
