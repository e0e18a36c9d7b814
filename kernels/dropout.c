/* SPDX-License-Identifier: MIT
 *
 * Dropout on the CPU; see dropout.h. Many counters go through Philox side by side. */
#include "config.h"

#include "kernels/dropout.h"

#include "core/philox.h"
#include "kernels/cpu/vmath.h"

#define SMALLEST 16384 /* elements of a task */
#define COUNTERS 8     /* side by side, in lanes of 64 bits for their products */
#define STEP     (4 * COUNTERS)

typedef uint64_t u64x8 __attribute__((vector_size(64)));

struct pass {
    const struct ddp_dropout *args;
    uint32_t threshold; /* the upper 24 bits of a number: an element below it is dropped */
    float scale;
};

/* numbers[4 i + j] is number j of counter first + i. As ddp_philox(), which says what is done. */
DDP_INLINE void philox_many(const struct ddp_dropout *args, uint64_t first, uint32_t numbers[STEP])
{
    const u64x8 lane = {0, 1, 2, 3, 4, 5, 6, 7}, low = (u64x8){0} + 0xffffffffu;
    const u64x8 place = first + lane;
    u64x8 c0 = place & low, c1 = place >> 32;
    u64x8 c2 = (u64x8){0} + args->shard, c3 = (u64x8){0} + args->step;
    uint32_t k0 = args->seed, k1 = args->layer;
    for (int round = 0; round < DDP_PHILOX_ROUNDS; round++) {
        const u64x8 a = c0 * 0xD2511F53u, b = c2 * 0xCD9E8D57u;
        c0 = (b >> 32) ^ c1 ^ k0;
        c1 = b & low;
        c2 = (a >> 32) ^ c3 ^ k1;
        c3 = a & low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    const u64x8 first_two = c0 << 32 | c1, last_two = c2 << 32 | c3;
#else
    const u64x8 first_two = c0 | c1 << 32, last_two = c2 | c3 << 32;
#endif
    uint64_t pairs[2][COUNTERS], mixed[2 * COUNTERS];
    memcpy(pairs[0], &first_two, sizeof first_two);
    memcpy(pairs[1], &last_two, sizeof last_two);
    for (int i = 0; i < COUNTERS; i++) {
        mixed[2 * i] = pairs[0][i];
        mixed[2 * i + 1] = pairs[1][i];
    }
    memcpy(numbers, mixed, sizeof mixed);
}

DDP_INLINE ddp_f32x16 dropped(const struct pass *pass, ddp_f32x16 x, const uint32_t *numbers)
{
    const ddp_f32x16 zero = {0};
    ddp_i32x16 upper;
    memcpy(&upper, numbers, sizeof upper);
    upper = (ddp_i32x16)((ddp_u32x16)upper >> 8);
    return ddp_select16(upper >= (int32_t)pass->threshold, x * pass->scale, zero);
}

/* `begin` is a multiple of STEP. */
DDP_INLINE void drop_block(const struct pass *pass, int64_t begin, int64_t end)
{
    const struct ddp_dropout *args = pass->args;
    const float *x = args->x;
    float *y = args->y;
    uint32_t numbers[STEP];
    int64_t at = begin;
    for (; at + STEP <= end; at += STEP) {
        philox_many(args, (uint64_t)at / 4, numbers);
        for (int i = 0; i < STEP; i += DDP_LANES) {
            ddp_f32x16 value = dropped(pass, ddp_load16(x + at + i), numbers + i);
            if (args->accumulate)
                value = ddp_load16(y + at + i) + value;
            ddp_store16(y + at + i, value);
        }
    }
    if (at == end)
        return;
    philox_many(args, (uint64_t)at / 4, numbers);
    for (int i = 0; at + i < end; i++) {
        float value = numbers[i] >> 8 >= pass->threshold ? x[at + i] * pass->scale : 0;
        y[at + i] = args->accumulate ? y[at + i] + value : value;
    }
}

DDP_MULTIVERSION
static void drop(const void *pass, int64_t begin, int64_t end)
{
    drop_block(pass, begin, end);
}

static struct ddp_dropout placed(const struct ddp_dropout *args)
{
    struct ddp_dropout own = *args;
    if (own.place) {
        own.shard = own.place[0];
        own.step = own.place[1];
    }
    return own;
}

enum ddp_status ddp_dropout(const struct ddp_dropout *args, void *stream)
{
    enum ddp_status status = ddp_dropout_check(args);
    if (status)
        return status;
    const struct ddp_dropout own = placed(args);
    const struct pass pass = {
        .args = &own,
        .threshold = (uint32_t)ceil((double)args->probability * 0x1p24),
        .scale = 1 / (1 - args->probability),
    };
    ddp_blocks_run(ddp_blocks_cut(args->count, SMALLEST, STEP), drop, &pass, stream);
    return DDP_OK;
}
