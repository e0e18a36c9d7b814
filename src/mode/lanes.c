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
    return most < units ? units : most;
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

/* --- runs ------------------------------------------------------------------------------------- */

/* Lane l has shards [l*n/k, (l+1)*n/k), rounded down. */
static int64_t begin_of(const struct ddp_lanes_run *run, int64_t lane)
{
    return lane * run->shards / run->lanes;
}

struct ddp_lanes_run ddp_lanes_run_of(int64_t shards, int64_t lanes, int64_t units, int64_t unit)
{
    return (struct ddp_lanes_run){
        .shards = shards,
        .lanes = lanes,
        .first = (unit * lanes + units - 1) / units,
        .end = ((unit + 1) * lanes + units - 1) / units,
    };
}

int64_t ddp_lanes_first_shard(const struct ddp_lanes_run *run)
{
    return begin_of(run, run->first);
}

int64_t ddp_lanes_shards(const struct ddp_lanes_run *run)
{
    return begin_of(run, run->end) - begin_of(run, run->first);
}

int ddp_lanes_roots(const struct ddp_lanes_run *run, int *ends)
{
    return ddp_reduce_run_roots(0, (int)run->lanes, (int)run->first, (int)run->end, ends);
}

/* Is the array of the root that ends the run written by its last shard alone? Lanes before the last
 * one are written there if they are odd: ddp_lanes_array(). */
static bool written_last(const struct ddp_lanes_run *run, int64_t root_begin)
{
    return run->end - root_begin <= 2 && begin_of(run, run->end) - begin_of(run, run->end - 1) == 1;
}

struct ddp_lanes_room ddp_lanes_room_of(const struct ddp_lanes_run *run)
{
    int ends[DDP_REDUCE_ROOTS], most = 0;
    const int count = ddp_lanes_roots(run, ends);
    const int64_t last = count > 1 ? ends[count - 2] : run->first;
    for (int i = 0; i < count; i++) {
        const int partials = ddp_lanes_partials(ends[i] - (i ? ends[i - 1] : run->first));
        most = partials > most ? partials : most;
    }
    return (struct ddp_lanes_room){.roots = count,
                                   .partials = most,
                                   .kept = count - written_last(run, last),
                                   .exchanged = count};
}

struct ddp_lanes_room ddp_lanes_room(int64_t shards, int64_t lanes, int64_t units)
{
    struct ddp_lanes_room room = {0};
    for (int64_t unit = 0; unit < units; unit++) {
        const struct ddp_lanes_run run = ddp_lanes_run_of(shards, lanes, units, unit);
        const struct ddp_lanes_room own = ddp_lanes_room_of(&run);
        room.roots = own.roots > room.roots ? own.roots : room.roots;
        room.partials = own.partials > room.partials ? own.partials : room.partials;
        room.kept = own.kept > room.kept ? own.kept : room.kept;
        room.exchanged += own.roots;
    }
    return room;
}

/* --- a unit's --------------------------------------------------------------------------------- */

static size_t flat_bytes(const struct ddp_lanes *lanes)
{
    return (size_t)lanes->flat_count * sizeof(float);
}

enum ddp_status ddp_lanes_open(struct ddp_lanes *lanes, ddp_device *device,
                               const struct ddp_lanes_run *run, int64_t flat_count,
                               float *gradients)
{
    *lanes = (struct ddp_lanes){.device = device,
                                .run = *run,
                                .flat_count = flat_count,
                                .rounded_from = flat_count,
                                .gradients = gradients};
    const int wanted = ddp_lanes_room_of(run).partials;
    ddp_lanes_roots(run, lanes->root_end);
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

static int64_t lane_of(const struct ddp_lanes *lanes, int64_t shard)
{
    const struct ddp_lanes_run *run = &lanes->run;
    return ((ddp_lanes_first_shard(run) + shard + 1) * run->lanes - 1) / run->shards;
}

static int64_t root_begin(const struct ddp_lanes *lanes)
{
    return lanes->root ? lanes->root_end[lanes->root - 1] : lanes->run.first;
}

void ddp_lanes_select(struct ddp_lanes *lanes, int64_t shard)
{
    const int64_t lane = lane_of(lanes, shard);
    lanes->shard = shard;
    lanes->root = 0;
    while (lanes->root_end[lanes->root] <= lane)
        lanes->root++;
    lanes->lane = lane - root_begin(lanes);
}

bool ddp_lanes_first(const struct ddp_lanes *lanes)
{
    return lanes->shard == 0 || lane_of(lanes, lanes->shard - 1) != lane_of(lanes, lanes->shard);
}

bool ddp_lanes_last(const struct ddp_lanes *lanes)
{
    return ddp_lanes_ending(lanes) ||
           lane_of(lanes, lanes->shard + 1) != lane_of(lanes, lanes->shard);
}

bool ddp_lanes_begins(const struct ddp_lanes *lanes)
{
    return lanes->root == 0 && lanes->lane == 0;
}

bool ddp_lanes_ending(const struct ddp_lanes *lanes)
{
    return lanes->shard == ddp_lanes_shards(&lanes->run) - 1;
}

bool ddp_lanes_single(const struct ddp_lanes *lanes)
{
    return lanes->run.end - lanes->run.first == 1;
}

static bool last_lane(const struct ddp_lanes *lanes)
{
    return lanes->lane == lanes->root_end[lanes->root] - root_begin(lanes) - 1;
}

static float *root_array(const struct ddp_lanes *lanes)
{
    return lanes->gradients + lanes->root * ddp_lanes_stride(lanes->flat_count);
}

/* An even lane before the last is a partial sum as it is, where the device writes there. */
float *ddp_lanes_array(const struct ddp_lanes *lanes)
{
    const bool direct = ddp_device_host_memory(lanes->device);
    return !direct || last_lane(lanes) || (lanes->lane & 1) ? root_array(lanes)
                                                            : lanes->partials[0];
}

enum ddp_status ddp_lanes_clear(struct ddp_lanes *lanes)
{
    return lanes->lane > 0 || lanes->root > 0 ? ddp_device_aside_join(lanes->device) : DDP_OK;
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
    return last_lane(lanes) ? root_array(lanes) : lanes->partials[level];
}

enum ddp_status ddp_lanes_sum(const struct ddp_lanes *lanes, int64_t begin, int64_t end)
{
    const int64_t stride = ddp_lanes_stride(lanes->flat_count);
    const float *partials[DDP_REDUCE_ROOTS];
    float *first = lanes->gradients + begin, *last = first;
    int count = 0;
    while (lanes->root_end[count] < lanes->run.end) {
        count++;
        last += stride;
    }
    for (int i = 0; i < count; i++)
        partials[i] = last - (i + 1) * stride;
    const struct ddp_merge args = {
        .count = end - begin,
        .partial_count = count,
        .partials = partials,
        .leaf = last,
        .destination = first,
        .rounded = ddp_lanes_rounded(lanes->rounded_from, begin, end),
    };
    return count == 0
               ? DDP_OK
               : ddp_device_kernels(lanes->device)->merge(&args, ddp_device_stream(lanes->device));
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
        /* A leaf is rounded when something is added to it. */
        .rounded = count > 0 ? ddp_lanes_rounded(lanes->rounded_from, begin, end) : 0,
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
