/* SPDX-License-Identifier: MIT
 *
 * The table of modes, and what is the same in all of them. */
#include "config.h"

#include "mode/internal.h"

#include "core/memory.h"
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

#define PART (INT64_C(1) << 20) /* weights that are brought together, where some are missing */

const char *const ddp_mode_names[] = {"accum", "ddp", "dp", "pipeline", NULL};

static const struct ddp_mode_ops *const modes[] = {
    [DDP_MODE_ACCUM] = &ddp_mode_ddp, /* with one worker it exchanges nothing */
    [DDP_MODE_DDP] = &ddp_mode_ddp,
    [DDP_MODE_DP] = &ddp_mode_dp,
    [DDP_MODE_PIPELINE] = &ddp_mode_pipeline,
};

enum ddp_status ddp_mode_create(ddp_mode **mode, enum ddp_mode_kind kind,
                                const struct ddp_mode_setup *setup)
{
    struct ddp_mode *m = ddp_array_alloc(1, modes[kind]->bytes);
    if (!m)
        return DDP_ERR_MEMORY;
    m->ops = modes[kind];
    m->setup = *setup;
    m->everywhere = setup->everywhere;
    m->replicas = ddp_array_alloc((size_t)setup->replicas, sizeof *m->replicas);
    enum ddp_status status = m->replicas ? m->ops->open(m) : DDP_ERR_MEMORY;
    if (status != DDP_OK) {
        m->failed = true;
        ddp_mode_destroy(m);
        return status;
    }
    m->everywhere = false;
    *mode = m;
    return DDP_OK;
}

void ddp_mode_destroy(ddp_mode *mode)
{
    if (!mode)
        return;
    mode->ops->close(mode);
    ddp_updater_close(&mode->updater);
    for (int r = mode->replicas ? mode->setup.replicas - 1 : -1; r >= 0; r--)
        ddp_replica_close(&mode->replicas[r]);
    free(mode->replicas);
    free(mode);
}

/* --- the moving average ----------------------------------------------------------------------- */

/* `count` weights and their average change places, by way of rank 0's memory.
 *   values  room for both; NULL: another rank */
static enum ddp_status exchange_piece(ddp_mode *mode, int64_t begin, int64_t count, bool begun,
                                      float *values)
{
    const int last = ddp_mode_state_count(mode) - 1;
    float *average = values ? values + count : NULL;
    enum ddp_status status = ddp_mode_get_weights(mode, begin, count, values);
    if (status == DDP_OK)
        status = ddp_mode_save_state(mode, last, begin, count, average);
    if (!begun && average) /* there was no step */
        memcpy(average, values, (size_t)count * sizeof *average);
    if (status == DDP_OK)
        status = mode->ops->put_weights(mode, begin, count, average);
    return status == DDP_OK ? ddp_mode_load_state(mode, last, begin, count, values, false) : status;
}

/* All of them: in pieces where no rank has them all. */
static enum ddp_status exchange(ddp_mode *mode)
{
    const ddp_graph *graph = mode->setup.whole ? mode->setup.whole : mode->setup.graph;
    const int64_t count = ddp_graph_flat_count(graph);
    const bool parted = mode->setup.thin_weights || mode->setup.stages > 1;
    const int64_t most = parted && count > PART ? PART : count;
    const bool holds = !mode->setup.comm || ddp_comm_rank(mode->setup.comm) == 0;
    const bool averaged = !mode->averaged, begun = mode->averages;
    float *values = holds ? ddp_array_alloc(2 * (size_t)most, sizeof *values) : NULL;
    enum ddp_status status = !holds || values ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t at = 0; status == DDP_OK && at < count; at += most)
        status = exchange_piece(mode, at, count - at < most ? count - at : most, begun, values);
    mode->averaged = averaged;
    mode->failed = mode->failed || status != DDP_OK;
    free(values);
    return status;
}

static enum ddp_status return_weights(ddp_mode *mode)
{
    return mode->averaged ? exchange(mode) : DDP_OK;
}

enum ddp_status ddp_mode_average(ddp_mode *mode)
{
    enum ddp_status status = mode->ops->average ? mode->ops->average(mode) : DDP_OK;
    if (status == DDP_OK && mode->setup.optimizer.average > 0 && !mode->averaged)
        status = exchange(mode);
    mode->failed = status != DDP_OK;
    return status;
}

