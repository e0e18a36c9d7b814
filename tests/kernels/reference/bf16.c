/* SPDX-License-Identifier: MIT
 *
 * Rounding to bf16; see bf16.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"

enum ddp_status ddp_to_bf16_reference(const struct ddp_to_bf16 *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_to_bf16_check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++)
        args->y[i] = ddp_bf16_of(args->x[i]);
    return DDP_OK;
}
