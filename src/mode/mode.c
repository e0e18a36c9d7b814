/* SPDX-License-Identifier: MIT
 *
 * The table of modes. */
#include "config.h"

#include "mode/mode.h"

#include "core/memory.h"
#include "core/trace.h"
#include "mode/updater.h"

#include <stdlib.h>

const char *const ddp_mode_names[] = {"accum", "ddp", "dp", NULL};

static const struct ddp_mode_ops *const modes[] = {
    [DDP_MODE_ACCUM] = &ddp_mode_accum,
    [DDP_MODE_DDP] = &ddp_mode_ddp,
    [DDP_MODE_DP] = &ddp_mode_dp,
};

struct ddp_mode {
    const struct ddp_mode_ops *ops;
    void *state;
};

enum ddp_status ddp_mode_create(ddp_mode **mode, enum ddp_mode_kind kind,
                                const struct ddp_mode_setup *setup)
{
    struct ddp_mode *m = ddp_array_alloc(1, sizeof *m);
    if (!m)
        return DDP_ERR_MEMORY;
    m->ops = modes[kind];
    enum ddp_status status = m->ops->create(&m->state, setup);
    if (status != DDP_OK) {
        free(m);
        return status;
    }
    *mode = m;
    return DDP_OK;
}

void ddp_mode_destroy(ddp_mode *mode)
{
    if (!mode)
        return;
    mode->ops->destroy(mode->state);
    free(mode);
}

enum ddp_status ddp_mode_step(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                              float *loss)
{
    enum ddp_status status = mode->ops->step(mode->state, loader, rate, step, loss);
    /* In a trace a step ends when its device is done with it: that is when spans are known. */
    return status == DDP_OK && ddp_trace_begin() ? ddp_device_synchronize(ddp_mode_device(mode))
                                                 : status;
}

double ddp_mode_gradient_norm(const ddp_mode *mode)
{
    return mode->ops->updater(mode->state)->norm;
}

void ddp_mode_memory(const ddp_mode *mode, struct ddp_mode_memory *memory)
{
    mode->ops->memory(mode->state, memory);
}

ddp_device *ddp_mode_device(const ddp_mode *mode)
{
    return mode->ops->replica(mode->state)->device;
}

const float *ddp_mode_weights(const ddp_mode *mode)
{
    return mode->ops->replica(mode->state)->weights;
}

const uint16_t *ddp_mode_weights_bf16(const ddp_mode *mode)
{
    return mode->ops->replica(mode->state)->weights_bf16;
}

static float *state_array(const ddp_mode *mode, int i)
{
    const char *name;
    return ddp_optimizer_state(mode->ops->updater(mode->state)->optimizer, i, &name);
}

const char *ddp_mode_state_name(const ddp_mode *mode, int i)
{
    const char *name = NULL;
    return ddp_optimizer_state(mode->ops->updater(mode->state)->optimizer, i, &name) ? name : NULL;
}

enum ddp_status ddp_mode_save_state(ddp_mode *mode, int i, float *flat)
{
    const struct ddp_replica *replica = mode->ops->replica(mode->state);
    if (mode->ops->save_state)
        return mode->ops->save_state(mode->state, i, flat);
    enum ddp_status status =
        ddp_device_copy_out(replica->device, flat, state_array(mode, i), replica->flat_bytes);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

enum ddp_status ddp_mode_load_state(ddp_mode *mode, int i, const float *flat)
{
    const struct ddp_replica *replica = mode->ops->replica(mode->state);
    if (mode->ops->load_state)
        return mode->ops->load_state(mode->state, i, flat);
    enum ddp_status status =
        ddp_device_copy_in(replica->device, state_array(mode, i), flat, replica->flat_bytes);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}
