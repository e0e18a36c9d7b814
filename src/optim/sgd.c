/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent with momentum, weight decay and Nesterov's variant, as
 * torch.optim.SGD. */
#include "config.h"

#include "optim/optim.h"
#include "kernels/sgd.h"

static int states(const struct ddp_optimizer_config *config, const char **names)
{
    names[0] = "momentum_buffer";
    return config->momentum != 0;
}

static enum ddp_status step(const struct ddp_optimizer_config *config, ddp_device *device,
                            float *const *state, const struct ddp_optimizer_step *args)
{
    struct ddp_sgd sgd = {
        .count = args->end - args->begin,
        .weight = args->weights + args->begin,
        .weight_bf16 = args->weights_bf16 ? args->weights_bf16 + args->begin : NULL,
        .gradient = args->gradients + args->begin,
        .velocity = state[0] ? state[0] + args->state_begin : NULL,
        .scale = args->scale,
        .clipped = args->clipped,
        .rate = (float)args->rate,
        .momentum = (float)config->momentum,
        .weight_decay = (float)config->weight_decay,
        .no_decay = config->no_decay,
        .no_decay_count = config->no_decay_count,
        .first = args->begin,
        .nesterov = config->nesterov,
        .first_step = args->step == 0,
    };
    return ddp_device_kernels(device)->sgd(&sgd, ddp_device_stream(device));
}

const struct ddp_optimizer_ops ddp_optimizer_sgd = {
    .name = "sgd",
    .states = states,
    .step = step,
};
