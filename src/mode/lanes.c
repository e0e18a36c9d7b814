/* SPDX-License-Identifier: MIT
 *
 * See lanes.h. */
#include "config.h"

#include "mode/lanes.h"

#include "core/trace.h"

#include <string.h>

int64_t ddp_lanes_count(int64_t shards, int64_t wanted, int64_t units)
{
    const int64_t most = shards < wanted ? shards : wanted;
    return most < units ? units : most / units * units;
}

bool ddp_lanes_same(int64_t shards, int64_t lanes, int64_t units)
{
    if (units == 1)
        return true;
    const int64_t own = lanes / units;
    return shards % units == 0 && own > 0 && lanes % units == 0 && (own & (own - 1)) == 0;
}

int ddp_lanes_partials(int64_t lanes)
{
    int count = 0;
    while (lanes > 1) {
        count++;
        lanes = (lanes + 1) / 2;
    }
    return count;
}

static size_t flat_bytes(const struct ddp_lanes *lanes)
{
    return (size_t)lanes->flat_count * sizeof(float);
}

enum ddp_status ddp_lanes_open(struct ddp_lanes *lanes, ddp_device *device, int64_t shard_count,
                               int64_t lane_count, int64_t flat_count, float *gradients)
{
    *lanes = (struct ddp_lanes){.device = device,
                                .shard_count = shard_count,
                                .count = lane_count,
                                .flat_count = flat_count,
                                .gradients = gradients};
    const int wanted = ddp_lanes_partials(lane_count);
    enum ddp_status status = DDP_OK;
    for (; status == DDP_OK && lanes->partial_count < wanted; lanes->partial_count++)
        status = ddp_device_aside_alloc(device, flat_bytes(lanes),
                                        (void **)&lanes->partials[lanes->partial_count]);
    return status;
}

void ddp_lanes_close(struct ddp_lanes *lanes)
{
    for (int i = 0; i < lanes->partial_count; i++)
        ddp_device_aside_free(lanes->device, lanes->partials[i], flat_bytes(lanes));
    memset(lanes, 0, sizeof *lanes);
}

/* Lane l has shards [l*n/k, (l+1)*n/k), rounded down. */
static int64_t lane_of(const struct ddp_lanes *lanes, int64_t shard)
{
    return ((shard + 1) * lanes->count - 1) / lanes->shard_count;
}

void ddp_lanes_select(struct ddp_lanes *lanes, int64_t shard)
{
    lanes->shard = shard;
    lanes->lane = lane_of(lanes, shard);
}

bool ddp_lanes_first(const struct ddp_lanes *lanes)
{
    return lanes->shard == 0 || lane_of(lanes, lanes->shard - 1) != lanes->lane;
}

bool ddp_lanes_last(const struct ddp_lanes *lanes)
{
    return ddp_lanes_ending(lanes) || lane_of(lanes, lanes->shard + 1) != lanes->lane;
}

bool ddp_lanes_ending(const struct ddp_lanes *lanes)
{
    return lanes->shard == lanes->shard_count - 1;
}

static bool last_lane(const struct ddp_lanes *lanes)
{
    return lanes->lane == lanes->count - 1;
}

/* An even lane before the last is a partial sum as it is, where the device writes there. */
float *ddp_lanes_array(const struct ddp_lanes *lanes)
{
    const bool direct = ddp_device_host_memory(lanes->device);
    return !direct || last_lane(lanes) || (lanes->lane & 1) ? lanes->gradients : lanes->partials[0];
}

enum ddp_status ddp_lanes_clear(struct ddp_lanes *lanes)
{
    return lanes->lane > 0 ? ddp_device_aside_join(lanes->device) : DDP_OK;
}

/* The partial sums that the current lane absorbs, nearest first, and where the result goes. */
static float *absorbed(const struct ddp_lanes *lanes, const float **partials, int *count)
{
    int level = 0;
    *count = 0;
    for (int64_t bits = lanes->lane; bits; bits >>= 1, level++) {
        if (bits & 1)
            partials[(*count)++] = lanes->partials[level];
        else if (!last_lane(lanes))
            break;
    }
    return last_lane(lanes) ? lanes->gradients : lanes->partials[level];
}

/* On a device the first piece stays on its stream, where the next forward pass finds it done. */
enum ddp_status ddp_lanes_join_from(struct ddp_lanes *lanes, const float *leaf, int64_t begin,
                                    int64_t end)
{
    const float *partials[DDP_MERGE_MAX];
    int count;
    float *destination = absorbed(lanes, partials, &count);
    if (destination + begin == leaf && count == 0)
        return DDP_OK; /* the sum is already where it belongs */
    for (int i = 0; i < count; i++)
        partials[i] += begin;
    struct ddp_merge args = {
        .count = end - begin,
        .partial_count = count,
        .partials = partials,
        .leaf = leaf,
        .destination = destination + begin,
    };
    void *stream = ddp_device_stream(lanes->device);
    enum ddp_status status = DDP_OK;
    const bool aside = begin > 0 && !last_lane(lanes);
    if (aside)
        status = ddp_device_aside(lanes->device, &stream);
    const int64_t began = ddp_trace_begin();
    if (!aside)
        ddp_device_span_begin(lanes->device, began);
    if (status == DDP_OK)
        status = ddp_device_kernels(lanes->device)->merge(&args, stream);
    if (!aside)
        ddp_device_span_end(lanes->device, began, "merge", NULL, NULL);
    ddp_trace_end("merge", began, "lanes", count + 1);
    return status;
}

enum ddp_status ddp_lanes_join(struct ddp_lanes *lanes, int64_t begin, int64_t end)
{
    return ddp_lanes_join_from(lanes, ddp_lanes_array(lanes) + begin, begin, end);
}
