/* SPDX-License-Identifier: MIT
 *
 * The sums that the workers of a machine may form before they are sent to others, so that the sum
 * over all ranks has the bits of the one tree of kernels/reduce.h: those of the largest subtrees
 * that lie within the machine's ranks. Two machines of 3: [0 1] [2] and [3] [4 5]. A machine with a
 * power of two of them has one; none has more than 2 log2 of them. */
#ifndef DDP_COMM_NODES_ORDER_H
#define DDP_COMM_NODES_ORDER_H

#include "ddp.h"

#include <stddef.h>

#define NODES_PARTIALS 12 /* the most that a machine of DDP_REDUCE_MAX ranks has */

struct nodes_range {
    int begin, end; /* ranks */
};

struct nodes_order {
    int size;                    /* ranks */
    int count;                   /* of all partial sums */
    int most;                    /* of one machine */
    int *first;                  /* (nodes + 1): the first partial sum of each machine */
    struct nodes_range *partial; /* (count) by rank */
    char (*scratch)[2][8192];    /* by depth of the tree */
};

/* For `nodes` machines of `node_size` ranks. DDP_ERR_MEMORY. */
enum ddp_status nodes_order_make(struct nodes_order *order, int nodes, int node_size);
void nodes_order_free(struct nodes_order *order); /* takes a zeroed one */

static inline int nodes_order_count(const struct nodes_order *order, int node)
{
    return order->first[node + 1] - order->first[node];
}

/* destination = the sum of `count` arrays of n elements. */
enum ddp_status nodes_order_add(const void *const *sources, int count, void *destination, size_t n,
                                enum ddp_dtype dtype, enum ddp_redop op);

/* destination = the sum over all ranks.
 *   partials     (count) each (n); one may be the destination, no other overlap */
enum ddp_status nodes_order_sum(const struct nodes_order *order, const void *const *partials,
                                void *destination, size_t n, enum ddp_dtype dtype,
                                enum ddp_redop op);

#endif
