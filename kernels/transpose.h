/* SPDX-License-Identifier: MIT
 *
 * y[b][column][row] = x[b][row][column]: between images (B,C,H*W), as datasets have them and as
 * PyTorch flattens them, and channels-last (B,H*W,C). Its gradient is the same with rows and
 * columns exchanged. */
#ifndef DDP_KERNELS_TRANSPOSE_H
#define DDP_KERNELS_TRANSPOSE_H

#include "ddp.h"

struct ddp_transpose {
    int64_t batch, rows, columns;
    enum ddp_dtype dtype; /* of x and y: DDP_F32 or DDP_BF16 */
    const void *x;        /* (B,rows,columns) */
    void *y;              /* (B,columns,rows) out */
    bool accumulate;      /* add to y; else overwrite */
};

enum ddp_status ddp_transpose(const struct ddp_transpose *args, void *stream);
enum ddp_status ddp_transpose_reference(const struct ddp_transpose *args, void *stream);

#endif
