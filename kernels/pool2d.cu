/* SPDX-License-Identifier: MIT
 *
 * Pooling on a CUDA device; see pool2d.h. A thread makes one result, or 16 bytes of its channels:
 * going forward it reads the pixels of a window, going back the results of all windows that meet a
 * pixel, so that no two threads write the same memory. Bound by memory: windows that overlap are
 * read again from the cache. */
#include "kernels/conv2d/conv2d.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/pool2d.h"

#include <math.h>

struct pool_pass {
    struct ddp_pool2d_shape s;
    int64_t rows, columns; /* of y */
    const void *from;
    void *to;
    uint8_t *chosen_out;
    const uint8_t *chosen;
    bool add;
};

/* Where a thread's channels lie: of a pixel of y going forward, of x going back. */
template <typename I> struct place {
    I image, row, column, channel;
};

template <typename I>
static __device__ inline place<I> place_of(I at, I channels, I rows, I columns, int width)
{
    place<I> place;
    place.channel = at % channels * width;
    at /= channels;
    place.column = at % columns;
    at /= columns;
    place.row = at % rows;
    place.image = at / rows;
    return place;
}

/* --- forward -------------------------------------------------------------------------------- */

template <bool MAX, int W>
static __device__ inline void take_in(ddp_pack<float, W> *best, ddp_pack<uint8_t, W> *chosen,
                                      const ddp_pack<float, W> &x, int64_t position)
{
    for (int i = 0; i < W; i++) {
        if (!MAX) {
            best->at[i] += x.at[i];
        } else if (x.at[i] > best->at[i] || x.at[i] != x.at[i]) { /* NaN takes over */
            best->at[i] = x.at[i];
            chosen->at[i] = (uint8_t)position;
        }
    }
}

template <typename T, typename I, bool MAX, int W>
static __global__ void __launch_bounds__(DDP_BLOCK) forward_kernel(struct pool_pass p, I packs)
{
    const I at = (I)ddp_first_of_pack(1);
    if (at >= packs)
        return;
    const struct ddp_pool2d_shape *s = &p.s;
    const place<I> y = place_of<I>(at, (I)(s->channels / W), (I)p.rows, (I)p.columns, W);
    const int64_t top = y.row * s->stride - s->padding, left = y.column * s->stride - s->padding;
    const int64_t h_begin = top < 0 ? 0 : top, w_begin = left < 0 ? 0 : left;
    const int64_t h_end = top + s->kernel_height < s->height ? top + s->kernel_height : s->height;
    const int64_t w_end = left + s->kernel_width < s->width ? left + s->kernel_width : s->width;
    const T *image = (const T *)p.from + y.image * s->height * s->width * s->channels + y.channel;
    ddp_pack<float, W> best;
    ddp_pack<uint8_t, W> chosen;
    for (int i = 0; i < W; i++) {
        best.at[i] = MAX ? -INFINITY : 0;
        chosen.at[i] = (uint8_t)((h_begin - top) * s->kernel_width + w_begin - left);
    }
    for (int64_t h = h_begin; h < h_end; h++)
        for (int64_t w = w_begin; w < w_end; w++)
            take_in<MAX, W>(&best, &chosen, ddp_read<W>(image + (h * s->width + w) * s->channels),
                            (h - top) * s->kernel_width + w - left);
    for (int i = 0; i < W && !MAX; i++)
        best.at[i] /= (float)(s->kernel_height * s->kernel_width);
    ddp_write<W>((T *)p.to + (int64_t)at * W, best);
    if (MAX && p.chosen_out)
        ddp_store(p.chosen_out + (int64_t)at * W, chosen);
}

/* --- backward ------------------------------------------------------------------------------- */

/* The first and one past the last window that meets a pixel. */
template <typename I>
static __device__ inline void windows_of(I pixel, I kernel, I count, I stride, I *begin, I *end)
{
    const I last = pixel / stride + 1;
    *begin = pixel < kernel ? 0 : (pixel - kernel) / stride + 1;
    *end = last < count ? last : count;
}

template <typename T, typename I, bool MAX, int W>
static __global__ void __launch_bounds__(DDP_BLOCK) backward_kernel(struct pool_pass p, I packs)
{
    const I at = (I)ddp_first_of_pack(1);
    if (at >= packs)
        return;
    const struct ddp_pool2d_shape *s = &p.s;
    const place<I> x = place_of<I>(at, (I)(s->channels / W), (I)s->height, (I)s->width, W);
    const I stride = (I)s->stride, padding = (I)s->padding, down = x.row + padding,
            across = x.column + padding;
    I row_begin, row_end, column_begin, column_end;
    windows_of(down, (I)s->kernel_height, (I)p.rows, stride, &row_begin, &row_end);
    windows_of(across, (I)s->kernel_width, (I)p.columns, stride, &column_begin, &column_end);
    ddp_pack<float, W> sum = {};
    for (I row = row_begin; row < row_end; row++)
        for (I column = column_begin; column < column_end; column++) {
            const int64_t from =
                (((int64_t)x.image * p.rows + row) * p.columns + column) * s->channels + x.channel;
            const I position =
                !MAX ? 0 : (down - row * stride) * (I)s->kernel_width + across - column * stride;
            const ddp_pack<float, W> dy = ddp_read<W>((const T *)p.from + from);
            ddp_pack<uint8_t, W> chosen = {};
            if (MAX)
                chosen = ddp_load<uint8_t, W>(p.chosen + from);
            for (int i = 0; i < W; i++)
                if (!MAX)
                    sum.at[i] += dy.at[i] / (float)(s->kernel_height * s->kernel_width);
                else if (chosen.at[i] == position)
                    sum.at[i] += dy.at[i];
        }
    ddp_put((T *)p.to + (int64_t)at * W, sum, p.add);
}

