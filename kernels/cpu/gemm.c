/* SPDX-License-Identifier: MIT
 *
 * Matrix product on the CPU; see gemm.h. C is cut into tiles, which are tasks: gemm_tile.c makes
 * each on one thread. */
#include "config.h"

#include "kernels/cpu/gemm.h"

#include "core/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_tile.h"

#include <stdatomic.h>

/* How far C is cut to occupy threads: to tiles of this much at least. */
#define SMALL_ROWS      64
#define SMALL_COLUMNS   128
#define VECTOR_ELEMENTS 512      /* of a C of one row or column */
#define TILES_OF_THREAD 2        /* wanted */
#define TILE_PRODUCTS   524288.0 /* multiplications: about 10 microseconds */
#define COLUMN_GRANULE  32       /* of the widest micro-kernel */

/* A product on its way, and the grid that C is cut on. */
struct run {
    const struct ddp_gemm *gemm;
    enum ddp_isa isa;
    int64_t tile_rows, tile_columns, column_tiles;
    atomic_bool no_memory; /* of any thread */
};

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Cuts `size` into even parts of whole granules. */
static int64_t even_part(int64_t size, int64_t parts, int64_t granule)
{
    int64_t part = divide_up(divide_up(size, parts), granule) * granule;
    return part < size ? part : size;
}

/* A tile packs its part of B and, piece by piece, all of its part of A: the longer side is cut. */
static size_t cut_grid(struct run *run, int threads)
{
    const int64_t m = run->gemm->m, n = run->gemm->n, k = run->gemm->k;
    const double work = (double)m * (double)n * (double)k / TILE_PRODUCTS;
    const int64_t most = threads > 1 ? (int64_t)threads * TILES_OF_THREAD : 1;
    const int64_t wanted = work < (double)most ? (int64_t)work : most;
    const int64_t least_rows = n == 1 ? VECTOR_ELEMENTS : SMALL_ROWS;
    const int64_t least_columns = m == 1 ? VECTOR_ELEMENTS : SMALL_COLUMNS;
    int64_t down = 1, across = 1;
    while (down * across < wanted) {
        const bool rows = m / (down + 1) >= least_rows;
        const bool columns = n / (across + 1) >= least_columns;
        if (columns && (!rows || n / across >= m / down))
            across++;
        else if (rows)
            down++;
        else
            break;
    }
    run->tile_rows = even_part(m, down, 2);
    run->tile_columns = even_part(n, across, COLUMN_GRANULE);
    run->column_tiles = divide_up(n, run->tile_columns);
    return (size_t)(divide_up(m, run->tile_rows) * run->column_tiles);
}

static struct ddp_gemm_tile tile_at(const struct run *run, size_t index)
{
    struct ddp_gemm_tile tile = {
        .row = (int64_t)index / run->column_tiles * run->tile_rows,
        .column = (int64_t)index % run->column_tiles * run->tile_columns,
    };
    const int64_t rows = run->gemm->m - tile.row, columns = run->gemm->n - tile.column;
    tile.rows = rows < run->tile_rows ? rows : run->tile_rows;
    tile.columns = columns < run->tile_columns ? columns : run->tile_columns;
    return tile;
}

static const char *name_of(const struct ddp_gemm *gemm)
{
    return gemm->bf16 ? "bf16 gemm" : "gemm";
}

enum ddp_status ddp_gemm_check(const struct ddp_gemm *gemm)
{
    const int64_t m = gemm->m, n = gemm->n, k = gemm->k;
    if (m < 0 || n < 0 || k < 0)
        return ddp_fail(DDP_ERR_INVALID, "%s: negative size (%lld x %lld x %lld)", name_of(gemm),
                        (long long)m, (long long)n, (long long)k);
    if (m == 0 || n == 0)
        return DDP_OK;
    if (!gemm->c || (k > 0 && (!gemm->a || !gemm->b)))
        return ddp_fail(DDP_ERR_INVALID, "%s: a, b or c is NULL", name_of(gemm));
    if (gemm->ldc < n || (k > 0 && (gemm->lda < (gemm->transpose_a ? m : k) ||
                                    gemm->ldb < (gemm->transpose_b ? k : n))))
        return ddp_fail(
            DDP_ERR_INVALID, "%s: a leading dimension is shorter than a row (%lld, %lld, %lld)",
            name_of(gemm), (long long)gemm->lda, (long long)gemm->ldb, (long long)gemm->ldc);
    if (gemm->b_block && gemm->ldb != (gemm->transpose_b ? k : n))
        return ddp_fail(DDP_ERR_INVALID, "%s: there are gaps between blocks", name_of(gemm));
    return DDP_OK;
}

/* C = beta C, for k = 0, where the operands may be NULL. */
static void empty_tile(const struct ddp_gemm *gemm, const struct ddp_gemm_tile *tile)
{
    for (int64_t i = tile->row; gemm->beta == 0 && i < tile->row + tile->rows; i++)
        for (int64_t j = tile->column; j < tile->column + tile->columns; j++)
            gemm->c[i * gemm->ldc + j] = 0;
    if (gemm->epilogue)
        gemm->epilogue(gemm->epilogue_arg, tile->row, tile->rows, tile->column, tile->columns);
}

/* Pairs are flushed as x86 does it: elsewhere by the plain version. */
static bool has_micro_kernels(const struct ddp_gemm *gemm, enum ddp_isa isa)
{
    return isa >= DDP_ISA_AVX2 || (isa == DDP_ISA_NEON && !gemm->bf16);
}

static void tile_task(void *arg, size_t index)
{
    struct run *run = arg;
    const struct ddp_gemm_tile tile = tile_at(run, index);
    if (run->gemm->k == 0)
        empty_tile(run->gemm, &tile);
    else if (!(has_micro_kernels(run->gemm, run->isa)
                   ? ddp_gemm_tile_run(run->gemm, &tile, run->isa)
                   : ddp_gemm_tile_plain(run->gemm, &tile)))
        atomic_store(&run->no_memory, true);
}

enum ddp_status ddp_gemm_on(const struct ddp_gemm *gemm, enum ddp_isa isa, void *stream)
{
    struct run run = {.gemm = gemm, .isa = isa};
    ddp_pool *pool = ddp_stream_pool(stream);
    enum ddp_status status = ddp_gemm_check(gemm);
    if (status || gemm->m == 0 || gemm->n == 0)
        return status;
    const size_t tiles = cut_grid(&run, ddp_pool_threads(pool));
    ddp_pool_run(pool, tiles, tile_task, &run);
    if (atomic_load(&run.no_memory))
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory: no room for packed operands",
                        name_of(gemm));
    return DDP_OK;
}

enum ddp_status ddp_gemm(const struct ddp_gemm *gemm, void *stream)
{
    return ddp_gemm_on(gemm, ddp_cpu_isa(), stream);
}

enum ddp_status ddp_gemm_serial(const struct ddp_gemm *gemm)
{
    struct ddp_gemm whole = *gemm;
    whole.epilogue = NULL;
    return ddp_gemm(&whole, NULL);
}
