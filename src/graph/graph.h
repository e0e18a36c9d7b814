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

enum ddp_init {
    DDP_INIT_ZEROS,
    DDP_INIT_ONES,
    DDP_INIT_LINEAR, /* uniform in +-1/sqrt(fan_in), as torch.nn.Linear draws its weight and bias */
};

enum ddp_status ddp_graph_create(ddp_graph **graph);
void ddp_graph_destroy(ddp_graph *graph); /* with its tensors */

/* Tensors. Names are copied. The dims are those of one shard; the first is the rows of the shard.
 */
ddp_tensor *ddp_graph_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype, int dim_count,
                            const int64_t *dims);
/* Float32. Parameters draw their initial values in the order in which they are made.
 *   fan_in  for DDP_INIT_LINEAR: the inputs of the layer */
ddp_tensor *ddp_graph_parameter(ddp_graph *graph, const char *name, int dim_count,
                                const int64_t *dims, enum ddp_init init, int64_t fan_in);

/* Operations. Each gives a new tensor; shapes are checked. */

/* (B,C) x (O,C)^T + (O) -> (B,O); bias may be NULL. */
ddp_tensor *ddp_graph_linear(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight, ddp_tensor *bias,
                             enum ddp_activation activation);
/* (B,V) float32 and (B) int32 -> (1): the mean over rows. */
ddp_tensor *ddp_graph_softmax_cross_entropy(ddp_graph *graph, ddp_tensor *logits,
                                            ddp_tensor *labels);
/* Any float32 -> (1). */
ddp_tensor *ddp_graph_sum(ddp_graph *graph, ddp_tensor *x);

/* A whole torch.nn.Linear: makes "NAME.weight" (out,C) and, with_bias, "NAME.bias" (out). */
ddp_tensor *ddp_graph_linear_layer(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out,
                                   bool with_bias, enum ddp_activation activation);

/* Ends building: marks output and loss, lays out parameters, plans nothing yet.
 * DDP_ERR_UNSUPPORTED: an activation or parameter that is used twice, which these operations'
 * gradients do not add up. */
enum ddp_status ddp_graph_finish(ddp_graph *graph, ddp_tensor *output, ddp_tensor *loss);

/* Parameters, in the order in which they were made. */
struct ddp_parameter {
    const char *name;
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    int64_t count;  /* elements */
    int64_t offset; /* elements from the start of the flat array, a multiple of DDP_FLAT_ALIGN */
    enum ddp_init init;
    int64_t fan_in;
};

/* Parameters and gradients are one flat array each, with equal offsets. Its first DDP_FLAT_ALIGN
 * elements are no parameters: element 0 of the gradients is the loss, so that it is summed over
 * shards with them. Parameters follow in the order in which backward finishes their gradients, each
 * aligned; gaps are zero. */
#define DDP_FLAT_ALIGN 16

int ddp_graph_parameter_count(const ddp_graph *graph);
const struct ddp_parameter *ddp_graph_parameter_at(const ddp_graph *graph, int index);
int64_t ddp_graph_element_count(const ddp_graph *graph); /* of parameters alone */
int64_t ddp_graph_flat_count(const ddp_graph *graph);    /* of the flat array */

/* Fills a flat array of weights with initial values drawn from the generator. */
void ddp_graph_init_parameters(const ddp_graph *graph, struct ddp_rng *rng, float *flat);

#endif
