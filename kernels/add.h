/* SPDX-License-Identifier: MIT
 *
 * Element by element: the sum of two arrays (a residual connection), a copy, perhaps times a
 * factor, or any of them added to what is there. */
#ifndef DDP_KERNELS_ADD_H
#define DDP_KERNELS_ADD_H

#include "ddp.h"

#include "kernels/check.h"

struct ddp_add {
    int64_t count;
    enum ddp_dtype dtype; /* of a, b and y: DDP_F32 or DDP_BF16 */
    const void *a;        /* (n) */
    const void *b;        /* (n), or NULL: none */
    float scale;          /* of a, without b; 0: 1 */
    void *y;              /* (n) out: a + b; may be a or b; no other overlap */
    bool accumulate;      /* y = y + (a + b) */
};

static inline enum ddp_status ddp_add_check(const struct ddp_add *args)
{
    if (args->scale != 0 && args->b)
        return ddp_fail(DDP_ERR_INVALID, "add: a factor of one of two arrays");
    return ddp_check_elements("add", args->count, args->a && args->y, args->dtype);
}

enum ddp_status ddp_add(const struct ddp_add *args, void *stream);

#endif
