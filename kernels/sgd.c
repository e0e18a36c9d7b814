/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent on the CPU; see sgd.h. */
#include "config.h"

#include "kernels/sgd.h"

#include "core/log.h"
#include "kernels/cpu.h"

#include <math.h>

#define BLOCK 16384 /* elements of a task, at least: 192 KiB with velocity */

struct step {
    const struct ddp_sgd *args;
    struct ddp_blocks blocks;
};

/* The variants are separate loops so that each is one plain vector loop; restrict holds because
 * weight, gradient and velocity are different arrays by contract. */
DDP_MULTIVERSION
static void plain(const struct ddp_sgd *args, int64_t begin, int64_t end)
{
    float *restrict w = args->weight;
    const float *restrict gradient = args->gradient;
    const float scale = args->scale, decay = args->weight_decay, rate = args->rate;
    for (int64_t i = begin; i < end; i++) {
        float g = scale * gradient[i] + decay * w[i];
        w[i] = w[i] - rate * g;
    }
}

DDP_INLINE void with_momentum(const struct ddp_sgd *args, int64_t begin, int64_t end, bool nesterov,
                              bool first)
{
    float *restrict w = args->weight, *restrict velocity = args->velocity;
    const float *restrict gradient = args->gradient;
    const float scale = args->scale, decay = args->weight_decay, rate = args->rate,
                momentum = args->momentum;
    for (int64_t i = begin; i < end; i++) {
        float g = scale * gradient[i] + decay * w[i];
        float v = first ? g : momentum * velocity[i] + g;
        velocity[i] = v;
        w[i] = w[i] - rate * (nesterov ? g + momentum * v : v);
    }
}

DDP_MULTIVERSION
static void momentum(const struct ddp_sgd *args, int64_t begin, int64_t end)
{
    with_momentum(args, begin, end, false, false);
}

DDP_MULTIVERSION
static void momentum_first(const struct ddp_sgd *args, int64_t begin, int64_t end)
{
    with_momentum(args, begin, end, false, true);
}

DDP_MULTIVERSION
static void nesterov(const struct ddp_sgd *args, int64_t begin, int64_t end)
{
    with_momentum(args, begin, end, true, false);
}

DDP_MULTIVERSION
static void nesterov_first(const struct ddp_sgd *args, int64_t begin, int64_t end)
{
    with_momentum(args, begin, end, true, true);
}

static void step_task(void *arg, size_t index)
{
    const struct step *step = arg;
    const struct ddp_sgd *args = step->args;
    int64_t begin = ddp_block_begin(&step->blocks, index);
    int64_t end = ddp_block_end(&step->blocks, index);
    if (args->momentum == 0)
        plain(args, begin, end);
    else if (args->nesterov)
        (args->first_step ? nesterov_first : nesterov)(args, begin, end);
    else
        (args->first_step ? momentum_first : momentum)(args, begin, end);
}

static enum ddp_status check(const struct ddp_sgd *args)
{
    if (args->count < 0 || (args->count > 0 && (!args->weight || !args->gradient)))
        return ddp_fail(DDP_ERR_INVALID, "sgd: bad arguments (%lld elements)",
                        (long long)args->count);
    if (!isfinite(args->momentum) || args->momentum < 0)
        return ddp_fail(DDP_ERR_INVALID, "sgd: momentum %g is not 0 or more",
                        (double)args->momentum);
    if (args->momentum == 0 && args->nesterov)
        return ddp_fail(DDP_ERR_INVALID, "sgd: nesterov needs a momentum above 0");
    if (args->momentum > 0 && args->count > 0 && !args->velocity)
        return ddp_fail(DDP_ERR_INVALID, "sgd: momentum without memory for the velocity");
    return DDP_OK;
}

enum ddp_status ddp_sgd(const struct ddp_sgd *args, void *stream)
{
    enum ddp_status status = check(args);
    if (status)
        return status;
    struct step step = {.args = args, .blocks = ddp_blocks_cut(args->count, BLOCK, DDP_LANES)};
    ddp_pool_run(ddp_stream_pool(stream), step.blocks.count, step_task, &step);
    return DDP_OK;
}

enum ddp_status ddp_sgd_reference(const struct ddp_sgd *args, void *stream)
{
    (void)stream;
    enum ddp_status status = check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++) {
        float g = args->scale * args->gradient[i] + args->weight_decay * args->weight[i];
        if (args->momentum != 0) {
            float v = args->first_step ? g : args->momentum * args->velocity[i] + g;
            args->velocity[i] = v;
            g = args->nesterov ? g + args->momentum * v : v;
        }
        args->weight[i] = args->weight[i] - args->rate * g;
    }
    return DDP_OK;
}
