/* SPDX-License-Identifier: MIT
 *
 * One step of Adam or AdamW over a flat array, with the semantics of torch.optim.Adam and
 * torch.optim.AdamW, in one pass. With t = step + 1 and b1, b2 the betas:
 *   g = scale * gradient
 *   decoupled: w = w * (1 - rate * weight_decay);  else: g = g + weight_decay * w
 *   m = m + (1 - b1) * (g - m);  v = b2 * v + (1 - b2) * g * g
 *   w = w - rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 * The factors are computed in double and rounded once to float, as there. */
#ifndef DDP_KERNELS_ADAMW_H
#define DDP_KERNELS_ADAMW_H

#include "ddp.h"

#include "kernels/clip.h"

#include <math.h>

struct ddp_adamw {
    int64_t count;
    float *weight;         /* (n) in, out */
    uint16_t *weight_bf16; /* (n) out: the new weights rounded to bf16; NULL: not wanted */
    const float *gradient; /* (n) a sum over shards */
    float *exp_avg;        /* (n) in, out: m */
    float *exp_avg_sq;     /* (n) in, out: v */
    float scale;           /* 1 / number of shards: the mean is taken here, once */
    const struct ddp_clipped *clipped; /* of the device: its scale, and whether there is a step;
                                          NULL: `scale` */
    double rate, beta1, beta2, eps, weight_decay;
    bool decoupled;                   /* AdamW */
    int64_t step;                     /* from 0, when the moments must be zero */
    const struct ddp_range *no_decay; /* elements that weight decay leaves alone, counted from */
    int no_decay_count;               /* the beginning of the flat array */
    int64_t first;                    /* where in the flat array element 0 lies */
};

static inline enum ddp_status ddp_adamw_check(const struct ddp_adamw *args)
{
    enum ddp_status status = ddp_check_update("adam", args->count, args->first, args->weight,
                                              args->no_decay, args->no_decay_count);
    if (status)
        return status;
    if (args->step < 0 ||
        (args->count > 0 && (!args->gradient || !args->exp_avg || !args->exp_avg_sq)))
        return ddp_fail(DDP_ERR_INVALID, "adam: an array is missing, or step %lld is negative",
                        (long long)args->step);
    if (!(args->beta1 >= 0 && args->beta1 < 1 && args->beta2 >= 0 && args->beta2 < 1))
        return ddp_fail(DDP_ERR_INVALID, "adam: betas %g and %g are not 0 or more and below 1",
                        args->beta1, args->beta2);
    if (!(args->eps >= 0) || !(args->weight_decay >= 0) || !isfinite(args->eps) ||
        !isfinite(args->weight_decay))
        return ddp_fail(DDP_ERR_INVALID, "adam: eps %g or weight decay %g is not 0 or more",
                        args->eps, args->weight_decay);
    return DDP_OK;
}

enum ddp_status ddp_adamw(const struct ddp_adamw *args, void *stream);

#endif
