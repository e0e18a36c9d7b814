/* SPDX-License-Identifier: MIT
 *
 * Linear layer on the CPU; see linear.h. The products are in gemm.c; bias and
 * activation follow each tile while it is in the cache. */
#include "config.h"

#include "kernels/linear.h"

#include "core/blocks.h"
#include "kernels/bf16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vmath.h"

#define COLUMNS 128   /* of a task of the backward pass; whole vectors */
#define SMALL   32768 /* elements that are not worth waking a thread for */

static enum ddp_status round_to(uint16_t *to, const float *from, int64_t count, void *stream)
{
    const struct ddp_to_bf16 args = {.count = count, .x = from, .y = to};
    return ddp_to_bf16(&args, stream);
}

/* An operand in the type that the product is computed in. */
static enum ddp_status make_operand(void *to, const float *from, int64_t count,
                                    enum ddp_dtype compute, void *stream)
{
    const struct ddp_round_f16 f16 = {.count = count, .x = from, .y = to};
    if (compute == DDP_BF16)
        return round_to(to, from, count, stream);
    ddp_round_f16(&f16, stream);
    return DDP_OK;
}

/* The weights; `to` is memory for them.
 *   there [out]  where they are */
static enum ddp_status make_weight(void *to, const float *weight, const uint16_t *weight_bf16,
                                   const struct ddp_linear_blocks *blocks, int64_t count,
                                   enum ddp_dtype compute, const void **there, void *stream)
{
    const struct ddp_round_f16 f16 = {.count = count, .x_bf16 = weight_bf16, .y = to};
    *there = to;
    if (blocks->block && compute == DDP_F16) {
        ddp_blocks_unpack(blocks->block, blocks->values, 0, count, to);
        return make_operand(to, to, count, compute, stream);
    }
    if (blocks->block) {
        *there = blocks->values;
        return DDP_OK;
    }
    if (weight && (compute == DDP_F16 || !weight_bf16))
        return make_operand(to, weight, count, compute, stream);
    if (compute == DDP_F16)
        ddp_round_f16(&f16, stream);
    else
        *there = weight_bf16;
    return DDP_OK;
}

