/* SPDX-License-Identifier: MIT
 *
 * exp, log, sin, cos and pow in double, from additions, multiplications, divisions and fused
 * multiply-adds that stand here: the same bits on every processor, with every compiler and C
 * library, where libm's last bit depends on all three. Errors are below one unit of the last place,
 * as check_portable_math measures. What decides a model's bits calls these, never libm's. */
#ifndef DDP_CORE_PORTABLE_MATH_H
#define DDP_CORE_PORTABLE_MATH_H

#ifdef __cplusplus
extern "C" {
#endif

double ddp_math_exp(double x);

/* -inf for 0, NaN below it. */
double ddp_math_log(double x);

/* NaN beyond |x| = 2^45. */
void ddp_math_sin_cos(double x, double *sine, double *cosine);

/* x to the power y for x >= 0, 0 to the power 0 is 1; NaN for x < 0. */
double ddp_math_pow(double x, double y);

#ifdef __cplusplus
}
#endif

#endif
