/* SPDX-License-Identifier: MIT
 *
 * Running statistics on a GPU; see ema.h. They are a few thousand numbers; 12 bytes each. */
#include "kernels/cuda/cuda.h"
#include "kernels/ema.h"
#include "kernels/kernels_cuda.h"

static __global__ void update(struct ddp_ema args, float keep)
{
    const int64_t i = ddp_first_of_pack(1);
    if (i >= args.count || (args.clipped && args.clipped->left_out))
        return;
    const float old = ddp_product(keep, args.running[i]);
    args.running[i] = old + ddp_product(args.momentum, ddp_product(args.scale, args.sum[i]));
}

extern "C" enum ddp_status ddp_cuda_ema(const struct ddp_ema *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_ema_check(args);
    if (status || args->count == 0)
        return status;
    DDP_LAUNCH(update, ddp_cuda_blocks(args->count, DDP_BLOCK), DDP_BLOCK, 0, cuda->stream, *args,
               1 - args->momentum);
    return ddp_cuda_launched(cuda, "ema");
}
