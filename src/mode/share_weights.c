/* SPDX-License-Identifier: MIT
 *
 * Weights of which a machine keeps its workers' slices (ZeRO, stage 3); see share.h. Pieces come
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

/* A part of an array, which comes and goes as a whole. */
struct piece {
    int64_t begin, end;                 /* elements of the array */
    enum { AWAY, COMING, THERE } state; /* of what other machines have */
    int64_t wanted;                     /* the last turn that it was wanted in */
    int64_t begun;                      /* COMING: the turn in which that was started, */
    int64_t call;                       /* ... and what number of `started` it is */
};

/* What is split: weights in buckets, frozen ones as they lie, in elements of 4 bytes; the bf16
 * copies of either. */
enum { LEARNED, LEARNED_BF16, FROZEN, FROZEN_BF16, ARRAYS };

struct array {
    char *memory; /* NULL: a plan */
    enum ddp_dtype dtype;
    struct piece *pieces; /* of those of all arrays */
    int count;
};

struct ddp_share_weights {
    struct array arrays[ARRAYS];
    struct piece *pieces;
    int count;
    bool *wanted;                                /* by piece */
    struct ddp_share_reader *training, *current; /* the second: whose group is there, or NULL */
    int64_t turn;                                /* counts changes of what is wanted */
    double others;                               /* a plan: the part that other machines have */
    double there, most;                          /* ... bytes of that */
    double begun;                                /* bytes of pieces that were to come */
};

struct ddp_share_reader {
    struct ddp_share *share;
    const ddp_graph *graph;
    unsigned parts;
    struct ddp_graph_reads *learned, *frozen; /* by parameter */
    int *order, order_count;                  /* the groups of a pass, as they follow each other */
    int at, group;                            /* in order; the current one */
};

/* --- one piece -------------------------------------------------------------------------------- */

static const struct array *array_of(const struct ddp_share_weights *held, const struct piece *piece)
{
    const struct array *array = held->arrays;
    while (piece < array->pieces || piece >= array->pieces + array->count)
        array++;
    return array;
}

static void *memory_of(const struct array *array, int64_t element)
{
    return array->memory + (size_t)element * ddp_dtype_bytes(array->dtype);
}

static void count(struct ddp_share_weights *held, double bytes)
{
    held->there += bytes * held->others;
    held->most = held->there > held->most ? held->there : held->most;
}

/* The first worker of a machine takes and gives memory for all: nothing is written to it before all
 * have called. */
static bool leads(const struct ddp_share *share)
{
    return ddp_job_node_rank(share->mode->setup.job) == 0;
}

static enum ddp_status provide(struct ddp_share *share, const struct piece *piece)
{
    const struct array *array = array_of(share->held, piece);
    return ddp_comm_provide(share->wire, memory_of(array, piece->begin),
                            (size_t)(piece->end - piece->begin) * ddp_dtype_bytes(array->dtype));
}

static enum ddp_status begin(struct ddp_share *share, struct piece *piece)
{
    struct ddp_share_weights *held = share->held;
    const struct array *array = array_of(held, piece);
    const size_t elements = (size_t)(piece->end - piece->begin);
    const double bytes = (double)(elements * ddp_dtype_bytes(array->dtype));
    enum ddp_status status = DDP_OK;
    count(held, bytes);
    held->begun += bytes;
    if (share->wire && leads(share))
        status = provide(share, piece);
    if (status == DDP_OK && share->wire)
        status = ddp_comm_gather_slices_start(share->wire, memory_of(array, piece->begin), elements,
                                              DDP_UPDATE_GRAIN, array->dtype);
    piece->state = COMING;
    piece->wanted = piece->begun = held->turn;
    piece->call = ++share->started;
    return status;
}

static void punch(struct ddp_share *share, const struct array *array, int64_t begin,
                  size_t elements)
{
    ddp_comm_punch(share->wire, memory_of(array, begin), elements * ddp_dtype_bytes(array->dtype));
}

