/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent with momentum, weight decay and Nesterov's variant, as
 * torch.optim.SGD. */
#include "config.h"

#include "optim/optim.h"

static int state_count(const struct ddp_optimizer_config *config)
{
    return config->momentum != 0.0f;
}

static enum ddp_status step(const struct ddp_optimizer_config *config, ddp_device *device,
                            float *const *state, const struct ddp_optimizer_step *args)
{
    struct ddp_sgd sgd = {
        .count = args->count,
        .weight = args->weights,
        .gradient = args->gradients,
        .velocity = state[0],
        .scale = args->scale,
        .rate = args->rate,
        .momentum = config->momentum,
        .weight_decay = config->weight_decay,
        .nesterov = config->nesterov,
        .first_step = args->step == 0,
    };
    return ddp_device_kernels(device)->sgd(&sgd, ddp_device_stream(device));
}

const struct ddp_optimizer_ops ddp_optimizer_sgd = {
    .name = "sgd",
    .state_count = state_count,
    .step = step,
};
