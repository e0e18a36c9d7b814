/* SPDX-License-Identifier: MIT
 *
 * Dropout, one counter of Philox for each element; see dropout.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/philox.h"

enum ddp_status ddp_dropout_reference(const struct ddp_dropout *args, void *stream)
{
    const float *x = args->x;
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_dropout_check(args);
    if (status)
        return status;
    const uint32_t shard = args->place ? args->place[0] : args->shard;
    const uint32_t step = args->place ? args->place[1] : args->step;
    const uint32_t key[2] = {args->seed, args->layer};
    const float scale = 1 / (1 - args->probability);
    for (int64_t i = 0; i < args->count; i++) {
        const uint64_t place = (uint64_t)i / 4;
        const uint32_t counter[4] = {(uint32_t)place, (uint32_t)(place >> 32), shard, step};
        uint32_t numbers[4];
        ddp_philox(numbers, counter, key);
        bool keep = ddp_philox_uniform(numbers[i % 4]) >= args->probability;
        float value = keep ? x[i] * scale : 0;
        y[i] = args->accumulate ? y[i] + value : value;
    }
    return DDP_OK;
}
