/* SPDX-License-Identifier: MIT
 *
 * Plans for graphs of cuDNN's operations: chosen, kept by shape, and run; see cudnn_graph.h. cuDNN
 * proposes engines in an order of its own; the first is taken that is deterministic, fits the
 * workspace, and for which the library makes a plan. Nothing is measured. */
#include "config.h"

#include "kernels/cuda/cudnn_graph.h"

#include "core/log.h"
#include "kernels/cuda/cudnn.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 32 };

/* --- engines -------------------------------------------------------------------------------- */

static cudnnStatus_t set_one(const struct ddp_cudnn *cudnn, cudnnBackendDescriptor_t descriptor,
                             cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             const void *value)
{
    return cudnn->calls.set(descriptor, name, type, 1, value);
}

static bool has_note(const cudnnBackendNumericalNote_t *notes, int64_t count,
                     cudnnBackendNumericalNote_t note)
{
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == note)
            return true;
    return false;
}

/* Does the engine of a configuration give the same bits every time, and keep the precision that was
 * asked for? What cannot be found out is taken for no. */
static bool is_exact(const struct ddp_cudnn *cudnn, cudnnBackendDescriptor_t configuration)
{
    const struct ddp_cudnn_calls *calls = &cudnn->calls;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0;
    if (calls->create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    cudnnStatus_t status = calls->get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            (int64_t)(sizeof notes / sizeof *notes), &count, notes);
    (void)calls->destroy_descriptor(engine);
    if (status != CUDNN_STATUS_SUCCESS)
        return false;
    const int64_t known = (int64_t)(sizeof notes / sizeof *notes);
    if (count > known)
        count = known;
    return !has_note(notes, count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           !has_note(notes, count, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
}

/* --- plans ---------------------------------------------------------------------------------- */

/* A plan of this configuration that the workspace is enough for, or NULL. */
static cudnnBackendDescriptor_t plan_with(struct ddp_cudnn *cudnn,
                                          cudnnBackendDescriptor_t configuration)
{
    const struct ddp_cudnn_calls *calls = &cudnn->calls;
    cudnnBackendDescriptor_t plan = NULL;
    int64_t bytes = 0, count = 0;
    cudnnStatus_t status = calls->create_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_one(cudnn, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                         &cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_one(cudnn, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                         CUDNN_TYPE_BACKEND_DESCRIPTOR, &configuration);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->finalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                            &count, &bytes);
    if (status == CUDNN_STATUS_SUCCESS && bytes >= 0 && (uint64_t)bytes <= DDP_CUDA_WORKSPACE_BYTES)
        return plan;
    if (plan)
        (void)calls->destroy_descriptor(plan);
    return NULL;
}

/* Asks for configurations in one of cuDNN's ways of choosing. */
static int64_t propose(struct ddp_cudnn *cudnn, cudnnBackendDescriptor_t operations,
                       cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configurations)
{
    const struct ddp_cudnn_calls *calls = &cudnn->calls;
    cudnnBackendDescriptor_t heuristic = NULL;
    int64_t count = 0;
    cudnnStatus_t status =
        calls->create_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_one(cudnn, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                         CUDNN_TYPE_BACKEND_DESCRIPTOR, &operations);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_one(cudnn, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->finalize(heuristic);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                            MAX_CANDIDATES, &count, configurations);
    if (heuristic)
        (void)calls->destroy_descriptor(heuristic);
    if (status != CUDNN_STATUS_SUCCESS)
        return 0;
    return count < MAX_CANDIDATES ? count : MAX_CANDIDATES;
}

/* The first plan that will do among those of one way of choosing. */
static cudnnBackendDescriptor_t
choose_by(struct ddp_cudnn *cudnn, cudnnBackendDescriptor_t operations, cudnnBackendHeurMode_t mode)
{
    const struct ddp_cudnn_calls *calls = &cudnn->calls;
    cudnnBackendDescriptor_t configurations[MAX_CANDIDATES] = {NULL}, plan = NULL;
    int made = 0;
    while (made < MAX_CANDIDATES &&
           calls->create_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configurations[made]) ==
               CUDNN_STATUS_SUCCESS)
        made++;
    const int64_t count =
        made == MAX_CANDIDATES ? propose(cudnn, operations, mode, configurations) : 0;
    for (int64_t i = 0; i < count && !plan; i++)
        if (is_exact(cudnn, configurations[i]))
            plan = plan_with(cudnn, configurations[i]);
    for (int i = 0; i < made; i++)
        (void)calls->destroy_descriptor(configurations[i]);
    return plan;
}

static cudnnBackendDescriptor_t choose(struct ddp_cudnn *cudnn, cudnnBackendDescriptor_t operations)
{
    cudnnBackendDescriptor_t plan = choose_by(cudnn, operations, CUDNN_HEUR_MODE_A);
    return plan ? plan : choose_by(cudnn, operations, CUDNN_HEUR_MODE_FALLBACK);
}

/* The graph's operations as one descriptor; NULL on failure, which the graph keeps. */
static cudnnBackendDescriptor_t join(struct ddp_cudnn_graph *graph)
{
    struct ddp_cudnn *cudnn = graph->cudnn;
    cudnnBackendDescriptor_t operations = NULL;
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    graph->status =
        cudnn->calls.create_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &operations);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = set_one(cudnn, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                CUDNN_TYPE_HANDLE, &cudnn->handle);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = cudnn->calls.set(operations, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
                                         graph->operations);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = cudnn->calls.finalize(operations);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        return operations;
    graph->failed = "the graph";
    if (operations)
        (void)cudnn->calls.destroy_descriptor(operations);
    return NULL;
}

