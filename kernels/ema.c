/* SPDX-License-Identifier: MIT
 *
 * Running statistics on the CPU; see ema.h. They are a few thousand numbers. */
#include "config.h"

#include "kernels/ema.h"

#include "kernels/cpu/cpu.h"

#define BLOCK 16384

DDP_MULTIVERSION
static void update(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_ema *args = arg;
    const float keep = 1 - args->momentum, take = args->momentum, scale = args->scale;
    const float *restrict sum = args->sum;
    float *restrict running = args->running;
    for (int64_t i = begin; i < end; i++)
        running[i] = keep * running[i] + take * (scale * sum[i]);
}

enum ddp_status ddp_ema(const struct ddp_ema *args, void *stream)
{
    enum ddp_status status = ddp_ema_check(args);
    if (status || (args->clipped && args->clipped->left_out))
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), update, args, stream);
    return DDP_OK;
}
