/* SPDX-License-Identifier: MIT
 *
 * The GPUs that a job may use. CUDA is never touched: a process that has initialised it hands its
 * children a broken state. */
#ifndef DDP_LAUNCHER_DEVICES_H
#define DDP_LAUNCHER_DEVICES_H

#include "ddp.h"

#define DEVICES_MAX 1024

struct devices {
    int count;
    char **tokens; /* as CUDA_VISIBLE_DEVICES wants them: "3", "GPU-...", "MIG-..." */
    bool mig;      /* there are MIG devices, of which a process can use only one */
};

/* Finds the visible GPUs: the tokens of CUDA_VISIBLE_DEVICES up to the first that names no GPU,
 * else all that NVML counts. `count` is 0 without a driver. DDP_ERR_MEMORY. */
enum ddp_status devices_find(struct devices *devices);

void devices_free(struct devices *devices);

#endif
