/* SPDX-License-Identifier: MIT
 *
 * What the optimizers' steps share on a GPU: the ranges that weight decay leaves alone travel with
 * the launch, by value. An array with more of them than fit is updated by several launches, each
 * over a part of it. For .cu files. */
#ifndef DDP_KERNELS_CUDA_UPDATE_H
#define DDP_KERNELS_CUDA_UPDATE_H

#include "kernels/cuda/cuda.h"
#include "core/range.h"

#define DDP_CUDA_SPANS 208 /* with the arguments of an update below the 4096 bytes of a launch */

/* Elements begin .. end-1 of the arrays, and the ranges that touch them, as places in the arrays.
 */
struct ddp_cuda_part {
    int64_t begin, end;
    int count;
    struct ddp_range ranges[DDP_CUDA_SPANS];
};

/* The part that begins at `begin`, of arrays with `count` elements whose first lies at `first` of
 * the flat array. Parts begin at multiples of 4. */
static inline void ddp_cuda_next_part(struct ddp_cuda_part *part, int64_t begin, int64_t count,
                                      const struct ddp_range *ranges, int span_count, int64_t first)
{
    int at = 0;
    part->begin = begin;
    part->end = count;
    part->count = 0;
    while (at < span_count && ranges[at].end - first <= begin)
        at++;
    for (; at < span_count && ranges[at].begin - first < count; at++) {
        if (part->count == DDP_CUDA_SPANS) { /* this one begins as far behind `begin` at least */
            part->end = (ranges[at].begin - first) / 4 * 4;
            return;
        }
        struct ddp_range range;
        range.begin = ranges[at].begin - first;
        range.end = ranges[at].end - first;
        part->ranges[part->count++] = range;
    }
}

/* The first range that ends behind `at`. */
static __device__ inline int ddp_cuda_first_range(const struct ddp_cuda_part &part, int64_t at)
{
    int low = 0, high = part.count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (part.ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Whether weight decay skips element `at`. *range moves on to it. */
static __device__ inline bool ddp_cuda_spares(const struct ddp_cuda_part &part, int64_t at,
                                              int *range)
{
    while (*range < part.count && part.ranges[*range].end <= at)
        (*range)++;
    return *range < part.count && part.ranges[*range].begin <= at;
}

/* A step of an optimizer: OP has the arrays, what was decided about the step (`clipped`, or NULL)
 * and a function run<W>(part, at, &range), which updates W elements from `at` on. A block's
 * elements are adjacent, so that its threads begin their search for a range at the same one. */
template <int W, typename OP>
static __global__ void __launch_bounds__(DDP_BLOCK)
    ddp_update_kernel(OP op, struct ddp_cuda_part part)
{
    const int64_t block = part.begin + (int64_t)blockIdx.x * DDP_BLOCK * W;
    const int64_t at = block + (int64_t)threadIdx.x * W;
    if (op.clipped && op.clipped->left_out)
        return;
    int range = ddp_cuda_first_range(part, block);
    if (at + W <= part.end)
        op.template run<W>(part, at, &range);
    else
        for (int64_t i = at; i < part.end; i++)
            op.template run<1>(part, i, &range);
}

template <typename OP>
static void ddp_cuda_update(const OP &op, int64_t count, const struct ddp_range *ranges,
                            int range_count, int64_t first, bool aligned, struct ddp_cuda *cuda)
{
    struct ddp_cuda_part part;
    for (int64_t at = 0; at < count; at = part.end) {
        ddp_cuda_next_part(&part, at, count, ranges, range_count, first);
        if (aligned)
            DDP_LAUNCH((ddp_update_kernel<4, OP>),
                       ddp_cuda_blocks(part.end - part.begin, 4 * DDP_BLOCK), DDP_BLOCK, 0,
                       cuda->stream, op, part);
        else
            DDP_LAUNCH((ddp_update_kernel<1, OP>),
                       ddp_cuda_blocks(part.end - part.begin, DDP_BLOCK), DDP_BLOCK, 0,
                       cuda->stream, op, part);
    }
}

template <int W>
static __device__ inline void ddp_cuda_store_bf16(uint16_t *to, const ddp_pack<float, W> &values)
{
    ddp_pack<uint16_t, W> rounded;
    for (int i = 0; i < W; i++)
        rounded.at[i] = ddp_cuda_bf16_of(values.at[i]);
    ddp_store<uint16_t, W>(to, rounded);
}

#endif
