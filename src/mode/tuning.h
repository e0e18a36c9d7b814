/* SPDX-License-Identifier: MIT
 *
 * The algorithm that each product of a device uses (the choices of struct ddp_device_ops), decided
 * before training begins: the one in a file, else the one that timing finds, which then goes into
 * the file. All ranks of a job use the same, and so does the next run on such a device: the bits
 * repeat. Without a writable file nothing is timed, and the device uses what its library proposes
 * first. */
#ifndef DDP_MODE_TUNING_H
#define DDP_MODE_TUNING_H

#include "mode/replica.h"

/* Some execs of this process on one device. */
struct ddp_tuning_unit {
    ddp_device *device;
    float *gradients;   /* of the device: they are overwritten */
    ddp_exec *execs[2]; /* NULL: none */
};

/* Collective. Does nothing on a CPU.
 *   units  from 1 */
enum ddp_status ddp_tuning_run(ddp_comm *comm, const struct ddp_tuning_unit *units, int count);

/* The unit of a replica. */
static inline struct ddp_tuning_unit ddp_tuning_unit_of(const struct ddp_replica *replica)
{
    return (struct ddp_tuning_unit){
        replica->device, replica->gradients, {replica->exec, replica->tail_exec}};
}

#endif
