/* SPDX-License-Identifier: MIT
 *
 * The graph's batch norm: inputs x (...,C), gamma (C), beta (C), optional residual of the shape of
 * x, running mean (C) and running variance (C). Training normalises by the shard's own statistics,
 * or by those of all shards that the exec adds up, and writes them where the graph sums statistics
 * over shards; evaluation uses the running ones. What it keeps for backward is the mean and the
 * deviation, then the sums, out of which a recomputation normalises. */
#include "config.h"

#include "graph/internal.h"

#include "core/memory.h"
#include "kernels/batch_norm.h"

enum { X, GAMMA, BETA, RESIDUAL, MEAN, VARIANCE };

struct attributes {
    enum ddp_activation activation;
    float epsilon;
    size_t saved_bytes; /* of mean and deviation, before the sums */
    size_t sums_bytes;  /* of backward's scratch, before what the kernels want, twice: of this shard
                          and of all */
};

static void *behind(void *scratch, size_t bytes)
{
    return (char *)scratch + bytes;
}

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[X];
    const bool trains = ddp_exec_trains(exec), recomputes = ddp_exec_recomputes(exec);
    void *saved = ddp_exec_saved(exec, node);
    struct ddp_batch_norm_sums sums = {
        .rows = ddp_tensor_rows(x),
        .channels = x->dims[x->dim_count - 1],
        .dtype = x->dtype,
        .x = ddp_exec_value(exec, x),
        .sums = trains ? behind(saved, attributes->saved_bytes) : NULL,
        .scratch = ddp_exec_forward_scratch(exec, node),
    };
    struct ddp_batch_norm_forward args = {
        .rows = sums.rows,
        .channels = sums.channels,
        .dtype = x->dtype,
        .activation = attributes->activation,
        .epsilon = attributes->epsilon,
        .x = sums.x,
        .gamma = ddp_exec_value(exec, node->inputs[GAMMA]),
        .beta = ddp_exec_value(exec, node->inputs[BETA]),
        .residual = ddp_exec_value(exec, node->inputs[RESIDUAL]),
        .sums = sums.sums,
        .count = (double)sums.rows * ddp_exec_sync_shards(exec),
        .running_mean = ddp_exec_value(exec, node->inputs[MEAN]),
        .running_var = ddp_exec_value(exec, node->inputs[VARIANCE]),
        .y = ddp_exec_value(exec, node->output),
        .saved = saved,
        .stat_mean = recomputes ? NULL : ddp_exec_gradient(exec, node->inputs[MEAN]),
        .stat_var = recomputes ? NULL : ddp_exec_gradient(exec, node->inputs[VARIANCE]),
        .accumulate_stat = ddp_exec_adding(exec),
    };
    enum ddp_status status = DDP_OK;
    if (trains && !recomputes)
        status = ddp_exec_kernels(exec)->batch_norm_sums(&sums, ddp_exec_stream(exec));
    if (status == DDP_OK && trains && !recomputes)
        status = ddp_exec_sync_sums(exec, sums.sums, 2 * (size_t)sums.channels);
    if (status == DDP_OK)
        status = ddp_exec_kernels(exec)->batch_norm_forward(&args, ddp_exec_stream(exec));
    return status;
}

/* Replaces `sums` by those of all shards, in memory of their own: the shard's stay. */
static enum ddp_status sync_copy(ddp_exec *exec, const struct node *node, const double **sums)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *gamma = node->inputs[GAMMA];
    double *all = behind(ddp_exec_backward_scratch(exec, node), attributes->sums_bytes);
    if (ddp_exec_sync_shards(exec) == 1)
        return DDP_OK;
    enum ddp_status status =
        ddp_device_copy(ddp_exec_device(exec), all, *sums, 2 * (size_t)gamma->count * sizeof *all);
    *sums = all;
    return status == DDP_OK ? ddp_exec_sync_sums(exec, all, 2 * (size_t)gamma->count) : status;
}

