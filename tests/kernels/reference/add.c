/* SPDX-License-Identifier: MIT
 *
 * Sums of arrays, element by element; see add.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

enum ddp_status ddp_add_reference(const struct ddp_add *args, void *stream)
{
    const float *a = args->a;
    const float *b = args->b;
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_add_check(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++) {
        float sum = b ? a[i] + b[i] : args->scale != 0 ? args->scale * a[i] : a[i];
        y[i] = args->accumulate ? y[i] + sum : sum;
    }
    return DDP_OK;
}
