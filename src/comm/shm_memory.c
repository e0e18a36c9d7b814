/* SPDX-License-Identifier: MIT
 *
 * Memory of the shared-memory communicator: parts of the heap that all ranks map; see shm.h. */
#include "config.h"

#include "comm/shm.h"

#include "comm/heap.h"
#include "comm/slices.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* --- finding it --- */

static char *own_part(const struct shm *shm, const struct shm_region *region)
{
    return region->base + region->stride * (size_t)shm->place->node_rank;
}

static uint64_t offset_of(const struct shm *shm, const void *memory, size_t bytes, bool shared)
{
    for (const struct shm_region *region = shm->regions; region; region = region->next)
        if (region->shared == shared &&
            ddp_comm_within(shared ? region->base : own_part(shm, region), region->bytes, memory,
                            bytes))
            return region->offset + (uint64_t)((const char *)memory - region->base);
    return DDP_LEDGER_NOWHERE;
}

uint64_t shm_offset_of(const struct shm *shm, const void *memory, size_t bytes)
{
    return offset_of(shm, memory, bytes, false);
}

uint64_t shm_offset_of_shared(const struct shm *shm, const void *memory, size_t bytes)
{
    return offset_of(shm, memory, bytes, true);
}

bool shm_registered(const void *state, const void *memory, size_t bytes)
{
    return shm_offset_of(state, memory, bytes) != DDP_LEDGER_NOWHERE;
}

char *shm_part_of(const struct shm *shm, const void *memory, int rank)
{
    for (const struct shm_region *region = shm->regions; region; region = region->next)
        if (!region->shared && own_part(shm, region) == memory)
            return region->base + region->stride * (size_t)rank;
    return NULL;
}

char *shm_memory_of(const struct shm *shm, int rank, uint32_t number)
{
    const uint64_t offset = ddp_ledger_entry(&shm->ledger, rank, number)->offset;
    for (const struct shm_region *region = shm->regions; region; region = region->next)
        if (offset >= region->offset && offset - region->offset < region->total)
            return region->base + (offset - region->offset);
    return NULL;
}

/* --- making it --- */

/* The pages that this rank makes: its own part; or of what all share as many, since one alone would
 * take that many times longer. */
static void own_pages(const struct shm *shm, const struct shm_region *region, uint64_t *offset,
                      size_t *bytes)
{
    const int rank = shm->place->node_rank, size = shm->place->node_size;
    const size_t pages = region->total / DDP_PAGE;
    const size_t begin = ddp_slice_begin(pages, 1, rank, size);
    *offset = region->offset + begin * DDP_PAGE;
    *bytes = (ddp_slice_begin(pages, 1, rank + 1, size) - begin) * DDP_PAGE;
}

/* Rank 0 finds room; the others learn the offset from its entry. */
static enum ddp_status agree_on_offset(struct shm *shm, const struct ddp_comm_call *call,
                                       size_t total, uint64_t *offset)
{
    enum ddp_status status = DDP_OK;
    uint32_t number;
    *offset = DDP_LEDGER_NOWHERE;
    if (shm->place->node_rank == 0)
        status = call->thin
                     ? ddp_job_heap_reserve(shm->place->job, total, offset)
                     : ddp_heap_reserve(shm->place->job, total, shm->place->node_size, offset);
    enum ddp_status gathered = ddp_ledger_meet(&shm->ledger, call, *offset, NULL, 0, &number);
    if (gathered != DDP_OK)
        return gathered;
    *offset = ddp_ledger_entry(&shm->ledger, 0, number)->offset;
    if (status == DDP_OK && *offset == DDP_LEDGER_NOWHERE)
        status = DDP_ERR_MEMORY; /* rank 0 has logged why */
    return status;
}

/* Takes NULL. Only this rank's pages are given back: others may still read theirs. */
static void unmap(const struct shm *shm, struct shm_region *region)
{
    uint64_t offset;
    size_t bytes;
    if (region && region->base) {
        own_pages(shm, region, &offset, &bytes);
        munmap(region->base, region->total);
        ddp_heap_punch(shm->place->job, offset, bytes);
    }
    free(region);
}

/* Parts begin at pages. An odd number of pages a part keeps equal places of all parts out of the
 * same cache set: a sum reads them all at once. Behind shared memory a page counts who has left. */
static size_t stride_for(size_t bytes, bool shared)
{
    const size_t pages = ddp_align_up(bytes, DDP_PAGE) / DDP_PAGE;
    return (shared ? pages + 1 : pages | 1) * DDP_PAGE;
}

