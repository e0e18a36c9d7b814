/* SPDX-License-Identifier: MIT
 *
 * Optimizers over a flat array of weights on a device. An optimizer is one file that ends in one
 * const struct ddp_optimizer_ops, and one line in optim.c. */
#ifndef DDP_OPTIM_OPTIM_H
#define DDP_OPTIM_OPTIM_H

#include "device/device.h"

typedef struct ddp_optimizer ddp_optimizer;

struct ddp_optimizer_config {
    const char *name; /* "sgd" */
    float momentum, weight_decay;
    bool nesterov;
};

/* The arguments of one step. */
struct ddp_optimizer_step {
    int64_t count;
    float *weights;         /* (n) device memory, in, out */
    const float *gradients; /* (n) device memory: a sum over shards */
    float scale;            /* 1 / shards */
    float rate;
    int64_t step; /* from 0 */
};

struct ddp_optimizer_ops {
    const char *name;
    int (*state_count)(
        const struct ddp_optimizer_config *config); /* arrays of n floats that it keeps */
    enum ddp_status (*step)(const struct ddp_optimizer_config *config, ddp_device *device,
                            float *const *state, const struct ddp_optimizer_step *args);
};

extern const struct ddp_optimizer_ops ddp_optimizer_sgd;

/* An optimizer for n weights, its state zeroed. DDP_ERR_INVALID: no optimizer of that name. */
enum ddp_status ddp_optimizer_create(ddp_optimizer **optimizer, ddp_device *device, int64_t count,
                                     const struct ddp_optimizer_config *config);
void ddp_optimizer_destroy(ddp_optimizer *optimizer);

/* Updates the weights; args->count must be the count it was created with. */
enum ddp_status ddp_optimizer_run(ddp_optimizer *optimizer, const struct ddp_optimizer_step *args);

size_t ddp_optimizer_state_bytes(const ddp_optimizer *optimizer);

#endif
