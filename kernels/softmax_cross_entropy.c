/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy on the CPU; see softmax_cross_entropy.h. A row is read for its maximum,
 * then turned into exponentials and their sum, then scaled into the gradient, while it is in the
 * cache. Lane sums have one order on every machine, so the bits depend neither on threads nor on
 * the instruction set. */
#include "config.h"

#include "kernels/softmax_cross_entropy.h"

#include "core/log.h"
#include "kernels/cpu.h"

#include <math.h>

#define ROWS 16 /* of a task, at least */

struct pass {
    const struct ddp_softmax_cross_entropy *args;
    struct ddp_blocks blocks;
    double partial[DDP_BLOCKS_MAX]; /* loss of each block of rows */
};

DDP_INLINE ddp_f32x16 load(const float *p)
{
    ddp_f32x16 value;
    memcpy(&value, p, sizeof value);
    return value;
}

DDP_INLINE void store(float *p, ddp_f32x16 value)
{
    memcpy(p, &value, sizeof value);
}

/* The last n < 16 elements of a row; `rest` fills the other lanes. */
DDP_INLINE ddp_f32x16 load_tail(const float *p, int64_t n, float rest)
{
    float lanes[DDP_LANES];
    for (int lane = 0; lane < DDP_LANES; lane++)
        lanes[lane] = lane < n ? p[lane] : rest;
    return load(lanes);
}

DDP_INLINE void store_tail(float *p, int64_t n, ddp_f32x16 value)
{
    for (int64_t lane = 0; lane < n; lane++)
        p[lane] = value[lane];
}

DDP_INLINE ddp_f32x16 select16(ddp_i32x16 mask, ddp_f32x16 yes, ddp_f32x16 no)
{
    return (ddp_f32x16)((mask & (ddp_i32x16)yes) | (~mask & (ddp_i32x16)no));
}

/* e^x for x <= 0 within 1 ulp, 0 where the result would be subnormal, NaN for NaN. x = n ln 2 + r
 * with |r| <= ln 2 / 2; e^r is Cephes' polynomial of degree 7; 2^n is built from its bits. */
DDP_INLINE ddp_f32x16 exp16(ddp_f32x16 x)
{
    const ddp_f32x16 zero = {0};
    const float lowest = -87.33654475f; /* e^x is the smallest normal number */
    const float round_off =
        12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    ddp_i32x16 tiny = x < lowest;
    ddp_f32x16 shifted = x * 1.44269504f + round_off;
    ddp_f32x16 n = shifted - round_off;
    ddp_f32x16 r = x - n * ln2_high;
    r = r - n * ln2_low;
    ddp_f32x16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r + 1.0f;
    ddp_u32x16 bits = ((ddp_u32x16)shifted - 0x4b400000u + 127u) << 23;
    return select16(tiny, zero, p * (ddp_f32x16)bits);
}

DDP_INLINE ddp_f32x16 max16(ddp_f32x16 a, ddp_f32x16 b)
{
    return select16(b > a, b, a);
}

DDP_INLINE float row_max(const float *x, int64_t n)
{
    ddp_f32x16 lanes = load_tail(x, 0, -INFINITY);
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        lanes = max16(lanes, load(x + i));
    if (i < n)
        lanes = max16(lanes, load_tail(x + i, n - i, -INFINITY));
    float max = -INFINITY;
    for (int lane = 0; lane < DDP_LANES; lane++)
        max = lanes[lane] > max ? lanes[lane] : max;
    return max;
}

/* Writes e^(x - max) to e (or not: NULL) and returns the sum. */
DDP_INLINE float row_exp(const float *x, float *e, int64_t n, float max)
{
    ddp_f32x16 sums = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES) {
        ddp_f32x16 value = exp16(load(x + i) - max);
        sums += value;
        if (e)
            store(e + i, value);
    }
    if (i < n) {
        /* -inf - max would be NaN for max = -inf: that row's sum is NaN already from its own
         * elements. */
        ddp_f32x16 value = exp16(load_tail(x + i, n - i, -INFINITY) - max);
        sums += value;
        if (e)
            store_tail(e + i, n - i, value);
    }
    for (int half = DDP_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            sums[lane] += sums[lane + half];
    return sums[0];
}

