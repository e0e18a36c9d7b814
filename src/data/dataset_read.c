/* SPDX-License-Identifier: MIT
 *
 * What all datasets share: their memory, their samples, their fingerprint. See dataset.h. */
#include "config.h"

#include "data/dataset.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FINGERPRINT_SAMPLES 256

void *ddp_dataset_alloc(size_t bytes, const struct ddp_dataset_ops *ops, const char *path)
{
    ddp_dataset *dataset = ddp_array_alloc(1, bytes);
    if (!dataset)
        return NULL;
    dataset->ops = ops;
    dataset->path = strdup(path);
    if (!dataset->path) {
        (void)ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
        free(dataset);
        return NULL;
    }
    dataset->info.path = dataset->path;
    return dataset;
}

void ddp_dataset_close(ddp_dataset *dataset)
{
    if (!dataset)
        return;
    dataset->ops->close(dataset);
    free(dataset->path);
    free(dataset);
}

const struct ddp_dataset_info *ddp_dataset_info(const ddp_dataset *dataset)
{
    return &dataset->info;
}

const char *ddp_dataset_where(const struct ddp_dataset_info *info)
{
    return *info->path ? info->path : info->source;
}

int64_t ddp_dataset_spread(int64_t total, int64_t count, int64_t i)
{
    return count > 1 ? (int64_t)((__int128)(total - 1) * i / (count - 1)) : 0;
}

static enum ddp_status check_indices(const ddp_dataset *dataset, const int64_t *indices,
                                     size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= dataset->info.sample_count)
            return ddp_fail(DDP_ERR_INVALID, "sample %lld does not exist: %s has 0 to %lld",
                            (long long)indices[i], dataset->info.source,
                            (long long)dataset->info.sample_count - 1);
    return DDP_OK;
}

enum ddp_status ddp_dataset_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                 void *x, int32_t *labels)
{
    enum ddp_status status = check_indices(dataset, indices, count);
    return status == DDP_OK ? dataset->ops->read(dataset, indices, count, x, labels) : status;
}

enum ddp_status ddp_dataset_read_resized(const ddp_dataset *dataset,
                                         const struct ddp_augment *augment, int64_t epoch,
                                         const int64_t *indices, size_t count, void *x,
                                         int32_t *labels)
{
    enum ddp_status status = check_indices(dataset, indices, count);
    if (status == DDP_OK && !dataset->ops->read_resized)
        status = ddp_fail(DDP_ERR_INVALID,
                          "--augment resized: regions are cut out of image files, as directories "
                          "of images have them, and %s is none",
                          ddp_dataset_where(&dataset->info));
    return status == DDP_OK
               ? dataset->ops->read_resized(dataset, augment, epoch, indices, count, x, labels)
               : status;
}

const char *ddp_dataset_sample_name(const ddp_dataset *dataset, int64_t index)
{
    assert(index >= 0 && index < dataset->info.sample_count);
    return dataset->ops->sample_name ? dataset->ops->sample_name(dataset, index) : NULL;
}

enum ddp_status ddp_dataset_fingerprint(const ddp_dataset *dataset, uint64_t *fingerprint)
{
    const struct ddp_dataset_info *info = &dataset->info;
    const int64_t total = info->sample_count;
    const int64_t count = total < FINGERPRINT_SAMPLES ? total : FINGERPRINT_SAMPLES;
    const size_t label_bytes = (size_t)info->label_count * sizeof(int32_t);
    char *sample = ddp_array_alloc(info->sample_bytes + label_bytes, 1);
    int32_t *labels = ddp_array_alloc((size_t)info->label_count + 1, sizeof *labels);
    uint64_t sums[FINGERPRINT_SAMPLES];
    enum ddp_status status = sample && labels ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        const int64_t at = ddp_dataset_spread(total, count, i);
        status = ddp_dataset_read(dataset, &at, 1, sample, labels);
        memcpy(sample + info->sample_bytes, labels, label_bytes);
        sums[i] = ddp_hash(sample, info->sample_bytes + label_bytes);
    }
    if (status == DDP_OK)
        *fingerprint = ddp_hash(sums, (size_t)count * sizeof *sums);
    free(labels);
    free(sample);
    return status;
}

float *ddp_dataset_references(const ddp_dataset *dataset, int64_t sample, int64_t *count)
{
    return dataset->ops->references ? dataset->ops->references(dataset, sample, count) : NULL;
}
