/* SPDX-License-Identifier: MIT
 *
 * Nodes that come and go (--nnodes MIN:MAX). Node 0 decides, and changes the members only between
 * two attempts: a node that is lost ends the attempt at once; for one that waits at the door the
 * workers are asked to end. Then the nodes that are there are numbered anew. */
#include "config.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/cluster_state.h"

#include <stdio.h>
#include <string.h>

#define SOON_NS       INT64_C(60000000000) /* a node that is lost before has come for nothing */
#define MOST_DOUBLING 6                    /* of the seconds that nodes wait then */
#define ALIKE_NS      INT64_C(1000000000)  /* whoever asks all nodes to stop reaches them all */
#define SILENT_NS     INT64_C(1500000000)  /* a sign of life is overdue */
/* A node whose connection was reset takes node 0 for ended if that ends within 0.6 s (succeed.c),
 * and knows no node that has come since: until it knows better, none does. */
#define DOUBT_NS INT64_C(1000000000)

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

void members_take_part(struct job *job)
{
    struct cluster *cluster = job->cluster;
    const struct link_meeting *meeting = link_meeting(cluster->link);
    cluster->node = link_node(cluster->link);
    cluster->count = link_count(cluster->link);
    cluster->restart_port = (uint32_t)meeting->round.worker_port;
    cluster->elastic.since_ns = ddp_clock_ns();
    for (int n = 0; n < cluster->count; n++)
        job->plan->starts[n + 1] = job->plan->starts[n] + link_node_workers(cluster->link, n);
    cluster->elastic.members = cluster->count;
    if (cluster->elastic.voters == 0)
        cluster->elastic.voters = cluster->elastic.old = cluster->count;
    launch_plan_take_part(job->plan, cluster->node, cluster->count);
    if (meeting->round.first_size > 0)
        job->plan->first_size = meeting->round.first_size;
    if (meeting->round.begun)
        job->plan->begun = meeting->round.begun;
    if (cluster->elastic.on)
        ddp_log(DDP_LOG_INFO, "%d node%s, of which this is number %d", cluster->count,
                plural(cluster->count), cluster->node);
}

/* Members with which there is a connection, ourselves included. */
static int count_alive(const struct cluster *cluster)
{
    int alive = 0;
    for (int n = 0; n < cluster->count; n++)
        alive += link_node_alive(cluster->link, n);
    return alive;
}

/* --- losses ----------------------------------------------------------------------------------- */

/* A node that comes and is lost again and again costs the others their work: it waits longer each
 * time. */
static void hold_back(struct elastic *elastic)
{
    if (ddp_clock_ns() - elastic->since_ns > SOON_NS)
        elastic->losses_in_a_row = elastic->hold_ns = 0;
    const int before = elastic->losses_in_a_row++;
    if (before == 0)
        return;
    const int seconds = 1 << (before < MOST_DOUBLING ? before : MOST_DOUBLING);
    elastic->hold_ns = seconds * INT64_C(1000000000);
    ddp_log(DDP_LOG_INFO, "nodes come and are lost: one that comes now has to wait %d s", seconds);
}

bool members_lost(struct job *job, int node, const char *why, struct link_text *end)
{
    const struct cluster *cluster = job->cluster;
    struct elastic *elastic = &job->cluster->elastic;
    const int left = count_alive(cluster) + link_waiting(cluster->link, 0);
    *end = (struct link_text){.exit_code = EXIT_LAUNCHER,
                              .node = node,
                              .rank = -1,
                              .sure = CERTAIN,
                              .flags = END_MEMBERS};
    const bool in_order = cluster->nodes[node].left;
    elastic->left += in_order;
    elastic->lost += !in_order;
    if (!in_order && link_has_ended(cluster->link, node))
        elastic->ended_ns = ddp_clock_ns();
    if (!in_order)
        hold_back(elastic);
    if (!cluster->open || cluster->ended) { /* the next members are formed without it */
        ddp_log(in_order ? DDP_LOG_INFO : DDP_LOG_ERROR, "%s", why);
        return false;
    }
    if (job->interrupted)
        snprintf(end->text, sizeof end->text, "%s; ending all nodes", why);
    else if (takeover_forbids(job, end))
        end->flags = 0;
    else if (left < elastic->least)
        snprintf(end->text, sizeof end->text, "%s; %d node%s left, of at least %d", why, left,
                 left == 1 ? " is" : "s are", elastic->least);
    else
        snprintf(end->text, sizeof end->text, "%s; going on without it", why);
    return true;
}