/* All but the slices of this machine's workers. */
static void give_back(struct ddp_share *share, struct piece *piece)
{
    const struct array *array = array_of(share->held, piece);
    const size_t elements = (size_t)(piece->end - piece->begin);
    piece->state = AWAY;
    count(share->held, -(double)(elements * ddp_dtype_bytes(array->dtype)));
    if (!share->wire || !leads(share))
        return;
    const int *starts =
        ddp_job_node_starts(share->mode->setup.job) + ddp_job_node(share->mode->setup.job);
    const size_t own = ddp_slice_begin(elements, DDP_UPDATE_GRAIN, starts[0], share->size);
    const size_t end = ddp_slice_begin(elements, DDP_UPDATE_GRAIN, starts[1], share->size);
    punch(share, array, piece->begin, own);
    punch(share, array, piece->begin + (int64_t)end, elements - end);
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
    for (int i = 0; status == DDP_OK && i < held->count; i++) {
        struct piece *p = &held->pieces[i];
        if (held->wanted[i] && p->state == AWAY)
            status = begin(share, p);
        if (held->wanted[i] && p->state == COMING) {
            here = p->begun > here ? p->begun : here;
            call = p->call > call ? p->call : call;
            p->state = THERE;
        }
        p->wanted = held->wanted[i] ? turn : p->wanted;
    }
    if (status == DDP_OK && call > 0 && share->wire)
        status = ddp_comm_settle(share->wire, (int)(share->started - call));
    for (int i = 0; status == DDP_OK && i < held->count; i++)
        if (held->pieces[i].state == THERE && held->pieces[i].wanted < here)
            give_back(share, &held->pieces[i]);
    return status;
}

static void want_range(struct ddp_share_weights *held, int array, int64_t begin, int64_t end)
{
    const struct array *a = &held->arrays[array];
    for (int i = 0; i < a->count; i++)
        held->wanted[a->pieces + i - held->pieces] |=
            a->pieces[i].begin < end && begin < a->pieces[i].end;
}

static void want(struct ddp_share_reader *reader, int group)
{
    struct ddp_share_weights *held = reader->share->held;
    const ddp_graph *graph = reader->graph;
    const int learned = ddp_graph_parameter_count(graph), frozen = ddp_graph_frozen_count(graph);
    memset(held->wanted, 0, (size_t)held->count * sizeof *held->wanted);
    memset(reader->learned, 0, (size_t)learned * sizeof *reader->learned);
    memset(reader->frozen, 0, (size_t)frozen * sizeof *reader->frozen);
    ddp_graph_mark_group(graph, group, reader->learned, reader->frozen);
    for (int i = 0; i < learned; i++) {
        const struct ddp_parameter *p = ddp_graph_parameter_at(graph, i);
        if (reader->learned[i].f32)
            want_range(held, LEARNED, p->offset, ddp_parameter_end(p));
        if (reader->learned[i].bf16)
            want_range(held, LEARNED_BF16, p->offset, ddp_parameter_end(p));
    }
    for (int i = 0; i < frozen; i++) {
        const struct ddp_parameter *p = ddp_graph_frozen_at(graph, i);
        const int64_t first = (int64_t)(p->place / sizeof(float));
        const int64_t end =
            first + (int64_t)(ddp_align_up(ddp_frozen_bytes(p), sizeof(float)) / sizeof(float));
        if (reader->frozen[i].f32)
            want_range(held, FROZEN, first, end);
        if (reader->frozen[i].bf16)
            want_range(held, FROZEN_BF16, first, end);
    }
}

/* As ddp_exec_reading. */
static enum ddp_status come_to(void *arg, int group)
{
    struct ddp_share_reader *reader = arg;
    struct ddp_share *share = reader->share;
    struct ddp_share_weights *held = share->held;
    if (reader == held->current && group == reader->group)
        return share->wire ? ddp_comm_progress(share->wire) : DDP_OK;
    want(reader, group);
    enum ddp_status status = hold(share);
    if (reader != held->current)
        reader->at = reader->order_count - 1; /* a pass begins */
    held->current = reader;
    reader->group = group;
    do
        reader->at = (reader->at + 1) % reader->order_count;
    while (reader->order[reader->at] != group);
    if (reader->at + 1 == reader->order_count) /* gradients are on their way still, if any */
        return status == DDP_OK && share->wire && !(reader->parts & DDP_EXEC_BACKWARD)
                   ? ddp_comm_finish(share->wire)
                   : status;
    want(reader, reader->order[reader->at + 1]);
    for (int i = 0; status == DDP_OK && i < held->count; i++)
        if (held->wanted[i] && held->pieces[i].state == AWAY)
            status = begin(share, &held->pieces[i]);
    return status;
}

