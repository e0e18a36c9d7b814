/* SPDX-License-Identifier: MIT
 *
 * The collectives of the shared-memory communicator; see shm.h. Registered buffers are worked on
 * where they lie, other memory goes through the slots, piece by piece. */
#include "config.h"

#include "comm/shm.h"

#include "comm/slices.h"
#include "core/trace.h"
#include "kernels/reduce.h"

#include <string.h>

#define LINE 64 /* slices begin at cache lines, counted from the buffer's start */

static struct ddp_slices slices_of(const struct shm *shm, const struct ddp_comm_call *call)
{
    return ddp_slices_of(call, shm->place, LINE);
}

/* --- where the buffers lie --- */

enum ddp_status shm_reduce_slice(struct shm *shm, uint32_t number, const struct ddp_comm_call *call)
{
    const struct ddp_slices all = slices_of(shm, call);
    const struct ddp_part own = ddp_slices_part(&all, all.rank, 0, all.count);
    void *parts[DDP_REDUCE_MAX];
    if (own.bytes == 0)
        return DDP_OK;
    for (int r = 0; r < all.size; r++)
        parts[r] = shm_memory_of(shm, r, number) + own.at;
    void *result = call->kind == DDP_COMM_REDUCE_SCATTER ? call->receive : parts[all.rank];
    struct ddp_reduce sum =
        ddp_slices_sum(&all, call, (const void *const *)parts, &result, own.bytes);
    if (call->kind == DDP_COMM_ALLREDUCE || call->kind == DDP_COMM_ALLREDUCE_START) {
        sum.destinations = parts; /* everybody's */
        sum.destination_count = all.size;
    }
    const int64_t began = ddp_trace_begin();
    enum ddp_status status = ddp_reduce(&sum);
    ddp_trace_end("reduce slice", began, "bytes", (int64_t)own.bytes);
    return status;
}

/* Takes the others' slices. */
static void gather_in_place(const struct shm *shm, uint32_t number, const struct ddp_slices *all)
{
    for (int i = 1; i < all->size; i++) {
        const int r = (all->rank + i) % all->size;
        const struct ddp_part theirs = ddp_slices_part(all, r, 0, all->count);
        if (theirs.bytes > 0)
            memcpy(all->memory + theirs.at, shm_memory_of(shm, r, number) + theirs.at,
                   theirs.bytes);
    }
}

/* Can all buffers that others work on be reached? */
static bool all_registered(const struct shm *shm, uint32_t number, const struct ddp_slices *all)
{
    for (int r = 0; r < all->size; r++)
        if ((all->root < 0 || all->root == r) && !shm_memory_of(shm, r, number))
            return false;
    return true;
}

/* --- memory that is not registered --- */

static char *slot_of(const struct shm *shm, int rank)
{
    char *slots = shm->ledger.rest;
    return slots + ((size_t)rank * 2 + shm->exchanges % 2) * SHM_SLOT_BYTES;
}

/* Waits until everybody has filled its slot. A slot is used again two exchanges later, and by then
 * everybody has announced the next one, so has read this. */
static enum ddp_status exchange(struct shm *shm, const struct ddp_comm_call *call)
{
    uint32_t number;
    return shm_meet(shm, call, NULL, 0, &number);
}

/* Each piece holds the same elements of every rank's slice. Everybody shows theirs, and adds up its
 * own slice's into `result`. */
static enum ddp_status reduce_staged(struct shm *shm, const struct ddp_slices *all, char *result,
                                     const struct ddp_comm_call *call)
{
    const size_t stride = SHM_SLOT_BYTES / LINE / (size_t)all->size * LINE;
    const size_t piece = stride / all->element, longest = ddp_slices_longest(all);
    enum ddp_status status = DDP_OK;
    for (size_t at = 0; status == DDP_OK && at < longest; at += piece, shm->exchanges++) {
        const struct ddp_part own = ddp_slices_part(all, all->rank, at, piece);
        const void *sources[DDP_REDUCE_MAX];
        for (int r = 0; r < all->size; r++) {
            const struct ddp_part part = ddp_slices_part(all, r, at, piece);
            memcpy(slot_of(shm, all->rank) + (size_t)r * stride, all->memory + part.at, part.bytes);
            sources[r] = slot_of(shm, r) + (size_t)all->rank * stride;
        }
        status = exchange(shm, call);
        void *destination = result + at * all->element;
        const struct ddp_reduce sum = ddp_slices_sum(all, call, sources, &destination, own.bytes);
        if (status == DDP_OK && own.bytes > 0)
            status = ddp_reduce(&sum);
    }
    return status;
}

