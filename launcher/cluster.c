/* SPDX-License-Identifier: MIT
 *
 * See cluster.h. The protocol, over one connection from each node to node 0; an attempt's messages
 * carry its number, and those of another attempt are dropped:
 *   POSTED         an id or address of a worker; node 0 passes it on; each writes it to its board
 *   BARRIER        all ranks of a node are in this round (step 1), or one wants to leave it (0);
 *                  node 0 opens the round on all boards (1), or lets that node's ranks leave (0)
 *   STOP           a request (step: 1 where workers accept it); then node 0 sends HOLD, with the
 *                  same: each node holds its ranks between two steps,
 *                  answers HELD with the last step that one has passed; STOP_STEP names the next
 *   ABORT          a rank's abort word, for all boards
 *   SIGNAL         of one ddprun, for the workers of all; or it leaves an elastic job
 *   FAILED         what failed on a node, at once; node 0 keeps the first that is not a victim
 *   DONE           all workers of a node have ended; node 0 sends END when all nodes have said so
 *   END            from node 0 to all, once an attempt: exit code, text, whether RESTART follows
 *   RESTART        a node is ready for the next attempt; node 0 starts it when all are, in an
 *                  elastic job by the link's own word of the members
 * Who loses node 0 ends its part; who is lost to node 0 ends the job. In an elastic one both end
 * the attempt: takeover.c. */
#include "config.h"

#include "launcher/cluster.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/cluster_state.h"
#include "launcher/report.h"
#include "launcher/signals.h"

#include <limits.h>
#include <signal.h>
#include <string.h>

#define SIGNAL_BITS    8 /* of a message's number; above them is the node that got the signal */
#define SIGNAL_MASK    63u
#define NO_SIGNAL      0                   /* nobody has asked: nodes have come */
#define SAME_SIGNAL_NS INT64_C(2000000000) /* a signal that came to all nodes is not passed on */

/* --- what workers have posted ----------------------------------------------------------------- */

static void post(const struct job *job)
{
    struct cluster *cluster = job->cluster;
    struct ddp_posted posted;
    while (ddp_mirror_next(&cluster->mirror, &job->board, &posted)) {
        struct link_posted message = {.attempt = (uint32_t)job->plan->restart,
                                      .number = (uint32_t)posted.number,
                                      .edition = posted.edition};
        memcpy(message.data, posted.data, posted.bytes);
        link_send(cluster->link, cluster->node, LINK_POSTED, &message,
                  offsetof(struct link_posted, data) + posted.bytes);
    }
}

/* Passes a message on from its node to the others. */
static void spread(const struct job *job, const struct link_message *message)
{
    link_send(job->cluster->link, message->node, message->kind, message->data, message->bytes);
}

static void hear_posted(const struct job *job, const struct link_message *message)
{
    const struct link_posted *there = message->data;
    struct ddp_posted posted = {
        .number = there->number < INT_MAX ? (int)there->number : -1,
        .edition = there->edition,
        .bytes = (uint32_t)(message->bytes - offsetof(struct link_posted, data))};
    memcpy(posted.data, there->data, posted.bytes);
    if (ddp_mirror_put(&job->cluster->mirror, &job->board, &posted))
        spread(job, message);
}

/* --- barrier ---------------------------------------------------------------------------------- */

/* Node 0: opens the round when all nodes have arrived. */
static void open_barrier(struct job *job, uint32_t round)
{
    struct cluster *cluster = job->cluster;
    for (int n = 0; n < cluster->count; n++)
        if (!cluster->nodes[n].arrived)
            return;
    for (int n = 0; n < cluster->count; n++)
        cluster->nodes[n].arrived = false;
    cluster_tell(job, LINK_BARRIER, round, 1);
    ddp_mirror_open_barrier(&job->board, round);
}

