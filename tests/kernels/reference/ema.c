/* SPDX-License-Identifier: MIT
 *
 * Running statistics; see ema.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_ema_reference(const struct ddp_ema *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_ema_check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++)
        args->running[i] =
            (1 - args->momentum) * args->running[i] + args->momentum * (args->scale * args->sum[i]);
    return DDP_OK;
}
