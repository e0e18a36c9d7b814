/* SPDX-License-Identifier: MIT
 *
 * The order in which a step's shards are added. The W shards of a global batch are cut into
 * lanes, as evenly as possible. Inside a lane gradients are added one after another into one array;
 * the lanes' sums are added in the fixed binary tree of kernels/reduce.h. A worker has a run of
 * whole lanes: an array for each root, which is the sum of one of the largest subtrees inside the
 * run, and partial sums as a binary counter of a root's lanes. `partials[l]` holds the sum of 2^l
 * lanes; lane i of a root, once it is complete, absorbs the partial sums that its trailing one bits
 * name; the root's last lane absorbs all. For a device with its own memory they are in page-locked
 * host memory, and are copied beside the device's other work. */
#ifndef DDP_MODE_LANES_H
#define DDP_MODE_LANES_H

#include "device/device.h"
#include "kernels/merge.h"
#include "kernels/reduce.h"

/* Lanes of all units (workers or replicas) together: at most `wanted`, but at least one per unit.
 *   shards  of the global batch; at least one per unit */
int64_t ddp_lanes_count(int64_t shards, int64_t wanted, int64_t units);

/* The lanes of a unit. */
struct ddp_lanes_run {
    int64_t shards, lanes; /* of the global batch */
    int64_t first, end;    /* the unit's lanes */
};

/* Lanes, as evenly as possible, for one of so many units. */
struct ddp_lanes_run ddp_lanes_run_of(int64_t shards, int64_t lanes, int64_t units, int64_t unit);

/* Whether there are lanes of others. */
static inline bool ddp_lanes_part(const struct ddp_lanes_run *run)
{
    return run->end - run->first < run->lanes;
}

/* The shards of a run: the first, and how many. */
int64_t ddp_lanes_first_shard(const struct ddp_lanes_run *run);
int64_t ddp_lanes_shards(const struct ddp_lanes_run *run);

/* The roots of a run: their number, and where each ends.
 *   ends [out]  (DDP_REDUCE_ROOTS) */
int ddp_lanes_roots(const struct ddp_lanes_run *run, int *ends);

/* Partial sums, arrays of all gradients each, for this many lanes of a root: the levels of the
 * counter that lanes before the last can reach. */
int ddp_lanes_partials(int64_t lanes);

/* Arrays for the lanes of a run, or of any one of so many units, and roots of all together. */
struct ddp_lanes_room {
    int roots, partials; /* the most of a unit */
    int kept;            /* ... of the roots, those that are written before the step's last pass */
    int exchanged;
};
struct ddp_lanes_room ddp_lanes_room_of(const struct ddp_lanes_run *run);
struct ddp_lanes_room ddp_lanes_room(int64_t shards, int64_t lanes, int64_t units);

/* Elements from the array of one root to that of the next. */
static inline int64_t ddp_lanes_stride(int64_t flat_count)
{
    return (flat_count + 15) / 16 * 16; /* 64 bytes */
}

/* Of so many roots. */
static inline size_t ddp_lanes_bytes(int64_t flat_count, int roots)
{
    return (size_t)((roots - 1) * ddp_lanes_stride(flat_count) + flat_count) * sizeof(float);
}

struct ddp_lanes {
    ddp_device *device;
    struct ddp_lanes_run run;
    int root_end[DDP_REDUCE_ROOTS];
    int64_t flat_count;
    int64_t rounded_from; /* from this element on sums are rounded to bf16; flat_count: none */
    float *gradients;     /* (roots, stride): where their sums end; borrowed */
    float *partials[DDP_MERGE_MAX];
    int partial_count;
    int64_t shard, lane; /* the current ones: of the unit, of the current root */
    int root;
};

/* Of elements [begin, end), those from `from` on. */
static inline int64_t ddp_lanes_rounded(int64_t from, int64_t begin, int64_t end)
{
    return end <= from ? 0 : begin < from ? end - from : end - begin;
}

/* After a failure ddp_lanes_close() frees what was made. */
enum ddp_status ddp_lanes_open(struct ddp_lanes *lanes, ddp_device *device,
                               const struct ddp_lanes_run *run, int64_t flat_count,
                               float *gradients);
void ddp_lanes_close(struct ddp_lanes *lanes);

void ddp_lanes_select(struct ddp_lanes *lanes, int64_t shard); /* makes it the current one */
bool ddp_lanes_first(const struct ddp_lanes *lanes);           /* of its lane */
bool ddp_lanes_last(const struct ddp_lanes *lanes);            /* of its lane */
bool ddp_lanes_begins(const struct ddp_lanes *lanes);          /* its lane is the unit's first */
bool ddp_lanes_ending(const struct ddp_lanes *lanes);          /* the last shard of the step */
bool ddp_lanes_single(const struct ddp_lanes *lanes);          /* the unit has one lane */

/* Where backward writes the current shard's gradient, or adds it when the shard is not the first of
 * its lane. */
float *ddp_lanes_array(const struct ddp_lanes *lanes);

/* Before a lane's first backward pass: waits until the array has been read. The elements that a
 * forward pass writes, in the first piece that was joined, are free at once. */
enum ddp_status ddp_lanes_clear(struct ddp_lanes *lanes);

/* Adds elements [begin, end) of all roots up in the first, from the right: the sum over this unit
 * alone, for work that is put on the device's stream from now on. */
enum ddp_status ddp_lanes_sum(const struct ddp_lanes *lanes, int64_t begin, int64_t end);

/* Adds elements [begin, end) of a lane that is complete to the partial sums: for the last lane they
 * are then the sum of its root, for work that is put on the device's stream from now on. */
enum ddp_status ddp_lanes_join(struct ddp_lanes *lanes, int64_t begin, int64_t end);

/* The same for elements that lie elsewhere: `leaf` points to the one at `begin`. */
enum ddp_status ddp_lanes_join_from(struct ddp_lanes *lanes, const float *leaf, int64_t begin,
                                    int64_t end);

#endif
