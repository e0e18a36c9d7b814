/* SPDX-License-Identifier: MIT
 *
 * An elastic job whose node 0 is lost goes on with another one (link/succeed.c), unless both could:
 * of two parts of a network only one may. That with more than half of the members goes on, or, of
 * two halves, that with the lowest number among them. Those whose process has certainly ended are
 * in no part. So node 0 ends the job when it has lost so many members in silence that they may go
 * on without it; whoever was only cut off finds fewer than half. */
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

double takeover_seconds(const struct job *job)
{
    return 2 * LINK_DEFAULT_LOST + job->plan->settings->grace_seconds;
}

void takeover_take(struct job *job, const struct link_succession *succession)
{
    char address[128];
    struct cluster *cluster = job->cluster;
    struct elastic *elastic = &cluster->elastic;
    cluster->node = 0;
    cluster->count = 1;
    elastic->lost++;
    elastic->changing = false;
    elastic->wait_end_ns = 0;
    elastic->voters = succession->voters;
    elastic->old = elastic->silent = elastic->silent_new = 0;
    elastic->tie_is_lost = succession->tie_is_lost;
    elastic->expected = succession->reached;
    elastic->return_ns = ddp_clock_ns() + (int64_t)(takeover_seconds(job) * 1e9);
    snprintf(address, sizeof address, "%s", link_contact(cluster->link));
    char *port = strchr(address, ' ');
    if (port)
        *port++ = 0;
    ddp_log(DDP_LOG_INFO,
            "this is node 0 now; nodes that come are to be given --master-addr %s --master-port %s",
            address, port ? port : "");
}

/* --- node 0 -----------------------------------------------------------------------------------
 *
 * While members do not all know of each other, those that know the last ones may go on as these, or
 * as any between them. So from the voters, who were the last members that did, those are taken away
 * that have ended; and those that were lost in silence since then may be half of as many, at most:
 * then they are no majority of any of these members. A newer member counts once, not twice, since
 * members that have it are one more. */

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
    elastic->silent = elastic->voters - there;
    /* One that lives and does not come may have gone on with a node 0 that this one was cut off
     * from, and that has ended since. */
    elastic->tie_is_lost = elastic->tie_is_lost || there < elastic->expected;
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
    elastic->voters = elastic->old = cluster->count;
    elastic->silent = elastic->silent_new = 0;
    elastic->tie_is_lost = false;
}

/* Old members come before others. */
void takeover_form(struct job *job, int nodes)
{
    const struct cluster *cluster = job->cluster;
    struct elastic *elastic = &job->cluster->elastic;
    int old = 0;
    for (int n = 0; n < elastic->old && n < cluster->count; n++)
        old += link_node_alive(cluster->link, n);
    elastic->old = elastic->old > 0 ? old : nodes;
    elastic->confirmed = false;
}

void takeover_note_loss(struct job *job, int node)
{
    struct elastic *elastic = &job->cluster->elastic;
    if (!job->cluster->nodes[node].left && !link_has_ended(job->cluster->link, node)) {
        elastic->silent++;
        elastic->silent_new += node >= elastic->old;
    } else if (node < elastic->old) {
        elastic->voters--;
    }
}

bool takeover_forbids(const struct job *job, struct link_text *end)
{
    const struct elastic *elastic = &job->cluster->elastic;
    const int parts = 2 * elastic->silent - elastic->silent_new;
    if (parts + elastic->tie_is_lost <= elastic->voters)
        return false;
    end->exit_code = EXIT_LAUNCHER;
    snprintf(end->text, sizeof end->text,
             "%d node%s silent, and may go on without this one: ending, so that not both do",
             elastic->silent, elastic->silent == 1 ? " is" : "s are");
    return true;
}
