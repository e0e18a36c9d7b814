/* SPDX-License-Identifier: MIT
 *
 * The article's made-up data: torch.rand(data_size, data_size) of a generator with the run's
 * seed, no labels, in order. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#define DATA_SIZE_MAX 1000000000 /* its square of floats can be counted */

struct article {
    struct ddp_dataset base;
    float *values; /* (sample_count, sample_count) */
};

static enum ddp_status article_read(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *x, int32_t *labels)
{
    const struct article *article = (const struct article *)dataset;
    const size_t features = dataset->info.sample_values;
    float *to = x;
    (void)labels;
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * features, article->values + (size_t)indices[i] * features,
               features * sizeof *to);
    return DDP_OK;
}

static void article_close(ddp_dataset *dataset)
{
    free(((struct article *)dataset)->values);
}

static const struct ddp_dataset_ops ops = {.read = article_read, .close = article_close};

static enum ddp_status article_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                    ddp_dataset **test)
{
    if (options->data_size < 1 || options->data_size > DATA_SIZE_MAX)
        return ddp_fail(DDP_ERR_INVALID, "%lld samples of data: 1 to %d are possible",
                        (long long)options->data_size, DATA_SIZE_MAX);
    const size_t size = (size_t)options->data_size, bytes = size * size * sizeof(float);
    if (bytes > ddp_memory_total())
        return ddp_fail(
            DDP_ERR_MEMORY,
            "out of memory: --data-size %zu makes %zu samples of as many numbers, which "
            "need %.1f GB, and there are %.1f GB: use a smaller one",
            size, size, (double)bytes / 1e9, (double)ddp_memory_total() / 1e9);
    struct article *article = ddp_dataset_alloc(sizeof *article, &ops, "");
    if (!article)
        return DDP_ERR_MEMORY;
    *train = &article->base;
    (void)test;
    article->base.info = (struct ddp_dataset_info){
        .source = "article",
        .path = article->base.path,
        .sample_count = options->data_size,
        .dim_count = 1,
        .dims = {options->data_size},
        .x_dtype = DDP_F32,
        .sample_values = size,
        .sample_bytes = size * sizeof(float),
        .memory_bytes = bytes,
        .channel_count = 1,
        .std = {1},
    };
    article->values = ddp_array_alloc(size * size, sizeof(float));
    if (!article->values)
        return DDP_ERR_MEMORY;
    struct ddp_rng rng;
    ddp_rng_seed(&rng, options->seed);
    ddp_rng_fill_uniform01(&rng, article->values, size * size);
    return DDP_OK;
}

const struct ddp_dataset_source ddp_dataset_article = {
    .name = "article",
    .help = "random numbers, as many a sample as there are samples, without labels",
    .open = article_open,
};
