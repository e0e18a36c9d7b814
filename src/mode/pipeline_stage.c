/* SPDX-License-Identifier: MIT
 *
 * One stage of a pipeline: its memory, and its passes over the shards of a step. Shards are in
 * flight: each has an exec of its own from its forward to its backward pass, and a place for what
 * forward writes of the flat array, the loss and statistics, which backward then adds to the
 * shard's lane. */
#include "config.h"

#include "mode/pipeline.h"

#include "core/clock.h"
#include "core/memory.h"
#include "core/trace.h"
#include "kernels/add.h"

#include <stdlib.h>

/* --- graphs ----------------------------------------------------------------------------------- */

enum ddp_status ddp_stage_make_graphs(struct ddp_stage_piece pieces[2], int *count,
                                      const struct ddp_stages *stages, const ddp_graph *graph,
                                      const ddp_graph *tail_graph, int number)
{
    struct ddp_graph_range ranges[2];
    ddp_graph *graphs[2], *tails[2] = {NULL, NULL};
    *count = 0;
    for (int i = 0; i < stages->piece_count; i++) {
        if (stages->pieces[i].stage != number)
            continue;
        ranges[*count] = stages->pieces[i].range;
        pieces[(*count)++].number = i;
    }
    enum ddp_status status = ddp_graph_make_stages(graph, ranges, *count, graphs);
    if (status != DDP_OK)
        return status;
    if (tail_graph)
        status = ddp_graph_make_stages(tail_graph, ranges, *count, tails);
    for (int i = 0; i < *count; i++) {
        pieces[i].graph = graphs[i];
        pieces[i].tail_graph = tails[i];
    }
    return status;
}

void ddp_stage_free_graphs(struct ddp_stage_piece pieces[2], int count)
{
    for (int i = 0; i < count; i++) {
        ddp_graph_destroy(pieces[i].tail_graph);
        ddp_graph_destroy(pieces[i].graph);
    }
}

/* --- memory ----------------------------------------------------------------------------------- */

static enum ddp_status make_exec(const struct ddp_pipeline_stage *stage, const ddp_graph *graph,
                                 ddp_exec **exec)
{
    const struct ddp_replica *replica = ddp_stage_replica(stage);
    enum ddp_status status =
        ddp_exec_create(exec, graph, replica->device, DDP_MODE_WORKER_PARTS, replica->weights);
    if (status == DDP_OK)
        ddp_replica_equip(replica, *exec);
    return status;
}

/* The replica has made the first one of the main piece. */
static enum ddp_status make_execs(struct ddp_pipeline_stage *stage, struct ddp_stage_piece *piece)
{
    const struct ddp_replica *replica = ddp_stage_replica(stage);
    const bool main = piece == ddp_stage_main(stage);
    enum ddp_status status = DDP_OK;
    piece->execs = ddp_array_alloc((size_t)piece->in_flight, sizeof(ddp_exec *));
    piece->tails = ddp_array_alloc((size_t)piece->in_flight, sizeof(ddp_exec *));
    if (!piece->execs || !piece->tails)
        return DDP_ERR_MEMORY;
    if (main) {
        piece->execs[0] = replica->exec;
        piece->tails[0] = replica->tail_exec;
    }
    for (int i = main; status == DDP_OK && i < piece->in_flight; i++) {
        status = make_exec(stage, piece->graph, &piece->execs[i]);
        if (status == DDP_OK && piece->tail_graph)
            status = make_exec(stage, piece->tail_graph, &piece->tails[i]);
    }
    for (int i = 0; status == DDP_OK && i < piece->in_flight; i++) {
        ddp_exec_set_place(piece->execs[i], NULL);
        if (piece->tails[i])
            ddp_exec_set_place(piece->tails[i], NULL);
    }
    return status;
}

static void free_execs(struct ddp_pipeline_stage *stage, struct ddp_stage_piece *piece)
{
    const bool main = piece == ddp_stage_main(stage);
    for (int i = main; piece->execs && piece->tails && i < piece->in_flight; i++) {
        ddp_exec_destroy(piece->tails[i]);
        ddp_exec_destroy(piece->execs[i]);
    }
    free(piece->tails);
    free(piece->execs);
}

