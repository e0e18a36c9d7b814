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

#define FORMS 4 /* of a product: read in place or packed, B transposed or not */

/* a b, of k depths, in a form: as the only element of C, or as each of four. */
static float product_of(enum ddp_isa isa, int form, int64_t k, const operand *a, const operand *b)
{
    const int64_t size = 1 + form / 2;
    const bool transposed = form % 2;
    operand rows[2 * 3], columns[3 * 2];
    float c[4] = {NAN, NAN, NAN, NAN};
    for (int64_t i = 0; i < size; i++)
        for (int64_t l = 0; l < k; l++) {
            rows[i * k + l] = a[l];
            columns[transposed ? i * k + l : l * size + i] = b[l];
        }
    struct ddp_gemm gemm = {.bf16 = true, .transpose_b = transposed, .m = size, .n = size, .k = k};
    gemm.a = rows;
    gemm.b = columns;
    gemm.c = c;
    gemm.lda = k;
    gemm.ldb = transposed ? k : size;
    gemm.ldc = size;
    ck_assert_int_eq(ddp_gemm_on(&gemm, isa, NULL), DDP_OK);
    for (int64_t i = 1; i < size * size; i++)
        ck_assert(same_bits(&c[i], &c[0], 1));
    return c[0];
}

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
            const float expected = (float)sign * rows[i].result;
            EACH_ISA(isa)
            for (int form = 0; form < FORMS; form++) {
                const float c = product_of(isa, form, 2, a, b);
                ck_assert_msg(same_bits(&c, &expected, 1), "set %d, form %d, row %zu: %a, not %a",
                              (int)isa, form, i, (double)c, (double)expected);
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
    for (int form = 0; form < FORMS; form++) {
        const float c = product_of(isa, form, 3, a, b);
        ck_assert_msg(c == 0 && !signbit(c), "set %d, form %d: %a", (int)isa, form, (double)c);
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
