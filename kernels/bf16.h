/* SPDX-License-Identifier: MIT
 *
 * Arrays of bf16 from arrays of float32, and back; the latter on devices alone, for operations.
 * Also float16: on GPUs, and on the CPU, where its values stay in arrays of float32. */
#ifndef DDP_KERNELS_BF16_H
#define DDP_KERNELS_BF16_H

#include "ddp.h"

#include "kernels/check.h"

#include "core/bf16.h"

struct ddp_to_bf16 {
    int64_t count;
    const float *x; /* (n) */
    uint16_t *y;    /* (n) out, bf16 */
};

struct ddp_from_bf16 {
    int64_t count;
    const uint16_t *x; /* (n) bf16 */
    float *y;          /* (n) out, exactly */
};

/* The same on the calling thread. */
void ddp_bf16_pack(const float *x, uint16_t *y, int64_t n);
void ddp_bf16_unpack(const uint16_t *x, float *y, int64_t n);

static inline enum ddp_status ddp_from_bf16_check(const struct ddp_from_bf16 *args)
{
    return ddp_check_elements("from bf16", args->count, args->x && args->y, DDP_F32);
}

static inline enum ddp_status ddp_to_bf16_check(const struct ddp_to_bf16 *args)
{
    return ddp_check_elements("to bf16", args->count, args->x && args->y, DDP_F32);
}

enum ddp_status ddp_to_bf16(const struct ddp_to_bf16 *args, void *stream);

struct ddp_round_f16 {
    int64_t count;
    const float *x;         /* (n), or NULL: */
    const uint16_t *x_bf16; /* (n) */
    void *y; /* (n) out: the nearest float16, ties to even, as float; infinite from 65520 on */
};

/* Of the CPU; and of GPUs, where y is (n) of 16 bits. */
void ddp_round_f16(const struct ddp_round_f16 *args, void *stream);

/* An operand of a product that is computed in this type. */
static inline float ddp_operand(float value, enum ddp_dtype compute)
{
    return compute == DDP_BF16  ? ddp_bf16_to_f32(ddp_bf16_of(value))
           : compute == DDP_F16 ? ddp_f16_round(value)
                                : value;
}

#endif
