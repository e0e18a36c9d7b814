/* SPDX-License-Identifier: MIT
 *
 * See nodes_order.h. */
#include "config.h"

#include "comm/nodes_order.h"

/* The first root of a machine; for one beyond the last, the end of all. */
static int first_root(const struct nodes_order *order, int node)
{
    const int rank = order->starts[node];
    return order->fast ? rank : order->roots->first[rank];
}

/* Where the leaves of the roots before this one end. */
static int leaf_of(const struct nodes_order *order, int root)
{
    return order->fast ? root : root ? order->roots->end[root - 1] : 0;
}

int nodes_order_ends(const struct nodes_order *order, int node, int *ends)
{
    if (order->fast) {
        *ends = node + 1;
        return 1;
    }
    return ddp_reduce_run_roots(0, leaf_of(order, order->roots->count),
                                leaf_of(order, first_root(order, node)),
                                leaf_of(order, first_root(order, node + 1)), ends);
}

int nodes_order_count(const struct nodes_order *order, int node)
{
    int ends[DDP_REDUCE_ROOTS];
    return nodes_order_ends(order, node, ends);
}

int nodes_order_most(const struct nodes_order *order)
{
    int most = 0;
    for (int m = 0; m < order->nodes; m++) {
        const int count = nodes_order_count(order, m);
        most = count > most ? count : most;
    }
    return most;
}

int nodes_order_sources(const struct nodes_order *order, int node)
{
    return first_root(order, node + 1) - first_root(order, node);
}

static enum ddp_status add(const void *const *sources, int count, const int *ends,
                           void *destination, size_t n, enum ddp_dtype dtype, enum ddp_redop op,
                           size_t rounded)
{
    const struct ddp_reduce sum = {.source_count = count,
                                   .destination_count = 1,
                                   .sources = sources,
                                   .destinations = &destination,
                                   .count = (int64_t)n,
                                   .dtype = dtype,
                                   .op = op,
                                   .ends = ends,
                                   .rounded = (int64_t)rounded};
    return ddp_reduce(&sum);
}

enum ddp_status nodes_order_add(const struct nodes_order *order, int node,
                                const void *const *sources, void *destination, size_t n,
                                enum ddp_dtype dtype, enum ddp_redop op, size_t rounded)
{
    const size_t bytes = n * ddp_dtype_bytes(dtype);
    const int first = first_root(order, node), end = first_root(order, node + 1);
    int partial_ends[DDP_REDUCE_ROOTS], ends[DDP_REDUCE_LEAVES];
    const int partials = nodes_order_ends(order, node, partial_ends);
    enum ddp_status status = DDP_OK;
    for (int p = 0, root = first; status == DDP_OK && p < partials; p++) {
        const int begin = leaf_of(order, root), from = root;
        while (root < end && (order->fast || leaf_of(order, root + 1) <= partial_ends[p])) {
            ends[root - from] = leaf_of(order, root + 1) - begin;
            root++;
        }
        status = add(sources + (from - first), root - from, ends,
                     (char *)destination + (size_t)p * bytes, n, dtype, op, rounded);
    }
    return status;
}

enum ddp_status nodes_order_sum(const struct nodes_order *order, const void *const *partials,
                                void *destination, size_t n, enum ddp_dtype dtype,
                                enum ddp_redop op, size_t rounded)
{
    int ends[DDP_REDUCE_LEAVES], count = 0;
    for (int m = 0; m < order->nodes; m++)
        count += nodes_order_ends(order, m, ends + count);
    return add(partials, count, ends, destination, n, dtype, op, rounded);
}
