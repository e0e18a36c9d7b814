/* SPDX-License-Identifier: MIT
 *
 * See heap.h. */
#include "config.h"

#include "comm/heap.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum ddp_status ddp_heap_reserve(ddp_job *job, size_t bytes, int size, uint64_t *offset)
{
    const size_t available = ddp_memory_available();
    if (bytes <= available)
        return ddp_job_heap_reserve(job, bytes, offset);
    return ddp_fail(
        DDP_ERR_MEMORY,
        "shared memory: %d workers need %zu MB together, %zu "
        "MB are available: use fewer workers or a smaller model, or give the container more "
        "memory",
        size, bytes / 1000000, available / 1000000);
}

enum ddp_status ddp_heap_fill(const ddp_job *job, uint64_t offset, size_t bytes)
{
    int made = 0;
    while (bytes > 0 &&
           (made = fallocate(ddp_job_heap_fd(job), 0, (off_t)offset, (off_t)bytes)) < 0 &&
           errno == EINTR)
        ;
    return made == 0 ? DDP_OK
                     : ddp_fail(DDP_ERR_MEMORY, "shared memory: cannot allocate %.1f MB: %s",
                                (double)bytes / 1e6, ddp_strerror(errno));
}

enum ddp_status ddp_heap_map(const ddp_job *job, uint64_t offset, size_t bytes, uint64_t own_offset,
                             size_t own_bytes, void **memory)
{
    enum ddp_status status = ddp_heap_fill(job, own_offset, own_bytes);
    if (status != DDP_OK)
        return status;
    void *mapping =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ddp_job_heap_fd(job), (off_t)offset);
    if (mapping == MAP_FAILED)
        return ddp_fail(errno == ENOMEM ? DDP_ERR_MEMORY : DDP_ERR_SYSTEM,
                        "shared memory: cannot map %zu MB: %s", bytes / 1000000, strerror(errno));
    madvise(mapping, bytes, own_bytes > 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* only a hint */
    *memory = mapping;
    return DDP_OK;
}

void ddp_heap_punch(const ddp_job *job, uint64_t offset, size_t bytes)
{
    if (bytes > 0)
        fallocate(ddp_job_heap_fd(job), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)bytes);
}
