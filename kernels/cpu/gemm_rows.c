/* SPDX-License-Identifier: MIT
 *
 * The product of few rows with a large transposed matrix; see gemm.h. Bound by the bytes of B, of
 * which each row is a dot product's: sixteen lanes over K, then the lanes' sum, in the same order
 * for every row of A. Several rows of B are read at once, to have sums that do not wait for each
 * other, and each is used for four rows of A before the next ones are read. */
#include "config.h"

#include "kernels/cpu/gemm.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/cpu/vmath.h"

#include <stdatomic.h>
#include <stdlib.h>

#define ELEMENTS 65536 /* of B, of a task: about 10 microseconds */
#define ROWS     4
#define LINE     64   /* bytes */
#define AHEAD    2048 /* bytes of blocks */

/* Sixteen elements of B, and its last ones. */
DDP_INLINE ddp_f32x16 load_b(const void *b, int64_t at, bool bf16)
{
    return bf16 ? ddp_load16_bf16((const uint16_t *)b + at) : ddp_load16((const float *)b + at);
}

DDP_INLINE ddp_f32x16 load_b_tail(const void *b, int64_t at, int64_t n, bool bf16)
{
    uint16_t lanes[DDP_LANES] = {0};
    if (!bf16)
        return ddp_load16_tail((const float *)b + at, n, 0);
    memcpy(lanes, (const uint16_t *)b + at, (size_t)n * sizeof *lanes);
    return ddp_load16_bf16(lanes);
}

/* What comes from memory while the columns before it are added: few rows of A wait for that. */
DDP_INLINE void fetch(const void *b, int64_t at, int64_t columns, int64_t stride)
{
    DDP_UNROLL
    for (int64_t j = 0; j < columns; j++)
        __builtin_prefetch((const void *)((uintptr_t)b + (uintptr_t)(at + j * stride)));
}

/* c[i,j] for `rows` of A and `columns` of C, numbers known when compiling. */
DDP_INLINE void dots(const float *a, int64_t lda, int64_t rows, const void *b, int64_t ldb,
                     int64_t columns, int64_t k, float *c, int64_t ldc, bool bf16)
{
    const int64_t element = bf16 ? sizeof(uint16_t) : sizeof(float);
    ddp_f32x16 sums[ROWS][ROWS] = {0};
    int64_t l = 0;
    for (; l + DDP_LANES <= k; l += DDP_LANES) {
        ddp_f32x16 right[ROWS];
        DDP_UNROLL
        for (int64_t j = 0; j < columns; j++)
            right[j] = load_b(b, j * ldb + l, bf16);
        if (rows < ROWS)
            fetch(b, (columns * ldb + l) * element, columns, ldb * element);
        DDP_UNROLL
        for (int64_t i = 0; i < rows; i++) {
            const ddp_f32x16 left = ddp_load16(a + i * lda + l);
            DDP_UNROLL
            for (int64_t j = 0; j < columns; j++)
                sums[i][j] += left * right[j];
        }
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            if (l < k)
                sums[i][j] += ddp_load16_tail(a + i * lda + l, k - l, 0) *
                              load_b_tail(b, j * ldb + l, k - l, bf16);
            c[i * ldc + j] = ddp_sum16(sums[i][j]);
        }
}

/* All rows of A. */
DDP_INLINE void columns_of(const struct ddp_gemm *g, int64_t column, int64_t columns, bool bf16)
{
    const size_t element = bf16 ? sizeof(uint16_t) : sizeof(float);
    const float *a = g->a;
    const void *b = (const char *)g->b + (size_t)(column * g->ldb) * element;
    float *c = g->c + column;
    int64_t i = 0;
    for (; i + ROWS <= g->m; i += ROWS)
        dots(a + i * g->lda, g->lda, ROWS, b, g->ldb, columns, g->k, c + i * g->ldc, g->ldc, bf16);
    if (i + 2 <= g->m) {
        dots(a + i * g->lda, g->lda, 2, b, g->ldb, columns, g->k, c + i * g->ldc, g->ldc, bf16);
        i += 2;
    }
    if (i < g->m)
        dots(a + i * g->lda, g->lda, 1, b, g->ldb, columns, g->k, c + i * g->ldc, g->ldc, bf16);
}

