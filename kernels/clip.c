/* SPDX-License-Identifier: MIT
 *
 * See clip.h. */
#include "config.h"

#include "kernels/clip.h"

/* Every 256th block together, then neighbours, neighbours of neighbours. */
double ddp_clip_total(const double *sums, int64_t blocks)
{
    double lanes[DDP_CLIP_LANES] = {0};
    for (int64_t b = 0; b < blocks; b++)
        lanes[b % DDP_CLIP_LANES] += sums[b];
    for (int step = 1; step < DDP_CLIP_LANES; step *= 2)
        for (int i = 0; i < DDP_CLIP_LANES; i += 2 * step)
            lanes[i] += lanes[i + step];
    return lanes[0];
}

enum ddp_status ddp_clip(const struct ddp_clip *args, void *stream)
{
    enum ddp_status status = ddp_clip_check(args);
    (void)stream;
    if (status == DDP_OK)
        ddp_clip_decide(args, ddp_clip_total(args->sums, args->blocks), args->loss[0],
                        args->targets > 0 ? args->loss[1] : 0, args->clipped);
    return status;
}
