/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy on the CPU; see softmax_cross_entropy.h. A row is read for its maximum,
 * then turned into exponentials and their sum, then scaled into the gradient, while it is in the
 * cache. Lane sums have one order on every machine, so the bits depend neither on threads nor on
 * the instruction set. */
#include "config.h"

#include "kernels/softmax_cross_entropy.h"

#include "core/log.h"
#include "core/portable_math.h"
#include "kernels/cpu/vmath.h"

#define ROWS 16 /* of a task, at least */

struct pass {
    const struct ddp_softmax_cross_entropy *args;
    int64_t counted, divisor;
    struct ddp_blocks blocks;
    double partial[DDP_BLOCKS_MAX]; /* loss of each block of rows */
};

DDP_INLINE float row_max(const float *x, int64_t n)
{
    const ddp_f32x16 lowest = ddp_splat16(-INFINITY);
    ddp_f32x16 a = lowest, b = lowest, c = lowest, d = lowest;
    int64_t i = 0;
    for (; i + 4 * DDP_LANES <= n; i += 4 * DDP_LANES) {
        a = ddp_max16(a, ddp_load16(x + i));
        b = ddp_max16(b, ddp_load16(x + i + DDP_LANES));
        c = ddp_max16(c, ddp_load16(x + i + 2 * DDP_LANES));
        d = ddp_max16(d, ddp_load16(x + i + 3 * DDP_LANES));
    }
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        a = ddp_max16(a, ddp_load16(x + i));
    if (i < n)
        b = ddp_max16(b, ddp_load16_tail(x + i, n - i, -INFINITY));
    return ddp_largest16(ddp_max16(ddp_max16(a, b), ddp_max16(c, d)));
}

/* Writes e^(x - max) to e (or not: NULL) and returns the sum. */
DDP_INLINE float row_exp(const float *x, float *e, int64_t n, float max)
{
    ddp_f32x16 sums = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES) {
        ddp_f32x16 value = ddp_exp16_negative(ddp_load16(x + i) - max);
        sums += value;
        if (e)
            ddp_store16(e + i, value);
    }
    if (i < n) {
        /* -inf - max would be NaN for max = -inf: that row's sum is NaN already from its own
         * elements. */
        ddp_f32x16 value = ddp_exp16_negative(ddp_load16_tail(x + i, n - i, -INFINITY) - max);
        sums += value;
        if (e)
            ddp_store16_tail(e + i, n - i, value);
    }
    return ddp_sum16(sums);
}

DDP_INLINE void row_scale(float *e, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++)
        e[i] *= factor;
}

DDP_INLINE int32_t first_equal(const float *x, int64_t n, float value)
{
    enum { STEP = 128 };
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        int32_t any = 0;
        for (int64_t j = 0; j < STEP; j++)
            any |= x[i + j] == value;
        if (any)
            break;
    }
    for (; i < n; i++)
        if (x[i] == value)
            return (int32_t)i;
    return 0; /* a row of NaN */
}

/* The label of the row before, which a row's sample is mixed with. */
static int32_t label_before(const struct ddp_softmax_cross_entropy *args, int64_t row)
{
    const int32_t label = args->labels[row > 0 ? row - 1 : args->rows - 1];
    return label == DDP_LABEL_NONE ? args->labels[row] : label;
}

/* The mean logit of a row's soft labels. */
static double soft_logit(const struct ddp_softmax_cross_entropy *args, int64_t row, const float *x)
{
    const double share = (double)args->soft->share, smooth = (double)args->soft->smooth;
    double sum = 0;
    for (int64_t c = 0; smooth > 0 && c < args->classes; c++)
        sum += (double)x[c];
    return (1 - smooth) * (share * (double)x[args->labels[row]] +
                           (1 - share) * (double)x[label_before(args, row)]) +
           smooth * (sum / (double)args->classes);
}

/* The gradient, from exponentials and their sum. */
static void soft_gradient(const struct ddp_softmax_cross_entropy *args, int64_t row, float *d,
                          float sum, float factor)
{
    const float share = args->soft->share, smooth = args->soft->smooth;
    const float even = smooth / (float)args->classes, inverse = 1 / sum;
    const int32_t own = args->labels[row], before = label_before(args, row);
    for (int64_t c = 0; c < args->classes; c++) {
        float target = even;
        if (c == own)
            target += (1 - smooth) * share;
        if (c == before)
            target += (1 - smooth) * (1 - share);
        d[c] = (d[c] * inverse - target) * factor;
    }
}

