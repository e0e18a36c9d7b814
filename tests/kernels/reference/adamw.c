/* SPDX-License-Identifier: MIT
 *
 * Adam and AdamW; see adamw.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"
#include "kernels/adamw_factors.h"

#include <math.h>

/* Does weight decay leave the element at `place` of the flat array alone? */
static bool spared(const struct ddp_range *ranges, int count, int64_t place)
{
    for (int i = 0; i < count; i++)
        if (place >= ranges[i].begin && place < ranges[i].end)
            return true;
    return false;
}

enum ddp_status ddp_adamw_reference(const struct ddp_adamw *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_adamw_check(args);
    if (status)
        return status;
    const struct ddp_adamw_factors factors[2] = {ddp_adamw_factors_of(args, false),
                                                 ddp_adamw_factors_of(args, true)};
    for (int64_t i = 0; i < args->count; i++) {
        const bool own = spared(args->no_decay, args->no_decay_count, args->first + i);
        const struct ddp_adamw_factors *f = &factors[!own];
        const float w = args->weight[i] * f->keep;
        float g = f->scale * args->gradient[i];
        if (f->decay != 0)
            g = g + f->decay * args->weight[i];
        const float way = g - args->exp_avg[i];
        args->exp_avg[i] = f->from_end ? g - way * (1 - f->lerp) : args->exp_avg[i] + f->lerp * way;
        args->exp_avg_sq[i] = f->beta2 * args->exp_avg_sq[i] + f->square * g * g;
        const float denominator = sqrtf(args->exp_avg_sq[i]) / f->root + f->eps;
        args->weight[i] = w - f->step_size * args->exp_avg[i] / denominator;
        if (args->weight_bf16)
            args->weight_bf16[i] = ddp_bf16_of(args->weight[i]);
    }
    return DDP_OK;
}
