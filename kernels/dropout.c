/* SPDX-License-Identifier: MIT
 *
 * Dropout on the CPU; see dropout.h. Many counters go through Philox side by side. */
#include "config.h"

#include "kernels/dropout.h"

#include "core/log.h"
#include "core/philox.h"
#include "kernels/cpu.h"

#include <math.h>

#define SMALLEST 16384 /* elements of a task */
#define COUNTERS 64    /* side by side */
#define STEP     (4 * COUNTERS)

struct pass {
    const struct ddp_dropout *args;
    struct ddp_blocks blocks;
    uint32_t threshold; /* the upper 24 bits of a number: an element below it is dropped */
    float scale;
};

/* The numbers of counters first .. first+63 of a key: words[j][i] is number j of counter i. */
DDP_INLINE void philox_many(const struct ddp_dropout *args, uint64_t first,
                            uint32_t words[4][COUNTERS])
{
    uint32_t k0 = args->seed, k1 = args->layer;
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t place = first + (uint64_t)i;
        words[0][i] = (uint32_t)place;
        words[1][i] = (uint32_t)(place >> 32);
        words[2][i] = args->shard;
        words[3][i] = args->step;
    }
    for (int round = 0; round < DDP_PHILOX_ROUNDS; round++) {
        for (int i = 0; i < COUNTERS; i++) {
            const uint64_t a = (uint64_t)0xD2511F53u * words[0][i];
            const uint64_t b = (uint64_t)0xCD9E8D57u * words[2][i];
            words[0][i] = (uint32_t)(b >> 32) ^ words[1][i] ^ k0;
            words[1][i] = (uint32_t)b;
            words[2][i] = (uint32_t)(a >> 32) ^ words[3][i] ^ k1;
            words[3][i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

DDP_INLINE float dropped(const struct pass *pass, float x, uint32_t number)
{
    return number >> 8 >= pass->threshold ? x * pass->scale : 0;
}

/* `begin` is a multiple of STEP. */
DDP_MULTIVERSION
static void drop(const struct pass *pass, int64_t begin, int64_t end)
{
    const struct ddp_dropout *args = pass->args;
    uint32_t words[4][COUNTERS], numbers[STEP];
    for (int64_t at = begin; at < end; at += STEP) {
        const float *x = args->x + at;
        float *y = args->y + at, result[STEP];
        const int64_t n = end - at < STEP ? end - at : STEP;
        philox_many(args, (uint64_t)at / 4, words);
        for (int i = 0; i < COUNTERS; i++)
            for (int j = 0; j < 4; j++)
                numbers[4 * i + j] = words[j][i];
        for (int64_t i = 0; i < n; i++)
            result[i] = dropped(pass, x[i], numbers[i]);
        if (args->accumulate)
            for (int64_t i = 0; i < n; i++)
                y[i] += result[i];
        else
            memcpy(y, result, (size_t)n * sizeof *y);
    }
}

static void block_task(void *arg, size_t index)
{
    const struct pass *pass = arg;
    drop(pass, ddp_block_begin(&pass->blocks, index), ddp_block_end(&pass->blocks, index));
}

static enum ddp_status check(const struct ddp_dropout *args)
{
    if (!(args->probability >= 0 && args->probability < 1))
        return ddp_fail(DDP_ERR_INVALID, "dropout: probability %g is not in [0, 1)",
                        (double)args->probability);
    if (args->count < 0 || (args->count > 0 && (!args->x || !args->y)))
        return ddp_fail(DDP_ERR_INVALID, "dropout: bad arguments (%lld elements)",
                        (long long)args->count);
    return DDP_OK;
}

enum ddp_status ddp_dropout(const struct ddp_dropout *args, void *stream)
{
    enum ddp_status status = check(args);
    if (status)
        return status;
    struct pass pass = {
        .args = args,
        .blocks = ddp_blocks_cut(args->count, SMALLEST, STEP),
        .threshold = (uint32_t)ceil((double)args->probability * 0x1p24),
        .scale = 1 / (1 - args->probability),
    };
    ddp_pool_run(ddp_stream_pool(stream), pass.blocks.count, block_task, &pass);
    return DDP_OK;
}

enum ddp_status ddp_dropout_reference(const struct ddp_dropout *args, void *stream)
{
    (void)stream;
    enum ddp_status status = check(args);
    if (status)
        return status;
    const uint32_t key[2] = {args->seed, args->layer};
    const float scale = 1 / (1 - args->probability);
    for (int64_t i = 0; i < args->count; i++) {
        const uint64_t place = (uint64_t)i / 4;
        const uint32_t counter[4] = {(uint32_t)place, (uint32_t)(place >> 32), args->shard,
                                     args->step};
        uint32_t numbers[4];
        ddp_philox(numbers, counter, key);
        bool keep = ddp_philox_uniform(numbers[i % 4]) >= args->probability;
        float value = keep ? args->x[i] * scale : 0;
        args->y[i] = args->accumulate ? args->y[i] + value : value;
    }
    return DDP_OK;
}
