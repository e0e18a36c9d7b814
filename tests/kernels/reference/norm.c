/* SPDX-License-Identifier: MIT
 *
 * Sums of squares; see norm.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_norm_reference(const struct ddp_norm *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_norm_check(args);
    if (status)
        return status;
    for (int64_t b = args->begin / DDP_NORM_BLOCK; b * DDP_NORM_BLOCK < args->end; b++) {
        args->sums[b] = 0;
        for (int64_t i = b * DDP_NORM_BLOCK; i < (b + 1) * DDP_NORM_BLOCK; i++)
            if (i >= args->begin && i < args->end)
                args->sums[b] +=
                    (double)args->x[i - args->begin] * (double)args->x[i - args->begin];
    }
    return DDP_OK;
}