DDP_INLINE void row_scale(float *e, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++)
        e[i] *= factor;
}

static int32_t first_equal(const float *x, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] == value)
            return (int32_t)i;
    return 0; /* a row of NaN */
}

DDP_MULTIVERSION
static double rows_block(const struct ddp_softmax_cross_entropy *args, int64_t begin, int64_t end)
{
    const int64_t n = args->classes;
    const float mean = 1.0f / (float)args->rows;
    double loss = 0;
    for (int64_t row = begin; row < end; row++) {
        const float *x = args->logits + row * n;
        float *d = args->dlogits ? args->dlogits + row * n : NULL;
        const int32_t label = args->labels[row];
        const float own = x[label]; /* d may be x */
        float max = row_max(x, n);
        if (args->predictions)
            args->predictions[row] = first_equal(x, n, max);
        float sum = row_exp(x, d, n, max);
        loss += log((double)sum) - ((double)own - (double)max);
        if (d) {
            float right = d[label] / sum - 1.0f;
            row_scale(d, n, mean / sum);
            d[label] = right * mean;
        }
    }
    return loss;
}

static void rows_task(void *arg, size_t index)
{
    struct pass *pass = arg;
    pass->partial[index] = rows_block(pass->args, ddp_block_begin(&pass->blocks, index),
                                      ddp_block_end(&pass->blocks, index));
}

static enum ddp_status check(const struct ddp_softmax_cross_entropy *args)
{
    if (args->rows < 0 || args->classes < 1 || args->classes > INT32_MAX || !args->loss ||
        (args->rows > 0 && (!args->logits || !args->labels)))
        return ddp_fail(DDP_ERR_INVALID,
                        "softmax cross-entropy: bad arguments (%lld rows of %lld classes)",
                        (long long)args->rows, (long long)args->classes);
    for (int64_t row = 0; row < args->rows; row++)
        if (args->labels[row] < 0 || args->labels[row] >= args->classes)
            return ddp_fail(
                DDP_ERR_INVALID,
                "softmax cross-entropy: label %d in row %lld, but there are %lld classes",
                (int)args->labels[row], (long long)row, (long long)args->classes);
    return DDP_OK;
}

enum ddp_status ddp_softmax_cross_entropy(const struct ddp_softmax_cross_entropy *args,
                                          void *stream)
{
    enum ddp_status status = check(args);
    if (status)
        return status;
    struct pass pass = {.args = args, .blocks = ddp_blocks_cut(args->rows, ROWS, 1)};
    ddp_pool_run(ddp_stream_pool(stream), pass.blocks.count, rows_task, &pass);
    double loss = 0;
    for (size_t i = 0; i < pass.blocks.count; i++)
        loss += pass.partial[i];
    *args->loss = args->rows ? (float)(loss / (double)args->rows) : 0;
    return DDP_OK;
}

enum ddp_status ddp_softmax_cross_entropy_reference(const struct ddp_softmax_cross_entropy *args,
                                                    void *stream)
{
    (void)stream;
    enum ddp_status status = check(args);
    if (status)
        return status;
    double loss = 0;
    for (int64_t row = 0; row < args->rows; row++) {
        const float *x = args->logits + row * args->classes;
        int64_t best = 0;
        double sum = 0;
        for (int64_t i = 0; i < args->classes; i++)
            if (x[i] > x[best] || isnan(x[best]))
                best = i;
        double max = (double)x[best];
        for (int64_t i = 0; i < args->classes; i++)
            sum += exp((double)x[i] - max);
        loss += log(sum) - ((double)x[args->labels[row]] - max);
        if (args->predictions)
            args->predictions[row] = isnan(x[best]) ? 0 : (int32_t)best;
        if (args->dlogits)
            for (int64_t i = 0; i < args->classes; i++) {
                double p = exp((double)x[i] - max) / sum;
                args->dlogits[row * args->classes + i] =
                    (float)((p - (i == args->labels[row])) / (double)args->rows);
            }
    }
    *args->loss = args->rows ? (float)(loss / (double)args->rows) : 0;
    return DDP_OK;
}