static void make(struct ddp_cudnn *cudnn, struct ddp_cudnn_plan *plan, const char *operation)
{
    struct ddp_cudnn_graph graph;
    ddp_cudnn_graph_begin(&graph, cudnn);
    plan->key.describe(&graph, plan->key.words);
    cudnnBackendDescriptor_t operations = join(&graph);
    if (operations) {
        plan->plan = choose(cudnn, operations);
        (void)cudnn->calls.destroy_descriptor(operations);
    }
    ddp_cudnn_graph_end(&graph);
    (void)cudaGetLastError(); /* an engine that cannot be built is not an error of ours */
    if (plan->plan)
        return;
    if (graph.failed)
        ddp_log(DDP_LOG_DEBUG, "%s: not done by cuDNN, which rejects %s: %s", operation,
                graph.failed, cudnn->calls.error_string(graph.status));
    else
        ddp_log(DDP_LOG_DEBUG,
                "%s: not done by cuDNN, which has no deterministic plan for the shape", operation);
}

enum ddp_status ddp_cudnn_plan_of(struct ddp_cuda *cuda, const struct ddp_cudnn_key *key,
                                  const char *operation, const struct ddp_cudnn_plan **out)
{
    enum ddp_status status = ddp_cudnn_open(cuda);
    struct ddp_cudnn *cudnn = cuda->cudnn;
    *out = NULL;
    if (status || !cudnn->usable || cuda->capability < 80)
        return status;
    struct ddp_cudnn_plan *plan = cudnn->plans;
    while (plan && memcmp(&plan->key, key, sizeof *key) != 0)
        plan = plan->next;
    if (!plan) {
        plan = calloc(1, sizeof *plan);
        if (!plan)
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", operation);
        plan->key = *key;
        make(cudnn, plan, operation);
        plan->next = cudnn->plans;
        cudnn->plans = plan;
    }
    *out = plan->plan ? plan : NULL;
    return DDP_OK;
}

void ddp_cudnn_forget(struct ddp_cuda *cuda)
{
    struct ddp_cudnn *cudnn = cuda->cudnn;
    if (!cudnn)
        return;
    for (struct ddp_cudnn_plan *plan = cudnn->plans, *next; plan; plan = next) {
        next = plan->next;
        if (plan->plan)
            (void)cudnn->calls.destroy_descriptor(plan->plan);
        free(plan);
    }
    if (cudnn->handle)
        (void)cudnn->calls.destroy(cudnn->handle);
    free(cudnn);
    cuda->cudnn = NULL;
}

/* --- runs ----------------------------------------------------------------------------------- */

enum ddp_status ddp_cudnn_run(const struct ddp_cudnn_plan *plan, const void *const *arrays,
                              int count, struct ddp_cuda *cuda, const char *operation)
{
    static const int64_t ids[DDP_CUDNN_TENSORS] = {1, 2, 3, 4, 5, 6};
    struct ddp_cudnn *cudnn = cuda->cudnn;
    const struct ddp_cudnn_calls *calls = &cudnn->calls;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status = calls->create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                            arrays);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_one(cudnn, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                         &cuda->workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->execute(cudnn->handle, plan->plan, pack);
    if (pack)
        (void)calls->destroy_descriptor(pack);
    if (status != CUDNN_STATUS_SUCCESS)
        return ddp_fail(DDP_ERR_SYSTEM, "%s: cuDNN: %s (DDP_CUDNN=0 disables cuDNN)", operation,
                        calls->error_string(status));
    return ddp_cuda_launched(cuda, operation);
}
