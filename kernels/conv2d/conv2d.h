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

#include "kernels/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_conv2d_shape {
    int64_t batch, height, width, in;    /* B, H, W, C of x */
    int64_t out;                         /* O */
    int64_t kernel_height, kernel_width; /* KH, KW, at least 1 */
    int64_t stride, padding, dilation;   /* of both directions; 1.., 0.., 1.. */
};

/* OH or OW: positions of a window of `kernel` in `size` elements; 0 when it never fits. Also that
 * of pooling, with dilation 1. */
int64_t ddp_window_count(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                         int64_t dilation);

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

/* They depend on the shape alone; 0 for a shape that the functions below refuse. */
size_t ddp_conv2d_forward_scratch_bytes(const struct ddp_conv2d_shape *shape);
size_t ddp_conv2d_backward_scratch_bytes(const struct ddp_conv2d_shape *shape);

/* DDP_ERR_INVALID: a negative size, a window that never fits, or NULL where elements are needed.
 * Each fast version may be fed from the other's results: the reference ignores scratch. */
enum ddp_status ddp_conv2d_forward(const struct ddp_conv2d_forward *args, void *stream);
enum ddp_status ddp_conv2d_forward_reference(const struct ddp_conv2d_forward *args, void *stream);
enum ddp_status ddp_conv2d_backward(const struct ddp_conv2d_backward *args, void *stream);
enum ddp_status ddp_conv2d_backward_reference(const struct ddp_conv2d_backward *args, void *stream);

#ifdef __cplusplus
}
#endif

#endif
