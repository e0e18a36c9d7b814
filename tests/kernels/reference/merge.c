/* SPDX-License-Identifier: MIT
 *
 * Joining partial sums; see merge.h. */
#include "config.h"

#include "core/bf16.h"
#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_merge_reference(const struct ddp_merge *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_merge_check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++) {
        const bool rounds = i >= args->count - args->rounded;
        float sum = rounds ? ddp_bf16_to_f32(ddp_bf16_of(args->leaf[i])) : args->leaf[i];
        for (int p = 0; p < args->partial_count; p++) {
            const float left = args->partials[p][i];
            sum += rounds ? ddp_bf16_to_f32(ddp_bf16_of(left)) : left;
            sum = rounds ? ddp_bf16_to_f32(ddp_bf16_of(sum)) : sum;
        }
        args->destination[i] = sum;
    }
    return DDP_OK;
}
