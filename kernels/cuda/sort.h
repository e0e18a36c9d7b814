/* SPDX-License-Identifier: MIT
 *
 * Sorting the places of a list by the small numbers that stand there, equal ones in their order,
 * without atomics: so that each row of a table finds what is to be added to it, first to last. */
#ifndef DDP_KERNELS_CUDA_SORT_H
#define DDP_KERNELS_CUDA_SORT_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_cuda_sorted {
    const int32_t *keys;   /* (count) from small to large */
    const int32_t *places; /* (count) where in the list each one stood */
};

/* The memory on the device that sorting `count` numbers takes. */
size_t ddp_cuda_sort_bytes(int64_t count);

/* The most numbers that sort within `bytes`. */
int64_t ddp_cuda_sort_most(size_t bytes);

/* Sorts numbers 0 .. limit-1; others count as `limit`, and come last. Both arrays of *sorted are in
 * `memory`, of ddp_cuda_sort_bytes(). count > 0 */
void ddp_cuda_sort(const int32_t *numbers, int64_t count, int32_t limit, void *memory,
                   struct ddp_cuda_sorted *sorted, struct ddp_cuda *cuda);

#ifdef __cplusplus
}
#endif

#endif
