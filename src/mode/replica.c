/* SPDX-License-Identifier: MIT
 *
 * See replica.h. */
#include "config.h"

#include "mode/replica.h"

#include "core/trace.h"
#include "kernels/bf16.h"

#include <string.h>

#define PLACE_BYTES (2 * sizeof(uint32_t))

int ddp_replica_partials(int64_t shards)
{
    int count = 0;
    while (shards > 1) {
        count++;
        shards = (shards + 1) / 2;
    }
    return count;
}

enum ddp_status ddp_replica_stage_inputs(struct ddp_replica *replica)
{
    const bool ahead = !ddp_device_host_memory(replica->device) && replica->shard_count > 1;
    enum ddp_status status = DDP_OK;
    for (int i = 0; i < 2; i++) {
        replica->input_bytes[i] = ddp_exec_input_bytes(replica->exec, i);
        for (int slot = 0; status == DDP_OK && slot <= ahead; slot++)
            if (!replica->input[i][slot] && replica->input_bytes[i])
                status = ddp_device_alloc(replica->device, replica->input_bytes[i],
                                          &replica->input[i][slot]);
    }
    return status;
}

/* What lets a device work from a recording: the position in its own memory. */
static enum ddp_status make_place(struct ddp_replica *replica)
{
    enum ddp_status status = DDP_OK;
    if (ddp_exec_draws(replica->exec))
        status = ddp_device_alloc(replica->device, PLACE_BYTES, (void **)&replica->place);
    if (status == DDP_OK) {
        ddp_exec_set_place(replica->exec, replica->place);
        if (replica->tail_exec)
            ddp_exec_set_place(replica->tail_exec, replica->place);
    }
    return status;
}

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
    if (status == DDP_OK && replica->owns_weights)
        status = ddp_device_copy_in(device, replica->weights, setup->weights, replica->flat_bytes);
    if (status != DDP_OK || setup->compute != DDP_BF16)
        return status;
    replica->weights_bf16 = given->weights_bf16;
    replica->owns_weights_bf16 = !given->weights_bf16;
    if (replica->owns_weights_bf16)
        status = ddp_device_alloc(device, bf16_bytes(replica), (void **)&replica->weights_bf16);
    return status == DDP_OK && replica->owns_weights_bf16 ? ddp_replica_round_weights(replica)
                                                          : status;
}

enum ddp_status ddp_replica_round_weights(struct ddp_replica *replica)
{
    struct ddp_to_bf16 args = {
        .count = replica->flat_count, .x = replica->weights, .y = replica->weights_bf16};
    return replica->weights_bf16 ? ddp_device_kernels(replica->device)
                                       ->to_bf16(&args, ddp_device_stream(replica->device))
                                 : DDP_OK;
}

static enum ddp_status make_gradients(struct ddp_replica *replica,
                                      const struct ddp_replica_memory *given)
{
    enum ddp_status status = DDP_OK;
    replica->gradients = given->gradients;
    replica->owns_gradients = !given->gradients;
    if (replica->owns_gradients)
        status =
            ddp_device_alloc(replica->device, replica->flat_bytes, (void **)&replica->gradients);
    int wanted = ddp_replica_partials(replica->shard_count);
    for (; status == DDP_OK && replica->partial_count < wanted; replica->partial_count++)
        status = ddp_device_alloc(replica->device, replica->flat_bytes,
                                  (void **)&replica->partials[replica->partial_count]);
    return status;
}

static enum ddp_status make_exec(struct ddp_replica *replica, const ddp_graph *graph,
                                 unsigned parts, ddp_exec **exec)
{
    enum ddp_status status = ddp_exec_create(exec, graph, replica->device, parts, replica->weights);
    if (status == DDP_OK)
        ddp_exec_set_weights_bf16(*exec, replica->weights_bf16);
    return status;
}

