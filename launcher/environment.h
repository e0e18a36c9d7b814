/* SPDX-License-Identifier: MIT
 *
 * The variables that ddprun adds to the environment of a worker. */
#ifndef DDP_LAUNCHER_ENVIRONMENT_H
#define DDP_LAUNCHER_ENVIRONMENT_H

#include "launcher/launch_plan.h"

#define ENVIRONMENT_MAX 40

/* Collected in one text buffer. */
struct environment {
    char text[8192];
    size_t used;
    size_t offsets[ENVIRONMENT_MAX]; /* of "NAME=value" */
    size_t count;
    bool overflow;
};

/* `error_file`: where the worker may leave a reason for its failure, or NULL. */
void environment_collect(struct environment *added, const struct launch_plan *plan, int rank,
                         int board_fd, int heap_fd, const char *error_file);

/* The device of a worker, as an index into the plan's; it may be none of them. */
int environment_device(const struct launch_plan *plan, int rank);

/* What a device is called in CUDA_VISIBLE_DEVICES. */
const char *environment_device_name(const struct launch_plan *plan, int index);

#endif
