/* SPDX-License-Identifier: MIT
 *
 * Communicators over some of a job's ranks: the stages of each replica, and each stage of all
 * replicas, beside each other and beside one of all. */
#include "config.h"

#include "comm/channel.h"
#include "core/clock.h"
#include "core/log.h"
#include "tests/comm/comm_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

int groups_stages;
const struct groups_grid groups_grids[GROUPS_GRIDS] = {{2, 2, 2}, {2, 4, 2}, {2, 2, 4}, {4, 1, 2},
                                                       {4, 2, 4}, {2, 3, 3}, {2, 2, 1}};

/* This rank's two groups. */
struct groups {
    struct ddp_comm_group stages, replicas;
    ddp_comm *across, *along; /* the stages of this replica; this stage of all replicas */
};

static void open_groups(struct groups *g, ddp_job *job)
{
    const int rank = ddp_job_rank(job), stages = groups_stages;
    const int replicas = ddp_job_world_size(job) / stages;
    g->stages = (struct ddp_comm_group){rank / stages * stages, 1, stages};
    g->replicas = (struct ddp_comm_group){rank % stages, stages, replicas};
    NEED(ranks_join_group(&g->across, job, g->stages.first, 1, stages) == DDP_OK);
    NEED(ranks_join_group(&g->along, job, g->replicas.first, stages, replicas) == DDP_OK);
    NEED(ddp_comm_size(g->across) == stages && ddp_comm_rank(g->across) == rank % stages);
    NEED(ddp_comm_size(g->along) == replicas && ddp_comm_rank(g->along) == rank / stages);
    NEED((strcmp(ddp_comm_backend(g->across), "self") == 0) == (stages == 1));
    NEED((strcmp(ddp_comm_backend(g->along), "self") == 0) == (replicas == 1));
}

static void close_groups(struct groups *g)
{
    ddp_comm_destroy(g->across);
    ddp_comm_destroy(g->along);
}

/* --- sums and messages --- */

enum { COUNT = 20000, LAYERS = 3 };

static void settle(ddp_comm *comm)
{
    NEED(ddp_comm_finish(comm) == DDP_OK);
    if (ranks_device)
        NEED(ddp_device_synchronize(ranks_device) == DDP_OK);
}