enum ddp_status ddp_replica_open_device(ddp_device **device, const struct ddp_mode_setup *setup,
                                        int replica)
{
    return ddp_device_open(device, setup->device,
                           setup->devices ? setup->devices[replica] : replica, setup->threads);
}

enum ddp_status ddp_replica_open(struct ddp_replica *replica, const struct ddp_mode_setup *setup,
                                 int index, unsigned parts, const struct ddp_replica_memory *given)
{
    const struct ddp_replica_memory none = {0};
    memset(replica, 0, sizeof *replica);
    replica->batch_rows = setup->batch_rows;
    replica->flat_count = ddp_graph_flat_count(setup->graph);
    replica->flat_bytes = (size_t)replica->flat_count * sizeof(float);
    replica->shard_count = setup->local_shards;
    replica->seed = setup->seed;
    enum ddp_status status = DDP_OK;
    replica->device = given ? given->device : NULL;
    replica->owns_device = !replica->device;
    if (replica->owns_device)
        status = ddp_replica_open_device(&replica->device, setup, index);
    if (status != DDP_OK)
        return status;
    status = make_weights(replica, setup, given ? given : &none);
    if (status == DDP_OK)
        status = make_gradients(replica, given ? given : &none);
    if (status == DDP_OK)
        status = make_exec(replica, setup->graph, parts, &replica->exec);
    if (status == DDP_OK && setup->tail_graph)
        status = make_exec(replica, setup->tail_graph, parts, &replica->tail_exec);
    replica->recordings.device = replica->device;
    replica->recordings.off = ddp_device_host_memory(replica->device);
    if (status == DDP_OK && !ddp_device_host_memory(replica->device))
        status = ddp_replica_stage_inputs(replica);
    if (status == DDP_OK && !ddp_device_host_memory(replica->device))
        status = make_place(replica);
    if (status == DDP_OK)
        status = ddp_device_synchronize(replica->device);
    if (status != DDP_OK)
        ddp_replica_close(replica);
    return status;
}

void ddp_replica_close(struct ddp_replica *replica)
{
    if (!replica->device)
        return;
    ddp_recordings_free(&replica->recordings);
    ddp_device_free(replica->device, replica->place, PLACE_BYTES);
    for (int i = 0; i < 2; i++)
        for (int slot = 0; slot < DDP_DEVICE_SLOTS; slot++)
            ddp_device_free(replica->device, replica->input[i][slot], replica->input_bytes[i]);
    for (int i = 0; i < replica->partial_count; i++)
        ddp_device_free(replica->device, replica->partials[i], replica->flat_bytes);
    if (replica->owns_gradients)
        ddp_device_free(replica->device, replica->gradients, replica->flat_bytes);
    ddp_exec_destroy(replica->tail_exec);
    ddp_exec_destroy(replica->exec);
    if (replica->owns_weights_bf16)
        ddp_device_free(replica->device, replica->weights_bf16, bf16_bytes(replica));
    if (replica->owns_weights)
        ddp_device_free(replica->device, replica->weights, replica->flat_bytes);
    if (replica->owns_device)
        ddp_device_close(replica->device);
    memset(replica, 0, sizeof *replica);
}

/* An even shard before the last is a partial sum as it is. */
float *ddp_replica_leaf(const struct ddp_replica *replica)
{
    bool last = replica->shard == replica->shard_count - 1;
    return last || (replica->shard & 1) ? replica->gradients : replica->partials[0];
}

/* The slot of the device that the current shard's inputs are in. */
static int slot_of(const struct ddp_replica *replica)
{
    return (int)(replica->shard & 1);
}

static enum ddp_status load_input(struct ddp_replica *replica, int input, const void *host)
{
    if (ddp_device_host_memory(replica->device) || !host)
        return ddp_exec_load_input(replica->current, input, host, replica->input[input][0]);
    const int slot = slot_of(replica);
    ddp_exec_bind_input(replica->current, input, replica->input[input][slot]);
    return ddp_device_fill(replica->device, slot, replica->input[input][slot], host,
                           ddp_exec_input_bytes(replica->current, input));
}