static size_t fronts_bytes(const struct ddp_pipeline_stage *stage)
{
    return (size_t)stage->slots * (size_t)stage->front * sizeof(float);
}

static const struct ddp_parameter *shared_of(const struct ddp_pipeline_stage *stage)
{
    return ddp_graph_parameter_at(stage->part->setup.graph, stage->shared);
}

static size_t pending_stride(const struct ddp_pipeline_stage *stage)
{
    const struct ddp_parameter *shared = shared_of(stage);
    return (size_t)(ddp_parameter_end(shared) - shared->offset);
}

static size_t pending_bytes(const struct ddp_pipeline_stage *stage)
{
    return (size_t)stage->pending_count * pending_stride(stage) * sizeof(float);
}

/* Which parameters a piece makes final: of two pieces, those that the earlier one reads lie behind
 * the others. */
static void find_ends(struct ddp_pipeline_stage *stage)
{
    const ddp_graph *graph = stage->pieces[0].graph;
    const int64_t flat = ddp_graph_flat_count(graph);
    int64_t first = flat;
    for (int i = 0; stage->piece_count == 2 && i < ddp_graph_parameter_count(graph); i++)
        for (int n = 0; n < ddp_graph_operation_count(graph); n++)
            if (ddp_graph_reads(graph, n, i) && ddp_graph_parameter_at(graph, i)->offset < first)
                first = ddp_graph_parameter_at(graph, i)->offset;
    stage->pieces[0].begin = first;
    stage->pieces[0].end = flat;
    ddp_stage_main(stage)->begin = 0;
    ddp_stage_main(stage)->end = first;
}

static void find_shared(struct ddp_pipeline_stage *stage)
{
    const ddp_graph *graph = stage->part->setup.graph;
    stage->shared = -1;
    for (int i = 0; stage->piece_count == 2 && i < ddp_graph_parameter_count(graph); i++)
        if (ddp_graph_stage_source(graph, i) == stage->pipeline->stages.shared)
            stage->shared = i;
    stage->pending_count =
        stage->shared < 0
            ? 0
            : ddp_passes_ahead(&stage->passes, stage->pieces[1].number, stage->pieces[0].number);
}

/* Where the device cannot read the host's memory, shards in flight have their inputs there. */
static enum ddp_status alloc_inputs(struct ddp_pipeline_stage *stage)
{
    ddp_device *device = ddp_stage_replica(stage)->device;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < 2 && !ddp_device_host_memory(device); i++) {
        for (int p = 0; p < stage->piece_count; p++) {
            const size_t bytes = ddp_exec_graph_input_bytes(stage->pieces[p].graph, i);
            if (bytes > stage->input_bytes[i])
                stage->input_bytes[i] = ddp_align_up(bytes, DDP_CACHE_LINE);
        }
        if (stage->input_bytes[i] > 0)
            status = ddp_device_alloc(device, (size_t)stage->slots * stage->input_bytes[i],
                                      (void **)&stage->inputs[i]);
    }
    return status;
}

enum ddp_status ddp_stage_open(struct ddp_pipeline_stage *stage, const float *weights)
{
    struct ddp_pipeline *pipeline = stage->pipeline;
    struct ddp_mode_setup *setup = &stage->part->setup;
    ddp_device *device = ddp_stage_replica(stage)->device;
    setup->weights = weights;
    enum ddp_status status =
        ddp_passes_make(&stage->passes, &pipeline->stages, setup->local_shards, stage->number);
    if (status == DDP_OK)
        status =
            ddp_share_open(&stage->share, stage->part, pipeline->peer_wire, DDP_MODE_WORKER_PARTS);
    setup->weights = NULL;
    if (status != DDP_OK)
        return status;
    find_shared(stage);
    find_ends(stage);
    stage->front = DDP_FLAT_ALIGN + ddp_graph_statistics_count(setup->graph);
    for (int i = 0; i < stage->piece_count; i++) {
        struct ddp_stage_piece *piece = &stage->pieces[i];
        piece->in_flight =
            ddp_passes_in_flight(&pipeline->stages, setup->local_shards, piece->number);
        stage->slots = piece->in_flight > stage->slots ? piece->in_flight : stage->slots;
    }
    for (int i = 0; status == DDP_OK && i < stage->piece_count; i++)
        status = make_execs(stage, &stage->pieces[i]);
    if (status == DDP_OK)
        status = ddp_device_alloc(device, fronts_bytes(stage), (void **)&stage->fronts);
    if (status == DDP_OK && stage->shared >= 0)
        status = ddp_device_alloc(device, pending_bytes(stage), (void **)&stage->pending);
    return status == DDP_OK ? alloc_inputs(stage) : status;
}

