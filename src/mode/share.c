/* SPDX-License-Identifier: MIT
 *
 * See share.h. */
#include "config.h"

#include "mode/share_slices.h"

#include "comm/thin.h"
#include "core/memory.h"
#include "core/trace.h"

#include <stdlib.h>

/* Walks over the slices that are not empty: false after the last. */
static bool next_slice(const struct ddp_share *share, int *bucket, struct share_slice *slice)
{
    int64_t packed = *bucket ? slice->packed + (slice->end - slice->begin) : 0;
    while (*bucket < share->bucket_count) {
        *slice = share_slice_of(share, (*bucket)++, packed);
        if (slice->begin < slice->end)
            return true;
    }
    return false;
}

static int64_t packed_count(const struct ddp_share *share)
{
    struct share_slice slice = {0};
    int64_t count = 0;
    for (int bucket = 0; next_slice(share, &bucket, &slice);)
        count += slice.end - slice.begin;
    return count;
}

enum ddp_status ddp_share_packed_count(const struct ddp_mode_setup *setup, int rank, int size,
                                       int64_t *count)
{
    struct ddp_mode mode = {.setup = *setup};
    struct ddp_share share = {.mode = &mode, .rank = rank, .size = size, .zero = true};
    enum ddp_status status = ddp_share_cut(&share);
    if (status == DDP_OK)
        *count = packed_count(&share);
    free(share.bucket_end);
    return status;
}

/* --- what is collected after an update -------------------------------------------------------- */

/* Of a bucket; what follows the last one directly is added to that. */
static void add_range(struct ddp_share *share, int bucket, int64_t from, int64_t to,
                      enum ddp_dtype dtype)
{
    const struct ddp_replica *replica = share_replica(share);
    const int64_t first = share_bucket_begin(share, bucket);
    const size_t begin = (size_t)(from - first), end = (size_t)(to - first);
    struct ddp_comm_range *last = share->read_count ? &share->read[share->read_count - 1] : NULL;
    void *vector = dtype == DDP_BF16 ? (void *)(replica->weights_bf16 + first)
                                     : (void *)(replica->weights + first);
    if (last && last->vector == vector && begin >= last->end &&
        begin - last->end < DDP_FLAT_ALIGN) {
        last->end = end; /* in the gap there is nothing */
        return;
    }
    share->read[share->read_count++] =
        (struct ddp_comm_range){vector, share_bucket_elements(share, bucket), begin, end, dtype};
}

static void add_buckets(struct ddp_share *share, int count, enum ddp_dtype dtype)
{
    for (int bucket = 0; bucket < count; bucket++)
        add_range(share, bucket, share_bucket_begin(share, bucket), share->bucket_end[bucket],
                  dtype);
}

static int by_offset(const void *a, const void *b)
{
    const struct ddp_parameter *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

bool ddp_share_is_exact(const ddp_graph *graph, int parameter)
{
    const struct ddp_graph_reads reads = ddp_graph_parameter_reads(graph, parameter);
    return reads.f32 || !reads.bf16;
}

/* Parameters as they are read, in the order of the flat array. */
static void add_parameters(struct ddp_share *share, const struct ddp_parameter **sorted)
{
    const ddp_graph *graph = share->mode->setup.graph;
    const struct ddp_parameter *first = ddp_graph_parameter_at(graph, 0);
    const int count = ddp_graph_parameter_count(graph);
    int bucket = 0;
    for (int i = 0; i < count; i++)
        sorted[i] = first + i;
    qsort(sorted, (size_t)count, sizeof *sorted, by_offset);
    for (int i = 0; i < count; i++) {
        const bool exact = ddp_share_is_exact(graph, (int)(sorted[i] - first));
        const int64_t end = sorted[i]->offset + sorted[i]->count;
        for (int64_t at = sorted[i]->held ? end : sorted[i]->offset; at < end;) {
            while (share->bucket_end[bucket] <= at)
                bucket++;
            const int64_t stop = end < share->bucket_end[bucket] ? end : share->bucket_end[bucket];
            add_range(share, bucket, at, stop, exact ? DDP_F32 : DDP_BF16);
            at = stop;
        }
    }
}

static enum ddp_status list_ranges(struct ddp_share *share)
{
    const size_t parameters = (size_t)ddp_graph_parameter_count(share->mode->setup.graph);
    const size_t buckets = (size_t)share->bucket_count;
    const bool bf16 = share_replica(share)->weights_bf16 != NULL;
    if (!share->zero || share->held)
        return DDP_OK;
    const struct ddp_parameter **sorted = ddp_array_alloc(parameters + 1, sizeof *sorted);
    share->ranges = ddp_array_alloc(3 * buckets + parameters, sizeof *share->ranges);
    if (!share->ranges || !sorted) {
        free(sorted);
        return DDP_ERR_MEMORY;
    }
    share->splits = bf16 && ddp_comm_has_ranges(share->wire);
    share->read = share->ranges;
    add_buckets(share, share->splits ? share->bucket_count : share->learned_count, DDP_F32);
    if (share->splits) {
        share->read += buckets;
        share->read_count = 0;
        add_parameters(share, sorted);
    } else if (bf16 && !share->shared) {
        add_buckets(share, share->learned_count, DDP_BF16);
    }
    free(sorted);
    return DDP_OK;
}

/* What came in float32 and is read in bf16 too. */
static enum ddp_status round_both(struct ddp_share *share)
{
    const ddp_graph *graph = share->mode->setup.graph;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_parameter_at(graph, i);
        const struct ddp_graph_reads reads = ddp_graph_parameter_reads(graph, i);
        if (reads.f32 && reads.bf16)
            status = ddp_replica_round_weights(share_replica(share), p->offset, p->count);
    }
    return status;
}

