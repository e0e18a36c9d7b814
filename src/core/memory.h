/* SPDX-License-Identifier: MIT
 *
 * Sizes that cannot overflow, and memory for arrays and arenas. */
#ifndef DDP_CORE_MEMORY_H
#define DDP_CORE_MEMORY_H

#include "ddp.h"

#include <stdbool.h>
#include <stddef.h>

#define DDP_CACHE_LINE 64
#define DDP_PAGE       4096

/* a * b or a + b; false when it does not fit. */
static inline bool ddp_size_multiply(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool ddp_size_add(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

/* The next multiple of a power of two. */
static inline size_t ddp_align_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Zeroed memory for `count` elements of `size` bytes, freed with free(). NULL (logged) when there
 * is none. */
void *ddp_array_alloc(size_t count, size_t size);

/* Appends a copy of an element to the `count` that an array has; elements may be removed from its
 * end between calls.
 *   array [in,out]  a pointer to the pointer to the first one (NULL: none), freed with free()
 * DDP_ERR_MEMORY: logged; nothing has changed. */
enum ddp_status ddp_array_append(void *array, size_t *count, const void *element, size_t size);

/* Zeroed, page-aligned memory, in huge pages where the system has them; freed with ddp_pages_free()
 * and the same size. NULL (logged) when memory runs out. 0 bytes give one page. */
void *ddp_pages_alloc(size_t bytes);
void ddp_pages_free(void *memory, size_t bytes);

/* Whether this many more bytes fit now. Says nothing about physical memory. */
bool ddp_memory_probe(size_t bytes);

/* Bytes of memory that the control groups of this process may use; SIZE_MAX: there is no limit. */
size_t ddp_memory_limit(void);

/* The most bytes of memory and swap that this process could have: the machine's, or the limit of
 * its control group. A run that needs more would be killed, not refused. */
size_t ddp_memory_total(void);

/* What this machine and this container (control groups of version 2, seen from inside) have left;
 * SIZE_MAX: unknown. */
size_t ddp_memory_available(void);

/* The most bytes of memory that this process has held, shared memory included; 0: unknown. */
size_t ddp_memory_peak(void);

#endif
