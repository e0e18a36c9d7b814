/* SPDX-License-Identifier: MIT
 *
 * What check_stage and check_cuda_stage share: a model in pieces beside the whole, shard after
 * shard in one thread, with messages that are copied. */
#ifndef TESTS_STAGE_TEST_H
#define TESTS_STAGE_TEST_H

#include "core/memory.h"
#include "graph/internal.h"
#include "graph/stage.h"
#include "kernels/bf16.h"
#include "model/model.h"
#include "tests/graph/graph_test.h"
#include "tests/graph/graph_random.h"
#include "tests/lib/model_option.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIECES = 6, SHARDS = 2, SEEN_PARTS = DDP_EXEC_NETWORK | DDP_EXEC_LOSS };
#define TRAINS (SEEN_PARTS | DDP_EXEC_BACKWARD)

struct subject {
    const struct ddp_model *model;
    const char *options[8]; /* names and values */
    struct ddp_model_config config;
};

struct way {
    const char *device;
    enum ddp_dtype compute, activations;
    bool fuses, recomputes, forward_only;
    bool in_flight; /* all shards go forward before the first goes backward */
};

/* Operations that one worker runs; workers are numbered from 0, each has its pieces in order. */
struct piece {
    struct ddp_graph_range range;
    int worker;
};

struct memory {
    void *at;
    size_t bytes;
};

/* A model in pieces: one that ends no cut is the whole. */
struct world {
    const ddp_graph *graph;
    ddp_device *device;
    struct way way;
    int count;
    struct piece pieces[MOST_PIECES];
    const ddp_graph *graphs[MOST_PIECES];
    ddp_exec *execs[MOST_PIECES][SHARDS]; /* the same one, if shards are not in flight together */
    struct memory weights[MOST_PIECES], rounded[MOST_PIECES],
        gradients[MOST_PIECES]; /* by worker */
    struct memory values_in[MOST_PIECES], values_out[MOST_PIECES];
    struct memory gradients_in[MOST_PIECES], gradients_out[MOST_PIECES];
    struct memory inputs[SHARDS][2];
};