enum ddp_status ddp_share_complete_weights(struct ddp_share *share, int64_t begin, int64_t count)
{
    if (share->held)
        return ddp_share_hold_range(share, begin, begin + count);
    enum ddp_status status = ddp_comm_gather_ranges(share->wire, share->ranges,
                                                    (size_t)share->bucket_count, DDP_UPDATE_GRAIN);
    share->mode->lacks_weights = status != DDP_OK;
    return status;
}

/* --- memory ----------------------------------------------------------------------------------- */

static enum ddp_status alloc_memory(struct ddp_share *share, size_t bytes, void **memory)
{
    return share->held     ? ddp_comm_alloc_thin_shared(share->wire, bytes, memory)
           : share->shared ? ddp_comm_alloc_shared(share->wire, bytes, memory)
                           : ddp_comm_alloc(share->wire, bytes, memory);
}

/* The roots of all workers. */
static enum ddp_status list_roots(struct ddp_share *share)
{
    const struct ddp_mode_setup *setup = &share->mode->setup;
    const struct ddp_lanes_run *own = &setup->run;
    struct ddp_comm_roots *roots = &share->roots;
    if (!share->wire)
        return DDP_OK;
    roots->first = ddp_array_alloc((size_t)share->size + 1, sizeof *roots->first);
    roots->end = ddp_array_alloc((size_t)own->lanes, sizeof *roots->end);
    if (!roots->first || !roots->end)
        return DDP_ERR_MEMORY;
    for (int r = 0; r < share->size; r++) {
        const struct ddp_lanes_run run = ddp_lanes_run_of(own->shards, own->lanes, share->size, r);
        roots->count += ddp_lanes_roots(&run, roots->end + roots->count);
        roots->first[r + 1] = roots->count;
    }
    roots->bytes = (size_t)ddp_lanes_stride(ddp_graph_flat_count(setup->graph)) * sizeof(float);
    return DDP_OK;
}

/* Of one worker. All take as much memory: allocating is collective. */
static int most_roots(const struct ddp_share *share)
{
    int most = 1;
    for (int r = 0; share->roots.count > 0 && r < share->size; r++) {
        const int own = share->roots.first[r + 1] - share->roots.first[r];
        most = own > most ? own : most;
    }
    return most;
}

/* Memory from the communicator: gradients always, weights where workers share or collect them. */
static enum ddp_status alloc_flat(struct ddp_share *share, struct ddp_replica_memory *memory)
{
    const size_t count = (size_t)ddp_graph_flat_count(share->mode->setup.graph);
    void *gradients, *weights = NULL, *bf16 = NULL;
    if (!share->wire)
        return DDP_OK;
    enum ddp_status status = ddp_share_alloc_gradients(
        share, ddp_lanes_bytes((int64_t)count, most_roots(share)), &gradients);
    if (status == DDP_OK && share->zero)
        status = alloc_memory(share, count * sizeof(float), &weights);
    if (status == DDP_OK && share->zero && share->mode->setup.compute == DDP_BF16)
        status = alloc_memory(share, count * sizeof(uint16_t), &bf16);
    if (status == DDP_OK)
        *memory = (struct ddp_replica_memory){weights, bf16, gradients};
    return status;
}

