/* SPDX-License-Identifier: MIT
 *
 * See conv2d_check.h. */
#include "config.h"

#include "kernels/conv2d/check.h"

#include "core/log.h"
#include "core/memory.h"

#define SIZE_LIMIT 16777216 /* of one dimension: offsets then fit without further checks */

int64_t ddp_window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                         int64_t dilation)
{
    const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    return size < 0 || kernel < 1 || stride < 1 || room < 0 ? 0 : room / stride + 1;
}

static int64_t row_count(const struct ddp_conv2d_shape *s)
{
    return ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, s->dilation);
}

static int64_t column_count(const struct ddp_conv2d_shape *s)
{
    return ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, s->dilation);
}

static bool product_fits(const int64_t *factors, int count)
{
    size_t product = sizeof(float);
    for (int i = 0; i < count; i++)
        if (!ddp_size_multiply(product, (size_t)factors[i], &product))
            return false;
    return product <= INT64_MAX / 64;
}

bool ddp_conv2d_shape_fits(const struct ddp_conv2d_shape *s)
{
    const int64_t at_least_one[] = {s->in,     s->out,      s->kernel_height, s->kernel_width,
                                    s->stride, s->dilation, s->height,        s->width};
    for (size_t i = 0; i < sizeof at_least_one / sizeof *at_least_one; i++)
        if (at_least_one[i] < 1 || at_least_one[i] > SIZE_LIMIT)
            return false;
    if (s->batch < 0 || s->batch > SIZE_LIMIT || s->padding < 0 || s->padding > SIZE_LIMIT)
        return false;
    return row_count(s) > 0 && column_count(s) > 0 &&
           product_fits((const int64_t[]){s->batch, s->height, s->width, s->in}, 4) &&
           product_fits((const int64_t[]){s->batch, row_count(s), column_count(s), s->out}, 4) &&
           product_fits(
               (const int64_t[]){s->out + 15, s->in + 15, s->kernel_height, s->kernel_width, 16},
               5);
}

static enum ddp_status check_shape(const struct ddp_conv2d_shape *s, enum ddp_activation activation,
                                   enum ddp_dtype compute, enum ddp_dtype dtype)
{
    if (!ddp_conv2d_shape_fits(s))
        return ddp_fail(DDP_ERR_INVALID,
                        "conv2d: %lld images of %lld x %lld x %lld with windows of %lld x %lld for "
                        "%lld channels (stride %lld, padding %lld, dilation %lld) do not fit",
                        (long long)s->batch, (long long)s->height, (long long)s->width,
                        (long long)s->in, (long long)s->kernel_height, (long long)s->kernel_width,
                        (long long)s->out, (long long)s->stride, (long long)s->padding,
                        (long long)s->dilation);
    if (activation != DDP_ACTIVATION_NONE && activation != DDP_ACTIVATION_RELU)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: activation %d is not fused", (int)activation);
    if (compute != DDP_F32 && compute != DDP_BF16)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: cannot compute in dtype %d", (int)compute);
    if (dtype != DDP_F32 && (dtype != DDP_BF16 || compute != DDP_BF16))
        return ddp_fail(DDP_ERR_INVALID, "conv2d: dtype %d with products of dtype %d", (int)dtype,
                        (int)compute);
    return DDP_OK;
}

enum ddp_status ddp_conv2d_check_forward(const struct ddp_conv2d_forward *args)
{
    enum ddp_status status =
        check_shape(&args->shape, args->activation, args->compute, args->dtype);
    if (status)
        return status;
    if (args->shape.batch > 0 && (!args->x || !args->weight || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "conv2d: x, weight or y is NULL");
    return DDP_OK;
}

enum ddp_status ddp_conv2d_check_backward(const struct ddp_conv2d_backward *args)
{
    enum ddp_status status =
        check_shape(&args->shape, args->activation, args->compute, args->dtype);
    if (status || args->shape.batch == 0)
        return status;
    bool missing = !args->dy || (args->activation != DDP_ACTIVATION_NONE && !args->y);
    missing |= args->dweight && !args->x;
    missing |= args->dx && !args->weight;
    if (missing)
        return ddp_fail(DDP_ERR_INVALID, "conv2d backward: dy, y, x or weight is NULL");
    return DDP_OK;
}
