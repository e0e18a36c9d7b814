/* SPDX-License-Identifier: MIT
 *
 * What a stage's first and last operations do: a tensor that another stage makes arrives in a
 * message, and one that another stage reads leaves in one. Their gradients go the other way. The
 * sender is a tensor's last reader here, so its backward writes the gradient that readers in other
 * stages have left, and those of this stage add to it: the order of the whole graph. */
#include "config.h"

#include "graph/internal.h"
#include "graph/stage.h"

#include <assert.h>

static const struct ddp_message_place *place_of(const struct node *node)
{
    return node->attributes;
}

static enum ddp_status receive_forward(ddp_exec *exec, const struct node *node)
{
    const char *message = ddp_exec_messages(exec)->values_in;
    assert(message);
    return ddp_device_copy(ddp_exec_device(exec), ddp_exec_value(exec, node->output),
                           message + place_of(node)->value, ddp_tensor_bytes(node->output));
}

static enum ddp_status receive_backward(ddp_exec *exec, const struct node *node)
{
    char *message = ddp_exec_messages(exec)->gradients_out;
    assert(message);
    return ddp_device_copy(ddp_exec_device(exec), message + place_of(node)->gradient,
                           ddp_exec_gradient(exec, node->output), ddp_tensor_bytes(node->output));
}

const struct ddp_op ddp_graph_receive = {
    .name = "receive",
    .forward = receive_forward,
    .backward = receive_backward,
};

static enum ddp_status send_forward(ddp_exec *exec, const struct node *node)
{
    char *message = ddp_exec_messages(exec)->values_out;
    assert(message);
    return ddp_device_copy(ddp_exec_device(exec), message + place_of(node)->value,
                           ddp_exec_value(exec, node->inputs[0]),
                           ddp_tensor_bytes(node->inputs[0]));
}

static enum ddp_status send_backward(ddp_exec *exec, const struct node *node)
{
    const char *message = ddp_exec_messages(exec)->gradients_in;
    assert(message && !ddp_exec_accumulates(exec, node, 0));
    return ddp_device_copy(ddp_exec_device(exec), ddp_exec_gradient(exec, node->inputs[0]),
                           message + place_of(node)->gradient, ddp_tensor_bytes(node->inputs[0]));
}

const struct ddp_op ddp_graph_send = {
    .name = "send",
    .forward = send_forward,
    .backward = send_backward,
};
