/* SPDX-License-Identifier: MIT
 *
 * The collectives over NCCL; see nccl_state.h.
 *
 * Sums are computed in one fixed binary tree over the ranks, which NCCL's own all-reduce does not
 * promise. So each rank owns a slice: it receives the others' parts of it, adds them in the tree,
 * and sends the sum to all. That moves as many bytes as a ring. Small arrays are sent whole to all
 * ranks, in one step. With `fast` NCCL reduces.
 *
 * Where islands of k ranks are subtrees, they first add up inside what each of them would have sent
 * to another island; then one of them sends the sum: 1/k of the bytes, the same bits. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "comm/slices.h"
#include "core/memory.h"
#include "kernels/kernels_cuda.h"
#include "kernels/reduce.h"

#include <assert.h>

/* --- one step --- */

/* Scratch of at least that many bytes. All ranks come here with the same size, and what is on the
 * stream uses the old one. */
static enum ddp_status need_scratch(struct nccl *nccl, size_t bytes,
                                    const struct ddp_comm_call *call)
{
    size_t room = (size_t)1 << 20;
    if (bytes <= nccl->scratch_bytes)
        return DDP_OK;
    while (room < bytes)
        room *= 2;
    enum ddp_status status = nccl_drain(nccl, call);
    if (status != DDP_OK)
        return status;
    nccl_give_back(nccl, nccl->scratch);
    nccl->scratch = NULL;
    nccl->scratch_bytes = 0;
    status = nccl_take(nccl, room, (void **)&nccl->scratch);
    if (status == DDP_OK)
        nccl->scratch_bytes = room;
    return status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
}

/* Ends a group in which `result` is the first failure. */
static enum ddp_status end_group(struct nccl *nccl, ncclResult_t result,
                                 const struct ddp_comm_call *call)
{
    const ncclResult_t ended = ncclGroupEnd();
    return nccl_taken(nccl, result == ncclSuccess || result == ncclInProgress ? ended : result,
                      call);
}

static ncclResult_t first_failure(ncclResult_t before, ncclResult_t result)
{
    return before == ncclSuccess || before == ncclInProgress ? result : before;
}

static ncclResult_t send(struct nccl *nccl, const void *memory, size_t bytes, int peer)
{
    return bytes ? ncclSend(memory, bytes, ncclInt8, peer, nccl->comm, nccl->own.stream)
                 : ncclSuccess;
}

static ncclResult_t receive(struct nccl *nccl, void *memory, size_t bytes, int peer)
{
    return bytes ? ncclRecv(memory, bytes, ncclInt8, peer, nccl->comm, nccl->own.stream)
                 : ncclSuccess;
}

static ncclDataType_t type_of(const struct ddp_comm_call *call)
{
    static const ncclDataType_t types[] = {
        [DDP_F32] = ncclFloat32, [DDP_F64] = ncclFloat64,   [DDP_I32] = ncclInt32,
        [DDP_I64] = ncclInt64,   [DDP_BF16] = ncclBfloat16,
    };
    return types[call->dtype];
}

static ncclRedOp_t op_of(const struct ddp_comm_call *call)
{
    static const ncclRedOp_t ops[] = {
        [DDP_SUM] = ncclSum, [DDP_MIN] = ncclMin, [DDP_MAX] = ncclMax};
    return ops[call->op];
}

/* --- slices --- */

/* Of all ranks' arrays, the first one of this rank; for `size` their number. */
static int first_array(const struct ddp_comm_roots *roots, int rank)
{
    return roots ? roots->first[rank] : rank;
}

