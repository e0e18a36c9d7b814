/* SPDX-License-Identifier: MIT
 *
 * The GPUs that a job may use. CUDA is not called: it does not work in the children of a process
 * that has initialised it. */
#ifndef DDP_LAUNCHER_DEVICES_H
#define DDP_LAUNCHER_DEVICES_H

#include "ddp.h"

#define DEVICES_MAX 1024

struct device {
    char *token;     /* as CUDA_VISIBLE_DEVICES wants it: "3", "GPU-...", "MIG-..." */
    char bus_id[32]; /* on PCI, "00000000:3B:00.0"; "" when it was not asked for or is not known */
    char uuid[96];   /* "GPU-..."; "" likewise */
};

struct devices {
    int count;
    struct device *list;
    bool identified; /* NVML was asked for their bus ids and UUIDs */
    bool mig;        /* there are MIG devices, of which a process can use only one */
};

/* Finds the visible GPUs: the tokens of CUDA_VISIBLE_DEVICES up to the first that names no GPU,
 * else all that NVML counts. `count` is 0 without a driver. DDP_ERR_MEMORY. */
enum ddp_status devices_find(struct devices *devices);

/* Asks NVML for the bus id and UUID of each, once. */
void devices_identify(struct devices *devices);

/* The index of one that was identified and that NVML now calls lost or does not find; -1 when there
 * is none. Without an answer from NVML none is lost. */
int devices_find_lost(const struct devices *devices);

/* Removes one from the list. */
void devices_drop(struct devices *devices, int index);

void devices_free(struct devices *devices);

#endif
