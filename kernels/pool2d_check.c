/* SPDX-License-Identifier: MIT
 *
 * See pool2d_check.h. */
#include "config.h"

#include "kernels/pool2d_check.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/conv2d/conv2d.h"

#define SIZE_LIMIT 16777216 /* of one dimension */

enum ddp_status ddp_pool2d_check(const struct ddp_pool2d_shape *s, bool given, bool max)
{
    const int64_t sizes[] = {s->height,        s->width,        s->channels,
                             s->kernel_height, s->kernel_width, s->stride};
    bool fits = s->batch >= 0 && s->batch <= SIZE_LIMIT && s->padding >= 0;
    size_t bytes = sizeof(double) * (size_t)s->batch;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        fits &= sizes[i] >= 1 && sizes[i] <= SIZE_LIMIT;
    fits = fits && s->padding <= s->kernel_height / 2 && s->padding <= s->kernel_width / 2 &&
           ddp_size_multiply(bytes, (size_t)s->height, &bytes) &&
           ddp_size_multiply(bytes, (size_t)s->width, &bytes) &&
           ddp_size_multiply(bytes, (size_t)s->channels, &bytes) && bytes <= INT64_MAX / 64 &&
           ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1) > 0 &&
           ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1) > 0 &&
           (!max || s->kernel_height * s->kernel_width <= 256);
    if (!fits)
        return ddp_fail(DDP_ERR_INVALID,
                        "pool2d: %lld images of %lld x %lld x %lld with windows of %lld x %lld "
                        "(stride %lld, padding %lld) do not fit",
                        (long long)s->batch, (long long)s->height, (long long)s->width,
                        (long long)s->channels, (long long)s->kernel_height,
                        (long long)s->kernel_width, (long long)s->stride, (long long)s->padding);
    if (s->batch > 0 && !given)
        return ddp_fail(DDP_ERR_INVALID, "pool2d: NULL where elements are needed");
    return DDP_OK;
}
