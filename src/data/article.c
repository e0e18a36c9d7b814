/* SPDX-License-Identifier: MIT
 *
 * The article's made-up data: torch.rand(data_size, 8) of a generator with the run's seed, no
 * labels, in order. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#define FEATURES 8

struct article {
    struct ddp_dataset base;
    float *values; /* (sample_count, FEATURES) */
};

static enum ddp_status article_read(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *x, int32_t *labels)
{
    const struct article *article = (const struct article *)dataset;
    float *to = x;
    (void)labels;
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * FEATURES, article->values + (size_t)indices[i] * FEATURES,
               FEATURES * sizeof *to);
    return DDP_OK;
}

static void article_close(ddp_dataset *dataset)
{
    struct article *article = (struct article *)dataset;
    free(article->values);
    free(article);
}

static const struct ddp_dataset_ops ops = {.read = article_read, .close = article_close};

static enum ddp_status article_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                    ddp_dataset **test)
{
    if (options->data_size < 1 || options->data_size > UINT32_MAX)
        return ddp_fail(DDP_ERR_INVALID, "%lld samples of data: 1 to %u are possible",
                        (long long)options->data_size, UINT32_MAX);
    struct article *article = ddp_array_alloc(1, sizeof *article);
    if (!article)
        return DDP_ERR_MEMORY;
    size_t floats = (size_t)options->data_size * FEATURES;
    article->base.ops = &ops;
    article->base.info = (struct ddp_dataset_info){
        .source = "article",
        .path = "",
        .sample_count = options->data_size,
        .dim_count = 1,
        .dims = {FEATURES},
        .x_dtype = DDP_F32,
        .sample_values = FEATURES,
        .sample_bytes = FEATURES * sizeof(float),
        .memory_bytes = floats * sizeof(float),
        .channel_count = 1,
        .std = {1},
    };
    article->values = ddp_array_alloc(floats, sizeof *article->values);
    if (!article->values) {
        free(article);
        return DDP_ERR_MEMORY;
    }
    struct ddp_rng rng;
    ddp_rng_seed(&rng, options->seed);
    ddp_rng_fill_uniform01(&rng, article->values, floats);
    *train = &article->base;
    if (test)
        *test = NULL;
    return DDP_OK;
}

const struct ddp_dataset_source ddp_dataset_article = {
    .name = "article",
    .help = "random numbers, 8 a sample, without labels",
    .open = article_open,
};
