/* SPDX-License-Identifier: MIT
 *
 * One pass over the gradient (rows, columns) that comes to a layer on a CUDA device: back through
 * the activation, rounded for a product, and added over the rows for the bias. */
#ifndef DDP_KERNELS_CUDA_COLUMNS_H
#define DDP_KERNELS_CUDA_COLUMNS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_cuda_columns {
    int64_t rows, columns;
    enum ddp_activation activation;
    enum ddp_dtype dtype; /* of dy, kept and dz */
    const void *dy;
    const void *kept;    /* what the activation's gradient is made from: y for ReLU, else `pre` */
    void *dz;            /* out: the gradient before the activation, may be dy; NULL: not needed */
    void *dz_16;         /* out: rounded, from a dtype of DDP_F32; or NULL */
    enum ddp_dtype type; /* of dz_16: DDP_BF16 or DDP_F16 */
    float *sums;         /* (columns) out, or NULL: of dz before it is rounded */
    bool add;            /* to what is in sums */
};

/* Uses the spare memory of the device for sums. */
enum ddp_status ddp_cuda_columns(const struct ddp_cuda_columns *args, struct ddp_cuda *cuda);

/* y = activation(y) for count elements of `dtype`; what it took goes to pre, if that is not NULL.
 */
enum ddp_status ddp_cuda_activate(void *y, void *pre, int64_t count, enum ddp_activation activation,
                                  enum ddp_dtype dtype, struct ddp_cuda *cuda);

#ifdef __cplusplus
}
#endif

#endif
