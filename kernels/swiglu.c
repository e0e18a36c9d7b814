/* SPDX-License-Identifier: MIT
 *
 * SwiGLU on the CPU; see swiglu.h. One exponential an element, which memory hides: 12 bytes an
 * element forward, 20 backward. */
#include "config.h"

#include "kernels/swiglu.h"

#include "kernels/cpu/vmath.h"

#define BLOCK 16384

/* Everything here is inlined: no vector is passed the way that the warning is about. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

/* 1 / (1 + e^-z); the exponential is that of a negative number, so it does not overflow. */
DDP_INLINE ddp_f32x16 sigmoid16(ddp_f32x16 z)
{
    const ddp_f32x16 zero = {0}, one = ddp_splat16(1);
    const ddp_f32x16 e = ddp_exp16_negative(-ddp_abs16(z));
    return ddp_select16(z < zero, e, one) / (1.0f + e);
}

DDP_INLINE ddp_f32x16 load(const float *from, int64_t left)
{
    return left >= DDP_LANES ? ddp_load16(from) : ddp_load16_tail(from, left, 0);
}

DDP_INLINE void store(float *to, int64_t left, ddp_f32x16 value)
{
    if (left >= DDP_LANES)
        ddp_store16(to, value);
    else
        ddp_store16_tail(to, left, value);
}

DDP_INLINE void forward_block(const struct ddp_swiglu_forward *args, int64_t begin, int64_t end)
{
    const float *gate = args->gate, *up = args->up;
    float *y = args->y;
    for (int64_t i = begin; i < end; i += DDP_LANES) {
        const ddp_f32x16 z = load(gate + i, end - i);
        store(y + i, end - i, z * sigmoid16(z) * load(up + i, end - i));
    }
}

DDP_MULTIVERSION
static void forward_range(const void *arg, int64_t begin, int64_t end)
{
    forward_block(arg, begin, end);
}

DDP_INLINE void put(float *to, int64_t left, ddp_f32x16 value, bool accumulate)
{
    store(to, left, accumulate ? load(to, left) + value : value);
}

DDP_INLINE void backward_block(const struct ddp_swiglu_backward *args, int64_t begin, int64_t end)
{
    const float *gate = args->gate, *up = args->up, *dy = args->dy;
    float *dgate = args->dgate, *dup = args->dup;
    for (int64_t i = begin; i < end; i += DDP_LANES) {
        const int64_t left = end - i;
        const ddp_f32x16 z = load(gate + i, left), u = load(up + i, left), d = load(dy + i, left);
        const ddp_f32x16 s = sigmoid16(z), silu = z * s;
        if (dgate)
            put(dgate + i, left, d * u * (s + silu * (1.0f - s)), args->accumulate_dgate);
        if (dup)
            put(dup + i, left, d * silu, args->accumulate_dup);
    }
}

DDP_MULTIVERSION
static void backward_range(const void *arg, int64_t begin, int64_t end)
{
    backward_block(arg, begin, end);
}

#pragma GCC diagnostic pop

enum ddp_status ddp_swiglu_forward(const struct ddp_swiglu_forward *args, void *stream)
{
    enum ddp_status status = ddp_swiglu_check_forward(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), forward_range, args, stream);
    return DDP_OK;
}

enum ddp_status ddp_swiglu_backward(const struct ddp_swiglu_backward *args, void *stream)
{
    enum ddp_status status = ddp_swiglu_check_backward(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), backward_range, args, stream);
    return DDP_OK;
}
