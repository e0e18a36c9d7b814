/* SPDX-License-Identifier: MIT
 *
 * Adam and AdamW on the CPU; see adamw.h. Memory is the limit, divisions and roots hide behind it:
 * every array is read and written once, with plain stores, since its lines were just read. */
#include "config.h"

#include "kernels/adamw.h"

#include "kernels/adamw_factors.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/update.h"

#include <math.h>

/* One element; the arrays are different by contract. */
DDP_INLINE void update(float *w, float gradient, float *exp_avg, float *exp_avg_sq,
                       const struct ddp_adamw_factors *f, bool l2, bool from_end)
{
    float g = f->scale * gradient;
    if (l2)
        g = g + f->decay * *w;
    const float way = g - *exp_avg;
    const float m = from_end ? g - way * (1 - f->lerp) : *exp_avg + f->lerp * way;
    const float v = f->beta2 * *exp_avg_sq + f->square * g * g;
    *exp_avg = m;
    *exp_avg_sq = v;
    *w = *w * f->keep - f->step_size * m / (sqrtf(v) / f->root + f->eps);
}

#define DEFINE_VARIANT(name, l2, from_end)                                                         \
    DDP_MULTIVERSION                                                                               \
    static void name(float *restrict w, const float *restrict gradient, float *restrict exp_avg,   \
                     float *restrict exp_avg_sq, int64_t count,                                    \
                     const struct ddp_adamw_factors *factors)                                      \
    {                                                                                              \
        const struct ddp_adamw_factors f = *factors;                                               \
        for (int64_t i = 0; i < count; i++)                                                        \
            update(&w[i], gradient[i], &exp_avg[i], &exp_avg_sq[i], &f, l2, from_end);             \
    }

DEFINE_VARIANT(decoupled, false, false)
DEFINE_VARIANT(decoupled_from_end, false, true)
DEFINE_VARIANT(coupled, true, false)
DEFINE_VARIANT(coupled_from_end, true, true)

typedef void variant(float *restrict w, const float *restrict gradient, float *restrict exp_avg,
                     float *restrict exp_avg_sq, int64_t count,
                     const struct ddp_adamw_factors *factors);

/* Without decay the gradient stays as it is: 0 * w would spread a weight that is not finite. */
static variant *variant_for(const struct ddp_adamw_factors *f)
{
    if (f->decay == 0)
        return f->from_end ? decoupled_from_end : decoupled;
    return f->from_end ? coupled_from_end : coupled;
}

struct step {
    const struct ddp_adamw *args;
    struct ddp_adamw_factors factors[2]; /* without and with decay */
};

static void run_piece(const void *arg, int64_t begin, int64_t end, bool decay)
{
    const struct step *step = arg;
    const struct ddp_adamw *args = step->args;
    struct ddp_adamw_factors factors = step->factors[decay];
    if (args->clipped)
        factors.scale = args->clipped->scale;
    variant_for (&factors)(args->weight + begin, args->gradient + begin, args->exp_avg + begin,
                           args->exp_avg_sq + begin, end - begin, &factors);
}

static struct ddp_update update_of(const struct step *step)
{
    return (struct ddp_update){
        .count = step->args->count,
        .weight = step->args->weight,
        .weight_bf16 = step->args->weight_bf16,
        .no_decay = step->args->no_decay,
        .no_decay_count = step->args->no_decay_count,
        .first = step->args->first,
        .piece = run_piece,
        .args = step,
    };
}

enum ddp_status ddp_adamw(const struct ddp_adamw *args, void *stream)
{
    struct step step = {args,
                        {ddp_adamw_factors_of(args, false), ddp_adamw_factors_of(args, true)}};
    const struct ddp_update update = update_of(&step);
    enum ddp_status status = ddp_adamw_check(args);
    if (status == DDP_OK && !(args->clipped && args->clipped->left_out))
        ddp_update_run(&update, stream);
    return status;
}
