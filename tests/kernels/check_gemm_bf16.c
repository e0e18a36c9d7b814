/* SPDX-License-Identifier: MIT
 *
 * The product of bf16: as check_gemm.c. */
#include "config.h"

#include "kernels/bf16.h"
#include "kernels/cpu/gemm.h"
#include "tests/kernels/reference/reference.h"
#include "tests/lib/runner.h"

#define OPERANDS_BF16 true
typedef uint16_t operand;

static operand operand_from(float value)
{
    return ddp_bf16_of(value);
}

#include "tests/kernels/gemm_test.inc"

/* Just below the smallest normal number, denormal or not is decided after rounding to the precision
 * of normal numbers: half a step of it below is still FLT_MIN, more is zero. */
START_TEST(test_smallest)
{
    static const struct {
        float less, result; /* steps of 2^-150 */
    } rows[] = {{0, FLT_MIN}, {0.25f, FLT_MIN}, {0.5f, FLT_MIN}, {0.50390625f, 0}, {1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            /* The odd one of a pair comes first. */
            const operand a[2] = {operand_from(-rows[i].less * 0x1p-75F), operand_from(0x1p-63F)};
            const operand b[2] = {operand_from((float)sign * 0x1p-75F),
                                  operand_from((float)sign * 0x1p-63F)};
            EACH_ISA(isa)
            {
                float c = NAN;
                const struct ddp_gemm gemm = {.bf16 = true,
                                              .m = 1,
                                              .n = 1,
                                              .k = 2,
                                              .a = a,
                                              .b = b,
                                              .c = &c,
                                              .lda = 2,
                                              .ldb = 1,
                                              .ldc = 1};
                ck_assert_int_eq(ddp_gemm_on(&gemm, isa, NULL), DDP_OK);
                const float expected = (float)sign * rows[i].result;
                ck_assert_msg(same_bits(&c, &expected, 1), "set %d, row %zu: %a, not %a", (int)isa,
                              i, (double)c, (double)expected);
            }
        }
}
END_TEST

/* The zeros that fill up an odd K make +0 of -0. */
START_TEST(test_odd_depths)
{
    const operand a[3] = {operand_from(-0x1p-75F), 0, operand_from(-0.0f)};
    const operand b[3] = {operand_from(0x1p-75F), 0, operand_from(1)};
    EACH_ISA(isa)
    for (int transposed = 0; transposed < 2; transposed++) {
        float c = NAN;
        const struct ddp_gemm gemm = {.bf16 = true,
                                      .transpose_b = transposed,
                                      .m = 1,
                                      .n = 1,
                                      .k = 3,
                                      .a = a,
                                      .b = b,
                                      .c = &c,
                                      .lda = 3,
                                      .ldb = transposed ? 3 : 1,
                                      .ldc = 1};
        ck_assert_int_eq(ddp_gemm_on(&gemm, isa, NULL), DDP_OK);
        ck_assert_msg(c == 0 && !signbit(c), "set %d, flag %d: %a", (int)isa, transposed,
                      (double)c);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gemm_bf16");
    TCase *tc = product_case(suite, "gemm_bf16");
    tcase_add_test(tc, test_smallest);
    tcase_add_test(tc, test_odd_depths);
    return suite;
}