static enum ddp_status set_position(struct ddp_replica *replica, const struct ddp_batch *batch)
{
    const struct ddp_exec_position position = {replica->seed, (uint32_t)replica->step,
                                               (uint32_t)batch->shard};
    const uint32_t place[2] = {position.shard, position.step};
    ddp_exec_set_position(replica->current, &position);
    return replica->place ? ddp_device_copy_in(replica->device, replica->place, place, PLACE_BYTES)
                          : DDP_OK;
}

enum ddp_status ddp_replica_bind(struct ddp_replica *replica, int64_t shard,
                                 const struct ddp_batch *batch)
{
    const void *host[2] = {batch->x, batch->labels};
    enum ddp_status status = DDP_OK;
    replica->shard = shard;
    replica->current = batch->rows == replica->batch_rows ? replica->exec : replica->tail_exec;
    for (int i = 0; status == DDP_OK && i < 2; i++)
        status = load_input(replica, i, host[i]);
    if (status == DDP_OK)
        status = ddp_device_arrive(replica->device, slot_of(replica));
    if (status == DDP_OK)
        status = set_position(replica, batch);
    ddp_exec_set_gradients(replica->current, ddp_replica_leaf(replica));
    return status;
}

/* The partial sums that the current shard absorbs, nearest first, and where the result goes. */
static float *absorbed(const struct ddp_replica *replica, const float **partials, int *count)
{
    const bool last = replica->shard == replica->shard_count - 1;
    int level = 0;
    *count = 0;
    for (int64_t bits = replica->shard; bits; bits >>= 1, level++) {
        if (bits & 1)
            partials[(*count)++] = replica->partials[level];
        else if (!last)
            break;
    }
    return last ? replica->gradients : replica->partials[level];
}

/* Adds elements [begin, end) of the current shard's gradient to the partial sums. */
static enum ddp_status merge(struct ddp_replica *replica, int64_t begin, int64_t end)
{
    const float *partials[DDP_MERGE_MAX];
    int count;
    float *destination = absorbed(replica, partials, &count);
    if (count == 0)
        return DDP_OK; /* the gradient is already where it belongs */
    for (int i = 0; i < count; i++)
        partials[i] += begin;
    struct ddp_merge args = {
        .count = end - begin,
        .partial_count = count,
        .partials = partials,
        .leaf = ddp_replica_leaf(replica) + begin,
        .destination = destination + begin,
    };
    const int64_t began = ddp_trace_begin();
    ddp_device_span_begin(replica->device, began);
    enum ddp_status status =
        ddp_device_kernels(replica->device)->merge(&args, ddp_device_stream(replica->device));
    ddp_device_span_end(replica->device, began, "merge", NULL, NULL);
    ddp_trace_end("merge", began, "shards", count + 1);
    return status;
}

/* Passes on what backward has finished, merged. */
struct progress {
    struct ddp_replica *replica;
    int64_t done;
    ddp_exec_ready *ready;
    void *arg;
};

static enum ddp_status on_ready(void *arg, int64_t end)
{
    struct progress *progress = arg;
    enum ddp_status status = merge(progress->replica, progress->done, end);
    progress->done = end;
    if (status == DDP_OK && progress->ready)
        status = progress->ready(progress->arg, end);
    return status;
}

enum ddp_status ddp_replica_forward(struct ddp_replica *replica)
{
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_exec_forward(replica->current);
    ddp_trace_end("forward", begin, "shard", replica->shard);
    return status;
}

static bool is_last(const struct ddp_replica *replica)
{
    return replica->shard == replica->shard_count - 1;
}

static enum ddp_status backward(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    struct progress progress = {replica, 0, is_last(replica) ? ready : NULL, arg};
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_exec_backward(replica->current, on_ready, &progress);
    ddp_trace_end("backward", begin, "shard", replica->shard);
    return status;
}

