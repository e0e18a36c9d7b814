/* SPDX-License-Identifier: MIT
 *
 * ReLU on the CPU; see relu.h. */
#include "config.h"

#include "kernels/relu.h"

#include "kernels/cpu/cpu.h"

#define BLOCK 16384

/* Not max(): NaN must stay NaN. */
DDP_MULTIVERSION
static void forward_block(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

DDP_MULTIVERSION
static void backward_block(const float *y, const float *dy, float *dx, bool add, int64_t n)
{
    if (add)
        for (int64_t i = 0; i < n; i++)
            dx[i] += y[i] > 0 ? dy[i] : 0;
    else
        for (int64_t i = 0; i < n; i++)
            dx[i] = y[i] > 0 ? dy[i] : 0;
}

static void forward_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_relu_forward *args = arg;
    const float *x = args->x;
    float *y = args->y;
    forward_block(x + begin, y + begin, end - begin);
}

static void backward_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_relu_backward *args = arg;
    const float *y = args->y;
    const float *dy = args->dy;
    float *dx = args->dx;
    backward_block(y + begin, dy + begin, dx + begin, args->accumulate_dx, end - begin);
}

enum ddp_status ddp_relu_forward(const struct ddp_relu_forward *args, void *stream)
{
    enum ddp_status status = ddp_relu_check_forward(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), forward_range, args, stream);
    return DDP_OK;
}

enum ddp_status ddp_relu_backward(const struct ddp_relu_backward *args, void *stream)
{
    enum ddp_status status = ddp_relu_check_backward(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), backward_range, args, stream);
    return DDP_OK;
}
