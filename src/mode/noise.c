/* SPDX-License-Identifier: MIT
 *
 * See noise.h. */
#include "config.h"

#include "mode/noise.h"

#include "core/memory.h"
#include "kernels/norm.h"
#include "mode/updater.h"

#include <math.h>
#include <stdlib.h>

enum ddp_status ddp_noise_open(struct ddp_noise *noise, const struct ddp_mode_setup *setup,
                               ddp_device *device, const struct ddp_lanes_run *run)
{
    const struct ddp_lanes_run lane = {.shards = run->shards, .lanes = run->lanes, .end = 1};
    *noise = (struct ddp_noise){
        .device = device,
        .first = DDP_FLAT_ALIGN + ddp_graph_statistics_count(setup->graph),
        .end = ddp_graph_flat_count(setup->graph),
        .shards = ddp_lanes_shards(&lane),
    };
    if (!setup->gradient_norm || !ddp_device_host_memory(device) || setup->whole ||
        setup->local.every > 1 || run->first > 0 || run->lanes < 2)
        return DDP_OK;
    noise->sums = ddp_array_alloc((size_t)ddp_norm_blocks(noise->end), sizeof *noise->sums);
    return noise->sums ? DDP_OK : DDP_ERR_MEMORY;
}

void ddp_noise_close(struct ddp_noise *noise)
{
    free(noise->sums);
    noise->sums = NULL;
}

/* Whole blocks, and the rest with the last ones. */
enum ddp_status ddp_noise_measure(struct ddp_noise *noise, const float *gradients, int64_t begin,
                                  int64_t end)
{
    if (begin == 0) {
        noise->uncounted = gradients[1];
        noise->done = noise->first;
    }
    const int64_t from = noise->done;
    const int64_t to = end < noise->end ? end / DDP_NORM_BLOCK * DDP_NORM_BLOCK : end;
    if (to <= from)
        return DDP_OK;
    const struct ddp_norm norm = {
        .begin = from, .end = to, .x = gradients + from, .sums = noise->sums};
    noise->done = to;
    return ddp_device_kernels(noise->device)->norm(&norm, ddp_device_stream(noise->device));
}

bool ddp_noise_of(const struct ddp_noise *noise, const struct ddp_updater *updater,
                  int64_t batch_rows, struct ddp_mode_noise *found)
{
    const struct ddp_clip clip = {.shards = noise->shards, .targets = updater->targets};
    const double scale = updater->loss_scale > 0 ? (double)updater->loss_scale : 1;
    int64_t counted;
    if (!noise->sums || noise->done < noise->end || updater->left_out || updater->norm < 0)
        return false;
    /* In shards: of the lane, of the step. */
    const double small = ddp_clip_divisor(&clip, noise->uncounted, &counted);
    const double large = ddp_updater_divisor(updater) / scale;
    const double of_small =
        ddp_clip_total(noise->sums, ddp_norm_blocks(noise->end)) / (small * small * scale * scale);
    const double of_large = updater->norm * updater->norm;
    if (!(small > 0) || !(large > small))
        return false;
    found->signal = (large * of_large - small * of_small) / (large - small);
    found->noise = (of_small - of_large) / (1 / small - 1 / large) * (double)batch_rows;
    return isfinite(found->signal) && isfinite(found->noise);
}
