/* SPDX-License-Identifier: MIT
 *
 * The table of sources, and what all of them share. */
#include "config.h"

#include "data/dataset.h"

#include "core/log.h"

#include <string.h>

static const struct ddp_dataset_source *const sources[] = {
    &ddp_dataset_idx,
    &ddp_dataset_article,
};

#define SOURCE_COUNT (sizeof sources / sizeof sources[0])

const struct ddp_dataset_source *ddp_dataset_source_at(size_t i)
{
    return i < SOURCE_COUNT ? sources[i] : NULL;
}

enum ddp_status ddp_dataset_open(const char *source, const struct ddp_dataset_options *options,
                                 ddp_dataset **train, ddp_dataset **test)
{
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        if (strcmp(sources[i]->name, source) != 0)
            continue;
        ddp_dataset *new_train = NULL, *new_test = NULL;
        enum ddp_status status = sources[i]->open(options, &new_train, test ? &new_test : NULL);
        if (status != DDP_OK)
            return status;
        *train = new_train;
        if (test)
            *test = new_test;
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_INVALID, "there is no data source named '%s'", source);
}

void ddp_dataset_close(ddp_dataset *dataset)
{
    if (dataset)
        dataset->ops->close(dataset);
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
            return ddp_fail(DDP_ERR_INVALID, "sample %lld was asked for: %s has 0 to %lld",
                            (long long)indices[i], dataset->info.source,
                            (long long)dataset->info.sample_count - 1);
    return dataset->ops->read(dataset, indices, count, x, labels);
}
