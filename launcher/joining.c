/* SPDX-License-Identifier: MIT
 *
 * What the cluster does over its link whatever is sent: joining and leaving, who is who, signs of
 * life. */
#include "config.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "launcher/cluster_state.h"
#include "launcher/report.h"
#include "launcher/signals.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define STATUS_NS    INT64_C(200000000) /* how often our signs of life get news */
#define STOP_SECONDS 3 /* from a signal until nodes that have not come are not waited for */

void cluster_tell(const struct job *job, enum link_kind kind, uint32_t number, int64_t step)
{
    const struct link_step message = {(uint32_t)job->plan->restart, number, step};
    link_send(job->cluster->link, job->cluster->node, kind, &message, sizeof message);
}

/* --- joining ---------------------------------------------------------------------------------- */

/* Signals while the nodes come together. The workers hear of them if all nodes come soon: so nodes
 * that are asked to stop when they have just been started end alike. */
struct interrupt {
    struct job *job;
    int fd; /* readable when one of the next is */
    int signals, timer;
};

static enum ddp_status interrupt_open(struct interrupt *interrupt, struct job *job)
{
    struct epoll_event event = {.events = EPOLLIN};
    *interrupt = (struct interrupt){.job = job,
                                    .fd = epoll_create1(EPOLL_CLOEXEC),
                                    .signals = signals_joining_fd(job),
                                    .timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)};
    if (interrupt->fd < 0 || interrupt->signals < 0 || interrupt->timer < 0 ||
        epoll_ctl(interrupt->fd, EPOLL_CTL_ADD, interrupt->signals, &event) != 0 ||
        epoll_ctl(interrupt->fd, EPOLL_CTL_ADD, interrupt->timer, &event) != 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot watch signals: %s", strerror(errno));
    return DDP_OK;
}

