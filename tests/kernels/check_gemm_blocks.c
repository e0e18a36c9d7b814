/* SPDX-License-Identifier: MIT
 *
 * Products with a B that lies in blocks: the bits of the same product with B unpacked, on every
 * instruction set and for any number of threads, and of those of few rows. */
#include "config.h"

#include "core/bf16.h"
#include "kernels/cpu/gemm.h"
#include "tests/kernels/kernels_test.h"
#include "tests/lib/runner.h"

static const enum ddp_dtype types[] = {DDP_NF4, DDP_NF4_BF16, DDP_Q8_0, DDP_Q4_0};
#define TYPES (int)(sizeof types / sizeof types[0])

/* B in blocks, and unpacked as the product takes it: float32, or uint16_t with bf16. */
struct operand {
    void *blocks, *values;
};

static struct operand operand_of(enum ddp_dtype type, int64_t count, bool bf16)
{
    float *drawn = array_of(count);
    struct operand b = {malloc(ddp_values_bytes(type, count)), malloc((size_t)(count + 1) * 4)};
    ck_assert(b.blocks && b.values);
    ddp_values_pack(type, drawn, count, b.blocks);
    ddp_values_unpack(type, b.blocks, 0, count, b.values);
    for (int64_t i = 0; bf16 && i < count; i++)
        ((uint16_t *)b.values)[i] = ddp_bf16_of(((float *)b.values)[i]);
    array_free(drawn, count);
    return b;
}

/*   transposed  B is (n,k): its rows are whole blocks then, else n is */
static void check_product(enum ddp_dtype type, int64_t m, int64_t n, int64_t k, bool transposed,
                          bool bf16, float beta)
{
    const struct operand b = operand_of(type, n * k, bf16);
    float *a = array_of(m * k), *before = array_of(m * n), *expected = array_copy(before, m * n);
    for (int64_t i = 0; bf16 && i < m * k; i++)
        ((uint16_t *)a)[i] = ddp_bf16_of(a[i]);
    struct ddp_gemm gemm = {.transpose_b = transposed,
                            .bf16 = bf16,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .b = b.values,
                            .c = expected,
                            .lda = k,
                            .ldb = transposed ? k : n,
                            .ldc = n,
                            .beta = beta};
    ck_assert_int_eq(ddp_gemm(&gemm, pools[0]), DDP_OK);
    gemm.b = b.blocks;
    gemm.b_block = ddp_block_of(type);
    for (enum ddp_isa isa = DDP_ISA_PLAIN; isa <= DDP_ISA_AVX512_BF16; isa++)
        for (int pool = 0; ddp_cpu_has(isa) && pool < (isa == DDP_ISA_PLAIN ? 1 : POOLS); pool++) {
            float *c = array_copy(before, m * n);
            gemm.c = c;
            ck_assert_int_eq(ddp_gemm_on(&gemm, isa, pools[pool]), DDP_OK);
            ck_assert_msg(same_bits(c, expected, m * n),
                          "type %d, %lld x %lld x %lld, transposed %d, bf16 %d, set %d: other bits",
                          (int)type, (long long)m, (long long)n, (long long)k, transposed, bf16,
                          (int)isa);
            array_free(c, m * n);
        }
    array_free(a, m * k);
    array_free(before, m * n);
    array_free(expected, m * n);
    free(b.blocks);
    free(b.values);
}

static const int64_t shapes[][3] = {
    {1, 32, 32}, {3, 64, 32}, {43, 96, 416}, {7, 800, 64}, {50, 160, 1184}, {300, 1056, 32},
};
#define SHAPES (int)(sizeof shapes / sizeof shapes[0])

START_TEST(has_the_bits_of_unpacked_values)
{
    const int64_t *s = shapes[_i / TYPES];
    random_seed((uint64_t)_i);
    for (int flags = 0; flags < 8; flags++)
        check_product(types[_i % TYPES], s[0], s[1], s[2], flags & 1, flags & 2, flags & 4 ? 1 : 0);
}
END_TEST

/* Blocks of NF4 run over the ends of rows. */
START_TEST(rows_need_not_be_blocks_of_nf4)
{
    random_seed(5);
    for (int flags = 0; flags < 4; flags++) {
        check_product(DDP_NF4_BF16, 45, 77, 401, flags & 1, flags & 2, 0);
        check_product(DDP_NF4, 9, 810, 33, flags & 1, flags & 2, 1);
    }
}
END_TEST

START_TEST(few_rows_too)
{
    random_seed(6);
    for (int64_t m = 1; m < 8; m++) {
        const int64_t n = 37, k = 96;
        const struct operand b = operand_of(types[_i], n * k, false);
        float *a = array_of(m * k), *c = array_of(m * n), *expected = array_of(m * n);
        struct ddp_gemm gemm = {.transpose_b = true, .m = m, .n = n, .k = k, .a = a};
        gemm.lda = gemm.ldb = k;
        gemm.ldc = n;
        gemm.b = b.values;
        gemm.c = expected;
        ck_assert_int_eq(ddp_gemm_rows(&gemm, pools[0]), DDP_OK);
        gemm.b = b.blocks;
        gemm.b_block = ddp_block_of(types[_i]);
        gemm.c = c;
        for (int pool = 0; pool < POOLS; pool++) {
            ck_assert_int_eq(ddp_gemm_rows(&gemm, pools[pool]), DDP_OK);
            ck_assert(same_bits(c, expected, m * n));
        }
        array_free(a, m * k);
        array_free(c, m * n);
        array_free(expected, m * n);
        free(b.blocks);
        free(b.values);
    }
}
END_TEST

START_TEST(gaps_between_blocks_are_refused)
{
    float x[64] = {1}, c[4];
    struct ddp_gemm gemm = {.transpose_b = true, .m = 1, .n = 1, .k = 32, .a = x, .b = x, .c = c};
    gemm.lda = 32;
    gemm.ldb = 33;
    gemm.ldc = 1;
    gemm.b_block = ddp_block_of(DDP_Q4_0);
    ck_assert_int_eq(ddp_gemm(&gemm, NULL), DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gemm_blocks");
    TCase *tc = kernel_case(suite, "gemm_blocks");
    tcase_add_loop_test(tc, has_the_bits_of_unpacked_values, 0, SHAPES * TYPES);
    tcase_add_test(tc, rows_need_not_be_blocks_of_nf4);
    tcase_add_loop_test(tc, few_rows_too, 0, TYPES);
    tcase_add_test(tc, gaps_between_blocks_are_refused);
    return suite;
}
