/* SPDX-License-Identifier: MIT
 *
 * Rotary positions on a GPU; see rotary.h. A thread has a pack of each half of a head, which it
 * turns, or packs that pass, where their sizes allow it; else single elements. Bound: 8 bytes an
 * element, 12 accumulating, half of that in bf16; the table comes from the cache. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/rotary.h"

struct rotary_pass {
    struct ddp_rotary args;
    int64_t units; /* of all heads together */
    int turned;    /* units of a head that are turned; those that pass follow */
    int passed;
};

/* a and b, W elements each, by their angles. */
template <int W>
static __device__ inline void turn(ddp_pack<float, W> &a, ddp_pack<float, W> &b,
                                   const ddp_pack<float, W> &cosines,
                                   const ddp_pack<float, W> &sines, float sign)
{
    for (int i = 0; i < W; i++) {
        const float x = a.at[i], s = sines.at[i] * sign;
        a.at[i] = ddp_product(x, cosines.at[i]) - ddp_product(b.at[i], s);
        b.at[i] = ddp_product(b.at[i], cosines.at[i]) + ddp_product(x, s);
    }
}

template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK) turn_heads(struct rotary_pass pass)
{
    const struct ddp_rotary &args = pass.args;
    const int64_t index = ddp_first_of_pack(1);
    if (index >= pass.units)
        return;
    const int in_head = pass.turned + pass.passed, half = (int)args.size / 2;
    const int64_t head = index / in_head, at = head * args.head_size;
    const int unit = (int)(index - head * in_head);
    const T *x = (const T *)args.x + at;
    T *y = (T *)args.y + at;
    if (unit >= pass.turned) {
        const int column = (int)args.size + (unit - pass.turned) * W;
        ddp_put(y + column, ddp_read<W>(x + column), args.accumulate);
        return;
    }
    const int column = unit * W;
    const float *table =
        args.table + (args.first + head / args.heads % args.length) * args.size + column;
    ddp_pack<float, W> a = ddp_read<W>(x + column), b = ddp_read<W>(x + half + column);
    turn(a, b, ddp_read<W>(table), ddp_read<W>(table + half), args.inverse ? -1.0f : 1.0f);
    ddp_put(y + column, a, args.accumulate);
    ddp_put(y + half + column, b, args.accumulate);
}

template <typename T, int W>
static void launch_width(struct rotary_pass pass, struct ddp_cuda *cuda)
{
    const struct ddp_rotary &args = pass.args;
    pass.turned = (int)(args.size / 2 / W);
    pass.passed = (int)((args.head_size - args.size) / W);
    pass.units = args.batch * args.length * args.heads * (pass.turned + pass.passed);
    DDP_LAUNCH((turn_heads<T, W>), ddp_cuda_blocks(pass.units, DDP_BLOCK), DDP_BLOCK, 0,
               cuda->stream, pass);
}

template <typename T> static void launch(const struct ddp_rotary *args, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    struct rotary_pass pass;
    pass.args = *args;
    const bool whole = args->size % (2 * W) == 0 && args->head_size % W == 0 &&
                       ddp_aligned(args->x) && ddp_aligned(args->y) && ddp_aligned(args->table);
    if (whole)
        launch_width<T, W>(pass, cuda);
    else
        launch_width<T, 1>(pass, cuda);
}

extern "C" enum ddp_status ddp_cuda_rotary(const struct ddp_rotary *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_rotary_check(args);
    if (status || args->batch * args->length * args->heads * args->head_size == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch, args, cuda);
    return ddp_cuda_launched(cuda, "rope");
}