void ddp_stage_close(struct ddp_pipeline_stage *stage)
{
    ddp_device *device = ddp_stage_replica(stage)->device;
    for (int i = 0; device && i < 2; i++)
        ddp_device_free(device, stage->inputs[i], (size_t)stage->slots * stage->input_bytes[i]);
    if (device)
        ddp_device_free(device, stage->soft, sizeof *stage->soft);
    if (stage->pending)
        ddp_device_free(device, stage->pending, pending_bytes(stage));
    if (stage->fronts)
        ddp_device_free(device, stage->fronts, fronts_bytes(stage));
    for (int i = 0; i < stage->piece_count; i++) {
        struct ddp_stage_piece *piece = &stage->pieces[i];
        ddp_port_close(&piece->values_in);
        ddp_port_close(&piece->values_out);
        ddp_port_close(&piece->gradients_in);
        ddp_port_close(&piece->gradients_out);
        free_execs(stage, piece);
    }
    ddp_share_close(&stage->share);
    ddp_passes_free(&stage->passes);
}

/* --- batches ---------------------------------------------------------------------------------- */

static enum ddp_status take_batch(struct ddp_feed *feed, int64_t shard,
                                  const struct ddp_batch **batch)
{
    enum ddp_status status = DDP_OK;
    pthread_mutex_lock(&feed->mutex);
    while (status == DDP_OK && feed->taken <= shard) {
        status = ddp_loader_next(feed->loader, &feed->batches[feed->taken]);
        if (status == DDP_OK)
            feed->users[feed->taken++] = feed->stages;
    }
    *batch = feed->batches[shard];
    pthread_mutex_unlock(&feed->mutex);
    return status;
}

/* The stage is done with it. */
static void leave_batch(struct ddp_feed *feed, int64_t shard)
{
    pthread_mutex_lock(&feed->mutex);
    if (--feed->users[shard] == 0)
        ddp_loader_release(feed->loader, feed->batches[shard]);
    pthread_mutex_unlock(&feed->mutex);
}

/* --- a pass ----------------------------------------------------------------------------------- */

static ddp_exec *exec_of(const struct ddp_pipeline_stage *stage,
                         const struct ddp_stage_piece *piece, int64_t shard)
{
    const struct ddp_batch *batch = stage->pipeline->feed.batches[shard];
    const int slot = (int)(shard % piece->in_flight);
    return batch->rows == stage->part->setup.batch_rows ? piece->execs[slot] : piece->tails[slot];
}

static float *front_of(const struct ddp_pipeline_stage *stage, int64_t shard)
{
    return stage->fronts + shard % stage->slots * stage->front;
}

static enum ddp_status load_inputs(struct ddp_pipeline_stage *stage, ddp_exec *exec, int64_t shard,
                                   const struct ddp_batch *batch)
{
    const void *host[2] = {batch->x, batch->labels};
    const size_t slot = (size_t)(shard % stage->slots);
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < 2; i++)
        if (ddp_exec_input_bytes(exec, i) > 0)
            status = ddp_exec_load_input(
                exec, i, host[i],
                stage->inputs[i] ? stage->inputs[i] + slot * stage->input_bytes[i] : NULL);
    return status;
}