static void look_at_barrier(struct job *job)
{
    struct cluster *cluster = job->cluster;
    uint32_t round;
    if (ddp_mirror_seal_barrier(&job->board, &round)) {
        if (cluster->node > 0) {
            cluster_tell(job, LINK_BARRIER, round, 1);
        } else {
            cluster->nodes[0].arrived = true;
            open_barrier(job, round);
        }
    }
    if (cluster->barrier_asked || !ddp_mirror_barrier_asked(&job->board, &round))
        return;
    if (cluster->node > 0) {
        cluster->barrier_asked = true;
        cluster_tell(job, LINK_BARRIER, round, 0);
    } else {
        cluster->nodes[0].arrived = false;
        ddp_mirror_unseal_barrier(&job->board, round);
    }
}

static void hear_barrier(struct job *job, int node, const struct link_step *message)
{
    struct cluster *cluster = job->cluster;
    if (cluster->node > 0) {
        cluster->barrier_asked = false;
        if (message->step)
            ddp_mirror_open_barrier(&job->board, message->number);
        else
            ddp_mirror_unseal_barrier(&job->board, message->number);
    } else if (message->step) {
        cluster->nodes[node].arrived = true;
        open_barrier(job, message->number);
    } else if (cluster->nodes[node].arrived) {
        const struct link_step answer = {(uint32_t)job->plan->restart, message->number, 0};
        cluster->nodes[node].arrived = false;
        link_send_to(cluster->link, node, LINK_BARRIER, &answer, sizeof answer);
    } /* else the round has just been opened, and it will hear that */
}

/* --- stopping after a step -------------------------------------------------------------------- */

/* Node 0: do workers of any node stop after a step when they are asked to do that? */
static bool any_accepts(const struct job *job, enum job_accepts what)
{
    if (job_accepts(job) & what)
        return true;
    for (int n = 1; n < job->cluster->count; n++) {
        const struct link_status *status = link_status(job->cluster->link, n);
        if ((status->accepts & what) && status->attempt == (uint32_t)job->plan->restart)
            return true;
    }
    return false;
}

/* Node 0: names the step when all nodes have told theirs. */
static void name_step(struct job *job)
{
    struct cluster *cluster = job->cluster;
    for (int n = 0; n < cluster->count; n++)
        if (!cluster->nodes[n].held && !cluster->nodes[n].lost)
            return;
    const int64_t last = cluster->last_step;
    const int64_t step = last == INT64_MIN || last == INT64_MAX ? last : last + 1;
    cluster->hold = HOLD_NAMED;
    cluster_tell(job, LINK_STOP_STEP, 0, step);
    ddp_mirror_stop_before(&job->board, step);
}

/* Node 0. */
static void hear_held(struct job *job, int node, int64_t step)
{
    struct cluster *cluster = job->cluster;
    if (cluster->hold != HOLD_ASKED)
        return;
    cluster->nodes[node].held = true;
    cluster->last_step = step > cluster->last_step ? step : cluster->last_step;
    name_step(job);
}

/* Node 0: a request is there. `accepted`: workers have said that they stop. */
static void hold_all(struct job *job, int signal, bool accepted)
{
    struct cluster *cluster = job->cluster;
    if (cluster->hold != HOLD_NONE)
        return;
    job->stop_request = job->stop_request ? job->stop_request : signal;
    if (cluster->count == 1) /* its ranks agree by themselves */
        return;
    cluster->hold = HOLD_ASKED;
    cluster->last_step = INT64_MIN;
    cluster_tell(job, LINK_HOLD, (uint32_t)signal, accepted || any_accepts(job, JOB_ACCEPTS_STOP));
    hear_held(job, 0, ddp_mirror_hold(&job->board));
}

/* Node 0: lets nodes in that wait: workers that accept it stop after a step. */
static void admit(struct job *job)
{
    if (!members_wait(job))
        return;
    if (!any_accepts(job, JOB_ACCEPTS_CHANGE)) {
        verdict_change(job);
        return;
    }
    job->cluster->mirror.stop_request = true;
    atomic_store(&job->board.memory->stop_request, 1);
    hold_all(job, NO_SIGNAL, true);
}

