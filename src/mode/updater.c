/* SPDX-License-Identifier: MIT
 *
 * See updater.h. */
#include "config.h"

#include "mode/updater.h"

#include "core/memory.h"
#include "core/trace.h"
#include "kernels/clip.h"
#include "kernels/ema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What the flat array of gradients begins with: the loss, and what is added up with it. */
#define HEAD_BYTES (DDP_FLAT_ALIGN * sizeof(float))
_Static_assert(DDP_PREFERENCE_SUMS <= DDP_FLAT_ALIGN, "room for them");

static int by_begin(const void *a, const void *b)
{
    const struct ddp_range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The parameters of one dimension, biases and those of norms, as ranges. */
static enum ddp_status find_vectors(const ddp_graph *graph, struct ddp_range **ranges, int *count)
{
    const int parameters = ddp_graph_parameter_count(graph);
    struct ddp_range *list = ddp_array_alloc((size_t)parameters, sizeof *list);
    int found = 0, joined = 0;
    if (!list)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < parameters; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        if (!parameter->statistic && parameter->dim_count < 2)
            list[found++] = (struct ddp_range){parameter->offset, ddp_parameter_end(parameter)};
    }
    qsort(list, (size_t)found, sizeof *list, by_begin);
    for (int i = 0; i < found; i++) {
        if (joined > 0 && list[joined - 1].end == list[i].begin)
            list[joined - 1].end = list[i].end;
        else
            list[joined++] = list[i];
    }
    *ranges = list;
    *count = joined;
    return DDP_OK;
}

static enum ddp_status create_optimizer(struct ddp_updater *updater,
                                        const struct ddp_mode_setup *setup, int64_t state_count,
                                        float *const *state)
{
    struct ddp_optimizer_config config = setup->optimizer;
    struct ddp_range *ranges = NULL;
    enum ddp_status status = DDP_OK;
    config.no_decay_count = 0;
    if (setup->decay_matrices_only && config.weight_decay != 0)
        status = find_vectors(setup->graph, &ranges, &config.no_decay_count);
    config.no_decay = ranges;
    if (status == DDP_OK)
        status = ddp_optimizer_create(&updater->optimizer, updater->replica->device, state_count,
                                      &config, state);
    free(ranges);
    return status;
}

int64_t ddp_updater_blocks(const struct ddp_mode_setup *setup)
{
    return setup->clip_norm > 0 || setup->gradient_norm || setup->compute == DDP_F16
               ? ddp_norm_blocks(ddp_graph_flat_count(setup->whole ? setup->whole : setup->graph))
               : 0;
}

static size_t blocks_bytes(const struct ddp_updater *updater)
{
    return (size_t)updater->block_count * sizeof(double);
}

static size_t host_bytes(const struct ddp_updater *updater)
{
    return blocks_bytes(updater) + sizeof(struct ddp_clipped) + HEAD_BYTES;
}

enum ddp_status ddp_updater_open(struct ddp_updater *updater, struct ddp_replica *replica,
                                 const struct ddp_mode_setup *setup, int64_t state_count,
                                 float *const *state)
{
    *updater = (struct ddp_updater){
        .replica = replica,
        .first_parameter = DDP_FLAT_ALIGN + ddp_graph_statistics_count(setup->graph),
        .learned_end = ddp_graph_learned_end(setup->graph),
        .global_shards = setup->global_shards,
        .clip_norm = setup->clip_norm,
        .average = setup->optimizer.average,
        .only_finite = setup->only_finite || setup->compute == DDP_F16,
        .scale_every = setup->scale_every,
        .norm = -1,
    };
    enum ddp_status status = DDP_OK;
    updater->block_count = ddp_updater_blocks(setup);
    if (updater->block_count > 0) {
        status =
            ddp_device_alloc(replica->device, blocks_bytes(updater), (void **)&updater->blocks);
    }
    if (status == DDP_OK)
        status = ddp_device_alloc(replica->device, sizeof *updater->on_device,
                                  (void **)&updater->on_device);
    if (status == DDP_OK)
        status =
            ddp_device_host_alloc(replica->device, host_bytes(updater), (void **)&updater->sums);
    if (status == DDP_OK) {
        updater->clipped = (struct ddp_clipped *)(updater->sums + updater->block_count);
        updater->loss_sum = (float *)(updater->clipped + 1);
        status = create_optimizer(updater, setup, state_count, state);
    }
    if (status != DDP_OK)
        ddp_updater_close(updater);
    return status;
}

void ddp_updater_close(struct ddp_updater *updater)
{
    ddp_optimizer_destroy(updater->optimizer);
    if (updater->blocks)
        ddp_device_free(updater->replica->device, updater->blocks, blocks_bytes(updater));
    if (updater->on_device)
        ddp_device_free(updater->replica->device, updater->on_device, sizeof *updater->on_device);
    if (updater->sums)
        ddp_device_host_free(updater->replica->device, updater->sums, host_bytes(updater));
    memset(updater, 0, sizeof *updater);
}