/* --- who reads -------------------------------------------------------------------------------- */

static enum ddp_status note_group(void *arg, int group)
{
    struct ddp_share_reader *reader = arg;
    if (reader->order_count == 0 || reader->order[reader->order_count - 1] != group)
        reader->order[reader->order_count++] = group;
    return DDP_OK;
}

static enum ddp_status count_group(void *arg, int group)
{
    (void)group;
    ++*(size_t *)arg;
    return DDP_OK;
}

enum ddp_status ddp_share_reader_open(struct ddp_share_reader **reader, struct ddp_share *share,
                                      const ddp_graph *graph, unsigned parts)
{
    const size_t learned = (size_t)ddp_graph_parameter_count(graph);
    const size_t frozen = (size_t)ddp_graph_frozen_count(graph);
    size_t groups = 0;
    struct ddp_share_reader *r = *reader = ddp_array_alloc(1, sizeof *r);
    if (!r)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_exec_walk_reading(graph, parts, count_group, &groups);
    if (status != DDP_OK)
        return status;
    *r = (struct ddp_share_reader){.share = share, .graph = graph, .parts = parts};
    r->learned = ddp_array_alloc(learned + 1, sizeof *r->learned);
    r->frozen = ddp_array_alloc(frozen + 1, sizeof *r->frozen);
    r->order = ddp_array_alloc(groups + 1, sizeof *r->order);
    if (!r->learned || !r->frozen || !r->order)
        return DDP_ERR_MEMORY;
    return ddp_exec_walk_reading(graph, parts, note_group, r);
}

void ddp_share_reader_close(struct ddp_share_reader *reader)
{
    if (!reader)
        return;
    if (reader->share && reader->share->held && reader->share->held->current == reader)
        reader->share->held->current = NULL;
    free(reader->order);
    free(reader->frozen);
    free(reader->learned);
    free(reader);
}

void ddp_share_reader_watch(struct ddp_share_reader *reader, ddp_exec *exec)
{
    ddp_exec_set_reading(exec, come_to, reader);
}

enum ddp_status ddp_share_reader_idle(struct ddp_share_reader *reader)
{
    return ddp_exec_walk_reading(reader->graph, reader->parts, come_to, reader);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Cuts an array; bucket by bucket, or into pieces of so many elements. */
static void cut(struct ddp_share *share, int array, int64_t elements, int64_t size)
{
    struct ddp_share_weights *held = share->held;
    struct array *a = &held->arrays[array];
    const bool learned = array == LEARNED || array == LEARNED_BF16;
    a->dtype = array == LEARNED || array == FROZEN ? DDP_F32 : DDP_BF16;
    a->pieces = held->pieces + held->count;
    for (int64_t at = 0; at < elements;) {
        const int64_t next = learned ? share->bucket_end[a->count] : at + size;
        a->pieces[a->count++] =
            (struct piece){.begin = at, .end = next < elements ? next : elements};
        at = next;
    }
    held->count += a->count;
}

enum ddp_status ddp_share_hold_open(struct ddp_share *share)
{
    const struct ddp_mode_setup *setup = &share->mode->setup;
    const int64_t flat = ddp_graph_flat_count(setup->graph);
    const int64_t frozen = (int64_t)(ddp_graph_frozen_bytes(setup->graph) / sizeof(float));
    const int64_t copied = (int64_t)(ddp_graph_frozen_f32_bytes(setup->graph) / sizeof(float));
    const int64_t size = share_cut_size(setup);
    const size_t most = 2 * (size_t)(share->bucket_count + frozen / size + 1);
    struct ddp_share_weights *held = share->held = ddp_array_alloc(1, sizeof *held);
    if (!held)
        return DDP_ERR_MEMORY;
    held->pieces = ddp_array_alloc(most, sizeof *held->pieces);
    held->wanted = ddp_array_alloc(most, sizeof *held->wanted);
    if (!held->pieces || !held->wanted)
        return DDP_ERR_MEMORY;
    cut(share, LEARNED, flat, 0);
    cut(share, LEARNED_BF16, setup->compute == DDP_BF16 ? flat : 0, 0);
    cut(share, FROZEN, frozen, size);
    cut(share, FROZEN_BF16, setup->compute == DDP_BF16 ? copied : 0, size);
    return ddp_share_reader_open(&held->training, share, setup->graph, DDP_MODE_WORKER_PARTS);
}

void ddp_share_hold_close(struct ddp_share *share)
{
    if (!share->held)
        return;
    ddp_share_reader_close(share->held->training);
    free(share->held->wanted);
    free(share->held->pieces);
    free(share->held);
}

/* Rank 0's frozen ones become everybody's. */
static enum ddp_status spread_frozen(struct ddp_share *share)
{
    struct ddp_share_weights *held = share->held;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < held->count; i++) {
        struct piece *p = &held->pieces[i];
        const struct array *array = array_of(held, p);
        if (array < &held->arrays[FROZEN])
            continue;
        if (leads(share))
            status = provide(share, p);
        if (status == DDP_OK)
            status = ddp_comm_broadcast(share->wire, memory_of(array, p->begin),
                                        (size_t)(p->end - p->begin), array->dtype, 0);
        if (status == DDP_OK)
            status = ddp_comm_barrier(share->wire);
        give_back(share, p);
    }
    return status;
}

