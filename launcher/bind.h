/* SPDX-License-Identifier: MIT
 *
 * Which CPUs each worker may run on. hwloc describes the machine; its data is freed once the sets
 * are made. */
#ifndef DDP_LAUNCHER_BIND_H
#define DDP_LAUNCHER_BIND_H

#include "launcher/devices.h"
#include "launcher/settings.h"

#include <sched.h>

#define BIND_TEXT 256

struct binding {
    cpu_set_t *set; /* NULL: not bound */
    size_t set_bytes;
    int cpus;             /* in the set */
    int sharers;          /* workers that have this set, itself among them */
    char text[BIND_TEXT]; /* "CPUs 0-3 of NUMA node 0" */
};

struct bindings {
    int count; /* 0: no worker is bound */
    struct binding *workers;
};

/* Divides the CPUs that this process may use among `workers` workers. Worker N is near
 * devices->list[N] if there is one for each worker and their places are known. Workers are not
 * bound where that would hurt: BIND_CORE and BIND_GPU with more workers than hardware threads
 * (logged), BIND_AUTO unless it puts the workers of GPUs on their NUMA nodes.
 * DDP_ERR_UNSUPPORTED: without hwloc, or for BIND_GPU without known GPUs. DDP_ERR_MEMORY. */
enum ddp_status bindings_make(struct bindings *bindings, enum bind_kind kind, int workers,
                              const struct devices *devices);
void bindings_free(struct bindings *bindings);

/* Whether BIND_AUTO can make a difference: only on a machine of several NUMA nodes. Cheap. */
bool bindings_useful(void);

#endif
