/* SPDX-License-Identifier: MIT
 *
 * The partial sums of machines: always the bits of the one tree over all ranks. */
#include "config.h"

#include "comm/nodes_order.h"
#include "kernels/reduce.h"
#include "tests/kernels/reference/reference.h"
#include "tests/lib/runner.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64, COUNT = 3001 };

static float values[MOST][COUNT], sums[MOST][COUNT], expected[COUNT], result[COUNT];

static void fill(int size)
{
    for (int r = 0; r < size; r++)
        for (int i = 0; i < COUNT; i++)
            values[r][i] = (float)(int32_t)((uint32_t)(i * 64 + r) * 2654435761u) / 3.0e4f;
}

static void reduce(int count, const void *const *sources, void *out)
{
    const struct ddp_reduce args = {.source_count = count,
                                    .destination_count = 1,
                                    .sources = sources,
                                    .destinations = &out,
                                    .count = COUNT,
                                    .dtype = DDP_F32,
                                    .op = DDP_SUM};
    ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
}

/* Every rank is in one partial sum, which is of one machine; there are few of them. */
static void check_cut(const struct nodes_order *order, int nodes, int node_size)
{
    int next = 0, log2 = 0;
    while (1 << log2 < node_size)
        log2++;
    ck_assert_int_eq(order->first[0], 0);
    ck_assert_int_eq(order->first[nodes], order->count);
    for (int m = 0; m < nodes; m++) {
        const int here = nodes_order_count(order, m);
        ck_assert(here >= 1 && here <= order->most && here <= (log2 ? 2 * log2 : 1));
        if ((node_size & (node_size - 1)) == 0)
            ck_assert_int_eq(here, 1);
        for (int i = order->first[m]; i < order->first[m + 1]; i++) {
            ck_assert_int_eq(order->partial[i].begin, next);
            next = order->partial[i].end;
            ck_assert(next > order->partial[i].begin && next <= (m + 1) * node_size);
        }
        ck_assert_int_eq(next, (m + 1) * node_size);
    }
}

START_TEST(bits)
{
    const int nodes = _i / 8 + 1, node_size = _i % 8 + 1, size = nodes * node_size;
    struct nodes_order order;
    const void *sources[MOST], *partials[MOST];
    fill(size);
    for (int r = 0; r < size; r++)
        sources[r] = values[r];
    reduce(size, sources, expected);
    ck_assert_int_eq(nodes_order_make(&order, nodes, node_size), DDP_OK);
    check_cut(&order, nodes, node_size);
    for (int i = 0; i < order.count; i++) {
        const int begin = order.partial[i].begin;
        reduce(order.partial[i].end - begin, sources + begin, sums[i]);
        partials[i] = sums[i];
    }
    ck_assert_int_eq(nodes_order_sum(&order, partials, result, COUNT, DDP_F32, DDP_SUM), DDP_OK);
    ck_assert_mem_eq(result, expected, sizeof expected);
    for (int i = 0; i < order.count; i++) /* into one of them */
        if (i == order.count / 2) {
            ck_assert_int_eq(nodes_order_sum(&order, partials, sums[i], COUNT, DDP_F32, DDP_SUM),
                             DDP_OK);
            ck_assert_mem_eq(sums[i], expected, sizeof expected);
        }
    nodes_order_free(&order);
}
END_TEST

/* More partial sums than a kernel takes sources. */
START_TEST(many)
{
    enum { NODES = 1000 };
    struct nodes_order order;
    static int32_t ones[NODES * 3];
    const void *partials[NODES * 3];
    int32_t sum = 0;
    ck_assert_int_eq(nodes_order_make(&order, NODES, 3), DDP_OK);
    check_cut(&order, NODES, 3);
    for (int i = 0; i < order.count; i++) {
        ones[i] = order.partial[i].end - order.partial[i].begin;
        partials[i] = &ones[i];
    }
    ck_assert_int_eq(nodes_order_sum(&order, partials, &sum, 1, DDP_I32, DDP_SUM), DDP_OK);
    ck_assert_int_eq(sum, NODES * 3);
    nodes_order_free(&order);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("nodes_order");
    TCase *tc = test_case(suite, "nodes_order", 60);
    tcase_add_loop_test(tc, bits, 0, 64);
    tcase_add_test(tc, many);
    return suite;
}