DDP_MULTIVERSION
static double rows_block(const struct pass *pass, int64_t begin, int64_t end)
{
    const struct ddp_softmax_cross_entropy *args = pass->args;
    const float *logits = args->logits;
    float *dlogits = args->dlogits;
    const int64_t n = args->classes, stride = ddp_softmax_cross_entropy_stride(args);
    const float mean = (args->dloss ? *args->dloss : 1.0f) / (float)pass->divisor;
    double loss = 0;
    for (int64_t row = begin; row < end; row++) {
        const float *x = logits + row * stride;
        float *d = dlogits ? dlogits + row * stride : NULL;
        const int32_t label = args->labels[row];
        float max = 0;
        if (label != DDP_LABEL_NONE || args->predictions)
            max = row_max(x, n);
        if (args->predictions)
            args->predictions[row] = first_equal(x, n, max);
        if (d)
            memset(d + n, 0, (size_t)(stride - n) * sizeof *d);
        if (args->row_losses)
            args->row_losses[row] = 0;
        if (label == DDP_LABEL_NONE) {
            if (d)
                memset(d, 0, (size_t)n * sizeof *d);
            continue;
        }
        /* d may be x */
        const double own = args->soft ? soft_logit(args, row, x) : (double)x[label];
        float sum = row_exp(x, d, n, max);
        const double own_loss = ddp_math_log((double)sum) - (own - (double)max);
        loss += own_loss;
        if (args->row_losses)
            args->row_losses[row] = (float)own_loss;
        const float factor = args->row_weights ? args->row_weights[row] * mean : mean;
        if (d && args->soft)
            soft_gradient(args, row, d, sum, factor);
        else if (d) {
            float right = d[label] / sum - 1.0f;
            row_scale(d, n, factor / sum);
            d[label] = right * factor;
        }
    }
    return loss;
}

static void rows_task(void *arg, size_t index)
{
    struct pass *pass = arg;
    pass->partial[index] = rows_block(pass, ddp_block_begin(&pass->blocks, index),
                                      ddp_block_end(&pass->blocks, index));
}

/* The rows that count, and what the sums are divided by: 0 where none does. */
static enum ddp_status count_labels(struct pass *pass)
{
    const struct ddp_softmax_cross_entropy *args = pass->args;
    int64_t counted = 0;
    for (int64_t row = 0; row < args->rows; row++) {
        if (args->labels[row] == DDP_LABEL_NONE)
            continue;
        if (args->labels[row] < 0 || args->labels[row] >= args->classes)
            return ddp_fail(
                DDP_ERR_INVALID,
                "softmax cross-entropy: label %d in row %lld, but there are %lld classes",
                (int)args->labels[row], (long long)(args->first_row + row),
                (long long)args->classes);
        counted++;
    }
    pass->counted = counted;
    pass->divisor = counted > 0 && args->divisor > 0 ? args->divisor : counted;
    return DDP_OK;
}

static void put_loss(const struct pass *pass, double sum)
{
    const struct ddp_softmax_cross_entropy *args = pass->args;
    const float mean = pass->divisor ? (float)(sum / (double)pass->divisor) : 0;
    const float uncounted = (float)(args->rows - pass->counted);
    *args->loss = args->accumulate_loss ? *args->loss + mean : mean;
    if (args->uncounted)
        *args->uncounted = args->accumulate_loss ? *args->uncounted + uncounted : uncounted;
}

enum ddp_status ddp_softmax_cross_entropy(const struct ddp_softmax_cross_entropy *args,
                                          void *stream)
{
    struct pass pass = {.args = args};
    enum ddp_status status = ddp_softmax_cross_entropy_check(args);
    if (status == DDP_OK)
        status = count_labels(&pass);
    if (status)
        return status;
    pass.blocks = ddp_blocks_cut(args->rows, ROWS, 1);
    ddp_pool_run(ddp_stream_pool(stream), pass.blocks.count, rows_task, &pass);
    double loss = 0;
    for (size_t i = 0; i < pass.blocks.count; i++)
        loss += pass.partial[i];
    put_loss(&pass, loss);
    return DDP_OK;
}