DDP_INLINE void some_columns(const struct ddp_gemm *g, int64_t begin, int64_t end, bool bf16)
{
    int64_t column = begin;
    for (; column + ROWS <= end; column += ROWS)
        columns_of(g, column, ROWS, bf16);
    for (; column < end; column++)
        columns_of(g, column, 1, bf16);
}

DDP_MULTIVERSION
static void run_columns(const struct ddp_gemm *g, int64_t begin, int64_t end)
{
    if (g->b_bf16)
        some_columns(g, begin, end, true);
    else
        some_columns(g, begin, end, false);
}

/* Values of a B that lies in blocks; what follows comes from memory meanwhile. */
static void unpack(const struct ddp_gemm *g, int64_t first, int64_t count, float *values)
{
    const struct ddp_block *block = g->b_block;
    const int64_t bytes = DDP_BLOCK_MOST / block->values * block->bytes;
    for (int64_t i = 0; i < count; i += DDP_BLOCK_MOST) {
        const int64_t some = count - i < DDP_BLOCK_MOST ? count - i : DDP_BLOCK_MOST;
        for (int64_t line = 0; line < bytes; line += LINE)
            fetch(g->b, (first + i) / block->values * block->bytes + AHEAD + line, 1, 0);
        ddp_blocks_unpack(block, g->b, first + i, some, values + i);
    }
}

/* Of a B that lies in blocks, ROWS columns at a time. */
static bool run_unpacked(const struct ddp_gemm *g, int64_t begin, int64_t end)
{
    struct ddp_gemm some = *g;
    float *b = ddp_array_alloc((size_t)g->k * ROWS, sizeof *b);
    some.b_block = NULL;
    some.b = b;
    for (int64_t column = begin, columns; b && column < end; column += columns) {
        columns = end - column < ROWS ? end - column : ROWS;
        unpack(g, column * g->k, columns * g->k, b);
        some.c = g->c + column;
        run_columns(&some, 0, columns);
    }
    free(b);
    return b != NULL;
}

struct run {
    const struct ddp_gemm *gemm;
    struct ddp_blocks blocks;
    atomic_bool no_memory; /* of any thread */
};

static void task(void *arg, size_t index)
{
    struct run *run = arg;
    const struct ddp_gemm *gemm = run->gemm;
    const int64_t begin = ddp_block_begin(&run->blocks, index);
    const int64_t end = ddp_block_end(&run->blocks, index);
    if (!gemm->b_block)
        run_columns(gemm, begin, end);
    else if (!run_unpacked(gemm, begin, end))
        atomic_store(&run->no_memory, true);
    if (gemm->epilogue)
        gemm->epilogue(gemm->epilogue_arg, 0, gemm->m, begin, end - begin);
}

enum ddp_status ddp_gemm_rows(const struct ddp_gemm *gemm, void *stream)
{
    const enum ddp_status status = ddp_gemm_check(gemm);
    if (status || gemm->m == 0 || gemm->n == 0)
        return status;
    if (gemm->transpose_a || !gemm->transpose_b || gemm->bf16 || gemm->beta != 0)
        return ddp_fail(DDP_ERR_INVALID, "gemm: row by row, C = A B^T with A of float32 only");
    struct run run = {.gemm = gemm,
                      .blocks = ddp_blocks_cut(gemm->n, ELEMENTS / (gemm->k + 1) + 1, DDP_LANES)};
    ddp_pool_run(ddp_stream_pool(stream), run.blocks.count, task, &run);
    return atomic_load(&run.no_memory)
               ? ddp_fail(DDP_ERR_MEMORY, "gemm: out of memory: no room for unpacked weights")
               : DDP_OK;
}
