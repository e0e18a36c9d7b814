/* SPDX-License-Identifier: MIT
 *
 * How near the GPUs of a machine are to one another, as NVML tells it, and the order of ranks that
 * follows: neighbours of a ring, and the pairs and groups that add up first, are near. */
#ifndef DDP_LAUNCHER_DEVICE_PATHS_H
#define DDP_LAUNCHER_DEVICE_PATHS_H

#include "launcher/devices.h"

#include <stdio.h>

#define DEVICE_PATHS_MAX 64 /* GPUs; of more nothing is known */

struct device_paths {
    int count; /* 0: nothing is known */
    /* 1 to 18: that many NVLinks fewer than 19 join them; above: 20 + an nvmlGpuTopologyLevel_t. */
    unsigned char far[DEVICE_PATHS_MAX][DEVICE_PATHS_MAX];
};

/* `devices` have been identified. */
void device_paths_find(struct device_paths *paths, const struct devices *devices);

/* The order in which ranks should use the GPUs, the first `ranks` of which are used: order[r] is an
 * index. False: the order that they have is as good. */
bool device_paths_order(const struct device_paths *paths, int ranks, int order[DEVICE_PATHS_MAX]);

/* Identifies the devices and puts them in that order. True: it is another one than they had.
 *   island [out]  as many ranks on end are joined by NVLink, with each other and nobody else; 0 */
bool devices_sort(struct devices *devices, int ranks, int *island);

/* Prints the visible GPUs as a matrix in the words of nvidia-smi topo -m, in the order in which as
 * many ranks (0: one for each) use them; nothing where nothing is known. */
void device_paths_show(int ranks, FILE *out);

#endif