/* Every rank adds up its part of a piece, in the tree, into `out`. */
static enum ddp_status reduce_piece(struct nccl *nccl, const struct ddp_slices *all, size_t at,
                                    size_t piece, void *out, const struct ddp_comm_call *call)
{
    const int size = all->size, rank = all->rank;
    const struct ddp_comm_roots *roots = call->roots;
    const size_t stride = ddp_align_up(piece * all->element, NCCL_ALIGN);
    const size_t next = roots ? roots->bytes : 0; /* array of a rank */
    const struct ddp_part own = ddp_slices_part(all, rank, at, piece);
    const void *sources[DDP_REDUCE_DEVICE];
    char *place = nccl->scratch;
    ncclResult_t result = ncclGroupStart();
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        const struct ddp_part theirs = ddp_slices_part(all, to, at, piece);
        for (int k = 0; k < ddp_comm_arrays(roots, rank); k++)
            result = first_failure(
                result, send(nccl, all->memory + theirs.at + (size_t)k * next, theirs.bytes, to));
        for (int k = 0; k < ddp_comm_arrays(roots, from); k++, place += stride) {
            sources[first_array(roots, from) + k] = place;
            result = first_failure(result, receive(nccl, place, own.bytes, from));
        }
    }
    for (int k = 0; k < ddp_comm_arrays(roots, rank); k++)
        sources[first_array(roots, rank) + k] = all->memory + own.at + (size_t)k * next;
    enum ddp_status status = end_group(nccl, result, call);
    if (status != DDP_OK || own.bytes == 0)
        return status;
    struct ddp_reduce sum =
        ddp_slices_sum(call, first_array(roots, size), sources, &out, own.bytes / all->element);
    sum.ends = roots ? roots->end : NULL;
    status = ddp_cuda_reduce(&sum, &nccl->own);
    return status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
}

/* --- slices, over islands --- */

/* Leaves of the tree before those of a rank. */
static int leaves_before(const struct ddp_comm_roots *roots, int rank)
{
    const int first = first_array(roots, rank);
    return !roots ? rank : first > 0 ? roots->end[first - 1] : 0;
}

/* Whether the leaves of each island are those of one subtree. */
static bool over_islands(const struct nccl *nccl, const struct ddp_slices *all,
                         const struct ddp_comm_call *call)
{
    const int size = all->size, island = nccl->island;
    int ends[DDP_REDUCE_ROOTS];
    if (island == 0 || all->whole || call->kind == DDP_COMM_CREATE)
        return false;
    for (int r = 0; r < size; r += island)
        if (ddp_reduce_run_roots(0, leaves_before(call->roots, size), leaves_before(call->roots, r),
                                 leaves_before(call->roots, r + island), ends) != 1)
            return false;
    return true;
}

/* The most arrays of an island, and their sum. */
static int island_rooms(const struct nccl *nccl, const struct ddp_comm_roots *roots)
{
    int most = 0;
    for (int r = 0; r < nccl->place->size; r += nccl->island) {
        const int count = first_array(roots, r + nccl->island) - first_array(roots, r);
        most = count > most ? count : most;
    }
    return most + 1;
}

/* A piece of the slices of this rank and of those at its place in other islands. */
struct island_piece {
    const struct ddp_slices *all;
    size_t at, piece, stride;
    int rooms, begin, place; /* of an island; its first rank; this rank's place in it */
};

static struct ddp_part part_of(const struct island_piece *p, int island, int place, int ranks)
{
    return ddp_slices_part(p->all, island * ranks + place, p->at, p->piece);
}

/* In the scratch: what was received inside for the slice in an island, at last the sum; behind
 * those of all islands, what other islands sent. */
static char *room_of(const struct nccl *nccl, const struct island_piece *p, int island, int array)
{
    return nccl->scratch + (size_t)(island * p->rooms + array) * p->stride;
}

/* The members' arrays for those slices to this rank, and the other way around. */
static enum ddp_status meet_inside(struct nccl *nccl, const struct island_piece *p,
                                   const struct ddp_comm_call *call)
{
    const struct ddp_comm_roots *roots = call->roots;
    const int ranks = nccl->island, count = p->all->size / ranks;
    const size_t next = roots ? roots->bytes : 0;
    ncclResult_t result = ncclGroupStart();
    for (int i = 1; i < ranks; i++) {
        const int to = (p->place + i) % ranks, from = p->begin + (p->place + ranks - i) % ranks;
        for (int island = 0; island < count; island++) {
            const struct ddp_part theirs = part_of(p, island, to, ranks);
            const struct ddp_part own = part_of(p, island, p->place, ranks);
            for (int k = 0; k < ddp_comm_arrays(roots, p->all->rank); k++)
                result =
                    first_failure(result, send(nccl, p->all->memory + theirs.at + (size_t)k * next,
                                               theirs.bytes, p->begin + to));
            for (int k = first_array(roots, from); k < first_array(roots, from + 1); k++)
                result = first_failure(
                    result,
                    receive(nccl, room_of(nccl, p, island, k - first_array(roots, p->begin)),
                            own.bytes, from));
        }
    }
    return end_group(nccl, result, call);
}

