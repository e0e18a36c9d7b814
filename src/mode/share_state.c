/* SPDX-License-Identifier: MIT
 *
 * The optimizer's state of the workers' slices, in and out, in buckets: of all of an array, or of
 * one part after another. See share.h. */
#include "config.h"

#include "mode/share_slices.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* Brings a bucket of a packed state array, whose slice begins at `packed`, together in the host's
 * memory. */
static enum ddp_status gather_bucket(struct ddp_share *share, int bucket, int64_t packed,
                                     const float *state, float *values)
{
    ddp_device *device = share_replica(share)->device;
    const struct share_slice slice = share_slice_of(share, bucket, packed);
    float *own = values + (slice.begin - share_bucket_begin(share, bucket));
    const size_t bytes = (size_t)(slice.end - slice.begin) * sizeof *own;
    enum ddp_status status =
        bytes > 0 ? ddp_device_copy_out(device, own, state + packed, bytes) : DDP_OK;
    if (status == DDP_OK)
        status = ddp_device_synchronize(device);
    return status == DDP_OK ? ddp_comm_gather_slices(share->mode->setup.comm, values,
                                                     share_bucket_elements(share, bucket),
                                                     DDP_UPDATE_GRAIN, DDP_F32)
                            : status;
}

/* Takes what the slice has of elements [from, end), which all have after this. */
static enum ddp_status scatter(struct ddp_share *share, const struct share_slice *slice,
                               int64_t from, int64_t end, float *state, float *values)
{
    ddp_device *device = share_replica(share)->device;
    const int64_t first = from > slice->begin ? from : slice->begin;
    const int64_t last = end < slice->end ? end : slice->end;
    enum ddp_status status =
        share->mode->everywhere
            ? DDP_OK
            : ddp_comm_broadcast(share->mode->setup.comm, values, (size_t)(end - from), DDP_F32, 0);
    if (status == DDP_OK && first < last)
        status =
            ddp_device_copy_in(device, state + slice->packed + (first - slice->begin),
                               values + (first - from), (size_t)(last - first) * sizeof *values);
    return status == DDP_OK ? ddp_device_synchronize(device) : status;
}

/* Room for a bucket, in which nothing is known to lie. */
static enum ddp_status make_room(struct ddp_share *share)
{
    size_t most = 1;
    share->gathered_bucket = -1;
    for (int b = 0; b < share->bucket_count; b++)
        most = share_bucket_elements(share, b) > most ? share_bucket_elements(share, b) : most;
    if (!share->gathered)
        share->gathered = ddp_array_alloc(most, sizeof *share->gathered);
    return share->gathered ? DDP_OK : DDP_ERR_MEMORY;
}

void ddp_share_drop_state(struct ddp_share *share)
{
    free(share->gathered);
    share->gathered = NULL;
}

/*   values  of rank 0, which are only read; other ranks have room for a bucket at a time */
static enum ddp_status load_packed(struct ddp_share *share, int i, int64_t begin, int64_t count,
                                   const float *values)
{
    float *state = ddp_mode_state(share->mode, i);
    int64_t packed = 0;
    enum ddp_status status = make_room(share);
    for (int b = 0; status == DDP_OK && b < share->bucket_count; b++) {
        const struct share_slice slice = share_slice_of(share, b, packed);
        const int64_t first = share_bucket_begin(share, b), last = share->bucket_end[b];
        const int64_t from = first > begin ? first : begin;
        const int64_t end = last < begin + count ? last : begin + count;
        if (from < end)
            status = scatter(share, &slice, from, end, state,
                             values ? (float *)values + (from - begin) : share->gathered);
        packed += slice.end - slice.begin;
    }
    ddp_share_drop_state(share);
    return status;
}

/* Of a bucket that is wanted whole, the elements come to where they are wanted. One of which only
 * parts are wanted stays for the next part. All ranks do the same. */
static enum ddp_status save_bucket(struct ddp_share *share, int i, int bucket, int64_t packed,
                                   int64_t begin, int64_t count, float *values)
{
    const int64_t first = share_bucket_begin(share, bucket), last = share->bucket_end[bucket];
    const int64_t from = first > begin ? first : begin;
    const int64_t end = last < begin + count ? last : begin + count;
    const bool whole = from == first && end == last;
    float *state = ddp_mode_state(share->mode, i);
    const bool there =
        share->gathered && share->gathered_bucket == bucket && share->gathered_state == i;
    enum ddp_status status = DDP_OK;
    if (whole)
        share->gathered_bucket = -1;
    if (whole && values)
        return gather_bucket(share, bucket, packed, state, values + (first - begin));
    if (!share->gathered)
        status = make_room(share);
    if (status == DDP_OK && (whole || !there)) {
        status = gather_bucket(share, bucket, packed, state, share->gathered);
        share->gathered_bucket = whole ? -1 : bucket;
        share->gathered_state = i;
    }
    if (status == DDP_OK && values)
        memcpy(values + (from - begin), share->gathered + (from - first),
               (size_t)(end - from) * sizeof *values);
    return status;
}

enum ddp_status ddp_share_save_state(struct ddp_share *share, int i, int64_t begin, int64_t count,
                                     float *values)
{
    enum ddp_status status = DDP_OK;
    int64_t packed = 0;
    if (!share->packed)
        return values ? ddp_mode_copy_state_out(share->mode, i, begin, count, values) : DDP_OK;
    for (int b = 0; status == DDP_OK && b < share->bucket_count; b++) {
        const struct share_slice slice = share_slice_of(share, b, packed);
        if (share->bucket_end[b] > begin && share_bucket_begin(share, b) < begin + count)
            status = save_bucket(share, i, b, packed, begin, count, values);
        packed += slice.end - slice.begin;
    }
    return status;
}

enum ddp_status ddp_share_load_state(struct ddp_share *share, int i, int64_t begin, int64_t count,
                                     const float *values)
{
    if (share->packed)
        return load_packed(share, i, begin, count, values);
    enum ddp_status status =
        values ? ddp_mode_copy_state_in(share->mode, i, begin, count, values) : DDP_OK;
    if (status != DDP_OK || !share->wire)
        return status;
    if (share->shared) /* one copy */
        return ddp_comm_barrier(share->wire);
    if (share->mode->everywhere)
        return DDP_OK;
    return ddp_comm_broadcast(share->wire, ddp_mode_state(share->mode, i) + begin, (size_t)count,
                              DDP_F32, 0);
}
