/* SPDX-License-Identifier: MIT
 *
 * y[b][column][row] = x[b][row][column]: between images (B,C,H*W), as datasets have them and as
 * PyTorch flattens them, and channels-last (B,H*W,C). Its gradient is the same with rows and
 * columns exchanged. */
#ifndef DDP_KERNELS_TRANSPOSE_H
#define DDP_KERNELS_TRANSPOSE_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_transpose {
    int64_t batch, rows, columns;
    enum ddp_dtype dtype; /* of x and y: DDP_F32 or DDP_BF16 */
    const void *x;        /* (B,rows,columns) */
    void *y;              /* (B,columns,rows) out */
    bool accumulate;      /* add to y; else overwrite */
};

static inline enum ddp_status ddp_transpose_check(const struct ddp_transpose *args)
{
    size_t count = sizeof(float);
    const bool fits = args->batch >= 0 && args->rows >= 0 && args->columns >= 0 &&
                      ddp_size_multiply(count, (size_t)args->batch, &count) &&
                      ddp_size_multiply(count, (size_t)args->rows, &count) &&
                      ddp_size_multiply(count, (size_t)args->columns, &count);
    if (!fits || (count > 0 && (!args->x || !args->y)))
        return ddp_fail(DDP_ERR_INVALID, "transpose: bad arguments (%lld of %lld x %lld)",
                        (long long)args->batch, (long long)args->rows, (long long)args->columns);
    return ddp_check_dtype("transpose", args->dtype);
}

enum ddp_status ddp_transpose(const struct ddp_transpose *args, void *stream);

#endif
