/* SPDX-License-Identifier: MIT
 *
 * What graph.c, plan.c, exec.c and the operations (op_*.c) share. A new operation is one file that
 * ends in one const struct ddp_op and offers one builder in graph.h. */
#ifndef DDP_GRAPH_INTERNAL_H
#define DDP_GRAPH_INTERNAL_H

#include "graph/graph.h"

#include "graph/exec.h"

#define NODE_INPUTS 4

enum tensor_kind { TENSOR_INPUT, TENSOR_PARAMETER, TENSOR_ACTIVATION };

struct ddp_tensor {
    ddp_graph *graph;
    char *name;
    enum tensor_kind kind;
    enum ddp_dtype dtype;
    int id; /* index in graph->tensors */
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    int64_t count; /* elements */
    int producer;  /* node that makes it, or -1 */
    int consumer;  /* node that reads it, or -1 */
    int index;     /* among the inputs, or among the parameters */
};

struct node {
    const struct ddp_op *op;
    ddp_tensor *inputs[NODE_INPUTS]; /* NULL: an optional input that is not there */
    int input_count;
    ddp_tensor *output;
    enum ddp_activation activation; /* linear */
};

struct ddp_op {
    const char *name;
    bool backward_reads_input;  /* needs the values of inputs[0] again */
    bool backward_reads_output; /* needs its own output again (when the node has an activation) */
    bool gradient_in_forward;   /* in training, forward writes the gradient of inputs[0] already */
    enum ddp_status (*forward)(ddp_exec *exec, const struct node *node);
    enum ddp_status (*backward)(ddp_exec *exec,
                                const struct node *node); /* NULL: nothing is left to do */
};

struct ddp_graph {
    ddp_tensor **tensors;
    int tensor_count, tensor_capacity;
    struct node *nodes;
    int node_count, node_capacity;
    struct ddp_parameter *parameters;
    int parameter_count, parameter_capacity;
    int input_count;
    ddp_tensor *output, *loss;
    int64_t element_count, flat_count;
    enum ddp_status status; /* the first error while building */
};

/* Adds an operation with an output of the given shape; NULL after an error. */
ddp_tensor *ddp_graph_add_node(ddp_graph *graph, const struct node *node, int dim_count,
                               const int64_t *dims);

/* Remembers and logs an error of building. */
ddp_tensor *ddp_graph_reject(ddp_graph *graph, enum ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Where an activation or its gradient lies in the arena. */
struct placement {
    int tensor;      /* id */
    bool gradient;   /* of the tensor, not its value */
    int first, last; /* steps between which it is needed, both included */
    size_t bytes;
    size_t offset; /* from the start of the arena */
};

/* Does the gradient of this activation take the place of its value? It does when the reader writes
 * it in forward already and backward of the producer does not need the value again. */
bool ddp_graph_gradient_in_place(const ddp_graph *graph, const ddp_tensor *tensor);

/* Places every activation and gradient that the parts of an exec need; *items is freed with free().
 * Two placements overlap in memory only if they do not in time. */
enum ddp_status ddp_graph_plan(const ddp_graph *graph, unsigned parts, struct placement **items,
                               int *item_count, size_t *arena_bytes);

/* For operations: where a tensor's value and gradient lie on the exec's device, and what to call.
 */
void *ddp_exec_value(const ddp_exec *exec, const ddp_tensor *tensor); /* NULL for a NULL tensor */
float *ddp_exec_gradient(const ddp_exec *exec,
                         const ddp_tensor *tensor);  /* NULL: nobody needs it */
int32_t *ddp_exec_predictions(const ddp_exec *exec); /* NULL: nobody needs them */
bool ddp_exec_trains(const ddp_exec *exec);
const struct ddp_kernels *ddp_exec_kernels(const ddp_exec *exec);
void *ddp_exec_stream(const ddp_exec *exec);

#endif
