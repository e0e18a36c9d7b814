/* SPDX-License-Identifier: MIT
 *
 * Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW: the one adds weight decay to the
 * gradient, the other takes it from the weights. */
#include "config.h"

#include "optim/optim.h"
#include "kernels/adamw.h"

static int states(const struct ddp_optimizer_config *config, const char **names)
{
    (void)config;
    names[0] = "exp_avg";
    names[1] = "exp_avg_sq";
    return 2;
}

static enum ddp_status run(const struct ddp_optimizer_config *config, ddp_device *device,
                           float *const *state, const struct ddp_optimizer_step *args,
                           bool decoupled)
{
    struct ddp_adamw adamw = {
        .count = args->end - args->begin,
        .weight = args->weights + args->begin,
        .weight_bf16 = args->weights_bf16 ? args->weights_bf16 + args->begin : NULL,
        .gradient = args->gradients + args->begin,
        .exp_avg = state[0] + args->state_begin,
        .exp_avg_sq = state[1] + args->state_begin,
        .scale = args->scale,
        .clipped = args->clipped,
        .rate = args->rate,
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .eps = config->eps,
        .weight_decay = config->weight_decay,
        .decoupled = decoupled,
        .step = args->step,
        .no_decay = config->no_decay,
        .no_decay_count = config->no_decay_count,
        .first = args->begin,
    };
    return ddp_device_kernels(device)->adamw(&adamw, ddp_device_stream(device));
}

static enum ddp_status step_adam(const struct ddp_optimizer_config *config, ddp_device *device,
                                 float *const *state, const struct ddp_optimizer_step *args)
{
    return run(config, device, state, args, false);
}

static enum ddp_status step_adamw(const struct ddp_optimizer_config *config, ddp_device *device,
                                  float *const *state, const struct ddp_optimizer_step *args)
{
    return run(config, device, state, args, true);
}

const struct ddp_optimizer_ops ddp_optimizer_adam = {
    .name = "adam",
    .states = states,
    .step = step_adam,
};

const struct ddp_optimizer_ops ddp_optimizer_adamw = {
    .name = "adamw",
    .states = states,
    .step = step_adamw,
};
