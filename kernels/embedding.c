/* SPDX-License-Identifier: MIT
 *
 * Embedding on the CPU; see embedding.h. Backward hands each task a range of columns of all rows:
 * no two threads meet in one element, and rows are added in their order. */
#include "config.h"

#include "kernels/embedding.h"

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"

#define ELEMENTS 16384 /* of a forward task, about */
#define COLUMNS  64    /* of a backward task */

/* --- forward ---------------------------------------------------------------------------------- */

/* A row of a table, of float or of bf16; it is added. */
DDP_INLINE void put_row(float *restrict y, const float *table, const uint16_t *bf16, int64_t row,
                        int64_t n, bool add)
{
    if (table && !add)
        memcpy(y, table + row * n, (size_t)n * sizeof *y);
    else if (table)
        for (int64_t j = 0; j < n; j++)
            y[j] += table[row * n + j];
    else
        for (int64_t j = 0; j < n; j++)
            y[j] = add ? y[j] + ddp_bf16_to_f32(bf16[row * n + j])
                       : ddp_bf16_to_f32(bf16[row * n + j]);
}

DDP_MULTIVERSION
static void look_up_rows(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_embedding_forward *args = arg;
    const int64_t n = args->features;
    const bool places = args->wpe || args->wpe_bf16;
    for (int64_t row = begin; row < end; row++) {
        float *y = (float *)args->y + row * n;
        put_row(y, args->wte, args->wte_bf16, args->tokens[row], n, false);
        if (places)
            put_row(y, args->wpe, args->wpe_bf16, args->first + row % args->length, n, true);
    }
}

enum ddp_status ddp_embedding_forward(const struct ddp_embedding_forward *args, void *stream)
{
    enum ddp_status status = ddp_embedding_check_forward(args);
    if (status == DDP_OK)
        status = ddp_embedding_check_tokens("embedding", args->tokens, args->batch * args->length,
                                            args->length, args->vocabulary);
    if (status || args->features == 0)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->batch * args->length, ELEMENTS / args->features + 1, 1),
                   look_up_rows, args, stream);
    return DDP_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

static void clear_columns(float *table, int64_t rows, int64_t n, int64_t begin, int64_t count)
{
    for (int64_t i = 0; i < rows; i++)
        memset(table + i * n + begin, 0, (size_t)count * sizeof *table);
}

DDP_MULTIVERSION
static void add_columns(const struct ddp_embedding_backward *args, int64_t begin, int64_t count)
{
    const int64_t n = args->features, rows = args->batch * args->length;
    for (int64_t row = 0; row < rows; row++) {
        const float *dy = (const float *)args->dy + row * n + begin;
        if (args->dwte) {
            float *restrict token = args->dwte + args->tokens[row] * n + begin;
            for (int64_t j = 0; j < count; j++)
                token[j] += dy[j];
        }
        if (args->dwpe) {
            float *restrict place = args->dwpe + row % args->length * n + begin;
            for (int64_t j = 0; j < count; j++)
                place[j] += dy[j];
        }
    }
}

static void backward_task(void *arg, size_t index)
{
    const struct ddp_embedding_backward *args = arg;
    const int64_t begin = (int64_t)index * COLUMNS, left = args->features - begin;
    const int64_t count = left < COLUMNS ? left : COLUMNS;
    if (args->dwte && !args->accumulate_dwte)
        clear_columns(args->dwte, args->vocabulary, args->features, begin, count);
    if (args->dwpe && !args->accumulate_dwpe)
        clear_columns(args->dwpe, args->positions, args->features, begin, count);
    add_columns(args, begin, count);
}

enum ddp_status ddp_embedding_backward(const struct ddp_embedding_backward *args, void *stream)
{
    enum ddp_status status = ddp_embedding_check_backward(args);
    if (status == DDP_OK)
        status =
            ddp_embedding_check_tokens("embedding backward", args->tokens,
                                       args->batch * args->length, args->length, args->vocabulary);
    if (status)
        return status;
    struct ddp_embedding_backward copy = *args;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)((args->features + COLUMNS - 1) / COLUMNS),
                 backward_task, &copy);
    return DDP_OK;
}