/* Everybody shows its slice, and takes the others'. */
static enum ddp_status gather_staged(struct shm *shm, const struct ddp_slices *all,
                                     const struct ddp_comm_call *call)
{
    const size_t piece = SHM_SLOT_BYTES / all->element, longest = ddp_slices_longest(all);
    for (size_t at = 0; at < longest; at += piece, shm->exchanges++) {
        const struct ddp_part own = ddp_slices_part(all, all->rank, at, piece);
        memcpy(slot_of(shm, all->rank), all->memory + own.at, own.bytes);
        enum ddp_status status = exchange(shm, call);
        if (status != DDP_OK)
            return status;
        for (int r = 0; r < all->size; r++) {
            const struct ddp_part part = ddp_slices_part(all, r, at, piece);
            if (r != all->rank)
                memcpy(all->memory + part.at, slot_of(shm, r), part.bytes);
        }
    }
    return DDP_OK;
}

/* --- all of them --- */

/* Every rank adds up the payloads of all. */
static enum ddp_status reduce_payloads(struct shm *shm, const struct ddp_comm_call *call,
                                       size_t bytes)
{
    const struct ddp_slices all = slices_of(shm, call);
    const void *sources[DDP_REDUCE_MAX];
    const uint32_t number =
        ddp_ledger_post(&shm->ledger, call, DDP_LEDGER_NOWHERE, call->send, bytes);
    enum ddp_status status = ddp_ledger_gather(&shm->ledger, number);
    if (status != DDP_OK)
        return status;
    for (int r = 0; r < all.size; r++)
        sources[r] = ddp_ledger_entry(&shm->ledger, r, number)->payload;
    const struct ddp_reduce sum = ddp_slices_sum(&all, call, sources, &call->receive, bytes);
    return ddp_reduce(&sum);
}

/* The sum of this rank's slice goes to its place, or where the caller wants it. */
static enum ddp_status run_staged(struct shm *shm, const struct ddp_slices *all,
                                  const struct ddp_comm_call *call)
{
    const struct ddp_part own = ddp_slices_part(all, all->rank, 0, all->count);
    enum ddp_status status = DDP_OK;
    if (call->kind == DDP_COMM_REDUCE_SCATTER)
        return reduce_staged(shm, all, call->receive, call);
    if (call->kind == DDP_COMM_ALLREDUCE)
        status = reduce_staged(shm, all, all->memory + own.at, call);
    return status == DDP_OK ? gather_staged(shm, all, call) : status;
}

static enum ddp_status run_in_place(struct shm *shm, uint32_t number, const struct ddp_slices *all,
                                    const struct ddp_comm_call *call)
{
    enum ddp_status status = DDP_OK;
    if (ddp_comm_kinds[call->kind].reduces)
        status = shm_reduce_slice(shm, number, call);
    else
        gather_in_place(shm, number, all);
    if (status != DDP_OK)
        return status;
    ddp_ledger_done(&shm->ledger, number);
    return ddp_ledger_wait_done(&shm->ledger, number);
}

enum ddp_status shm_collective(struct shm *shm, const struct ddp_comm_call *call)
{
    const struct ddp_slices all = slices_of(shm, call);
    const size_t bytes = ddp_comm_call_bytes(call);
    uint32_t number;
    if (call->kind == DDP_COMM_ALLREDUCE && bytes <= DDP_LEDGER_PAYLOAD)
        return reduce_payloads(shm, call, bytes);
    if (call->kind == DDP_COMM_ALL_GATHER && bytes > 0) {
        char *own = all.memory + ddp_slices_part(&all, all.rank, 0, all.count).at;
        if (own != call->send)
            memcpy(own, call->send, bytes);
    }
    enum ddp_status status = shm_meet(shm, call, all.memory, all.count * all.element, &number);
    if (status != DDP_OK || bytes == 0)
        return status;
    return all_registered(shm, number, &all) ? run_in_place(shm, number, &all, call)
                                             : run_staged(shm, &all, call);
}
