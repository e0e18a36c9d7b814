/* SPDX-License-Identifier: MIT
 *
 * A fused multiply-add of floats for processors that may have none, such as virtual machines that
 * show a guest no FMA: the C library takes forty times as long there, since it changes how the
 * thread rounds. */
#ifndef DDP_CORE_FMA_H
#define DDP_CORE_FMA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* x y + c, rounded once. The product is exact in double. Their sum is rounded to odd: where it is
 * not exact, its last bit is 1, so that it lies on the right side of every float and of what is
 * half-way between two. */
static inline float ddp_fma_f32(float x, float y, float c)
{
#ifdef FP_FAST_FMAF
    return fmaf(x, y, c);
#else
    const double product = (double)x * (double)y, sum = product + (double)c, rest = sum - product;
    const double error = (product - (sum - rest)) + ((double)c - rest); /* or NaN */
    int64_t bits;
    double odd;
    memcpy(&bits, &sum, sizeof bits);
    if ((error > 0 || error < 0) && bits % 2 == 0)
        bits += (error > 0) == (sum > 0) ? 1 : -1;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
#endif
}

#endif
