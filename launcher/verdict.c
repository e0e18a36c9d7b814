/* SPDX-License-Identifier: MIT
 *
 * How an attempt over several nodes ends: nodes report, node 0 decides, all do the same. The first
 * report of a node that is not a victim counts. It is sent as soon as a worker has ended; node 0
 * holds it for the time that one machine gives to see whether others fail alike. */
#include "config.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/cluster_state.h"
#include "launcher/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define DOUBT_MS       200 /* between two looks at a node that is silent */
#define VICTIM_SECONDS 0.5 /* until a victim is named, when nobody else has failed */
#define ALIKE_SECONDS  0.5 /* the most until an exit is named: all workers may fail alike */
#define ALIKE_LEAST    0.3 /* and the least: nodes do not start at once */

/* --- what is done with the end, on every node ------------------------------------------------- */

/* Shows the text; its last part may be in sight on the node where the worker wrote it. */
static void show(const struct job *job, const struct link_text *end)
{
    const struct cluster *cluster = job->cluster;
    const bool own = end->node == cluster->node && end->rank >= 0;
    char *text = strdup(end->text);
    if (!text || ((end->flags & END_REFUSED) && cluster->refused)) {
        free(text);
        return; /* its workers have said it */
    }
    size_t number = 0;
    for (char *line = text, *save = NULL; (line = strtok_r(line, "\n", &save)); line = NULL)
        if (!own || number++ < cluster->shown)
            ddp_log(DDP_LOG_ERROR, "%s", line);
    free(text);
}

void verdict_end(struct job *job, const struct link_text *end)
{
    struct cluster *cluster = job->cluster;
    /* While workers end here, node 0 may hear what ends the job before its next attempt. */
    if (cluster->ended && !cluster->again)
        return;
    cluster->ended = true;
    cluster->again = end->flags & END_AGAIN;
    cluster->verdict_ns = INT64_MAX;
    job->decided = true;
    job->exit_code = end->exit_code;
    job->restartable = cluster->again;
    job->members_change = cluster->again && (end->flags & END_MEMBERS);
    job->disk_full = end->flags & END_DISK_FULL;
    job->failed_rank = end->rank;
    show(job, end);
    if (!cluster->open)
        return;
    if (end->flags & END_SHOW)
        job_show(job);
    ddp_board_abort(&job->board, DDP_ABORT_BY_LAUNCHER);
    if (job->running > 0 && job->state < ENDING)
        job_end(job, SIGTERM);
}

/* --- node 0 ----------------------------------------------------------------------------------- */

/* A worker has failed before any rank has done a step. */
static bool at_once(const struct job *job, const struct link_text *end)
{
    return end->rank >= 0 && job->cluster->open && !board_table_stepped(&job->board) &&
           !cluster_stepped(job);
}

void verdict_decide(struct job *job, struct link_text *end)
{
    const struct launch_plan *plan = job->plan;
    const bool may = (end->flags & END_RESTARTABLE) && !(end->flags & END_DISK_FULL) &&
                     plan->failures < plan->settings->max_restarts;
    end->attempt = (uint32_t)plan->restart;
    end->flags &= ~(uint32_t)END_AGAIN;
    if (members_end(job, end) || (!may && at_once(job, end) && members_refuse(job, end)))
        end->flags |= END_MEMBERS;
    if (!job->interrupted && (may || (end->flags & END_MEMBERS)))
        end->flags |= END_AGAIN;
    link_send(job->cluster->link, job->cluster->node, LINK_END, end, cluster_text_bytes(end));
    verdict_end(job, end);
}

/* All workers of all nodes have exited with the same code: no rank was the first. */
static void say_alike(const struct job *job, struct link_text *end)
{
    const struct node_state *nodes = job->cluster->nodes;
    char line[128], *rest = NULL;
    for (int n = 0; n < job->cluster->count; n++)
        if (!nodes[n].done || nodes[n].alike != nodes[0].alike || nodes[n].alike <= 0 ||
            !WIFEXITED((int)nodes[n].alike))
            return;
    if (end->sure != EXITED || !end->text[0] || job->plan->job_size < 2)
        return;
    const char *newline = strchr(end->text, '\n');
    if (!(rest = strdup(newline ? newline : "")))
        return;
    report_alike(job->plan->job_size, (int)nodes[0].alike, line, sizeof line);
    snprintf(end->text, sizeof end->text, "%s%s", line, rest);
    free(rest);
}

