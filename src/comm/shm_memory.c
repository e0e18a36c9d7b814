/* SPDX-License-Identifier: MIT
 *
 * Registered memory of the shared-memory communicator: parts of the heap that all ranks map; see
 * shm.h. */
#include "config.h"

#include "comm/shm.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A number from the first line of a file; UINT64_MAX when there is none ("max"). */
static uint64_t number_in(const char *path)
{
    uint64_t value = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%" SCNu64, &value) != 1)
            value = UINT64_MAX;
        fclose(file);
    }
    return value;
}

/* What this machine and this container (cgroup version 2, seen from inside) have left; UINT64_MAX:
 * unknown. */
static uint64_t available_bytes(void)
{
    uint64_t available = UINT64_MAX, kilobytes;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kilobytes) == 1)
            available = kilobytes * 1024;
    if (file)
        fclose(file);
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
    uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    if (limit != UINT64_MAX && used <= limit && limit - used < available)
        available = limit - used;
    return available;
}

enum ddp_status shm_check_available(size_t bytes, int size)
{
    uint64_t available = available_bytes();
    if (bytes <= available)
        return DDP_OK;
    return ddp_fail(
        DDP_ERR_MEMORY,
        "shared memory: %d workers need %zu MB together, %" PRIu64
        " MB are available: use fewer workers or a smaller model, or give the container more "
        "memory",
        size, bytes / 1000000, available / 1000000);
}

enum ddp_status shm_map(struct shm *shm, uint64_t offset, size_t bytes, uint64_t reserve_offset,
                        size_t reserve_bytes, void **memory)
{
    /* Pages that fallocate() has made cannot be missing later: a write would end in SIGBUS. */
    int made = 0;
    while (reserve_bytes > 0 &&
           (made = fallocate(shm->heap, 0, (off_t)reserve_offset, (off_t)reserve_bytes)) < 0 &&
           errno == EINTR)
        ;
    if (made < 0)
        return ddp_fail(DDP_ERR_MEMORY, "shared memory: cannot allocate %zu MB: %s",
                        reserve_bytes / 1000000, strerror(errno));
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->heap, (off_t)offset);
    if (mapping == MAP_FAILED)
        return ddp_fail(errno == ENOMEM ? DDP_ERR_MEMORY : DDP_ERR_SYSTEM,
                        "shared memory: cannot map %zu MB: %s", bytes / 1000000, strerror(errno));
    madvise(mapping, bytes, MADV_HUGEPAGE); /* only a hint */
    *memory = mapping;
    return DDP_OK;
}

/* Tells everybody whether this rank succeeded; the first failure is everybody's. */
static enum ddp_status vote(struct shm *shm, enum ddp_status status)
{
    int32_t worst = (int32_t)status;
    enum ddp_status voted = shm_allreduce(shm, &worst, 1, DDP_I32, DDP_MIN);
    return voted != DDP_OK ? voted : (enum ddp_status)worst;
}

static void unmap_region(struct shm *shm, struct shm_region *region)
{
    munmap(region->base, region->stride * (size_t)shm->place->size);
    /* Only this rank's part: others may still read theirs. */
    fallocate(shm->heap, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)(region->offset + region->stride * (uint64_t)shm->place->rank),
              (off_t)region->stride);
    free(region);
}

/* Rank 0 finds room for `total` bytes; the others learn the offset from its entry. */
static enum ddp_status agree_on_offset(struct shm *shm, enum shm_kind kind, size_t bytes,
                                       size_t total, uint64_t *offset)
{
    struct shm_call call = {.kind = (uint8_t)kind, .count = bytes};
    enum ddp_status status = DDP_OK;
    *offset = SHM_NOWHERE;
    if (shm->place->rank == 0) {
        status = shm_check_available(total, shm->place->size);
        if (status == DDP_OK)
            status = ddp_job_heap_reserve(shm->place->job, total, offset);
    }
    uint32_t number = shm_post(shm, &call, *offset, NULL, 0);
    enum ddp_status gathered = shm_gather(shm, number, &call);
    if (gathered != DDP_OK)
        return gathered;
    *offset = shm_entry_of(shm, 0, number)->offset;
    if (status == DDP_OK && *offset == SHM_NOWHERE)
        status = DDP_ERR_MEMORY; /* rank 0 has said why */
    return status;
}

/* Parts begin at pages. An odd number of pages a part keeps equal places of all parts out of the
 * same cache set: a sum reads them all at once. */
static size_t stride_for(size_t bytes)
{
    const size_t pages = ddp_align_up(bytes, DDP_PAGE) / DDP_PAGE;
    return (pages | 1) * DDP_PAGE;
}

enum ddp_status shm_alloc(void *state, size_t bytes, void **memory)
{
    struct shm *shm = state;
    const size_t stride = stride_for(bytes);
    struct shm_region *region = ddp_array_alloc(1, sizeof *region);
    uint64_t offset;
    enum ddp_status status =
        agree_on_offset(shm, SHM_ALLOC, bytes, stride * (size_t)shm->place->size, &offset);
    if (status != DDP_OK) {
        free(region);
        return status;
    }
    status = DDP_ERR_MEMORY;
    if (region) {
        region->offset = offset;
        region->stride = stride;
        region->bytes = bytes;
        status =
            shm_map(shm, offset, stride * (size_t)shm->place->size,
                    offset + stride * (uint64_t)shm->place->rank, stride, (void **)&region->base);
    }
    const bool mapped = status == DDP_OK;
    status = vote(shm, status);
    if (status != DDP_OK) {
        if (mapped)
            unmap_region(shm, region);
        else
            free(region);
        return status;
    }
    region->next = shm->regions;
    shm->regions = region;
    *memory = region->base + stride * (size_t)shm->place->rank;
    return DDP_OK;
}

