/* SPDX-License-Identifier: MIT
 *
 * Accumulation: the merge kernel, and that a replica's binary counter of partial sums is the tree
 * of reduce.h. */
#include "config.h"

#include "core/memory.h"
#include "core/pool.h"
#include "core/rng.h"
#include "kernels/merge.h"
#include "kernels/reduce.h"
#include "tests/lib/runner.h"
#include "tests/kernels/reference/reference.h"

#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = {
    0,    1,    15,   16,    17,
    4095, 4096, 4097, 40000, 256 * 4096 + 4097}; /* the last: tasks of more than a block */

static float *random_array(struct ddp_rng *rng, int64_t count)
{
    float *array = ddp_array_alloc((size_t)count, sizeof *array);
    ck_assert_ptr_nonnull(array);
    ddp_rng_fill_normal(rng, array, (size_t)count, 0, 1);
    return array;
}

START_TEST(fast_equals_reference)
{
    const int64_t count = sizes[_i];
    struct ddp_rng rng;
    ddp_pool *pool;
    float *partials[5];
    ddp_rng_seed(&rng, 1);
    ck_assert_int_eq(ddp_pool_create(&pool, 3), DDP_OK);
    for (int p = 0; p < 5; p++)
        partials[p] = random_array(&rng, count);
    float *leaf = random_array(&rng, count), *plain = random_array(&rng, count);
    float *threaded = random_array(&rng, count), *fast = random_array(&rng, count);
    for (int i = 0; i < 3 * 6; i++) {
        const int p = i % 6;
        struct ddp_merge args = {.count = count,
                                 .rounded = i / 6 * (count / 2),
                                 .partial_count = p,
                                 .partials = (const float *const *)partials,
                                 .leaf = leaf,
                                 .destination = plain};
        ck_assert_int_eq(ddp_merge_reference(&args, NULL), DDP_OK);
        args.destination = fast;
        ck_assert_int_eq(ddp_merge(&args, NULL), DDP_OK);
        args.destination = threaded;
        ck_assert_int_eq(ddp_merge(&args, pool), DDP_OK);
        ck_assert_int_eq(memcmp(plain, fast, (size_t)count * sizeof(float)), 0);
        ck_assert_int_eq(memcmp(plain, threaded, (size_t)count * sizeof(float)), 0);
        memcpy(fast, leaf, (size_t)count * sizeof(float));
        args.leaf = args.destination = fast; /* in place */
        ck_assert_int_eq(ddp_merge(&args, pool), DDP_OK);
        ck_assert_int_eq(memcmp(plain, fast, (size_t)count * sizeof(float)), 0);
    }
    for (int p = 0; p < 5; p++)
        free(partials[p]);
    free(leaf);
    free(plain);
    free(threaded);
    free(fast);
    ddp_pool_destroy(pool);
}
END_TEST

START_TEST(bad_arguments)
{
    float x[4] = {0};
    const float *none[1] = {NULL};
    struct ddp_merge args = {.count = -1, .leaf = x, .destination = x};
    ck_assert_int_eq(ddp_merge(&args, NULL), DDP_ERR_INVALID);
    args.count = 4;
    args.partial_count = DDP_MERGE_MAX + 1;
    ck_assert_int_eq(ddp_merge(&args, NULL), DDP_ERR_INVALID);
    args.partial_count = 1;
    args.partials = none;
    ck_assert_int_eq(ddp_merge(&args, NULL), DDP_ERR_INVALID);
}
END_TEST

/* A binary counter of partial sums, as a replica keeps it, gives the tree over all shards. */
START_TEST(counter_is_the_tree)
{
    const int shards = _i + 1;
    struct ddp_rng rng;
    float leaves[33], partials[8] = {0}, tree, result = 0;
    const void *sources[33];
    ddp_rng_seed(&rng, (uint64_t)shards);
    ddp_rng_fill_normal(&rng, leaves, 33, 0, 1);
    for (int s = 0; s < shards; s++) {
        const float *absorbed[8];
        int count = 0, level = 0;
        bool last = s == shards - 1;
        for (int bits = s; bits; bits >>= 1, level++) {
            if (bits & 1)
                absorbed[count++] = &partials[level];
            else if (!last)
                break;
        }
        struct ddp_merge args = {.count = 1,
                                 .partial_count = count,
                                 .partials = absorbed,
                                 .leaf = &leaves[s],
                                 .destination = last ? &result : &partials[level]};
        ck_assert_int_eq(ddp_merge(&args, NULL), DDP_OK);
        sources[s] = &leaves[s];
    }
    struct ddp_reduce reduce = {.source_count = shards,
                                .destination_count = 1,
                                .sources = sources,
                                .destinations = (void *const[]){&tree},
                                .count = 1,
                                .dtype = DDP_F32,
                                .op = DDP_SUM};
    ck_assert_int_eq(ddp_reduce_reference(&reduce), DDP_OK);
    ck_assert_msg(tree == result, "%d shards: tree %.9g, counter %.9g", shards, (double)tree,
                  (double)result);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("merge");
    TCase *tc = test_case(suite, "merge", 60);
    tcase_add_loop_test(tc, fast_equals_reference, 0, sizeof sizes / sizeof sizes[0]);
    tcase_add_test(tc, bad_arguments);
    tcase_add_loop_test(tc, counter_is_the_tree, 0, 33);
    return suite;
}
