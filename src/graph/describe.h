/* SPDX-License-Identifier: MIT
 *
 * A graph for people: its operations, what they make and what they cost. */
#ifndef DDP_GRAPH_DESCRIBE_H
#define DDP_GRAPH_DESCRIBE_H

#include "graph/graph.h"

/* Names and dims live as long as the graph. */
struct ddp_operation {
    const char *name, *output; /* its output tensor */
    int dim_count;
    const int64_t *dims;     /* of the output */
    int64_t parameter_count; /* elements that it is the first to read */
    double flops;            /* forward, over one shard */
};

int ddp_graph_operation_count(const ddp_graph *graph);
void ddp_graph_describe(const ddp_graph *graph, int index, struct ddp_operation *operation);

/* The type that products are computed in: DDP_F32, DDP_BF16 or DDP_F16. */
enum ddp_dtype ddp_graph_compute(const ddp_graph *graph);
/* The type of activations in memory: likewise. */
enum ddp_dtype ddp_graph_activations(const ddp_graph *graph);

#endif
