/* SPDX-License-Identifier: MIT
 *
 * The product of bf16: the library's and the plain one against the reference, bits over thread
 * counts, epilogues, bad arguments. */
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

Suite *test_suite(void)
{
    Suite *suite = suite_create("gemm_bf16");
    product_case(suite, "gemm_bf16");
    return suite;
}