/* Rank 0's weights become everybody's: `count` elements from `begin`.
 *   values  of rank 0, which does not have them yet; NULL: it has, or this is another rank */
static enum ddp_status spread_weights(struct ddp_share *share, int64_t begin, int64_t count,
                                      const float *values)
{
    struct ddp_replica *replica = share_replica(share);
    float *weights = replica->weights + begin;
    const bool everywhere = share->mode->everywhere;
    const bool travels = share->wire && (!share->shared || share->nodes > 1) && !everywhere;
    const bool first = !share->shared || ddp_job_node_rank(share->mode->setup.job) == 0;
    enum ddp_status status = DDP_OK;
    if (values && (first || !everywhere))
        status =
            ddp_device_copy_in(replica->device, weights, values, (size_t)count * sizeof *values);
    if (status == DDP_OK && travels)
        status = ddp_comm_broadcast(share->wire, weights, (size_t)count, DDP_F32, 0);
    if (status == DDP_OK && first)
        status = ddp_replica_round_weights(replica, begin, count);
    if (status == DDP_OK)
        status = ddp_device_synchronize(replica->device);
    return status == DDP_OK && share->shared ? ddp_comm_barrier(share->wire) : status;
}

/* The same bucket by bucket, of thin weights, of which none is held. */
static enum ddp_status spread_thin(struct ddp_share *share, int64_t begin, int64_t count,
                                   const float *values)
{
    enum ddp_status status = DDP_OK;
    for (int bucket = 0; status == DDP_OK && bucket < share->bucket_count; bucket++) {
        const int64_t first = share_bucket_begin(share, bucket), last = share->bucket_end[bucket];
        const int64_t from = first > begin ? first : begin;
        const int64_t end = last < begin + count ? last : begin + count;
        if (from >= end)
            continue;
        status = ddp_share_provide_weights(share, bucket);
        if (status == DDP_OK)
            status =
                spread_weights(share, from, end - from, values ? values + (from - begin) : NULL);
        ddp_share_release(share, bucket);
    }
    share->mode->lacks_weights = true;
    return status;
}

static enum ddp_status open_updater(struct ddp_share *share)
{
    const struct ddp_mode_setup *setup = &share->mode->setup;
    struct ddp_replica *replica = share_replica(share);
    float *state[DDP_OPTIMIZER_STATES] = {NULL};
    int count = 0;
    enum ddp_status status = ddp_optimizer_states(&setup->optimizer, &count);
    const bool one_copy = share->shared && !share->packed;
    for (int i = 0; status == DDP_OK && one_copy && i < count; i++) {
        void *memory;
        status = alloc_memory(share, replica->flat_bytes, &memory);
        if (status == DDP_OK)
            state[i] = memory;
    }
    if (status != DDP_OK)
        return status;
    return ddp_updater_open(&share->mode->updater, replica, setup,
                            share->packed ? packed_count(share) : replica->flat_count,
                            one_copy ? state : NULL);
}

enum ddp_status ddp_share_open(struct ddp_share *share, ddp_mode *mode, ddp_comm *wire,
                               unsigned parts)
{
    const struct ddp_mode_setup *setup = &mode->setup;
    struct ddp_replica_memory memory = {0};
    *share = (struct ddp_share){.mode = mode, .wire = wire, .size = 1};
    if (wire) {
        share->rank = ddp_comm_rank(setup->comm);
        share->size = ddp_comm_size(setup->comm);
        share->zero = setup->zero;
        share->nodes = ddp_job_node_count(setup->job);
        share->shared = share->zero && setup->shared_weights && ddp_comm_has_shared(wire);
        share->packed = share->zero && (!share->shared || share->nodes > 1);
        share->thin = share->zero && setup->thin_gradients;
    }
    enum ddp_status status = ddp_share_cut(share);
    if (status == DDP_OK && share->shared && setup->thin_weights && share->nodes > 1)
        status = ddp_share_hold_open(share);
    if (status == DDP_OK)
        status = list_roots(share);
    if (status == DDP_OK)
        status = alloc_flat(share, &memory);
    if (status == DDP_OK)
        status = ddp_replica_open(share_replica(share), setup, 0, parts, &memory);
    if (status != DDP_OK)
        return status;
    share_replica(share)->cuts = share->bucket_end;
    share_replica(share)->cut_count = share->bucket_count;
    if (share->thin)
        ddp_share_watch(share);
    if (share->held)
        status = ddp_share_hold_watch(share);
    if (status == DDP_OK)
        status = list_ranges(share);
    const int64_t count = share_replica(share)->flat_count;
    if (status == DDP_OK && wire)
        status = share->held ? spread_thin(share, 0, count, setup->weights)
                             : spread_weights(share, 0, count, share->zero ? setup->weights : NULL);
    return status == DDP_OK ? open_updater(share) : status;
}

