/* SPDX-License-Identifier: MIT
 *
 * Transposition; see transpose.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_transpose_reference(const struct ddp_transpose *args, void *stream)
{
    const float *x = args->x;
    (void)stream;
    enum ddp_status status = ddp_transpose_check(args);
    if (status)
        return status;
    const int64_t size = args->rows * args->columns;
    for (int64_t i = 0; i < args->batch * size; i++) {
        float *y = (float *)args->y + i / size * size + i % args->columns * args->rows +
                   i % size / args->columns;
        *y = args->accumulate ? *y + x[i] : x[i];
    }
    return DDP_OK;
}
