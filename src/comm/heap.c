/* SPDX-License-Identifier: MIT
 *
 * See heap.h. */
#include "config.h"

#include "comm/heap.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

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

enum ddp_status ddp_heap_reserve(ddp_job *job, size_t bytes, int size, uint64_t *offset)
{
    const uint64_t available = available_bytes();
    if (bytes <= available)
        return ddp_job_heap_reserve(job, bytes, offset);
    return ddp_fail(
        DDP_ERR_MEMORY,
        "shared memory: %d workers need %zu MB together, %" PRIu64
        " MB are available: use fewer workers or a smaller model, or give the container more "
        "memory",
        size, bytes / 1000000, available / 1000000);
}

enum ddp_status ddp_heap_map(const ddp_job *job, uint64_t offset, size_t bytes, uint64_t own_offset,
                             size_t own_bytes, void **memory)
{
    const int heap = ddp_job_heap_fd(job);
    /* Pages that fallocate() has made cannot be missing later: a write would end in SIGBUS. */
    int made = 0;
    while (own_bytes > 0 && (made = fallocate(heap, 0, (off_t)own_offset, (off_t)own_bytes)) < 0 &&
           errno == EINTR)
        ;
    if (made < 0)
        return ddp_fail(DDP_ERR_MEMORY, "shared memory: cannot allocate %.1f MB: %s",
                        (double)own_bytes / 1e6, ddp_strerror(errno));
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, heap, (off_t)offset);
    if (mapping == MAP_FAILED)
        return ddp_fail(errno == ENOMEM ? DDP_ERR_MEMORY : DDP_ERR_SYSTEM,
                        "shared memory: cannot map %zu MB: %s", bytes / 1000000, strerror(errno));
    madvise(mapping, bytes, MADV_HUGEPAGE); /* only a hint */
    *memory = mapping;
    return DDP_OK;
}

void ddp_heap_punch(const ddp_job *job, uint64_t offset, size_t bytes)
{
    if (bytes > 0)
        fallocate(ddp_job_heap_fd(job), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)bytes);
}
