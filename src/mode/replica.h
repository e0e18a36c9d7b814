/* SPDX-License-Identifier: MIT
 *
 * What all modes are made of: one device with the model's weights, which runs shards one after
 * another and adds their gradients up, lane by lane (mode/lanes.h). */
#ifndef DDP_MODE_REPLICA_H
#define DDP_MODE_REPLICA_H

#include "graph/exec.h"
#include "mode/inputs.h"
#include "mode/lanes.h"
#include "mode/mode.h"
#include "mode/noise.h"
#include "mode/recording.h"

struct ddp_replica {
    ddp_device *device;
    ddp_exec *exec, *tail_exec; /* for whole shards and for an epoch's short last ones */
    ddp_exec *current;          /* the one that the bound batch fits */
    int64_t batch_rows;
    size_t flat_bytes;
    size_t gradient_bytes; /* of all its roots */
    int64_t flat_count;
    float *weights;
    uint16_t *weights_bf16; /* their copy, for graphs that compute in bf16; else NULL */
    struct ddp_frozen frozen;
    float *gradients;                                     /* where the local sum ends */
    bool owns_weights, owns_weights_bf16, owns_gradients; /* or a communicator does */
    struct ddp_lanes lanes;
    struct ddp_noise noise;
    uint64_t seed;                    /* of random numbers in the graph */
    int64_t step;                     /* the optimizer step being run; set by the mode */
    struct ddp_loss_scale loss_scale; /* of that step; without a scale unless it is in float16 */
    struct ddp_inputs inputs;
    struct ddp_recordings recordings;
    /* Elements of the flat array at which `ready` does something: recorded passes end parts there.
     * Set by the mode; NULL: it may do so anywhere. */
    const int64_t *cuts;
    int cut_count;
};

/* What a mode provides: flat memory on the device. The replica itself makes what is NULL. */
struct ddp_replica_memory {
    float *weights;         /* with the initial weights */
    uint16_t *weights_bf16; /* with their copy */
    float *gradients;
};

/* Opens the device of replica `index`, 0 for a worker.
 *   replica  zeroed */
enum ddp_status ddp_replica_open_device(struct ddp_replica *replica,
                                        const struct ddp_mode_setup *setup, int index);

/* What an exec of the replica's reads, but for inputs and gradients. */
void ddp_replica_equip(const struct ddp_replica *replica, ddp_exec *exec);

/* Makes replica `index` on its device, which is opened unless it is open, with the setup's initial
 * weights.
 *   replica  zeroed, or with a device
 *   parts  of enum ddp_exec_part
 *   given  may be NULL
 * Close it with ddp_replica_close(), even after a failure: a communicator on the device may have to
 * go first. */
enum ddp_status ddp_replica_open(struct ddp_replica *replica, const struct ddp_mode_setup *setup,
                                 int index, unsigned parts, const struct ddp_replica_memory *given);
void ddp_replica_close(struct ddp_replica *replica);

/* Updates the bf16 copy, if there is one, for weights that were not written by an optimizer:
 * `count` elements from `begin`. */
enum ddp_status ddp_replica_round_weights(struct ddp_replica *replica, int64_t begin,
                                          int64_t count);

/* Prepares local shard `shard` with its batch: inputs, the exec that fits, where its gradient goes.
 */
enum ddp_status ddp_replica_bind(struct ddp_replica *replica, int64_t shard,
                                 const struct ddp_batch *batch);

/* The whole pass over the bound shard. The last shard of a step calls `ready` (may be NULL) as
 * parts of the local sum become final; others only add to the partial sums. */
enum ddp_status ddp_replica_run(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg);

/* All local shards of one step: takes their batches from the loader and runs them in order. */
enum ddp_status ddp_replica_run_shards(struct ddp_replica *replica, ddp_loader *loader,
                                       ddp_exec_ready *ready, void *arg);

/* Its halves, for DataParallel, where the loss and its gradient are computed elsewhere in
 * between. */
enum ddp_status ddp_replica_run_forward(struct ddp_replica *replica);
enum ddp_status ddp_replica_run_backward(struct ddp_replica *replica);

/* The parts of ddp_replica_run(), never recorded, for a pipeline: only its last stage has the loss,
 * and messages come in between. */
enum ddp_status ddp_replica_forward(struct ddp_replica *replica);
enum ddp_status ddp_replica_loss(struct ddp_replica *replica);
enum ddp_status ddp_replica_backward(struct ddp_replica *replica, ddp_exec_ready *ready, void *arg);

#endif