enum ddp_status ddp_share_hold_watch(struct ddp_share *share)
{
    const struct ddp_replica *replica = share_replica(share);
    const struct ddp_frozen_host *frozen = share->mode->setup.frozen;
    struct ddp_share_weights *held = share->held;
    held->arrays[LEARNED].memory = (char *)replica->weights;
    held->arrays[LEARNED_BF16].memory = (char *)replica->weights_bf16;
    held->arrays[FROZEN].memory = frozen ? frozen->values : NULL;
    held->arrays[FROZEN_BF16].memory = frozen ? (char *)frozen->rounded : NULL;
    ddp_share_reader_watch(held->training, replica->exec);
    if (replica->tail_exec)
        ddp_share_reader_watch(held->training, replica->tail_exec);
    return spread_frozen(share);
}

enum ddp_status ddp_share_provide_weights(struct ddp_share *share, int bucket)
{
    const struct ddp_share_weights *held = share->held;
    enum ddp_status status = provide(share, &held->arrays[LEARNED].pieces[bucket]);
    return status == DDP_OK && held->arrays[LEARNED_BF16].count > 0
               ? provide(share, &held->arrays[LEARNED_BF16].pieces[bucket])
               : status;
}

void ddp_share_release(struct ddp_share *share, int bucket)
{
    for (int i = LEARNED; i <= LEARNED_BF16; i++)
        if (share->held->arrays[i].count > 0)
            give_back(share, &share->held->arrays[i].pieces[bucket]);
}

void ddp_share_release_all(struct ddp_share *share)
{
    for (int i = 0; i < share->held->count; i++)
        if (share->held->pieces[i].state != AWAY)
            give_back(share, &share->held->pieces[i]);
    share->held->current = NULL;
    share->mode->lacks_weights = true;
}

enum ddp_status ddp_share_hold_range(struct ddp_share *share, int64_t begin, int64_t end)
{
    struct ddp_share_weights *held = share->held;
    const bool whole = begin == 0 && end == share_replica(share)->flat_count;
    for (int i = 0; i < held->count; i++)
        held->wanted[i] = whole;
    want_range(held, LEARNED, begin, end);
    held->current = NULL;
    enum ddp_status status = hold(share);
    if (status == DDP_OK)
        status = ddp_comm_finish(share->wire);
    if (status == DDP_OK && whole)
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
        status = ddp_share_reader_idle(share->held->training);
    return status;
}

enum ddp_status ddp_share_weights_held(const struct ddp_mode_setup *setup, double others,
                                       double *bytes, double *moved)
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
        status = ddp_share_reader_idle(share.held->training);
    }
    if (status == DDP_OK) {
        *bytes = share.held->most;
        *moved = share.held->begun;
    }
    ddp_share_hold_close(&share);
    free(share.bucket_end);
    return status;
}
