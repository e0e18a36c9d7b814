/* SPDX-License-Identifier: MIT
 *
 * running = (1 - momentum) * running + momentum * scale * sum: batch norm's running statistics from
 * the sum of the shards' statistics (scale 1/W). */
#ifndef DDP_KERNELS_EMA_H
#define DDP_KERNELS_EMA_H

#include "ddp.h"

struct ddp_ema {
    int64_t count;
    float momentum; /* PyTorch's: 0.1 keeps nine tenths */
    float scale;
    const float *sum; /* (n) */
    float *running;   /* (n) in and out */
};

enum ddp_status ddp_ema(const struct ddp_ema *args, void *stream);
enum ddp_status ddp_ema_reference(const struct ddp_ema *args, void *stream);

#endif