/* This island's sum for the slice in an island. */
static enum ddp_status add_inside(struct nccl *nccl, const struct island_piece *p, int island,
                                  const struct ddp_comm_call *call)
{
    const struct ddp_comm_roots *roots = call->roots;
    const int first = first_array(roots, p->begin), rank = p->all->rank;
    const int count = first_array(roots, p->begin + nccl->island) - first;
    const int own = first_array(roots, rank) - first;
    const struct ddp_part part = part_of(p, island, p->place, nccl->island);
    const void *sources[DDP_REDUCE_DEVICE];
    int ends[DDP_REDUCE_DEVICE];
    void *to = room_of(nccl, p, island, p->rooms - 1);
    if (part.bytes == 0)
        return DDP_OK;
    for (int k = 0; k < count; k++) {
        sources[k] = room_of(nccl, p, island, k);
        ends[k] = roots ? roots->end[first + k] - leaves_before(roots, p->begin) : k + 1;
    }
    for (int k = 0; k < ddp_comm_arrays(roots, rank); k++)
        sources[own + k] = p->all->memory + part.at + (size_t)k * (roots ? roots->bytes : 0);
    struct ddp_reduce sum = ddp_slices_sum(call, count, sources, &to, part.bytes / p->all->element);
    sum.ends = roots ? ends : NULL;
    return ddp_cuda_reduce(&sum, &nccl->own);
}

/* The islands' sums of this rank's slice to it, and of theirs to the others at its place. */
static enum ddp_status meet_between(struct nccl *nccl, const struct island_piece *p, void *out,
                                    const struct ddp_comm_call *call)
{
    const struct ddp_comm_roots *roots = call->roots;
    const int ranks = nccl->island, count = p->all->size / ranks, here = p->begin / ranks;
    const int last = p->rooms - 1;
    const struct ddp_part part = part_of(p, here, p->place, ranks);
    const void *sources[DDP_REDUCE_MAX];
    int ends[DDP_REDUCE_MAX];
    ncclResult_t result = ncclGroupStart();
    for (int i = 0; i < count; i++) {
        sources[i] = i == here ? room_of(nccl, p, here, last) : room_of(nccl, p, count, i);
        ends[i] = leaves_before(roots, (i + 1) * ranks);
        if (i == here)
            continue;
        result =
            first_failure(result, send(nccl, room_of(nccl, p, i, last),
                                       part_of(p, i, p->place, ranks).bytes, i * ranks + p->place));
        result = first_failure(
            result, receive(nccl, room_of(nccl, p, count, i), part.bytes, i * ranks + p->place));
    }
    enum ddp_status status = end_group(nccl, result, call);
    if (status != DDP_OK || part.bytes == 0)
        return status;
    struct ddp_reduce sum =
        ddp_slices_sum(call, count, sources, &out, part.bytes / p->all->element);
    sum.ends = roots ? ends : NULL;
    status = ddp_cuda_reduce(&sum, &nccl->own);
    return status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
}

static enum ddp_status reduce_islands_piece(struct nccl *nccl, const struct ddp_slices *all,
                                            size_t at, size_t piece, void *out,
                                            const struct ddp_comm_call *call)
{
    const int ranks = nccl->island, begin = all->rank / ranks * ranks;
    const struct island_piece p = {.all = all,
                                   .at = at,
                                   .piece = piece,
                                   .stride = ddp_align_up(piece * all->element, NCCL_ALIGN),
                                   .rooms = island_rooms(nccl, call->roots),
                                   .begin = begin,
                                   .place = all->rank - begin};
    enum ddp_status status = meet_inside(nccl, &p, call);
    if (status != DDP_OK)
        return status;
    for (int island = 0; status == DDP_OK && island < all->size / ranks; island++)
        status = add_inside(nccl, &p, island, call);
    if (status != DDP_OK)
        return nccl_end(nccl, status);
    return meet_between(nccl, &p, out, call);
}

