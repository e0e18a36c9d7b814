/* SPDX-License-Identifier: MIT
 *
 * Running a graph; see exec.h. */
#include "config.h"

#include "graph/exec_parts.h"

#include "core/memory.h"
#include "core/trace.h"
#include "kernels/add.h"

#include <stdlib.h>

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
