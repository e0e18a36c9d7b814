/* SPDX-License-Identifier: MIT
 *
 * See memory.h. */
#include "config.h"

#include "core/memory.h"

#include "core/cgroup.h"
#include "core/log.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

void *ddp_array_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        (void)ddp_fail(DDP_ERR_MEMORY, "out of memory: %zu elements of %zu bytes", count, size);
    return memory;
}

/* Up to the next power of two there is room. */
enum ddp_status ddp_array_append(void *array, size_t *count, const void *element, size_t size)
{
    char *elements;
    memcpy(&elements, array, sizeof elements);
    if ((*count & (*count - 1)) == 0) {
        elements = reallocarray(elements, *count ? 2 * *count : 1, size);
        if (!elements)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory: %zu elements of %zu bytes", *count + 1,
                            size);
        memcpy(array, &elements, sizeof elements);
    }
    memcpy(elements + size * (*count)++, element, size);
    return DDP_OK;
}

static size_t whole_pages(size_t bytes)
{
    return ddp_align_up(bytes ? bytes : 1, DDP_PAGE);
}

void *ddp_pages_alloc(size_t bytes)
{
    const size_t huge_page = 2u << 20;
    void *memory = bytes > SIZE_MAX - DDP_PAGE
                       ? MAP_FAILED
                       : mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        (void)ddp_fail(DDP_ERR_MEMORY, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    if (bytes >= huge_page)
        madvise(memory, whole_pages(bytes),
                MADV_HUGEPAGE); /* only a hint: first touch is 7x faster */
    return memory;
}

void ddp_pages_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, whole_pages(bytes));
}

bool ddp_memory_probe(size_t bytes)
{
    void *memory =
        mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    ddp_pages_free(memory, bytes);
    return true;
}

/* The number in a small file, such as the kernel's limits; SIZE_MAX where there is none. */
static size_t read_limit(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned long long value;
    if (!file)
        return SIZE_MAX;
    if (fscanf(file, "%llu", &value) != 1) /* "max" */
        value = ULLONG_MAX;
    fclose(file);
    return value < SIZE_MAX ? (size_t)value : SIZE_MAX;
}

static void tighten(void *arg, const char *directory, bool unified)
{
    char path[DDP_CGROUP_PATH + 32];
    size_t *least = arg;
    snprintf(path, sizeof path, "%s/%s", directory,
             unified ? "memory.max" : "memory.limit_in_bytes");
    const size_t limit = read_limit(path);
    *least = limit < *least ? limit : *least;
}

size_t ddp_memory_limit(void)
{
    size_t least = SIZE_MAX;
    ddp_cgroup_visit("memory", tighten, &least);
    return least > SIZE_MAX / 4 ? SIZE_MAX : least; /* version 1 has a number for "none" */
}

size_t ddp_memory_total(void)
{
    struct sysinfo info;
    size_t total = SIZE_MAX, limit = ddp_memory_limit();
    if (sysinfo(&info) == 0)
        total = (info.totalram + info.totalswap) * info.mem_unit;
    return limit < total ? limit : total;
}

size_t ddp_memory_available(void)
{
    size_t available = SIZE_MAX;
    unsigned long long kilobytes;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
            available = (size_t)kilobytes * 1024;
    if (file)
        fclose(file);
    const size_t limit = read_limit("/sys/fs/cgroup/memory.max");
    const size_t used = read_limit("/sys/fs/cgroup/memory.current");
    return limit != SIZE_MAX && used <= limit && limit - used < available ? limit - used
                                                                          : available;
}

size_t ddp_memory_peak(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return (size_t)kilobytes * 1024;
}
