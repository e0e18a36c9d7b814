/* SPDX-License-Identifier: MIT
 *
 * One of several int32 rows of each sample: input x (B,N,T), output (B,T), a copy. Tokens and what
 * belongs to them come in one sample. */
#include "config.h"

#include "graph/internal.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0];
    const int64_t index = *(const int64_t *)node->attributes;
    const size_t bytes = (size_t)x->dims[2] * ddp_dtype_bytes(DDP_I32);
    const char *from = ddp_exec_value(exec, x);
    char *to = ddp_exec_value(exec, node->output);
    enum ddp_status status = DDP_OK;
    for (int64_t b = 0; status == DDP_OK && b < x->dims[0]; b++)
        status = ddp_device_copy(ddp_exec_device(exec), to + (size_t)b * bytes,
                                 from + (size_t)(b * x->dims[1] + index) * bytes, bytes);
    return status;
}

static const struct ddp_op selection = {
    .name = "select",
    .is_int32 = true,
    .forward = forward,
};

ddp_tensor *ddp_graph_select(ddp_graph *graph, ddp_tensor *x, int64_t index)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dim_count != 3 || x->dtype != DDP_I32 || index < 0 || index >= x->dims[1])
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "select: %s must be (B,N,T) int32 with N above %lld", x->name,
                                (long long)index);
    const struct node node = {.op = &selection, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, &index, sizeof index, 2,
                              (int64_t[]){x->dims[0], x->dims[2]});
}
