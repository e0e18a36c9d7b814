/* SPDX-License-Identifier: MIT
 *
 * Weights of which a machine keeps its workers' slices (ZeRO, stage 3); see share.h. Buckets come
 * before a group of parameters is read (graph/exec.h), those of the next group while this one
 * computes. All workers start and await the same gatherings in the same order, so each knows of the
 * others on its machine what it needs to know: when a gathering is complete, they have come to the
 * turn in which it was started, and read no more of what was wanted before that. */
#include "config.h"

#include "mode/share_slices.h"

#include "comm/thin.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

struct bucket {
    enum { AWAY, COMING, THERE } state; /* of what other machines have */
    int64_t wanted;                     /* the last turn that it was wanted in */
    int64_t begun;                      /* COMING: the turn in which that was started, */
    int64_t call;                       /* ... and what number of `started` it is */
};

struct ddp_share_weights {
    struct bucket *buckets;
    bool *marks, *wanted;    /* of parameters, of buckets */
    int *order, order_count; /* the groups of a pass, as they follow each other */
    int at, group;           /* in order; the current one, -1: none */
    int64_t turn;            /* counts changes of what is wanted */
    double others;           /* a plan: the part of a bucket that other machines have */
    double there, most;      /* ... elements of these */
    double begun;            /* elements of buckets that were to come */
};

static bool overlaps(const struct ddp_share *share, int bucket, int64_t begin, int64_t end)
{
    return share_bucket_begin(share, bucket) < end && begin < share->bucket_end[bucket];
}

/* --- one bucket ------------------------------------------------------------------------------- */

static void count(struct ddp_share_weights *held, double elements)
{
    held->there += elements * held->others;
    held->most = held->there > held->most ? held->there : held->most;
}

/* The first worker of a machine takes and gives memory for all: nothing is written to it before all
 * have called. */
static bool leads(const struct ddp_share *share)
{
    return ddp_job_node_rank(share->mode->setup.job) == 0;
}

static enum ddp_status gather(struct ddp_share *share, void *memory, size_t elements,
                              enum ddp_dtype dtype)
{
    enum ddp_status status = DDP_OK;
    if (leads(share))
        status = ddp_comm_provide(share->wire, memory, elements * ddp_dtype_bytes(dtype));
    share->started++;
    return status == DDP_OK ? ddp_comm_gather_slices_start(share->wire, memory, elements,
                                                           DDP_UPDATE_GRAIN, dtype)
                            : status;
}

static enum ddp_status begin(struct ddp_share *share, int bucket)
{
    struct bucket *b = &share->held->buckets[bucket];
    const size_t elements = share_bucket_elements(share, bucket);
    const int64_t first = share_bucket_begin(share, bucket);
    const struct ddp_replica *replica = share_replica(share);
    enum ddp_status status = DDP_OK;
    count(share->held, (double)elements);
    share->held->begun += (double)elements;
    if (share->wire)
        status = gather(share, replica->weights + first, elements, DDP_F32);
    if (status == DDP_OK && share->wire && replica->weights_bf16)
        status = gather(share, replica->weights_bf16 + first, elements, DDP_BF16);
    *b = (struct bucket){COMING, share->held->turn, share->held->turn, share->started};
    return status;
}

static void punch(struct ddp_share *share, int64_t begin, int64_t end)
{
    const struct ddp_replica *replica = share_replica(share);
    const size_t elements = (size_t)(end - begin);
    ddp_comm_punch(share->wire, replica->weights + begin, elements * sizeof(float));
    if (replica->weights_bf16)
        ddp_comm_punch(share->wire, replica->weights_bf16 + begin, elements * sizeof(uint16_t));
}

/* All but the slices of this machine's workers. */
static void give_back(struct ddp_share *share, int bucket)
{
    const size_t elements = share_bucket_elements(share, bucket);
    const int64_t first = share_bucket_begin(share, bucket);
    share->held->buckets[bucket].state = AWAY;
    count(share->held, -(double)elements);
    if (!share->wire || !leads(share))
        return;
    const int *starts =
        ddp_job_node_starts(share->mode->setup.job) + ddp_job_node(share->mode->setup.job);
    const size_t own = ddp_slice_begin(elements, DDP_UPDATE_GRAIN, starts[0], share->size);
    const size_t end = ddp_slice_begin(elements, DDP_UPDATE_GRAIN, starts[1], share->size);
    punch(share, first, first + (int64_t)own);
    punch(share, first + (int64_t)end, share->bucket_end[bucket]);
}