static inline struct memory take(struct world *w, size_t bytes, const void *host)
{
    struct memory memory = {NULL, bytes};
    if (!bytes)
        return memory;
    ck_assert_int_eq(ddp_device_alloc(w->device, bytes, &memory.at), DDP_OK);
    if (host)
        ck_assert_int_eq(ddp_device_copy_in(w->device, memory.at, host, bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(w->device), DDP_OK);
    return memory;
}

static inline void give(struct world *w, struct memory *memory)
{
    ddp_device_free(w->device, memory->at, memory->bytes);
    *memory = (struct memory){0};
}

/* What is not used any more, or not yet, holds numbers that show. */
static inline void spoil(struct world *w, const struct memory *memory)
{
    if (!memory->bytes)
        return;
    void *host = malloc(memory->bytes);
    ck_assert_ptr_nonnull(host);
    memset(host, 0xff, memory->bytes);
    ck_assert_int_eq(ddp_device_copy_in(w->device, memory->at, host, memory->bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(w->device), DDP_OK);
    free(host);
}

static inline void see(struct world *w, void *host, const void *at, size_t bytes)
{
    ck_assert_int_eq(ddp_device_copy_out(w->device, host, at, bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(w->device), DDP_OK);
}

static inline ddp_graph *build_subject(const struct subject *subject, const struct way *way)
{
    struct ddp_model_config config = subject->config;
    ddp_graph *graph;
    config.compute = way->compute;
    config.activations = way->activations;
    config.offers.fuses_norms = way->fuses;
    config.offers.pads_classes = true;
    for (int i = 0; i < 8 && subject->options[i]; i += 2)
        set_model_option(&config, subject->model, subject->options[i], subject->options[i + 1]);
    if (subject->model->dataset)
        ck_assert_int_eq(ddp_model_configure(subject->model, &config), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&graph, subject->model, &config), DDP_OK);
    ddp_graph_set_recompute(graph, way->recomputes);
    return graph;
}

static inline int number_in_whole(const struct world *w, const ddp_graph *part, int parameter)
{
    return part == w->graph ? parameter : ddp_graph_stage_source(part, parameter);
}

/* The worker's weights: those of the whole graph at the places of its own. */
static inline void give_weights(struct world *w, const ddp_graph *part, int worker)
{
    float *whole = ddp_array_alloc((size_t)ddp_graph_flat_count(w->graph), sizeof *whole);
    const size_t count = (size_t)ddp_graph_flat_count(part);
    float *own = ddp_array_alloc(count, sizeof *own);
    struct ddp_rng rng;
    ddp_rng_seed(&rng, 5);
    ddp_graph_init_parameters(w->graph, &rng, whole, NULL);
    for (int i = 0; i < ddp_graph_parameter_count(part); i++) {
        const struct ddp_parameter *to = ddp_graph_parameter_at(part, i);
        const struct ddp_parameter *from =
            ddp_graph_parameter_at(w->graph, number_in_whole(w, part, i));
        ck_assert_str_eq(to->name, from->name);
        ck_assert_int_ge(to->offset, DDP_FLAT_ALIGN);
        ck_assert_int_le(ddp_parameter_end(to), (int64_t)count);
        memcpy(own + to->offset, whole + from->offset, (size_t)to->count * sizeof *own);
    }
    w->weights[worker] = take(w, count * sizeof *own, own);
    w->gradients[worker] = take(w, count * sizeof *own, NULL);
    w->rounded[worker] = take(w, count * sizeof(uint16_t), NULL);
    const struct ddp_to_bf16 args = {(int64_t)count, w->weights[worker].at, w->rounded[worker].at};
    ck_assert_int_eq(ddp_device_kernels(w->device)->to_bf16(&args, ddp_device_stream(w->device)),
                     DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(w->device), DDP_OK);
    free(whole);
    free(own);
}

/* Numbers, tokens or classes. */
static inline void give_inputs(struct world *w, const struct subject *subject)
{
    const ddp_graph *graph = w->graph;
    const int64_t classes = subject->config.classes ? subject->config.classes : 3;
    for (int i = 0; i < 2; i++)
        for (int shard = 0; shard < SHARDS; shard++) {
            const size_t bytes = ddp_exec_graph_input_bytes(graph, i), count = bytes / 4;
            enum ddp_dtype dtype = DDP_F32;
            for (int t = 0; t < graph->tensor_count; t++)
                if (graph->tensors[t]->kind == TENSOR_INPUT && graph->tensors[t]->index == i)
                    dtype = graph->tensors[t]->dtype;
            struct ddp_rng rng;
            ddp_rng_seed(&rng, 7u + (uint64_t)shard);
            void *host = ddp_array_alloc(count + 1, 4);
            if (dtype == DDP_F32)
                ddp_rng_fill_normal(&rng, host, count, 0, 1);
            for (size_t k = 0; k < count && dtype == DDP_I32; k++)
                ((int32_t *)host)[k] =
                    (int32_t)((k * k + (size_t)(i + 3 * shard)) % (size_t)classes);
            if (i == 0 && strcmp(subject->model->name, "documents") == 0)
                for (size_t k = 0; k < count; k++)
                    if (k / DOCUMENTS_LENGTH % 2)
                        ((int32_t *)host)[k] = document_of(k);
            w->inputs[shard][i] = take(w, bytes, bytes ? host : NULL);
            free(host);
        }
}

/* A worker's graphs; the whole graph itself where nothing is cut. */
static inline void make_graphs(struct world *w, int worker)
{
    struct ddp_graph_range ranges[MOST_PIECES];
    ddp_graph *parts[MOST_PIECES];
    int count = 0, made = 0;
    for (int p = 0; p < w->count; p++)
        if (w->pieces[p].worker == worker)
            ranges[count++] = w->pieces[p].range;
    if (!count)
        return;
    if (w->count > 1)
        ck_assert_int_eq(ddp_graph_make_stages(w->graph, ranges, count, parts), DDP_OK);
    for (int p = 0; p < w->count; p++)
        if (w->pieces[p].worker == worker)
            w->graphs[p] = w->count > 1 ? parts[made++] : w->graph;
    give_weights(w, w->count > 1 ? parts[0] : w->graph, worker);
}

static inline void make_execs(struct world *w, int p)
{
    const ddp_graph *whole = w->graph;
    const struct piece *piece = &w->pieces[p];
    const int begin = piece->range.first, end = piece->range.end, worker = piece->worker;
    for (int shard = 0; shard < SHARDS; shard++) {
        ddp_exec **exec = &w->execs[p][shard];
        *exec = w->execs[p][0];
        if (shard > 0 && !w->way.in_flight)
            continue;
        ck_assert_int_eq(ddp_exec_create(exec, w->graphs[p], w->device,
                                         w->way.forward_only ? SEEN_PARTS : TRAINS,
                                         w->weights[worker].at),
                         DDP_OK);
        if (w->way.compute == DDP_BF16)
            ddp_exec_set_weights_bf16(*exec, w->rounded[worker].at);
        if (!w->way.forward_only)
            ddp_exec_set_gradients(*exec, w->gradients[worker].at);
    }
    w->values_in[p] = take(w, ddp_graph_cut_values(whole, begin), NULL);
    w->gradients_out[p] = take(w, ddp_graph_cut_gradients(whole, begin), NULL);
    w->values_out[p] = take(w, ddp_graph_cut_values(whole, end), NULL);
    w->gradients_in[p] = take(w, ddp_graph_cut_gradients(whole, end), NULL);
}

static inline void open_world(struct world *w, const struct subject *subject, const struct way *way,
                              const ddp_graph *graph, const struct piece *pieces, int count)
{
    *w = (struct world){.graph = graph, .way = *way, .count = count};
    memcpy(w->pieces, pieces, (size_t)count * sizeof *pieces);
    ck_assert_int_eq(ddp_device_open(&w->device, way->device, 0, 1), DDP_OK);
    for (int worker = 0; worker < count; worker++)
        make_graphs(w, worker);
    for (int p = 0; p < count; p++)
        make_execs(w, p);
    give_inputs(w, subject);
}

static inline void close_world(struct world *w)
{
    for (int p = 0; p < w->count; p++) {
        for (int shard = 0; shard < (w->way.in_flight ? SHARDS : 1); shard++)
            ddp_exec_destroy(w->execs[p][shard]);
        if (w->count > 1)
            ddp_graph_destroy((ddp_graph *)w->graphs[p]);
        give(w, &w->weights[p]);
        give(w, &w->rounded[p]);
        give(w, &w->gradients[p]);
        give(w, &w->values_in[p]);
        give(w, &w->values_out[p]);
        give(w, &w->gradients_in[p]);
        give(w, &w->gradients_out[p]);
    }
    for (int shard = 0; shard < SHARDS; shard++)
        for (int i = 0; i < 2; i++)
            give(w, &w->inputs[shard][i]);
    ddp_device_close(w->device);
}

/* Takes a message to where it is read, and leaves nothing where it was. */
static inline void carry(struct world *w, const struct memory *to, const struct memory *from)
{
    ck_assert_uint_eq(to->bytes, from->bytes);
    if (to->bytes)
        ck_assert_int_eq(ddp_device_copy(w->device, to->at, from->at, to->bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(w->device), DDP_OK);
    spoil(w, from);
}

static inline void run_piece_forward(struct world *w, int p, int shard)
{
    ddp_exec *exec = w->execs[p][shard];
    for (int i = 0; i < 2; i++)
        ddp_exec_bind_input(exec, i, w->inputs[shard][i].at);
    ddp_exec_set_adding(exec, shard > 0 && !w->way.forward_only);
    ddp_exec_set_position(
        exec, &(struct ddp_exec_position){.seed = 11, .step = 3, .shard = (uint32_t)shard});
    ddp_exec_set_messages(exec, &(struct ddp_exec_messages){.values_in = w->values_in[p].at,
                                                            .values_out = w->values_out[p].at});
    ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(exec), DDP_OK);
    spoil(w, &w->values_in[p]);
    if (p + 1 < w->count)
        carry(w, &w->values_in[p + 1], &w->values_out[p]);
}

static inline void run_piece_backward(struct world *w, int p, int shard, ddp_exec_ready *ready,
                                      void *arg)
{
    ddp_exec *exec = w->execs[p][shard];
    ddp_exec_set_messages(exec,
                          &(struct ddp_exec_messages){.gradients_in = w->gradients_in[p].at,
                                                      .gradients_out = w->gradients_out[p].at});
    ck_assert_int_eq(ddp_exec_loss_backward(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(exec, ready, arg), DDP_OK);
    spoil(w, &w->gradients_in[p]);
    if (p > 0)
        carry(w, &w->gradients_in[p - 1], &w->gradients_out[p]);
}

/* What a run leaves: in training the whole graph's gradients, statistics and sum of losses, else
 * the output and the loss of each shard. */
struct result {
    unsigned char *bytes;
    size_t count;
};

static inline void keep(struct world *w, struct result *result, const void *at, size_t bytes)
{
    result->bytes = realloc(result->bytes, result->count + bytes);
    ck_assert_ptr_nonnull(result->bytes);
    see(w, result->bytes + result->count, at, bytes);
    result->count += bytes;
}

/* The gradients in the order of the whole graph's table; each is in one worker. */
static inline void keep_gradients(struct world *w, struct result *result)
{
    const int last = w->pieces[w->count - 1].worker;
    keep(w, result, w->gradients[last].at, sizeof(float));
    for (int i = 0; i < ddp_graph_parameter_count(w->graph); i++) {
        int owner = -1;
        for (int p = 0; p < w->count; p++)
            for (int k = 0; k < ddp_graph_parameter_count(w->graphs[p]); k++) {
                const struct ddp_parameter *parameter = ddp_graph_parameter_at(w->graphs[p], k);
                if (number_in_whole(w, w->graphs[p], k) != i || owner == w->pieces[p].worker)
                    continue;
                ck_assert_int_lt(owner, 0);
                owner = w->pieces[p].worker;
                keep(w, result, (const float *)w->gradients[owner].at + parameter->offset,
                     (size_t)parameter->count * sizeof(float));
            }
        ck_assert_int_ge(owner, 0);
    }
}

static inline void run_forward(struct world *w, int shard, struct result *result)
{
    for (int p = 0; p < w->count; p++)
        run_piece_forward(w, p, shard);
    const ddp_exec *last = w->execs[w->count - 1][shard];
    if (!w->way.forward_only)
        return;
    keep(w, result, ddp_exec_output(last), ddp_exec_output_bytes(last));
    keep(w, result, ddp_exec_loss_value(last), sizeof(float));
}

static inline void run_backward(struct world *w, int shard)
{
    for (int p = w->count - 1; p >= 0; p--)
        run_piece_backward(w, p, shard, NULL, NULL);
}

static inline void run_shards(struct world *w, struct result *result)
{
    for (int shard = 0; shard < SHARDS; shard++) {
        run_forward(w, shard, result);
        if (!w->way.forward_only && !w->way.in_flight)
            run_backward(w, shard);
    }
    for (int shard = 0; shard < SHARDS && w->way.in_flight; shard++)
        run_backward(w, shard);
}

static inline struct result run_pieces(const struct subject *subject, const struct way *way,
                                       const ddp_graph *graph, const struct piece *pieces,
                                       int count)
{
    struct world w;
    struct result result = {NULL, 0};
    open_world(&w, subject, way, graph, pieces, count);
    for (int worker = 0; worker < count; worker++)
        spoil(&w, &w.gradients[worker]);
    run_shards(&w, &result);
    if (!way->forward_only)
        keep_gradients(&w, &result);
    close_world(&w);
    return result;
}

static inline struct result run_whole(const struct subject *subject, const struct way *way,
                                      const ddp_graph *graph)
{
    const struct piece whole = {{0, ddp_graph_operation_count(graph)}, 0};
    struct way one_after_another = *way;
    one_after_another.in_flight = false;
    struct result result = run_pieces(subject, &one_after_another, graph, &whole, 1);
    for (size_t i = 0; i < result.count / 4 && !way->forward_only; i++)
        ck_assert(isfinite(((const float *)(const void *)result.bytes)[i]));
    return result;
}

static inline bool same_result(const struct result *a, const struct result *b)
{
    return a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

/* Fails if the pieces leave something else than the whole. */
static inline void compare_pieces(const struct subject *subject, const struct way *way,
                                  const ddp_graph *graph, const struct result *whole,
                                  const struct piece *pieces, int count)
{
    struct result cut = run_pieces(subject, way, graph, pieces, count);
    char text[200] = "";
    for (int p = 0; p < count; p++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d-%d on %d",
                 pieces[p].range.first, pieces[p].range.end, pieces[p].worker);
    ck_assert_msg(same_result(whole, &cut), "%s, pieces%s", subject->model->name, text);
    free(cut.bytes);
}

static inline bool piece_reads(const ddp_graph *graph, const struct piece *piece, int parameter)
{
    for (int n = piece->range.first; n < piece->range.end; n++)
        if (ddp_graph_reads(graph, n, parameter))
            return true;
    return false;
}

static inline bool share_parameter(const ddp_graph *graph, const struct piece *a,
                                   const struct piece *b)
{
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++)
        if (piece_reads(graph, a, i) && piece_reads(graph, b, i))
            return true;
    return false;
}

/* Consecutive pieces that begin at these operations, a worker each, but for those that read the
 * same parameter. */
static inline int pieces_of(const ddp_graph *graph, const int *cuts, int cut_count,
                            struct piece *pieces)
{
    for (int p = 0; p <= cut_count; p++) {
        pieces[p] = (struct piece){
            {p ? cuts[p - 1] : 0, p < cut_count ? cuts[p] : ddp_graph_operation_count(graph)}, p};
        for (int q = 0; q < p; q++)
            if (share_parameter(graph, &pieces[p], &pieces[q]))
                pieces[p].worker = pieces[q].worker;
    }
    return cut_count + 1;
}

/* Two pieces, with every cut. */
static inline void compare_cuts(const struct subject *subject, const struct way *way, int first,
                                int step)
{
    ddp_graph *graph = build_subject(subject, way);
    struct result whole = run_whole(subject, way, graph);
    struct piece pieces[MOST_PIECES];
    for (int cut = first; cut < ddp_graph_network_count(graph); cut += step) {
        const int count = pieces_of(graph, &cut, 1, pieces);
        compare_pieces(subject, way, graph, &whole, pieces, count);
    }
    free(whole.bytes);
    ddp_graph_destroy(graph);
}

static inline void compare_every_cut(const struct subject *subject, const struct way *way)
{
    compare_cuts(subject, way, 1, 1);
}

/* `count` pieces at random cuts. */
static inline void compare_some_cuts(const struct subject *subject, const struct way *way,
                                     int count)
{
    ddp_graph *graph = build_subject(subject, way);
    const int last = ddp_graph_network_count(graph) - 1;
    struct piece pieces[MOST_PIECES];
    int cuts[MOST_PIECES], made = 0;
    for (int n = 1; n <= last && made < count - 1; n++)
        if (below(last - n + 1) < count - 1 - made)
            cuts[made++] = n;
    struct result whole = run_whole(subject, way, graph);
    compare_pieces(subject, way, graph, &whole, pieces, pieces_of(graph, cuts, made, pieces));
    free(whole.bytes);
    ddp_graph_destroy(graph);
}

#endif
