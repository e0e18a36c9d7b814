/* SPDX-License-Identifier: MIT
 *
 * Arrays of bf16 from arrays of float32. */
#ifndef DDP_KERNELS_BF16_H
#define DDP_KERNELS_BF16_H

#include "ddp.h"

#include "core/bf16.h"

struct ddp_to_bf16 {
    int64_t count;
    const float *x; /* (n) */
    uint16_t *y;    /* (n) out, bf16 */
};

enum ddp_status ddp_to_bf16(const struct ddp_to_bf16 *args, void *stream);
enum ddp_status ddp_to_bf16_reference(const struct ddp_to_bf16 *args, void *stream);

#endif
