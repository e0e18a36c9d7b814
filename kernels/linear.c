/* SPDX-License-Identifier: MIT
 *
 * Linear layer on the CPU; see linear.h. The products are in gemm.c; bias and activation follow
 * each tile. */
#include "config.h"

#include "kernels/linear.h"

#include "core/log.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"

#define COLUMNS 128   /* of a task of the backward pass */
#define SMALL   32768 /* elements that are not worth waking a thread for */

/* Not max(): NaN must stay NaN. */
DDP_INLINE float activate(float value, enum ddp_activation activation)
{
    return activation == DDP_ACTIVATION_RELU && value < 0 ? 0 : value;
}

static enum ddp_status check_shape(int64_t rows, int64_t in, int64_t out,
                                   enum ddp_activation activation)
{
    if (rows < 0 || in < 0 || out < 0)
        return ddp_fail(DDP_ERR_INVALID, "linear: negative size (%lld rows, %lld in, %lld out)",
                        (long long)rows, (long long)in, (long long)out);
    if (activation != DDP_ACTIVATION_NONE && activation != DDP_ACTIVATION_RELU)
        return ddp_fail(DDP_ERR_INVALID, "linear: unknown activation %d", (int)activation);
    return DDP_OK;
}

size_t ddp_linear_scratch_bytes(int64_t rows, int64_t in, int64_t out, enum ddp_dtype compute,
                                bool has_weight_bf16)
{
    if (compute != DDP_BF16)
        return 0;
    size_t weights = has_weight_bf16 ? 0 : (size_t)(in * out);
    return ((size_t)(rows * in) + (size_t)(rows * out) + weights) * sizeof(uint16_t);
}

static enum ddp_status check_forward(const struct ddp_linear_forward *args)
{
    enum ddp_status status = check_shape(args->rows, args->in, args->out, args->activation);
    if (status)
        return status;
    bool inputs = args->rows > 0 && args->out > 0 && args->in > 0;
    if ((inputs && (!args->x || !args->weight)) || (args->rows > 0 && args->out > 0 && !args->y))
        return ddp_fail(DDP_ERR_INVALID, "linear: x, weight or y is NULL");
    return DDP_OK;
}

/* --- forward
 * -------------------------------------------------------------------------------------- */

DDP_INLINE void finish_rows(const struct ddp_linear_forward *args, int64_t row, int64_t rows,
                            int64_t column, int64_t columns, bool bias, bool relu)
{
    const float *restrict b = args->bias + (bias ? column : 0);
    for (int64_t i = row; i < row + rows; i++) {
        float *restrict y = args->y + i * args->out + column;
        for (int64_t j = 0; j < columns; j++)
            y[j] = activate(bias ? y[j] + b[j] : y[j],
                            relu ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE);
    }
}

DDP_MULTIVERSION
static void finish_tile(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const struct ddp_linear_forward *args = arg;
    bool relu = args->activation == DDP_ACTIVATION_RELU;
    if (args->bias && relu)
        finish_rows(args, row, rows, column, columns, true, true);
    else if (args->bias)
        finish_rows(args, row, rows, column, columns, true, false);
    else
        finish_rows(args, row, rows, column, columns, false, true);
}

static struct ddp_gemm forward_product(const struct ddp_linear_forward *args)
{
    return (struct ddp_gemm){
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
    };
}

enum ddp_status ddp_linear_forward(const struct ddp_linear_forward *args, void *stream)
{
    enum ddp_status status = check_forward(args);
    if (status)
        return status;
    struct ddp_linear_forward copy = *args;
    struct ddp_gemm product = forward_product(args);
    if (args->bias || args->activation != DDP_ACTIVATION_NONE) {
        product.epilogue = finish_tile;
        product.epilogue_arg = &copy;
    }
    return ddp_gemm(&product, stream);
}

enum ddp_status ddp_linear_forward_reference(const struct ddp_linear_forward *args, void *stream)
{
    enum ddp_status status = check_forward(args);
    if (status)
        return status;
    struct ddp_gemm product = forward_product(args);
    status = ddp_gemm_reference(&product, stream);
    if (status)
        return status;
    for (int64_t i = 0; i < args->rows; i++)
        for (int64_t j = 0; j < args->out; j++) {
            float *y = &args->y[i * args->out + j];
            *y = activate(*y + (args->bias ? args->bias[j] : 0), args->activation);
        }
    return DDP_OK;
}

