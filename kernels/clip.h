/* SPDX-License-Identifier: MIT
 *
 * What a step does with its gradient, decided from the loss and the sums of norm.h: the factor of
 * torch.nn.utils.clip_grad_norm_(), and whether the step is left out. The result lies where the
 * optimizers read it, so that no host waits between a gradient and its use. */
#ifndef DDP_KERNELS_CLIP_H
#define DDP_KERNELS_CLIP_H

#include "ddp.h"

#include "kernels/check.h"

#include <math.h>

#define DDP_CLIP_EPS   1e-6 /* as in clip_grad_norm_() */
#define DDP_CLIP_LANES 256  /* running sums of the total: of every 256th block */

struct ddp_clipped {
    double norm;      /* of the mean gradient; -1: not computed */
    float loss;       /* the mean over the shards */
    float scale;      /* of the summed gradient: 1 / shards, times the factor of clipping */
    int32_t left_out; /* the step changes nothing */
};

struct ddp_clip {
    int64_t blocks;              /* 0: there is no norm */
    const double *sums;          /* (blocks) of squares, as ddp_norm writes them */
    const float *loss;           /* the sum over the shards */
    int64_t shards;              /* that loss and gradient are sums over */
    double most;                 /* the norm that is left alone; 0: any */
    bool only_finite;            /* leave out steps whose loss or norm is not finite */
    struct ddp_clipped *clipped; /* out */
};

static inline enum ddp_status ddp_clip_check(const struct ddp_clip *args)
{
    if (args->blocks < 0 || (args->blocks > 0 && !args->sums) || !args->loss || args->shards < 1 ||
        !args->clipped)
        return ddp_fail(DDP_ERR_INVALID, "clip: bad arguments (%lld blocks, %lld shards)",
                        (long long)args->blocks, (long long)args->shards);
    return DDP_OK;
}

#ifdef __CUDACC__
#define DDP_CLIP_DEVICE __host__ __device__
#else
#define DDP_CLIP_DEVICE
#endif

/* From the total of the sums and the mean loss: one formula for all devices, in double. */
DDP_CLIP_DEVICE static inline void ddp_clip_decide(const struct ddp_clip *args, double total,
                                                   float loss, struct ddp_clipped *clipped)
{
    double factor = 1;
    clipped->loss = loss;
    clipped->norm = args->blocks > 0 ? sqrt(total) / (double)args->shards : -1;
    if (args->most > 0 && args->blocks > 0)
        factor = args->most / (clipped->norm + DDP_CLIP_EPS);
    clipped->scale = 1.0f / (float)args->shards;
    if (!(factor >= 1)) /* also NaN, which then shows in the weights, as in PyTorch */
        clipped->scale = (float)((double)clipped->scale * factor);
    clipped->left_out = args->only_finite && (!isfinite(loss) || !isfinite(clipped->norm));
}

double ddp_clip_total(const double *sums, int64_t blocks);
enum ddp_status ddp_clip(const struct ddp_clip *args, void *stream);

#endif