void cluster_request_stop(struct job *job, int signal)
{
    struct cluster *cluster = job->cluster;
    if (!cluster || !cluster->open || cluster->ended || cluster->mirror.stop_request)
        return;
    cluster->mirror.stop_request = true;
    if (cluster->node > 0)
        cluster_tell(job, LINK_STOP, (uint32_t)signal, job_accepts_stop(job));
    else
        hold_all(job, signal, false);
}

bool cluster_has_asked(struct job *job, int signal)
{
    struct cluster *cluster = job->cluster;
    const bool asked = cluster && cluster->asked_signal == signal &&
                       ddp_clock_ns() - cluster->asked_ns < SAME_SIGNAL_NS;
    if (asked)
        cluster->asked_signal = 0;
    return asked;
}

/* A node that is asked to end is often not asked alone: the same signal may be on its way here. */
static void note_asked(struct job *job, int node, int signal)
{
    if (node == job->cluster->node || job->stop_request || job->state >= ENDING)
        return; /* the answer to ours, or another one */
    job->cluster->asked_signal = signal;
    job->cluster->asked_ns = ddp_clock_ns();
}

static void hear_stop(struct job *job, int node, const struct link_step *message)
{
    char name[32];
    const int signal = (int)(message->number & SIGNAL_MASK);
    job->cluster->mirror.stop_request = true;
    atomic_store(&job->board.memory->stop_request, 1);
    if (signal == NO_SIGNAL)
        return;
    note_asked(job, node, signal);
    if (!job->stop_request && message->step)
        ddp_log(DDP_LOG_INFO, "%s on %s: stopping after this step",
                report_signal_name(signal, name, sizeof name), cluster_node_name(job, node));
    job->stop_request = job->stop_request ? job->stop_request : signal;
    job->held_signal = 0; /* this is the same, or as good */
    job->without_signal = job->without_signal || message->step;
}

/* --- signals and aborts ----------------------------------------------------------------------- */

/* Node 0 says what becomes of a signal to any ddprun. */
static void decide_signal(struct job *job, int node, int signal, bool kills)
{
    const struct link_step message = {(uint32_t)job->plan->restart,
                                      (uint32_t)signal | (uint32_t)node << SIGNAL_BITS, kills};
    if (job->cluster->ended && job->cluster->again && signals_end_job(job, signal)) {
        job->late_signal = signal;
        return;
    }
    if (!kills && (signal == SIGINT || signal == SIGTERM) && any_accepts(job, JOB_ACCEPTS_STOP)) {
        hear_stop(job, node, &(struct link_step){.number = (uint32_t)signal, .step = 1});
        hold_all(job, signal, true);
        return;
    }
    const bool ends = signals_end_job(job, signal);
    link_send(job->cluster->link, ends ? 0 : node, LINK_SIGNAL, &message, sizeof message);
    if (ends || node > 0)
        signals_from_node(job, cluster_node_name(job, node), signal, kills);
}

bool cluster_signal(struct job *job, int signal, bool kills)
{
    struct cluster *cluster = job->cluster;
    if (!cluster || !cluster->open)
        return false;
    const bool ends = signals_end_job(job, signal);
    if (!ends && cluster->passed_signal == signal &&
        ddp_clock_ns() - cluster->passed_ns < SAME_SIGNAL_NS)
        return true; /* whoever sent it sends it to every ddprun */
    if (cluster->node > 0)
        cluster_tell(job, LINK_SIGNAL, (uint32_t)signal, kills);
    else
        decide_signal(job, 0, signal, kills);
    return true;
}

