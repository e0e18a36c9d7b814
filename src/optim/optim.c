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

#define STATE_MAX 3

static const struct ddp_optimizer_ops *const optimizers[] = {&ddp_optimizer_sgd, NULL};

struct ddp_optimizer {
    const struct ddp_optimizer_ops *ops;
    struct ddp_optimizer_config config;
    ddp_device *device;
    int64_t count;
    int state_count;
    float *state[STATE_MAX];
};

static size_t array_bytes(const ddp_optimizer *optimizer)
{
    return (size_t)optimizer->count * sizeof(float);
}

enum ddp_status ddp_optimizer_create(ddp_optimizer **optimizer, ddp_device *device, int64_t count,
                                     const struct ddp_optimizer_config *config)
{
    const struct ddp_optimizer_ops *ops = NULL;
    for (int i = 0; optimizers[i]; i++)
        if (strcmp(optimizers[i]->name, config->name) == 0)
            ops = optimizers[i];
    if (!ops)
        return ddp_fail(DDP_ERR_INVALID, "there is no optimizer '%s'", config->name);
    struct ddp_optimizer *o = ddp_array_alloc(1, sizeof *o);
    if (!o)
        return DDP_ERR_MEMORY;
    *o = (struct ddp_optimizer){.ops = ops, .config = *config, .device = device, .count = count};
    o->state_count = ops->state_count(config);
    assert(o->state_count <= STATE_MAX);
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < o->state_count; i++)
        status = ddp_device_alloc(device, array_bytes(o), (void **)&o->state[i]);
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
    for (int i = 0; i < optimizer->state_count; i++)
        ddp_device_free(optimizer->device, optimizer->state[i], array_bytes(optimizer));
    free(optimizer);
}

enum ddp_status ddp_optimizer_run(ddp_optimizer *optimizer, const struct ddp_optimizer_step *args)
{
    return optimizer->ops->step(&optimizer->config, optimizer->device, optimizer->state, args);
}

size_t ddp_optimizer_state_bytes(const ddp_optimizer *optimizer)
{
    return (size_t)optimizer->state_count * array_bytes(optimizer);
}
