/* SPDX-License-Identifier: MIT
 *
 * Data of which only the shape is known: what a run is planned for before there are any. */
#include "config.h"

#include "core/log.h"
#include "data/dataset.h"

static enum ddp_status shape_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                  void *x, int32_t *labels)
{
    (void)dataset, (void)indices, (void)count, (void)x, (void)labels;
    return ddp_fail(DDP_ERR_INVALID, "--shape: there are no samples to read, only their shape");
}

static void shape_close(ddp_dataset *dataset)
{
    (void)dataset;
}

static const struct ddp_dataset_ops ops = {.read = shape_read, .close = shape_close};

enum ddp_status ddp_dataset_open_shape(const struct ddp_dataset_info *shape, ddp_dataset **dataset)
{
    ddp_dataset *d = ddp_dataset_alloc(sizeof *d, &ops, "");
    if (!d)
        return DDP_ERR_MEMORY;
    const char *path = d->info.path;
    d->info = *shape;
    d->info.source = "--shape";
    d->info.path = path;
    d->info.planned = true;
    d->info.shuffled = true;
    d->info.sample_values = 1;
    for (int i = 0; i < shape->dim_count; i++)
        if (__builtin_mul_overflow(d->info.sample_values, (size_t)shape->dims[i],
                                   &d->info.sample_values) ||
            d->info.sample_values > INT32_MAX) {
            ddp_dataset_close(d);
            return ddp_fail(DDP_ERR_INVALID, "--shape: a sample has more than 2147483647 numbers");
        }
    d->info.sample_bytes = d->info.sample_values * ddp_dtype_bytes(shape->x_dtype);
    *dataset = d;
    return DDP_OK;
}
