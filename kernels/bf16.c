/* SPDX-License-Identifier: MIT
 *
 * Rounding to bf16 and float16 on the CPU; see bf16.h. */
#include "config.h"

#include "kernels/bf16.h"

#include "kernels/cpu/cpu.h"

#define SMALLEST 65536 /* elements of a task */
#define GRANULE  64

DDP_MULTIVERSION
static void pack(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t nan = bits >> 16 | 0x40u, number = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        y[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : number);
    }
}

void ddp_bf16_pack(const float *x, uint16_t *y, int64_t n)
{
    pack(x, y, n);
}

static void convert_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_to_bf16 *args = arg;
    pack(args->x + begin, args->y + begin, end - begin);
}

enum ddp_status ddp_to_bf16(const struct ddp_to_bf16 *args, void *stream)
{
    enum ddp_status status = ddp_to_bf16_check(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, SMALLEST, GRANULE), convert_range, args, stream);
    return DDP_OK;
}

DDP_MULTIVERSION
static void unpack(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ddp_bf16_to_f32(x[i]);
}

void ddp_bf16_unpack(const uint16_t *x, float *y, int64_t n)
{
    unpack(x, y, n);
}

DDP_MULTIVERSION
static void round_f16(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ddp_f16_round(x[i]);
}

DDP_MULTIVERSION
static void round_bf16_to_f16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ddp_f16_round(ddp_bf16_to_f32(x[i]));
}

static void round_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_round_f16 *args = arg;
    float *y = (float *)args->y + begin;
    if (args->x)
        round_f16(args->x + begin, y, end - begin);
    else
        round_bf16_to_f16(args->x_bf16 + begin, y, end - begin);
}

void ddp_round_f16(const struct ddp_round_f16 *args, void *stream)
{
    ddp_blocks_run(ddp_blocks_cut(args->count, SMALLEST, GRANULE), round_range, args, stream);
}
