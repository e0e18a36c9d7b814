/* SPDX-License-Identifier: MIT
 *
 * What the CPU side of the kernels shares: code for several instruction sets, vectors of a fixed
 * width, and the fixed grid that work is cut on. */
#ifndef DDP_KERNELS_CPU_CPU_H
#define DDP_KERNELS_CPU_CPU_H

#include "ddp.h"

#include "core/multiversion.h"
#include "core/pool.h"

#include <string.h>

/* Before a loop of a few rounds, a number known when compiling, over arrays that are to live in
 * registers. */
#ifdef __clang__
#define DDP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DDP_UNROLL _Pragma("GCC unroll 16")
#endif

/* Sixteen lanes on every machine, so that lane sums have one order whatever the width of its
 * registers. */
#define DDP_LANES 16
typedef float ddp_f32x16 __attribute__((vector_size(64)));
typedef int32_t ddp_i32x16 __attribute__((vector_size(64)));
typedef uint32_t ddp_u32x16 __attribute__((vector_size(64)));

/* n elements cut into blocks of `size`, a multiple of `granule`, at least `smallest` and at most
 * DDP_BLOCKS_MAX of them. It depends on n alone, never on the number of threads. */
#define DDP_BLOCKS_MAX 256
struct ddp_blocks {
    int64_t n, size;
    size_t count;
};

static inline struct ddp_blocks ddp_blocks_cut(int64_t n, int64_t smallest, int64_t granule)
{
    int64_t size = n / DDP_BLOCKS_MAX + 1;
    if (size < smallest)
        size = smallest;
    size = (size / granule + (size % granule != 0)) * granule;
    return (struct ddp_blocks){.n = n, .size = size, .count = (size_t)(n / size + (n % size != 0))};
}

static inline int64_t ddp_block_begin(const struct ddp_blocks *blocks, size_t index)
{
    return (int64_t)index * blocks->size;
}

static inline int64_t ddp_block_end(const struct ddp_blocks *blocks, size_t index)
{
    int64_t begin = ddp_block_begin(blocks, index);
    return blocks->n - begin < blocks->size ? blocks->n : begin + blocks->size;
}

/* On the CPU a stream is a pool of threads. */
static inline ddp_pool *ddp_stream_pool(void *stream)
{
    return (ddp_pool *)stream; /* the cast is for C++ */
}

/* Does elements [begin, end) of an operation. */
typedef void ddp_range_function(const void *args, int64_t begin, int64_t end);

struct ddp_blocks_run {
    struct ddp_blocks blocks;
    ddp_range_function *range;
    const void *args;
};

static inline void ddp_blocks_run_task(void *arg, size_t index)
{
    const struct ddp_blocks_run *run = (const struct ddp_blocks_run *)arg;
    run->range(run->args, ddp_block_begin(&run->blocks, index), ddp_block_end(&run->blocks, index));
}

/* Each block as a task. */
static inline void ddp_blocks_run(struct ddp_blocks blocks, ddp_range_function *range,
                                  const void *args, void *stream)
{
    struct ddp_blocks_run run = {blocks, range, args};
    ddp_pool_run(ddp_stream_pool(stream), blocks.count, ddp_blocks_run_task, &run);
}

#endif
