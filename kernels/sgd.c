/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent on the CPU; see sgd.h. */
#include "config.h"

#include "kernels/sgd.h"

#include "kernels/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/update.h"

#include <math.h>

static float scale_of(const struct ddp_sgd *args)
{
    return args->clipped ? args->clipped->scale : args->scale;
}

/* The variants are separate loops so that each is one plain vector loop; restrict holds because
 * weight, gradient and velocity are different arrays by contract. */
DDP_MULTIVERSION
static void plain(const struct ddp_sgd *args, float decay, int64_t begin, int64_t end)
{
    float *restrict w = args->weight;
    const float *restrict gradient = args->gradient;
    const float scale = scale_of(args), rate = args->rate;
    for (int64_t i = begin; i < end; i++) {
        float g = scale * gradient[i] + decay * w[i];
        w[i] = w[i] - rate * g;
    }
}

DDP_INLINE void with_momentum(const struct ddp_sgd *args, float decay, int64_t begin, int64_t end,
                              bool nesterov, bool first)
{
    float *restrict w = args->weight, *restrict velocity = args->velocity;
    const float *restrict gradient = args->gradient;
    const float scale = scale_of(args), rate = args->rate, momentum = args->momentum;
    for (int64_t i = begin; i < end; i++) {
        float g = scale * gradient[i] + decay * w[i];
        float v = first ? g : momentum * velocity[i] + g;
        velocity[i] = v;
        w[i] = w[i] - rate * (nesterov ? g + momentum * v : v);
    }
}

DDP_MULTIVERSION
static void momentum(const struct ddp_sgd *args, float decay, int64_t begin, int64_t end)
{
    with_momentum(args, decay, begin, end, false, false);
}

DDP_MULTIVERSION
static void momentum_first(const struct ddp_sgd *args, float decay, int64_t begin, int64_t end)
{
    with_momentum(args, decay, begin, end, false, true);
}

DDP_MULTIVERSION
static void nesterov(const struct ddp_sgd *args, float decay, int64_t begin, int64_t end)
{
    with_momentum(args, decay, begin, end, true, false);
}

DDP_MULTIVERSION
static void nesterov_first(const struct ddp_sgd *args, float decay, int64_t begin, int64_t end)
{
    with_momentum(args, decay, begin, end, true, true);
}

static void run_piece(const void *arg, int64_t begin, int64_t end, bool with_decay)
{
    const struct ddp_sgd *args = arg;
    const float decay = with_decay ? args->weight_decay : 0;
    if (args->momentum == 0)
        plain(args, decay, begin, end);
    else if (args->nesterov)
        (args->first_step ? nesterov_first : nesterov)(args, decay, begin, end);
    else
        (args->first_step ? momentum_first : momentum)(args, decay, begin, end);
}

static struct ddp_update update_of(const struct ddp_sgd *args)
{
    return (struct ddp_update){
        .count = args->count,
        .weight = args->weight,
        .weight_bf16 = args->weight_bf16,
        .no_decay = args->no_decay,
        .no_decay_count = args->no_decay_count,
        .first = args->first,
        .piece = run_piece,
        .args = args,
    };
}

enum ddp_status ddp_sgd(const struct ddp_sgd *args, void *stream)
{
    const struct ddp_update update = update_of(args);
    enum ddp_status status = ddp_sgd_check(args);
    if (status == DDP_OK && !(args->clipped && args->clipped->left_out))
        ddp_update_run(&update, stream);
    return status;
}
