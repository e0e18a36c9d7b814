/* SPDX-License-Identifier: MIT
 *
 * Dropout: against the reference, the share of zeros, the same mask in both passes and on any
 * threads, other masks for other seeds, layers, shards and steps. */
#include "config.h"

#include "kernels/dropout.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const int64_t counts[] = {0, 1, 3, 4, 5, 255, 256, 257, 16383, 16384, 16385, 70001};
static const float probabilities[] = {0, 0.1f, 0.5f, 0.999f};

START_TEST(test_reference)
{
    const int64_t n = counts[_i];
    random_seed((uint64_t)_i);
    float *x = array_of(n), *before = array_of(n), *expected = array_of(n);
    for (int flags = 0; flags < 8; flags++) {
        struct ddp_dropout args = {.count = n,
                                   .probability = probabilities[flags / 2],
                                   .seed = 0xfeed,
                                   .layer = 3,
                                   .shard = (uint32_t)_i,
                                   .step = 0xffffffff,
                                   .x = x,
                                   .accumulate = flags & 1};
        memcpy(expected, before, (size_t)n * sizeof *expected);
        args.y = expected;
        ck_assert_int_eq(ddp_dropout_reference(&args, NULL), DDP_OK);
        for (int pool = 0; pool < POOLS; pool++) {
            float *y = array_copy(before, n);
            args.y = y;
            ck_assert_int_eq(ddp_dropout(&args, pools[pool]), DDP_OK);
            ck_assert(same_bits(y, expected, n));
            array_free(y, n);
            if (args.accumulate)
                continue;
            y = array_copy(x, n); /* in place */
            struct ddp_dropout in_place = args;
            in_place.x = in_place.y = y;
            ck_assert_int_eq(ddp_dropout(&in_place, pools[pool]), DDP_OK);
            ck_assert(same_bits(y, expected, n));
            array_free(y, n);
        }
    }
    array_free(x, n);
    array_free(before, n);
    array_free(expected, n);
}
END_TEST

#define N 100000

static void mask_of(const struct ddp_dropout *args, bool *mask)
{
    static float ones[N], y[N];
    struct ddp_dropout copy = *args;
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    copy.count = N;
    copy.x = ones;
    copy.y = y;
    ck_assert_int_eq(ddp_dropout(&copy, NULL), DDP_OK);
    for (int i = 0; i < N; i++) {
        ck_assert(y[i] == 0 || y[i] == 1 / (1 - args->probability));
        mask[i] = y[i] != 0;
    }
}

/* How many of N stay is within five standard deviations; and two masks agree as chance has it. */
START_TEST(test_masks)
{
    static bool masks[6][N];
    const double p = 0.2, deviations = 5 * sqrt(N * p * (1 - p));
    for (int m = 0; m < 6; m++) {
        struct ddp_dropout args = {.probability = (float)p, .seed = 1, .layer = 2};
        args.shard = 3;
        args.step = 4;
        args.seed += m == 1;
        args.layer += m == 2;
        args.shard += m == 3;
        args.step += m == 4;
        mask_of(&args, masks[m]); /* 0 and 5 are the same */
        double stay = 0, agree = 0;
        for (int i = 0; i < N; i++) {
            stay += masks[m][i];
            agree += masks[m][i] == masks[0][i];
        }
        ck_assert(fabs(stay - N * (1 - p)) < deviations);
        const double expected = N * (p * p + (1 - p) * (1 - p));
        ck_assert(m == 0 || m == 5 ? agree == N : fabs(agree - expected) < deviations * 1.2);
    }
}
END_TEST

/* Shard and step from memory: the mask of those values, whatever the arguments say. */
START_TEST(test_place)
{
    static bool given[N], read[N];
    const uint32_t place[2] = {3, 4};
    struct ddp_dropout args = {.probability = 0.2f, .seed = 1, .layer = 2, .shard = 3, .step = 4};
    mask_of(&args, given);
    args.place = place;
    args.shard = 5;
    args.step = 6;
    mask_of(&args, read);
    ck_assert(memcmp(given, read, sizeof read) == 0);
}
END_TEST

START_TEST(test_arguments)
{
    float x = 1, y = 9;
    const struct ddp_dropout good = {.count = 1, .probability = 0.5f, .x = &x, .y = &y};
    struct ddp_dropout bad[] = {good, good, good, good, good, good};
    bad[0].count = -1;
    bad[1].probability = 1;
    bad[2].probability = -0.1f;
    bad[3].probability = NAN;
    bad[4].x = NULL;
    bad[5].y = NULL;
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(ddp_dropout(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_dropout_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    ck_assert(y == 9);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("dropout");
    TCase *tc = kernel_case(suite, "dropout");
    tcase_add_loop_test(tc, test_reference, 0, sizeof counts / sizeof counts[0]);
    tcase_add_test(tc, test_masks);
    tcase_add_test(tc, test_place);
    tcase_add_test(tc, test_arguments);
    return suite;
}
