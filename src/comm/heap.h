/* SPDX-License-Identifier: MIT
 *
 * Memory of the job's heap, the file without a name that all workers of a machine map. */
#ifndef DDP_COMM_HEAP_H
#define DDP_COMM_HEAP_H

#include "job/job.h"

/* Takes `bytes` (a multiple of the page size) of the heap, if the machine and the container have
 * that much left for `size` workers. DDP_ERR_MEMORY says what is needed and what is left. */
enum ddp_status ddp_heap_reserve(ddp_job *job, size_t bytes, int size, uint64_t *offset);

/* Makes sure that part of the heap has memory behind it: pages that are there cannot be missing
 * later, when a write would end in SIGBUS. DDP_ERR_MEMORY. */
enum ddp_status ddp_heap_fill(const ddp_job *job, uint64_t offset, size_t bytes);

/* Maps part of the heap, after filling [own_offset, own_bytes) of it; if that is nothing, in small
 * pages, which can go one by one. DDP_ERR_MEMORY, DDP_ERR_SYSTEM. */
enum ddp_status ddp_heap_map(const ddp_job *job, uint64_t offset, size_t bytes, uint64_t own_offset,
                             size_t own_bytes, void **memory);

/* Returns the memory to the system, even while others have it mapped. */
void ddp_heap_punch(const ddp_job *job, uint64_t offset, size_t bytes);

#endif
