/* SPDX-License-Identifier: MIT
 *
 * See nodes_order.h. */
#include "config.h"

#include "comm/nodes_order.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/reduce.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES sizeof(((struct nodes_order *)0)->scratch[0][0])
#define DEPTH       32 /* of a tree over any number of ranks */

/* --- which --- */

/* The largest subtrees of [begin, end) within the machines' blocks, from the left. */
static void cut(struct nodes_order *order, int node_size, struct nodes_range at)
{
    const int node = at.begin / node_size;
    if (at.end > (node + 1) * node_size) {
        const int middle = ddp_reduce_middle(at.begin, at.end);
        cut(order, node_size, (struct nodes_range){at.begin, middle});
        cut(order, node_size, (struct nodes_range){middle, at.end});
        return;
    }
    order->partial[order->count++] = at;
    order->first[node + 1] = order->count;
    const int here = order->count - order->first[node];
    order->most = here > order->most ? here : order->most;
}

enum ddp_status nodes_order_make(struct nodes_order *order, int nodes, int node_size)
{
    const size_t size = (size_t)nodes * (size_t)node_size;
    *order = (struct nodes_order){.size = (int)size};
    order->first = ddp_array_alloc((size_t)nodes + 1, sizeof *order->first);
    order->partial = ddp_array_alloc(size, sizeof *order->partial);
    order->scratch = ddp_array_alloc(DEPTH, sizeof *order->scratch);
    if (!order->first || !order->partial || !order->scratch) {
        nodes_order_free(order);
        return DDP_ERR_MEMORY;
    }
    cut(order, node_size, (struct nodes_range){0, (int)size});
    return DDP_OK;
}

void nodes_order_free(struct nodes_order *order)
{
    free(order->first);
    free(order->partial);
    free(order->scratch);
    memset(order, 0, sizeof *order);
}

/* --- adding --- */

enum ddp_status nodes_order_add(const void *const *sources, int count, void *destination, size_t n,
                                enum ddp_dtype dtype, enum ddp_redop op)
{
    const struct ddp_reduce sum = {.source_count = count,
                                   .destination_count = 1,
                                   .sources = sources,
                                   .destinations = &destination,
                                   .count = (int64_t)n,
                                   .dtype = dtype,
                                   .op = op};
    return ddp_reduce(&sum);
}

struct adding {
    const struct nodes_order *order;
    const char *const *partials;
    size_t at, count; /* of the block: bytes from the beginning, elements */
    enum ddp_dtype dtype;
    enum ddp_redop op;
    int next; /* partial sum, from the left */
    enum ddp_status status;
};

static void add(struct adding *a, const void *left, const void *right, void *out)
{
    const void *sources[] = {left, right};
    if (a->status == DDP_OK)
        a->status = nodes_order_add(sources, 2, out, a->count, a->dtype, a->op);
}

/* The block's value over the ranks [begin, end): a partial sum itself, or `out` filled. */
static const void *add_tree(struct adding *a, int begin, int end, int depth, void *out)
{
    const struct nodes_order *order = a->order;
    if (order->partial[a->next].end == end)
        return a->partials[a->next++] + a->at;
    const int middle = ddp_reduce_middle(begin, end);
    const void *left = add_tree(a, begin, middle, depth + 1, order->scratch[depth][0]);
    const void *right = add_tree(a, middle, end, depth + 1, order->scratch[depth][1]);
    add(a, left, right, out);
    return out;
}

/* Is the tree over the partial sums that over as many ranks? It is where all stand for as many
 * ranks, a power of two, except the last, which may stand for fewer. */
static bool is_plain(const struct nodes_order *order)
{
    const int each = order->partial[0].end - order->partial[0].begin;
    bool plain = order->count <= DDP_REDUCE_MAX && (each & (each - 1)) == 0;
    for (int i = 1; plain && i < order->count; i++)
        plain = order->partial[i].end - order->partial[i].begin == each;
    return plain;
}

enum ddp_status nodes_order_sum(const struct nodes_order *order, const void *const *partials,
                                void *destination, size_t n, enum ddp_dtype dtype,
                                enum ddp_redop op)
{
    const size_t element = ddp_dtype_bytes(dtype), block = BLOCK_BYTES / element;
    if (is_plain(order))
        return nodes_order_add(partials, order->count, destination, n, dtype, op);
    struct adding a = {
        .order = order, .partials = (const char *const *)partials, .dtype = dtype, .op = op};
    for (size_t at = 0; at < n && a.status == DDP_OK; at += block) {
        char *out = (char *)destination + at * element;
        a.at = at * element;
        a.count = n - at < block ? n - at : block;
        a.next = 0;
        const void *value = add_tree(&a, 0, order->size, 0, out);
        if (value != out)
            memcpy(out, value, a.count * element);
    }
    return a.status;
}