/* Up to the output, and of the last piece the loss and its gradient. */
static enum ddp_status run_forward(struct ddp_pipeline_stage *stage, struct ddp_stage_piece *piece)
{
    struct ddp_replica *replica = ddp_stage_replica(stage);
    const bool last = ddp_piece_is_last(stage->pipeline, piece->number);
    enum ddp_status status = ddp_replica_forward(replica);
    return status == DDP_OK && last ? ddp_replica_loss(replica) : status;
}

static enum ddp_status forward(struct ddp_pipeline_stage *stage, struct ddp_stage_piece *piece,
                               int64_t shard)
{
    struct ddp_replica *replica = ddp_stage_replica(stage);
    struct ddp_exec_messages messages = {NULL, NULL, NULL, NULL};
    const struct ddp_batch *batch;
    void *values = NULL;
    enum ddp_status status = take_batch(&stage->pipeline->feed, shard, &batch);
    if (status != DDP_OK)
        return status;
    const struct ddp_exec_position position = {replica->seed, (uint32_t)replica->step,
                                               (uint32_t)batch->shard};
    ddp_exec *exec = replica->current = exec_of(stage, piece, shard);
    ddp_lanes_select(&replica->lanes, shard);
    ddp_exec_set_position(exec, &position);
    ddp_exec_set_adding(exec, false);
    ddp_exec_set_gradients(exec, front_of(stage, shard));
    status = load_inputs(stage, exec, shard, batch);
    if (status == DDP_OK)
        status = ddp_inputs_soften(&stage->soft, replica->device, exec, batch->soft);
    if (status == DDP_OK)
        status = ddp_exec_send_loss_scale(exec);
    if (status == DDP_OK)
        status = ddp_port_acquire(&piece->values_in, &values);
    messages.values_in = values;
    if (status == DDP_OK)
        status = ddp_port_acquire(&piece->values_out, &messages.values_out);
    if (status != DDP_OK)
        return status;
    ddp_exec_set_messages(exec, &messages);
    status = run_forward(stage, piece);
    if (status == DDP_OK)
        status = ddp_port_release(&piece->values_in);
    return status == DDP_OK ? ddp_port_release(&piece->values_out) : status;
}

/* The parameters below `end` are summed over this replica's shards. */
static enum ddp_status start_buckets(void *arg, int64_t end)
{
    struct ddp_pipeline_stage *stage = arg;
    const struct ddp_share *share = &stage->share;
    while (share->wire && stage->next_bucket < share->bucket_count &&
           share->bucket_end[stage->next_bucket] <= end) {
        enum ddp_status status = ddp_share_reduce(&stage->share, stage->next_bucket++);
        if (status != DDP_OK)
            return status;
    }
    return share->wire ? ddp_comm_progress(share->wire) : DDP_OK;
}

/* What forward has written of the flat array joins the lane. */
static enum ddp_status add_front(struct ddp_pipeline_stage *stage, int64_t shard, bool adding)
{
    ddp_device *device = ddp_stage_replica(stage)->device;
    float *array = ddp_lanes_array(&ddp_stage_replica(stage)->lanes);
    const struct ddp_add args = {.count = stage->front,
                                 .dtype = DDP_F32,
                                 .a = front_of(stage, shard),
                                 .y = array,
                                 .accumulate = true};
    if (adding)
        return ddp_device_kernels(device)->add(&args, ddp_device_stream(device));
    return ddp_device_copy(device, array, front_of(stage, shard),
                           (size_t)stage->front * sizeof(float));
}

static float *pending_of(const struct ddp_pipeline_stage *stage, int64_t shard)
{
    return stage->pending + (size_t)(shard % stage->pending_count) * pending_stride(stage);
}

static enum ddp_status backward_main(struct ddp_pipeline_stage *stage, int64_t shard)
{
    struct ddp_replica *replica = ddp_stage_replica(stage);
    struct ddp_lanes *lanes = &replica->lanes;
    const bool adding = !ddp_lanes_first(lanes);
    enum ddp_status status = adding ? DDP_OK : ddp_lanes_clear(lanes);
    if (status == DDP_OK)
        status = add_front(stage, shard, adding);
    ddp_exec_set_adding(replica->current, adding);
    if (stage->shared >= 0)
        ddp_exec_set_gradient_of(replica->current, stage->shared, pending_of(stage, shard));
    return status == DDP_OK ? ddp_replica_backward(replica, start_buckets, stage) : status;
}

