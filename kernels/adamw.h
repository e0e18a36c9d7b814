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

#include "core/range.h"

struct ddp_adamw {
    int64_t count;
    float *weight;         /* (n) in, out */
    uint16_t *weight_bf16; /* (n) out: the new weights rounded to bf16; NULL: not wanted */
    const float *gradient; /* (n) a sum over shards */
    float *exp_avg;        /* (n) in, out: m */
    float *exp_avg_sq;     /* (n) in, out: v */
    float scale;           /* 1 / number of shards: the mean is taken here, once */
    double rate, beta1, beta2, eps, weight_decay;
    bool decoupled;                   /* AdamW */
    int64_t step;                     /* from 0, when the moments must be zero */
    const struct ddp_range *no_decay; /* elements that weight decay leaves alone, counted from */
    int no_decay_count;               /* the beginning of the flat array */
    int64_t first;                    /* where in the flat array element 0 lies */
};

enum ddp_status ddp_adamw(const struct ddp_adamw *args, void *stream);
enum ddp_status ddp_adamw_reference(const struct ddp_adamw *args, void *stream);

#endif