static void add(ddp_comm *comm, const struct ddp_comm_group *group, ddp_job *job, void *memory)
{
    char *sum = ranks_expect_of(group, COUNT, DDP_F32, DDP_SUM);
    ranks_fill(memory, COUNT, DDP_F32, ddp_job_rank(job));
    NEED(ddp_comm_allreduce(comm, memory, COUNT, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ranks_same(memory, sum, COUNT * 4));
    ranks_fill(memory, COUNT, DDP_F32, ddp_job_rank(job));
    ranks_values(sum, COUNT, DDP_F32, group->first + (group->size - 1) * group->stride);
    NEED(ddp_comm_broadcast(comm, memory, COUNT, DDP_F32, group->size - 1) == DDP_OK);
    NEED(ranks_same(memory, sum, COUNT * 4));
    free(sum);
}

static void send(ddp_channel *channel, int value)
{
    void *slot;
    if (!channel)
        return;
    NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
    ranks_fill(slot, COUNT, DDP_F32, value);
    NEED(ddp_channel_release(channel) == DDP_OK);
}

static void receive(ddp_channel *channel, int value)
{
    void *slot;
    char *want = malloc(COUNT * 4);
    if (channel) {
        NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
        ranks_values(want, COUNT, DDP_F32, value);
        NEED(ranks_same(slot, want, COUNT * 4));
        NEED(ddp_channel_release(channel) == DDP_OK);
    }
    free(want);
}

/* This rank's ends: from the stage before and to the one behind it, and the way back. */
struct ends {
    ddp_channel *in, *out, *back_in, *back_out;
};

static void open_ends(struct ends *ends, ddp_comm *comm)
{
    const int stage = ddp_comm_rank(comm);
    memset(ends, 0, sizeof *ends);
    for (int s = 0; s + 1 < ddp_comm_size(comm); s++) {
        ddp_channel *there, *back;
        NEED(ddp_channel_open(&there, comm, s, s + 1, COUNT * 4, 2) == DDP_OK);
        NEED(ddp_channel_open(&back, comm, s + 1, s, COUNT * 4, 2) == DDP_OK);
        if (stage == s) {
            ends->out = there;
            ends->back_in = back;
        } else if (stage == s + 1) {
            ends->in = there;
            ends->back_out = back;
        }
    }
}

/* Activations go on from stage to stage, gradients come back while sums are started. */
static void step(const struct groups *g, const struct ends *ends, ddp_job *job, char *gradients)
{
    const int rank = ddp_job_rank(job), replica = rank / groups_stages;
    char *sum = ranks_expect_of(&g->replicas, COUNT, DDP_F32, DDP_SUM);
    for (int m = 0; m < 4; m++) {
        receive(ends->in, rank - 1 + 100 * m);
        send(ends->out, rank + 100 * m);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        char *gradient = gradients + (size_t)layer * COUNT * 4;
        ranks_fill(gradient, COUNT, DDP_F32, rank);
        NEED(ddp_comm_allreduce_start(g->along, gradient, COUNT, DDP_F32, DDP_SUM) == DDP_OK);
        if (replica == 1 && rank % groups_stages == 0)
            usleep(2000);
        receive(ends->back_in, rank + 1 + 7 * layer);
        send(ends->back_out, rank + 7 * layer);
        NEED(ddp_comm_progress(g->along) == DDP_OK);
    }
    settle(g->along);
    for (int layer = 0; layer < LAYERS; layer++)
        NEED(ranks_same(gradients + (size_t)layer * COUNT * 4, sum, COUNT * 4));
    free(sum);
}

/* Groups call different things, as many as they like, and not at the same time. */
void row_groups(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_job_rank(job), stages = groups_stages;
    void *registered, *gradients, *plain = ranks_alloc(COUNT * 4);
    const struct ddp_comm_group all = {0, 1, ddp_comm_size(comm)};
    struct groups g;
    struct ends ends;
    open_groups(&g, job);
    NEED(ddp_comm_alloc(g.across, COUNT * 4, &registered) == DDP_OK);
    for (int i = 0; i < 3 + rank / stages; i++) {
        add(g.across, &g.stages, job, registered);
        add(g.across, &g.stages, job, rank % 2 ? registered : plain);
    }
    if (rank / stages == 0)
        row_collectives(g.across, job);
    else
        row_slices(g.across, job);
    add(comm, &all, job, plain);
    NEED(ddp_comm_alloc(g.along, COUNT * 4 * LAYERS, &gradients) == DDP_OK);
    for (int i = 0; i < 3 + rank % stages; i++)
        add(g.along, &g.replicas, job, gradients);
    if (rank % stages == 0)
        row_overlap(g.along, job);
    else
        row_returns(g.along, job);
    if (stages > 1) {
        open_ends(&ends, g.across);
        for (int i = 0; i < 5; i++)
            step(&g, &ends, job, gradients);
        row_channels(g.across, job);
    }
    ranks_free(plain, COUNT * 4);
    close_groups(&g);
}

/* Rank 0 waits for a message that comes when rank 2 has a sum, which takes the part of rank 0. */
void row_groups_beside(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_job_rank(job);
    void *memory;
    struct groups g;
    struct ends ends;
    (void)comm;
    open_groups(&g, job);
    open_ends(&ends, g.across);
    ddp_comm_set_timeout(g.across, 10000);
    ddp_comm_set_beside(g.across, g.along);
    NEED(ddp_comm_alloc(g.along, COUNT * 4, &memory) == DDP_OK);
    char *sum = ranks_expect_of(&g.replicas, COUNT, DDP_F32, DDP_SUM);
    ranks_fill(memory, COUNT, DDP_F32, rank);
    if (rank == 3)
        receive(ends.in, 23);
    if (rank % 2 == 0)
        NEED(ddp_comm_allreduce_start(g.along, memory, COUNT, DDP_F32, DDP_SUM) == DDP_OK);
    else
        NEED(ddp_comm_allreduce(g.along, memory, COUNT, DDP_F32, DDP_SUM) == DDP_OK);
    if (rank == 1)
        send(ends.back_out, 10);
    if (rank == 0)
        receive(ends.back_in, 10);
    settle(g.along);
    NEED(ranks_same(memory, sum, COUNT * 4));
    if (rank == 2)
        send(ends.out, 23);
    free(sum);
    close_groups(&g);
}

/* --- messages name the ranks of the job --- */

/* The last rank of a group of 2 or more: it calls something else, or comes late. */
static void need_named(ddp_comm *comm, const struct ddp_comm_group *group, ddp_job *job)
{
    const int size = group->size, last = group->first + (size - 1) * group->stride;
    const bool odd = ddp_job_rank(job) == last;
    char text[300] = "", want[200], who[40];
    void *values = ranks_alloc(24);
    snprintf(want, sizeof want, "broadcast of 3 f64 from rank %d", last);
    snprintf(who, sizeof who, odd ? "rank %d calls barrier" : "rank %d barrier", last);
    ddp_log_hold(text, sizeof text);
    enum ddp_status status =
        odd ? ddp_comm_barrier(comm) : ddp_comm_broadcast(comm, values, 3, DDP_F64, size - 1);
    if (status == DDP_OK && ranks_device)
        status = ddp_device_synchronize(ranks_device);
    ddp_log_hold(NULL, 0);
    NEED(status == DDP_ERR_MISMATCH || (ranks_device && status == DDP_ERR_ABORTED));
    if (status == DDP_ERR_MISMATCH && (odd || size == 2))
        NEED(strstr(text, want) && strstr(text, who));
}

static void need_late(ddp_comm *comm, const struct ddp_comm_group *group, ddp_job *job)
{
    const int last = group->first + (group->size - 1) * group->stride;
    char text[300] = "", want[200];
    ddp_comm_set_timeout(comm, 100);
    ddp_log_hold(text, sizeof text);
    NEED(ddp_job_rank(job) == last || ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
    ddp_log_hold(NULL, 0);
    ranks_come_last(job, group, last);
    snprintf(want, sizeof want, "waited 100 ms for rank %d in a collective", last);
    NEED(group->size > 2 || ddp_job_rank(job) == last || strcmp(text, want) == 0);
}

static void need_no_message(ddp_comm *comm, const struct ddp_comm_group *group, ddp_job *job)
{
    const int last = group->size - 1;
    char text[300] = "", want[200];
    ddp_channel *channel;
    void *slot;
    NEED(ddp_channel_open(&channel, comm, 0, last, 4, 1) == DDP_OK);
    ddp_comm_set_timeout(comm, 100);
    ddp_log_hold(text, sizeof text);
    if (ddp_comm_rank(comm) == last)
        NEED(ddp_channel_acquire(channel, &slot) == DDP_ERR_TIMEOUT);
    ddp_log_hold(NULL, 0);
    ranks_come_last(job, group, group->first);
    snprintf(want, sizeof want, "waited 100 ms for rank %d to send message 0", group->first);
    NEED(ddp_job_rank(job) != group->first + last * group->stride || strcmp(text, want) == 0);
}

/* On devices a difference ends the job: none is still in here then. */
static void meet(ddp_comm *comm)
{
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (ranks_device)
        usleep(100000);
}

void row_groups_named(ddp_comm *comm, ddp_job *job)
{
    struct groups g, late, silent;
    open_groups(&g, job);
    open_groups(&late, job);
    open_groups(&silent, job);
    meet(comm);
    if (!ranks_device) {
        need_no_message(silent.across, &g.stages, job);
        need_no_message(silent.along, &g.replicas, job);
        need_late(late.across, &g.stages, job);
        need_late(late.along, &g.replicas, job);
        need_named(g.across, &g.stages, job);
    }
    need_named(g.along, &g.replicas, job);
    close_groups(&silent);
    close_groups(&late);
    close_groups(&g);
}

/* --- arguments --- */

static void need_refused(ddp_job *job, int first, int stride, int size, enum ddp_status status)
{
    ddp_comm *comm = NULL;
    NEED(ranks_join_group(&comm, job, first, stride, size) == status && !comm);
}

void row_groups_arguments(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_job_rank(job);
    struct groups g;
    (void)comm;
    need_refused(job, 0, 1, 0, DDP_ERR_INVALID);
    need_refused(job, 0, 0, 2, DDP_ERR_INVALID);
    need_refused(job, 0, 1, 3, DDP_ERR_INVALID); /* which does not divide 4 */
    need_refused(job, 0, 3, 1, DDP_ERR_INVALID);
    need_refused(job, 0, 4, 2, DDP_ERR_INVALID);
    need_refused(job, 0, INT32_MAX, INT32_MAX, DDP_ERR_INVALID);
    need_refused(job, -1, 1, 4, DDP_ERR_INVALID);
    need_refused(job, rank < 2 ? 2 : 0, 1, 2, DDP_ERR_INVALID); /* which others are in */
    need_refused(job, (rank + 1) % 2, 2, 2, DDP_ERR_INVALID);
    open_groups(&g, job);
    close_groups(&g);
}

/* --- failures --- */

/* One dies, and all end, whatever they wait for. */
void row_groups_killed(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_job_rank(job);
    enum ddp_status status = DDP_OK;
    void *memory;
    struct groups g;
    meet(comm);
    open_groups(&g, job);
    NEED(ddp_comm_alloc(g.along, COUNT * 4, &memory) == DDP_OK);
    for (int i = 0; status == DDP_OK; i++) {
        if (i == 30 && rank == 1)
            raise(SIGKILL);
        status = ddp_comm_allreduce(i % 2 ? g.across : g.along, memory, COUNT, DDP_F32, DDP_SUM);
        if (status == DDP_OK && ranks_device)
            status = ddp_device_synchronize(ranks_device);
    }
    NEED(status == DDP_ERR_ABORTED);
    ranks_need_end(job, ddp_clock_ns());
    close_groups(&g);
}

/* Ranks do not agree on what they create: the job ends soon. A group that is complete may have been
 * created before. */
static void need_failure(ddp_job *job, int64_t start_ns, enum ddp_status status)
{
    NEED(status == DDP_OK || status == DDP_ERR_MISMATCH || status == DDP_ERR_ABORTED);
    ranks_need_end(job, start_ns);
}

static void differ(ddp_job *job, bool other, int size, int other_size)
{
    const int rank = ddp_job_rank(job), mine = other ? other_size : size;
    const int64_t start = ddp_clock_ns();
    ddp_comm *comm = NULL;
    need_failure(job, start, ranks_join_group(&comm, job, rank / mine * mine, 1, mine));
}

static void differ_last(ddp_comm *comm, ddp_job *job)
{
    const int last = ddp_job_world_size(job) - 1;
    (void)comm;
    differ(job, ddp_job_rank(job) == last, 2, last + 1);
}

static void differ_first(ddp_comm *comm, ddp_job *job)
{
    (void)comm;
    differ(job, ddp_job_rank(job) == 0, 2, 1);
}

static void differ_stride(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_job_rank(job), half = ddp_job_world_size(job) / 2;
    const int64_t start = ddp_clock_ns();
    (void)comm;
    need_failure(job, start,
                 rank == 1 ? ranks_join_group(&comm, job, rank % half, half, 2)
                           : ranks_join_group(&comm, job, rank / 2 * 2, 1, 2));
}

/* Of a group, and of all. */
static void differ_all(ddp_job *job, bool joins)
{
    const int rank = ddp_job_rank(job);
    const int64_t start = ddp_clock_ns();
    ddp_comm *comm = NULL;
    need_failure(job, start,
                 joins ? ranks_join(&comm, job) : ranks_join_group(&comm, job, rank / 2 * 2, 1, 2));
}

static void differ_all_first(ddp_comm *comm, ddp_job *job)
{
    (void)comm;
    differ_all(job, ddp_job_rank(job) == 0);
}

static void differ_all_last(ddp_comm *comm, ddp_job *job)
{
    (void)comm;
    differ_all(job, ddp_job_rank(job) == ddp_job_world_size(job) - 1);
}

ranks_body *const groups_differ_rows[GROUPS_DIFFER_ROWS] = {
    differ_last, differ_first, differ_stride, differ_all_first, differ_all_last};
