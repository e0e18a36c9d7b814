/* SPDX-License-Identifier: MIT
 *
 * Sums of arrays on the CPU; see add.h. */
#include "config.h"

#include "kernels/add.h"

#include "kernels/cpu/vmath.h"

#define SMALLEST 32768 /* elements of a task */

/* Whole vectors are read before any is written: y may be a or b. */
DDP_INLINE void add_block(const float *a, const float *b, float *y, int64_t n, bool two,
                          bool accumulate)
{
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES) {
        ddp_f32x16 sum = ddp_load16(a + i);
        if (two)
            sum += ddp_load16(b + i);
        if (accumulate)
            sum = ddp_load16(y + i) + sum;
        ddp_store16(y + i, sum);
    }
    for (; i < n; i++) {
        float sum = two ? a[i] + b[i] : a[i];
        y[i] = accumulate ? y[i] + sum : sum;
    }
}

DDP_MULTIVERSION
static void add_arrays(const float *a, const float *b, float *y, int64_t n, bool accumulate)
{
    if (b && accumulate)
        add_block(a, b, y, n, true, true);
    else if (b)
        add_block(a, b, y, n, true, false);
    else if (accumulate)
        add_block(a, b, y, n, false, true);
    else if (y != a)
        memcpy(y, a, (size_t)n * sizeof *y);
}

DDP_MULTIVERSION
static void scale_block(const float *a, float scale, float *y, int64_t n, bool accumulate)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = scale * a[i];
        y[i] = accumulate ? y[i] + scaled : scaled;
    }
}

static void add_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_add *args = arg;
    const float *a = args->a;
    const float *b = args->b;
    float *y = args->y;
    if (args->scale != 0)
        scale_block(a + begin, args->scale, y + begin, end - begin, args->accumulate);
    else
        add_arrays(a + begin, b ? b + begin : NULL, y + begin, end - begin, args->accumulate);
}

enum ddp_status ddp_add(const struct ddp_add *args, void *stream)
{
    enum ddp_status status = ddp_add_check(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, SMALLEST, DDP_LANES), add_range, args, stream);
    return DDP_OK;
}
