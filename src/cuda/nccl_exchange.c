/* SPDX-License-Identifier: MIT
 *
 * The collectives over NCCL; see nccl_state.h.
 *
 * Sums are added up in one fixed binary tree over the ranks, which NCCL's own all-reduce does not
 * promise. So each rank owns a slice: it receives the others' parts of it, adds them up in the
 * tree, and gives the sum to all. That moves the bytes that a ring moves. What is small goes whole
 * to everybody, in one step. With `fast` NCCL adds up. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "core/memory.h"
#include "kernels/kernels_cuda.h"
#include "kernels/reduce.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool alone(const struct nccl *nccl)
{
    return nccl->place->size == 1;
}

static size_t element_bytes(const struct nccl_call *call)
{
    return ddp_dtype_bytes((enum ddp_dtype)call->dtype);
}

/* --- one step --- */

/* Scratch of at least that many bytes. All ranks come here with the same size, and what is on the
 * stream uses the old one. */
static enum ddp_status need_scratch(struct nccl *nccl, size_t bytes, const struct nccl_call *call)
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
                                 const struct nccl_call *call)
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

static ncclDataType_t type_of(const struct nccl_call *call)
{
    static const ncclDataType_t types[] = {
        [DDP_F32] = ncclFloat32, [DDP_F64] = ncclFloat64,   [DDP_I32] = ncclInt32,
        [DDP_I64] = ncclInt64,   [DDP_BF16] = ncclBfloat16,
    };
    return types[call->dtype];
}

static ncclRedOp_t op_of(const struct nccl_call *call)
{
    static const ncclRedOp_t ops[] = {
        [DDP_SUM] = ncclSum, [DDP_MIN] = ncclMin, [DDP_MAX] = ncclMax};
    return ops[call->op];
}

/* --- slices --- */

/* A vector cut into the slices of all ranks, elements. */
struct cut {
    char *memory;
    size_t count, grain, element;
    size_t longest; /* slice; the first is */
    bool even;      /* all slices are as long */
    int size;
};

static size_t begin_of(const struct cut *cut, int rank)
{
    return ddp_slice_begin(cut->count, cut->grain, rank, cut->size);
}

static size_t length_of(const struct cut *cut, int rank)
{
    return begin_of(cut, rank + 1) - begin_of(cut, rank);
}

static struct cut cut(const struct nccl *nccl, const void *memory, size_t count, size_t grain,
                      size_t element)
{
    struct cut cut = {.memory = (char *)memory, /* which is not written, or was not const */
                      .count = count,
                      .grain = grain,
                      .element = element,
                      .size = nccl->place->size};
    cut.longest = length_of(&cut, 0);
    cut.even = cut.longest * (size_t)cut.size == count;
    return cut;
}

/* The part of a rank's slice that lies in [at, at + piece) of it. */
struct part {
    char *memory;
    size_t bytes;
};

static struct part part_of(const struct cut *cut, int rank, size_t at, size_t piece)
{
    const size_t length = length_of(cut, rank), from = smaller(at, length);
    return (struct part){cut->memory + (begin_of(cut, rank) + from) * cut->element,
                         smaller(piece, length - from) * cut->element};
}

/* Every rank adds up its part of a piece, in the tree, into `out`. */
static enum ddp_status reduce_piece(struct nccl *nccl, const struct cut *cut, size_t at,
                                    size_t piece, void *out, const struct nccl_call *call)
{
    const int size = cut->size, rank = nccl->place->rank;
    const size_t stride = ddp_align_up(piece * cut->element, NCCL_ALIGN);
    const struct part own = part_of(cut, rank, at, piece);
    const void *sources[DDP_REDUCE_MAX];
    ncclResult_t result = ncclGroupStart();
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        const struct part theirs = part_of(cut, to, at, piece);
        char *place = nccl->scratch + stride * (size_t)(from < rank ? from : from - 1);
        sources[from] = place;
        result = first_failure(result, send(nccl, theirs.memory, theirs.bytes, to));
        result = first_failure(result, receive(nccl, place, own.bytes, from));
    }
    sources[rank] = own.memory;
    enum ddp_status status = end_group(nccl, result, call);
    if (status != DDP_OK || own.bytes == 0)
        return status;
    const struct ddp_reduce reduce = {
        .source_count = size,
        .destination_count = 1,
        .sources = sources,
        .destinations = &out,
        .count = (int64_t)(own.bytes / cut->element),
        .dtype = (enum ddp_dtype)call->dtype,
        .op = (enum ddp_redop)call->op,
    };
    status = ddp_cuda_reduce(&reduce, &nccl->own);
    return status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
}

