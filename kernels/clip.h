/* SPDX-License-Identifier: MIT
 *
 * What a step does with its gradient, decided from the loss and the sums of norm.h: what the sums
 * over the shards are divided by, the factor of torch.nn.utils.clip_grad_norm_(), and whether the
 * step is left out. The result lies where the optimizers read it, so that no host waits between a
 * gradient and its use. */
#ifndef DDP_KERNELS_CLIP_H
#define DDP_KERNELS_CLIP_H

#include "ddp.h"

#include "kernels/check.h"

#include <math.h>

#define DDP_CLIP_EPS   1e-6 /* as in clip_grad_norm_() */
#define DDP_CLIP_LANES 256  /* running sums of the total: of every 256th block */

/* What the loss of a shard is multiplied by, so that gradients keep their digits in float16: the
 * rule of torch.amp.GradScaler. A step whose gradient is not finite is left out and halves it;
 * after so many others in a row it doubles. */
struct ddp_loss_scale {
    float scale;     /* 0: losses are not scaled */
    int32_t good;    /* steps in a row whose gradient was finite, since it changed */
    int64_t skipped; /* steps that were left out, all of them: an optimizer does not count them */
};

struct ddp_clipped {
    double norm;      /* of the mean gradient; -1: not computed */
    int64_t counted;  /* targets that loss and gradient are the mean of; 0: both are NaN */
    float loss;       /* the mean over these targets */
    float scale;      /* of the summed gradient: shards become a mean, times clipping's factor */
    int32_t left_out; /* the step changes nothing */
};

struct ddp_clip {
    int64_t blocks;              /* 0: there is no norm */
    const double *sums;          /* (blocks) of squares, as ddp_norm writes them */
    const float *loss;           /* (2) the sum over the shards; the targets that do not count */
    int64_t shards;              /* that loss and gradient are sums over */
    int64_t targets;             /* of each shard, that it has divided its own sums by; 0: its sums
                                    are a mean, and all count */
    double most;                 /* the norm that is left alone; 0: any */
    bool only_finite;            /* leave out steps whose loss or norm is not finite */
    float loss_scale;            /* that the gradient, not the loss, was multiplied by; 0: none */
    struct ddp_clipped *clipped; /* out */
};

static inline enum ddp_status ddp_clip_check(const struct ddp_clip *args)
{
    if (args->blocks < 0 || (args->blocks > 0 && !args->sums) || !args->loss || args->shards < 1 ||
        args->targets < 0 || !args->clipped)
        return ddp_fail(DDP_ERR_INVALID, "clip: bad arguments (%lld blocks, %lld shards)",
                        (long long)args->blocks, (long long)args->shards);
    return DDP_OK;
}

#ifdef __CUDACC__
#define DDP_CLIP_DEVICE __host__ __device__
#else
#define DDP_CLIP_DEVICE
#endif

/* Where all targets count, a step of W shards is divided by W, and otherwise by that share of W
 * that counts: in double, so that every result is rounded once.
 *   loss, uncounted  the sums over the shards */
DDP_CLIP_DEVICE static inline double ddp_clip_divisor(const struct ddp_clip *args, float uncounted,
                                                      int64_t *counted)
{
    const int64_t targets = args->targets > 0 ? args->targets : 1;
    *counted = args->shards * targets - (args->targets > 0 ? (int64_t)uncounted : 0);
    return (double)*counted / (double)targets;
}

/* From the total of the sums and the loss: one formula for all devices. */
DDP_CLIP_DEVICE static inline void ddp_clip_decide(const struct ddp_clip *args, double total,
                                                   float loss, float uncounted,
                                                   struct ddp_clipped *clipped)
{
    const double divisor = ddp_clip_divisor(args, uncounted, &clipped->counted);
    double factor = 1;
    clipped->loss = (float)((double)loss / divisor);
    const double scaled = args->loss_scale > 0 ? divisor * (double)args->loss_scale : divisor;
    clipped->norm = args->blocks > 0 ? sqrt(total) / scaled : -1;
    if (args->most > 0 && args->blocks > 0)
        factor = args->most / (clipped->norm + DDP_CLIP_EPS);
    clipped->scale = (float)(1 / scaled);
    if (!(factor >= 1)) /* also NaN, which then shows in the weights, as in PyTorch */
        clipped->scale = (float)((double)clipped->scale * factor);
    clipped->left_out =
        clipped->counted <= 0 ||
        (args->only_finite && (!isfinite(clipped->loss) || !isfinite(clipped->norm)));
}

/* Follows a step of which targets counted.
 *   every  good steps after which it doubles */
static inline void ddp_loss_scale_follow(struct ddp_loss_scale *scale, bool finite, int64_t every)
{
    scale->good = finite ? scale->good + 1 : 0;
    scale->skipped += !finite;
    if (!finite && scale->scale > 0x1p-100f) /* 0 would mean none */
        scale->scale /= 2;
    if (scale->good < every)
        return;
    scale->good = 0;
    if (isfinite(scale->scale * 2))
        scale->scale *= 2;
}

double ddp_clip_total(const double *sums, int64_t blocks);
enum ddp_status ddp_clip(const struct ddp_clip *args, void *stream);

#endif
