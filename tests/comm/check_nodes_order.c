/* SPDX-License-Identifier: MIT
 *
 * The partial sums of machines: always the bits of the one tree over all leaves. */
#include "config.h"

#include "comm/nodes_order.h"
#include "kernels/reduce.h"
#include "tests/kernels/reference/reference.h"
#include "tests/lib/runner.h"

#include <string.h>

enum { MOST = 64, COUNT = 3001 };

static float values[MOST][COUNT], own[MOST][COUNT], sums[MOST][COUNT], expected[COUNT],
    result[COUNT];

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

/* Every leaf is in one partial sum, which is of one machine; there are few of them. */
static void check_cut(const struct nodes_order *order)
{
    const struct ddp_comm_roots *roots = order->roots;
    int begin = 0;
    for (int m = 0; m < order->nodes; m++) {
        const int last = roots->first[order->starts[m + 1]] - 1;
        int ends[DDP_REDUCE_ROOTS];
        const int count = nodes_order_ends(order, m, ends), leaves = roots->end[last] - begin;
        int log2 = 0;
        while (1 << log2 < leaves)
            log2++;
        ck_assert(count >= 1 && count <= nodes_order_most(order) && count <= (log2 ? 2 * log2 : 1));
        ck_assert_int_eq(count, nodes_order_count(order, m));
        for (int p = 0; p < count; p++) {
            ck_assert(ends[p] > begin && ends[p] <= roots->end[last]);
            begin = ends[p];
        }
        ck_assert_int_eq(begin, roots->end[last]);
    }
}

/* Ranks with runs of leaves, as even as possible. */
static void make_roots(struct ddp_comm_roots *roots, int *first, int *end, int ranks, int leaves)
{
    *roots = (struct ddp_comm_roots){.first = first, .end = end};
    first[0] = 0;
    for (int r = 0; r < ranks; r++) {
        roots->count += ddp_reduce_run_roots(0, leaves, r * leaves / ranks,
                                             (r + 1) * leaves / ranks, end + roots->count);
        first[r + 1] = roots->count;
    }
}

/* From the sums of the ranks, of `leaves` leaves together, to the sum of all. */
static void check_bits(int nodes, const int *starts, int leaves)
{
    int first[MOST + 1], end[MOST];
    struct ddp_comm_roots roots;
    const struct nodes_order order = {.roots = &roots, .nodes = nodes, .starts = starts};
    const void *sources[MOST], *partials[MOST];
    int count = 0;
    for (int l = 0; l < leaves; l++)
        sources[l] = values[l];
    reduce(leaves, sources, expected);
    make_roots(&roots, first, end, starts[nodes], leaves);
    check_cut(&order);
    for (int i = 0; i < roots.count; i++) {
        const int begin = i ? end[i - 1] : 0;
        reduce(end[i] - begin, sources + begin, own[i]);
    }
    for (int m = 0; m < nodes; m++) {
        const void *of_node[MOST];
        const int root = first[starts[m]];
        for (int i = 0; i < nodes_order_sources(&order, m); i++)
            of_node[i] = own[root + i];
        ck_assert_int_eq(
            nodes_order_add(&order, m, of_node, sums[count], COUNT, DDP_F32, DDP_SUM, 0), DDP_OK);
        for (int p = 0; p < nodes_order_count(&order, m); p++, count++)
            partials[count] = sums[count];
    }
    ck_assert_int_eq(nodes_order_sum(&order, partials, result, COUNT, DDP_F32, DDP_SUM, 0), DDP_OK);
    ck_assert_mem_eq(result, expected, sizeof expected);
    /* into one of them */
    ck_assert_int_eq(nodes_order_sum(&order, partials, sums[count / 2], COUNT, DDP_F32, DDP_SUM, 0),
                     DDP_OK);
    ck_assert_mem_eq(sums[count / 2], expected, sizeof expected);
}

/* Each rank a leaf, and with several. */
START_TEST(bits)
{
    const int nodes = _i / 8 + 1;
    int starts[9] = {0};
    fill(MOST);
    for (int n = 0; n < nodes; n++)
        starts[n + 1] = starts[n] + _i % 8 + 1;
    for (int leaves = starts[nodes]; leaves <= MOST; leaves += 1 + leaves / 3)
        check_bits(nodes, starts, leaves);
}
END_TEST

START_TEST(unequal)
{
    static const int starts[][4] = {{0, 3, 4, 4}, {0, 1, 4, 5}, {0, 5, 6, 9}, {0, 2, 9, 10}};
    fill(MOST);
    for (int leaves = starts[_i][3]; leaves <= MOST; leaves += 1 + leaves / 3)
        check_bits(_i == 0 ? 2 : 3, starts[_i], leaves);
}
END_TEST

/* As many ranks as a job can have. */
START_TEST(many)
{
    enum { NODES = 1365, SIZE = NODES * 3 };
    static int32_t ones[SIZE];
    static int first[SIZE + 1], end[SIZE];
    static const void *partials[SIZE];
    struct ddp_comm_roots roots;
    static int starts[NODES + 1];
    const struct nodes_order order = {.roots = &roots, .nodes = NODES, .starts = starts};
    int32_t sum = 0;
    int count = 0;
    for (int m = 0; m <= NODES; m++)
        starts[m] = 3 * m;
    make_roots(&roots, first, end, SIZE, SIZE);
    check_cut(&order);
    for (int m = 0, begin = 0; m < NODES; m++) {
        int ends[DDP_REDUCE_ROOTS];
        for (int p = 0; p < nodes_order_ends(&order, m, ends); begin = ends[p++]) {
            ones[count] = ends[p] - begin;
            partials[count] = &ones[count];
            count++;
        }
    }
    ck_assert_int_eq(nodes_order_sum(&order, partials, &sum, 1, DDP_I32, DDP_SUM, 0), DDP_OK);
    ck_assert_int_eq(sum, SIZE);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("nodes_order");
    TCase *tc = test_case(suite, "nodes_order", 60);
    tcase_add_loop_test(tc, bits, 0, 64);
    tcase_add_loop_test(tc, unequal, 0, 4);
    tcase_add_test(tc, many);
    return suite;
}
