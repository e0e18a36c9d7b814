/* SPDX-License-Identifier: MIT
 *
 * Running a graph; see exec.h. */
#include "config.h"

#include "graph/internal.h"
#include "graph/stage.h"

#include "core/memory.h"
#include "core/trace.h"
#include "kernels/add.h"

#include <stdlib.h>

struct ddp_exec {
    const ddp_graph *graph;
    ddp_device *device;
    unsigned parts;
    const float *weights;
    const uint16_t *weights_bf16;
    void *const *frozen; /* by number */
    uint16_t *const *frozen_bf16;
    float *gradients;
    bool adding;
    const float *loss_scale; /* or NULL */
    const struct ddp_soft_labels *soft;
    float loss_gradient; /* the number in the arena's last cache line */
    bool reported;       /* by this backward, that something is final */
    int32_t *predictions;
    ddp_exec_before *before; /* or NULL */
    void *before_arg;
    ddp_exec_reading *reading; /* or NULL */
    void *reading_arg;
    ddp_exec_sync *sync; /* or NULL */
    void *sync_arg;
    int sync_shards;
    const void **inputs;
    struct ddp_exec_position position;
    const uint32_t *place;       /* or NULL */
    struct ddp_exec_cache cache; /* memory NULL: none */
    struct ddp_exec_messages messages;
    struct {
        int parameter;
        float *memory; /* NULL: in the flat array */
    } gradient_of;
    struct ddp_graph_plan plan;
    enum { PASS_FORWARD, PASS_AGAIN, PASS_BACKWARD } pass;
    char *arena;
    size_t arena_bytes; /* its last cache line holds the gradient of the loss */
};

/* The plan's memory and the gradient of the loss. */
static size_t whole_arena(const struct ddp_graph_plan *plan)
{
    return plan->bytes + DDP_CACHE_LINE;
}

/* What lies in the arena all the time: constants, and the gradient of the loss. */
static enum ddp_status fill_arena(struct ddp_exec *exec)
{
    const ddp_graph *graph = exec->graph;
    enum ddp_status status = ddp_exec_send_loss_scale(exec);
    for (int i = 0; status == DDP_OK && i < graph->tensor_count; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (tensor->kind == TENSOR_CONSTANT && !tensor->base)
            status = ddp_device_copy_in(exec->device, ddp_exec_value(exec, tensor), tensor->values,
                                        ddp_tensor_bytes(tensor));
    }
    return status == DDP_OK ? ddp_device_synchronize(exec->device) : status;
}

enum ddp_status ddp_exec_create(ddp_exec **exec, const ddp_graph *graph, ddp_device *device,
                                unsigned parts, const float *weights)
{
    enum ddp_status status = ddp_exec_check_device(graph, ddp_device_name(device));
    if (status != DDP_OK)
        return status;
    struct ddp_exec *e = ddp_array_alloc(1, sizeof *e);
    if (!e)
        return DDP_ERR_MEMORY;
    e->graph = graph;
    e->device = device;
    e->parts = parts;
    e->weights = weights;
    e->inputs = ddp_array_alloc((size_t)graph->input_count, sizeof *e->inputs);
    status = e->inputs ? ddp_graph_plan_make(graph, parts, &e->plan) : DDP_ERR_MEMORY;
    e->arena_bytes = whole_arena(&e->plan);
    if (status == DDP_OK)
        status = ddp_device_alloc(device, e->arena_bytes, (void **)&e->arena);
    if (status == DDP_OK)
        status = fill_arena(e);
    if (status != DDP_OK) {
        ddp_exec_destroy(e);
        return status;
    }
    *exec = e;
    return DDP_OK;
}

void ddp_exec_destroy(ddp_exec *exec)
{
    if (!exec)
        return;
    ddp_device_free(exec->device, exec->arena, exec->arena_bytes);
    ddp_graph_plan_free(&exec->plan);
    free(exec->inputs);
    free(exec);
}

enum ddp_status ddp_exec_arena_bytes(const ddp_graph *graph, unsigned parts, size_t *bytes)
{
    struct ddp_graph_plan plan;
    enum ddp_status status = ddp_graph_plan_make(graph, parts, &plan);
    if (status == DDP_OK) {
        *bytes = whole_arena(&plan);
        ddp_graph_plan_free(&plan);
    }
    return status;
}

void ddp_exec_bind_input(ddp_exec *exec, int input, const void *memory)
{
    if (input >= 0 && input < exec->graph->input_count)
        exec->inputs[input] = memory;
}

size_t ddp_exec_input_bytes(const ddp_exec *exec, int input)
{
    return ddp_exec_graph_input_bytes(exec->graph, input);
}

enum ddp_status ddp_exec_load_input(ddp_exec *exec, int input, const void *host, void *staging)
{
    enum ddp_status status = DDP_OK;
    if (staging && host)
        status = ddp_device_copy_in(exec->device, staging, host, ddp_exec_input_bytes(exec, input));
    if (status == DDP_OK)
        ddp_exec_bind_input(exec, input, staging && host ? staging : host);
    return status;
}

