/* SPDX-License-Identifier: MIT
 *
 * What the files of a graph (graph.c, scan.c, arena.c, exec.c, ...) and the operations (op_*.c)
 * share. A new operation is one file that ends in one const struct ddp_op; its builder is in
 * ddp.h. */
#ifndef DDP_GRAPH_INTERNAL_H
#define DDP_GRAPH_INTERNAL_H

#include "graph/graph.h"

#include "graph/exec.h"

#define NODE_INPUTS 6

/* A constant is numbers that the graph has from the start, in the arena of each exec. */
enum tensor_kind {
    TENSOR_INPUT,
    TENSOR_PARAMETER,
    TENSOR_FROZEN,
    TENSOR_CONSTANT,
    TENSOR_ACTIVATION
};

struct ddp_tensor {
    ddp_graph *graph;
    char *name;
    enum tensor_kind kind;
    enum ddp_dtype dtype;
    int id; /* index in graph->tensors */
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    int64_t count;       /* elements */
    int64_t pitch;       /* from one row of the last dimension to the next; larger than it only
                            where the graph was finished with logits that it pads */
    int producer;        /* node that makes it, or -1 */
    ddp_tensor *base;    /* a view shares this tensor's memory; else NULL */
    int index;           /* among the inputs, the parameters, or the frozen ones */
    ddp_tensor *bounds;  /* its first rows are texts without gaps, which begin at these (B+1); what
                            follows the last bound is not there. NULL: all rows are */
    bool needs_gradient; /* a learned parameter lies before it */
    float *values;       /* of a constant, on the host; the whole graph's, not a stage's */
    /* Of a parameter in a stage: other stages of the worker read it too. */
    bool adds;       /* a later one, whose backward has written the gradient */
    bool stays_open; /* an earlier one, whose backward adds to the gradient */

    /* Of the readers; kept for the base of a view. */
    int first_reader, last_reader; /* nodes; -1: none */
    int reader_count;
};

struct node {
    const struct ddp_op *op;
    ddp_tensor *inputs[NODE_INPUTS]; /* NULL: an optional input that is not there */
    int input_count;
    ddp_tensor *output;
    void *attributes; /* the operation's own, freed with free() */
    int block;        /* that it belongs to, from 0; -1: none */

    /* What backward needs, for the memory plan. */
    unsigned keeps_inputs;  /* bit i: reads the value of inputs[i] again */
    unsigned reads_bf16;    /* bit i: of inputs[i], a parameter, it reads the bf16 copy alone */
    bool keeps_output;      /* reads the value of its output again */
    bool can_pad;           /* it makes more columns from parameters with more rows */
    bool overwrites_dy;     /* leaves something else where the gradient of its output was */
    size_t saved_bytes;     /* what forward keeps for backward besides tensors */
    bool saves_once;        /* ... and does not make again when it is recomputed */
    size_t forward_scratch; /* bytes that are free to use while it runs */
    size_t backward_scratch;
};

struct ddp_op {
    const char *name;
    bool gradient_in_forward; /* in training, forward writes the gradient of inputs[0] already; it
                                 must be the only reader of that tensor */
    bool joins;    /* its output's gradient is the gradient of inputs 0 and 1, unchanged: memory may
                      be shared if nothing comes in between */
    bool in_place; /* elementwise: the output may take the place of inputs[0] or, joins, inputs[1]
                    */
    bool is_cast;  /* its output has the name of inputs[0] */
    bool turns_dy; /* backward is elementwise: the gradient of inputs[0] may take the place of the
                      output's, and then overwrites_dy */
    bool turns_inputs; /* likewise: the gradient of an input may take the place of its value */
    const char *sum_and_norm; /* of a norm of the rows of inputs[0], which may be done with the sum
                                 that makes those: what the two are called. NULL: not a norm */
    bool takes_pitch;         /* rows of inputs[0] may lie apart; its gradient is zero in between */
    bool multiplies;          /* forward and backward are products of matrices */
    bool costs_little;        /* forward is quick beside a product of as many elements */
    bool reads_blocks;        /* frozen matrices may lie in blocks */
    bool is_float32; /* its output is float32 whatever the graph's activations are: a loss */
    bool is_int32;   /* ... int32: what it copies */
    bool packs;      /* rows may be packed, and those that are there are all it computes */
    bool unpacks;    /* ... and its output is not */
    int labels; /* a loss: inputs[labels] are its labels, of which DDP_LABEL_NONE do not count, and
                   it writes two numbers: the loss, divided by all its labels, and how many of them
                   do not count. 0: a loss that leaves out nothing, or no loss */
    bool takes_soft_labels; /* a loss: ddp_exec_soft_labels() */
    bool loss_in_backward;  /* a loss with parameters: an exec that trains computes it in backward
                              alone, with all that is made of it */
    enum ddp_status (*forward)(ddp_exec *exec, const struct node *node);
    /* Does its forward and that of the next node in one pass, where the graph has planned it
     * (ddp_graph_fuses()) and the device can; NULL: it cannot. */
    enum ddp_status (*forward_fused)(ddp_exec *exec, const struct node *node);
    enum ddp_status (*backward)(ddp_exec *exec,
                                const struct node *node); /* NULL: nothing is left to do */
    double (*flops)(const struct node *node); /* floating-point operations of forward, a multiply
                                                 and an add are two; NULL: too few to count */
};

