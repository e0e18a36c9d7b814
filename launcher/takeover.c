/* SPDX-License-Identifier: MIT
 *
 * An elastic job whose node 0 is lost goes on with another one (link/succeed.c), unless both could:
 * of two parts of a network only one may. That with more than half of the members goes on, or, of
 * two halves, that with the lowest number among them. Those whose process has certainly ended are in
 * no part. So node 0 ends the job when it has lost so many members in silence that they may go on
 * without it; whoever was only cut off finds fewer than half. */
#include "config.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/cluster_state.h"

#include <stdio.h>
#include <string.h>

/* --- members that have lost node 0 ------------------------------------------------------------ */

bool takeover_begin(struct job *job, const char *why, struct link_text *end)
{
    struct cluster *cluster = job->cluster;
    if (!cluster->elastic.on || cluster->nodes[0].left || job->interrupted ||
        (cluster->ended && !cluster->again))
        return false;
    cluster->elastic.orphan = true;
    end->flags = END_AGAIN | END_MEMBERS;
    snprintf(end->text, sizeof end->text, "%s; going on without it if enough nodes are left", why);
    if (!cluster->open || cluster->ended)
        ddp_log(DDP_LOG_ERROR, "%s", end->text);
    return true;
}

/* Members see the loss, and end their workers, at different times. */
static double return_seconds(const struct job *job)
{
    return 2 * LINK_DEFAULT_LOST + job->plan->settings->grace_seconds;
}

/* This node is node 0 from now on. */
static void take_over(struct job *job, const struct link_succession *succession)
{
    char address[128];
    struct cluster *cluster = job->cluster;
    struct elastic *elastic = &cluster->elastic;
    cluster->node = 0;
    cluster->count = 1;
    elastic->lost++;
    elastic->changing = false;
    elastic->wait_end_ns = 0;
    elastic->old = elastic->now = (struct votes){.voters = succession->voters};
    elastic->tie_is_lost = succession->tie_is_lost;
    elastic->expected = succession->reached;
    elastic->return_ns = ddp_clock_ns() + (int64_t)(return_seconds(job) * 1e9);
    snprintf(address, sizeof address, "%s", link_contact(cluster->link));
    char *port = strchr(address, ' ');
    if (port)
        *port++ = 0;
    ddp_log(DDP_LOG_INFO,
            "this is node 0 now; nodes that come are to be given --master-addr %s --master-port %s",
            address, port ? port : "");
}

bool takeover_work(struct job *job)
{
    struct cluster *cluster = job->cluster;
    struct link_succession succession = {0};
    /* The next node 0 ends its workers meanwhile, and waits for others itself. */
    if (cluster_succeed(job, 2 * return_seconds(job), &succession) != DDP_OK)
        return false;
    cluster->elastic.orphan = false;
    if (link_node(cluster->link) == 0) {
        take_over(job, &succession);
        return true;
    }
    const struct link_round *round = &link_meeting(cluster->link)->round;
    job->plan->restart = round->restart - 1;
    job->plan->failures = round->failures - !job->members_change;
    members_take_part(job);
    return true;
}

/* --- node 0 ----------------------------------------------------------------------------------- */

bool takeover_waits(struct job *job)
{
    struct cluster *cluster = job->cluster;
    struct elastic *elastic = &cluster->elastic;
    if (elastic->return_ns == 0)
        return false;
    const int there = 1 + link_votes(cluster->link, (uint32_t)job->plan->restart + 1);
    if (there < elastic->expected && !ddp_deadline_passed(elastic->return_ns))
        return true;
    elastic->return_ns = 0;
    elastic->old.silent = elastic->old.voters - there;
    return false;
}

void takeover_note_members(struct job *job)
{
    const struct cluster *cluster = job->cluster;
    struct elastic *elastic = &job->cluster->elastic;
    if (!elastic->on || cluster->node > 0 || elastic->confirmed || !cluster->open)
        return;
    for (int n = 1; n < cluster->count; n++)
        if (!link_node_alive(cluster->link, n) ||
            link_status(cluster->link, n)->attempt != (uint32_t)job->plan->restart)
            return;
    elastic->confirmed = true;
    elastic->old = elastic->now;
    elastic->tie_is_lost = false;
}

static void lose_vote(struct votes *votes, bool ended)
{
    if (ended)
        votes->voters--;
    else
        votes->silent++;
}

void takeover_note_loss(struct job *job, int node)
{
    struct cluster *cluster = job->cluster;
    const bool ended = cluster->nodes[node].left || link_has_ended(cluster->link, node);
    lose_vote(&cluster->elastic.old, ended);
    lose_vote(&cluster->elastic.now, ended);
}

bool takeover_forbids(const struct job *job, struct link_text *end)
{
    const struct elastic *elastic = &job->cluster->elastic;
    const struct votes *old = &elastic->old, *now = &elastic->now;
    if (2 * old->silent + elastic->tie_is_lost <= old->voters && 2 * now->silent <= now->voters)
        return false;
    end->exit_code = EXIT_LAUNCHER;
    snprintf(end->text, sizeof end->text,
             "%d nodes are silent, and may go on without this one: ending, so that not both do",
             old->silent);
    return true;
}