void ddp_exec_set_gradients(ddp_exec *exec, float *gradients)
{
    exec->gradients = gradients;
}

void ddp_exec_set_adding(ddp_exec *exec, bool adding)
{
    exec->adding = adding;
}

float *ddp_exec_gradients(const ddp_exec *exec)
{
    return exec->gradients;
}

unsigned ddp_exec_parts(const ddp_exec *exec)
{
    return exec->parts;
}

const void *ddp_exec_input(const ddp_exec *exec, int input)
{
    return exec->inputs[input];
}

bool ddp_exec_adding(const ddp_exec *exec)
{
    return exec->adding;
}

void ddp_exec_set_messages(ddp_exec *exec, const struct ddp_exec_messages *messages)
{
    exec->messages = *messages;
}

const struct ddp_exec_messages *ddp_exec_messages(const ddp_exec *exec)
{
    return &exec->messages;
}

void ddp_exec_set_gradient_of(ddp_exec *exec, int parameter, float *gradient)
{
    exec->gradient_of.parameter = parameter;
    exec->gradient_of.memory = gradient;
}

void ddp_exec_set_predictions(ddp_exec *exec, int32_t *predictions)
{
    exec->predictions = predictions;
}

void ddp_exec_set_loss_scale(ddp_exec *exec, const float *scale)
{
    exec->loss_scale = scale;
}

void ddp_exec_set_soft_labels(ddp_exec *exec, const struct ddp_soft_labels *soft)
{
    exec->soft = soft;
}

const struct ddp_soft_labels *ddp_exec_soft_labels(const ddp_exec *exec)
{
    return exec->soft;
}

enum ddp_status ddp_exec_send_loss_scale(ddp_exec *exec)
{
    const float scale = exec->loss_scale ? *exec->loss_scale : 1.0f;
    if (scale == exec->loss_gradient)
        return DDP_OK;
    exec->loss_gradient = scale;
    return ddp_device_copy_in(exec->device, exec->arena + exec->arena_bytes - DDP_CACHE_LINE,
                              &scale, sizeof scale);
}

void ddp_exec_set_weights_bf16(ddp_exec *exec, const uint16_t *weights)
{
    exec->weights_bf16 = weights;
}

void ddp_exec_set_frozen(ddp_exec *exec, void *const *values, uint16_t *const *rounded)
{
    exec->frozen = values;
    exec->frozen_bf16 = rounded;
}

void ddp_exec_set_position(ddp_exec *exec, const struct ddp_exec_position *position)
{
    exec->position = *position;
}

void ddp_exec_set_place(ddp_exec *exec, const uint32_t *place)
{
    exec->place = place;
}

const uint32_t *ddp_exec_place(const ddp_exec *exec)
{
    return exec->place;
}

void ddp_exec_set_cache(ddp_exec *exec, const struct ddp_exec_cache *cache)
{
    exec->cache = cache ? *cache : (struct ddp_exec_cache){.memory = NULL};
}

const struct ddp_exec_cache *ddp_exec_cache(const ddp_exec *exec)
{
    return exec->cache.memory ? &exec->cache : NULL;
}

bool ddp_exec_draws(const ddp_exec *exec)
{
    return exec->graph->dropout_count > 0;
}

const struct ddp_exec_position *ddp_exec_position(const ddp_exec *exec)
{
    return &exec->position;
}

void ddp_exec_set_sync(ddp_exec *exec, ddp_exec_sync *sync, void *arg, int shards)
{
    exec->sync = sync;
    exec->sync_arg = arg;
    exec->sync_shards = shards;
}

void ddp_exec_set_before(ddp_exec *exec, ddp_exec_before *before, void *arg)
{
    exec->before = before;
    exec->before_arg = arg;
}

void ddp_exec_set_reading(ddp_exec *exec, ddp_exec_reading *reading, void *arg)
{
    exec->reading = reading;
    exec->reading_arg = arg;
}

bool ddp_exec_syncs(const ddp_exec *exec)
{
    return exec->sync != NULL;
}

int ddp_exec_sync_shards(const ddp_exec *exec)
{
    return exec->sync ? exec->sync_shards : 1;
}

enum ddp_status ddp_exec_sync_sums(ddp_exec *exec, double *sums, size_t count)
{
    return exec->sync ? exec->sync(exec->sync_arg, sums, count) : DDP_OK;
}

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

/* Does node n with the one behind it, in a device that can. */
static bool is_fused(const ddp_exec *exec, int n)
{
    return ddp_graph_fuses(exec->graph, n) && ddp_exec_kernels(exec)->add_layer_norm_forward;
}

enum ddp_status ddp_exec_pass_forward(ddp_exec *exec, int n)
{
    const struct node *node = &exec->graph->nodes[n];
    exec->pass = PASS_FORWARD;
    return node->op->forward(exec, node);
}

