/* SPDX-License-Identifier: MIT
 *
 * How much the gradient of a batch is noise: the norm of the first lane's sum, beside that of the
 * whole (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1). Who
 * runs the first lane is rank 0, whatever the number of workers, and it measures the lane in blocks
 * of kernels/norm.h as backward finishes it, before anybody adds to it: the bits are those of any
 * split. */
#ifndef DDP_MODE_NOISE_H
#define DDP_MODE_NOISE_H

#include "mode/lanes.h"
#include "mode/mode.h"

struct ddp_updater;

struct ddp_noise {
    ddp_device *device;
    int64_t first, end, done; /* elements of the flat array: parameters; measured */
    int64_t shards;           /* of the lane */
    float uncounted;          /* its targets that do not count */
    double *sums;             /* by block; NULL: it is not measured */
};

/* For a unit with this run of lanes. It is not measured on GPUs, whose passes are recorded, for a
 * stage's part of the gradient, between local steps, nor where there is one lane. */
enum ddp_status ddp_noise_open(struct ddp_noise *noise, const struct ddp_mode_setup *setup,
                               ddp_device *device, const struct ddp_lanes_run *run);
void ddp_noise_close(struct ddp_noise *noise);

/* In the last pass of the first lane: elements [begin, end) are final, in order. */
enum ddp_status ddp_noise_measure(struct ddp_noise *noise, const float *gradients, int64_t begin,
                                  int64_t end);

/* After the update: what the step says, for a sample of the batch. False: nothing. */
bool ddp_noise_of(const struct ddp_noise *noise, const struct ddp_updater *updater,
                  int64_t batch_rows, struct ddp_mode_noise *found);

#endif