static void name_suspect(struct job *job)
{
    say_alike(job, &job->cluster->suspect);
    verdict_decide(job, &job->cluster->suspect);
}

static bool all_done(const struct cluster *cluster)
{
    for (int n = 0; n < cluster->count; n++)
        if (!cluster->nodes[n].done)
            return false;
    return true;
}

static double patience(const struct job *job, uint32_t sure)
{
    if (sure == VICTIM)
        return VICTIM_SECONDS;
    if (sure == PREEMPTED)
        return job->plan->settings->grace_seconds;
    if (sure != EXITED)
        return 0;
    const double part = (double)(ddp_clock_ns() - job->start_ns) / 5e9;
    return part < ALIKE_LEAST ? ALIKE_LEAST : part > ALIKE_SECONDS ? ALIKE_SECONDS : part;
}

void verdict_consider(struct job *job, const struct link_text *failure)
{
    struct cluster *cluster = job->cluster;
    const struct link_text *before = &cluster->suspect;
    const bool better = !cluster->suspected ||
                        (before->sure <= PREEMPTED && failure->sure > before->sure) ||
                        (failure->sure == CERTAIN && before->sure != CERTAIN);
    /* Workers that a signal to a ddprun ends did not fail. */
    if (cluster->ended || !better || (job->interrupted && failure->sure != CERTAIN))
        return;
    memcpy(&cluster->suspect, failure, cluster_text_bytes(failure));
    cluster->suspected = true;
    cluster->verdict_ns = ddp_clock_ns() + (int64_t)(patience(job, failure->sure) * 1e9);
    verdict_tick(job);
}

void verdict_tick(struct job *job)
{
    struct cluster *cluster = job->cluster;
    if (cluster->node > 0 || cluster->ended || !cluster->suspected ||
        !(ddp_deadline_passed(cluster->verdict_ns) || all_done(cluster)))
        return;
    if (members_doubtful(job)) /* workers fail when a node is lost, and the loss is seen later */
        cluster->verdict_ns = ddp_deadline_ns(DOUBT_MS);
    else
        name_suspect(job);
}

/* All have ended, and nothing was reported. */
static void end_all(struct job *job)
{
    struct link_text end = {.rank = -1};
    for (int n = job->cluster->count - 1; n >= 0; n--)
        if (job->cluster->nodes[n].exit_code)
            end.exit_code = (int32_t)job->cluster->nodes[n].exit_code;
    verdict_decide(job, &end);
}

void verdict_node_done(struct job *job, int node, const struct link_step *done)
{
    struct cluster *cluster = job->cluster;
    struct node_state *state = &cluster->nodes[node];
    const int preempted = ddp_status_exit_code(DDP_ERR_PREEMPTED);
    state->done = true;
    state->exit_code = done->number;
    state->alike = done->step;
    if (cluster->ended)
        return;
    if (!cluster->suspected && (int)done->number == preempted) {
        const struct link_text stopped = {
            .exit_code = preempted, .node = node, .rank = -1, .sure = PREEMPTED};
        verdict_consider(job, &stopped);
    }
    if (!cluster->suspected && all_done(cluster))
        end_all(job);
    else
        verdict_tick(job);
}

/* --- on every node ---------------------------------------------------------------------------- */

