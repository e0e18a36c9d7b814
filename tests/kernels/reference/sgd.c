/* SPDX-License-Identifier: MIT
 *
 * Stochastic gradient descent; see sgd.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"

/* Does weight decay leave the element at `place` of the flat array alone? */
static bool spared(const struct ddp_range *ranges, int count, int64_t place)
{
    for (int i = 0; i < count; i++)
        if (place >= ranges[i].begin && place < ranges[i].end)
            return true;
    return false;
}

enum ddp_status ddp_sgd_reference(const struct ddp_sgd *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_sgd_check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++) {
        const bool own = spared(args->no_decay, args->no_decay_count, args->first + i);
        const float decay = own ? 0 : args->weight_decay;
        float g = args->scale * args->gradient[i] + decay * args->weight[i];
        if (args->momentum != 0) {
            float v = args->first_step ? g : args->momentum * args->velocity[i] + g;
            args->velocity[i] = v;
            g = args->nesterov ? g + args->momentum * v : v;
        }
        args->weight[i] = args->weight[i] - args->rate * g;
        if (args->weight_bf16)
            args->weight_bf16[i] = ddp_bf16_of(args->weight[i]);
    }
    return DDP_OK;
}
