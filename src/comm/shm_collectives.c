/* SPDX-License-Identifier: MIT
 *
 * The collectives of the shared-memory communicator; see shm.h. Registered buffers are worked on
 * where they lie, other memory goes through slots in the control area, piece by piece. */
#include "config.h"

#include "comm/shm.h"

#include "core/trace.h"
#include "kernels/reduce.h"

#include <string.h>

#define LINE 64 /* slices begin at cache lines, counted from the buffer's start */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The first element of a rank's slice; that of rank `size` is the end. */
static size_t slice_begin(size_t count, size_t element_bytes, int rank, int size)
{
    return ddp_slice_begin(count, LINE / element_bytes, rank, size);
}

enum ddp_status shm_reduce_slice(struct shm *shm, uint32_t number, const struct shm_call *call)
{
    const int size = shm->place->size, rank = shm->place->rank;
    const bool own = call->kind == SHM_SLICES_STARTED; /* the result is for this rank alone */
    const size_t bytes = ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    const size_t grain = own ? (size_t)call->root : LINE / bytes;
    const size_t begin = ddp_slice_begin(call->count, grain, rank, size);
    const size_t end = ddp_slice_begin(call->count, grain, rank + 1, size);
    void *parts[DDP_REDUCE_MAX];
    if (begin == end)
        return DDP_OK;
    for (int r = 0; r < size; r++)
        parts[r] = (char *)shm_at(shm, shm_entry_of(shm, r, number)->offset) + begin * bytes;
    struct ddp_reduce reduce = {
        .source_count = size,
        .destination_count = own ? 1 : size,
        .sources = (const void *const *)parts,
        .destinations = own ? &parts[rank] : parts,
        .count = (int64_t)(end - begin),
        .dtype = (enum ddp_dtype)call->dtype,
        .op = (enum ddp_redop)call->op,
    };
    const int64_t began = ddp_trace_begin();
    enum ddp_status status = ddp_reduce(&reduce);
    ddp_trace_end("reduce slice", began, "bytes", (int64_t)((end - begin) * bytes));
    return status;
}

/* True when every rank's buffer is registered: then the collective happens in place. */
static bool all_registered(const struct shm *shm, uint32_t number)
{
    for (int r = 0; r < shm->place->size; r++)
        if (shm_entry_of(shm, r, number)->offset == SHM_NOWHERE)
            return false;
    return true;
}

static enum ddp_status end_in_place(struct shm *shm, uint32_t number, enum ddp_status status)
{
    if (status != DDP_OK)
        return status;
    shm_done(shm, number);
    return shm_wait_done(shm, number);
}

/* A small all-reduce: every rank adds up the payloads of all. */
static enum ddp_status allreduce_payloads(struct shm *shm, void *buffer,
                                          const struct shm_call *call, size_t bytes)
{
    const void *sources[DDP_REDUCE_MAX];
    uint32_t number = shm_post(shm, call, SHM_NOWHERE, buffer, bytes);
    enum ddp_status status = shm_gather(shm, number, call);
    if (status != DDP_OK)
        return status;
    for (int r = 0; r < shm->place->size; r++)
        sources[r] = shm_entry_of(shm, r, number)->payload;
    struct ddp_reduce reduce = {
        .source_count = shm->place->size,
        .destination_count = 1,
        .sources = sources,
        .destinations = &buffer,
        .count = (int64_t)call->count,
        .dtype = (enum ddp_dtype)call->dtype,
        .op = (enum ddp_redop)call->op,
    };
    return ddp_reduce(&reduce);
}

/* --- memory that is not registered --- */

static char *slot_of(const struct shm *shm, int rank, uint32_t exchange)
{
    return shm->slots + ((size_t)rank * 2 + exchange % 2) * SHM_SLOT_BYTES;
}

/* Shows a piece of at most SHM_SLOT_BYTES to all and waits for theirs; *exchange names the slots. A
 * slot is used again two exchanges later, and by then everybody has announced the next one, so has
 * read this. */
static enum ddp_status exchange_piece(struct shm *shm, const void *piece, size_t bytes,
                                      uint32_t *exchange)
{
    struct shm_call call = {.kind = SHM_EXCHANGE, .count = bytes};
    *exchange = shm->exchanges++;
    if (piece && bytes > 0)
        memcpy(slot_of(shm, shm->place->rank, *exchange), piece, bytes);
    return shm_gather(shm, shm_post(shm, &call, SHM_NOWHERE, NULL, 0), &call);
}

/* Reduces elements [begin, end) of the slots into `out`. */
static enum ddp_status reduce_slots(struct shm *shm, uint32_t exchange, size_t begin, size_t end,
                                    const struct shm_call *call, void *out)
{
    const size_t bytes = ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    const void *sources[DDP_REDUCE_MAX];
    for (int r = 0; r < shm->place->size; r++)
        sources[r] = slot_of(shm, r, exchange) + begin * bytes;
    struct ddp_reduce reduce = {
        .source_count = shm->place->size,
        .destination_count = 1,
        .sources = sources,
        .destinations = &out,
        .count = (int64_t)(end - begin),
        .dtype = (enum ddp_dtype)call->dtype,
        .op = (enum ddp_redop)call->op,
    };
    return ddp_reduce(&reduce);
}