enum ddp_status shm_alloc_for(struct shm *shm, const struct ddp_comm_call *call, size_t bytes,
                              bool shared, void **memory)
{
    const size_t stride = stride_for(bytes, shared);
    const size_t total = shared ? stride : stride * (size_t)shm->place->node_size;
    struct shm_region *region = ddp_array_alloc(1, sizeof *region);
    uint64_t offset, own;
    size_t own_bytes;
    enum ddp_status status = agree_on_offset(shm, call, total, &offset);
    if (status != DDP_OK) {
        free(region);
        return status;
    }
    status = DDP_ERR_MEMORY;
    if (region) {
        *region = (struct shm_region){
            .offset = offset, .total = total, .stride = stride, .bytes = bytes, .shared = shared};
        own_pages(shm, region, &own, &own_bytes);
        status = ddp_heap_map(shm->place->job, offset, total, own, call->thin ? 0 : own_bytes,
                              (void **)&region->base);
    }
    if (status == DDP_OK && shared && call->thin) /* where leave() counts */
        status = ddp_heap_fill(shm->place->job, offset + total - DDP_PAGE, DDP_PAGE);
    enum ddp_status voted = ddp_ledger_vote(&shm->ledger, call, &status);
    if (voted != DDP_OK || status != DDP_OK) {
        unmap(shm, region);
        return voted != DDP_OK ? voted : status;
    }
    region->next = shm->regions;
    shm->regions = region;
    *memory = shared ? region->base : own_part(shm, region);
    return DDP_OK;
}

enum ddp_status shm_alloc(void *state, const struct ddp_comm_call *call, void **memory)
{
    return shm_alloc_for(state, call, call->count, call->kind == DDP_COMM_ALLOC_SHARED, memory);
}

/* --- thin memory --- */

/* Its place in the heap, whether it is shared or this rank's. */
static uint64_t place_of(const struct shm *shm, const void *memory, size_t bytes)
{
    const uint64_t at = shm_offset_of(shm, memory, bytes);
    return at == DDP_LEDGER_NOWHERE ? shm_offset_of_shared(shm, memory, bytes) : at;
}

enum ddp_status shm_provide(const struct shm *shm, void *memory, size_t bytes)
{
    const uint64_t at = place_of(shm, memory, bytes), begin = at / DDP_PAGE * DDP_PAGE;
    if (at == DDP_LEDGER_NOWHERE)
        return ddp_fail(DDP_ERR_INVALID, "this memory does not belong to the communicator");
    return ddp_heap_fill(shm->place->job, begin,
                         (size_t)(ddp_align_up(at + bytes, DDP_PAGE) - begin));
}

void shm_punch(const struct shm *shm, const void *memory, size_t bytes)
{
    const uint64_t at = place_of(shm, memory, bytes);
    const uint64_t first = ddp_align_up(at, DDP_PAGE), last = (at + bytes) / DDP_PAGE * DDP_PAGE;
    if (at != DDP_LEDGER_NOWHERE && first < last)
        ddp_heap_punch(shm->place->job, first, (size_t)(last - first));
}

void shm_give_back(const struct shm *shm, const struct ddp_comm_call *call)
{
    const struct ddp_slices all = ddp_slices_of(call, shm->place, 1);
    const struct ddp_part own = ddp_slices_part(&all, all.rank, 0, all.count);
    const int arrays = ddp_comm_arrays(call->roots, all.rank);
    shm_punch(shm, all.memory, own.at);
    shm_punch(shm, all.memory + own.at + own.bytes, call->bytes - own.at - own.bytes);
    for (int i = 1; i < arrays; i++)
        shm_punch(shm, all.memory + (size_t)i * call->roots->bytes, call->bytes);
}

/* --- giving it back --- */

/* Others may still read weights while one ends: the last one to leave gives the pages back. */
static void leave(const struct shm *shm, struct shm_region *region)
{
    const uint64_t offset = region->offset;
    const size_t total = region->total;
    _Atomic uint32_t *leavers = (void *)(region->base + total - DDP_PAGE);
    const bool last = atomic_fetch_add(leavers, 1) + 1 == (uint32_t)shm->place->node_size;
    munmap(region->base, total);
    if (last)
        ddp_heap_punch(shm->place->job, offset, total);
    free(region);
}

enum ddp_status shm_free(struct shm *shm, const struct ddp_comm_call *call)
{
    uint32_t number;
    enum ddp_status status =
        ddp_ledger_meet(&shm->ledger, call, DDP_LEDGER_NOWHERE, NULL, 0, &number);
    if (status != DDP_OK)
        return status;
    for (struct shm_region **link = &shm->regions; *link; link = &(*link)->next) {
        struct shm_region *region = *link;
        if (!region->shared && own_part(shm, region) == call->receive) {
            *link = region->next;
            unmap(shm, region);
            return DDP_OK;
        }
    }
    return ddp_fail(DDP_ERR_INVALID, "this is not the beginning of registered memory");
}

void shm_free_regions(struct shm *shm)
{
    while (shm->regions) {
        struct shm_region *region = shm->regions;
        shm->regions = region->next;
        if (region->shared)
            leave(shm, region);
        else
            unmap(shm, region);
    }
}
