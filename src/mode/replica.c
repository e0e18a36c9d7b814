/* SPDX-License-Identifier: MIT
 *
 * See replica.h. */
#include "config.h"

#include "mode/replica.h"

#include "core/trace.h"
#include "kernels/bf16.h"

#include <string.h>

static size_t bf16_bytes(const struct ddp_replica *replica)
{
    return (size_t)replica->flat_count * sizeof(uint16_t);
}

static enum ddp_status make_weights(struct ddp_replica *replica, const struct ddp_mode_setup *setup,
                                    const struct ddp_replica_memory *given)
{
    ddp_device *device = replica->device;
    enum ddp_status status = DDP_OK;
    replica->weights = given->weights;
    replica->owns_weights = !given->weights;
    if (replica->owns_weights)
        status = ddp_device_alloc(device, replica->flat_bytes, (void **)&replica->weights);
    if (status == DDP_OK && replica->owns_weights && setup->weights)
        status = ddp_device_copy_in(device, replica->weights, setup->weights, replica->flat_bytes);
    if (status != DDP_OK || setup->compute != DDP_BF16)
        return status;
    replica->weights_bf16 = given->weights_bf16;
    replica->owns_weights_bf16 = !given->weights_bf16;
    if (replica->owns_weights_bf16)
        status = ddp_device_alloc(device, bf16_bytes(replica), (void **)&replica->weights_bf16);
    return status == DDP_OK && replica->owns_weights_bf16
               ? ddp_replica_round_weights(replica, 0, replica->flat_count)
               : status;
}

enum ddp_status ddp_replica_round_weights(struct ddp_replica *replica, int64_t begin, int64_t count)
{
    if (!replica->weights_bf16)
        return DDP_OK;
    struct ddp_to_bf16 args = {
        .count = count, .x = replica->weights + begin, .y = replica->weights_bf16 + begin};
    return ddp_device_kernels(replica->device)->to_bf16(&args, ddp_device_stream(replica->device));
}

static enum ddp_status make_gradients(struct ddp_replica *replica,
                                      const struct ddp_mode_setup *setup, int index,
                                      const struct ddp_replica_memory *given)
{
    const struct ddp_lanes_run run = ddp_mode_replica_run(setup, index);
    int ends[DDP_REDUCE_ROOTS];
    const int roots = ddp_lanes_roots(&run, ends);
    enum ddp_status status = DDP_OK;
    replica->gradients = given->gradients;
    replica->owns_gradients = !given->gradients;
    replica->gradient_bytes = ddp_lanes_bytes(replica->flat_count, roots);
    if (replica->owns_gradients)
        status = ddp_device_alloc(replica->device, replica->gradient_bytes,
                                  (void **)&replica->gradients);
    if (status != DDP_OK)
        return status;
    status = ddp_lanes_open(&replica->lanes, replica->device, &run, replica->flat_count,
                            replica->gradients);
    if (setup->wire_bf16) /* parameters: not the loss and statistics before them */
        replica->lanes.rounded_from = DDP_FLAT_ALIGN + ddp_graph_statistics_count(setup->graph);
    return status == DDP_OK ? ddp_noise_open(&replica->noise, setup, replica->device, &run)
                            : status;
}

void ddp_replica_equip(const struct ddp_replica *replica, ddp_exec *exec)
{
    const float *scale = &replica->loss_scale.scale;
    ddp_exec_set_weights_bf16(exec, replica->weights_bf16);
    ddp_exec_set_frozen(exec, replica->frozen.values, replica->frozen.rounded);
    ddp_exec_set_loss_scale(exec, *scale > 0 ? scale : NULL);
}

static enum ddp_status make_exec(struct ddp_replica *replica, const ddp_graph *graph,
                                 unsigned parts, ddp_exec **exec)
{
    enum ddp_status status = ddp_exec_create(exec, graph, replica->device, parts, replica->weights);
    if (status == DDP_OK)
        ddp_replica_equip(replica, *exec);
    return status;
}

enum ddp_status ddp_replica_open_device(struct ddp_replica *replica,
                                        const struct ddp_mode_setup *setup, int index)
{
    return ddp_device_open(&replica->device, setup->device,
                           setup->devices ? setup->devices[index] : index, setup->threads);
}

