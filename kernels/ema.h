/* SPDX-License-Identifier: MIT
 *
 * running = (1 - momentum) * running + momentum * scale * sum: batch norm's running statistics from
 * the sum of the shards' statistics (scale 1/W). */
#ifndef DDP_KERNELS_EMA_H
#define DDP_KERNELS_EMA_H

#include "ddp.h"

#include "kernels/clip.h"

struct ddp_ema {
    int64_t count;
    float momentum; /* PyTorch's: 0.1 keeps nine tenths */
    float scale;
    const struct ddp_clipped *clipped; /* of the device: whether there is a step; NULL: yes */
    const float *sum;                  /* (n) */
    float *running;                    /* (n) in and out */
};

static inline enum ddp_status ddp_ema_check(const struct ddp_ema *args)
{
    return ddp_check_elements("ema", args->count, args->sum && args->running, DDP_F32);
}

enum ddp_status ddp_ema(const struct ddp_ema *args, void *stream);

#endif