/* Every rank adds up its slice into `out`. */
static enum ddp_status reduce_slices(struct nccl *nccl, const struct cut *cut, char *out,
                                     const struct nccl_call *call)
{
    const size_t others = (size_t)cut->size - 1;
    const size_t most = NCCL_SCRATCH_MOST / others / NCCL_ALIGN * NCCL_ALIGN / cut->element;
    const size_t piece = smaller(cut->longest, most);
    enum ddp_status status =
        need_scratch(nccl, ddp_align_up(piece * cut->element, NCCL_ALIGN) * others, call);
    for (size_t at = 0; status == DDP_OK && at < cut->longest; at += piece)
        status = reduce_piece(nccl, cut, at, piece, out + at * cut->element, call);
    return status;
}

/* Everybody's slice to everybody. */
static enum ddp_status gather(struct nccl *nccl, const struct cut *cut,
                              const struct nccl_call *call)
{
    const int size = cut->size, rank = nccl->place->rank;
    const struct part own = part_of(cut, rank, 0, cut->longest);
    if (cut->even)
        return nccl_taken(nccl,
                          ncclAllGather(own.memory, cut->memory, own.bytes, ncclInt8, nccl->comm,
                                        nccl->own.stream),
                          call);
    ncclResult_t result = ncclGroupStart();
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        const struct part theirs = part_of(cut, from, 0, cut->longest);
        result = first_failure(result, send(nccl, own.memory, own.bytes, to));
        result = first_failure(result, receive(nccl, theirs.memory, theirs.bytes, from));
    }
    return end_group(nccl, result, call);
}

/* --- sums --- */

/* Everybody gets all and adds it up. */
static enum ddp_status sum_small(struct nccl *nccl, void *buffer, const struct nccl_call *call)
{
    const size_t bytes = call->count * element_bytes(call), stride = ddp_align_up(bytes, 16);
    const int size = nccl->place->size, rank = nccl->place->rank;
    const void *sources[DDP_REDUCE_MAX];
    enum ddp_status status = need_scratch(nccl, stride * (size_t)size, call);
    if (status != DDP_OK)
        return status;
    ncclResult_t result = ncclGroupStart();
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        char *place = nccl->scratch + stride * (size_t)from;
        sources[from] = place;
        result = first_failure(result, send(nccl, buffer, bytes, to));
        result = first_failure(result, receive(nccl, place, bytes, from));
    }
    sources[rank] = buffer;
    status = end_group(nccl, result, call);
    const struct ddp_reduce reduce = {
        .source_count = size,
        .destination_count = 1,
        .sources = sources,
        .destinations = &buffer,
        .count = (int64_t)call->count,
        .dtype = (enum ddp_dtype)call->dtype,
        .op = (enum ddp_redop)call->op,
    };
    if (status == DDP_OK) {
        status = ddp_cuda_reduce(&reduce, &nccl->own);
        status = status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
    }
    return status;
}

static enum ddp_status sum_all(struct nccl *nccl, void *buffer, const struct nccl_call *call)
{
    const size_t element = element_bytes(call);
    if (call->fast)
        return nccl_taken(nccl,
                          ncclAllReduce(buffer, buffer, call->count, type_of(call), op_of(call),
                                        nccl->comm, nccl->own.stream),
                          call);
    if (call->count * element <= NCCL_SMALL)
        return sum_small(nccl, buffer, call);
    const struct cut all = cut(nccl, buffer, call->count, NCCL_ALIGN / element, element);
    enum ddp_status status =
        reduce_slices(nccl, &all, part_of(&all, nccl->place->rank, 0, 1).memory, call);
    return status == DDP_OK ? gather(nccl, &all, call) : status;
}

static enum ddp_status allreduce(struct nccl *nccl, void *buffer, const struct nccl_call *call,
                                 bool join)
{
    if (alone(nccl))
        return DDP_OK;
    enum ddp_status status = nccl_begin(nccl, call);
    if (status == DDP_OK && call->count > 0)
        status = sum_all(nccl, buffer, call);
    return status == DDP_OK ? nccl_finish(nccl, join) : status;
}

enum ddp_status nccl_allreduce(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                               enum ddp_redop op)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {.kind = NCCL_ALLREDUCE,
                                   .dtype = (uint8_t)dtype,
                                   .op = (uint8_t)op,
                                   .fast = nccl->place->fast,
                                   .count = count};
    return allreduce(nccl, buffer, &call, true);
}

