/* SPDX-License-Identifier: MIT
 *
 * Arrays of bf16 from arrays of float32, and back; the latter on devices alone, for operations. */
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

static inline enum ddp_status ddp_from_bf16_check(const struct ddp_from_bf16 *args)
{
    return ddp_check_elements("from bf16", args->count, args->x && args->y, DDP_F32);
}

static inline enum ddp_status ddp_to_bf16_check(const struct ddp_to_bf16 *args)
{
    return ddp_check_elements("to bf16", args->count, args->x && args->y, DDP_F32);
}

enum ddp_status ddp_to_bf16(const struct ddp_to_bf16 *args, void *stream);

#endif