enum ddp_status ddp_mode_step(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                              float *loss)
{
    enum ddp_status status = return_weights(mode);
    for (int r = 0; r < mode->setup.replicas; r++) {
        mode->replicas[r].step = step;
        mode->replicas[r].loss_scale = mode->replicas->loss_scale;
    }
    if (status == DDP_OK)
        status = mode->ops->step(mode, loader, rate, step, loss);
    mode->failed = status != DDP_OK;
    mode->averages = true;
    /* In a trace a step ends when its device is done with it: that is when spans are known. */
    return status == DDP_OK && ddp_trace_begin() ? ddp_device_synchronize(ddp_mode_device(mode))
                                                 : status;
}

double ddp_mode_gradient_norm(const ddp_mode *mode)
{
    return mode->updater.norm;
}

bool ddp_mode_noise(const ddp_mode *mode, struct ddp_mode_noise *found)
{
    return ddp_noise_of(&mode->replicas->noise, &mode->updater, mode->setup.batch_rows, found);
}

struct ddp_loss_scale ddp_mode_loss_scale(const ddp_mode *mode)
{
    return mode->replicas->loss_scale;
}

void ddp_mode_set_loss_scale(ddp_mode *mode, const struct ddp_loss_scale *scale)
{
    mode->replicas->loss_scale = *scale;
}

int64_t ddp_mode_counted(const ddp_mode *mode)
{
    return mode->updater.counted;
}

bool ddp_mode_preferences(const ddp_mode *mode, struct ddp_preferences *preferences)
{
    const struct ddp_objective *objective = ddp_graph_objective(mode->setup.graph);
    double sums[DDP_PREFERENCE_SUMS];
    for (int i = 0; objective && i < DDP_PREFERENCE_SUMS; i++)
        sums[i] = (double)mode->updater.loss_sum[i];
    if (objective)
        ddp_preferences_make(preferences, objective, sums);
    return objective;
}

ddp_device *ddp_mode_device(const ddp_mode *mode)
{
    return mode->replicas->device;
}

const float *ddp_mode_weights(const ddp_mode *mode)
{
    return mode->ops->get_weights ? NULL : mode->replicas->weights;
}

const uint16_t *ddp_mode_weights_bf16(const ddp_mode *mode)
{
    return mode->ops->get_weights ? NULL : mode->replicas->weights_bf16;
}

const struct ddp_frozen *ddp_mode_frozen(const ddp_mode *mode)
{
    return &mode->replicas->frozen;
}

float *ddp_mode_state(const ddp_mode *mode, int i)
{
    const char *name;
    return ddp_optimizer_state(mode->updater.optimizer, i, &name);
}

int ddp_mode_state_count(const ddp_mode *mode)
{
    int count = 0;
    while (ddp_mode_state(mode, count))
        count++;
    return count;
}

const char *ddp_mode_state_name(const ddp_mode *mode, int i)
{
    const char *name = NULL;
    if (ddp_optimizer_state(mode->updater.optimizer, i, &name))
        return name;
    return mode->ops->array_name ? mode->ops->array_name(mode, i - ddp_mode_state_count(mode))
                                 : NULL;
}

struct ddp_mode_apart ddp_mode_apart_now(const ddp_mode *mode)
{
    return mode->ops->apart ? mode->ops->apart(mode) : (struct ddp_mode_apart){0};
}

bool ddp_mode_has_state(const ddp_mode *mode, int i, const struct ddp_mode_apart *apart)
{
    const int count = ddp_mode_state_count(mode);
    return i < count || mode->ops->has_array(mode, i - count, apart);
}