static void hear_signal(struct job *job, int node, const struct link_step *message)
{
    struct cluster *cluster = job->cluster;
    const int signal = (int)(message->number & SIGNAL_MASK);
    const int origin = (int)(message->number >> SIGNAL_BITS);
    if (message->step == SIGNAL_LEAVES &&
        (!cluster->open || cluster->ended || cluster->node > 0 || members_leave(job, node)))
        return; /* in the end of an attempt it leaves without asking */
    const bool kills = message->step == SIGNAL_KILLS;
    cluster->passed_signal = signal;
    cluster->passed_ns = ddp_clock_ns();
    if (cluster->open && !kills && signals_end_job(job, signal))
        note_asked(job, cluster->node == 0 ? node : origin, signal);
    if (!cluster->open && cluster->node == 0)
        cluster_end(job, signal);
    else if (cluster->node == 0)
        decide_signal(job, node, signal, kills);
    else if (cluster->open)
        signals_from_node(job, cluster_node_name(job, origin < cluster->count ? origin : 0), signal,
                          kills);
}

bool cluster_leave(struct job *job, int signal)
{
    struct cluster *cluster = job->cluster;
    char name[32];
    if (!cluster || !cluster->elastic.on || cluster->node == 0 || cluster->elastic.leaving ||
        (signal != SIGINT && signal != SIGTERM) || job->interrupted || job->stop_request ||
        (cluster->ended && !cluster->again) ||
        (!cluster->open && cluster->count <= cluster->elastic.least))
        return false;
    cluster->elastic.leaving = true;
    ddp_log(DDP_LOG_INFO, "%s: this node leaves the job; again: ending all nodes",
            report_signal_name(signal, name, sizeof name));
    if (cluster->open && !cluster->ended)
        cluster_tell(job, LINK_SIGNAL, (uint32_t)signal, SIGNAL_LEAVES);
    return true;
}

bool cluster_leaves(const struct job *job)
{
    return job->cluster && job->cluster->elastic.leaving;
}

static void hear_abort(struct job *job, const struct link_message *message)
{
    const struct link_step *abort = message->data;
    if (abort->number == 0 || abort->number > (uint32_t)job->plan->job_size)
        return;
    job->cluster->mirror.abort = true;
    ddp_board_abort(&job->board, abort->number);
    spread(job, message);
}

static void look_at_board(struct job *job)
{
    struct cluster *cluster = job->cluster;
    ddp_bell_take(cluster->bell_fd);
    const uint32_t by = atomic_load(&job->board.memory->abort_word);
    if (cluster->ended)
        return;
    post(job);
    cluster->elastic.most_workers = ddp_board_most_workers(&job->board);
    if (cluster->count > 1)
        look_at_barrier(job);
    if (atomic_load(&job->board.memory->stop_request))
        cluster_request_stop(job, job->stop_request ? job->stop_request : SIGTERM);
    if (by != 0 && by != DDP_ABORT_BY_LAUNCHER && !cluster->mirror.abort) {
        cluster->mirror.abort = true;
        cluster_tell(job, LINK_ABORT, by, 0);
    }
}

/* --- the loop --------------------------------------------------------------------------------- */

void cluster_begin(struct job *job)
{
    struct cluster *cluster = job->cluster;
    if (!cluster)
        return;
    for (int n = 0; n < cluster->count; n++)
        cluster->nodes[n] = (struct node_state){.lost = !link_node_alive(cluster->link, n)};
    memset(&cluster->mirror, 0, sizeof cluster->mirror);
    cluster->hold = HOLD_NONE;
    cluster->barrier_asked = cluster->told_done = cluster->refused = cluster->suspected = false;
    cluster->ended = cluster->again = false;
    cluster->reported = -1;
    cluster->shown = SIZE_MAX;
    cluster->verdict_ns = INT64_MAX;
    cluster->status_ns = 0;
    cluster->restart_port = 0;
}

void cluster_start(struct job *job)
{
    if (!job->cluster)
        return;
    job->cluster->open = true;
    if (job->stop_request)
        cluster_request_stop(job, job->stop_request);
}