void verdict_lost(struct job *job, int node, const char *why, bool cut)
{
    struct cluster *cluster = job->cluster;
    struct link_text end = {.attempt = (uint32_t)job->plan->restart,
                            .exit_code = EXIT_LAUNCHER,
                            .node = node,
                            .rank = -1,
                            .sure = CERTAIN};
    snprintf(end.text, sizeof end.text, "%s; ending all nodes", why);
    if (cluster->node > 0) {
        if (cut || !takeover_begin(job, why, &end) || (cluster->open && !cluster->ended))
            verdict_end(job, &end);
        return;
    }
    cluster->nodes[node].lost = true;
    if (cluster->elastic.on)
        takeover_note_loss(job, node);
    if (cluster->nodes[node].done && cluster->open && !cut) { /* its part was over */
        cluster->elastic.left += cluster->nodes[node].leaves;
        return;
    }
    const bool ends =
        cluster->elastic.on && !cut ? members_lost(job, node, why, &end) : !cluster->ended;
    if (ends)
        verdict_decide(job, &end);
}

bool cluster_fail(struct job *job, const struct cluster_failure *failure)
{
    struct cluster *cluster = job->cluster;
    if (!cluster)
        return false;
    cluster->refused = cluster->refused || failure->refused;
    if (cluster->ended || (cluster_has_reported(job, failure->how) && failure->how != CERTAIN))
        return true;
    struct link_text *text = calloc(1, sizeof *text);
    if (!text)
        return true; /* DONE comes, with its code */
    *text =
        (struct link_text){.attempt = (uint32_t)job->plan->restart,
                           .exit_code = failure->exit_code,
                           .node = cluster->node,
                           .rank = failure->local < 0 ? -1 : job->plan->first_rank + failure->local,
                           .sure = failure->how};
    text->flags = (failure->restartable ? END_RESTARTABLE : 0u) |
                  (failure->disk_full ? END_DISK_FULL : 0u) | (failure->refused ? END_REFUSED : 0u);
    snprintf(text->text, sizeof text->text, "%s", failure->text);
    cluster->reported = failure->how;
    cluster->shown = failure->shown;
    if (cluster->node > 0)
        link_send_to(cluster->link, 0, LINK_FAILED, text, cluster_text_bytes(text));
    else
        verdict_consider(job, text);
    free(text);
    return true;
}

bool cluster_fail_here(struct job *job, int local, int exit_code, const char *what)
{
    char text[1024];
    snprintf(text, sizeof text, "%s: %s; ending all nodes", cluster_node_name(job, job->plan->node),
             what);
    return cluster_fail(job, &(struct cluster_failure){.how = CERTAIN,
                                                       .local = local,
                                                       .exit_code = exit_code,
                                                       .text = text,
                                                       .shown = SIZE_MAX});
}

bool cluster_has_reported(const struct job *job, enum suspicion how)
{
    const int reported = job->cluster->reported;
    return reported > PREEMPTED || (int)how <= reported;
}

bool cluster_waits(const struct job *job)
{
    return job->cluster && !job->cluster->ended;
}

/* The wait status of all workers, or -1. */
static int64_t alike(const struct job *job)
{
    for (int i = 1; i < job->plan->nproc; i++)
        if (job->workers[i].wait_status != job->workers[0].wait_status)
            return -1;
    return job->workers[0].wait_status;
}

void cluster_add_times(const struct job *job, struct board_times *times)
{
    for (int n = 1; job->cluster && job->cluster->node == 0 && n < job->cluster->count; n++)
        if (job->cluster->nodes[n].times.timed > 0)
            board_times_add(times, &job->cluster->nodes[n].times);
}

static void tell_times(const struct job *job)
{
    const struct link_times message = {.attempt = (uint32_t)job->plan->restart,
                                       .times = board_table_times(&job->board)};
    link_send_to(job->cluster->link, 0, LINK_TIMES, &message, sizeof message);
}

void cluster_done(struct job *job)
{
    struct cluster *cluster = job->cluster;
    if (!cluster || cluster->told_done)
        return;
    cluster->told_done = true;
    const struct link_step done = {(uint32_t)job->plan->restart, (uint32_t)job->exit_code,
                                   alike(job)};
    if (cluster->node == 0) {
        verdict_node_done(job, 0, &done);
        return;
    }
    if (job->plan->settings->straggler_report)
        tell_times(job);
    cluster_tell(job, LINK_DONE, done.number, done.step);
}

