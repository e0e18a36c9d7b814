/* SPDX-License-Identifier: MIT
 *
 * See sampler.h. Positions beyond the dataset mean its first samples again, as often as needed,
 * which is the padding of DistributedSampler without a padded copy of the order. */
#include "config.h"

#include "data/sampler.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"

#include <assert.h>
#include <stdlib.h>

struct ddp_sampler {
    struct ddp_sampler_config config;
    int64_t shard_samples;
    int64_t epoch;
    uint32_t *order; /* sample_count indices; NULL: 0, 1, 2, ... */
};

int64_t ddp_sampler_shard_samples(const struct ddp_sampler_config *config)
{
    int64_t whole = config->sample_count / config->shard_count;
    bool tail = config->sample_count % config->shard_count != 0;
    return whole + (tail && !config->drop_last);
}

static enum ddp_status check(const struct ddp_sampler_config *config)
{
    if (config->sample_count < 0 || config->sample_count > UINT32_MAX)
        return ddp_fail(DDP_ERR_INVALID, "a dataset of %lld samples: 0 to %u can be sampled",
                        (long long)config->sample_count, UINT32_MAX);
    /* Keeps shard + k * shard_count far from overflow. */
    if (config->shard_count < 1 || config->shard_count > INT32_MAX)
        return ddp_fail(DDP_ERR_INVALID, "%lld shards: 1 to %d are possible",
                        (long long)config->shard_count, INT32_MAX);
    return DDP_OK;
}

enum ddp_status ddp_sampler_create(ddp_sampler **sampler, const struct ddp_sampler_config *config)
{
    enum ddp_status status = check(config);
    if (status != DDP_OK)
        return status;
    struct ddp_sampler *s = ddp_array_alloc(1, sizeof *s);
    if (!s)
        return DDP_ERR_MEMORY;
    s->config = *config;
    s->shard_samples = ddp_sampler_shard_samples(config);
    s->epoch = -1;
    if (config->shuffle) {
        s->order = ddp_array_alloc((size_t)config->sample_count, sizeof *s->order);
        if (!s->order) {
            free(s);
            return DDP_ERR_MEMORY;
        }
    }
    *sampler = s;
    return DDP_OK;
}

void ddp_sampler_destroy(ddp_sampler *sampler)
{
    if (!sampler)
        return;
    free(sampler->order);
    free(sampler);
}

void ddp_sampler_set_epoch(ddp_sampler *sampler, int64_t epoch)
{
    assert(epoch >= 0);
    if (sampler->order && epoch != sampler->epoch) {
        struct ddp_rng rng;
        ddp_rng_seed(&rng, sampler->config.seed + (uint64_t)epoch);
        enum ddp_status status =
            ddp_rng_permutation(&rng, sampler->config.sample_count, sampler->order);
        assert(status == DDP_OK); /* the count was checked */
        (void)status;
    }
    sampler->epoch = epoch;
}

int64_t ddp_sampler_index(const ddp_sampler *sampler, int64_t shard, int64_t k)
{
    assert(sampler->epoch >= 0);
    assert(shard >= 0 && shard < sampler->config.shard_count);
    assert(k >= 0 && k < sampler->shard_samples);
    int64_t position = shard + k * sampler->config.shard_count;
    if (position >= sampler->config.sample_count)
        position %= sampler->config.sample_count;
    return sampler->order ? (int64_t)sampler->order[position] : position;
}

void ddp_evaluation_range(int64_t n, int64_t workers, int64_t worker, int64_t *begin, int64_t *end)
{
    assert(n >= 0 && workers >= 1 && worker >= 0 && worker < workers);
    int64_t each = n / workers;
    int64_t larger = n % workers; /* the first ones take one more */
    *begin = each * worker + (worker < larger ? worker : larger);
    *end = *begin + each + (worker < larger);
}
