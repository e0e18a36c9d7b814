/* SPDX-License-Identifier: MIT
 *
 * One step of stochastic gradient descent over a flat array, with the semantics of torch.optim.SGD
 * (dampening 0), in one pass:
 *   g = scale * gradient + weight_decay * w;  v = momentum * v + g  (v = g in the first step);
 *   g = nesterov ? g + momentum * v : v  (momentum 0: g);  w = w - rate * g */
#ifndef DDP_KERNELS_SGD_H
#define DDP_KERNELS_SGD_H

#include "ddp.h"

#include "core/range.h"

struct ddp_sgd {
    int64_t count;
    float *weight;         /* (n) in, out */
    uint16_t *weight_bf16; /* (n) out: the new weights rounded to bf16; NULL: not wanted */
    const float *gradient; /* (n) a sum over shards */
    float *velocity;       /* (n) in, out; NULL when momentum is 0 */
    float scale;           /* 1 / number of shards: the mean is taken here, once */
    float rate, momentum, weight_decay;
    const struct ddp_range *no_decay; /* elements that weight decay leaves alone, counted from */
    int no_decay_count;               /* the beginning of the flat array */
    int64_t first;                    /* where in the flat array element 0 lies */
    bool nesterov;
    bool first_step; /* velocity holds nothing yet */
};

enum ddp_status ddp_sgd(const struct ddp_sgd *args, void *stream);
enum ddp_status ddp_sgd_reference(const struct ddp_sgd *args, void *stream);

#endif
