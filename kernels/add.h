/* SPDX-License-Identifier: MIT
 *
 * Element by element: the sum of two arrays (a residual connection), a copy, or either of them
 * added to what is there. */
#ifndef DDP_KERNELS_ADD_H
#define DDP_KERNELS_ADD_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_add {
    int64_t count;
    enum ddp_dtype dtype; /* of a, b and y: DDP_F32 or DDP_BF16 */
    const void *a;        /* (n) */
    const void *b;        /* (n), or NULL: none */
    void *y;              /* (n) out: a + b; may be a or b; no other overlap */
    bool accumulate;      /* y = y + (a + b) */
};

static inline enum ddp_status ddp_add_check(const struct ddp_add *args)
{
    return ddp_check_elements("add", args->count, args->a && args->y, args->dtype);
}

enum ddp_status ddp_add(const struct ddp_add *args, void *stream);

#endif
