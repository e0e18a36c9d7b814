/* SPDX-License-Identifier: MIT
 *
 * ddp_reduce() against its reference, bit for bit. */
#include "config.h"

#include "kernels/reduce.h"
#include "tests/lib/runner.h"
#include "tests/kernels/reference/reference.h"

#include <stdlib.h>
#include <string.h>

#define MOST 2100 /* elements: past two blocks of the widest type */

static void fill(void *memory, size_t count, enum ddp_dtype dtype, unsigned seed)
{
    srand(seed);
    for (size_t i = 0; i < count; i++) {
        double value = (rand() % 2001 - 1000) / 7.0;
        switch (dtype) {
        case DDP_F32:
            ((float *)memory)[i] = (float)value;
            break;
        case DDP_F64:
            ((double *)memory)[i] = value;
            break;
        case DDP_I32:
            ((int32_t *)memory)[i] = (int32_t)((uint32_t)rand() * 5u);
            break;
        case DDP_I64:
            ((int64_t *)memory)[i] = (int64_t)((uint64_t)rand() * 0x123456789abu);
            break;
        case DDP_BF16:
        default:
            break;
        }
    }
}

static void compare(int sources, int64_t n, enum ddp_dtype dtype, enum ddp_redop op, bool in_place)
{
    const size_t element = ddp_dtype_bytes(dtype);
    void *in[DDP_REDUCE_MAX], *out[2], *expected = malloc(MOST * element);
    for (int s = 0; s < sources; s++) {
        in[s] = (char *)malloc((MOST + 1) * element) + element; /* aligned to the element only */
        fill(in[s], MOST, dtype, (unsigned)(s + 1));
    }
    out[0] = in_place ? in[0] : malloc(MOST * element);
    out[1] = in_place && sources > 1 ? in[1] : malloc(MOST * element);
    struct ddp_reduce args = {.source_count = sources,
                              .destination_count = 1,
                              .sources = (const void *const *)in,
                              .destinations = &expected,
                              .count = n,
                              .dtype = dtype,
                              .op = op};
    ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
    if (in_place && sources > 1) { /* into the second alone, and back */
        void *kept = malloc(MOST * element);
        memcpy(kept, in[1], MOST * element);
        args.destinations = &in[1];
        ck_assert_int_eq(ddp_reduce(&args), DDP_OK);
        ck_assert(memcmp(in[1], expected, (size_t)n * element) == 0);
        memcpy(in[1], kept, MOST * element);
        free(kept);
    }
    args.destination_count = 2;
    args.destinations = out;
    ck_assert_int_eq(ddp_reduce(&args), DDP_OK);
    for (int d = 0; d < 2; d++)
        ck_assert_msg(memcmp(out[d], expected, (size_t)n * element) == 0,
                      "%d sources, %lld elements, type %d, op %d", sources, (long long)n, dtype,
                      op);
    if (!in_place)
        free(out[0]);
    if (!in_place || sources == 1)
        free(out[1]);
    for (int s = 0; s < sources; s++)
        free((char *)in[s] - element);
    free(expected);
}

START_TEST(same_bits)
{
    static const int sources[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 64};
    static const int64_t counts[] = {0, 1, 15, 1023, 1024, 1025, 2047, 2048, 2049, 2099};
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (int dtype = 0; dtype <= DDP_I64; dtype++)
                for (int op = 0; op <= DDP_MAX; op++)
                    compare(sources[s], counts[c], (enum ddp_dtype)dtype, (enum ddp_redop)op,
                            c & 1);
}
END_TEST

/* The tree of the contract, written out for five sources. */
START_TEST(order)
{
    const float v[5] = {1e8f, 1.0f, -1e8f, 1.0f, 0.5f};
    const void *in[5] = {&v[0], &v[1], &v[2], &v[3], &v[4]};
    float out, low = v[0] + v[1], high = v[2] + v[3];
    void *to = &out;
    struct ddp_reduce args = {
        .source_count = 5, .destination_count = 1, .sources = in, .destinations = &to, .count = 1};
    ck_assert_int_eq(ddp_reduce(&args), DDP_OK);
    ck_assert(out == (low + high) + v[4]);
    args.source_count = 0;
    ck_assert_int_eq(ddp_reduce(&args), DDP_ERR_INVALID);
    args.source_count = DDP_REDUCE_MAX + 1;
    ck_assert_int_eq(ddp_reduce(&args), DDP_ERR_INVALID);
    args.source_count = 5;
    args.dtype = DDP_BF16;
    ck_assert_int_eq(ddp_reduce(&args), DDP_ERR_INVALID);
}
END_TEST