enum ddp_status ddp_replica_open(struct ddp_replica *replica, const struct ddp_mode_setup *setup,
                                 int index, unsigned parts, const struct ddp_replica_memory *given)
{
    const struct ddp_replica_memory none = {0};
    replica->batch_rows = setup->batch_rows;
    replica->flat_count = ddp_graph_flat_count(setup->graph);
    replica->flat_bytes = (size_t)replica->flat_count * sizeof(float);
    replica->seed = setup->seed;
    replica->loss_scale.scale = setup->compute == DDP_F16 ? (float)setup->loss_scale : 0;
    enum ddp_status status = DDP_OK;
    if (!replica->device)
        status = ddp_replica_open_device(replica, setup, index);
    if (status != DDP_OK)
        return status;
    status = make_weights(replica, setup, given ? given : &none);
    if (status == DDP_OK)
        status = ddp_frozen_open(&replica->frozen, replica->device, setup->frozen, setup->graph,
                                 setup->early, setup->compute);
    if (status == DDP_OK)
        status = make_gradients(replica, setup, index, given ? given : &none);
    if (status == DDP_OK)
        status = make_exec(replica, setup->graph, parts, &replica->exec);
    replica->current = replica->exec;
    if (status == DDP_OK && setup->tail_graph)
        status = make_exec(replica, setup->tail_graph, parts, &replica->tail_exec);
    replica->recordings.device = replica->device;
    replica->recordings.off = ddp_device_host_memory(replica->device);
    if (status == DDP_OK)
        status = ddp_inputs_open(&replica->inputs, replica->device, replica->exec,
                                 replica->tail_exec, setup->replicas > 1, setup->local_shards > 1);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

void ddp_replica_close(struct ddp_replica *replica)
{
    if (!replica->device)
        return;
    ddp_recordings_free(&replica->recordings);
    ddp_inputs_close(&replica->inputs);
    ddp_noise_close(&replica->noise);
    ddp_lanes_close(&replica->lanes);
    if (replica->owns_gradients)
        ddp_device_free(replica->device, replica->gradients, replica->gradient_bytes);
    ddp_exec_destroy(replica->tail_exec);
    ddp_exec_destroy(replica->exec);
    ddp_frozen_close(&replica->frozen);
    if (replica->owns_weights_bf16)
        ddp_device_free(replica->device, replica->weights_bf16, bf16_bytes(replica));
    if (replica->owns_weights)
        ddp_device_free(replica->device, replica->weights, replica->flat_bytes);
    ddp_device_close(replica->device);
    memset(replica, 0, sizeof *replica);
}

static int slot_of(const struct ddp_replica *replica)
{
    return ddp_inputs_slot(replica->lanes.shard);
}

enum ddp_status ddp_replica_bind(struct ddp_replica *replica, int64_t shard,
                                 const struct ddp_batch *batch)
{
    const struct ddp_exec_position position = {replica->seed, (uint32_t)replica->step,
                                               (uint32_t)batch->shard};
    ddp_lanes_select(&replica->lanes, shard);
    replica->current = batch->rows == replica->batch_rows ? replica->exec : replica->tail_exec;
    ddp_exec_set_gradients(replica->current, ddp_lanes_array(&replica->lanes));
    ddp_exec_set_adding(replica->current, !ddp_lanes_first(&replica->lanes));
    const enum ddp_status status = ddp_exec_send_loss_scale(replica->current);
    return status == DDP_OK ? ddp_inputs_load(&replica->inputs, replica->current, slot_of(replica),
                                              batch, &position)
                            : status;
}

/* --- a pass over a shard --- */

/* Passes on what backward has finished: to the partial sums where a lane ends, and to those who
 * wait for the sum of all lanes. */
struct progress {
    struct ddp_replica *replica;
    int64_t done;
    ddp_exec_ready *ready;
    void *arg;
};

static enum ddp_status on_ready(void *arg, int64_t end)
{
    struct progress *progress = arg;
    struct ddp_lanes *lanes = &progress->replica->lanes;
    enum ddp_status status = DDP_OK;
    if (end == 0)
        return ddp_lanes_first(lanes) ? ddp_lanes_clear(lanes) : DDP_OK;
    if (ddp_lanes_last(lanes) && ddp_lanes_begins(lanes) && progress->replica->noise.sums)
        status = ddp_noise_measure(&progress->replica->noise, ddp_lanes_array(lanes),
                                   progress->done, end);
    if (status == DDP_OK && ddp_lanes_last(lanes))
        status = ddp_lanes_join(lanes, progress->done, end);
    progress->done = end;
    if (status == DDP_OK && progress->ready && ddp_lanes_ending(lanes))
        status = progress->ready(progress->arg, end);
    return status;
}

enum ddp_status ddp_replica_forward(struct ddp_replica *replica)
{
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_exec_forward(replica->current);
    ddp_trace_end("forward", begin, "shard", replica->lanes.shard);
    return status;
}

enum ddp_status ddp_replica_loss(struct ddp_replica *replica)
{
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_exec_loss(replica->current);
    if (status == DDP_OK)
        status = ddp_exec_loss_backward(replica->current);
    ddp_trace_end("loss", begin, "shard", replica->lanes.shard);
    return status;
}

/* `ready` is also called with 0, when the array of gradients is about to be written. */
static enum ddp_status backward(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ready ? ready(arg, 0) : DDP_OK;
    if (status == DDP_OK)
        status = ddp_exec_backward(replica->current, ready, arg);
    ddp_trace_end("backward", begin, "shard", replica->lanes.shard);
    return status;
}

enum ddp_status ddp_replica_backward(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    struct progress progress = {replica, 0, ready, arg};
    enum ddp_status status = backward(replica, on_ready, &progress);
    return status == DDP_OK ? ddp_device_leave(replica->device, slot_of(replica)) : status;
}

/* How much of a pass. */
enum part { PART_ALL, PART_FORWARD, PART_BACKWARD };

static enum ddp_status run_operations(struct ddp_replica *replica, enum part part,
                                      ddp_exec_ready *ready, void *arg)
{
    enum ddp_status status = part == PART_BACKWARD ? DDP_OK : ddp_replica_forward(replica);
    if (status == DDP_OK && part == PART_ALL)
        status = ddp_replica_loss(replica);
    if (status == DDP_OK && part != PART_FORWARD)
        status = backward(replica, ready, arg);
    return status;
}

/* --- passes that are recorded --- */

/* The recording that the current shard's pass has, or will have; NULL: none. A trace is of
 * operations, one by one. */
static struct ddp_recording *recording_of(struct ddp_replica *replica, enum part part)
{
    if (replica->recordings.off || ddp_trace_begin() || ddp_exec_syncs(replica->current))
        return NULL;
    const struct ddp_lanes *lanes = &replica->lanes;
    const bool tail = replica->current == replica->tail_exec;
    return &replica->recordings.of[lanes->root][tail][slot_of(replica)][ddp_lanes_first(lanes)]
                                  [ddp_lanes_last(lanes)][part == PART_BACKWARD];
}

struct recorder {
    struct ddp_replica *replica;
    struct ddp_recording *recording;
    enum part part;
    bool cuts; /* something is done between parts */
    int next_cut;
};

/* In the place of on_ready(), while its pass is recorded: ends a part where that has something to
 * do. */
static enum ddp_status cut(void *arg, int64_t end)
{
    struct recorder *recorder = arg;
    const struct ddp_replica *replica = recorder->replica;
    const int first = recorder->next_cut;
    bool due = end == 0 && ddp_lanes_first(&replica->lanes);
    if (!recorder->cuts)
        return DDP_OK;
    while (recorder->next_cut < replica->cut_count && replica->cuts[recorder->next_cut] <= end)
        recorder->next_cut++;
    if (end > 0 && ddp_lanes_last(&replica->lanes))
        due = recorder->next_cut > first;
    if (!due)
        return DDP_OK;
    return ddp_recordings_cut(&recorder->replica->recordings, recorder->recording, end);
}

static enum ddp_status pass(void *arg)
{
    struct recorder *recorder = arg;
    return run_operations(recorder->replica, recorder->part, cut, recorder);
}

static enum ddp_status run(struct ddp_replica *replica, enum part part, ddp_exec_ready *ready,
                           void *arg)
{
    struct ddp_recording *recording = recording_of(replica, part);
    struct progress progress = {replica, 0, ready, arg};
    if (recording && recording->uses++ == 1) {
        struct recorder recorder = {
            .replica = replica,
            .recording = recording,
            .part = part,
            .cuts = part != PART_FORWARD && (!ddp_lanes_single(&replica->lanes) ||
                                             (ready && ddp_lanes_ending(&replica->lanes))),
        };
        ddp_recordings_make(&replica->recordings, recording, pass, &recorder);
    }
    enum ddp_status status =
        recording && recording->part_count > 0
            ? ddp_recordings_run(&replica->recordings, recording, on_ready, &progress)
            : run_operations(replica, part, on_ready, &progress);
    return status == DDP_OK && part != PART_FORWARD
               ? ddp_device_leave(replica->device, slot_of(replica))
               : status;
}

enum ddp_status ddp_replica_run(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    return run(replica, PART_ALL, ready, arg);
}

enum ddp_status ddp_replica_run_forward(struct ddp_replica *replica)
{
    return run(replica, PART_FORWARD, NULL, NULL);
}

enum ddp_status ddp_replica_run_backward(struct ddp_replica *replica)
{
    return run(replica, PART_BACKWARD, NULL, NULL);
}

enum ddp_status ddp_replica_run_shards(struct ddp_replica *replica, ddp_loader *loader,
                                       ddp_exec_ready *ready, void *arg)
{
    enum ddp_status status = DDP_OK;
    for (int64_t i = 0; status == DDP_OK && i < ddp_lanes_shards(&replica->lanes.run); i++) {
        const struct ddp_batch *batch;
        status = ddp_loader_next(loader, &batch);
        if (status != DDP_OK)
            return status;
        status = ddp_replica_bind(replica, i, batch);
        if (status == DDP_OK)
            status = ddp_replica_run(replica, ready, arg);
        if (status == DDP_OK)
            status = ddp_device_copied(replica->device);
        ddp_loader_release(loader, batch);
    }
    return status;
}
