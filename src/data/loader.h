/* SPDX-License-Identifier: MIT
 *
 * Batches, ready before they are asked for: threads read the samples of the local shards into a
 * ring of buffers, in the order in which training takes them: step by step, within a step shard by
 * shard, epoch after epoch without a gap. */
#ifndef DDP_DATA_LOADER_H
#define DDP_DATA_LOADER_H

#include "core/label.h"
#include "data/augment.h"
#include "data/dataset.h"
#include "data/sampler.h"

typedef struct ddp_loader ddp_loader;

/* Memory for batches, from which a device copies fast. */
struct ddp_loader_memory {
    enum ddp_status (*alloc)(void *arg, size_t bytes, void **memory); /* page-aligned */
    void (*free)(void *arg, void *memory, size_t bytes);
    void *arg; /* outlives the loader */
};

struct ddp_loader_config {
    const ddp_dataset *dataset;        /* outlives the loader */
    struct ddp_sampler_config sampler; /* its sample_count is taken from the dataset */
    int64_t batch_size;                /* b: samples of one shard in one step */
    int64_t first_shard, shard_count;  /* the shards that this worker computes */
    int64_t epoch, step;               /* the cursor: where to start; step 0 .. steps_per_epoch */
    int64_t end_epoch;                 /* first epoch that is not delivered; negative: no end */
    struct ddp_augment augment;        /* of images; zero: none */
    int threads;                       /* 0: one */
    struct ddp_loader_memory memory;   /* zero: ordinary memory */
    int depth; /* batches held at most; 0: two for each local shard, and one a thread */
};

/* One shard's samples of one step. */
struct ddp_batch {
    void *x;                /* (rows, dims...) of the dataset's x_dtype, page-aligned */
    int32_t *labels;        /* (rows, label_count) i32; NULL for a dataset without labels */
    const int64_t *indices; /* rows dataset indices */
    const struct ddp_soft_labels *soft; /* what is learned in place of the labels alone; or NULL */
    int64_t rows;                       /* batch_size, or less in the last step of an epoch */
    int64_t epoch, step;                /* step: within its epoch */
    int64_t shard;
};

/* Optimizer steps in an epoch: samples of a shard / batch_size, rounded up. */
int64_t ddp_loader_steps_per_epoch(const struct ddp_sampler_config *sampler, int64_t batch_size);

/* Bytes of a batch of `rows` samples with their labels; SIZE_MAX: too many to count. */
size_t ddp_loader_slot_bytes(const struct ddp_dataset_info *info, int64_t rows);

/* Starts the threads. DDP_ERR_INVALID (a combination that gives no batch, for example),
 * DDP_ERR_MEMORY, DDP_ERR_SYSTEM. */
enum ddp_status ddp_loader_create(ddp_loader **loader, const struct ddp_loader_config *config);

/* The same over samples begin .. end-1 in their order, once, as shard 0 of epoch 0: for an
 * evaluation. begin == end is a loader that has no batch. */
enum ddp_status ddp_loader_create_range(ddp_loader **loader, const ddp_dataset *dataset,
                                        int64_t begin, int64_t end, int64_t batch_size,
                                        int threads);

/* Ends the threads, at any moment, and frees all batches. */
void ddp_loader_destroy(ddp_loader *loader);

/* Waits for the next batch. It stays valid until it is released; a loader holds `depth` batches, so
 * keep fewer. An error of a reading thread is returned here, in its turn and from then on.
 *   batch [out]  NULL after the last one
 * DDP_ERR_INVALID: the batch of `depth` calls ago is still held. */
enum ddp_status ddp_loader_next(ddp_loader *loader, const struct ddp_batch **batch);

/* Gives a batch back, in any order, from any thread. NULL is fine. */
void ddp_loader_release(ddp_loader *loader, const struct ddp_batch *batch);

/* Time that ddp_loader_next() has spent waiting since the loader was made. */
double ddp_loader_wait_seconds(const ddp_loader *loader);

#endif
