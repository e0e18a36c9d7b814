/* SPDX-License-Identifier: MIT
 *
 * Transposition on the CPU; see transpose.h. A task is a square of 64 by 64 or what is left of it,
 * so that both sides stay in cache. */
#include "config.h"

#include "kernels/transpose.h"

#include "kernels/cpu/cpu.h"

#define SQUARE 64
#define TASK   16

struct work {
    const struct ddp_transpose *args;
    int64_t down, across; /* squares of a matrix */
};

static void square(const struct ddp_transpose *args, int64_t at, int64_t row, int64_t column)
{
    const int64_t rows = args->rows, columns = args->columns;
    const int64_t row_end = rows - row < SQUARE ? rows : row + SQUARE;
    const int64_t column_end = columns - column < SQUARE ? columns : column + SQUARE;
    const float *x = (const float *)args->x + at;
    float *y = (float *)args->y + at;
    for (int64_t j = column; j < column_end; j++)
        for (int64_t i = row; i < row_end; i++) {
            float *to = &y[j * rows + i];
            *to = args->accumulate ? *to + x[i * columns + j] : x[i * columns + j];
        }
}

static void task(void *arg, size_t index)
{
    const struct work *work = arg;
    const int64_t per_matrix = work->down * work->across;
    const int64_t squares = work->args->batch * per_matrix;
    const int64_t begin = (int64_t)index * TASK;
    for (int64_t i = begin; i < begin + TASK && i < squares; i++)
        square(work->args, i / per_matrix * work->args->rows * work->args->columns,
               i % per_matrix / work->across * SQUARE, i % work->across * SQUARE);
}

enum ddp_status ddp_transpose(const struct ddp_transpose *args, void *stream)
{
    enum ddp_status status = ddp_transpose_check(args);
    if (status || args->batch == 0)
        return status;
    struct work work = {args, (args->rows + SQUARE - 1) / SQUARE,
                        (args->columns + SQUARE - 1) / SQUARE};
    const int64_t squares = args->batch * work.down * work.across;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)((squares + TASK - 1) / TASK), task, &work);
    return DDP_OK;
}