enum ddp_status ddp_mode_copy_state_out(const ddp_mode *mode, int i, int64_t begin, int64_t count,
                                        float *values)
{
    const struct ddp_replica *replica = mode->replicas;
    enum ddp_status status = ddp_device_copy_out(
        replica->device, values, ddp_mode_state(mode, i) + begin, (size_t)count * sizeof *values);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

enum ddp_status ddp_mode_copy_state_in(const ddp_mode *mode, int i, int64_t begin, int64_t count,
                                       const float *values)
{
    const struct ddp_replica *replica = mode->replicas;
    enum ddp_status status = ddp_device_copy_in(replica->device, ddp_mode_state(mode, i) + begin,
                                                values, (size_t)count * sizeof *values);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

enum ddp_status ddp_mode_save_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                    float *values)
{
    return mode->ops->save_state ? mode->ops->save_state(mode, i, begin, count, values)
                                 : ddp_mode_copy_state_out(mode, i, begin, count, values);
}

enum ddp_status ddp_mode_load_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                    const float *values, bool everywhere)
{
    /* A checkpoint has the average in the weights' place, and them in the average's. */
    if (mode->setup.optimizer.average > 0 && i == ddp_mode_state_count(mode) - 1)
        mode->averages = mode->averaged = true;
    mode->everywhere = everywhere;
    enum ddp_status status = mode->ops->load_state
                                 ? mode->ops->load_state(mode, i, begin, count, values)
                                 : ddp_mode_copy_state_in(mode, i, begin, count, values);
    mode->everywhere = false;
    return status;
}

bool ddp_mode_lacks_weights(const ddp_mode *mode)
{
    return mode->lacks_weights;
}

static enum ddp_status complete(ddp_mode *mode, int64_t begin, int64_t count)
{
    enum ddp_status status =
        mode->lacks_weights ? mode->ops->complete_weights(mode, begin, count) : DDP_OK;
    mode->failed = mode->failed || status != DDP_OK;
    return status;
}

enum ddp_status ddp_mode_complete_weights(ddp_mode *mode)
{
    return complete(mode, 0, ddp_graph_flat_count(mode->setup.graph));
}

enum ddp_status ddp_mode_get_weights(ddp_mode *mode, int64_t begin, int64_t count, float *values)
{
    const struct ddp_replica *replica = mode->replicas;
    enum ddp_status status = DDP_OK;
    if (mode->ops->get_weights) {
        status = mode->ops->get_weights(mode, begin, count, values);
        mode->failed = status != DDP_OK;
        return status;
    }
    for (int64_t at = 0; status == DDP_OK && at < count; at += PART) {
        const int64_t part = count - at < PART ? count - at : PART;
        status = complete(mode, begin + at, part);
        if (status == DDP_OK && values)
            status =
                ddp_device_copy_out(replica->device, values + at, replica->weights + begin + at,
                                    (size_t)part * sizeof *values);
    }
    return status == DDP_OK && values ? ddp_device_synchronize(replica->device) : status;
}

enum ddp_status ddp_mode_own_weights(ddp_mode *mode, int64_t begin, int64_t count, float *values,
                                     bool *own)
{
    if (mode->ops->own_weights)
        return mode->ops->own_weights(mode, begin, count, values, own);
    *own = true;
    return ddp_mode_get_weights(mode, begin, count, values);
}

double ddp_mode_idle_share(const ddp_mode *mode)
{
    return mode->ops->idle_share ? mode->ops->idle_share(mode) : -1;
}

enum ddp_status ddp_mode_put_weights(ddp_mode *mode, int64_t begin, int64_t count,
                                     const float *values)
{
    enum ddp_status status = return_weights(mode);
    if (status == DDP_OK)
        status = mode->ops->put_weights(mode, begin, count, values);
    mode->failed = status != DDP_OK;
    return status;
}

/* Times 1/W, or what the step has in its place, as the optimizer reads it. */
enum ddp_status ddp_mode_get_gradients(ddp_mode *mode, int64_t begin, int64_t count, float *values)
{
    const struct ddp_replica *replica = mode->replicas;
    const float scale = (float)(1 / ddp_updater_divisor(&mode->updater));
    enum ddp_status status = DDP_OK;
    if (mode->ops->gather_gradients)
        status = mode->ops->gather_gradients(mode, begin, count);
    if (status == DDP_OK && mode->ops->get_gradients)
        status = mode->ops->get_gradients(mode, begin, count, values);
    else if (status == DDP_OK)
        status = ddp_device_copy_out(replica->device, values, replica->gradients + begin,
                                     (size_t)count * sizeof *values);
    if (status == DDP_OK)
        status = ddp_device_synchronize(replica->device);
    mode->failed = status != DDP_OK;
    for (int64_t i = 0; status == DDP_OK && i < count; i++)
        values[i] *= scale;
    return status;
}
