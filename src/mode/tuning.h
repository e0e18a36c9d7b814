/* SPDX-License-Identifier: MIT
 *
 * Which algorithm each product of a device takes (the choices of struct ddp_device_ops), decided
 * before training begins: what a file holds, else what timing finds, which the file then holds. All
 * ranks of a job take the same, and so does the next run on such a device: the bits repeat. Without
 * a file that can be written nothing is timed, and the device takes what its library proposes
 * first. */
#ifndef DDP_MODE_TUNING_H
#define DDP_MODE_TUNING_H

#include "mode/replica.h"

/* Some execs on one device, of this process. */
struct ddp_tuning_unit {
    ddp_device *device;
    float *gradients;   /* of the device: they are overwritten */
    ddp_exec *execs[2]; /* NULL: none */
};

/* Collective. Nothing on a CPU.
 *   units  from 1 */
enum ddp_status ddp_tuning_run(ddp_comm *comm, const struct ddp_tuning_unit *units, int count);

/* The unit of a replica. */
static inline struct ddp_tuning_unit ddp_tuning_unit_of(const struct ddp_replica *replica)
{
    return (struct ddp_tuning_unit){
        replica->device, replica->gradients, {replica->exec, replica->tail_exec}};
}

#endif
