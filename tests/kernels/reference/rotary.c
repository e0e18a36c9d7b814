/* SPDX-License-Identifier: MIT
 *
 * Rotary positions in double precision; see rotary.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

static void put(float *to, double value, bool accumulate)
{
    *to = (float)(accumulate ? (double)*to + value : value);
}

enum ddp_status ddp_rotary_reference(const struct ddp_rotary *args, void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_rotary_check(args);
    const int64_t half = args->size / 2;
    const double sign = args->inverse ? -1 : 1;
    for (int64_t h = 0; status == DDP_OK && h < args->batch * args->length * args->heads; h++) {
        const float *x = (const float *)args->x + h * args->head_size;
        const float *table =
            args->table + (args->first + h / args->heads % args->length) * args->size;
        float *y = (float *)args->y + h * args->head_size;
        for (int64_t i = 0; i < half; i++) {
            const double c = (double)table[i], s = sign * (double)table[half + i];
            const double a = (double)x[i], b = (double)x[half + i];
            put(&y[i], a * c - b * s, args->accumulate);
            put(&y[half + i], b * c + a * s, args->accumulate);
        }
        for (int64_t i = args->size; i < args->head_size; i++)
            put(&y[i], (double)x[i], args->accumulate);
    }
    return status;
}
