/* SPDX-License-Identifier: MIT
 *
 * Matrix product on the CPU; see gemm.h. Tiles of C are tasks. A tile is one single-threaded
 * product over the whole of K: by oneDNN where the build has it, else by gemm_plain.c. */
#include "config.h"

#include "kernels/cpu/gemm.h"

#include "core/log.h"
#include "core/thread.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_plain.h"
#include "kernels/cpu/gemm_tiles.h"
#include "kernels/cpu/onednn.h"

#include <stdatomic.h>
#ifdef HAVE_ONEDNN
#include <dnnl.h>
#endif

#ifdef HAVE_GOMP
/* From <omp.h>, which comes with GCC only. */
void omp_set_num_threads(int threads);
#endif

/* The largest tile; and how far a product is cut to occupy more threads: to tiles of this much work
 * at least. */
#define TILE_ROWS     256
#define TILE_COLUMNS  384
#define SMALL_ROWS    64
#define SMALL_COLUMNS 128
#define TILES_WANTED  4
#define TILE_PRODUCTS 524288.0 /* multiplications: about 10 microseconds */

/* A product on its way; `gemm` is what the tile function gets. */
struct run {
    const struct ddp_gemm_frame *frame;
    const void *gemm;
    struct ddp_gemm_grid grid;
    ddp_gemm_tile_function *tile;
    atomic_int error; /* of the library, from any thread */
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

struct ddp_gemm_grid ddp_gemm_grid_cut(int64_t m, int64_t n, int64_t k)
{
    struct ddp_gemm_grid grid = {.m = m, .n = n};
    int64_t down = divide_up(m, TILE_ROWS), across = divide_up(n, TILE_COLUMNS);
    const double tiles = (double)m * (double)n * (double)k / TILE_PRODUCTS;
    const int64_t wanted = tiles < TILES_WANTED ? (int64_t)tiles : TILES_WANTED;
    while (down * across < wanted && n / (across + 1) >= SMALL_COLUMNS)
        across++;
    while (down * across < wanted && m / (down + 1) >= SMALL_ROWS)
        down++;
    grid.tile_rows = even_part(m, down, 8);
    grid.tile_columns = even_part(n, across, 16);
    grid.column_tiles = divide_up(n, grid.tile_columns);
    grid.count = (size_t)(divide_up(m, grid.tile_rows) * grid.column_tiles);
    return grid;
}

struct ddp_gemm_tile ddp_gemm_grid_tile(const struct ddp_gemm_grid *grid, size_t index)
{
    struct ddp_gemm_tile tile = {
        .row = (int64_t)index / grid->column_tiles * grid->tile_rows,
        .column = (int64_t)index % grid->column_tiles * grid->tile_columns,
    };
    int64_t rows = grid->m - tile.row, columns = grid->n - tile.column;
    tile.rows = rows < grid->tile_rows ? rows : grid->tile_rows;
    tile.columns = columns < grid->tile_columns ? columns : grid->tile_columns;
    return tile;
}

void ddp_gemm_stay_single(void)
{
#ifdef HAVE_GOMP
    static _Thread_local bool single; /* the setting is the calling thread's */
    if (!single)
        omp_set_num_threads(1);
    single = true;
#endif
}

enum ddp_status ddp_gemm_check(const struct ddp_gemm_frame *frame)
{
    const int64_t m = frame->m, n = frame->n, k = frame->k;
    if (m < 0 || n < 0 || k < 0)
        return ddp_fail(DDP_ERR_INVALID, "%s: negative size (%lld x %lld x %lld)", frame->name,
                        (long long)m, (long long)n, (long long)k);
    if (m == 0 || n == 0)
        return DDP_OK;
    if (!frame->c || (k > 0 && (!frame->a || !frame->b)))
        return ddp_fail(DDP_ERR_INVALID, "%s: a, b or c is NULL", frame->name);
    if (frame->ldc < n || (k > 0 && (frame->lda < (frame->transpose_a ? m : k) ||
                                     frame->ldb < (frame->transpose_b ? k : n))))
        return ddp_fail(
            DDP_ERR_INVALID, "%s: a leading dimension is shorter than a row (%lld, %lld, %lld)",
            frame->name, (long long)frame->lda, (long long)frame->ldb, (long long)frame->ldc);
    return DDP_OK;
}

/* C = beta C, for k = 0, where the operands may be NULL and oneDNN would leave C as it is. */
static void empty_tile(const struct ddp_gemm_frame *frame, const struct ddp_gemm_tile *tile)
{
    for (int64_t i = tile->row; i < tile->row + tile->rows; i++)
        for (int64_t j = tile->column; j < tile->column + tile->columns; j++) {
            float *c = &frame->c[i * frame->ldc + j];
            *c = frame->beta == 0 ? 0 : frame->beta * *c;
        }
}

static void run_tile(struct run *run, const struct ddp_gemm_tile *tile)
{
    if (run->frame->k == 0) {
        empty_tile(run->frame, tile);
        return;
    }
    int error = run->tile(run->gemm, tile);
    if (error)
        atomic_store(&run->error, error);
}

static void tile_task(void *arg, size_t index)
{
    struct run *run = arg;
    const struct ddp_gemm_frame *frame = run->frame;
    const struct ddp_gemm_tile tile = ddp_gemm_grid_tile(&run->grid, index);
    run_tile(run, &tile);
    if (frame->epilogue)
        frame->epilogue(frame->epilogue_arg, tile.row, tile.rows, tile.column, tile.columns);
}

static enum ddp_status result(struct run *run)
{
    int error = atomic_load(&run->error);
#ifdef HAVE_ONEDNN
    if (error == dnnl_out_of_memory)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory in oneDNN", run->frame->name);
#endif
    if (error)
        return ddp_fail(DDP_ERR_SYSTEM, "%s: oneDNN failed with status %d", run->frame->name,
                        error);
    return DDP_OK;
}

enum ddp_status ddp_gemm_run(const struct ddp_gemm_frame *frame, ddp_gemm_tile_function *tile,
                             const void *gemm, void *stream)
{
    struct run run = {.frame = frame, .gemm = gemm, .tile = tile};
    enum ddp_status status = ddp_gemm_check(frame);
    if (status || frame->m == 0 || frame->n == 0)
        return status;
    run.grid = ddp_gemm_grid_cut(frame->m, frame->n, frame->k);
    struct ddp_signals signals; /* of this thread, which computes tiles too */
    ddp_signals_hold(&signals);
    ddp_pool_run(ddp_stream_pool(stream), run.grid.count, tile_task, &run);
    ddp_signals_release(&signals);
    return result(&run);
}

enum ddp_status ddp_gemm_run_serial(const struct ddp_gemm_frame *frame,
                                    ddp_gemm_tile_function *tile, const void *gemm)
{
    struct run run = {.frame = frame, .gemm = gemm, .tile = tile};
    enum ddp_status status = ddp_gemm_check(frame);
    if (status || frame->m == 0 || frame->n == 0)
        return status;
    struct ddp_signals signals;
    ddp_signals_hold(&signals);
    run_tile(&run, &(struct ddp_gemm_tile){.rows = frame->m, .columns = frame->n});
    ddp_signals_release(&signals);
    return result(&run);
}

/* Operand A from row `row` of op(A), operand B from column `column` of op(B). */
static const float *a_at(const struct ddp_gemm *gemm, int64_t row)
{
    return gemm->a + (gemm->transpose_a ? row : row * gemm->lda);
}

static const float *b_at(const struct ddp_gemm *gemm, int64_t column)
{
    return gemm->b + (gemm->transpose_b ? column * gemm->ldb : column);
}

#ifdef HAVE_ONEDNN
static int onednn_tile(const void *arg, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm *gemm = arg;
    ddp_gemm_stay_single();
    return (int)dnnl_sgemm(gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', tile->rows,
                           tile->columns, gemm->k, 1.0f, a_at(gemm, tile->row), gemm->lda,
                           b_at(gemm, tile->column), gemm->ldb, gemm->beta,
                           gemm->c + tile->row * gemm->ldc + tile->column, gemm->ldc);
}
#endif

static int plain_tile(const void *arg, const struct ddp_gemm_tile *tile)
{
    const struct ddp_gemm *gemm = arg;
    struct ddp_gemm part = *gemm;
    part.m = tile->rows;
    part.n = tile->columns;
    part.a = a_at(gemm, tile->row);
    part.b = b_at(gemm, tile->column);
    part.c = gemm->c + tile->row * gemm->ldc + tile->column;
    ddp_gemm_plain_tile(&part);
    return 0;
}

#ifdef HAVE_ONEDNN
#define best_tile onednn_tile
#else
#define best_tile plain_tile
#endif

enum ddp_status ddp_gemm_serial(const struct ddp_gemm *gemm)
{
    const enum ddp_status status = ddp_onednn_prepare(gemm->m == 1 || gemm->n == 1);
    return status == DDP_OK ? ddp_gemm_run_serial(&DDP_GEMM_FRAME("gemm", gemm), best_tile, gemm)
                            : status;
}

enum ddp_status ddp_gemm(const struct ddp_gemm *gemm, void *stream)
{
    const enum ddp_status status = ddp_onednn_prepare(gemm->m == 1 || gemm->n == 1);
    return status == DDP_OK ? ddp_gemm_run(&DDP_GEMM_FRAME("gemm", gemm), best_tile, gemm, stream)
                            : status;
}

enum ddp_status ddp_gemm_plain(const struct ddp_gemm *gemm, void *stream)
{
    return ddp_gemm_run(&DDP_GEMM_FRAME("gemm", gemm), plain_tile, gemm, stream);
}
