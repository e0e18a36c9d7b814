/* SPDX-License-Identifier: MIT
 *
 * The inner loops of convolution, in registers, for each instruction set. Private to this folder.
 *
 * Every output is one chain of fused multiply-adds in the order of its runs, whatever the
 * instruction set and however pixels are grouped: all sets give the same bits. */
#ifndef DDP_KERNELS_CONV2D_MICRO_H
#define DDP_KERNELS_CONV2D_MICRO_H

#include "ddp.h"

#include "kernels/cpu/isa.h"

#define DDP_CONV_LANES  16 /* output channels of a vector */
#define DDP_CONV_PIXELS 8  /* of a strip, at most */

/* What a pixel reads: outer x inner runs of `length` values side by side, and the steps between
 * them in the pixels and in the weight. */
struct ddp_conv_runs {
    int64_t outer, outer_step, outer_weight;
    int64_t inner, inner_step, inner_weight;
    int64_t length;
};

/* y[p][lane] (+)= sum over the runs of x[p][i] * weight[i][lane], for up to 8 pixels and 2 vectors.
 */
struct ddp_conv_strip {
    struct ddp_conv_runs runs;
    const float *x;
    const int64_t *x_offsets; /* of each pixel */
    const float *weight;      /* (values, 16) of the first run */
    int64_t weight_step;      /* from one vector of outputs to the next */
    float *y;
    const int64_t *y_offsets;
    int64_t lanes;     /* outputs to write, from 1 to 16 * vectors */
    const float *bias; /* (lanes), or NULL */
    bool add;          /* to what is in y; else overwrite */
    bool relu;
};

/* dweight[i][lane] (+)= sum over the pixels of x[p][i] * dy[p][lane], for values of one run. */
struct ddp_conv_outer {
    const float *x;
    const int64_t *x_offsets;
    const float *dy; /* whole vectors are read */
    const int64_t *dy_offsets;
    int64_t pixels;
    float *dweight; /* (values, 16) */
    int64_t dweight_step;
    bool add;
};

struct ddp_conv_micro {
    int64_t pixels;  /* a strip may have, at most */
    int64_t vectors; /* of outputs at a time, at most 2 */
    void (*strip)(const struct ddp_conv_strip *strip, int64_t pixels, int64_t vectors);
    void (*outer)(const struct ddp_conv_outer *outer, int64_t values, int64_t vectors);
};

/* That of an instruction set. */
const struct ddp_conv_micro *ddp_conv_micro(enum ddp_isa isa);

#endif