static enum ddp_status backward(ddp_exec *exec, const struct node *node)
{
    const struct attributes *attributes = node->attributes;
    const ddp_tensor *x = node->inputs[X], *residual = node->inputs[RESIDUAL];
    void *scratch = ddp_exec_backward_scratch(exec, node);
    struct ddp_batch_norm_backward_sums sums = {
        .rows = ddp_tensor_rows(x),
        .channels = x->dims[x->dim_count - 1],
        .dtype = x->dtype,
        .activation = attributes->activation,
        .has_residual = residual,
        .x = ddp_exec_value(exec, x),
        .y = ddp_exec_value(exec, node->output),
        .dy = ddp_exec_gradient(exec, node->output),
        .gamma = ddp_exec_value(exec, node->inputs[GAMMA]),
        .beta = ddp_exec_value(exec, node->inputs[BETA]),
        .saved = ddp_exec_saved(exec, node),
        .sums = scratch,
        .scratch = behind(scratch, 2 * attributes->sums_bytes),
    };
    struct ddp_batch_norm_backward args = {
        .rows = sums.rows,
        .channels = sums.channels,
        .dtype = x->dtype,
        .activation = attributes->activation,
        .x = sums.x,
        .y = sums.y,
        .dy = sums.dy,
        .gamma = sums.gamma,
        .beta = sums.beta,
        .saved = sums.saved,
        .sums = sums.sums,
        .count = (double)sums.rows * ddp_exec_sync_shards(exec),
        .local_sums = sums.sums,
        .dx = ddp_exec_gradient(exec, x),
        .dresidual = ddp_exec_gradient(exec, residual),
        .has_residual = residual,
        .dgamma = ddp_exec_gradient(exec, node->inputs[GAMMA]),
        .dbeta = ddp_exec_gradient(exec, node->inputs[BETA]),
        .accumulate_dx = ddp_exec_accumulates(exec, node, X),
        .accumulate_dresidual = residual && ddp_exec_accumulates(exec, node, RESIDUAL),
        .accumulate = ddp_exec_accumulates(exec, node, GAMMA),
    };
    enum ddp_status status =
        ddp_exec_kernels(exec)->batch_norm_backward_sums(&sums, ddp_exec_stream(exec));
    if (status == DDP_OK)
        status = sync_copy(exec, node, &args.sums);
    if (status == DDP_OK)
        status = ddp_exec_kernels(exec)->batch_norm_backward(&args, ddp_exec_stream(exec));
    return status;
}

static const struct ddp_op batch_norm = {
    .name = "batch_norm",
    .forward = forward,
    .backward = backward,
};

ddp_tensor *ddp_graph_batch_norm_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                       ddp_tensor *residual, enum ddp_activation activation)
{
    static const struct {
        const char *suffix;
        enum ddp_init_kind init;
        bool statistic;
    } parts[] = {{"weight", DDP_INIT_ONES, false},
                 {"bias", DDP_INIT_ZEROS, false},
                 {"running_mean", DDP_INIT_ZEROS, true},
                 {"running_var", DDP_INIT_ONES, true}};
    ddp_tensor *made[4];
    char full[256];
    if (!ddp_graph_layer_begins(graph, name, x))
        return NULL;
    const int64_t rows = ddp_tensor_rows(x), channels = x->dims[x->dim_count - 1];
    if (x->dtype != graph->activations ||
        (residual && (residual->count != x->count || residual->dtype != x->dtype)))
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "%s: %s and its residual do not fit", name,
                                x->name);
    for (int i = 0; i < 4; i++) {
        snprintf(full, sizeof full, "%s.%s", name, parts[i].suffix);
        made[i] = parts[i].statistic
                      ? ddp_graph_statistic(graph, full, channels, parts[i].init)
                      : ddp_graph_parameter(graph, full, 1, &channels,
                                            (struct ddp_init){.kind = parts[i].init});
        if (!made[i])
            return NULL;
    }
    const struct attributes attributes = {
        activation, 1e-5f, ddp_align_up(2 * (size_t)channels * sizeof(float), DDP_CACHE_LINE),
        ddp_align_up(2 * (size_t)channels * sizeof(double), DDP_CACHE_LINE)};
    const size_t scratch = ddp_batch_norm_scratch_bytes(rows, channels);
    struct node node = {
        .op = &batch_norm,
        .inputs = {x, made[0], made[1], residual, made[2], made[3]},
        .input_count = 6,
        .keeps_inputs = 1u << X | 1u << GAMMA | 1u << BETA,
        .keeps_output = residual && activation != DDP_ACTIVATION_NONE,
        .saved_bytes = attributes.saved_bytes + attributes.sums_bytes,
        .saves_once = true,
        .forward_scratch = scratch,
        .backward_scratch = 2 * attributes.sums_bytes + scratch,
    };
    return ddp_graph_add_node(graph, &node, &attributes, sizeof attributes, x->dim_count, x->dims);
}
