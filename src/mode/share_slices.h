/* SPDX-License-Identifier: MIT
 *
 * What the files of sharing an update out have in common: buckets, and the slices of a worker. */
#ifndef DDP_MODE_SHARE_SLICES_H
#define DDP_MODE_SHARE_SLICES_H

#include "mode/share.h"

#include "comm/comm.h"

static inline struct ddp_replica *share_replica(const struct ddp_share *share)
{
    return share->mode->replicas;
}

static inline int64_t share_bucket_begin(const struct ddp_share *share, int bucket)
{
    return bucket ? share->bucket_end[bucket - 1] : 0;
}

static inline size_t share_bucket_elements(const struct ddp_share *share, int bucket)
{
    return (size_t)(share->bucket_end[bucket] - share_bucket_begin(share, bucket));
}

/* Elements of a bucket, but for those at the front: whole grains. */
static inline int64_t share_cut_size(const struct ddp_mode_setup *setup)
{
    const int64_t grain = DDP_UPDATE_GRAIN;
    const int64_t size = (int64_t)(setup->bucket_bytes / sizeof(float)) / grain * grain;
    return size < grain ? grain : size;
}

/* This worker's slices, one a bucket, and where their state lies when it is kept without gaps. */
struct share_slice {
    int64_t begin, end, packed;
};

static inline struct share_slice share_slice_of(const struct ddp_share *share, int bucket,
                                                int64_t packed)
{
    const size_t count = share_bucket_elements(share, bucket);
    const int64_t begin = share_bucket_begin(share, bucket);
    return (struct share_slice){
        begin + (int64_t)ddp_slice_begin(count, DDP_UPDATE_GRAIN, share->rank, share->size),
        begin + (int64_t)ddp_slice_begin(count, DDP_UPDATE_GRAIN, share->rank + 1, share->size),
        packed,
    };
}

/* --- share_gradients.c --- */

/* Cuts the flat array, which is in ready order, into buckets: share->bucket_end. */
enum ddp_status ddp_share_cut(struct ddp_share *share);

/* Memory for the gradients of all roots. Collective. */
enum ddp_status ddp_share_alloc_gradients(struct ddp_share *share, size_t bytes, void **gradients);

/* Thin gradients are there from now on when backward writes them. */
void ddp_share_watch(struct ddp_share *share);

/* --- share_state.c --- */

/* Gives back what is kept between parts of an array of state. */
void ddp_share_drop_state(struct ddp_share *share);

/* --- share_weights.c: thin weights --- */

/* After cutting: what is known of the passes. Closing takes one that was not opened. */
enum ddp_status ddp_share_hold_open(struct ddp_share *share);
void ddp_share_hold_close(struct ddp_share *share);

/* After opening the replica: they are there from now on when passes read them. Sends rank 0's
 * frozen ones to all. Collective. */
enum ddp_status ddp_share_hold_watch(struct ddp_share *share);

/* Memory for all of a bucket, and giving back what other machines have of it: of one that is not
 * held, or of all that are, when nobody here reads them. */
enum ddp_status ddp_share_provide_weights(struct ddp_share *share, int bucket);
void ddp_share_release(struct ddp_share *share, int bucket);
void ddp_share_release_all(struct ddp_share *share);

/* Brings these elements, between steps, in place of others. Collective. */
enum ddp_status ddp_share_hold_range(struct ddp_share *share, int64_t begin, int64_t end);

/* Before the passes of a step. Takes part in what workers with more shards read. Collective. */
enum ddp_status ddp_share_begin_passes(struct ddp_share *share);

#endif
