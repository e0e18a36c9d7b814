/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements and its gradient on the CPU; see sum.h. */
#include "config.h"

#include "kernels/sum.h"

#include "kernels/cpu/cpu.h"

#define BLOCK 16384 /* elements of a task, at least */

struct forward {
    const float *x;
    struct ddp_blocks blocks;
    double partial[DDP_BLOCKS_MAX];
};

/* Sixteen running sums, then their sum from the first to the last, then the tail. */
DDP_MULTIVERSION
static double sum_block(const float *x, int64_t n)
{
    double lanes[DDP_LANES] = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        for (int lane = 0; lane < DDP_LANES; lane++)
            lanes[lane] += (double)x[i + lane];
    double sum = 0;
    for (int lane = 0; lane < DDP_LANES; lane++)
        sum += lanes[lane];
    for (; i < n; i++)
        sum += (double)x[i];
    return sum;
}

static void forward_task(void *arg, size_t index)
{
    struct forward *forward = arg;
    int64_t begin = ddp_block_begin(&forward->blocks, index);
    forward->partial[index] =
        sum_block(forward->x + begin, ddp_block_end(&forward->blocks, index) - begin);
}

enum ddp_status ddp_sum_forward(const struct ddp_sum_forward *args, void *stream)
{
    enum ddp_status status = ddp_sum_check_forward(args);
    if (status)
        return status;
    struct forward forward = {.x = args->x,
                              .blocks = ddp_blocks_cut(args->count, BLOCK, DDP_LANES)};
    ddp_pool_run(ddp_stream_pool(stream), forward.blocks.count, forward_task, &forward);
    double sum = 0;
    for (size_t i = 0; i < forward.blocks.count; i++)
        sum += forward.partial[i];
    *args->y = (float)sum;
    return DDP_OK;
}

static void backward_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_sum_backward *args = arg;
    float *dx = args->dx;
    const float value = *args->dy;
    for (int64_t i = begin; i < end; i++)
        dx[i] = value;
}

enum ddp_status ddp_sum_backward(const struct ddp_sum_backward *args, void *stream)
{
    enum ddp_status status = ddp_sum_check_backward(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), backward_range, args, stream);
    return DDP_OK;
}
