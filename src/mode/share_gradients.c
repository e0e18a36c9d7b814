/* SPDX-License-Identifier: MIT
 *
 * The memory of gradients: buckets of the flat array, which may come and go; see share.h. */
#include "config.h"

#include "mode/share_slices.h"

#include "comm/thin.h"
#include "core/memory.h"

#include <stdlib.h>

#define FIRST_BUCKET_BYTES ((size_t)1 << 20) /* as PyTorch: the exchange starts early */

/* Cuts the flat array, which is in ready order, into buckets of whole grains: the slices of a
 * bucket then cut no block of the norm in two. Where workers get slices, the first bucket is the
 * grain with the loss, and all get that. What is not learned, at the end, has buckets of its own.
 */
enum ddp_status ddp_share_cut(struct ddp_share *share)
{
    const struct ddp_mode_setup *setup = &share->mode->setup;
    const int64_t count = ddp_graph_flat_count(setup->graph);
    const int64_t grain = DDP_UPDATE_GRAIN, most = (int64_t)(FIRST_BUCKET_BYTES / sizeof(float));
    const int64_t size = share_cut_size(setup);
    const int64_t learned = (ddp_graph_learned_end(setup->graph) + grain - 1) / grain * grain;
    int64_t end = 0;
    share->bucket_end = ddp_array_alloc((size_t)(count / size + 4), sizeof *share->bucket_end);
    if (!share->bucket_end)
        return DDP_ERR_MEMORY;
    while (end < count) {
        const bool early = end <= grain, learns = end < learned;
        end += share->zero && end == 0 ? grain : early && size > most ? most : size;
        end = learns && end > learned ? learned : end;
        share->bucket_end[share->bucket_count++] = end < count ? end : count;
        share->learned_count += learns || share->thin;
    }
    return DDP_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* What forward passes write, the loss and statistics, stays in all roots. */
static enum ddp_status provide_standing(struct ddp_share *share, char *gradients)
{
    const ddp_graph *graph = share->mode->setup.graph;
    const int64_t front = DDP_FLAT_ALIGN + ddp_graph_statistics_count(graph);
    const int own = ddp_comm_arrays(&share->roots, share->rank);
    enum ddp_status status = DDP_OK;
    while (share->standing < share->bucket_count &&
           share_bucket_begin(share, share->standing) < front)
        share->standing++;
    for (int i = 0; status == DDP_OK && i < own; i++)
        status =
            ddp_comm_provide(share->wire, gradients + (size_t)i * share->roots.bytes,
                             (size_t)share_bucket_begin(share, share->standing) * sizeof(float));
    return status;
}

enum ddp_status ddp_share_alloc_gradients(struct ddp_share *share, size_t bytes, void **gradients)
{
    if (!share->thin)
        return ddp_comm_alloc(share->wire, bytes, gradients);
    enum ddp_status status = ddp_comm_alloc_thin(share->wire, bytes, gradients);
    return status == DDP_OK ? provide_standing(share, *gradients) : status;
}

/* As ddp_exec_before. A lane's first pass writes its array; what is in a partial sum's stays. */
static enum ddp_status provide_gradient(void *arg, int parameter)
{
    struct ddp_share *share = arg;
    const struct ddp_replica *replica = share_replica(share);
    const struct ddp_parameter *p = ddp_graph_parameter_at(share->mode->setup.graph, parameter);
    float *array = ddp_lanes_array(&replica->lanes);
    if (!ddp_lanes_first(&replica->lanes) ||
        !ddp_comm_within(replica->gradients, replica->gradient_bytes, array, sizeof *array))
        return DDP_OK;
    return ddp_comm_provide(share->wire, array + p->offset,
                            (size_t)(ddp_parameter_end(p) - p->offset) * sizeof(float));
}

void ddp_share_watch(struct ddp_share *share)
{
    struct ddp_replica *replica = share_replica(share);
    ddp_exec_set_before(replica->exec, provide_gradient, share);
    if (replica->tail_exec)
        ddp_exec_set_before(replica->tail_exec, provide_gradient, share);
}

/* --- what thin gradients take ---------------------------------------------------------------- */

struct window {
    struct ddp_share share; /* of the first rank, which has most */
    int64_t *written;       /* by bucket: elements that are there, before it goes */
    bool *seen;             /* by parameter */
    int started, gone;
    int64_t most;
};

/* A bucket that is written has its elements, one that is not, or is gone, the worker's slice. */
static int64_t there_now(const struct window *w)
{
    int64_t sum = 0;
    for (int b = 0; b < w->share.bucket_count; b++) {
        const struct share_slice own = share_slice_of(&w->share, b, 0);
        const double left = 1 - (double)w->written[b] / (double)share_bucket_elements(&w->share, b);
        sum += w->written[b] + (int64_t)(left * (double)(own.end - own.begin));
    }
    return sum;
}

static enum ddp_status count_written(void *arg, int parameter)
{
    struct window *w = arg;
    const struct ddp_parameter *p = ddp_graph_parameter_at(w->share.mode->setup.graph, parameter);
    const int64_t end = ddp_parameter_end(p);
    for (int b = 0; !w->seen[parameter] && b < w->share.bucket_count; b++) {
        const int64_t from = share_bucket_begin(&w->share, b), to = w->share.bucket_end[b];
        const int64_t first = from > p->offset ? from : p->offset, last = to < end ? to : end;
        w->written[b] += last > first ? last - first : 0;
    }
    w->seen[parameter] = true;
    const int64_t now = there_now(w);
    w->most = now > w->most ? now : w->most;
    return DDP_OK;
}

static enum ddp_status count_gone(void *arg, int64_t end)
{
    struct window *w = arg;
    while (w->started < w->share.bucket_count && w->share.bucket_end[w->started] <= end)
        w->started++;
    while (w->gone < w->started - DDP_SHARE_ON_THE_WAY)
        w->written[w->gone++] = 0;
    return DDP_OK;
}

enum ddp_status ddp_share_window(const struct ddp_mode_setup *setup, int size, int64_t *count)
{
    struct ddp_mode mode = {.setup = *setup};
    struct window w = {.share = {.mode = &mode, .size = size, .zero = true}};
    enum ddp_status status = ddp_share_cut(&w.share);
    if (status == DDP_OK) {
        w.written = ddp_array_alloc((size_t)w.share.bucket_count, sizeof *w.written);
        w.seen = ddp_array_alloc((size_t)ddp_graph_parameter_count(setup->graph), sizeof *w.seen);
        status = w.written && w.seen ? ddp_exec_walk(setup->graph, DDP_MODE_WORKER_PARTS,
                                                     count_written, count_gone, &w)
                                     : DDP_ERR_MEMORY;
    }
    *count = w.most;
    free(w.seen);
    free(w.written);
    free(w.share.bucket_end);
    return status;
}
