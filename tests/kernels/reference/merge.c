/* SPDX-License-Identifier: MIT
 *
 * Joining partial sums; see merge.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_merge_reference(const struct ddp_merge *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_merge_check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++) {
        float sum = args->leaf[i];
        for (int p = 0; p < args->partial_count; p++)
            sum = args->partials[p][i] + sum;
        args->destination[i] = sum;
    }
    return DDP_OK;
}