static void hear(struct job *job, const struct link_message *message)
{
    struct cluster *cluster = job->cluster;
    const struct link_step *step = message->data;
    const bool node0 = cluster->node == 0;
    const bool always =
        message->kind == LINK_END || message->kind == LINK_RESTART || message->kind == LINK_SIGNAL;
    if (!cluster->open && !always)
        return;
    switch (message->kind) {
    case LINK_POSTED:
        hear_posted(job, message);
        break;
    case LINK_BARRIER:
        hear_barrier(job, message->node, step);
        break;
    case LINK_STOP:
        if (node0) {
            hear_stop(job, message->node, step);
            hold_all(job, job->stop_request, step->step);
        }
        break;
    case LINK_HOLD:
        if (!node0) {
            hear_stop(job, 0, step);
            cluster_tell(job, LINK_HELD, 0, ddp_mirror_hold(&job->board));
        }
        break;
    case LINK_HELD:
        if (node0)
            hear_held(job, message->node, step->step);
        break;
    case LINK_STOP_STEP:
        if (!node0)
            ddp_mirror_stop_before(&job->board, step->step);
        break;
    case LINK_ABORT:
        hear_abort(job, message);
        break;
    case LINK_SIGNAL:
        hear_signal(job, message->node, step);
        break;
    case LINK_FAILED:
        if (node0)
            verdict_consider(job, message->data);
        break;
    case LINK_TIMES:
        if (node0)
            cluster->nodes[message->node].times = ((const struct link_times *)message->data)->times;
        break;
    case LINK_DONE:
        if (node0)
            verdict_node_done(job, message->node, step);
        break;
    case LINK_END:
        if (!node0)
            verdict_end(job, message->data);
        break;
    case LINK_RESTART:
        if (node0)
            cluster->nodes[message->node].ready = true;
        else
            cluster->restart_port = step->number;
        break;
    case LINK_LOST:
    case LINK_LEFT:
    case LINK_CUT:
    case LINK_FORMED:
        break;
    }
}

/* All messages of owners begin with the attempt. RESTART has the number of the one before. */
static bool is_current(const struct job *job, const struct link_message *message)
{
    return *(const uint32_t *)message->data == (uint32_t)job->plan->restart;
}

/* Whose workers had ended is not missed, unless the others wait for its answer. */
static void hear_loss(struct job *job, int node, const char *why, bool cut)
{
    verdict_lost(job, node, why, cut);
    if (job->cluster->open && job->cluster->hold == HOLD_ASKED)
        name_step(job);
}

static bool hear_next(struct job *job)
{
    struct link_message message;
    char left[LINK_NAME_BYTES + 64];
    if (!link_next(job->cluster->link, &message))
        return false;
    if (message.kind == LINK_FORMED) {
        members_take_part(job);
    } else if (message.kind == LINK_LOST || message.kind == LINK_CUT) {
        hear_loss(job, message.node, message.data, message.kind == LINK_CUT);
    } else if (message.kind == LINK_LEFT) {
        job->cluster->nodes[message.node].left = job->cluster->elastic.on;
        snprintf(left, sizeof left, "%s %s", cluster_node_name(job, message.node),
                 job->cluster->elastic.on && message.node > 0 ? "has left"
                                                              : "is lost: its ddprun has ended");
        hear_loss(job, message.node, left, false);
    } else if (is_current(job, &message)) {
        hear(job, &message);
    }
    return true;
}

void cluster_work(struct job *job)
{
    struct cluster *cluster = job->cluster;
    if (!cluster)
        return;
    if (cluster->open)
        look_at_board(job);
    while (!(cluster->restart_port && !cluster->open) && hear_next(job))
        ;
    verdict_tick(job);
    takeover_note_members(job);
    admit(job);
    if (cluster->open)
        cluster_refresh(job);
}
