/* SPDX-License-Identifier: MIT
 *
 * See tensors.h. */
#include "config.h"

#include "train/tensors.h"

#include "core/log.h"
#include "core/memory.h"

#include <inttypes.h>
#include <string.h>

enum ddp_status ddp_run_list_tensors(struct ddp_run *run)
{
    const int count = ddp_graph_parameter_count(run->planned.graph);
    run->tensors = ddp_array_alloc((size_t)count, sizeof *run->tensors);
    if (!run->tensors)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(run->planned.graph, i);
        struct ddp_train_tensor *tensor = &run->tensors[i];
        *tensor = (struct ddp_train_tensor){
            .name = parameter->name,
            .dtype = DDP_F32,
            .dim_count = parameter->dim_count,
            .count = (size_t)parameter->count,
            .statistic = parameter->statistic,
        };
        memcpy(tensor->dims, parameter->dims, sizeof tensor->dims);
    }
    return DDP_OK;
}

/* Its number among the parameters. */
static enum ddp_status find(const struct ddp_run *run, const char *name, const float *values,
                            size_t count, int *found)
{
    const int tensors = ddp_graph_parameter_count(run->planned.graph);
    int i = 0;
    while (i < tensors && (!name || strcmp(run->tensors[i].name, name) != 0))
        i++;
    if (i == tensors)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model %s has no tensor \"%s\": its %d tensors are named by "
                        "ddp_train_tensor(), the first is %s",
                        run->planned.plan.model->name, name ? name : "(null)", tensors,
                        run->tensors[0].name);
    if (count != run->tensors[i].count || !values)
        return ddp_fail(DDP_ERR_INVALID, "tensor %s has %zu values, and the program gives %s %zu",
                        name, run->tensors[i].count, values ? "room for" : "no memory for", count);
    *found = i;
    return DDP_OK;
}

/* All ranks must mean the same tensor: of two with the same count, the call would not differ. */
static enum ddp_status agree(const struct ddp_run *run, int i)
{
    int64_t range[2] = {i, -(int64_t)i};
    enum ddp_status status = ddp_comm_allreduce(run->comm, range, 2, DDP_I64, DDP_MAX);
    if (status == DDP_OK && range[0] != -range[1])
        return ddp_fail(DDP_ERR_MISMATCH, "ranks name different tensors: %s and %s",
                        run->tensors[-range[1]].name, run->tensors[range[0]].name);
    return status;
}

enum ddp_status ddp_run_get_weights(const struct ddp_run *run, const char *name, float *values,
                                    size_t count)
{
    int i = 0;
    enum ddp_status status = find(run, name, values, count, &i);
    if (status == DDP_OK &&
        (ddp_train_plan_stage_workers(&run->planned.plan) > 1 || ddp_mode_lacks_weights(run->mode)))
        status = agree(run, i);
    if (status == DDP_OK)
        status = ddp_mode_average(run->mode);
    return status == DDP_OK
               ? ddp_mode_get_weights(run->mode,
                                      ddp_graph_parameter_at(run->planned.graph, i)->offset,
                                      (int64_t)count, values)
               : status;
}

enum ddp_status ddp_run_put_weights(struct ddp_run *run, const char *name, const float *values,
                                    size_t count)
{
    int i = 0;
    enum ddp_status status = find(run, name, values, count, &i);
    if (status == DDP_OK)
        status = agree(run, i);
    if (status == DDP_OK)
        status =
            ddp_mode_put_weights(run->mode, ddp_graph_parameter_at(run->planned.graph, i)->offset,
                                 (int64_t)count, values);
    if (status == DDP_OK)
        run->saved_step = -1; /* a checkpoint of this step has other weights */
    return status;
}

enum ddp_status ddp_run_get_gradients(const struct ddp_run *run, const char *name, float *values,
                                      size_t count)
{
    int i = 0;
    enum ddp_status status = find(run, name, values, count, &i);
    if (status != DDP_OK)
        return status;
    if (run->tensors[i].statistic)
        return ddp_fail(DDP_ERR_INVALID, "tensor %s is a statistic: it has no gradient", name);
    if (run->planned.plan.local.every > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sync-every %" PRId64 ": there is no mean gradient of %s, because each "
                        "worker's steps are its own",
                        run->planned.plan.local.every, name);
    if (run->step == run->first_step)
        return ddp_fail(DDP_ERR_INVALID,
                        "there is no gradient of %s yet: this run has made no step", name);
    status = agree(run, i);
    return status == DDP_OK
               ? ddp_mode_get_gradients(run->mode,
                                        ddp_graph_parameter_at(run->planned.graph, i)->offset,
                                        (int64_t)count, values)
               : status;
}
