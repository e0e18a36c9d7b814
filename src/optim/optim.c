/* SPDX-License-Identifier: MIT
 *
 * The table of optimizers, and the state arrays that they keep. */
#include "config.h"

#include "optim/optim.h"

#include "core/log.h"
#include "core/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct ddp_optimizer_ops *const optimizers[] = {
    &ddp_optimizer_sgd,
    &ddp_optimizer_adam,
    &ddp_optimizer_adamw,
};
#define OPTIMIZERS (sizeof optimizers / sizeof optimizers[0])

const char *const ddp_optimizer_names[OPTIMIZERS + 1] = {"sgd", "adam", "adamw", NULL};

struct ddp_optimizer {
    const struct ddp_optimizer_ops *ops;
    struct ddp_optimizer_config config;
    struct ddp_range *no_decay; /* what config.no_decay points to */
    ddp_device *device;
    int64_t count;
    int state_count;
    const char *names[DDP_OPTIMIZER_STATES];
    float *state[DDP_OPTIMIZER_STATES];
    bool owns_state;
};

static const struct ddp_optimizer_ops *find(const char *name)
{
    for (size_t i = 0; i < OPTIMIZERS; i++)
        if (strcmp(optimizers[i]->name, name) == 0)
            return optimizers[i];
    return NULL;
}

static int list_states(const struct ddp_optimizer_ops *ops,
                       const struct ddp_optimizer_config *config, const char **names)
{
    int count = ops->states(config, names);
    if (config->average > 0)
        names[count++] = DDP_OPTIMIZER_AVERAGE;
    assert(count <= DDP_OPTIMIZER_STATES);
    return count;
}

static size_t array_bytes(const ddp_optimizer *optimizer)
{
    return (size_t)optimizer->count * sizeof(float);
}

enum ddp_status ddp_optimizer_states(const struct ddp_optimizer_config *config, int *count)
{
    const char *names[DDP_OPTIMIZER_STATES];
    const struct ddp_optimizer_ops *ops = find(config->name);
    if (!ops)
        return ddp_fail(DDP_ERR_INVALID, "there is no optimizer '%s'", config->name);
    *count = list_states(ops, config, names);
    return DDP_OK;
}

static enum ddp_status copy_ranges(struct ddp_optimizer *optimizer)
{
    const size_t count = (size_t)optimizer->config.no_decay_count;
    optimizer->no_decay = ddp_array_alloc(count, sizeof *optimizer->no_decay);
    if (!optimizer->no_decay)
        return DDP_ERR_MEMORY;
    if (count)
        memcpy(optimizer->no_decay, optimizer->config.no_decay,
               count * sizeof *optimizer->no_decay);
    optimizer->config.no_decay = optimizer->no_decay;
    return DDP_OK;
}

static enum ddp_status take_state(struct ddp_optimizer *optimizer, float *const *state)
{
    enum ddp_status status = DDP_OK;
    optimizer->state_count = list_states(optimizer->ops, &optimizer->config, optimizer->names);
    optimizer->owns_state = !state;
    for (int i = 0; status == DDP_OK && i < optimizer->state_count; i++) {
        if (state)
            optimizer->state[i] = state[i];
        else
            status = ddp_device_alloc(optimizer->device, array_bytes(optimizer),
                                      (void **)&optimizer->state[i]);
    }
    return status;
}

enum ddp_status ddp_optimizer_create(ddp_optimizer **optimizer, ddp_device *device, int64_t count,
                                     const struct ddp_optimizer_config *config, float *const *state)
{
    const struct ddp_optimizer_ops *ops = find(config->name);
    if (!ops)
        return ddp_fail(DDP_ERR_INVALID, "there is no optimizer '%s'", config->name);
    struct ddp_optimizer *o = ddp_array_alloc(1, sizeof *o);
    if (!o)
        return DDP_ERR_MEMORY;
    *o = (struct ddp_optimizer){.ops = ops, .config = *config, .device = device, .count = count};
    enum ddp_status status = copy_ranges(o);
    if (status == DDP_OK)
        status = take_state(o, state);
    if (status != DDP_OK) {
        ddp_optimizer_destroy(o);
        return status;
    }
    *optimizer = o;
    return DDP_OK;
}

void ddp_optimizer_destroy(ddp_optimizer *optimizer)
{
    if (!optimizer)
        return;
    for (int i = 0; optimizer->owns_state && i < optimizer->state_count; i++)
        ddp_device_free(optimizer->device, optimizer->state[i], array_bytes(optimizer));
    free(optimizer->no_decay);
    free(optimizer);
}

enum ddp_status ddp_optimizer_run(ddp_optimizer *optimizer, const struct ddp_optimizer_step *args)
{
    assert(args->begin <= args->end && args->state_begin >= 0 &&
           args->state_begin + (args->end - args->begin) <= optimizer->count);
    return optimizer->ops->step(&optimizer->config, optimizer->device, optimizer->state, args);
}

float *ddp_optimizer_state(const ddp_optimizer *optimizer, int i, const char **name)
{
    if (i >= optimizer->state_count)
        return NULL;
    *name = optimizer->names[i];
    return optimizer->state[i];
}
