/* SPDX-License-Identifier: MIT
 *
 * The table of sources, how one is found for a path, and what all of them share. */
#include "config.h"

#include "data/dataset.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct ddp_dataset_source *const sources[] = {
    &ddp_dataset_idx,
    &ddp_dataset_cifar,
    &ddp_dataset_npy,
    /* It accepts any file. */
    &ddp_dataset_tokens,
    /* After it: directories of tokens may hold pictures too. */
    &ddp_dataset_images,
    &ddp_dataset_article,
};

#define FINGERPRINT_SAMPLES 256

#define SOURCE_COUNT (sizeof sources / sizeof sources[0])

const struct ddp_dataset_source *ddp_dataset_source_at(size_t i)
{
    return i < SOURCE_COUNT ? sources[i] : NULL;
}

static enum ddp_status find_by_name(const char *name, const struct ddp_dataset_source **source)
{
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (strcmp(sources[i]->name, name) == 0) {
            *source = sources[i];
            return DDP_OK;
        }
    return ddp_fail(DDP_ERR_INVALID, "there is no data source named '%s'", name);
}

static enum ddp_status not_recognised(const char *path)
{
    char looked_for[512] = "";
    size_t used = 0;
    struct stat info;
    if (stat(path, &info) < 0)
        return ddp_fail_path(path, "open the data");
    if (!S_ISDIR(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot read: not a regular file", path);
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (sources[i]->looks_for && used < sizeof looked_for)
            used += (size_t)snprintf(looked_for + used, sizeof looked_for - used, "%s%s",
                                     used ? "; " : "", sources[i]->looks_for);
    return ddp_fail(DDP_ERR_IO, "%s: no data found in this directory. Looked for: %s", path,
                    looked_for);
}

static enum ddp_status find_by_path(const char *path, const struct ddp_dataset_source **source)
{
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (sources[i]->recognise && sources[i]->recognise(path)) {
            *source = sources[i];
            return DDP_OK;
        }
    return not_recognised(path);
}

enum ddp_status ddp_dataset_open(const char *source, const struct ddp_dataset_options *options,
                                 ddp_dataset **train, ddp_dataset **test)
{
    const struct ddp_dataset_source *found = &ddp_dataset_idx;
    ddp_dataset *new_train = NULL, *new_test = NULL;
    enum ddp_status status = DDP_OK;
    if (source)
        status = find_by_name(source, &found);
    else if (options->path)
        status = find_by_path(options->path, &found);
    if (status == DDP_OK && options->val && !found->takes_val)
        status =
            ddp_fail(DDP_ERR_INVALID, "--val: data of the kind %s have their own test set, or none",
                     found->name);
    if (status == DDP_OK && options->image_height && !found->takes_size)
        status = ddp_fail(DDP_ERR_INVALID,
                          "--image-size belongs to directories of images, and %s is data of the "
                          "kind %s",
                          options->path ? options->path : DDP_DATASET_DEFAULT_DIR, found->name);
    if (status == DDP_OK)
        status = found->open(options, &new_train, test ? &new_test : NULL);
    if (status != DDP_OK) {
        ddp_dataset_close(new_train);
        ddp_dataset_close(new_test);
        return status;
    }
    *train = new_train;
    if (test)
        *test = new_test;
    return DDP_OK;
}

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

enum ddp_status ddp_dataset_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                 void *x, int32_t *labels)
{
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= dataset->info.sample_count)
            return ddp_fail(DDP_ERR_INVALID, "sample %lld does not exist: %s has 0 to %lld",
                            (long long)indices[i], dataset->info.source,
                            (long long)dataset->info.sample_count - 1);
    return dataset->ops->read(dataset, indices, count, x, labels);
}

const char *ddp_dataset_sample_name(const ddp_dataset *dataset, int64_t index)
{
    assert(index >= 0 && index < dataset->info.sample_count);
    return dataset->ops->sample_name ? dataset->ops->sample_name(dataset, index) : NULL;
}

enum ddp_status ddp_dataset_fingerprint(const ddp_dataset *dataset, uint64_t *fingerprint)
{
    const struct ddp_dataset_info *info = &dataset->info;
    const int64_t last = info->sample_count - 1;
    const int64_t count = last < FINGERPRINT_SAMPLES ? last + 1 : FINGERPRINT_SAMPLES;
    const size_t label_bytes = (size_t)info->label_count * sizeof(int32_t);
    char *sample = ddp_array_alloc(info->sample_bytes + label_bytes, 1);
    int32_t *labels = ddp_array_alloc((size_t)info->label_count + 1, sizeof *labels);
    uint64_t sums[FINGERPRINT_SAMPLES];
    enum ddp_status status = sample && labels ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        const int64_t at = count > 1 ? (int64_t)((__int128)last * i / (count - 1)) : 0;
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