static void interrupt_close(struct interrupt *interrupt)
{
    const int fds[] = {interrupt->fd, interrupt->signals, interrupt->timer};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static bool asks_to_stop(const struct job *job, int signal)
{
    return signal == SIGINT || signal == SIGTERM ||
           (signal == SIGUSR1 && !signals_end_job(job, signal));
}

/* The job ends before it has begun. */
static enum ddp_status nothing_started(struct job *job)
{
    char name[32];
    const bool stops = asks_to_stop(job, job->late_signal);
    ddp_log(DDP_LOG_INFO, "%s: not all nodes have joined yet; nothing was started",
            report_signal_name(job->late_signal, name, sizeof name));
    job->exit_code = stops ? ddp_status_exit_code(DDP_ERR_PREEMPTED) : 128 + job->late_signal;
    return stops ? DDP_ERR_PREEMPTED : DDP_ERR_ABORTED;
}

/* Takes one signal: the one that ends the job stays. False: there is none. */
static bool take_signal(const struct interrupt *interrupt, int *signal)
{
    struct signalfd_siginfo info;
    struct job *job = interrupt->job;
    if (read(interrupt->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return false;
    *signal = (int)info.ssi_signo;
    if (job->late_signal == 0 || signals_end_job(job, *signal))
        job->late_signal = *signal;
    return true;
}

static enum ddp_status interrupted(void *owner)
{
    const struct interrupt *interrupt = owner;
    struct job *job = interrupt->job;
    const struct itimerspec soon = {.it_value = {.tv_sec = STOP_SECONDS}};
    struct pollfd timer = {.fd = interrupt->timer, .events = POLLIN};
    char name[32];
    int signal;
    for (int before; before = job->late_signal, take_signal(interrupt, &signal);) {
        if (before == SIGINT && signal == SIGINT)
            return nothing_started(job);
        if (before)
            continue;
        ddp_log(DDP_LOG_INFO, "%s: waiting %d s for nodes that are on their way, to end alike%s",
                report_signal_name(signal, name, sizeof name), STOP_SECONDS,
                signal == SIGINT ? "; again: ending at once" : "");
        timerfd_settime(interrupt->timer, 0, &soon, NULL);
    }
    return poll(&timer, 1, 0) > 0 ? nothing_started(job) : DDP_OK;
}

/* The same on all nodes, and probably of this job only. */
static void name_job(const struct launch_plan *plan, char *name, size_t size)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    if (plan->place->kind == PLACE_SLURM && job && step)
        snprintf(name, size, "%s.%s", job, step);
    else
        snprintf(name, size, "%s", plan->settings->run_id);
}

/* What the job runs, for other nodes to compare: words with spaces between them. */
static void show_command(char *const *command, char out[COMMAND_BYTES])
{
    size_t used = 0;
    for (int i = 0; command[i] && used < COMMAND_BYTES; i++)
        used +=
            (size_t)snprintf(out + used, COMMAND_BYTES - used, "%s%s", i ? " " : "", command[i]);
}

static struct link_setup make_setup(struct interrupt *interrupt)
{
    struct job *job = interrupt->job;
    struct cluster *cluster = job->cluster;
    const struct place *place = job->plan->place;
    const struct settings *settings = job->plan->settings;
    struct exchange *exchange = &cluster->exchange;
    return (struct link_setup){.node = place->node,
                               .node_count = place->node_count,
                               .least_nodes = place->least_nodes,
                               .command = cluster->elastic.command,
                               .job = cluster->elastic.job,
                               .host = cluster->elastic.host,
                               .nproc = job->plan->nproc,
                               .max_restarts = settings->max_restarts,
                               .address = place->address,
                               .port = place->port,
                               .port_count = place->port_count,
                               .worker_port = launch_plan_free_port(),
                               .node_timeout = settings->node_timeout_seconds,
                               .interrupt_fd = interrupt->fd,
                               .interrupted = interrupted,
                               .interrupted_owner = interrupt,
                               .proof = &cluster->elastic.proof,
                               .exchange = exchange->pmix ? exchange_contact : NULL,
                               .exchange_owner = exchange};
}

/* Where node 0 is. */
static void take_meeting(struct job *job)
{
    struct launch_plan *plan = job->plan;
    const struct link_meeting *meeting = link_meeting(job->cluster->link);
    snprintf(plan->master_addr, sizeof plan->master_addr, "%s", meeting->address);
    snprintf(plan->interface, sizeof plan->interface, "%s", meeting->interface);
}

static enum ddp_status join(struct job *job, struct cluster *cluster)
{
    struct launch_plan *plan = job->plan;
    const struct place *place = plan->place;
    const struct settings *settings = plan->settings;
    struct elastic *elastic = &cluster->elastic;
    struct interrupt interrupt;
    struct exchange *exchange = &cluster->exchange;
    gethostname(elastic->host, sizeof elastic->host - 1);
    name_job(plan, elastic->job, sizeof elastic->job);
    show_command(plan->settings->command, elastic->command);
    elastic->on = place_is_elastic(place);
    elastic->least = place->least_nodes;
    elastic->most = place->node_count;
    enum ddp_status status = interrupt_open(&interrupt, job);
    if (status == DDP_OK)
        status = exchange_open(exchange, place, settings->node_timeout_seconds, interrupt.fd);
    const struct link_setup setup = make_setup(&interrupt);
    if (status == DDP_OK)
        status =
            proof_open(&elastic->proof, &(struct proof_setup){.key_file = settings->key_file,
                                                              .pmix = exchange->pmix != NULL,
                                                              .munge = place->kind == PLACE_SLURM,
                                                              .insecure = settings->insecure_link});
    if (status == DDP_OK)
        status = link_open(&cluster->link, &setup);
    const bool unneeded = status == DDP_OK && !cluster->link;
    if (unneeded) {
        job->exit_code = EXIT_SUCCESS;
        status = DDP_ERR_ABORTED;
    }
    if (status != DDP_OK || !elastic->on)
        proof_close(&elastic->proof);
    int signal;
    if (status == DDP_ERR_ABORTED && !unneeded && !job->late_signal &&
        take_signal(&interrupt, &signal))
        status = nothing_started(job); /* PMIx has not asked */
    interrupt_close(&interrupt);
    if (status == DDP_ERR_PREEMPTED && !job->late_signal) {
        ddp_log(DDP_LOG_INFO,
                "another node was asked to stop before all had come; nothing was started");
        job->exit_code = ddp_status_exit_code(status);
    }
    if (status != DDP_OK)
        return status;
    members_take_part(job);
    if (!elastic->on && launch_plan_check_faults(plan, &job->exit_code) != DDP_OK)
        return DDP_ERR_INVALID;
    plan->bell_fd = cluster->bell_fd;
    take_meeting(job);
    const struct link_round *round = &link_meeting(cluster->link)->round;
    plan->master_port = round->worker_port;
    plan->restart = round->restart;
    plan->failures = round->failures;
    return DDP_OK;
}

bool cluster_succeed(struct job *job)
{
    struct cluster *cluster = job->cluster;
    struct link_succession succession;
    struct interrupt interrupt;
    enum ddp_status status = interrupt_open(&interrupt, job);
    struct link_setup setup = make_setup(&interrupt);
    setup.epoch = (uint32_t)job->plan->restart + 1;
    /* The next node 0 ends its workers meanwhile, and waits for others itself. */
    setup.node_timeout = 2 * takeover_seconds(job);
    job->exit_code = EXIT_LAUNCHER;
    if (status == DDP_OK)
        status = link_succeed(&cluster->link, &setup, &succession);
    interrupt_close(&interrupt);
    if (status != DDP_OK)
        return false;
    cluster->elastic.orphan = false;
    take_meeting(job);
    if (link_node(cluster->link) == 0) {
        takeover_take(job, &succession);
        return true;
    }
    const struct link_round *round = &link_meeting(cluster->link)->round;
    job->plan->restart = round->restart - 1;
    job->plan->failures = round->failures - !job->members_change;
    members_take_part(job);
    return true;
}

enum ddp_status cluster_open(struct job *job)
{
    if (job->plan->node_count == 1)
        return DDP_OK;
    struct cluster *cluster = ddp_array_alloc(1, sizeof *cluster);
    if (!cluster)
        return DDP_ERR_MEMORY;
    cluster->bell_fd = -1;
    job->cluster = cluster;
    cluster->nodes = ddp_array_alloc((size_t)job->plan->node_count, sizeof *cluster->nodes);
    enum ddp_status status = cluster->nodes ? ddp_bell_create(&cluster->bell_fd) : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = join(job, cluster);
    if (status != DDP_OK)
        cluster_close(job);
    return status;
}

void cluster_close(struct job *job)
{
    struct cluster *cluster = job->cluster;
    if (!cluster)
        return;
    if (cluster->link)
        members_report(job);
    link_close(cluster->link);
    proof_close(&cluster->elastic.proof);
    exchange_close(&cluster->exchange);
    if (cluster->bell_fd >= 0)
        close(cluster->bell_fd);
    free(cluster->nodes);
    free(cluster);
    job->cluster = NULL;
}

const char *cluster_node_name(const struct job *job, int node)
{
    static char name[LINK_NAME_BYTES + 32];
    name[0] = 0;
    if (job->cluster)
        snprintf(name, sizeof name, "node %d (%s)", node, link_node_name(job->cluster->link, node));
    return name;
}

/* --- our status, and that of the others on node 0's board ------------------------------------- */

static void set_status(struct job *job)
{
    struct ddp_board_view view;
    struct link_status status = {.attempt = (uint32_t)job->plan->restart,
                                 .running = job->running,
                                 .lowest_step = -1,
                                 .highest_step = -1,
                                 .accepts = job_accepts(job),
                                 .stepped = board_table_stepped(&job->board)};
    if (job->plan->settings->timeout_seconds > 0) /* else we do not look, and do not know */
        status.idle_ns = ddp_clock_ns() - job->progress_ns;
    for (int i = 0; i < job->plan->nproc; i++) {
        ddp_board_read(&job->board, i, &view);
        if (i == 0 || view.step < status.lowest_step) {
            status.lowest_step = view.step;
            memcpy(status.phase, view.phase, sizeof status.phase);
        }
        status.highest_step = view.step > status.highest_step ? view.step : status.highest_step;
    }
    link_set_status(job->cluster->link, &status);
}

static void note_nodes(struct job *job)
{
    for (int n = 0; n < job->cluster->count && job->cluster->count > 1; n++) {
        struct ddp_board_node *line = ddp_board_node(&job->board, n);
        const struct link_status *status = link_status(job->cluster->link, n);
        ddp_board_store_text(line->host, DDP_BOARD_HOST_WORDS,
                             link_node_name(job->cluster->link, n));
        atomic_store(&line->heard_ns, link_heard_ns(job->cluster->link, n));
        atomic_store(&line->lowest, status->lowest_step);
        atomic_store(&line->highest, status->highest_step);
        atomic_store(&line->running, (uint32_t)status->running);
        ddp_board_store_text(line->phase, DDP_BOARD_WORDS, status->phase);
    }
}

void cluster_refresh(struct job *job)
{
    struct cluster *cluster = job->cluster;
    const int64_t now = ddp_clock_ns();
    if (now - cluster->status_ns < STATUS_NS)
        return;
    cluster->status_ns = now;
    set_status(job);
    if (cluster->node == 0)
        note_nodes(job);
}

void cluster_watch(const struct job *job, struct pollfd fds[CLUSTER_FDS])
{
    const struct cluster *cluster = job->cluster;
    fds[0] = (struct pollfd){.fd = cluster ? link_fd(cluster->link) : -1, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = cluster ? cluster->bell_fd : -1, .events = POLLIN};
}

int64_t cluster_deadline_ns(const struct job *job)
{
    return job->cluster ? job->cluster->verdict_ns : INT64_MAX;
}