struct ddp_graph {
    ddp_tensor **tensors;
    int tensor_count, tensor_capacity;
    struct node *nodes;
    int node_count, node_capacity;
    struct ddp_parameter *parameters;
    int parameter_count, parameter_capacity;
    struct ddp_parameter *frozen;
    int frozen_count, frozen_capacity;
    size_t frozen_f32_bytes, frozen_bytes; /* those of float32 come first */
    bool freezes;                          /* parameters are frozen ones, of: */
    enum ddp_dtype frozen_dtype;
    bool holds; /* parameters are held ones */
    int input_count;
    struct expected_input {
        const char *what; /* NULL: anything */
        enum ddp_dtype dtype;
        int64_t rows, values; /* of a row */
    } expected[2];
    int dropout_count;
    int block_count, block; /* the block that is being built; -1: none */
    bool recompute;
    const char *own_operation; /* of the program's, which runs on the CPU alone; NULL: none */
    bool encodes;              /* some of its operations are on the CPU alone: those of encoders */
    int64_t cache_width;       /* elements of the keys and values of one position */
    enum ddp_dtype compute, activations;
    struct ddp_graph_offers offers;
    char *description, *data;
    ddp_tensor *output, *loss;      /* NULL: a stage that does not end the graph */
    int network_count;              /* nodes of the network part: those of the loss follow */
    struct ddp_objective objective; /* of preferences, or none */
    int64_t target_count; /* labels of a shard, of which some may not count; 0: no such loss */
    int64_t element_count, statistics_count, flat_count;
    enum ddp_status status; /* the first error while building */
    /* Of a stage: attributes of its nodes and all names are those of the whole graph. */
    bool is_stage;
    int *sources; /* by parameter: its number there */
    struct ddp_message_place *places;
};

/* Where tensors begin in the messages that pass a cut, and how large these are. */
struct ddp_message_place {
    size_t value, gradient;
};
extern const struct ddp_op ddp_graph_receive, ddp_graph_send;

/* Give the parameters their offsets: statistics, then what backward of this graph finishes, in that
 * order. Of stages, in the order of backward, each continues where the one before ended. */
void ddp_graph_place_statistics(ddp_graph *graph);
void ddp_graph_place_learned(ddp_graph *graph);

/* The classes that a layer with this many has with its padding, if the graph pads it. */
int64_t ddp_graph_padded(const ddp_graph *graph, int64_t classes);
/* The scratch that a product with this weight (out,in), learned or frozen, takes in either pass. */
size_t ddp_graph_linear_scratch(const ddp_graph *graph, const ddp_tensor *weight, int64_t rows,
                                int64_t in, int64_t out);

/* Makes zeros follow a parameter, up to this number of classes. */
void ddp_graph_pad_parameter(ddp_graph *graph, const ddp_tensor *parameter, int64_t classes);

/* Notes that node `number` reads this tensor. */
void ddp_graph_note_reader(ddp_tensor *tensor, int number);

/* Float32 numbers that operations read and that are not learned; NULL after an error. Its values,
 * zeros at first, are for the caller to fill in. */
ddp_tensor *ddp_graph_constant(ddp_graph *graph, const char *name, int dim_count,
                               const int64_t *dims);

/* Adds an operation with an output of the given shape; NULL after an error.
 *   node  input_count, inputs and what backward needs are set
 *   attributes, attributes_bytes  copied; NULL: none */
ddp_tensor *ddp_graph_add_node(ddp_graph *graph, const struct node *node, const void *attributes,
                               size_t attributes_bytes, int dim_count, const int64_t *dims);

/* The bounds of a node's packed inputs, which are packed alike; NULL: none is packed. Where the
 * operation takes such they become an input more, which backward needs too. */
