/* SPDX-License-Identifier: MIT
 *
 * Sums of squares on the CPU; see norm.h. */
#include "config.h"

#include "kernels/norm.h"

#include "kernels/cpu/cpu.h"

#define TASK_BLOCKS 16 /* blocks of a task, at least */

struct norm {
    const struct ddp_norm *args;
    int64_t first; /* block */
    struct ddp_blocks tasks;
};

/* Sixteen running sums by place in the block, then their sum from the first to the last. */
DDP_MULTIVERSION
static double squares_of_block(const float *x, int64_t n)
{
    double lanes[DDP_LANES] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i += DDP_LANES)
        for (int lane = 0; lane < DDP_LANES; lane++)
            lanes[lane] += (double)x[i + lane] * (double)x[i + lane];
    for (int lane = 0; lane < DDP_LANES; lane++)
        sum += lanes[lane];
    return sum;
}

/* A block of which the range has elements [begin, end) only: the rest is zero.
 *   x  element `begin` */
static double sum_part(const float *x, int64_t begin, int64_t end)
{
    float padded[DDP_NORM_BLOCK] = {0};
    memcpy(padded + begin, x, (size_t)(end - begin) * sizeof *x);
    return squares_of_block(padded, DDP_NORM_BLOCK);
}

static void norm_task(void *arg, size_t index)
{
    const struct norm *norm = arg;
    const struct ddp_norm *args = norm->args;
    const int64_t last = norm->first + ddp_block_end(&norm->tasks, index);
    for (int64_t b = norm->first + ddp_block_begin(&norm->tasks, index); b < last; b++) {
        const int64_t at = b * DDP_NORM_BLOCK;
        const int64_t begin = args->begin > at ? args->begin - at : 0;
        const int64_t end = args->end - at < DDP_NORM_BLOCK ? args->end - at : DDP_NORM_BLOCK;
        const float *x = args->x + (at + begin - args->begin);
        args->sums[b] = begin == 0 && end == DDP_NORM_BLOCK ? squares_of_block(x, DDP_NORM_BLOCK)
                                                            : sum_part(x, begin, end);
    }
}

enum ddp_status ddp_norm(const struct ddp_norm *args, void *stream)
{
    enum ddp_status status = ddp_norm_check(args);
    if (status || args->begin == args->end)
        return status;
    struct norm norm = {.args = args, .first = args->begin / DDP_NORM_BLOCK};
    norm.tasks = ddp_blocks_cut(ddp_norm_blocks(args->end) - norm.first, TASK_BLOCKS, 1);
    ddp_pool_run(ddp_stream_pool(stream), norm.tasks.count, norm_task, &norm);
    return DDP_OK;
}
