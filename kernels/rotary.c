/* SPDX-License-Identifier: MIT
 *
 * Rotary positions on the CPU; see rotary.h. Bound by memory: 8 bytes an element, 12 accumulating;
 * the table's row of a position stays in the cache while its heads are turned. */
#include "config.h"

#include "kernels/rotary.h"

#include "core/log.h"
#include "kernels/cpu/vmath.h"

#define BLOCK 16384 /* elements of a task, at least */

/* Everything here is inlined: no vector is passed the way that the warning is about. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

DDP_INLINE void turn_head(const struct ddp_rotary *args, const float *cosines, const float *x,
                          float *y)
{
    const int64_t half = args->size / 2;
    const float *sines = cosines + half, sign = args->inverse ? -1.0f : 1.0f;
    int64_t i = 0;
    for (; i + DDP_LANES <= half; i += DDP_LANES) {
        const ddp_f32x16 c = ddp_load16(cosines + i), s = ddp_load16(sines + i) * sign;
        const ddp_f32x16 a = ddp_load16(x + i), b = ddp_load16(x + half + i);
        ddp_f32x16 first = a * c - b * s, second = b * c + a * s;
        if (args->accumulate) {
            first = ddp_load16(y + i) + first;
            second = ddp_load16(y + half + i) + second;
        }
        ddp_store16(y + i, first);
        ddp_store16(y + half + i, second);
    }
    for (; i < half; i++) {
        const float c = cosines[i], s = sines[i] * sign, a = x[i], b = x[half + i];
        const float first = a * c - b * s, second = b * c + a * s;
        y[i] = args->accumulate ? y[i] + first : first;
        y[half + i] = args->accumulate ? y[half + i] + second : second;
    }
    for (i = args->size; i < args->head_size; i++)
        y[i] = args->accumulate ? y[i] + x[i] : x[i];
}

#pragma GCC diagnostic pop

/* Rows of (B,T). */
DDP_MULTIVERSION
static void turn_rows(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_rotary *args = arg;
    const int64_t size = args->head_size, width = args->heads * size;
    for (int64_t row = begin; row < end; row++) {
        const float *cosines = args->table + (args->first + row % args->length) * args->size;
        const float *x = (const float *)args->x + row * width;
        float *y = (float *)args->y + row * width;
        for (int64_t head = 0; head < args->heads; head++)
            turn_head(args, cosines, x + head * size, y + head * size);
    }
}

enum ddp_status ddp_rotary(const struct ddp_rotary *args, void *stream)
{
    enum ddp_status status = ddp_rotary_check(args);
    const int64_t width = args->heads * args->head_size;
    if (status || args->batch * args->length * width == 0)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->batch * args->length, BLOCK / width + 1, 1), turn_rows,
                   args, stream);
    return DDP_OK;
}
