/* SPDX-License-Identifier: MIT
 *
 * Mean squared error and its gradient on the CPU; see mse.h. The grid and the order of the sums are
 * those of sum.c. */
#include "config.h"

#include "kernels/mse.h"

#include "kernels/cpu/cpu.h"

#define BLOCK 16384 /* elements of a task, at least */

struct pass {
    const struct ddp_mse *args;
    struct ddp_blocks blocks;
    double partial[DDP_BLOCKS_MAX];
};

DDP_INLINE double square(float x, float target)
{
    const double difference = (double)x - (double)target;
    return difference * difference;
}

/* Sixteen running sums, then their sum from the first to the last, then the tail. */
DDP_MULTIVERSION
static double squares(const float *x, const float *targets, int64_t n)
{
    double lanes[DDP_LANES] = {0};
    int64_t i = 0;
    for (; i + DDP_LANES <= n; i += DDP_LANES)
        for (int lane = 0; lane < DDP_LANES; lane++)
            lanes[lane] += square(x[i + lane], targets[i + lane]);
    double sum = 0;
    for (int lane = 0; lane < DDP_LANES; lane++)
        sum += lanes[lane];
    for (; i < n; i++)
        sum += square(x[i], targets[i]);
    return sum;
}

static void task(void *arg, size_t index)
{
    struct pass *pass = arg;
    const struct ddp_mse *args = pass->args;
    const int64_t begin = ddp_block_begin(&pass->blocks, index);
    const int64_t end = ddp_block_end(&pass->blocks, index);
    const float *x = args->x;
    float *dx = args->dx;
    const float factor = 2.0f * (args->dloss ? *args->dloss : 1.0f) / (float)args->count;
    pass->partial[index] = squares(x + begin, args->targets + begin, end - begin);
    for (int64_t i = begin; dx && i < end; i++) /* dx may be x */
        dx[i] = factor * (x[i] - args->targets[i]);
}

enum ddp_status ddp_mse(const struct ddp_mse *args, void *stream)
{
    struct pass pass = {.args = args};
    enum ddp_status status = ddp_mse_check(args);
    if (status)
        return status;
    pass.blocks = ddp_blocks_cut(args->count, BLOCK, DDP_LANES);
    ddp_pool_run(ddp_stream_pool(stream), pass.blocks.count, task, &pass);
    double sum = 0;
    for (size_t i = 0; i < pass.blocks.count; i++)
        sum += pass.partial[i];
    *args->loss = args->count > 0 ? (float)(sum / (double)args->count) : 0;
    return DDP_OK;
}
