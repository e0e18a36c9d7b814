/* SPDX-License-Identifier: MIT
 *
 * Which sample goes where: the epoch's order and its split over shards, index for index that of
 * PyTorch's DistributedSampler, where shard s takes positions s, s+W, s+2W, ... And the ranges of
 * an exact evaluation. */
#ifndef DDP_DATA_SAMPLER_H
#define DDP_DATA_SAMPLER_H

#include "ddp.h"

typedef struct ddp_sampler ddp_sampler;

struct ddp_sampler_config {
    int64_t sample_count; /* of the dataset: 0 .. 2^32-1 */
    int64_t shard_count;  /* W >= 1 */
    bool shuffle;         /* randperm of a generator seeded with seed + epoch; else 0, 1, 2, ... */
    bool drop_last; /* leave out the tail that does not fill all shards; else the first samples fill
                       it up */
    uint64_t seed;
};

/* How many samples each shard gets in an epoch. 0 with drop_last and fewer samples than shards, or
 * without any. */
int64_t ddp_sampler_shard_samples(const struct ddp_sampler_config *config);

/* Makes a sampler; set_epoch() must follow before an index is asked for.
 * DDP_ERR_INVALID, DDP_ERR_MEMORY. Freed with ddp_sampler_destroy(). */
enum ddp_status ddp_sampler_create(ddp_sampler **sampler, const struct ddp_sampler_config *config);
void ddp_sampler_destroy(ddp_sampler *sampler);

/* Computes the order of an epoch (from 0): 4 bytes a sample when shuffled, none otherwise. */
void ddp_sampler_set_epoch(ddp_sampler *sampler, int64_t epoch);

/* The dataset index of sample k of a shard: 0 <= shard < W, 0 <= k < shard_samples. Threads may
 * read together. */
int64_t ddp_sampler_index(const ddp_sampler *sampler, int64_t shard, int64_t k);

/* The part [begin, end) of 0 .. n-1 that one of `workers` evaluates: every sample once, parts
 * differ by at most one. */
void ddp_evaluation_range(int64_t n, int64_t workers, int64_t worker, int64_t *begin, int64_t *end);

#endif