/* Every rank adds up its slice into `out`. */
static enum ddp_status reduce_slices(struct nccl *nccl, const struct ddp_slices *all, char *out,
                                     const struct ddp_comm_call *call)
{
    const bool islands = over_islands(nccl, all, call);
    const size_t arrays = /* in the scratch, or fewer */
        islands ? (size_t)(all->size / nccl->island * (island_rooms(nccl, call->roots) + 1))
                : (size_t)first_array(call->roots, all->size) - 1;
    const size_t longest = ddp_slices_longest(all);
    const size_t most = NCCL_SCRATCH_MOST / arrays / NCCL_ALIGN * NCCL_ALIGN / all->element;
    const size_t piece = longest < most ? longest : most;
    assert(first_array(call->roots, all->size) <= DDP_REDUCE_DEVICE);
    enum ddp_status status =
        need_scratch(nccl, ddp_align_up(piece * all->element, NCCL_ALIGN) * arrays, call);
    for (size_t at = 0; status == DDP_OK && at < longest; at += piece)
        status = (islands ? reduce_islands_piece : reduce_piece)(nccl, all, at, piece,
                                                                 out + at * all->element, call);
    return status;
}

/* Everybody's slice to everybody: `own` is this rank's. */
static enum ddp_status gather(struct nccl *nccl, const struct ddp_slices *all, const void *own,
                              const struct ddp_comm_call *call)
{
    const int size = all->size, rank = all->rank;
    const size_t bytes = ddp_slices_part(all, rank, 0, all->count).bytes;
    if (ddp_slices_even(all))
        return nccl_taken(
            nccl, ncclAllGather(own, all->memory, bytes, ncclInt8, nccl->comm, nccl->own.stream),
            call);
    ncclResult_t result = ncclGroupStart();
    for (int r = 0; nccl->island > 0 && r < size; r++) { /* each crosses to an island once */
        const struct ddp_part part = ddp_slices_part(all, r, 0, all->count);
        if (part.bytes > 0)
            result = first_failure(
                result, ncclBroadcast(all->memory + part.at, all->memory + part.at, part.bytes,
                                      ncclInt8, r, nccl->comm, nccl->own.stream));
    }
    for (int i = 1; nccl->island == 0 && i < size; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        const struct ddp_part theirs = ddp_slices_part(all, from, 0, all->count);
        result = first_failure(result, send(nccl, own, bytes, to));
        result = first_failure(result, receive(nccl, all->memory + theirs.at, theirs.bytes, from));
    }
    return end_group(nccl, result, call);
}

/* What lies in the range of everybody's slice, to everybody: by broadcasts, of which each crosses
 * from machine to machine once. */
static ncclResult_t gather_range(struct nccl *nccl, const struct ddp_comm_range *range,
                                 uint32_t grain)
{
    const struct ddp_comm_call slices = {.kind = DDP_COMM_GATHER_SLICES,
                                         .receive = range->vector,
                                         .count = range->count,
                                         .grain = grain,
                                         .dtype = range->dtype};
    const struct ddp_slices all = ddp_slices_of(&slices, nccl->place, NCCL_ALIGN);
    ncclResult_t result = ncclSuccess;
    if (range->begin == 0 && range->end == range->count && ddp_slices_even(&all)) {
        const struct ddp_part own = ddp_slices_part(&all, all.rank, 0, all.count);
        return ncclAllGather(all.memory + own.at, all.memory, own.bytes, ncclInt8, nccl->comm,
                             nccl->own.stream);
    }
    for (int rank = 0; rank < all.size; rank++) {
        size_t begin = ddp_slices_begin(&all, rank), end = ddp_slices_begin(&all, rank + 1);
        begin = begin > range->begin ? begin : range->begin;
        end = end < range->end ? end : range->end;
        char *part = all.memory + begin * all.element;
        if (begin < end)
            result =
                first_failure(result, ncclBroadcast(part, part, (end - begin) * all.element,
                                                    ncclInt8, rank, nccl->comm, nccl->own.stream));
    }
    return result;
}

static enum ddp_status gather_ranges(struct nccl *nccl, const struct ddp_comm_call *call)
{
    ncclResult_t result = ncclGroupStart();
    for (size_t i = 0; i < call->range_count; i++)
        result = first_failure(result, gather_range(nccl, &call->ranges[i], call->grain));
    return end_group(nccl, result, call);
}

/* --- all of them --- */

