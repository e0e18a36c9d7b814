/* SPDX-License-Identifier: MIT
 *
 * See cuda.h. Bound by memory: each element of a matrix of windows is written once, in
 * accesses of 16 bytes where the number of channels allows it; what is read comes from the cache
 * for all but the first tap that meets it, and what is written stays in the second-level cache for
 * the product that follows. */
#include "kernels/conv2d/cuda.h"
#include "kernels/cuda/ptx.h"

/* --- windows -------------------------------------------------------------------------------- */

/* Pixel of a tap, or -1: padding. */
static __device__ inline int64_t pixel_of(const struct ddp_conv_axis *axis, int64_t position,
                                          int64_t tap)
{
    const int64_t at = axis->origin + position * axis->stride + tap * axis->step;
    return at < axis->size ? at : -1; /* negative: padding too */
}

/* From elements X of images to elements T of the matrix. */
template <typename X, typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    windows_kernel(struct ddp_conv_windows w, int packs, T *matrix)
{
    const int at = (int)(blockIdx.x * DDP_BLOCK + threadIdx.x);
    if (at >= packs)
        return;
    /* a piece of the matrix has less than 2^31 elements: divisions of 32 bits */
    const int channels = (int)w.channels / W, taps = (int)(w.row.taps * w.column.taps);
    const int line = at / channels, channel = at % channels * W;
    const int tap = line % taps, columns = (int)w.column.taps;
    const int64_t position = w.first + line / taps;
    const int64_t row_position = position / w.column.count;
    const int64_t row = pixel_of(&w.row, row_position % w.row.count, tap / columns);
    const int64_t column = pixel_of(&w.column, position % w.column.count, tap % columns);
    ddp_pack<float, W> values = {};
    if (row >= 0 && column >= 0) {
        const int64_t image = row_position / w.row.count;
        const int64_t from =
            ((image * w.row.size + row) * w.column.size + column) * w.channels + channel;
        values = ddp_read<W>((const X *)w.x + from);
        if (w.gate) {
            const ddp_pack<float, W> gate = ddp_read<W>((const X *)w.gate + from);
            for (int i = 0; i < W; i++)
                values.at[i] = gate.at[i] > 0 ? values.at[i] : 0;
        }
    }
    ddp_write<W>(matrix + (int64_t)at * W, values);
}

