/* SPDX-License-Identifier: MIT
 *
 * Two-dimensional convolution as torch.nn.Conv2d (groups 1), and its gradients.
 *
 * Images are channels-last, (B,H,W,C), in every operation here: the channels of a pixel lie side by
 * side, so that they fill vectors at any image size, a row of the kernel's window is one run of
 * memory, and batch norm and pooling are sums over rows. The weight keeps PyTorch's shape
 * (O,C,KH,KW) in memory and in files. transpose.h goes from and to (B,C,H,W) at the model's ends.
 */
#ifndef DDP_KERNELS_CONV2D_CONV2D_H
#define DDP_KERNELS_CONV2D_CONV2D_H

#include "ddp.h"

#include "kernels/check.h"
#include "kernels/window.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_conv2d_shape {
    int64_t batch, height, width, in;    /* B, H, W, C of x */
    int64_t out;                         /* O */
    int64_t kernel_height, kernel_width; /* KH, KW, at least 1 */
    int64_t stride, padding, dilation;   /* of both directions; 1.., 0.., 1.. */
};

struct ddp_conv2d_forward {
    struct ddp_conv2d_shape shape;
    enum ddp_dtype dtype;           /* of x and y: DDP_F32 or DDP_BF16 */
    enum ddp_activation activation; /* none or ReLU */
    enum ddp_dtype compute;         /* DDP_F32; DDP_BF16: x and weight are rounded to bf16 (as
                                       torch.autocast does), products are added in float32 */
    const void *x;                  /* (B,H,W,C) */
    const float *weight;            /* (O,C,KH,KW) */
    const float *bias;              /* (O), or NULL: none */
    void *y;                        /* (B,OH,OW,O) out */
    void *scratch;                  /* ddp_conv2d_forward_scratch_bytes(), 64-byte aligned */
};

struct ddp_conv2d_backward {
    struct ddp_conv2d_shape shape;
    enum ddp_dtype dtype; /* of x, y and their gradients: DDP_F32 or DDP_BF16 */
    enum ddp_activation activation;
    enum ddp_dtype compute; /* DDP_BF16: x, weight and the gradient that arrives are rounded; dbias
                               is not */
    const void *x;          /* (B,H,W,C) the input of forward; may be NULL without dweight */
    const void *y;       /* (B,OH,OW,O) the output of forward; may be NULL without an activation */
    const float *weight; /* (O,C,KH,KW); may be NULL without dx */
    const void *dy;      /* (B,OH,OW,O) gradient of y */
    void *dx;            /* (B,H,W,C) out, or NULL: not needed (a first layer) */
    float *dweight;      /* (O,C,KH,KW) out, or NULL */
    float *dbias;        /* (O) out, or NULL */
    bool accumulate_dx;  /* add to dx; else overwrite, NaN in it does not matter */
    bool accumulate_dweight; /* the same for dweight and dbias */
    void *scratch;           /* ddp_conv2d_backward_scratch_bytes(), 64-byte aligned */
};

static inline int64_t ddp_conv2d_row_count(const struct ddp_conv2d_shape *s)
{
    return ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, s->dilation);
}

static inline int64_t ddp_conv2d_column_count(const struct ddp_conv2d_shape *s)
{
    return ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, s->dilation);
}

static inline bool ddp_conv2d_product_fits(const int64_t *factors, int count)
{
    size_t product = sizeof(float);
    for (int i = 0; i < count; i++)
        if (!ddp_size_multiply(product, (size_t)factors[i], &product))
            return false;
    return product <= INT64_MAX / 64;
}

static inline bool ddp_conv2d_shape_fits(const struct ddp_conv2d_shape *s)
{
    const int64_t at_least_one[] = {s->in,     s->out,      s->kernel_height, s->kernel_width,
                                    s->stride, s->dilation, s->height,        s->width};
    for (size_t i = 0; i < sizeof at_least_one / sizeof *at_least_one; i++)
        if (at_least_one[i] < 1 || at_least_one[i] > DDP_WINDOW_SIZE_LIMIT)
            return false;
    if (s->batch < 0 || s->batch > DDP_WINDOW_SIZE_LIMIT || s->padding < 0 ||
        s->padding > DDP_WINDOW_SIZE_LIMIT)
        return false;
    const int64_t rows = ddp_conv2d_row_count(s), columns = ddp_conv2d_column_count(s);
    const int64_t x[] = {s->batch, s->height, s->width, s->in};
    const int64_t y[] = {s->batch, rows, columns, s->out};
    const int64_t weight[] = {s->out + 15, s->in + 15, s->kernel_height, s->kernel_width, 16};
    return rows > 0 && columns > 0 && ddp_conv2d_product_fits(x, 4) &&
           ddp_conv2d_product_fits(y, 4) && ddp_conv2d_product_fits(weight, 5);
}

static inline enum ddp_status ddp_conv2d_check_shape(const struct ddp_conv2d_shape *s,
                                                     enum ddp_activation activation,
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
    if (compute != DDP_F32 && compute != DDP_BF16 && compute != DDP_F16)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: cannot compute in dtype %d", (int)compute);
    if (dtype != DDP_F32 && (dtype != DDP_BF16 || compute != DDP_BF16))
        return ddp_fail(DDP_ERR_INVALID, "conv2d: dtype %d with products of dtype %d", (int)dtype,
                        (int)compute);
    return ddp_check_dtype("conv2d", dtype);
}

static inline enum ddp_status ddp_conv2d_check_forward(const struct ddp_conv2d_forward *args)
{
    enum ddp_status status =
        ddp_conv2d_check_shape(&args->shape, args->activation, args->compute, args->dtype);
    if (status)
        return status;
    if (args->shape.batch > 0 && (!args->x || !args->weight || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "conv2d: x, weight or y is NULL");
    return DDP_OK;
}

static inline enum ddp_status ddp_conv2d_check_backward(const struct ddp_conv2d_backward *args)
{
    enum ddp_status status =
        ddp_conv2d_check_shape(&args->shape, args->activation, args->compute, args->dtype);
    if (status || args->shape.batch == 0)
        return status;
    bool missing = !args->dy || (args->activation != DDP_ACTIVATION_NONE && !args->y);
    missing |= args->dweight && !args->x;
    missing |= args->dx && !args->weight;
    if (missing)
        return ddp_fail(DDP_ERR_INVALID, "conv2d backward: dy, y, x or weight is NULL");
    return DDP_OK;
}

/* They depend on the shape alone; 0 for a shape that the functions below refuse. */
size_t ddp_conv2d_forward_scratch_bytes(const struct ddp_conv2d_shape *shape);
size_t ddp_conv2d_backward_scratch_bytes(const struct ddp_conv2d_shape *shape);

/* DDP_ERR_INVALID: a negative size, a window that never fits, or NULL where elements are needed.
 * Each fast version may be fed from the other's results: the reference ignores scratch. */
enum ddp_status ddp_conv2d_forward(const struct ddp_conv2d_forward *args, void *stream);
enum ddp_status ddp_conv2d_backward(const struct ddp_conv2d_backward *args, void *stream);

#ifdef __cplusplus
}
#endif

#endif
