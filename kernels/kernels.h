/* SPDX-License-Identifier: MIT
 *
 * Every operation of one kind of device in one table: a new operation is its own files and one line
 * here, in kernels_cpu.c and in each plugin. */
#ifndef DDP_KERNELS_KERNELS_H
#define DDP_KERNELS_KERNELS_H

#include "kernels/linear.h"
#include "kernels/merge.h"
#include "kernels/sgd.h"
#include "kernels/softmax_cross_entropy.h"
#include "kernels/sum.h"

/* The stream is the device's own: on the CPU a ddp_pool, or NULL for the calling thread alone. */
struct ddp_kernels {
    const char *name; /* "cpu", "reference" */

    /* y = activation(x W^T + b) */
    enum ddp_status (*linear_forward)(const struct ddp_linear_forward *args, void *stream);
    /* gradients of x, W and b */
    enum ddp_status (*linear_backward)(const struct ddp_linear_backward *args, void *stream);
    /* mean loss of class labels, with its gradient and the predictions */
    enum ddp_status (*softmax_cross_entropy)(const struct ddp_softmax_cross_entropy *args,
                                             void *stream);
    /* y = sum of all elements */
    enum ddp_status (*sum_forward)(const struct ddp_sum_forward *args, void *stream);
    /* its gradient */
    enum ddp_status (*sum_backward)(const struct ddp_sum_backward *args, void *stream);
    /* a shard's gradient joins the partial sums */
    enum ddp_status (*merge)(const struct ddp_merge *args, void *stream);
    /* one step of the optimizer over a flat array */
    enum ddp_status (*sgd)(const struct ddp_sgd *args, void *stream);
};

extern const struct ddp_kernels ddp_kernels_cpu;       /* the fast versions */
extern const struct ddp_kernels ddp_kernels_reference; /* the plain ones */

#endif
