/* SPDX-License-Identifier: MIT
 *
 * Adam and AdamW on the CPU; see adamw.h. Memory is the limit, divisions and roots hide behind it:
 * every array is read and written once, with plain stores, since its lines were just read. */
#include "config.h"

#include "kernels/adamw.h"

#include "core/log.h"
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
    const struct ddp_adamw_factors *factors = &step->factors[decay];
    variant_for(factors)(args->weight + begin, args->gradient + begin, args->exp_avg + begin,
                         args->exp_avg_sq + begin, end - begin, factors);
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

static enum ddp_status check(const struct ddp_adamw *args, const struct ddp_update *update)
{
    enum ddp_status status = ddp_update_check(update, "adam");
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

enum ddp_status ddp_adamw(const struct ddp_adamw *args, void *stream)
{
    struct step step = {args,
                        {ddp_adamw_factors_of(args, false), ddp_adamw_factors_of(args, true)}};
    const struct ddp_update update = update_of(&step);
    enum ddp_status status = check(args, &update);
    if (status == DDP_OK)
        ddp_update_run(&update, stream);
    return status;
}

enum ddp_status ddp_adamw_reference(const struct ddp_adamw *args, void *stream)
{
    (void)stream;
    struct step step = {args,
                        {ddp_adamw_factors_of(args, false), ddp_adamw_factors_of(args, true)}};
    const struct ddp_update update = update_of(&step);
    enum ddp_status status = check(args, &update);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++) {
        const struct ddp_adamw_factors *f = &step.factors[!ddp_update_spares(&update, i)];
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
