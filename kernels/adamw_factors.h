/* SPDX-License-Identifier: MIT
 *
 * What is the same for all elements of a step of Adam: computed in double, rounded once. For the
 * CPU's version and the GPU's. */
#ifndef DDP_KERNELS_ADAMW_FACTORS_H
#define DDP_KERNELS_ADAMW_FACTORS_H

#include "core/portable_math.h"
#include "core/portable_math.h"
#include "kernels/adamw.h"

#include <math.h>

struct ddp_adamw_factors {
    float scale, keep, decay; /* keep: what weights are multiplied by; decay: joins the gradient */
    float beta2, square, step_size, root, eps;
    float lerp;
    bool from_end; /* torch.lerp: the way from the nearer end, so that 1 gives the end itself */
};

static inline struct ddp_adamw_factors ddp_adamw_factors_of(const struct ddp_adamw *args,
                                                            bool with_decay)
{
    const double steps = (double)args->step + 1, lerp = 1 - args->beta1;
    const double decay = with_decay ? args->weight_decay : 0;
    struct ddp_adamw_factors f;
    f.scale = args->scale;
    f.keep = args->decoupled ? (float)(1 - args->rate * decay) : 1;
    f.decay = args->decoupled ? 0 : (float)decay;
    f.beta2 = (float)args->beta2;
    f.square = (float)(1 - args->beta2);
    f.step_size = (float)(args->rate / (1 - ddp_math_pow(args->beta1, steps)));
    f.root = (float)sqrt(1 - ddp_math_pow(args->beta2, steps));
    f.eps = (float)args->eps;
    f.lerp = (float)lerp;
    f.from_end = (float)lerp >= 0.5f;
    return f;
}

#endif