/* Each piece: everybody shows theirs, reduces its slice into its own memory, shows that, takes the
 * others'. */
static enum ddp_status allreduce_staged(struct shm *shm, char *buffer, const struct shm_call *call)
{
    const int size = shm->place->size, rank = shm->place->rank;
    const size_t bytes = ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    const size_t piece = SHM_SLOT_BYTES / bytes;
    for (size_t at = 0; at < call->count; at += piece) {
        const size_t count = smaller(piece, call->count - at);
        const size_t begin = slice_begin(count, bytes, rank, size);
        const size_t end = slice_begin(count, bytes, rank + 1, size);
        char *part = buffer + at * bytes;
        uint32_t exchange;
        enum ddp_status status = exchange_piece(shm, part, count * bytes, &exchange);
        if (status == DDP_OK)
            status = reduce_slots(shm, exchange, begin, end, call, part + begin * bytes);
        if (status == DDP_OK) {
            /* the slices of all ranks have one size in the call, the largest, so that it can be
             * compared */
            struct shm_call slices = {.kind = SHM_EXCHANGE, .count = count};
            exchange = shm->exchanges++;
            memcpy(slot_of(shm, rank, exchange), part + begin * bytes, (end - begin) * bytes);
            status = shm_gather(shm, shm_post(shm, &slices, SHM_NOWHERE, NULL, 0), &slices);
        }
        if (status != DDP_OK)
            return status;
        for (int r = 0; r < size; r++) {
            const size_t first = slice_begin(count, bytes, r, size);
            const size_t last = slice_begin(count, bytes, r + 1, size);
            if (r != rank)
                memcpy(part + first * bytes, slot_of(shm, r, exchange), (last - first) * bytes);
        }
    }
    return DDP_OK;
}

enum ddp_status shm_allreduce(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                              enum ddp_redop op)
{
    struct shm *shm = state;
    const size_t bytes = count * ddp_dtype_bytes(dtype);
    struct shm_call call = {
        .kind = SHM_ALLREDUCE, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .count = count};
    if (bytes <= SHM_INLINE_BYTES)
        return allreduce_payloads(shm, buffer, &call, bytes);
    uint32_t number = shm_post(shm, &call, shm_offset_of(shm, buffer, bytes), NULL, 0);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK)
        return status;
    if (!all_registered(shm, number))
        return allreduce_staged(shm, buffer, &call);
    return end_in_place(shm, number, shm_reduce_slice(shm, number, &call));
}

static enum ddp_status reduce_scatter_in_place(struct shm *shm, uint32_t number, void *receive,
                                               const struct shm_call *call)
{
    const size_t part = call->count * ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    const void *sources[DDP_REDUCE_MAX];
    for (int r = 0; r < shm->place->size; r++)
        sources[r] = (const char *)shm_at(shm, shm_entry_of(shm, r, number)->offset) +
                     part * (size_t)shm->place->rank;
    struct ddp_reduce reduce = {
        .source_count = shm->place->size,
        .destination_count = 1,
        .sources = sources,
        .destinations = &receive,
        .count = (int64_t)call->count,
        .dtype = (enum ddp_dtype)call->dtype,
        .op = (enum ddp_redop)call->op,
    };
    return end_in_place(shm, number, ddp_reduce(&reduce));
}

/* Each piece holds the same elements of every rank's part, one part after another. */
static enum ddp_status reduce_scatter_staged(struct shm *shm, const char *send, char *receive,
                                             const struct shm_call *call)
{
    const int size = shm->place->size, rank = shm->place->rank;
    const size_t bytes = ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    const size_t piece = SHM_SLOT_BYTES / bytes / (size_t)size;
    for (size_t at = 0; at < call->count; at += piece) {
        const size_t count = smaller(piece, call->count - at);
        char *slot = slot_of(shm, rank, shm->exchanges);
        for (int r = 0; r < size; r++)
            memcpy(slot + (size_t)r * count * bytes, send + ((size_t)r * call->count + at) * bytes,
                   count * bytes);
        uint32_t exchange;
        enum ddp_status status = exchange_piece(shm, NULL, (size_t)size * count * bytes, &exchange);
        if (status == DDP_OK)
            status = reduce_slots(shm, exchange, (size_t)rank * count, (size_t)(rank + 1) * count,
                                  call, receive + at * bytes);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

enum ddp_status shm_reduce_scatter(void *state, const void *send, void *receive, size_t count,
                                   enum ddp_dtype dtype, enum ddp_redop op)
{
    struct shm *shm = state;
    const size_t bytes = count * ddp_dtype_bytes(dtype) * (size_t)shm->place->size;
    struct shm_call call = {
        .kind = SHM_REDUCE_SCATTER, .dtype = (uint8_t)dtype, .op = (uint8_t)op, .count = count};
    uint32_t number = shm_post(shm, &call, shm_offset_of(shm, send, bytes), NULL, 0);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK || count == 0)
        return status;
    if (all_registered(shm, number))
        return reduce_scatter_in_place(shm, number, receive, &call);
    return reduce_scatter_staged(shm, send, receive, &call);
}

enum ddp_status shm_all_gather(void *state, const void *send, void *receive, size_t count,
                               enum ddp_dtype dtype)
{
    struct shm *shm = state;
    const int size = shm->place->size, rank = shm->place->rank;
    const size_t part = count * ddp_dtype_bytes(dtype);
    struct shm_call call = {.kind = SHM_ALL_GATHER, .dtype = (uint8_t)dtype, .count = count};
    uint32_t number =
        shm_post(shm, &call, shm_offset_of(shm, receive, part * (size_t)size), NULL, 0);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK || count == 0)
        return status;
    if (all_registered(shm, number)) { /* this rank's part goes to everybody */
        for (int i = 0; i < size; i++) {
            const int r = (rank + i) % size;
            char *to =
                (char *)shm_at(shm, shm_entry_of(shm, r, number)->offset) + part * (size_t)rank;
            if (to != send)
                memcpy(to, send, part);
        }
        return end_in_place(shm, number, DDP_OK);
    }
    for (size_t at = 0; at < part; at += SHM_SLOT_BYTES) {
        const size_t bytes = smaller(SHM_SLOT_BYTES, part - at);
        uint32_t exchange;
        status = exchange_piece(shm, (const char *)send + at, bytes, &exchange);
        if (status != DDP_OK)
            return status;
        for (int r = 0; r < size; r++) {
            char *to = (char *)receive + part * (size_t)r + at;
            if (to != (const char *)send + at)
                memcpy(to, slot_of(shm, r, exchange), bytes);
        }
    }
    return DDP_OK;
}