static enum ddp_status fetch_head(struct ddp_updater *updater)
{
    return ddp_device_copy_out(updater->replica->device, updater->loss_sum,
                               updater->replica->gradients, HEAD_BYTES);
}

enum ddp_status ddp_updater_begin(struct ddp_updater *updater)
{
    for (int64_t b = 0; b < updater->block_count; b++)
        updater->sums[b] = -0.0;
    return fetch_head(updater);
}

enum ddp_status ddp_updater_wait(struct ddp_updater *updater)
{
    const int64_t began = ddp_trace_begin();
    enum ddp_status status = ddp_device_synchronize(updater->replica->device);
    ddp_trace_end("wait for gradients", began, NULL, 0);
    updater->targets = ddp_graph_target_count(ddp_exec_graph(updater->replica->current));
    if (status == DDP_OK)
        ddp_updater_take_head(updater);
    return status;
}

void ddp_updater_take_head(struct ddp_updater *updater)
{
    updater->loss = updater->loss_sum[0];
    updater->uncounted = updater->targets > 0 ? updater->loss_sum[1] : 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum ddp_status ddp_updater_measure(struct ddp_updater *updater, int64_t begin, int64_t end)
{
    const int64_t first = larger(begin, updater->first_parameter);
    assert(begin % DDP_UPDATE_GRAIN == 0);
    return ddp_updater_measure_at(updater, updater->replica->gradients + first, first, end);
}

static enum ddp_status measure(const struct ddp_updater *updater, const float *x, int64_t begin,
                               int64_t end)
{
    ddp_device *device = updater->replica->device;
    const struct ddp_norm norm = {.begin = begin, .end = end, .x = x, .sums = updater->blocks};
    const int64_t began = ddp_trace_begin();
    ddp_device_span_begin(device, began);
    enum ddp_status status = ddp_device_kernels(device)->norm(&norm, ddp_device_stream(device));
    ddp_device_span_end(device, began, "norm", NULL, NULL);
    ddp_trace_end("norm", began, "elements", end - begin);
    return status;
}

enum ddp_status ddp_updater_measure_at(struct ddp_updater *updater, const float *x, int64_t begin,
                                       int64_t end)
{
    ddp_device *device = updater->replica->device;
    const int64_t block = begin / DDP_NORM_BLOCK;
    if (updater->block_count == 0 || begin >= end)
        return DDP_OK;
    enum ddp_status status = measure(updater, x, begin, end);
    if (status == DDP_OK)
        status = ddp_device_copy_out(device, updater->sums + block, updater->blocks + block,
                                     (size_t)(ddp_norm_blocks(end) - block) * sizeof(double));
    return status;
}

double *ddp_updater_sums(struct ddp_updater *updater, size_t *count)
{
    *count = (size_t)updater->block_count;
    return updater->sums;
}

static struct ddp_clip clip_of(const struct ddp_updater *updater)
{
    return (struct ddp_clip){
        .blocks = updater->block_count,
        .shards = updater->global_shards,
        .targets = updater->targets,
        .most = updater->clip_norm,
        .only_finite = updater->only_finite,
        .loss_scale = updater->replica->loss_scale.scale,
    };
}

double ddp_updater_divisor(const struct ddp_updater *updater)
{
    const double targets = updater->targets > 0 ? (double)updater->targets : 1;
    const double scale = updater->loss_scale > 0 ? (double)updater->loss_scale : 1;
    return (double)updater->counted / targets * scale;
}

static void take(struct ddp_updater *updater, const struct ddp_clipped *clipped)
{
    updater->counted = clipped->counted;
    updater->loss = clipped->loss;
    updater->norm = clipped->norm;
    updater->scale = clipped->scale;
    updater->left_out = clipped->left_out;
    updater->loss_scale = updater->replica->loss_scale.scale;
    if (updater->loss_scale > 0 && updater->counted > 0)
        ddp_loss_scale_follow(&updater->replica->loss_scale, !updater->left_out,
                              updater->scale_every);
}

void ddp_updater_decide(struct ddp_updater *updater, double rate, int64_t step)
{
    const struct ddp_clip clip = clip_of(updater);
    struct ddp_clipped clipped;
    ddp_clip_decide(&clip, ddp_clip_total(updater->sums, updater->block_count), updater->loss,
                    updater->uncounted, &clipped);
    take(updater, &clipped);
    updater->rate = rate;
    updater->step = step - updater->replica->loss_scale.skipped;
}

/* The statistics among elements [begin, end) follow what the shards saw. */
static enum ddp_status follow_statistics(const struct ddp_updater *updater, int64_t begin,
                                         int64_t end, const struct ddp_clipped *clipped)
{
    const struct ddp_replica *replica = updater->replica;
    if (begin >= end)
        return DDP_OK;
    struct ddp_ema ema = {
        .count = end - begin,
        .momentum = DDP_STATISTIC_MOMENTUM,
        .scale = 1.0f / (float)updater->global_shards,
        .clipped = clipped,
        .sum = replica->gradients + begin,
        .running = replica->weights + begin,
    };
    return ddp_device_kernels(replica->device)->ema(&ema, ddp_device_stream(replica->device));
}

/* The average of weights and statistics, as PyTorch's AveragedModel: it begins with those after the
 * first step, even if that was left out. `clipped`: as for apply(). */
static enum ddp_status follow_average(const struct ddp_updater *updater, int64_t begin, int64_t end,
                                      int64_t state_begin, const struct ddp_clipped *clipped)
{
    const struct ddp_replica *replica = updater->replica;
    const bool first = updater->step <= 0;
    const int64_t to = first ? end : smaller(end, larger(begin, updater->learned_end));
    const int64_t from = smaller(to, larger(begin, DDP_FLAT_ALIGN));
    const char *name;
    int last = 0;
    if (updater->average <= 0 || (!first && !clipped && updater->left_out))
        return DDP_OK;
    while (ddp_optimizer_state(updater->optimizer, last + 1, &name))
        last++;
    const struct ddp_ema ema = {
        .count = to - from,
        .momentum = first ? 1 : (float)(1 - updater->average),
        .scale = 1,
        .clipped = first ? NULL : clipped,
        .sum = replica->weights + from,
        .running =
            ddp_optimizer_state(updater->optimizer, last, &name) + state_begin + from - begin,
    };
    return ddp_device_kernels(replica->device)->ema(&ema, ddp_device_stream(replica->device));
}

/*   clipped  device memory: what was decided; NULL: it is in *updater */
static enum ddp_status apply(const struct ddp_updater *updater, int64_t begin, int64_t end,
                             int64_t state_begin, const struct ddp_clipped *clipped)
{
    const struct ddp_replica *replica = updater->replica;
    const int64_t last = smaller(end, larger(begin, updater->learned_end));
    const int64_t first = smaller(last, larger(begin, updater->first_parameter));
    struct ddp_optimizer_step step = {
        .begin = first,
        .end = last,
        .state_begin = state_begin + (first - begin),
        .weights = replica->weights,
        .weights_bf16 = replica->weights_bf16,
        .gradients = replica->gradients,
        .scale = updater->scale,
        .clipped = clipped,
        .rate = updater->rate,
        .step = updater->step,
    };
    enum ddp_status status = DDP_OK;
    if (clipped || !updater->left_out)
        status = follow_statistics(updater, larger(begin, DDP_FLAT_ALIGN),
                                   smaller(end, updater->first_parameter), clipped);
    const int64_t began = ddp_trace_begin();
    ddp_device_span_begin(replica->device, began);
    if (status == DDP_OK && (clipped || !updater->left_out))
        status = ddp_optimizer_run(updater->optimizer, &step);
    if (status == DDP_OK)
        status = follow_average(updater, begin, end, state_begin, clipped);
    ddp_device_span_end(replica->device, began, "update", NULL, NULL);
    return status;
}

enum ddp_status ddp_updater_apply(struct ddp_updater *updater, int64_t begin, int64_t end,
                                  int64_t state_begin)
{
    return apply(updater, begin, end, state_begin, NULL);
}

/* The device decides, and tells the host. */
static enum ddp_status decide_there(struct ddp_updater *updater)
{
    ddp_device *device = updater->replica->device;
    updater->targets = ddp_graph_target_count(ddp_exec_graph(updater->replica->current));
    struct ddp_clip clip = clip_of(updater);
    clip.sums = updater->blocks;
    clip.loss = updater->replica->gradients;
    clip.clipped = updater->on_device;
    enum ddp_status status = ddp_device_kernels(device)->clip(&clip, ddp_device_stream(device));
    if (status == DDP_OK)
        status = ddp_device_copy_out(device, updater->clipped, updater->on_device,
                                     sizeof *updater->clipped);
    return status == DDP_OK ? ddp_device_mark(device) : status;
}

enum ddp_status ddp_updater_run(struct ddp_updater *updater, double rate, int64_t step, float *loss)
{
    const int64_t count = updater->replica->flat_count, first = updater->first_parameter;
    ddp_device *device = updater->replica->device;
    enum ddp_status status = DDP_OK;
    if (updater->block_count > 0)
        status = measure(updater, updater->replica->gradients + first, first, count);
    if (status == DDP_OK && ddp_graph_objective(ddp_exec_graph(updater->replica->current)))
        status = fetch_head(updater);
    if (status == DDP_OK)
        status = decide_there(updater);
    if (status != DDP_OK)
        return status;
    updater->rate = rate;
    updater->step = step - updater->replica->loss_scale.skipped;
    const int64_t began = ddp_trace_begin();
    status = apply(updater, 0, count, 0, updater->on_device);
    ddp_trace_end("update", began, "elements", count);
    if (status == DDP_OK) /* a trace wants the device idle now and then, for its clock */
        status = ddp_trace_begin() ? ddp_device_synchronize(device) : ddp_device_wait_mark(device);
    if (status == DDP_OK)
        take(updater, updater->clipped);
    *loss = updater->loss;
    return status;
}
