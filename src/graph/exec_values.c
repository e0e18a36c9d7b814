/* SPDX-License-Identifier: MIT
 *
 * Where the values of a graph that runs lie; see exec.h. */
#include "config.h"

#include "graph/exec_parts.h"

#include "core/memory.h"

static void *arena_at(const ddp_exec *exec, int item)
{
    return item < 0 ? NULL : exec->arena + exec->plan.items[item].offset;
}

/* In the life that the pass sees. */
static void *arena_in(const ddp_exec *exec, const struct lives *lives)
{
    const bool again = exec->pass != PASS_FORWARD && lives->again >= 0;
    return arena_at(exec, again ? lives->again : lives->forward);
}

static int64_t flat_offset(const ddp_exec *exec, const ddp_tensor *parameter)
{
    return exec->graph->parameters[parameter->index].offset;
}

void *ddp_exec_value(const ddp_exec *exec, const ddp_tensor *tensor)
{
    if (!tensor)
        return NULL;
    tensor = ddp_tensor_base(tensor);
    switch (tensor->kind) {
    case TENSOR_INPUT:
        return (void *)exec->inputs[tensor->index];
    case TENSOR_PARAMETER:
        return (void *)(exec->weights + flat_offset(exec, tensor));
    case TENSOR_FROZEN:
        return exec->frozen[tensor->index];
    case TENSOR_CONSTANT:
    case TENSOR_ACTIVATION:
        break;
    }
    if (tensor == exec->graph->loss && exec->gradients && !exec->adding)
        return exec->gradients; /* its first elements: summed over the shards with them */
    return arena_in(exec, &exec->plan.value[tensor->id]);
}

const float *ddp_exec_value_f32(const ddp_exec *exec, const ddp_tensor *tensor)
{
    return tensor && tensor->dtype == DDP_F32 ? ddp_exec_value(exec, tensor) : NULL;
}

const uint16_t *ddp_exec_value_bf16(const ddp_exec *exec, const ddp_tensor *tensor)
{
    if (tensor->kind == TENSOR_FROZEN && tensor->dtype == DDP_BF16)
        return ddp_exec_value(exec, tensor);
    if (tensor->kind == TENSOR_FROZEN)
        return exec->frozen_bf16 ? exec->frozen_bf16[ddp_tensor_base(tensor)->index] : NULL;
    return exec->weights_bf16 ? exec->weights_bf16 + flat_offset(exec, tensor) : NULL;
}

/* Is the gradient of this parameter not in the flat array? */
static bool is_apart(const ddp_exec *exec, const ddp_tensor *parameter)
{
    return exec->gradient_of.memory && parameter->index == exec->gradient_of.parameter;
}

const float *ddp_exec_loss_gradient(const ddp_exec *exec)
{
    return (const void *)(exec->arena + exec->arena_bytes - DDP_CACHE_LINE);
}

void *ddp_exec_gradient(const ddp_exec *exec, const ddp_tensor *tensor)
{
    if (!tensor || !ddp_exec_trains(exec))
        return NULL;
    tensor = ddp_tensor_base(tensor);
    if (tensor == exec->graph->loss)
        return (void *)ddp_exec_loss_gradient(exec);
    if (tensor->kind == TENSOR_PARAMETER)
        return is_apart(exec, tensor) ? exec->gradient_of.memory
                                      : exec->gradients + flat_offset(exec, tensor);
    return tensor->kind == TENSOR_ACTIVATION ? arena_at(exec, exec->plan.gradient[tensor->id])
                                             : NULL;
}

int64_t ddp_exec_rows(const ddp_exec *exec, const ddp_tensor *tensor)
{
    const int64_t most = ddp_tensor_rows(tensor);
    if (!tensor->bounds)
        return most;
    const int32_t *bounds = ddp_exec_value(exec, tensor->bounds);
    const int64_t rows = bounds[tensor->bounds->count - 1];
    return rows > 0 && rows < most ? rows : most; /* products alone run on whatever is there */
}

int64_t ddp_exec_elements(const ddp_exec *exec, const ddp_tensor *tensor)
{
    return tensor->bounds ? ddp_exec_rows(exec, tensor) * tensor->dims[tensor->dim_count - 1]
                          : tensor->count;
}

bool ddp_exec_accumulates(const ddp_exec *exec, const struct node *node, int input)
{
    const ddp_tensor *tensor = ddp_tensor_base(node->inputs[input]);
    if (tensor->kind == TENSOR_PARAMETER &&
        (tensor->adds || (exec->adding && !is_apart(exec, tensor))))
        return true;
    if (tensor->last_reader != (int)(node - exec->graph->nodes))
        return true;
    for (int i = 0; i < input; i++)
        if (node->inputs[i] && ddp_tensor_base(node->inputs[i]) == tensor)
            return true;
    return false;
}

void *ddp_exec_saved(const ddp_exec *exec, const struct node *node)
{
    return arena_in(exec, &exec->plan.saved[node - exec->graph->nodes]);
}

void *ddp_exec_forward_scratch(const ddp_exec *exec, const struct node *node)
{
    return arena_in(exec, &exec->plan.scratch[node - exec->graph->nodes]);
}

void *ddp_exec_backward_scratch(const ddp_exec *exec, const struct node *node)
{
    return arena_at(exec, exec->plan.backward_scratch[node - exec->graph->nodes]);
}

int32_t *ddp_exec_predictions(const ddp_exec *exec)
{
    return exec->predictions;
}

bool ddp_exec_recomputes(const ddp_exec *exec)
{
    return exec->pass == PASS_AGAIN;
}

const struct ddp_graph_plan *ddp_exec_plan(const ddp_exec *exec)
{
    return &exec->plan;
}

bool ddp_exec_trains(const ddp_exec *exec)
{
    return exec->parts & DDP_EXEC_BACKWARD;
}

const ddp_graph *ddp_exec_graph(const ddp_exec *exec)
{
    return exec->graph;
}

ddp_device *ddp_exec_device(const ddp_exec *exec)
{
    return exec->device;
}

const struct ddp_kernels *ddp_exec_kernels(const ddp_exec *exec)
{
    return ddp_device_kernels(exec->device);
}

void *ddp_exec_stream(const ddp_exec *exec)
{
    return ddp_device_stream(exec->device);
}

void *ddp_exec_output(const ddp_exec *exec)
{
    return ddp_exec_value(exec, exec->graph->output);
}

void *ddp_exec_output_gradient(const ddp_exec *exec)
{
    return ddp_exec_gradient(exec, exec->graph->output);
}

size_t ddp_exec_output_bytes(const ddp_exec *exec)
{
    return ddp_exec_graph_output_bytes(exec->graph);
}

const float *ddp_exec_loss_value(const ddp_exec *exec)
{
    return ddp_exec_value(exec, exec->graph->loss);
}
