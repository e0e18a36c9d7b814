/* SPDX-License-Identifier: MIT
 *
 * A model as a list of coarse operations on tensors, built once for a fixed shard shape. Building
 * order is execution order; backward runs it in reverse. The graph holds shapes only: exec.h gives
 * it memory on a device.
 *
 * Two tensors are marked: the output (logits) and the loss. Operations after the output form the
 * loss part, which DataParallel runs on its master.
 *
 * Errors while building are remembered: builders return NULL once one has failed, and
 * ddp_graph_finish() returns the status, so a model is a page of straight code. */
#ifndef DDP_GRAPH_GRAPH_H
#define DDP_GRAPH_GRAPH_H

#include "ddp.h"

#include "core/rng.h"
#include "kernels/linear.h"

#define DDP_TENSOR_DIMS 4

typedef struct ddp_graph ddp_graph;
typedef struct ddp_tensor ddp_tensor;

enum ddp_init_kind {
    DDP_INIT_ZEROS,
    DDP_INIT_ONES,
    DDP_INIT_LINEAR, /* uniform in +-1/sqrt(fan_in), as torch.nn.Linear and Conv2d draw their weight
                        and bias */
    DDP_INIT_NORMAL, /* mean 0, deviation std */
};

struct ddp_init {
    enum ddp_init_kind kind;
    int64_t fan_in; /* DDP_INIT_LINEAR: inputs of one output */
    double std;     /* DDP_INIT_NORMAL */
};

enum ddp_status ddp_graph_create(ddp_graph **graph);

/* In what matrix products and convolutions take their operands, before they are built: DDP_F32 (the
 * default) or DDP_BF16. They add up in float32 either way, and all tensors stay float32. */
void ddp_graph_set_compute(ddp_graph *graph, enum ddp_dtype compute);

void ddp_graph_destroy(ddp_graph *graph); /* with its tensors */

/* Tensors. Names are copied. The dims are those of one shard; the first is the rows of the shard.
 */
ddp_tensor *ddp_graph_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype, int dim_count,
                            const int64_t *dims);
/* Float32. Parameters draw their initial values in the order in which they are made. */
ddp_tensor *ddp_graph_parameter(ddp_graph *graph, const char *name, int dim_count,
                                const int64_t *dims, struct ddp_init init);
/* (count) float32 that is saved with the parameters but not learned: an operation writes what it
 * saw in a shard, and after each step the value moves towards the mean over the step's shards by
 * DDP_STATISTIC_MOMENTUM. */
ddp_tensor *ddp_graph_statistic(ddp_graph *graph, const char *name, int64_t count,
                                enum ddp_init_kind init);
#define DDP_STATISTIC_MOMENTUM 0.1f

/* The same numbers in another shape; no copy. One dimension may be -1: what is left. */
ddp_tensor *ddp_graph_reshape(ddp_graph *graph, ddp_tensor *x, int dim_count, const int64_t *dims);

/* The dimensions of a tensor, DDP_TENSOR_DIMS of them, 0 beyond the last; all 0 for NULL. */
const int64_t *ddp_graph_dims(const ddp_tensor *tensor);

/* Operations. Each gives a new tensor; shapes are checked. A tensor may be read by several: its
 * gradient is their sum. */

/* (...,C) x (O,C)^T + (O) -> (...,O); bias may be NULL. */
ddp_tensor *ddp_graph_linear(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight, ddp_tensor *bias,
                             enum ddp_activation activation);
/* (...,V) float32 and (...) int32 -> (1): the mean over rows. */
ddp_tensor *ddp_graph_softmax_cross_entropy(ddp_graph *graph, ddp_tensor *logits,
                                            ddp_tensor *labels);
/* (B,T) int32, (V,C), (P,C) -> (B,T,C): rows of wte by token plus rows of wpe by place; wpe may be
 * NULL. */
ddp_tensor *ddp_graph_embedding(ddp_graph *graph, ddp_tensor *tokens, ddp_tensor *wte,
                                ddp_tensor *wpe);
/* (B,T,3C) -> (B,T,C): causal attention of several heads on packed queries, keys and values. */
ddp_tensor *ddp_graph_attention(ddp_graph *graph, ddp_tensor *qkv, int64_t heads);
/* The sum of two tensors of one shape. */
ddp_tensor *ddp_graph_add(ddp_graph *graph, ddp_tensor *a, ddp_tensor *b);
/* Zeroes elements with this probability in training, divides the others by what is left of 1; 0:
 * nothing at all. */
ddp_tensor *ddp_graph_dropout(ddp_graph *graph, ddp_tensor *x, double probability);
/* Any float32 -> (1). */
ddp_tensor *ddp_graph_sum(ddp_graph *graph, ddp_tensor *x);

/* A whole torch.nn.Linear: makes "NAME.weight" (out,C) and, with_bias, "NAME.bias" (out). */
ddp_tensor *ddp_graph_linear_layer(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out,
                                   bool with_bias, enum ddp_activation activation);

/* Ends building: marks output and loss, lays out parameters, plans nothing yet.
 * DDP_ERR_UNSUPPORTED: parameters in the loss part. */
enum ddp_status ddp_graph_finish(ddp_graph *graph, ddp_tensor *output, ddp_tensor *loss);

/* Parameters and statistics, in the order in which they were made. */
struct ddp_parameter {
    const char *name;
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    int64_t count;  /* elements */
    int64_t offset; /* elements from the start of the flat array, a multiple of DDP_FLAT_ALIGN */
    bool statistic; /* not learned */
    struct ddp_init init;
};

/* Parameters and gradients are one flat array each, with equal offsets. Its first DDP_FLAT_ALIGN
 * elements are no parameters: element 0 of the gradients is the loss, so that it is summed over
 * shards with them. Then come the statistics: among the weights their running values, among the
 * gradients what was seen in a shard. Parameters follow in the order in which backward finishes
 * their gradients. All are aligned; gaps are zero. */
#define DDP_FLAT_ALIGN 16

/* The element after a parameter and the gap behind it. */
static inline int64_t ddp_parameter_end(const struct ddp_parameter *parameter)
{
    return parameter->offset +
           (parameter->count + DDP_FLAT_ALIGN - 1) / DDP_FLAT_ALIGN * DDP_FLAT_ALIGN;
}

int ddp_graph_parameter_count(const ddp_graph *graph);
const struct ddp_parameter *ddp_graph_parameter_at(const ddp_graph *graph, int index);
int64_t ddp_graph_element_count(const ddp_graph *graph); /* of parameters alone */
int64_t ddp_graph_flat_count(const ddp_graph *graph);    /* of the flat array */
/* Elements of the statistics, gaps included: they begin at DDP_FLAT_ALIGN, and parameters where
 * they end. */
int64_t ddp_graph_statistics_count(const ddp_graph *graph);
/* Floating-point operations of forward and backward over one shard. */
double ddp_graph_flops(const ddp_graph *graph);

/* Fills a flat array of weights with initial values drawn from the generator. */
void ddp_graph_init_parameters(const ddp_graph *graph, struct ddp_rng *rng, float *flat);

#endif
