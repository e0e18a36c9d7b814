/* SPDX-License-Identifier: MIT
 *
 * The order in which a step's shards are added. The W shards of a global batch are cut into
 * lanes, as evenly as possible. Inside a lane gradients are added one after another into one array;
 * the lanes' sums are added in the fixed binary tree of kernels/reduce.h. A worker has whole lanes:
 * one array, and partial sums as a binary counter of lanes. `partials[l]` holds the sum of 2^l
 * lanes; lane i, once it is complete, absorbs the partial sums that its trailing one bits name; the
 * last lane absorbs all. For a device with its own memory they are in page-locked host memory, and
 * are copied beside the device's other work. */
#ifndef DDP_MODE_LANES_H
#define DDP_MODE_LANES_H

#include "device/device.h"
#include "kernels/merge.h"

/* Lanes of all units (workers or replicas) together: at most `wanted`, but at least one per unit,
 * and equally many in each.
 *   shards  of the global batch; at least one per unit */
int64_t ddp_lanes_count(int64_t shards, int64_t wanted, int64_t units);

/* Whether this many units give the bits of one unit, with this number of lanes. Each then has whole
 * lanes that form a subtree. */
bool ddp_lanes_same(int64_t shards, int64_t lanes, int64_t units);

/* Partial sums, arrays of all gradients each, for this many lanes of a unit: the levels of the
 * counter that lanes before the last can reach. */
int ddp_lanes_partials(int64_t lanes);

struct ddp_lanes {
    ddp_device *device;
    int64_t shard_count, count; /* of this unit */
    int64_t flat_count;
    float *gradients; /* where the sum of all lanes ends; borrowed */
    float *partials[DDP_MERGE_MAX];
    int partial_count;
    int64_t shard, lane; /* the current ones */
};

/* After a failure ddp_lanes_close() frees what was made. */
enum ddp_status ddp_lanes_open(struct ddp_lanes *lanes, ddp_device *device, int64_t shard_count,
                               int64_t lane_count, int64_t flat_count, float *gradients);
void ddp_lanes_close(struct ddp_lanes *lanes);

void ddp_lanes_select(struct ddp_lanes *lanes, int64_t shard); /* makes it the current one */
bool ddp_lanes_first(const struct ddp_lanes *lanes);           /* of its lane */
bool ddp_lanes_last(const struct ddp_lanes *lanes);            /* of its lane */
bool ddp_lanes_ending(const struct ddp_lanes *lanes);          /* the last shard of the step */

/* Where backward writes the current shard's gradient, or adds it when the shard is not the first of
 * its lane. */
float *ddp_lanes_array(const struct ddp_lanes *lanes);

/* Before a lane's first backward pass: waits until the array has been read. The elements that a
 * forward pass writes, in the first piece that was joined, are free at once. */
enum ddp_status ddp_lanes_clear(struct ddp_lanes *lanes);

/* Adds elements [begin, end) of a lane that is complete to the partial sums: for the last lane they
 * are then the sum of all, for work that is put on the device's stream from now on. */
enum ddp_status ddp_lanes_join(struct ddp_lanes *lanes, int64_t begin, int64_t end);

/* The same for elements that lie elsewhere: `leaf` points to the one at `begin`. */
enum ddp_status ddp_lanes_join_from(struct ddp_lanes *lanes, const float *leaf, int64_t begin,
                                    int64_t end);

#endif