/* --- backward
 * ------------------------------------------------------------------------------------- */

static enum ddp_status check_backward(const struct ddp_linear_backward *args)
{
    enum ddp_status status = check_shape(args->rows, args->in, args->out, args->activation);
    if (status)
        return status;
    bool outputs = args->rows > 0 && args->out > 0;
    bool missing = outputs && !args->dy;
    missing |= outputs && args->activation != DDP_ACTIVATION_NONE && !args->y;
    missing |= outputs && args->in > 0 && args->dweight && !args->x;
    missing |= outputs && args->in > 0 && args->dx && !args->weight;
    if (missing)
        return ddp_fail(DDP_ERR_INVALID, "linear backward: dy, y, x or weight is NULL");
    return DDP_OK;
}

struct columns {
    const struct ddp_linear_backward *args;
    bool relu;
};

/* The gradient through the activation, and its column sums, for columns [begin, begin+count). */
DDP_MULTIVERSION
static void columns_block(const struct ddp_linear_backward *args, bool relu, int64_t begin,
                          int64_t count)
{
    float sums[COLUMNS] = {0};
    for (int64_t i = 0; i < args->rows; i++) {
        float *restrict dy = args->dy + i * args->out + begin;
        if (relu) {
            const float *restrict y = args->y + i * args->out + begin;
            for (int64_t j = 0; j < count; j++)
                dy[j] = y[j] > 0 ? dy[j] : 0;
        }
        if (args->dbias)
            for (int64_t j = 0; j < count; j++)
                sums[j] += dy[j];
    }
    if (args->dbias)
        memcpy(args->dbias + begin, sums, (size_t)count * sizeof *sums);
}

static void columns_task(void *arg, size_t index)
{
    const struct columns *columns = arg;
    int64_t begin = (int64_t)index * COLUMNS;
    int64_t left = columns->args->out - begin;
    columns_block(columns->args, columns->relu, begin, left < COLUMNS ? left : COLUMNS);
}

typedef enum ddp_status gemm_function(const struct ddp_gemm *gemm, void *stream);

/* dW = dz^T x and dx = dz W, where dz stands in dy by now. */
static enum ddp_status backward_products(const struct ddp_linear_backward *args,
                                         gemm_function *gemm, void *stream)
{
    enum ddp_status status = DDP_OK;
    if (args->dweight) {
        struct ddp_gemm product = {
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
        };
        status = gemm(&product, stream);
    }
    if (args->dx && status == DDP_OK) {
        struct ddp_gemm product = {
            .m = args->rows,
            .n = args->in,
            .k = args->out,
            .a = args->dy,
            .lda = args->out,
            .b = args->weight,
            .ldb = args->in,
            .c = args->dx,
            .ldc = args->in,
        };
        status = gemm(&product, stream);
    }
    return status;
}

enum ddp_status ddp_linear_backward(const struct ddp_linear_backward *args, void *stream)
{
    enum ddp_status status = check_backward(args);
    if (status)
        return status;
    struct columns columns = {.args = args, .relu = args->activation == DDP_ACTIVATION_RELU};
    if (columns.relu || args->dbias) {
        bool small = args->rows == 0 || args->out <= SMALL / args->rows;
        ddp_pool_run(small ? NULL : ddp_stream_pool(stream),
                     (size_t)(args->out / COLUMNS + (args->out % COLUMNS != 0)), columns_task,
                     &columns);
    }
    return backward_products(args, ddp_gemm, stream);
}

enum ddp_status ddp_linear_backward_reference(const struct ddp_linear_backward *args, void *stream)
{
    enum ddp_status status = check_backward(args);
    if (status)
        return status;
    for (int64_t j = 0; j < args->out; j++) {
        float sum = 0;
        for (int64_t i = 0; i < args->rows; i++) {
            int64_t at = i * args->out + j;
            if (args->activation == DDP_ACTIVATION_RELU && !(args->y[at] > 0))
                args->dy[at] = 0;
            sum += args->dy[at];
        }
        if (args->dbias)
            args->dbias[j] = sum;
    }
    return backward_products(args, ddp_gemm_reference, stream);
}