/* --- launches ------------------------------------------------------------------------------- */

template <typename T, typename I, bool MAX, int W>
static void launch(const struct pool_pass *p, int64_t packs, bool forward, struct ddp_cuda *cuda)
{
    const unsigned blocks = ddp_cuda_blocks(packs, DDP_BLOCK);
    if (forward)
        DDP_LAUNCH((forward_kernel<T, I, MAX, W>), blocks, DDP_BLOCK, 0, cuda->stream, *p,
                   (I)packs);
    else
        DDP_LAUNCH((backward_kernel<T, I, MAX, W>), blocks, DDP_BLOCK, 0, cuda->stream, *p,
                   (I)packs);
}

/* Divisions of 32 bits where the indices allow them; they are what a thread does most. */
template <typename T, bool MAX, int W>
static void launch_sized(const struct pool_pass *p, int64_t packs, bool forward,
                         struct ddp_cuda *cuda)
{
    if (packs <= INT32_MAX - DDP_BLOCK)
        launch<T, int32_t, MAX, W>(p, packs, forward, cuda);
    else
        launch<T, int64_t, MAX, W>(p, packs, forward, cuda);
}

template <typename T, bool MAX>
static void launch_wide(const struct pool_pass *p, int64_t count, bool forward,
                        struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    if (p->s.channels % W == 0 && ddp_aligned(p->from) && ddp_aligned(p->to) &&
        ddp_aligned(p->chosen) && ddp_aligned(p->chosen_out))
        launch_sized<T, MAX, W>(p, count / W, forward, cuda);
    else
        launch_sized<T, MAX, 1>(p, count, forward, cuda);
}

template <bool MAX>
static enum ddp_status run(struct pool_pass *p, enum ddp_dtype dtype, bool forward, void *stream,
                           const char *name)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const struct ddp_pool2d_shape *s = &p->s;
    p->rows = ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1);
    p->columns = ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1);
    const int64_t pixels = forward ? p->rows * p->columns : s->height * s->width;
    const int64_t count = s->batch * pixels * s->channels;
    if (count == 0)
        return DDP_OK;
    if (dtype == DDP_BF16)
        launch_wide<uint16_t, MAX>(p, count, forward, cuda);
    else
        launch_wide<float, MAX>(p, count, forward, cuda);
    return ddp_cuda_launched(cuda, name);
}

extern "C" enum ddp_status ddp_cuda_max_pool2d_forward(const struct ddp_max_pool2d_forward *args,
                                                       void *stream)
{
    enum ddp_status status = ddp_max_pool2d_check_forward(args);
    if (status)
        return status;
    struct pool_pass p = {};
    p.s = args->shape;
    p.from = args->x;
    p.to = args->y;
    p.chosen_out = args->chosen;
    return run<true>(&p, args->dtype, true, stream, "max pooling");
}

extern "C" enum ddp_status ddp_cuda_max_pool2d_backward(const struct ddp_max_pool2d_backward *args,
                                                        void *stream)
{
    enum ddp_status status = ddp_max_pool2d_check_backward(args);
    if (status)
        return status;
    struct pool_pass p = {};
    p.s = args->shape;
    p.from = args->dy;
    p.to = args->dx;
    p.chosen = args->chosen;
    p.add = args->accumulate_dx;
    return run<true>(&p, args->dtype, false, stream, "max pooling backward");
}

extern "C" enum ddp_status ddp_cuda_avg_pool2d_forward(const struct ddp_avg_pool2d_forward *args,
                                                       void *stream)
{
    enum ddp_status status = ddp_avg_pool2d_check_forward(args);
    if (status)
        return status;
    struct pool_pass p = {};
    p.s = args->shape;
    p.from = args->x;
    p.to = args->y;
    return run<false>(&p, args->dtype, true, stream, "average pooling");
}

extern "C" enum ddp_status ddp_cuda_avg_pool2d_backward(const struct ddp_avg_pool2d_backward *args,
                                                        void *stream)
{
    enum ddp_status status = ddp_avg_pool2d_check_backward(args);
    if (status)
        return status;
    struct pool_pass p = {};
    p.s = args->shape;
    p.from = args->dy;
    p.to = args->dx;
    p.add = args->accumulate_dx;
    return run<false>(&p, args->dtype, false, stream, "average pooling backward");
}
