/* SPDX-License-Identifier: MIT
 *
 * The sums that the workers of a machine may form before they are sent to others, so that the sum
 * over all has the bits of the one tree of kernels/reduce.h: those of the largest subtrees within
 * the leaves of the machine's ranks. Two machines of 3 ranks, each a leaf: [0 1] [2] and
 * [3] [4 5]. */
#ifndef DDP_COMM_NODES_ORDER_H
#define DDP_COMM_NODES_ORDER_H

#include "comm/comm.h"
#include "kernels/reduce.h"

struct nodes_order {
    const struct ddp_comm_roots *roots; /* of the ranks; not used when fast */
    int nodes;
    const int *starts; /* (nodes + 1): the first rank of each machine, and the number of all */
    bool fast;         /* machines are the leaves: each has one sum, in an order of its own */
};

/* The partial sums of a machine: their number, and the leaf before which each ends.
 *   ends [out]  (DDP_REDUCE_ROOTS) */
int nodes_order_ends(const struct nodes_order *order, int node, int *ends);
int nodes_order_count(const struct nodes_order *order, int node);
int nodes_order_most(const struct nodes_order *order); /* of one machine */

/* The arrays that the ranks of a machine bring into its partial sums. */
int nodes_order_sources(const struct nodes_order *order, int node);

/* The partial sums of a machine, one behind the other in `destination`.
 *   sources  each (n): those of its first rank, and so on; one may be `destination`, where there is
 *            one sum; no other overlap
 *   rounded  elements at the end, as in kernels/reduce.h */
enum ddp_status nodes_order_add(const struct nodes_order *order, int node,
                                const void *const *sources, void *destination, size_t n,
                                enum ddp_dtype dtype, enum ddp_redop op, size_t rounded);

/* destination = the sum over all ranks.
 *   partials  each (n): those of all machines; one may be the destination, no other overlap */
enum ddp_status nodes_order_sum(const struct nodes_order *order, const void *const *partials,
                                void *destination, size_t n, enum ddp_dtype dtype,
                                enum ddp_redop op, size_t rounded);

#endif