/* Behind shared memory: how many ranks have left it. The last one gives its pages back: others may
 * still read weights while one ends. */
struct leavers {
    _Atomic uint32_t count;
};

static void unmap_shared(struct shm *shm, struct shm_region *region)
{
    struct leavers *leavers = (struct leavers *)(void *)(region->base + region->stride - DDP_PAGE);
    const bool last = atomic_fetch_add(&leavers->count, 1) + 1 == (uint32_t)shm->place->size;
    munmap(region->base, region->stride);
    if (last)
        fallocate(shm->heap, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)region->offset,
                  (off_t)region->stride);
    free(region);
}

/* Each rank makes its share of the pages: one alone would take that many times longer. */
static void share_of_pages(const struct shm *shm, const struct shm_region *region, uint64_t *offset,
                           size_t *bytes)
{
    const size_t pages = region->stride / DDP_PAGE;
    const size_t begin = ddp_slice_begin(pages, 1, shm->place->rank, shm->place->size);
    const size_t end = ddp_slice_begin(pages, 1, shm->place->rank + 1, shm->place->size);
    *offset = region->offset + begin * DDP_PAGE;
    *bytes = (end - begin) * DDP_PAGE;
}

static enum ddp_status map_shared(struct shm *shm, struct shm_region *region)
{
    uint64_t offset;
    size_t bytes;
    share_of_pages(shm, region, &offset, &bytes);
    return shm_map(shm, region->offset, region->stride, offset, bytes, (void **)&region->base);
}

/* When some rank has failed: its pages are missing, so nobody touches the memory, leavers neither.
 */
static void unmap_incomplete(struct shm *shm, struct shm_region *region)
{
    uint64_t offset;
    size_t bytes;
    share_of_pages(shm, region, &offset, &bytes);
    munmap(region->base, region->stride);
    if (bytes > 0)
        fallocate(shm->heap, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)bytes);
    free(region);
}

enum ddp_status shm_alloc_shared(void *state, size_t bytes, void **memory)
{
    struct shm *shm = state;
    struct shm_region *region = ddp_array_alloc(1, sizeof *region);
    const size_t stride = ddp_align_up(bytes, DDP_PAGE) + DDP_PAGE;
    uint64_t offset;
    enum ddp_status status = agree_on_offset(shm, SHM_ALLOC_SHARED, bytes, stride, &offset);
    if (status != DDP_OK) {
        free(region);
        return status;
    }
    status = DDP_ERR_MEMORY;
    if (region) {
        *region = (struct shm_region){.offset = offset, .stride = stride, .bytes = bytes};
        status = map_shared(shm, region);
    }
    const bool mapped = status == DDP_OK;
    status = vote(shm, status);
    if (status != DDP_OK) {
        if (mapped)
            unmap_incomplete(shm, region);
        else
            free(region);
        return status;
    }
    region->next = shm->shared;
    shm->shared = region;
    *memory = region->base;
    return DDP_OK;
}

static char *own_part(const struct shm *shm, const struct shm_region *region)
{
    return region->base + region->stride * (size_t)shm->place->rank;
}

enum ddp_status shm_free(void *state, void *memory)
{
    struct shm *shm = state;
    struct shm_call call = {.kind = SHM_FREE};
    uint32_t number = shm_post(shm, &call, shm_offset_of(shm, memory, 1), NULL, 0);
    enum ddp_status status = shm_gather(shm, number, &call);
    if (status != DDP_OK)
        return status;
    for (struct shm_region **link = &shm->regions; *link; link = &(*link)->next) {
        struct shm_region *region = *link;
        if (own_part(shm, region) == memory) {
            *link = region->next;
            unmap_region(shm, region);
            return DDP_OK;
        }
    }
    return ddp_fail(DDP_ERR_INVALID, "this is not the beginning of registered memory");
}

void shm_free_regions(struct shm *shm)
{
    while (shm->regions) {
        struct shm_region *next = shm->regions->next;
        unmap_region(shm, shm->regions);
        shm->regions = next;
    }
    while (shm->shared) {
        struct shm_region *next = shm->shared->next;
        unmap_shared(shm, shm->shared);
        shm->shared = next;
    }
}

uint64_t shm_offset_of(const struct shm *shm, const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    for (const struct shm_region *region = shm->regions; region; region = region->next) {
        const uintptr_t begin = (uintptr_t)own_part(shm, region);
        if (at >= begin && at - begin <= region->bytes && bytes <= region->bytes - (at - begin))
            return region->offset + (uint64_t)(at - (uintptr_t)region->base);
    }
    return SHM_NOWHERE;
}

bool shm_registered(const void *state, const void *memory, size_t bytes)
{
    return shm_offset_of(state, memory, bytes) != SHM_NOWHERE;
}

void *shm_at(const struct shm *shm, uint64_t offset)
{
    for (const struct shm_region *region = shm->regions; region; region = region->next)
        if (offset >= region->offset &&
            offset - region->offset < region->stride * (uint64_t)shm->place->size)
            return region->base + (offset - region->offset);
    return NULL;
}