bool members_doubtful(const struct job *job)
{
    const struct cluster *cluster = job->cluster;
    const int64_t now = ddp_clock_ns();
    for (int n = 1; cluster->elastic.on && n < cluster->count; n++)
        if (link_node_alive(cluster->link, n) && now - link_heard_ns(cluster->link, n) > SILENT_NS)
            return true;
    return false;
}

/* --- arrivals and departures ------------------------------------------------------------------ */

/* Does all run, so that it can be stopped? What is about to end is left alone. */
static bool runs(const struct job *job)
{
    const struct cluster *cluster = job->cluster;
    for (int n = 0; n < cluster->count; n++)
        if (cluster->nodes[n].done)
            return false;
    return cluster->open && !cluster->ended && !cluster->suspected && !job->stop_request &&
           !job->held_signal && job->state == RUNNING && job->running == job->plan->nproc;
}

static struct link_limits limits_of(const struct elastic *elastic, int64_t waited_ns)
{
    return (struct link_limits){elastic->most, elastic->most_workers, waited_ns};
}

/* So many nodes would be members now. */
static int fitting_nodes(const struct cluster *cluster, int64_t waited_ns)
{
    const struct link_limits limits = limits_of(&cluster->elastic, waited_ns);
    return link_fitting(cluster->link, &limits);
}

/* Says once that a node waits because the program has no use for its workers. */
static void note_spare(struct job *job)
{
    const struct cluster *cluster = job->cluster;
    struct elastic *elastic = &job->cluster->elastic;
    if (elastic->spare_told || cluster->count >= elastic->most ||
        link_waiting(cluster->link, elastic->hold_ns) == 0)
        return;
    elastic->spare_told = true;
    ddp_log(DDP_LOG_INFO,
            "a node has come and waits: the program can use at most %d workers, and its own would "
            "be more",
            elastic->most_workers);
}

bool members_wait(struct job *job)
{
    const struct cluster *cluster = job->cluster;
    struct elastic *elastic = &job->cluster->elastic;
    if (!elastic->on || cluster->node > 0 || elastic->changing || !runs(job))
        return false;
    if (elastic->leave_ns > 0 && ddp_deadline_passed(elastic->leave_ns)) {
        elastic->changing = true;
        ddp_log(DDP_LOG_INFO, "ending all workers, to start them again without the nodes that "
                              "leave");
        return true;
    }
    const int fitting = fitting_nodes(cluster, elastic->hold_ns) - count_alive(cluster);
    if (fitting <= 0) {
        note_spare(job);
        return false;
    }
    elastic->changing = true;
    ddp_log(DDP_LOG_INFO, "%d node%s come: ending all workers, to start them again with more",
            fitting, fitting == 1 ? " has" : "s have");
    return true;
}

bool members_leave(struct job *job, int node)
{
    struct cluster *cluster = job->cluster;
    int stay = count_alive(cluster) + link_waiting(cluster->link, 0) - 1;
    for (int n = 1; n < cluster->count; n++)
        stay -= n != node && cluster->nodes[n].leaves && link_node_alive(cluster->link, n);
    if (stay < cluster->elastic.least)
        return false;
    cluster->nodes[node].leaves = true;
    if (cluster->elastic.leave_ns == 0)
        cluster->elastic.leave_ns = ddp_clock_ns() + ALIKE_NS;
    ddp_log(DDP_LOG_INFO, "node %d (%s) was asked to leave", node,
            link_node_name(cluster->link, node));
    return true;
}

bool members_end(const struct job *job, const struct link_text *end)
{
    return job->cluster->elastic.changing && !job->stop_request && end->sure == PREEMPTED;
}

bool members_refuse(struct job *job, const struct link_text *end)
{
    const struct cluster *cluster = job->cluster;
    struct elastic *elastic = &job->cluster->elastic;
    const int left = count_alive(cluster) + link_waiting(cluster->link, 0) - 1;
    if (!elastic->on || end->node == 0 || end->node < elastic->stayed || end->sure <= PREEMPTED ||
        !job->plan->begun || job->interrupted || left < elastic->least)
        return false;
    link_send_to(cluster->link, end->node, LINK_END, end, cluster_text_bytes(end));
    hold_back(elastic);
    ddp_log(DDP_LOG_WARNING, "node %d (%s) has come and failed; going on without it", end->node,
            link_node_name(cluster->link, end->node));
    return true;
}

