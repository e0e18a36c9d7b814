/* SPDX-License-Identifier: MIT
 *
 * The graph's classification loss: inputs logits (...,V), labels (...). In training
 * forward already writes the gradient of the logits, mostly over them: nothing is left for
 * backward. */
#include "config.h"

#include "graph/internal.h"
#include "kernels/softmax_cross_entropy.h"

static enum ddp_status forward(ddp_exec *exec, const struct node *node)
{
    const ddp_tensor *logits = node->inputs[0];
    float *loss = ddp_exec_value(exec, node->output);
    struct ddp_softmax_cross_entropy args = {
        .rows = ddp_tensor_rows(logits),
        .classes = logits->dims[logits->dim_count - 1],
        .divisor = ddp_tensor_rows(logits),
        .stride = logits->pitch,
        .dtype = logits->dtype,
        .logits = ddp_exec_value(exec, logits),
        .labels = ddp_exec_value(exec, node->inputs[1]),
        .loss = loss,
        .uncounted = loss + 1,
        .dlogits = ddp_exec_gradient(exec, logits),
        .dloss = ddp_exec_loss_gradient(exec),
        .soft = ddp_exec_soft_labels(exec),
        .predictions = ddp_exec_predictions(exec),
    };
    return ddp_exec_kernels(exec)->softmax_cross_entropy(&args, ddp_exec_stream(exec));
}

static const struct ddp_op softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .gradient_in_forward = true,
    .takes_pitch = true,
    .is_float32 = true,
    .labels = 1,
    .takes_soft_labels = true,
    .forward = forward,
};

ddp_tensor *ddp_graph_softmax_cross_entropy(ddp_graph *graph, ddp_tensor *logits,
                                            ddp_tensor *labels)
{
    if (graph->status != DDP_OK || !logits || !labels)
        return NULL;
    if (labels->count != ddp_tensor_rows(logits) || logits->dtype != graph->activations ||
        labels->dtype != DDP_I32 || ddp_tensor_base(logits)->kind != TENSOR_ACTIVATION)
        return ddp_graph_reject(graph, DDP_ERR_INVALID,
                                "softmax_cross_entropy: %s must be (...,V) and %s int32, one for "
                                "each row",
                                logits->name, labels->name);
    struct node node = {.op = &softmax_cross_entropy, .inputs = {logits, labels}, .input_count = 2};
    return ddp_graph_add_node(graph, &node, NULL, 0, 1, (int64_t[]){1});
}
