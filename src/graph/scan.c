/* SPDX-License-Identifier: MIT
 *
 * See scan.h. */
#include "config.h"

#include "graph/scan.h"

#include "core/memory.h"
#include "graph/internal.h"
#include "kernels/bf16.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float value_at(const ddp_tensor *tensor, const void *values, int64_t element)
{
    const int64_t width = tensor->dims[tensor->dim_count - 1];
    const int64_t index = element / width * tensor->pitch + element % width;
    return tensor->dtype == DDP_BF16 ? ddp_bf16_to_f32(((const uint16_t *)values)[index])
                                     : ((const float *)values)[index];
}

/* Looks at a tensor's value or gradient; true: there is something to report. */
static enum ddp_status look(ddp_exec *exec, const ddp_tensor *tensor, const void *memory,
                            enum ddp_scan_tensor kind, const char *operation, struct ddp_scan *scan)
{
    ddp_device *device = ddp_exec_device(exec);
    const size_t bytes = ddp_tensor_bytes(tensor);
    const void *values = memory;
    void *copy = NULL;
    enum ddp_status status = DDP_OK;
    if (!memory || (tensor->dtype != DDP_F32 && tensor->dtype != DDP_BF16))
        return DDP_OK;
    if (!ddp_device_host_memory(device)) {
        copy = ddp_array_alloc(1, bytes);
        status = copy ? ddp_device_copy_out(device, copy, memory, bytes) : DDP_ERR_MEMORY;
        values = copy;
    }
    if (status == DDP_OK)
        status = ddp_device_synchronize(device);
    int64_t bad = 0, first = -1;
    const int64_t count = ddp_exec_elements(exec, tensor);
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        if (isfinite(value_at(tensor, values, i)))
            continue;
        first = bad++ == 0 ? i : first;
    }
    if (bad > 0)
        *scan = (struct ddp_scan){
            kind, tensor->name, operation, count, bad, first, value_at(tensor, values, first)};
    free(copy);
    return status;
}

static enum ddp_status look_at_given(ddp_exec *exec, struct ddp_scan *scan)
{
    const ddp_graph *graph = ddp_exec_graph(exec);
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < graph->tensor_count && !scan->kind; i++) {
        const ddp_tensor *tensor = graph->tensors[i];
        if (tensor->base || tensor->kind == TENSOR_ACTIVATION || tensor->kind == TENSOR_CONSTANT)
            continue;
        status = look(exec, tensor, ddp_exec_value(exec, tensor),
                      tensor->kind == TENSOR_INPUT ? DDP_SCAN_INPUT : DDP_SCAN_WEIGHT, NULL, scan);
    }
    return status;
}

/* A gradient that other operations still add to is finite or not already now. */
static enum ddp_status look_at_gradients(ddp_exec *exec, const struct node *node,
                                         struct ddp_scan *scan)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < node->input_count && !scan->kind; i++) {
        const ddp_tensor *input = node->inputs[i];
        if (input && input->needs_gradient)
            status = look(exec, input, ddp_exec_gradient(exec, input), DDP_SCAN_GRADIENT,
                          node->op->name, scan);
    }
    return status;
}

enum ddp_status ddp_exec_scan(ddp_exec *exec, struct ddp_scan *scan)
{
    const ddp_graph *graph = ddp_exec_graph(exec);
    *scan = (struct ddp_scan){.kind = DDP_SCAN_NOTHING};
    enum ddp_status status = look_at_given(exec, scan);
    for (int n = 0; status == DDP_OK && n < graph->node_count && !scan->kind; n++) {
        const struct node *node = &graph->nodes[n];
        status = ddp_exec_pass_forward(exec, n);
        if (status == DDP_OK)
            status = look(exec, node->output, ddp_exec_value(exec, node->output), DDP_SCAN_OUTPUT,
                          node->op->name, scan);
    }
    const struct ddp_graph_plan *plan = ddp_exec_plan(exec);
    for (int i = 0; status == DDP_OK && i < plan->backward_count && !scan->kind; i++) {
        const int pass = plan->backward[i];
        status = ddp_exec_pass_backward(exec, pass);
        if (status == DDP_OK && pass >= 0 && graph->nodes[pass].op->loss_in_backward)
            status = look(exec, graph->nodes[pass].output, ddp_exec_gradients(exec),
                          DDP_SCAN_OUTPUT, graph->nodes[pass].op->name, scan);
        if (status == DDP_OK && !scan->kind && pass >= 0 &&
            graph->nodes[pass].output->needs_gradient)
            status = look_at_gradients(exec, &graph->nodes[pass], scan);
    }
    return status;
}

void ddp_scan_describe(const struct ddp_scan *scan, char *text, size_t size)
{
    static const char *const kinds[] = {
        [DDP_SCAN_NOTHING] = "nothing",          [DDP_SCAN_INPUT] = "the input",
        [DDP_SCAN_WEIGHT] = "the weights",       [DDP_SCAN_OUTPUT] = "the output",
        [DDP_SCAN_GRADIENT] = "the gradient of",
    };
    char operation[96] = "";
    if (scan->operation)
        snprintf(operation, sizeof operation, "%s %s",
                 scan->kind == DDP_SCAN_OUTPUT ? " of" : ", from", scan->operation);
    if (scan->kind == DDP_SCAN_OUTPUT)
        snprintf(text, size, "%s%s, tensor %s", kinds[scan->kind], operation, scan->tensor);
    else
        snprintf(text, size, "%s %s%s", kinds[scan->kind], scan->tensor, operation);
    const size_t used = strlen(text);
    snprintf(text + used, size - used,
             " (%" PRId64 " of %" PRId64 " values, value %" PRId64 " is %g)", scan->bad_count,
             scan->count, scan->first, isnan(scan->value) ? NAN : (double)scan->value);
}