/* --- the next members ------------------------------------------------------------------------- */

static void note_period(struct elastic *elastic)
{
    const int count = elastic->members;
    const size_t used = strlen(elastic->history);
    const double seconds = (double)(ddp_clock_ns() - elastic->since_ns) * 1e-9;
    snprintf(elastic->history + used, sizeof elastic->history - used, "%s%d node%s for %.1f s",
             used ? ", " : "", count, plural(count), seconds);
}

/* Fewer nodes than the least are there. */
static void wait_for_more(struct job *job, int nodes, struct link_text *end)
{
    struct elastic *elastic = &job->cluster->elastic;
    const double seconds = job->plan->settings->node_timeout_seconds;
    if (elastic->wait_end_ns == 0) {
        elastic->wait_end_ns = ddp_clock_ns() + (int64_t)(seconds * 1e9);
        ddp_log(DDP_LOG_INFO, "%d of at least %d nodes %s there: waiting up to %g s for more",
                nodes, elastic->least, nodes == 1 ? "is" : "are", seconds);
    } else if (ddp_deadline_passed(elastic->wait_end_ns)) {
        end->exit_code = EXIT_LAUNCHER;
        snprintf(end->text, sizeof end->text,
                 "only %d of at least %d nodes %s there, and no other has come within %g s; ending "
                 "the job",
                 nodes, elastic->least, nodes == 1 ? "is" : "are", seconds);
    }
}

bool members_form(struct job *job, struct link_text *end)
{
    struct cluster *cluster = job->cluster;
    struct elastic *elastic = &cluster->elastic;
    *end = (struct link_text){.rank = -1, .sure = CERTAIN};
    for (int n = 1; n < cluster->count; n++)
        if (link_node_alive(cluster->link, n) && !cluster->nodes[n].ready)
            return false;
    if (takeover_waits(job) || takeover_forbids(job, end))
        return false;
    const int left = count_alive(cluster);
    const int64_t hold_ns = left < elastic->least ? 0 : elastic->hold_ns;
    const int nodes = fitting_nodes(cluster, hold_ns);
    if (cluster->ended)
        return false;
    if (nodes < elastic->least) {
        wait_for_more(job, nodes, end);
        return false;
    }
    const int stay = left + link_votes(cluster->link, (uint32_t)job->plan->restart + 1);
    if (nodes > stay && elastic->ended_ns > 0 && ddp_clock_ns() - elastic->ended_ns < DOUBT_NS)
        return false;
    note_period(elastic);
    elastic->changes++;
    elastic->came += nodes - (stay < nodes ? stay : nodes);
    elastic->paused_ns += ddp_clock_ns() - elastic->pause_ns;
    elastic->wait_end_ns = elastic->leave_ns = 0;
    elastic->changing = false;
    elastic->stayed = stay > left ? nodes : left; /* who has come back lies between the others */
    takeover_form(job, nodes);
    const struct link_limits limits = limits_of(elastic, hold_ns);
    link_form(cluster->link, &limits,
              &(struct link_round){launch_plan_free_port(), job->plan->restart + 1,
                                   job->plan->failures + !job->members_change,
                                   job->plan->first_size, job->plan->begun});
    members_take_part(job);
    return true;
}

void members_report(const struct job *job)
{
    struct elastic *elastic = &job->cluster->elastic;
    if (job->cluster->node > 0 || elastic->changes == 0)
        return;
    note_period(elastic);
    ddp_log(DDP_LOG_INFO, "%s; %d came, %d left, %d lost; %.1f s without workers", elastic->history,
            elastic->came, elastic->left, elastic->lost, (double)elastic->paused_ns * 1e-9);
}

void members_pause(struct job *job)
{
    job->cluster->elastic.pause_ns = ddp_clock_ns();
}

void cluster_note_members(const struct job *job)
{
    const struct cluster *cluster = job->cluster;
    if (!cluster || !cluster->elastic.on)
        return;
    const struct elastic *elastic = &cluster->elastic;
    job->board.memory->members = (struct ddp_board_members){
        .least = (uint32_t)elastic->least,
        .most = (uint32_t)elastic->most,
        .came = (uint32_t)elastic->came,
        .left = (uint32_t)elastic->left,
        .lost = (uint32_t)elastic->lost,
        .paused_ns = elastic->paused_ns,
    };
}