enum ddp_status ddp_replica_backward(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    enum ddp_status status = backward(replica, ready, arg);
    return status == DDP_OK ? ddp_device_leave(replica->device, slot_of(replica)) : status;
}

static enum ddp_status run_operations(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    enum ddp_status status = ddp_replica_forward(replica);
    const int64_t begin = ddp_trace_begin();
    if (status == DDP_OK)
        status = ddp_exec_loss(replica->current);
    if (status == DDP_OK)
        status = ddp_exec_loss_backward(replica->current);
    ddp_trace_end("loss", begin, "shard", replica->shard);
    if (status == DDP_OK)
        status = backward(replica, ready, arg);
    return status;
}

/* --- passes that are recorded --- */

/* The recording that the current shard's pass has, or will have; NULL: none. Passes that absorb the
 * same partial sums are the same; a trace is of operations, one by one. */
static struct ddp_recording *recording_of(struct ddp_replica *replica)
{
    if (replica->recordings.off || ddp_trace_begin() || ddp_exec_syncs(replica->current))
        return NULL;
    int level = 0;
    while (replica->shard >> level & 1)
        level++;
    return &replica->recordings.of[replica->current == replica->tail_exec]
                                  [is_last(replica) ? DDP_MERGE_MAX : level];
}

struct recorder {
    struct ddp_replica *replica;
    struct ddp_recording *recording;
    bool cuts; /* somebody waits for gradients */
    int next_cut;
};

/* In the place of `ready`, while its pass is recorded. */
static enum ddp_status cut(void *arg, int64_t end)
{
    struct recorder *recorder = arg;
    const struct ddp_replica *replica = recorder->replica;
    const int first = recorder->next_cut;
    while (recorder->next_cut < replica->cut_count && replica->cuts[recorder->next_cut] <= end)
        recorder->next_cut++;
    if (!replica->cuts || recorder->next_cut > first)
        return ddp_recordings_cut(&recorder->replica->recordings, recorder->recording, end);
    return DDP_OK;
}

static enum ddp_status pass(void *arg)
{
    struct recorder *recorder = arg;
    return run_operations(recorder->replica, recorder->cuts ? cut : NULL, recorder);
}

enum ddp_status ddp_replica_run(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg)
{
    struct ddp_recording *recording = recording_of(replica);
    ddp_exec_ready *const told = is_last(replica) ? ready : NULL;
    if (recording && recording->uses++ == 1) {
        struct recorder recorder = {replica, recording, told != NULL, 0};
        ddp_recordings_make(&replica->recordings, recording, pass, &recorder);
    }
    enum ddp_status status = recording && recording->part_count > 0
                                 ? ddp_recordings_run(&replica->recordings, recording, told, arg)
                                 : run_operations(replica, ready, arg);
    return status == DDP_OK ? ddp_device_leave(replica->device, slot_of(replica)) : status;
}

enum ddp_status ddp_replica_run_shards(struct ddp_replica *replica, ddp_loader *loader,
                                       ddp_exec_ready *ready, void *arg)
{
    enum ddp_status status = DDP_OK;
    for (int64_t i = 0; status == DDP_OK && i < replica->shard_count; i++) {
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

void ddp_replica_memory(const struct ddp_replica *replica, const struct ddp_mode_setup *setup,
                        unsigned parts, struct ddp_mode_memory *memory)
{
    size_t arena = 0, tail_arena = 0;
    if (ddp_exec_arena_bytes(setup->graph, parts, &arena) != DDP_OK ||
        (setup->tail_graph &&
         ddp_exec_arena_bytes(setup->tail_graph, parts, &tail_arena) != DDP_OK))
        return;
    memory->weights += replica->flat_bytes + (replica->weights_bf16 ? bf16_bytes(replica) : 0);
    memory->gradients += replica->flat_bytes * (size_t)(1 + replica->partial_count);
    memory->activations += arena + tail_arena;
}