/* --- what is wanted --------------------------------------------------------------------------- */

/* Waits for what is wanted. Then all here have come to the turn in which the last of it was
 * started. */
static enum ddp_status hold(struct ddp_share *share)
{
    struct ddp_share_weights *held = share->held;
    const int64_t turn = ++held->turn;
    int64_t here = 0, call = 0;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < share->bucket_count; i++) {
        struct bucket *b = &held->buckets[i];
        if (held->wanted[i] && b->state == AWAY)
            status = begin(share, i);
        if (held->wanted[i] && b->state == COMING) {
            here = b->begun > here ? b->begun : here;
            call = b->call > call ? b->call : call;
            b->state = THERE;
        }
        b->wanted = held->wanted[i] ? turn : b->wanted;
    }
    if (status == DDP_OK && call > 0 && share->wire)
        status = ddp_comm_settle(share->wire, (int)(share->started - call));
    for (int i = 0; status == DDP_OK && i < share->bucket_count; i++)
        if (held->buckets[i].state == THERE && held->buckets[i].wanted < here)
            give_back(share, i);
    return status;
}

static void want(struct ddp_share *share, int group)
{
    struct ddp_share_weights *held = share->held;
    const ddp_graph *graph = share->mode->setup.graph;
    memset(held->wanted, 0, (size_t)share->bucket_count * sizeof *held->wanted);
    memset(held->marks, 0, (size_t)ddp_graph_parameter_count(graph) * sizeof *held->marks);
    ddp_graph_mark_group(graph, group, held->marks);
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_parameter_at(graph, i);
        for (int b = 0; held->marks[i] && b < share->bucket_count; b++)
            held->wanted[b] |= overlaps(share, b, p->offset, ddp_parameter_end(p));
    }
}

/* As ddp_exec_reading. */
static enum ddp_status come_to(void *arg, int group)
{
    struct ddp_share *share = arg;
    struct ddp_share_weights *held = share->held;
    if (group == held->group)
        return share->wire ? ddp_comm_progress(share->wire) : DDP_OK;
    want(share, group);
    enum ddp_status status = hold(share);
    held->group = group;
    do
        held->at = (held->at + 1) % held->order_count;
    while (held->order[held->at] != group);
    if (held->at + 1 == held->order_count)
        return status;
    want(share, held->order[held->at + 1]);
    for (int i = 0; status == DDP_OK && i < share->bucket_count; i++)
        if (held->wanted[i] && held->buckets[i].state == AWAY)
            status = begin(share, i);
    return status;
}

/* --- from outside ----------------------------------------------------------------------------- */

static enum ddp_status note_group(void *arg, int group)
{
    struct ddp_share_weights *held = arg;
    if (held->order_count == 0 || held->order[held->order_count - 1] != group)
        held->order[held->order_count++] = group;
    return DDP_OK;
}

static enum ddp_status count_group(void *arg, int group)
{
    (void)group;
    ++*(size_t *)arg;
    return DDP_OK;
}

enum ddp_status ddp_share_hold_open(struct ddp_share *share)
{
    const ddp_graph *graph = share->mode->setup.graph;
    const size_t parameters = (size_t)ddp_graph_parameter_count(graph);
    size_t groups = 0;
    struct ddp_share_weights *held = share->held = ddp_array_alloc(1, sizeof *held);
    if (!held)
        return DDP_ERR_MEMORY;
    enum ddp_status status =
        ddp_exec_walk_reading(graph, DDP_MODE_WORKER_PARTS, count_group, &groups);
    if (status != DDP_OK)
        return status;
    held->buckets = ddp_array_alloc((size_t)share->bucket_count, sizeof *held->buckets);
    held->wanted = ddp_array_alloc((size_t)share->bucket_count, sizeof *held->wanted);
    held->marks = ddp_array_alloc(parameters, sizeof *held->marks);
    held->order = ddp_array_alloc(groups + 1, sizeof *held->order);
    held->group = -1;
    if (!held->buckets || !held->wanted || !held->marks || !held->order)
        return DDP_ERR_MEMORY;
    status = ddp_exec_walk_reading(graph, DDP_MODE_WORKER_PARTS, note_group, held);
    held->at = held->order_count - 1;
    return status;
}

