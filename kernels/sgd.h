/* SPDX-License-Identifier: MIT
 *
 * One step of stochastic gradient descent over a flat array, with the semantics of torch.optim.SGD
 * (dampening 0), in one pass:
 *   g = scale * gradient + weight_decay * w;  v = momentum * v + g  (v = g in the first step);
 *   g = nesterov ? g + momentum * v : v  (momentum 0: g);  w = w - rate * g */
#ifndef DDP_KERNELS_SGD_H
#define DDP_KERNELS_SGD_H

#include "ddp.h"

#include "kernels/clip.h"

#include <math.h>

struct ddp_sgd {
    int64_t count;
    float *weight;         /* (n) in, out */
    uint16_t *weight_bf16; /* (n) out: the new weights rounded to bf16; NULL: not wanted */
    const float *gradient; /* (n) a sum over shards */
    float *velocity;       /* (n) in, out; NULL when momentum is 0 */
    float scale;           /* 1 / number of shards: the mean is taken here, once */
    const struct ddp_clipped *clipped; /* of the device: its scale, and whether there is a step;
                                          NULL: `scale` */
    float rate, momentum, weight_decay;
    const struct ddp_range *no_decay; /* elements that weight decay leaves alone, counted from */
    int no_decay_count;               /* the beginning of the flat array */
    int64_t first;                    /* where in the flat array element 0 lies */
    bool nesterov;
    bool first_step; /* velocity holds nothing yet */
};

static inline enum ddp_status ddp_sgd_check(const struct ddp_sgd *args)
{
    enum ddp_status status = ddp_check_update("sgd", args->count, args->first, args->weight,
                                              args->no_decay, args->no_decay_count);
    if (status)
        return status;
    if (args->count > 0 && !args->gradient)
        return ddp_fail(DDP_ERR_INVALID, "sgd: the gradient is missing");
    if (!isfinite(args->momentum) || args->momentum < 0)
        return ddp_fail(DDP_ERR_INVALID, "sgd: momentum %g is not 0 or more",
                        (double)args->momentum);
    if (args->momentum == 0 && args->nesterov)
        return ddp_fail(DDP_ERR_INVALID, "sgd: nesterov needs a momentum above 0");
    if (args->momentum > 0 && args->count > 0 && !args->velocity)
        return ddp_fail(DDP_ERR_INVALID, "sgd: momentum without memory for the velocity");
    return DDP_OK;
}

enum ddp_status ddp_sgd(const struct ddp_sgd *args, void *stream);

#endif
