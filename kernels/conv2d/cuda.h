/* SPDX-License-Identifier: MIT
 *
 * Convolution on a CUDA device: what moves memory around the products (conv2d.cu), for
 * cuda.c. */
#ifndef DDP_KERNELS_CONV2D_CUDA_H
#define DDP_KERNELS_CONV2D_CUDA_H

#include "kernels/conv2d/axis.h"
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows [first, first + count) of the matrix of windows: a row for each position, counted over
 * images, rows and columns, of row.taps * column.taps * channels values. */
struct ddp_conv_windows {
    struct ddp_conv_axis row, column;
    int64_t channels;
    int64_t first, count;
    enum ddp_dtype dtype; /* of x and gate */
    const void *x;        /* (B,row.size,column.size,channels) */
    const void *gate;     /* of the same shape: x counts as 0 where this is not above 0; or NULL */
    enum ddp_dtype type;  /* of the matrix: DDP_F32, DDP_BF16 or DDP_F16, rounded */
    void *matrix;         /* out */
};

enum ddp_status ddp_cuda_conv_windows(const struct ddp_conv_windows *args, struct ddp_cuda *cuda);

/* The taps of the weight (O,C,KH,KW) that a product takes, tap (h,w) at first + h * row + w *
 * column, as (O,taps,C), or by_tap as (taps,O,C). */
struct ddp_conv_taps {
    int64_t in, out, all;          /* C, O, KH * KW */
    int64_t row_taps, column_taps; /* that are taken */
    int64_t first, row, column;
    bool by_tap;
    const float *weight;
    enum ddp_dtype type;
    void *packed; /* out */
};

enum ddp_status ddp_cuda_conv_pack(const struct ddp_conv_taps *args, struct ddp_cuda *cuda);

/* (O,taps,C), of float32 or bf16, to or onto dweight (O,C,taps). */
enum ddp_status ddp_cuda_conv_unpack(float *dweight, const void *packed, enum ddp_dtype type,
                                     int64_t out, int64_t taps, int64_t in, bool add,
                                     struct ddp_cuda *cuda);

/* Rows [first, first + count) of positions, every stride-th pixel from (row, column) on of images
 * (B,height,width,channels), to or onto those. */
struct ddp_conv_scatter {
    int64_t height, width, channels, stride;
    int64_t row, column;   /* of the first pixel */
    int64_t rows, columns; /* positions of an image */
    int64_t first, count;
    const float *values;  /* (count,channels), or NULL: zeros */
    enum ddp_dtype dtype; /* of image */
    void *image;
    bool add;
};

enum ddp_status ddp_cuda_conv_scatter(const struct ddp_conv_scatter *args, struct ddp_cuda *cuda);

#ifdef __cplusplus
}
#endif

#endif