enum ddp_status shm_broadcast(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                              int root)
{
    struct shm *shm = state;
    const bool is_root = shm->place->rank == root;
    const size_t total = count * ddp_dtype_bytes(dtype);
    struct shm_call call = {
        .kind = SHM_BROADCAST, .dtype = (uint8_t)dtype, .root = root, .count = count};
    uint32_t number = shm_post(shm, &call, shm_offset_of(shm, buffer, total), NULL, 0);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK || count == 0)
        return status;
    const uint64_t source = shm_entry_of(shm, root, number)->offset;
    if (source != SHM_NOWHERE) { /* everybody reads the root's buffer, wherever its own lies */
        if (!is_root)
            memcpy(buffer, shm_at(shm, source), total);
        return end_in_place(shm, number, DDP_OK);
    }
    for (size_t at = 0; at < total; at += SHM_SLOT_BYTES) {
        const size_t bytes = smaller(SHM_SLOT_BYTES, total - at);
        uint32_t exchange;
        status = exchange_piece(shm, is_root ? (char *)buffer + at : NULL, bytes, &exchange);
        if (status != DDP_OK)
            return status;
        if (!is_root)
            memcpy((char *)buffer + at, slot_of(shm, root, exchange), bytes);
    }
    return DDP_OK;
}

/* The slices of all ranks, one after another, to everybody who cannot be reached. */
static enum ddp_status gather_slices_staged(struct shm *shm, char *buffer,
                                            const struct shm_call *call)
{
    const int size = shm->place->size;
    const size_t bytes = ddp_dtype_bytes((enum ddp_dtype)call->dtype);
    enum ddp_status status = DDP_OK;
    for (int r = 0; status == DDP_OK && r < size; r++) {
        const size_t begin = ddp_slice_begin(call->count, (size_t)call->root, r, size);
        const size_t end = ddp_slice_begin(call->count, (size_t)call->root, r + 1, size);
        status =
            shm_broadcast(shm, buffer + begin * bytes, end - begin, (enum ddp_dtype)call->dtype, r);
    }
    return status;
}

enum ddp_status shm_gather_slices(void *state, void *buffer, size_t count, size_t grain,
                                  enum ddp_dtype dtype)
{
    struct shm *shm = state;
    const int size = shm->place->size, rank = shm->place->rank;
    const size_t bytes = ddp_dtype_bytes(dtype);
    struct shm_call call = {
        .kind = SHM_GATHER_SLICES, .dtype = (uint8_t)dtype, .root = (int32_t)grain, .count = count};
    uint32_t number = shm_post(shm, &call, shm_offset_of(shm, buffer, count * bytes), NULL, 0);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK || count == 0)
        return status;
    if (!all_registered(shm, number))
        return gather_slices_staged(shm, buffer, &call);
    for (int i = 1; i < size; i++) { /* each takes the others' */
        const int r = (rank + i) % size;
        const size_t begin = ddp_slice_begin(count, grain, r, size) * bytes;
        const size_t end = ddp_slice_begin(count, grain, r + 1, size) * bytes;
        const char *theirs = shm_at(shm, shm_entry_of(shm, r, number)->offset);
        memcpy((char *)buffer + begin, theirs + begin, end - begin);
    }
    return end_in_place(shm, number, DDP_OK);
}

enum ddp_status shm_barrier(void *state)
{
    struct shm *shm = state;
    struct shm_call call = {.kind = SHM_BARRIER};
    return shm_gather(shm, shm_post(shm, &call, SHM_NOWHERE, NULL, 0), &call);
}
