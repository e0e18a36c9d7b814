/* SPDX-License-Identifier: MIT
 *
 * Rounding to bf16 and float16: ties, NaN, infinity, subnormal numbers, array versions alike. */
#include "config.h"

#include "kernels/bf16.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

START_TEST(test_values)
{
    static const struct {
        uint32_t in;
        uint16_t out;
    } cases[] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80},
        {0x3f808000, 0x3f80}, /* a tie: to even, down */
        {0x3f818000, 0x3f82}, /* and up */
        {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80}, {0x3fff8000, 0x4000},
        {0x7f7fffff, 0x7f80}, /* beyond the largest: infinity */
        {0x7f7f7fff, 0x7f7f}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0}, /* NaN that truncation would make infinity */
        {0xffffffff, 0xffff}, {0x7fc00000, 0x7fc0}, {0x00000001, 0x0000},
        {0x00018000, 0x0002}, {0x00008000, 0x0000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float x;
        uint16_t y;
        memcpy(&x, &cases[i].in, sizeof x);
        const struct ddp_to_bf16 args = {.count = 1, .x = &x, .y = &y};
        ck_assert_uint_eq(ddp_bf16_of(x), cases[i].out);
        ck_assert_int_eq(ddp_to_bf16(&args, NULL), DDP_OK);
        ck_assert_uint_eq(y, cases[i].out);
    }
    for (uint32_t i = 0; i < 65536; i++) { /* there and back */
        float wide = ddp_bf16_to_f32((uint16_t)i);
        ck_assert(isnan(wide) ? isnan(ddp_bf16_to_f32(ddp_bf16_of(wide))) : ddp_bf16_of(wide) == i);
    }
}
END_TEST

START_TEST(test_arrays)
{
    static const int64_t counts[] = {0, 1, 15, 63, 64, 65, 65535, 65536, 65537, 300001};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const int64_t n = counts[c];
        uint32_t *x = malloc(((size_t)n + 1) * sizeof *x);
        uint16_t *y = malloc(((size_t)n + 1) * sizeof *y);
        uint16_t *expected = malloc(((size_t)n + 1) * sizeof *y);
        random_seed(c);
        for (int64_t i = 0; i < n; i++) { /* any bits: NaN too */
            random_number();
            x[i] = (uint32_t)(random_state >> 32);
        }
        y[n] = expected[n] = 12345;
        struct ddp_to_bf16 args = {.count = n, .x = (const float *)x, .y = expected};
        ck_assert_int_eq(ddp_to_bf16_reference(&args, NULL), DDP_OK);
        args.y = y;
        for (int pool = 0; pool < POOLS; pool++) {
            memset(y, 0xff, (size_t)n * sizeof *y);
            ck_assert_int_eq(ddp_to_bf16(&args, pools[pool]), DDP_OK);
            ck_assert(memcmp(y, expected, ((size_t)n + 1) * sizeof *y) == 0);
        }
        free(x);
        free(y);
        free(expected);
    }
}
END_TEST

/* Around every float16, halfway to the next one and beside that; then any bits. */
START_TEST(test_f16)
{
    const int64_t around = 65536 * 2 * 3, n = around + 300001;
    uint32_t *x = malloc((size_t)n * sizeof *x);
    float *y = malloc((size_t)n * sizeof *y), *expected = malloc((size_t)n * sizeof *y);
    uint16_t *narrow = malloc((size_t)n * sizeof *narrow);
    random_seed(2);
    for (int64_t i = 0; i < around; i++) {
        const float value = ddp_f16_to_f32((uint16_t)(i / 6)),
                    half = !isfinite(value)          ? 0
                           : fabsf(value) < 0x1p-14f ? 0x1p-25f
                                                     : ldexpf(1, ilogbf(value) - 11),
                    at = i / 3 % 2 ? value + copysignf(half, value) : value;
        memcpy(&x[i], &at, sizeof at);
        x[i] += (uint32_t)(i % 3) - 1;
    }
    for (int64_t i = around; i < n; i++) {
        random_number();
        x[i] = (uint32_t)(random_state >> 32);
    }
    for (int64_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, &x[i], sizeof value);
        expected[i] = ddp_f16_to_f32(ddp_f16_of(value));
        narrow[i] = (uint16_t)(x[i] >> 16);
    }
    for (int pool = 0; pool < POOLS; pool++) {
        struct ddp_round_f16 args = {.count = n, .x = (const float *)x, .y = y};
        int64_t wrong = 0;
        ddp_round_f16(&args, pools[pool]);
        for (int64_t i = 0; i < n; i++)
            wrong += isnan(expected[i])
                         ? !isnan(y[i])
                         : y[i] != expected[i] || !signbit(y[i]) != !signbit(expected[i]);
        args = (struct ddp_round_f16){.count = n, .x_bf16 = narrow, .y = y};
        ddp_round_f16(&args, pools[pool]);
        for (int64_t i = 0; i < n; i++) {
            const float value = ddp_f16_to_f32(ddp_f16_of(ddp_bf16_to_f32(narrow[i])));
            wrong += isnan(value) ? !isnan(y[i]) : y[i] != value;
        }
        ck_assert_int_eq(wrong, 0);
    }
    free(x);
    free(y);
    free(expected);
    free(narrow);
}
END_TEST

START_TEST(test_arguments)
{
    float x = 1;
    uint16_t y;
    const struct ddp_to_bf16 bad[] = {
        {.count = -1, .x = &x, .y = &y}, {.count = 1, .y = &y}, {.count = 1, .x = &x}};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ddp_to_bf16(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_to_bf16_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("bf16");
    TCase *tc = kernel_case(suite, "bf16");
    tcase_add_test(tc, test_values);
    tcase_add_test(tc, test_arrays);
    tcase_add_test(tc, test_f16);
    tcase_add_test(tc, test_arguments);
    return suite;
}