static enum ddp_status read_ahead(const ddp_exec *exec, int pass, bool backward)
{
    return ddp_graph_announce_reading(exec->graph, pass, backward, exec->reading,
                                      exec->reading_arg);
}

static enum ddp_status run_forward(ddp_exec *exec, int first, int end)
{
    exec->pass = PASS_FORWARD;
    for (int n = first; n < end; n++) {
        const bool fused = is_fused(exec, n);
        const struct node *node = &exec->graph->nodes[n];
        enum ddp_status status = read_ahead(exec, n, false);
        if (status == DDP_OK && fused)
            status = read_ahead(exec, n + 1, false);
        if (status != DDP_OK)
            return status;
        const char *name = fused ? node[1].op->sum_and_norm : node->op->name;
        const char *output = (node + fused)->output->name;
        const int64_t begin = ddp_trace_begin();
        ddp_device_span_begin(exec->device, begin);
        status = fused ? node->op->forward_fused(exec, node) : node->op->forward(exec, node);
        n += fused;
        ddp_device_span_end(exec->device, begin, name, "output", output);
        ddp_trace_end_text(name, begin, "output", output);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

enum ddp_status ddp_exec_forward(ddp_exec *exec)
{
    return run_forward(exec, 0, exec->graph->network_count);
}

static enum ddp_status add_loss(ddp_exec *exec)
{
    const struct ddp_add args = {
        .count = exec->graph->target_count > 0 ? 2 : 1,
        .dtype = DDP_F32,
        .a = ddp_exec_loss_value(exec),
        .y = exec->gradients,
        .accumulate = true,
    };
    return ddp_exec_kernels(exec)->add(&args, ddp_exec_stream(exec));
}

enum ddp_status ddp_exec_loss(ddp_exec *exec)
{
    const ddp_graph *graph = exec->graph;
    enum ddp_status status = run_forward(exec, graph->network_count, graph->node_count);
    const bool adds = exec->adding && graph->loss && !ddp_graph_outputs_loss(graph);
    return status == DDP_OK && adds ? add_loss(exec) : status;
}

static enum ddp_status report_ready(ddp_exec *exec, int number, ddp_exec_ready *ready, void *arg)
{
    const int64_t end = ddp_graph_ready_end(exec->graph, number);
    exec->reported |= end >= 0;
    return ready && end >= 0 ? ready(arg, end) : DDP_OK;
}

enum ddp_status ddp_exec_pass_backward(ddp_exec *exec, int pass)
{
    const struct node *node = &exec->graph->nodes[pass < 0 ? ~pass : pass];
    exec->pass = pass < 0 ? PASS_AGAIN : PASS_BACKWARD;
    if (ddp_graph_passes_over(node, pass))
        return DDP_OK;
    return pass < 0 ? node->op->forward(exec, node) : node->op->backward(exec, node);
}

static enum ddp_status traced_backward(ddp_exec *exec, int pass)
{
    const struct node *node = &exec->graph->nodes[pass < 0 ? ~pass : pass];
    const char *key = pass < 0 ? "recomputed" : "gradient of";
    if (ddp_graph_passes_over(node, pass))
        return DDP_OK;
    enum ddp_status status = read_ahead(exec, pass, true);
    if (status == DDP_OK)
        status = ddp_graph_announce(exec->graph, pass, exec->before, exec->before_arg);
    if (status != DDP_OK)
        return status;
    const int64_t begin = ddp_trace_begin();
    ddp_device_span_begin(exec->device, begin);
    status = ddp_exec_pass_backward(exec, pass);
    ddp_device_span_end(exec->device, begin, node->op->name, key, node->output->name);
    ddp_trace_end_text(node->op->name, begin, key, node->output->name);
    return status;
}

/* The passes of nodes `last` down to `end`. */
static enum ddp_status run_backward(ddp_exec *exec, int last, int end, ddp_exec_ready *ready,
                                    void *arg)
{
    for (int i = 0; i < exec->plan.backward_count; i++) {
        const int pass = exec->plan.backward[i], n = pass < 0 ? ~pass : pass;
        if (n > last || n < end)
            continue;
        enum ddp_status status = traced_backward(exec, pass);
        if (status == DDP_OK && pass >= 0)
            status = report_ready(exec, n, ready, arg);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

enum ddp_status ddp_exec_loss_backward(ddp_exec *exec)
{
    const ddp_graph *graph = exec->graph;
    return run_backward(exec, graph->node_count - 1, graph->network_count, NULL, NULL);
}

enum ddp_status ddp_exec_backward(ddp_exec *exec, ddp_exec_ready *ready, void *arg)
{
    exec->reported = false;
    enum ddp_status status = run_backward(exec, exec->graph->network_count - 1, 0, ready, arg);
    if (status != DDP_OK || exec->reported || !ready)
        return status;
    /* a stage that learns nothing has the loss and statistics still */
    return ready(arg, DDP_FLAT_ALIGN + exec->graph->statistics_count);
}
