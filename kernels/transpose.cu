/* SPDX-License-Identifier: MIT
 *
 * Transposition on a GPU; see transpose.h. Squares of 32 by 32 go through shared memory, whose rows
 * are one element longer, so that its columns lie in different banks. Matrices with few rows or few
 * columns, such as the channels of an image, are copied element by element: the few long runs of
 * the other side stay in the caches. Bound: 8 bytes an element (12 accumulating),
 * half of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/transpose.h"

#include "core/memory.h"

#define SQUARE 32
#define DOWN   4  /* rows of threads, each of every fourth row of a square */
#define FEW    16 /* rows or columns that are not worth a square */

template <typename T>
static __device__ inline void put(const struct ddp_transpose &args, int64_t at, float value)
{
    ddp_put_one((T *)args.y + at, value, args.accumulate);
}

template <typename T>
static __global__ void __launch_bounds__(SQUARE *DOWN)
    squares(struct ddp_transpose args, int64_t down, int64_t across)
{
    __shared__ float square[SQUARE][SQUARE + 1];
    const int64_t rows = args.rows, columns = args.columns;
    const int64_t matrix = blockIdx.x / (down * across), place = blockIdx.x % (down * across);
    const int64_t row = place / across * SQUARE, column = place % across * SQUARE;
    const T *x = (const T *)args.x + matrix * rows * columns;
    const int lane = (int)threadIdx.x % SQUARE, first = (int)threadIdx.x / SQUARE;
    ddp_raw<T, 1> read[SQUARE / DOWN];
#pragma unroll
    for (int k = 0; k < SQUARE / DOWN; k++) {
        const int i = first + k * DOWN;
        read[k] = {};
        if (row + i < rows && column + lane < columns)
            read[k] = ddp_read_raw<1>(x + (row + i) * columns + column + lane);
    }
#pragma unroll
    for (int k = 0; k < SQUARE / DOWN; k++)
        square[first + k * DOWN][lane] = ddp_widened(read[k]).at[0];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SQUARE / DOWN; k++) {
        const int i = first + k * DOWN;
        if (column + i < columns && row + lane < rows)
            put<T>(args, (matrix * columns + column + i) * rows + row + lane, square[lane][i]);
    }
}

/* Few rows: neighbouring threads write neighbours. Few columns: they read neighbours. */
template <typename T, bool FEW_ROWS>
static __global__ void elements(struct ddp_transpose args, int64_t count)
{
    const int64_t at = ddp_first_of_pack(1);
    if (at >= count)
        return;
    const int64_t rows = args.rows, columns = args.columns, size = rows * columns;
    const int64_t begin = at / size * size, place = at - begin;
    const T *x = (const T *)args.x;
    if (FEW_ROWS)
        put<T>(args, at, ddp_read_one(x + begin + place % rows * columns + place / rows));
    else
        put<T>(args, begin + place % columns * rows + place / columns, ddp_read_one(x + at));
}

template <typename T>
static void launch(const struct ddp_transpose *args, int64_t count, struct ddp_cuda *cuda)
{
    const int64_t down = (args->rows + SQUARE - 1) / SQUARE;
    const int64_t across = (args->columns + SQUARE - 1) / SQUARE;
    if (args->rows <= FEW)
        DDP_LAUNCH((elements<T, true>), ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args, count);
    else if (args->columns <= FEW)
        DDP_LAUNCH((elements<T, false>), ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args, count);
    else
        DDP_LAUNCH((squares<T>), (unsigned)(args->batch * down * across), SQUARE * DOWN, 0,
                   cuda->stream, *args, down, across);
}

extern "C" enum ddp_status ddp_cuda_transpose(const struct ddp_transpose *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_transpose_check(args);
    const int64_t count = args->batch * args->rows * args->columns;
    if (status || count == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch, args, count, cuda);
    return ddp_cuda_launched(cuda, "transpose");
}
