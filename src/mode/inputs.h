/* SPDX-License-Identifier: MIT
 *
 * How a shard's batch gets to the device of a replica. If the device cannot read the loader's
 * memory there are two sets of buffers, so that one is filled while the other is read. */
#ifndef DDP_MODE_INPUTS_H
#define DDP_MODE_INPUTS_H

#include "data/loader.h"
#include "graph/exec.h"

struct ddp_inputs {
    ddp_device *device;
    void *memory[2][DDP_DEVICE_SLOTS]; /* of samples and labels; NULL: not needed */
    size_t bytes[2];
    uint32_t *place;              /* device memory, for ddp_exec_set_place(); NULL: not needed */
    struct ddp_soft_labels *soft; /* likewise */
};

/* Local shard i uses set i % 2, which is the device's slot. */
static inline int ddp_inputs_slot(int64_t shard)
{
    return (int)(shard & 1);
}

/* Memory for the inputs of both execs.
 *   tail    may be NULL
 *   copied  even if the device could read the loader's: DataParallel's master copies samples to its
 *           replicas
 *   ahead   one shard follows another
 * After a failure ddp_inputs_close() frees what was made. */
enum ddp_status ddp_inputs_open(struct ddp_inputs *inputs, ddp_device *device, ddp_exec *exec,
                                ddp_exec *tail, bool copied, bool ahead);
void ddp_inputs_close(struct ddp_inputs *inputs);

/* What the batch learns in place of its labels alone, where the device reads it.
 *   memory  of the device, made when there is need; it stays where it is, for what is recorded */
enum ddp_status ddp_inputs_soften(struct ddp_soft_labels **memory, ddp_device *device,
                                  ddp_exec *exec, const struct ddp_soft_labels *soft);

/* Binds the batch to the exec, with its position. */
enum ddp_status ddp_inputs_load(struct ddp_inputs *inputs, ddp_exec *exec, int slot,
                                const struct ddp_batch *batch,
                                const struct ddp_exec_position *position);

#endif