void ddp_share_close(struct ddp_share *share)
{
    ddp_share_hold_close(share);
    ddp_share_drop_state(share);
    free(share->bucket_end);
    free(share->ranges);
    free(share->roots.first);
    free(share->roots.end);
}

/* --- a step ----------------------------------------------------------------------------------- */

enum ddp_status ddp_share_begin(struct ddp_share *share)
{
    ddp_share_drop_state(share);
    return share->held ? ddp_share_begin_passes(share) : DDP_OK;
}

enum ddp_status ddp_share_reduce(struct ddp_share *share, int bucket)
{
    const struct ddp_replica *replica = share_replica(share);
    const int64_t begin = share_bucket_begin(share, bucket);
    if (bucket >= share->learned_count) /* zero everywhere */
        return DDP_OK;
    if (share->mode->setup.fast && !ddp_device_host_memory(replica->device)) {
        enum ddp_status status = ddp_lanes_sum(&replica->lanes, begin, share->bucket_end[bucket]);
        return status == DDP_OK ? ddp_share_reduce_first(share, bucket) : status;
    }
    share->started++;
    enum ddp_status status = ddp_comm_reduce_roots_start(
        share->wire, replica->gradients + begin, share_bucket_elements(share, bucket),
        share->zero && bucket > 0 ? DDP_UPDATE_GRAIN : 0, &share->roots,
        (size_t)ddp_lanes_rounded(replica->lanes.rounded_from, begin, share->bucket_end[bucket]),
        share->thin && bucket >= share->standing);
    return status == DDP_OK && share->thin && !share->mode->setup.sync_batch_norm
               ? ddp_comm_settle(share->wire, DDP_SHARE_ON_THE_WAY)
               : status;
}

enum ddp_status ddp_share_reduce_first(struct ddp_share *share, int bucket)
{
    float *gradients = share_replica(share)->gradients + share_bucket_begin(share, bucket);
    const size_t count = share_bucket_elements(share, bucket);
    return share->zero && bucket > 0
               ? ddp_comm_reduce_slices_start(share->wire, gradients, count, DDP_UPDATE_GRAIN,
                                              DDP_F32, DDP_SUM)
               : ddp_comm_allreduce_start(share->wire, gradients, count, DDP_F32, DDP_SUM);
}

static enum ddp_status measure(struct ddp_share *share)
{
    struct ddp_updater *updater = &share->mode->updater;
    struct share_slice slice = {0};
    size_t count;
    double *sums = ddp_updater_sums(updater, &count);
    enum ddp_status status = ddp_updater_begin(updater);
    for (int bucket = 0; count > 0 && status == DDP_OK && next_slice(share, &bucket, &slice);)
        status = ddp_updater_measure(updater, slice.begin, slice.end);
    if (status == DDP_OK)
        status = ddp_updater_wait(updater);
    return status == DDP_OK && count > 0
               ? ddp_comm_allreduce(share->mode->setup.comm, sums, count, DDP_F64, DDP_SUM)
               : status;
}

/* A machine's workers round what has come, each a part of it: fewer bytes come than with both. */
static enum ddp_status round_part(struct ddp_share *share)
{
    const ddp_job *job = share->mode->setup.job;
    struct ddp_replica *replica = share_replica(share);
    const int64_t count = replica->flat_count, size = ddp_job_node_size(job);
    const int64_t begin = count * ddp_job_node_rank(job) / size;
    const int64_t end = count * (ddp_job_node_rank(job) + 1) / size;
    enum ddp_status status = ddp_replica_round_weights(replica, begin, end - begin);
    if (status == DDP_OK)
        status = ddp_device_synchronize(replica->device);
    return status == DDP_OK ? ddp_comm_barrier(share->wire) : status;
}