template <typename X, typename T>
static void windows(const struct ddp_conv_windows *w, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<X>;
    const bool wide =
        w->channels % W == 0 && ddp_aligned(w->x) && ddp_aligned(w->gate) && ddp_aligned(w->matrix);
    const int64_t all = w->count * w->row.taps * w->column.taps * w->channels;
    if (wide)
        DDP_LAUNCH((windows_kernel<X, T, W>), ddp_cuda_blocks(all / W, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *w, (int)(all / W), (T *)w->matrix);
    else
        DDP_LAUNCH((windows_kernel<X, T, 1>), ddp_cuda_blocks(all, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *w, (int)all, (T *)w->matrix);
}

extern "C" enum ddp_status ddp_cuda_conv_windows(const struct ddp_conv_windows *args,
                                                 struct ddp_cuda *cuda)
{
    if (args->dtype == DDP_BF16)
        windows<uint16_t, uint16_t>(args, cuda);
    else if (args->type == DDP_BF16)
        windows<float, uint16_t>(args, cuda);
    else if (args->type == DDP_F16)
        windows<float, ddp_half>(args, cuda);
    else
        windows<float, float>(args, cuda);
    return ddp_cuda_launched(cuda, "windows of a convolution");
}

/* --- weights -------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK)
    pack_kernel(struct ddp_conv_taps t, int64_t count, T *packed)
{
    const int64_t at = ddp_first_of_pack(1);
    if (at >= count)
        return;
    const int64_t taps = t.row_taps * t.column_taps;
    const int64_t c = at % t.in, line = at / t.in;
    const int64_t o = t.by_tap ? line % t.out : line / taps;
    const int64_t tap = t.by_tap ? line / t.out : line % taps;
    const int64_t place = t.first + tap / t.column_taps * t.row + tap % t.column_taps * t.column;
    ddp_cuda_round_to(packed + at, t.weight[(o * t.in + c) * t.all + place]);
}

extern "C" enum ddp_status ddp_cuda_conv_pack(const struct ddp_conv_taps *args,
                                              struct ddp_cuda *cuda)
{
    const int64_t count = args->row_taps * args->column_taps * args->in * args->out;
    const unsigned blocks = ddp_cuda_blocks(count, DDP_BLOCK);
    if (args->type == DDP_BF16)
        DDP_LAUNCH(pack_kernel<uint16_t>, blocks, DDP_BLOCK, 0, cuda->stream, *args, count,
                   (uint16_t *)args->packed);
    else if (args->type == DDP_F16)
        DDP_LAUNCH(pack_kernel<ddp_half>, blocks, DDP_BLOCK, 0, cuda->stream, *args, count,
                   (ddp_half *)args->packed);
    else
        DDP_LAUNCH(pack_kernel<float>, blocks, DDP_BLOCK, 0, cuda->stream, *args, count,
                   (float *)args->packed);
    return ddp_cuda_launched(cuda, "weight of a convolution");
}

template <typename T>
static __global__ void __launch_bounds__(DDP_BLOCK)
    unpack_kernel(int64_t count, int64_t taps, int64_t in, const T *packed, float *dweight,
                  bool add)
{
    const int64_t at = ddp_first_of_pack(1);
    if (at >= count)
        return;
    const int64_t tap = at % taps, c = at / taps % in, o = at / taps / in;
    const float value = ddp_read_one(packed + (o * taps + tap) * in + c);
    dweight[at] = add ? dweight[at] + value : value;
}

extern "C" enum ddp_status ddp_cuda_conv_unpack(float *dweight, const void *packed,
                                                enum ddp_dtype type, int64_t out, int64_t taps,
                                                int64_t in, bool add, struct ddp_cuda *cuda)
{
    const int64_t count = out * taps * in;
    const unsigned blocks = ddp_cuda_blocks(count, DDP_BLOCK);
    if (type == DDP_BF16)
        DDP_LAUNCH(unpack_kernel<uint16_t>, blocks, DDP_BLOCK, 0, cuda->stream, count, taps, in,
                   (const uint16_t *)packed, dweight, add);
    else
        DDP_LAUNCH(unpack_kernel<float>, blocks, DDP_BLOCK, 0, cuda->stream, count, taps, in,
                   (const float *)packed, dweight, add);
    return ddp_cuda_launched(cuda, "gradient of a convolution's weight");
}

/* --- pixels of the gradient ------------------------------------------------------------------ */

template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK)
    scatter_kernel(struct ddp_conv_scatter s, int64_t packs)
{
    const int64_t at = ddp_first_of_pack(1);
    if (at >= packs)
        return;
    const int64_t channels = s.channels / W, channel = at % channels * W;
    const int64_t position = s.first + at / channels;
    const int64_t row = s.row + position / s.columns % s.rows * s.stride;
    const int64_t column = s.column + position % s.columns * s.stride;
    const int64_t image = position / s.columns / s.rows;
    T *to = (T *)s.image + ((image * s.height + row) * s.width + column) * s.channels + channel;
    ddp_pack<float, W> value = {};
    if (s.values)
        value = ddp_read<W>(s.values + at * W);
    ddp_put(to, value, s.add);
}

template <typename T>
static void scatter(const struct ddp_conv_scatter *args, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    const bool wide =
        args->channels % W == 0 && ddp_aligned(args->image) && ddp_aligned(args->values);
    const int64_t packs = args->count * args->channels / (wide ? W : 1);
    const unsigned blocks = ddp_cuda_blocks(packs, DDP_BLOCK);
    if (wide)
        DDP_LAUNCH((scatter_kernel<T, W>), blocks, DDP_BLOCK, 0, cuda->stream, *args, packs);
    else
        DDP_LAUNCH((scatter_kernel<T, 1>), blocks, DDP_BLOCK, 0, cuda->stream, *args, packs);
}

extern "C" enum ddp_status ddp_cuda_conv_scatter(const struct ddp_conv_scatter *args,
                                                 struct ddp_cuda *cuda)
{
    DDP_BY_DTYPE(args->dtype, scatter, args, cuda);
    return ddp_cuda_launched(cuda, "gradient of a convolution's input");
}