static enum ddp_status allreduce(struct nccl *nccl, struct ddp_slices *all,
                                 const struct ddp_comm_call *call)
{
    if (call->fast)
        return nccl_taken(nccl,
                          ncclAllReduce(all->memory, all->memory, all->count, type_of(call),
                                        op_of(call), nccl->comm, nccl->own.stream),
                          call);
    all->whole = all->count * all->element <= NCCL_SMALL; /* everybody gets all and adds it up */
    char *own = all->memory + ddp_slices_part(all, all->rank, 0, all->count).at;
    enum ddp_status status = reduce_slices(nccl, all, own, call);
    return status == DDP_OK && !all->whole ? gather(nccl, all, own, call) : status;
}

/* Each rank's slice is added up into `out`. */
static enum ddp_status reduce_scatter(struct nccl *nccl, const struct ddp_slices *all, char *out,
                                      const struct ddp_comm_call *call)
{
    if (!call->fast || !ddp_slices_even(all))
        return reduce_slices(nccl, all, out, call);
    return nccl_taken(nccl,
                      ncclReduceScatter(all->memory, out, ddp_slices_longest(all), type_of(call),
                                        op_of(call), nccl->comm, nccl->own.stream),
                      call);
}

static enum ddp_status move(struct nccl *nccl, const struct ddp_comm_call *call)
{
    if (call->kind == DDP_COMM_GATHER_RANGES)
        return gather_ranges(nccl, call);
    struct ddp_slices all = ddp_slices_of(call, nccl->place, NCCL_ALIGN);
    char *own = all.memory + ddp_slices_part(&all, all.rank, 0, all.count).at;
    switch (call->kind) {
    case DDP_COMM_ALLREDUCE:
    case DDP_COMM_ALLREDUCE_START:
        return allreduce(nccl, &all, call);
    case DDP_COMM_REDUCE_SCATTER:
        return reduce_scatter(nccl, &all, call->receive, call);
    case DDP_COMM_REDUCE_SLICES_START:
        return reduce_scatter(nccl, &all, own, call);
    case DDP_COMM_ALL_GATHER:
        return gather(nccl, &all, call->send, call);
    case DDP_COMM_GATHER_SLICES:
        return gather(nccl, &all, own, call);
    default: /* broadcast */
        return nccl_taken(nccl,
                          ncclBroadcast(all.memory, all.memory, all.count * all.element, ncclInt8,
                                        call->root, nccl->comm, nccl->own.stream),
                          call);
    }
}

static enum ddp_status connect(struct nccl *nccl, struct ddp_comm_call *call)
{
    const struct ddp_slices all = ddp_slices_of(call, nccl->place, NCCL_ALIGN);
    struct ddp_slices whole = all;
    char *own = all.memory + ddp_slices_part(&all, all.rank, 0, all.count).at;
    cudaError_t error = cudaMemsetAsync(all.memory, 0, call->bytes, nccl->own.stream);
    if (error != cudaSuccess)
        return nccl_call_failed(nccl, error, call);
    enum ddp_status status = reduce_slices(nccl, &all, own, call);
    if (status == DDP_OK)
        status = gather(nccl, &all, own, call);
    call->fast = true;
    if (status == DDP_OK)
        status = reduce_scatter(nccl, &all, own, call);
    return status == DDP_OK ? allreduce(nccl, &whole, call) : status;
}

enum ddp_status nccl_connect(struct nccl *nccl)
{
    struct ddp_comm_call call = {.kind = DDP_COMM_CREATE,
                                 .dtype = DDP_F32,
                                 .op = DDP_SUM,
                                 .bytes = NCCL_ALIGN * (size_t)nccl->place->size};
    enum ddp_status status = nccl_take(nccl, call.bytes, &call.receive);
    call.count = call.bytes / sizeof(float);
    if (status == DDP_OK)
        status = nccl_begin_after(nccl, &call, false, NULL);
    if (status == DDP_OK)
        status = connect(nccl, &call);
    if (status == DDP_OK)
        status = nccl_finish(nccl, false);
    if (status == DDP_OK)
        status = nccl_drain(nccl, &call);
    if (status == DDP_OK)
        nccl_give_back(nccl, call.receive);
    return status;
}

enum ddp_status nccl_collective(struct nccl *nccl, const struct ddp_comm_call *call)
{
    enum ddp_status status = nccl_begin(nccl, call);
    if (status == DDP_OK && call->count > 0)
        status = move(nccl, call);
    return status == DDP_OK ? nccl_finish(nccl, !ddp_comm_kinds[call->kind].starts) : status;
}