/* The slices that other workers have updated, as far as they are read. */
static enum ddp_status collect_weights(struct ddp_share *share)
{
    enum ddp_status status =
        ddp_comm_gather_ranges(share->wire, share->read, share->read_count, DDP_UPDATE_GRAIN);
    share->mode->lacks_weights = share->splits;
    if (status == DDP_OK && share->shared && share_replica(share)->weights_bf16)
        return round_part(share);
    return status == DDP_OK && share->splits ? round_both(share) : status;
}

/* By now nobody reads the old weights: the last bucket was complete only when all workers had put
 * theirs in, and gradients are final after all that reads weights. */
enum ddp_status ddp_share_update(struct ddp_share *share)
{
    ddp_device *device = share_replica(share)->device;
    struct ddp_updater *updater = &share->mode->updater;
    struct share_slice slice = {0};
    enum ddp_status status = DDP_OK;
    const int64_t began = ddp_trace_begin();
    int64_t elements = 0;
    if (!share->zero) {
        elements = share_replica(share)->flat_count;
        status = ddp_updater_apply(updater, 0, elements, 0);
    }
    for (int bucket = 0; share->zero && status == DDP_OK && next_slice(share, &bucket, &slice);) {
        elements += slice.end - slice.begin;
        status = ddp_updater_apply(updater, slice.begin, slice.end,
                                   share->packed ? slice.packed : slice.begin);
    }
    if (status == DDP_OK && share->zero && ddp_device_host_memory(device))
        status = ddp_device_synchronize(device); /* others read it at once */
    ddp_trace_end("update", began, "elements", elements);
    if (status != DDP_OK || !share->zero)
        return status;
    if (share->held) {
        ddp_share_release_all(share); /* what others have of them is old */
        return DDP_OK;
    }
    return share->shared && share->nodes == 1 ? ddp_comm_barrier(share->wire)
                                              : collect_weights(share);
}

enum ddp_status ddp_share_finish(struct ddp_share *share, double rate, int64_t step, float *loss)
{
    struct ddp_updater *updater = &share->mode->updater;
    const bool host = ddp_device_host_memory(share_replica(share)->device);
    if (!share->wire || (!share->zero && !host))
        return ddp_updater_run(updater, rate, step, loss);
    enum ddp_status status = measure(share);
    if (status != DDP_OK)
        return status;
    ddp_job_report(share->mode->setup.job, "update", step);
    ddp_updater_decide(updater, rate, step);
    *loss = updater->loss;
    return ddp_share_update(share);
}

/* --- weights in, gradients out ---------------------------------------------------------------- */

/* Nobody reads the old weights any more when the first rank writes new ones. */
enum ddp_status ddp_share_put_weights(struct ddp_share *share, int64_t begin, int64_t count,
                                      const float *values)
{
    enum ddp_status status = share->wire ? ddp_comm_barrier(share->mode->setup.comm) : DDP_OK;
    if (share->rank > 0)
        values = NULL;
    if (status != DDP_OK || !share->held)
        return status == DDP_OK ? spread_weights(share, begin, count, values) : status;
    ddp_share_release_all(share);
    return spread_thin(share, begin, count, values);
}

/* In the place of the partial sums, which nobody needs any more. The next step writes there, so no
 * rank leaves while another still reads its slices. */
enum ddp_status ddp_share_gather_gradients(struct ddp_share *share, int64_t begin, int64_t count)
{
    enum ddp_status status = DDP_OK;
    if (!share->zero)
        return DDP_OK;
    for (int bucket = 1; status == DDP_OK && bucket < share->bucket_count; bucket++) {
        const int64_t from = share_bucket_begin(share, bucket);
        const size_t elements = share_bucket_elements(share, bucket);
        float *gradients = share_replica(share)->gradients + from;
        if (from >= begin + count || begin >= share->bucket_end[bucket])
            continue;
        if (share->thin)
            status = ddp_comm_provide(share->wire, gradients, elements * sizeof *gradients);
        if (status == DDP_OK)
            status =
                ddp_comm_gather_slices(share->wire, gradients, elements, DDP_UPDATE_GRAIN, DDP_F32);
    }
    return status == DDP_OK ? ddp_comm_barrier(share->mode->setup.comm) : status;
}
