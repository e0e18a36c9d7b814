/* SPDX-License-Identifier: MIT
 *
 * The graph's last position: input x (B,T,C), output (B,1,C). Has no backward: training learns from
 * all positions. */
#include "config.h"

#include "graph/internal.h"

#include <assert.h>

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *x = node->inputs[0];
    const size_t bytes = (size_t)x->dims[2] * ddp_dtype_bytes(x->dtype);
    const char *from = ddp_exec_value(exec, x);
    char *to = ddp_exec_value(exec, node->output);
    enum ddp_status status = DDP_OK;
    assert(!ddp_exec_trains(exec));
    for (int64_t b = 0; status == DDP_OK && b < x->dims[0]; b++)
        status = ddp_device_copy(ddp_exec_device(exec), to + (size_t)b * bytes,
                                 from + (size_t)((b + 1) * x->dims[1] - 1) * bytes, bytes);
    return status;
}

static const struct ddp_op last = {
    .name = "last",
    .forward = forward,
};

ddp_tensor *ddp_graph_last(ddp_graph *graph, ddp_tensor *x)
{
    if (graph->status != DDP_OK || !x)
        return NULL;
    if (x->dim_count != 3)
        return ddp_graph_reject(graph, DDP_ERR_INVALID, "last: %s must be (B,T,C)", x->name);
    if (x->dims[1] == 1)
        return x;
    struct node node = {.op = &last, .inputs = {x}, .input_count = 1};
    return ddp_graph_add_node(graph, &node, NULL, 0, 3, (int64_t[]){x->dims[0], 1, x->dims[2]});
}