static inline ddp_tensor *ddp_node_take_bounds(struct node *node)
{
    ddp_tensor *bounds = NULL;
    for (int i = 0; i < node->input_count && !bounds; i++)
        bounds = node->inputs[i] ? node->inputs[i]->bounds : NULL;
    if (bounds && (node->op->packs || node->op->unpacks)) {
        node->keeps_inputs |= 1u << node->input_count;
        node->inputs[node->input_count++] = bounds;
    }
    return bounds;
}

/* An input as it comes; ddp_graph_input() casts it to the type of the activations. */
ddp_tensor *ddp_graph_add_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype,
                                int dim_count, const int64_t *dims);

/* The type of a frozen parameter's memory where one of `dtype` was asked for. */
enum ddp_dtype ddp_graph_frozen_dtype(enum ddp_dtype dtype, int dim_count, const int64_t *dims);
/* Gives the frozen parameters their places. */
void ddp_graph_place_frozen(ddp_graph *graph);

/* Whether a layer of this name can be built on x; without a name that is an error. */
bool ddp_graph_layer_begins(ddp_graph *graph, const char *name, const ddp_tensor *x);

/* Remembers and logs an error of building. */
ddp_tensor *ddp_graph_reject(ddp_graph *graph, enum ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* The tensor whose memory a tensor uses: itself, or the base of a view. */
static inline const ddp_tensor *ddp_tensor_base(const ddp_tensor *tensor)
{
    return tensor->base ? tensor->base : tensor;
}

/* Whether it is a parameter, learned or frozen, or a statistic. */
static inline bool ddp_tensor_is_parameter(const ddp_tensor *tensor)
{
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_FROZEN;
}

/* Its entry in the graph's tables. */
static inline struct ddp_parameter *ddp_tensor_parameter(const ddp_graph *graph,
                                                         const ddp_tensor *tensor)
{
    return tensor->kind == TENSOR_FROZEN ? &graph->frozen[tensor->index]
                                         : &graph->parameters[tensor->index];
}

/* The unfrozen parameter that input i of a node is, or has as its base; NULL: there is none. */
static inline const ddp_tensor *ddp_node_parameter(const struct node *node, int i)
{
    const ddp_tensor *input = node->inputs[i] ? ddp_tensor_base(node->inputs[i]) : NULL;
    return input && input->kind == TENSOR_PARAMETER ? input : NULL;
}

/* In memory; gradients of activations are as large. */
static inline size_t ddp_tensor_bytes(const ddp_tensor *tensor)
{
    const int64_t width = tensor->dims[tensor->dim_count - 1];
    return (size_t)(tensor->count / width * tensor->pitch) * ddp_dtype_bytes(tensor->dtype);
}

/* Forward of an add and of the layer norm or RMS norm after it in one pass. */
enum ddp_status ddp_graph_forward_add_norm(ddp_exec *exec, const struct node *sum,
                                           const struct node *norm);

/* Whether node n is a sum whose rows node n + 1 normalises, to be done in one pass. The step of n
 * then makes what n + 1 makes. */
bool ddp_graph_fuses(const ddp_graph *graph, int n);

/* Elements of all dimensions but the last: the rows of a matrix whose rows are contiguous; packed,
 * the most that there may be. */
static inline int64_t ddp_tensor_rows(const ddp_tensor *tensor)
{
    return tensor->count / tensor->dims[tensor->dim_count - 1];
}

/* Something in the arena, and the first and last step at which it is needed. Forward of node i is
 * step i; the steps of backward follow. */
struct placement {
    int first, last;
    size_t bytes;
    size_t offset; /* from the start of the arena */
};

/* Where something lies, by index of a plan's items; -1: nowhere. */
struct lives {
    int forward; /* in forward, and after it what is kept */
    int again;   /* from its recomputation on; -1: it is not recomputed */
};

/* The memory plan. Several tensors may share an item; two items overlap in memory only if they do
 * not overlap in time. */
struct ddp_graph_plan {
    struct placement *items;
    int item_count;
    size_t bytes;
    struct lives *value;           /* by tensor id */
    int *gradient;                 /* by tensor id */
    struct lives *saved, *scratch; /* by node */
    int *backward_scratch;         /* by node */
    /* The passes of backward in their order: node n's backward, or ~n: its forward again. */
    int *backward;
    int backward_count;
};

/* Plans for an exec of these parts. Freed with ddp_graph_plan_free(), which takes a zeroed plan. */
enum ddp_status ddp_graph_plan_make(const ddp_graph *graph, unsigned parts,
                                    struct ddp_graph_plan *plan);
void ddp_graph_plan_free(struct ddp_graph_plan *plan);

/* --- walk.c: what a pass of plan->backward does to the gradients of parameters --- */

/* Is there nothing to do in it? */
static inline bool ddp_graph_passes_over(const struct node *node, int pass)
{
    return pass >= 0 && (!node->op->backward || !node->output->needs_gradient);
}

/* Calls `reading` (may be NULL) if an operation is in a group.
 *   backward  for a pass of plan->backward, else forward of node `pass` */
enum ddp_status ddp_graph_announce_reading(const ddp_graph *graph, int pass, bool backward,
                                           ddp_exec_reading *reading, void *arg);

/* Calls `before` (may be NULL) for each gradient that it writes. */
enum ddp_status ddp_graph_announce(const ddp_graph *graph, int pass, ddp_exec_before *before,
                                   void *arg);

/* How far the flat gradients are final after a node's backward: it was the last to add to the
 * parameters that no earlier operation reads. -1: there is none. */
int64_t ddp_graph_ready_end(const ddp_graph *graph, int number);

/* The rows of a tensor that are there, and their elements. */
int64_t ddp_exec_rows(const ddp_exec *exec, const ddp_tensor *tensor);
int64_t ddp_exec_elements(const ddp_exec *exec, const ddp_tensor *tensor);

/* For operations: a tensor's value and gradient on the exec's device, and what to call. */
void *ddp_exec_value(const ddp_exec *exec, const ddp_tensor *tensor); /* NULL for a NULL tensor */
/* The same of a parameter that may be frozen in bf16; NULL then. */
const float *ddp_exec_value_f32(const ddp_exec *exec, const ddp_tensor *tensor);
const float *ddp_exec_loss_gradient(const ddp_exec *exec); /* on the device */
/* The bf16 copy of a parameter, or its values where it is frozen in bf16; NULL: there is none. */
const uint16_t *ddp_exec_value_bf16(const ddp_exec *exec, const ddp_tensor *tensor);
/* Float32 of a parameter or the loss, else of the tensor's dtype; NULL: not needed. */
void *ddp_exec_gradient(const ddp_exec *exec, const ddp_tensor *tensor);
/* Whether the gradient of inputs[input] is added to, because a later operation reads it too and its
 * backward is done, or because it is a parameter's and the exec adds; else it is written. */
bool ddp_exec_accumulates(const ddp_exec *exec, const struct node *node, int input);
/* Whether this forward is a recomputation: it leaves statistics alone, and gives the same bits. */
bool ddp_exec_recomputes(const ddp_exec *exec);
/* Whether gradients, statistics and the loss are added to those of other shards. */
bool ddp_exec_adding(const ddp_exec *exec);
/* What a loss in backward writes, or adds to: it begins with the loss and what does not count. */
float *ddp_exec_gradients(const ddp_exec *exec);
/* Runs node n of backward, or recomputes it, as plan->backward has it. */
const struct ddp_graph_plan *ddp_exec_plan(const ddp_exec *exec);
enum ddp_status ddp_exec_pass_forward(ddp_exec *exec, int n);
enum ddp_status ddp_exec_pass_backward(ddp_exec *exec, int pass);
void *ddp_exec_saved(const ddp_exec *exec, const struct node *node);
void *ddp_exec_forward_scratch(const ddp_exec *exec, const struct node *node);
void *ddp_exec_backward_scratch(const ddp_exec *exec, const struct node *node);
/* Shards whose sums are added up; 1: only this one's. If there are more, adds up `count` sums over
 * them; device memory. */
int ddp_exec_sync_shards(const ddp_exec *exec);
enum ddp_status ddp_exec_sync_sums(ddp_exec *exec, double *sums, size_t count);
int32_t *ddp_exec_predictions(const ddp_exec *exec); /* NULL: not needed */
bool ddp_exec_trains(const ddp_exec *exec);
const struct ddp_exec_position *ddp_exec_position(const ddp_exec *exec);
const uint32_t *ddp_exec_place(const ddp_exec *exec);              /* as kernels/dropout.h has it */
const struct ddp_exec_cache *ddp_exec_cache(const ddp_exec *exec); /* NULL: none */
const struct ddp_exec_messages *ddp_exec_messages(const ddp_exec *exec);
unsigned ddp_exec_parts(const ddp_exec *exec);
const void *ddp_exec_input(const ddp_exec *exec, int input); /* NULL: not bound */
ddp_device *ddp_exec_device(const ddp_exec *exec);
const struct ddp_kernels *ddp_exec_kernels(const ddp_exec *exec);
void *ddp_exec_stream(const ddp_exec *exec);

#endif