/* Sums, and what is added up, are rounded from an element on. */
START_TEST(rounded)
{
    enum { MANY = 5000 };
    static float in[3][MANY], out[MANY];
    const void *from[3] = {in[0], in[1], in[2]};
    void *to = out;
    const float more = 1 + 0x1p-8f + 0x1p-20f;
    for (int i = 0; i < MANY; i++) {
        in[0][i] = more;
        in[1][i] = 0x1p-7f;
        in[2][i] = 0x1p-8f;
    }
    for (int border = 0; border <= MANY; border += 1250) {
        const struct ddp_reduce args = {.source_count = 3,
                                        .destination_count = 1,
                                        .sources = from,
                                        .destinations = &to,
                                        .count = MANY,
                                        .rounded = MANY - border};
        ck_assert_int_eq(ddp_reduce(&args), DDP_OK);
        for (int i = 0; i < MANY; i++) /* 1 + 1/128; + 1/128; + 1/256, a tie */
            ck_assert(out[i] == (i < border ? (more + 0x1p-7f) + 0x1p-8f : 1 + 0x1p-6f));
    }
    struct ddp_reduce bad = {.source_count = 3,
                             .destination_count = 1,
                             .sources = from,
                             .destinations = &to,
                             .count = 1,
                             .rounded = 2};
    ck_assert_int_eq(ddp_reduce(&bad), DDP_ERR_INVALID);
    bad.rounded = 1;
    bad.op = DDP_MAX;
    ck_assert_int_eq(ddp_reduce(&bad), DDP_ERR_INVALID);
}
END_TEST

/* Units with any runs of leaves hold the sums of the largest subtrees inside them: together they
 * have the bits of the one tree. */
START_TEST(roots_of_runs)
{
    static float leaves[DDP_REDUCE_MAX][3], sums[DDP_REDUCE_MAX][3];
    for (int leaf = 0; leaf < DDP_REDUCE_MAX; leaf++)
        fill(leaves[leaf], 3, DDP_F32, (unsigned)leaf + 1);
    srand(1);
    for (int i = 0; i < 400; i++) {
        const int lanes = 1 + rand() % DDP_REDUCE_MAX;
        const void *all[DDP_REDUCE_MAX], *roots[DDP_REDUCE_MAX];
        int ends[DDP_REDUCE_MAX + DDP_REDUCE_ROOTS], count = 0;
        float expected[3], got[3];
        void *to = expected;
        struct ddp_reduce args = {.source_count = lanes,
                                  .destination_count = 1,
                                  .sources = all,
                                  .destinations = &to,
                                  .count = 3};
        for (int leaf = 0; leaf < lanes; leaf++)
            all[leaf] = leaves[leaf];
        ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
        for (int begin = 0, end; begin < lanes; begin = end) {
            end = begin + 1 + rand() % (lanes - begin);
            const int own = ddp_reduce_run_roots(0, lanes, begin, end, ends + count);
            ck_assert_int_ge(own, 1);
            ck_assert_int_le(own, DDP_REDUCE_ROOTS);
            for (int from = begin; own > 0 && from < end; from = ends[count++]) {
                to = sums[count];
                roots[count] = sums[count];
                args.sources = all + from;
                args.source_count = ends[count] - from;
                ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
            }
            ck_assert_int_eq(ends[count - 1], end);
        }
        to = got;
        args.sources = roots;
        args.source_count = count;
        args.ends = ends;
        ck_assert_int_eq(ddp_reduce(&args), DDP_OK);
        ck_assert_msg(memcmp(got, expected, sizeof got) == 0, "%d lanes in %d roots", lanes, count);
        ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
        ck_assert_msg(memcmp(got, expected, sizeof got) == 0, "reference: %d lanes", lanes);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce");
    TCase *tc = test_case(suite, "reduce", 60);
    tcase_add_test(tc, same_bits);
    tcase_add_test(tc, order);
    tcase_add_test(tc, rounded);
    tcase_add_test(tc, roots_of_runs);
    return suite;
}