/* The same product with these operands. */
static enum ddp_status run_rounded(struct ddp_gemm gemm, const void *a, const void *b,
                                   enum ddp_dtype compute, void *stream)
{
    gemm.bf16 = compute == DDP_BF16;
    if (compute == DDP_F16)
        gemm.b_block = NULL; /* make_weight() has unpacked them */
    gemm.a = a;
    gemm.b = b;
    return ddp_gemm(&gemm, stream);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Not max(): NaN must stay NaN. */
DDP_INLINE ddp_f32x16 activate(ddp_f32x16 z, enum ddp_activation activation)
{
    const ddp_f32x16 zero = {0};
    switch (activation) {
    case DDP_ACTIVATION_NONE:
        break;
    case DDP_ACTIVATION_RELU:
        return ddp_select16(z < zero, zero, z);
    case DDP_ACTIVATION_GELU:
        return ddp_gelu16(z);
    case DDP_ACTIVATION_GELU_TANH:
        return ddp_gelu16_tanh(z);
    }
    return z;
}

DDP_INLINE void finish_rows(const struct ddp_linear_forward *args, int64_t row, int64_t rows,
                            int64_t column, int64_t columns, enum ddp_activation activation)
{
    const bool gelu = activation == DDP_ACTIVATION_GELU || activation == DDP_ACTIVATION_GELU_TANH;
    const float *b = args->bias ? args->bias + column : NULL;
    for (int64_t i = row; i < row + rows; i++) {
        float *y = (float *)args->y + i * args->out + column;
        float *pre = gelu && args->pre ? (float *)args->pre + i * args->out + column : NULL;
        int64_t j = 0;
        for (; j + DDP_LANES <= columns; j += DDP_LANES) {
            ddp_f32x16 z = ddp_load16(y + j);
            if (b)
                z += ddp_load16(b + j);
            if (pre)
                ddp_store16(pre + j, z);
            ddp_store16(y + j, activate(z, activation));
        }
        if (j == columns)
            continue;
        ddp_f32x16 z = ddp_load16_tail(y + j, columns - j, 0);
        if (b)
            z += ddp_load16_tail(b + j, columns - j, 0);
        if (pre)
            ddp_store16_tail(pre + j, columns - j, z);
        ddp_store16_tail(y + j, columns - j, activate(z, activation));
    }
}

DDP_MULTIVERSION
static void finish_tile(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const struct ddp_linear_forward *args = arg;
    switch (args->activation) {
    case DDP_ACTIVATION_NONE:
        finish_rows(args, row, rows, column, columns, DDP_ACTIVATION_NONE);
        break;
    case DDP_ACTIVATION_RELU:
        finish_rows(args, row, rows, column, columns, DDP_ACTIVATION_RELU);
        break;
    case DDP_ACTIVATION_GELU:
        finish_rows(args, row, rows, column, columns, DDP_ACTIVATION_GELU);
        break;
    case DDP_ACTIVATION_GELU_TANH:
        finish_rows(args, row, rows, column, columns, DDP_ACTIVATION_GELU_TANH);
        break;
    }
}

static enum ddp_status forward_product(const struct ddp_linear_forward *args,
                                       struct ddp_linear_forward *epilogue_arg, void *stream)
{
    struct ddp_gemm product = {
        .transpose_b = true,
        .m = args->rows,
        .n = args->out,
        .k = args->in,
        .a = args->x,
        .lda = args->in,
        .b = args->weight,
        .ldb = args->in,
        .c = args->y,
        .ldc = args->out,
        .epilogue = epilogue_arg ? finish_tile : NULL,
        .epilogue_arg = epilogue_arg,
    };
    if (args->compute == DDP_F32 && !args->weight && !args->weight_blocks.block) {
        product.b_bf16 = true;
        product.b = args->weight_bf16;
    }
    if (args->weight_blocks.block) {
        product.b_block = args->weight_blocks.block;
        product.b = args->weight_blocks.values;
    }
    if (args->rowwise)
        return ddp_gemm_rows(&product, stream);
    if (args->compute == DDP_F32)
        return ddp_gemm(&product, stream);
    if (args->rows == 0 || args->out == 0)
        return DDP_OK;
    const struct ddp_linear_rounded rounded = ddp_linear_rounded_in(
        args->scratch, args->rows, args->in, args->out, args->compute, args->dtype);
    const void *weight = NULL;
    enum ddp_status status =
        make_operand(rounded.x, args->x, args->rows * args->in, args->compute, stream);
    if (status == DDP_OK)
        status = make_weight(rounded.weight, args->weight, args->weight_bf16, &args->weight_blocks,
                             args->out * args->in, args->compute, &weight, stream);
    return status == DDP_OK ? run_rounded(product, rounded.x, weight, args->compute, stream)
                            : status;
}

enum ddp_status ddp_linear_forward(const struct ddp_linear_forward *args, void *stream)
{
    enum ddp_status status = ddp_linear_check_forward(args);
    if (status)
        return status;
    struct ddp_linear_forward copy = *args;
    bool finish = args->bias || args->activation != DDP_ACTIVATION_NONE;
    return forward_product(args, finish ? &copy : NULL, stream);
}

/* --- backward --------------------------------------------------------------------------------- */

/* The gradient before the activation; `kept` is y for ReLU, else what the activation took. */
DDP_INLINE ddp_f32x16 deactivate(ddp_f32x16 dy, ddp_f32x16 kept, enum ddp_activation activation)
{
    const ddp_f32x16 zero = {0};
    switch (activation) {
    case DDP_ACTIVATION_NONE:
        break;
    case DDP_ACTIVATION_RELU:
        return ddp_select16(kept > zero, dy, zero);
    case DDP_ACTIVATION_GELU:
        return dy * ddp_gelu16_derivative(kept);
    case DDP_ACTIVATION_GELU_TANH:
        return dy * ddp_gelu16_tanh_derivative(kept);
    }
    return dy;
}

/* The gradient through the activation, and its column sums, for columns [begin, begin+count). */
DDP_INLINE void columns_block(const struct ddp_linear_backward *args, int64_t begin, int64_t count,
                              enum ddp_activation activation, float sums[COLUMNS])
{
    const bool active = activation != DDP_ACTIVATION_NONE;
    const float *kept = activation == DDP_ACTIVATION_RELU ? args->y : args->pre;
    for (int64_t i = 0; i < args->rows; i++) {
        float *dy = (float *)args->dy + i * args->out + begin;
        const float *z = active ? kept + i * args->out + begin : NULL;
        int64_t j = 0;
        for (; j + DDP_LANES <= count; j += DDP_LANES) {
            ddp_f32x16 d = ddp_load16(dy + j);
            if (active) {
                d = deactivate(d, ddp_load16(z + j), activation);
                ddp_store16(dy + j, d);
            }
            ddp_store16(sums + j, ddp_load16(sums + j) + d);
        }
        if (j == count)
            continue;
        ddp_f32x16 d = ddp_load16_tail(dy + j, count - j, 0);
        if (active) {
            d = deactivate(d, ddp_load16_tail(z + j, count - j, 0), activation);
            ddp_store16_tail(dy + j, count - j, d);
        }
        ddp_store16(sums + j, ddp_load16(sums + j) + d);
    }
}

DDP_MULTIVERSION
static void columns_run(const struct ddp_linear_backward *args, int64_t begin, int64_t count)
{
    float sums[COLUMNS] = {0};
    switch (args->activation) {
    case DDP_ACTIVATION_NONE:
        columns_block(args, begin, count, DDP_ACTIVATION_NONE, sums);
        break;
    case DDP_ACTIVATION_RELU:
        columns_block(args, begin, count, DDP_ACTIVATION_RELU, sums);
        break;
    case DDP_ACTIVATION_GELU:
        columns_block(args, begin, count, DDP_ACTIVATION_GELU, sums);
        break;
    case DDP_ACTIVATION_GELU_TANH:
        columns_block(args, begin, count, DDP_ACTIVATION_GELU_TANH, sums);
        break;
    }
    for (int64_t j = 0; args->dbias && j < count; j++)
        args->dbias[begin + j] =
            args->accumulate_dbias ? args->dbias[begin + j] + sums[j] : sums[j];
}

static void columns_task(void *arg, size_t index)
{
    const struct ddp_linear_backward *args = arg;
    int64_t begin = (int64_t)index * COLUMNS;
    int64_t left = args->out - begin;
    columns_run(args, begin, left < COLUMNS ? left : COLUMNS);
}

/* Rounds what the products read; dz stands in dy by now. */
static enum ddp_status round_backward(const struct ddp_linear_backward *args,
                                      struct ddp_linear_rounded *rounded, const void **weight,
                                      void *stream)
{
    enum ddp_status status =
        make_operand(rounded->dy, args->dy, args->rows * args->out, args->compute, stream);
    if (status == DDP_OK && args->dweight)
        status = make_operand(rounded->x, args->x, args->rows * args->in, args->compute, stream);
    if (status == DDP_OK && args->dx)
        status = make_weight(rounded->weight, args->weight, args->weight_bf16, &args->weight_blocks,
                             args->out * args->in, args->compute, weight, stream);
    return status;
}

/* dW = dz^T x and dx = dz W. */
static enum ddp_status backward_products(const struct ddp_linear_backward *args, void *stream)
{
    const struct ddp_gemm dweight = {
        .transpose_a = true,
        .m = args->out,
        .n = args->in,
        .k = args->rows,
        .a = args->dy,
        .lda = args->out,
        .b = args->x,
        .ldb = args->in,
        .c = args->dweight,
        .ldc = args->in,
        .beta = args->accumulate_dweight ? 1 : 0,
    };
    struct ddp_gemm dx = {
        .m = args->rows,
        .n = args->in,
        .k = args->out,
        .a = args->dy,
        .lda = args->out,
        .b = args->weight,
        .ldb = args->in,
        .c = args->dx,
        .ldc = args->in,
        .beta = args->accumulate_dx ? 1 : 0,
    };
    enum ddp_status status = DDP_OK;
    if (args->weight_blocks.block) {
        dx.b_block = args->weight_blocks.block;
        dx.b = args->weight_blocks.values;
    }
    if (args->compute == DDP_F32) {
        if (!args->weight && !dx.b_block) {
            dx.b_bf16 = true;
            dx.b = args->weight_bf16;
        }
        if (args->dweight)
            status = ddp_gemm(&dweight, stream);
        return args->dx && status == DDP_OK ? ddp_gemm(&dx, stream) : status;
    }
    if (args->in == 0 || (!args->dweight && !args->dx))
        return DDP_OK;
    struct ddp_linear_rounded rounded = {0};
    const void *weight = NULL;
    if (args->rows > 0 && args->out > 0) { /* else the products are empty, and read nothing */
        rounded = ddp_linear_rounded_in(args->scratch, args->rows, args->in, args->out,
                                        args->compute, args->dtype);
        status = round_backward(args, &rounded, &weight, stream);
    }
    if (args->dweight && status == DDP_OK)
        status = run_rounded(dweight, rounded.dy, rounded.x, args->compute, stream);
    if (args->dx && status == DDP_OK)
        status = run_rounded(dx, rounded.dy, weight, args->compute, stream);
    return status;
}

enum ddp_status ddp_linear_backward(const struct ddp_linear_backward *args, void *stream)
{
    enum ddp_status status = ddp_linear_check_backward(args);
    if (status)
        return status;
    if (args->activation != DDP_ACTIVATION_NONE || args->dbias) {
        struct ddp_linear_backward copy = *args;
        const int64_t limit = ddp_linear_is_gelu(args->activation) ? SMALL / 8 : SMALL;
        bool small = args->rows == 0 || args->out <= limit / args->rows;
        ddp_pool_run(small ? NULL : ddp_stream_pool(stream),
                     (size_t)(args->out / COLUMNS + (args->out % COLUMNS != 0)), columns_task,
                     &copy);
    }
    return backward_products(args, stream);
}
