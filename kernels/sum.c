/* SPDX-License-Identifier: MIT
 *
 * Sum of all elements and its gradient on the CPU; see sum.h. */
#include "config.h"

#include "kernels/sum.h"

#include "core/log.h"
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

static enum ddp_status check_forward(const struct ddp_sum_forward *args)
{
    if (args->count < 0 || (args->count > 0 && !args->x) || !args->y)
        return ddp_fail(DDP_ERR_INVALID, "sum: bad arguments (%lld elements)",
                        (long long)args->count);
    return ddp_cpu_check_dtype("sum", args->dtype);
}

enum ddp_status ddp_sum_forward(const struct ddp_sum_forward *args, void *stream)
{
    enum ddp_status status = check_forward(args);
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

enum ddp_status ddp_sum_forward_reference(const struct ddp_sum_forward *args, void *stream)
{
    const float *x = args->x;
    (void)stream;
    enum ddp_status status = check_forward(args);
    if (status)
        return status;
    double sum = 0;
    for (int64_t i = 0; i < args->count; i++)
        sum += (double)x[i];
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

static enum ddp_status check_backward(const struct ddp_sum_backward *args)
{
    if (args->count < 0 || !args->dy || (args->count > 0 && !args->dx))
        return ddp_fail(DDP_ERR_INVALID, "sum backward: bad arguments (%lld elements)",
                        (long long)args->count);
    return ddp_cpu_check_dtype("sum", args->dtype);
}

enum ddp_status ddp_sum_backward(const struct ddp_sum_backward *args, void *stream)
{
    enum ddp_status status = check_backward(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), backward_range, args, stream);
    return DDP_OK;
}

enum ddp_status ddp_sum_backward_reference(const struct ddp_sum_backward *args, void *stream)
{
    float *dx = args->dx;
    (void)stream;
    enum ddp_status status = check_backward(args);
    if (status)
        return status;
    for (int64_t i = 0; i < args->count; i++)
        dx[i] = *args->dy;
    return DDP_OK;
}