int cluster_find_absent(const struct job *job, int absent, bool *waits)
{
    const struct cluster *cluster = job->cluster;
    for (int n = 1; cluster->node == 0 && n < cluster->count; n++) {
        const struct link_status *status = link_status(cluster->link, n);
        const struct node_state *node = &cluster->nodes[n];
        if (!status || status->attempt != (uint32_t)job->plan->restart)
            continue;
        if (!node->done && status->highest_step == 0)
            *waits = true;
        else if (node->done && node->exit_code == 0 && status->highest_step < 0)
            absent = job->plan->starts[n];
    }
    return absent;
}

int64_t cluster_moved_ns(const struct job *job)
{
    const struct cluster *cluster = job->cluster;
    int64_t latest = job->progress_ns;
    for (int n = 1; cluster && cluster->node == 0 && n < cluster->count; n++) {
        const struct link_status *status = link_status(cluster->link, n);
        const int64_t moved = link_heard_ns(cluster->link, n) - status->idle_ns;
        latest = moved > latest ? moved : latest;
    }
    return latest;
}

bool cluster_stepped(const struct job *job)
{
    const struct cluster *cluster = job->cluster;
    for (int n = 1; cluster && cluster->node == 0 && n < cluster->count; n++) {
        const struct link_status *status = link_status(cluster->link, n);
        if (status->stepped && status->attempt == (uint32_t)job->plan->restart)
            return true;
    }
    return false;
}

void cluster_hangs(struct job *job, const char *text)
{
    struct link_text end = {
        .exit_code = EXIT_HANG, .rank = -1, .sure = CERTAIN, .flags = END_RESTARTABLE | END_SHOW};
    snprintf(end.text, sizeof end.text, "%s", text);
    verdict_decide(job, &end);
}

void verdict_change(struct job *job)
{
    struct link_text end = {
        .exit_code = ddp_status_exit_code(DDP_ERR_PREEMPTED), .rank = -1, .sure = PREEMPTED};
    verdict_decide(job, &end);
}

/* --- another attempt -------------------------------------------------------------------------- */

void cluster_pause(struct job *job)
{
    struct cluster *cluster = job->cluster;
    if (!cluster)
        return;
    cluster->open = cluster->ended = cluster->told_ready = cluster->suspected = false;
    cluster->verdict_ns = INT64_MAX;
    members_pause(job);
}

bool cluster_over(const struct job *job)
{
    return job->cluster && job->cluster->ended;
}

int cluster_restart_port(const struct job *job)
{
    return job->cluster ? (int)job->cluster->restart_port : 0;
}

bool cluster_ready(struct job *job)
{
    struct cluster *cluster = job->cluster;
    char why[LINK_NAME_BYTES + 64];
    struct link_text end;
    if (!cluster || cluster->restart_port)
        return true;
    if (cluster->elastic.orphan && !cluster_succeed(job)) {
        cluster->ended = true;
        return false;
    }
    if (cluster->restart_port)
        return true;
    if (cluster->node > 0) {
        if (!cluster->told_ready)
            cluster_tell(job, LINK_RESTART, 0, 0);
        cluster->told_ready = true;
        return false;
    }
    if (cluster->elastic.on) {
        const bool formed = members_form(job, &end);
        if (end.exit_code)
            verdict_decide(job, &end);
        return formed;
    }
    for (int n = 1; n < cluster->count; n++) {
        if (cluster->nodes[n].lost && !cluster->ended) {
            snprintf(why, sizeof why, "%s is lost", cluster_node_name(job, n));
            verdict_lost(job, n, why, false);
        }
        if (cluster->ended || !cluster->nodes[n].ready)
            return false;
    }
    cluster->restart_port = (uint32_t)launch_plan_free_port();
    cluster_tell(job, LINK_RESTART, cluster->restart_port, 0);
    return true;
}

bool cluster_end(struct job *job, int signal)
{
    struct cluster *cluster = job->cluster;
    struct link_text end = {.exit_code = 128 + signal, .rank = -1};
    if (!cluster || cluster_over(job))
        return false;
    if (cluster->node == 0) {
        verdict_decide(job, &end);
        return false;
    }
    cluster_tell(job, LINK_SIGNAL, (uint32_t)signal, 0);
    return true;
}
