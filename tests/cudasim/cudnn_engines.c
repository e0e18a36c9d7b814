/* SPDX-License-Identifier: MIT
 *
 * The simulated engines: what cuDNN proposes for a graph, and what a caller has to look at before
 * it takes one. Proposed first is an engine whose bits change, then one for which no plan can be
 * made, then the right one. */
#include "config.h"

#include "tests/cudasim/cudnn_sim.h"

#include <stdlib.h>
#include <string.h>

static bool has_operation(const struct cudnn_sim_program *program,
                          cudnnBackendDescriptorType_t type)
{
    for (int i = 0; i < program->operation_count; i++)
        if (program->operations[i].type == type)
            return true;
    return false;
}

/* As the real library: attention in heads of whole 16 bytes; weights' gradients in bf16 only. */
static bool is_known(const struct cudnn_sim_program *program)
{
    for (int i = 0; i < program->operation_count; i++) {
        const struct cudnn_sim_operation *operation = &program->operations[i];
        if (operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR &&
            (program->tensors[operation->y].dims[3] % 8 != 0 &&
             !program->tensors[operation->y].is_virtual))
            return false;
        if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR &&
            program->tensors[operation->b].type != CUDNN_DATA_BFLOAT16)
            return false;
    }
    return true;
}

/* As the real library's: two bytes for each score, where a graph writes a score's gradient. */
static size_t workspace_bytes(const struct cudnn_sim_program *program)
{
    const int64_t *dims = NULL;
    int64_t length = 0;
    for (int i = 0; i < program->operation_count; i++)
        if (program->operations[i].type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR && !dims)
            dims = program->tensors[program->operations[i].y].dims;
    if (!dims)
        return has_operation(program, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) ? 0 : 1024;
    length = (dims[2] + 127) / 128 * 128;
    return (size_t)(dims[0] * dims[1] * length * length) * 2;
}

/* --- what is asked for ---------------------------------------------------------------------- */

static cudnnStatus_t propose(struct cudnn_sim_descriptor *heuristic, int64_t requested,
                             int64_t *count, void *elements)
{
    static const int in_order[] = {CUDNN_SIM_NONDETERMINISTIC, CUDNN_SIM_REFUSING, CUDNN_SIM_EXACT};
    struct cudnn_sim_descriptor *graph =
        cudnn_sim_part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const bool fallback =
        cudnn_sim_number(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, 0) == CUDNN_HEUR_MODE_FALLBACK;
    const int64_t all = !graph->program || !is_known(graph->program) ? 0 : fallback ? 1 : 3;
    const int *engines = fallback ? &in_order[2] : in_order;
    *count = all;
    for (int64_t i = 0; i < all && i < requested; i++) {
        cudnnBackendDescriptor_t handle;
        memcpy(&handle, (char *)elements + (size_t)i * sizeof handle, sizeof handle);
        struct cudnn_sim_descriptor *configuration = cudnn_sim_descriptor_of(handle);
        if (!configuration || configuration->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
        free(configuration->program);
        configuration->program = malloc(sizeof *configuration->program);
        if (!configuration->program)
            return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        *configuration->program = *graph->program;
        configuration->engine = engines[i];
        configuration->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t name_engine(const struct cudnn_sim_descriptor *configuration, int64_t *count,
                                 void *elements)
{
    cudnnBackendDescriptor_t handle;
    memcpy(&handle, elements, sizeof handle);
    struct cudnn_sim_descriptor *engine = cudnn_sim_descriptor_of(handle);
    if (!engine || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
    engine->engine = configuration->engine;
    engine->finalized = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t note(const struct cudnn_sim_descriptor *engine, int64_t requested,
                          int64_t *count, void *elements)
{
    const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                 CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    *count = engine->engine == CUDNN_SIM_NONDETERMINISTIC ? 2 : 1;
    memcpy(elements, notes, (size_t)(requested < *count ? requested : *count) * sizeof *notes);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnn_sim_get(struct cudnn_sim_descriptor *descriptor,
                            cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t requested, int64_t *count, void *elements)
{
    const int64_t bytes = descriptor->program ? (int64_t)descriptor->program->workspace_bytes : 0;
    if (descriptor->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
        name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return propose(descriptor, requested, count, elements);
    if (descriptor->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
        name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
        requested == 1)
        return name_engine(descriptor, count, elements);
    if (descriptor->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
        name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE)
        return note(descriptor, requested, count, elements);
    if (descriptor->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 &&
        requested == 1) {
        *count = 1;
        memcpy(elements, &bytes, sizeof bytes);
        return CUDNN_STATUS_SUCCESS;
    }
    return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d cannot be asked for", (int)name);
}

cudnnStatus_t cudnn_sim_make_plan(struct cudnn_sim_descriptor *plan)
{
    const struct cudnn_sim_descriptor *configuration =
        cudnn_sim_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (!configuration || configuration->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
    if (configuration->engine == CUDNN_SIM_REFUSING)
        return cudnn_sim_refuse(CUDNN_STATUS_NOT_SUPPORTED, "an engine that cannot do it");
    plan->program = malloc(sizeof *plan->program);
    if (!plan->program)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    *plan->program = *configuration->program;
    plan->program->engine = configuration->engine;
    plan->program->workspace_bytes = workspace_bytes(plan->program);
    return CUDNN_STATUS_SUCCESS;
}