enum ddp_status nccl_start(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                           enum ddp_redop op)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {.kind = NCCL_ALLREDUCE_STARTED,
                                   .dtype = (uint8_t)dtype,
                                   .op = (uint8_t)op,
                                   .fast = nccl->place->fast,
                                   .count = count};
    return allreduce(nccl, buffer, &call, false);
}

/* Each rank's slice of `all` is added up into `out`. */
static enum ddp_status sum_slices(struct nccl *nccl, const struct cut *all, char *out,
                                  const struct nccl_call *call)
{
    if (all->count == 0)
        return DDP_OK;
    if (!call->fast || !all->even)
        return reduce_slices(nccl, all, out, call);
    return nccl_taken(nccl,
                      ncclReduceScatter(all->memory, out, all->longest, type_of(call), op_of(call),
                                        nccl->comm, nccl->own.stream),
                      call);
}

enum ddp_status nccl_start_slices(void *state, void *buffer, size_t count, size_t grain,
                                  enum ddp_dtype dtype, enum ddp_redop op)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {.kind = NCCL_SLICES_STARTED,
                                   .dtype = (uint8_t)dtype,
                                   .op = (uint8_t)op,
                                   .fast = nccl->place->fast,
                                   .root = (int32_t)grain,
                                   .count = count};
    if (alone(nccl))
        return DDP_OK;
    const struct cut all = cut(nccl, buffer, count, grain, element_bytes(&call));
    enum ddp_status status = nccl_begin(nccl, &call);
    if (status == DDP_OK)
        status = sum_slices(nccl, &all, part_of(&all, nccl->place->rank, 0, 1).memory, &call);
    return status == DDP_OK ? nccl_finish(nccl, false) : status;
}

enum ddp_status nccl_reduce_scatter(void *state, const void *send, void *receive, size_t count,
                                    enum ddp_dtype dtype, enum ddp_redop op)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {.kind = NCCL_REDUCE_SCATTER,
                                   .dtype = (uint8_t)dtype,
                                   .op = (uint8_t)op,
                                   .fast = nccl->place->fast,
                                   .count = count};
    const size_t size = (size_t)nccl->place->size;
    if (alone(nccl))
        return nccl_copy(nccl, receive, send, count * element_bytes(&call));
    const struct cut all = cut(nccl, send, count * size, count ? count : 1, element_bytes(&call));
    enum ddp_status status = nccl_begin(nccl, &call);
    if (status == DDP_OK)
        status = sum_slices(nccl, &all, receive, &call);
    return status == DDP_OK ? nccl_finish(nccl, true) : status;
}

/* --- moving --- */

enum ddp_status nccl_gather_slices(void *state, void *buffer, size_t count, size_t grain,
                                   enum ddp_dtype dtype)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {.kind = NCCL_GATHER_SLICES,
                                   .dtype = (uint8_t)dtype,
                                   .root = (int32_t)grain,
                                   .count = count};
    if (alone(nccl))
        return DDP_OK;
    const struct cut all = cut(nccl, buffer, count, grain, element_bytes(&call));
    enum ddp_status status = nccl_begin(nccl, &call);
    if (status == DDP_OK && count > 0)
        status = gather(nccl, &all, &call);
    return status == DDP_OK ? nccl_finish(nccl, true) : status;
}

enum ddp_status nccl_all_gather(void *state, const void *send, void *receive, size_t count,
                                enum ddp_dtype dtype)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {
        .kind = NCCL_ALL_GATHER, .dtype = (uint8_t)dtype, .count = count};
    const size_t bytes = count * element_bytes(&call);
    if (alone(nccl))
        return nccl_copy(nccl, receive, send, bytes);
    enum ddp_status status = nccl_begin(nccl, &call);
    if (status == DDP_OK && count > 0)
        status = nccl_taken(
            nccl, ncclAllGather(send, receive, bytes, ncclInt8, nccl->comm, nccl->own.stream),
            &call);
    return status == DDP_OK ? nccl_finish(nccl, true) : status;
}

enum ddp_status nccl_broadcast(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                               int root)
{
    struct nccl *nccl = state;
    const struct nccl_call call = {
        .kind = NCCL_BROADCAST, .dtype = (uint8_t)dtype, .root = root, .count = count};
    if (alone(nccl))
        return DDP_OK;
    enum ddp_status status = nccl_begin(nccl, &call);
    if (status == DDP_OK && count > 0)
        status = nccl_taken(nccl,
                            ncclBroadcast(buffer, buffer, count * element_bytes(&call), ncclInt8,
                                          root, nccl->comm, nccl->own.stream),
                            &call);
    return status == DDP_OK ? nccl_finish(nccl, true) : status;
}