/* The earlier piece adds to the shared parameter's gradient where the later one has left it; then
 * that joins the sums, as do those of the piece's other parameters. */
static enum ddp_status backward_early(struct ddp_pipeline_stage *stage,
                                      const struct ddp_stage_piece *piece, int64_t shard)
{
    struct ddp_replica *replica = ddp_stage_replica(stage);
    struct ddp_lanes *lanes = &replica->lanes;
    const struct ddp_parameter *shared = shared_of(stage);
    const int64_t begin = ddp_trace_begin(), shared_end = ddp_parameter_end(shared);
    float *gradient = pending_of(stage, shard);
    enum ddp_status status = ddp_lanes_clear(lanes);
    ddp_exec_set_gradient_of(replica->current, stage->shared, gradient);
    if (status == DDP_OK)
        status = ddp_exec_backward(replica->current, NULL, NULL);
    ddp_trace_end("backward", begin, "shard", shard);
    if (status == DDP_OK && piece->begin < shared->offset)
        status = ddp_lanes_join(lanes, piece->begin, shared->offset);
    if (status == DDP_OK)
        status = ddp_lanes_join_from(lanes, gradient, shared->offset, shared_end);
    if (status == DDP_OK && shared_end < piece->end)
        status = ddp_lanes_join(lanes, shared_end, piece->end);
    return status == DDP_OK && ddp_lanes_ending(lanes) ? start_buckets(stage, piece->end) : status;
}

static enum ddp_status backward(struct ddp_pipeline_stage *stage, struct ddp_stage_piece *piece,
                                int64_t shard)
{
    struct ddp_replica *replica = ddp_stage_replica(stage);
    struct ddp_exec_messages messages = {NULL, NULL, NULL, NULL};
    void *gradients = NULL;
    ddp_exec *exec = replica->current = exec_of(stage, piece, shard);
    ddp_lanes_select(&replica->lanes, shard);
    ddp_exec_set_gradients(exec, ddp_lanes_array(&replica->lanes));
    enum ddp_status status = ddp_port_acquire(&piece->gradients_in, &gradients);
    messages.gradients_in = gradients;
    if (status == DDP_OK)
        status = ddp_port_acquire(&piece->gradients_out, &messages.gradients_out);
    if (status != DDP_OK)
        return status;
    ddp_exec_set_messages(exec, &messages);
    status = piece == ddp_stage_main(stage) ? backward_main(stage, shard)
                                            : backward_early(stage, piece, shard);
    if (status == DDP_OK)
        status = ddp_port_release(&piece->gradients_in);
    if (status == DDP_OK)
        status = ddp_port_release(&piece->gradients_out);
    if (status == DDP_OK && piece == &stage->pieces[0]) {
        status = ddp_device_copied(replica->device);
        leave_batch(&stage->pipeline->feed, shard);
    }
    return status;
}

enum ddp_status ddp_stage_run(struct ddp_pipeline_stage *stage)
{
    const int64_t begin = ddp_clock_ns();
    enum ddp_status status = DDP_OK;
    stage->next_bucket = 0;
    stage->waited_ns = 0;
    for (int64_t i = 0; status == DDP_OK && i < stage->passes.count; i++) {
        const struct ddp_pass *pass = &stage->passes.list[i];
        struct ddp_stage_piece *piece = &stage->pieces[0];
        if (pass->piece != piece->number)
            piece = ddp_stage_main(stage);
        status = pass->backward ? backward(stage, piece, pass->shard)
                                : forward(stage, piece, pass->shard);
    }
    stage->step_ns = ddp_clock_ns() - begin;
    return status == DDP_OK && stage->share.wire ? ddp_comm_finish(stage->share.wire) : status;
}