void ddp_share_hold_close(struct ddp_share *share)
{
    if (!share->held)
        return;
    free(share->held->order);
    free(share->held->marks);
    free(share->held->wanted);
    free(share->held->buckets);
    free(share->held);
}

void ddp_share_hold_watch(struct ddp_share *share)
{
    const struct ddp_replica *replica = share_replica(share);
    ddp_exec_set_reading(replica->exec, come_to, share);
    if (replica->tail_exec)
        ddp_exec_set_reading(replica->tail_exec, come_to, share);
}

enum ddp_status ddp_share_provide_weights(struct ddp_share *share, int bucket)
{
    const struct ddp_replica *replica = share_replica(share);
    const int64_t first = share_bucket_begin(share, bucket);
    const size_t elements = share_bucket_elements(share, bucket);
    enum ddp_status status =
        ddp_comm_provide(share->wire, replica->weights + first, elements * sizeof(float));
    return status == DDP_OK && replica->weights_bf16
               ? ddp_comm_provide(share->wire, replica->weights_bf16 + first,
                                  elements * sizeof(uint16_t))
               : status;
}

void ddp_share_release(struct ddp_share *share, int bucket)
{
    give_back(share, bucket);
}

void ddp_share_release_all(struct ddp_share *share)
{
    for (int i = 0; i < share->bucket_count; i++)
        if (share->held->buckets[i].state != AWAY)
            give_back(share, i);
    share->held->group = -1;
    share->mode->lacks_weights = true;
}

enum ddp_status ddp_share_hold_range(struct ddp_share *share, int64_t begin, int64_t end)
{
    for (int i = 0; i < share->bucket_count; i++)
        share->held->wanted[i] = overlaps(share, i, begin, end);
    share->held->group = -1;
    enum ddp_status status = hold(share);
    if (status == DDP_OK)
        status = ddp_comm_finish(share->wire);
    if (status == DDP_OK && begin == 0 && end == share_replica(share)->flat_count)
        share->mode->lacks_weights = false;
    return status;
}

enum ddp_status ddp_share_begin_passes(struct ddp_share *share)
{
    const struct ddp_mode_setup *setup = &share->mode->setup;
    int64_t idle = 0;
    enum ddp_status status = DDP_OK;
    if (!share->mode->lacks_weights) {
        status = ddp_comm_barrier(share->wire); /* nobody here reads them any more */
        ddp_share_release_all(share);
    }
    for (int r = 0; r < share->size; r++) {
        const struct ddp_lanes_run run =
            ddp_lanes_run_of(setup->run.shards, setup->run.lanes, share->size, r);
        const int64_t more = ddp_lanes_shards(&run) - ddp_lanes_shards(&setup->run);
        idle = more > idle ? more : idle;
    }
    for (int64_t i = 0; status == DDP_OK && i < idle; i++)
        status = ddp_exec_walk_reading(setup->graph, DDP_MODE_WORKER_PARTS, come_to, share);
    return status;
}

enum ddp_status ddp_share_weights_held(const struct ddp_mode_setup *setup, double others,
                                       double *elements, double *moved)
{
    struct ddp_mode mode = {.setup = *setup};
    struct ddp_share share = {.mode = &mode, .size = 1, .zero = true};
    enum ddp_status status = ddp_share_cut(&share);
    if (status == DDP_OK)
        status = ddp_share_hold_open(&share);
    if (status == DDP_OK)
        share.held->others = others;
    for (int pass = 0; status == DDP_OK && pass < 2; pass++) {
        share.held->begun = 0;
        status = ddp_exec_walk_reading(setup->graph, DDP_MODE_WORKER_PARTS, come_to, &share);
    }
    if (status == DDP_OK) {
        *elements = share.held->most;
        *moved = share.held->begun;
    }
    ddp_share_hold_close(&share);
    free(share.bucket_end);
    return status;
}
