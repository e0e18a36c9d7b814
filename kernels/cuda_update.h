/* SPDX-License-Identifier: MIT
 *
 * What the optimizers' steps share on a GPU: the spans that weight decay leaves alone travel with
 * the launch, by value. An array with more of them than fit is updated by several launches, each
 * over a part of it. For .cu files. */
#ifndef DDP_KERNELS_CUDA_UPDATE_H
#define DDP_KERNELS_CUDA_UPDATE_H

#include "kernels/cuda.h"
#include "kernels/span.h"

#define DDP_CUDA_SPANS 208 /* with the arguments of an update below the 4096 bytes of a launch */

/* Elements begin .. end-1 of the arrays, and the spans that touch them, as places in the arrays. */
struct ddp_cuda_part {
    int64_t begin, end;
    int count;
    struct ddp_span spans[DDP_CUDA_SPANS];
};

/* The part that begins at `begin`, of arrays with `count` elements whose first lies at `first` of
 * the flat array. Parts begin at multiples of 4. */
static inline void ddp_cuda_next_part(struct ddp_cuda_part *part, int64_t begin, int64_t count,
                                      const struct ddp_span *spans, int span_count, int64_t first)
{
    int at = 0;
    part->begin = begin;
    part->end = count;
    part->count = 0;
    while (at < span_count && spans[at].end - first <= begin)
        at++;
    for (; at < span_count && spans[at].begin - first < count; at++) {
        if (part->count == DDP_CUDA_SPANS) { /* this one begins as far behind `begin` at least */
            part->end = (spans[at].begin - first) / 4 * 4;
            return;
        }
        struct ddp_span span;
        span.begin = spans[at].begin - first;
        span.end = spans[at].end - first;
        part->spans[part->count++] = span;
    }
}

/* DDP_ERR_INVALID for sizes and spans that make no sense. */
static inline enum ddp_status ddp_cuda_check_update(const char *name, int64_t count, int64_t first,
                                                    const float *weight,
                                                    const struct ddp_span *spans, int span_count)
{
    bool bad = count < 0 || first < 0 || span_count < 0 || (span_count > 0 && !spans) ||
               (count > 0 && !weight);
    for (int i = 0; !bad && i < span_count; i++)
        bad = spans[i].begin >= spans[i].end || (i > 0 && spans[i].begin < spans[i - 1].end);
    return bad ? ddp_fail(DDP_ERR_INVALID, "%s: bad arguments (%lld elements)", name,
                          (long long)count)
               : DDP_OK;
}

/* The first span that ends behind `at`. */
static __device__ inline int ddp_cuda_first_span(const struct ddp_cuda_part &part, int64_t at)
{
    int low = 0, high = part.count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (part.spans[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Does weight decay leave element `at` alone? *span moves on to it. */
static __device__ inline bool ddp_cuda_spares(const struct ddp_cuda_part &part, int64_t at,
                                              int *span)
{
    while (*span < part.count && part.spans[*span].end <= at)
        (*span)++;
    return *span < part.count && part.spans[*span].begin <= at;
}

#endif
