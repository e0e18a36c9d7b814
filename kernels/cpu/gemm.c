/* SPDX-License-Identifier: MIT
 *
 * Matrix product on the CPU; see gemm.h. Tiles of C are tasks. A tile is one single-threaded
 * product over the whole of K: by oneDNN where the build has it, else by gemm_plain.c. */
#include "config.h"

#include "kernels/cpu/gemm.h"

#include "core/bf16.h"
#include "core/log.h"
#include "core/thread.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_plain.h"
#include "kernels/cpu/onednn.h"

#include <stdatomic.h>

/* The largest tile; and how far a product is cut to occupy more threads: to tiles of this much work
 * at least. */
#define TILE_ROWS     256
#define TILE_COLUMNS  DDP_GEMM_COLUMNS
#define SMALL_ROWS    64
#define SMALL_COLUMNS 128
#define TILES_WANTED  4
#define TILE_PRODUCTS 524288.0 /* multiplications: about 10 microseconds */

/* A whole product, k > 0, on the calling thread, without the epilogue. Returns 0, or the library's
 * status. */
typedef int product_function(const struct ddp_gemm *gemm);

/* A product on its way, and the grid that C is cut on. */
struct run {
    const struct ddp_gemm *gemm;
    product_function *product;
    int64_t tile_rows, tile_columns, column_tiles;
    int64_t first_tile, panel_tiles; /* the columns of tiles that are run together */
    int64_t first_column;            /* where B begins */
    size_t count;
    atomic_int error; /* of the library, from any thread */
};

struct tile {
    int64_t row, rows, column, columns;
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

/* Depends on the shape alone; m, n >= 1. Columns are cut first: then every part of B is packed
 * once. */
static void cut_grid(struct run *run)
{
    const int64_t m = run->gemm->m, n = run->gemm->n, k = run->gemm->k;
    int64_t down = divide_up(m, TILE_ROWS), across = divide_up(n, TILE_COLUMNS);
    const double tiles = (double)m * (double)n * (double)k / TILE_PRODUCTS;
    const int64_t wanted = tiles < TILES_WANTED ? (int64_t)tiles : TILES_WANTED;
    while (down * across < wanted && n / (across + 1) >= SMALL_COLUMNS)
        across++;
    while (down * across < wanted && m / (down + 1) >= SMALL_ROWS)
        down++;
    run->tile_rows = even_part(m, down, 8);
    run->tile_columns = even_part(n, across, 16);
    run->column_tiles = divide_up(n, run->tile_columns);
}

/* Column tiles [first, end). */
static void select_tiles(struct run *run, int64_t first, int64_t end)
{
    run->first_tile = first;
    run->panel_tiles = end - first;
    run->count = (size_t)(divide_up(run->gemm->m, run->tile_rows) * run->panel_tiles);
}

static struct tile tile_at(const struct run *run, size_t index)
{
    struct tile tile = {
        .row = (int64_t)index / run->panel_tiles * run->tile_rows,
        .column = (run->first_tile + (int64_t)index % run->panel_tiles) * run->tile_columns,
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
    if (gemm->b_bf16 && k > 0 &&
        (gemm->bf16 || !gemm->b || gemm->ldb < (gemm->transpose_b ? k : n)))
        return ddp_fail(DDP_ERR_INVALID, "%s: b cannot be unpacked", name_of(gemm));
    if (!gemm->c || (k > 0 && (!gemm->a || !gemm->b)))
        return ddp_fail(DDP_ERR_INVALID, "%s: a, b or c is NULL", name_of(gemm));
    if (gemm->ldc < n || (k > 0 && (gemm->lda < (gemm->transpose_a ? m : k) ||
                                    gemm->ldb < (gemm->transpose_b ? k : n))))
        return ddp_fail(
            DDP_ERR_INVALID, "%s: a leading dimension is shorter than a row (%lld, %lld, %lld)",
            name_of(gemm), (long long)gemm->lda, (long long)gemm->ldb, (long long)gemm->ldc);
    return DDP_OK;
}

/* C = beta C, for k = 0, where the operands may be NULL and oneDNN would leave C as it is. */
static void empty_tile(const struct ddp_gemm *gemm, const struct tile *tile)
{
    for (int64_t i = tile->row; i < tile->row + tile->rows; i++)
        for (int64_t j = tile->column; j < tile->column + tile->columns; j++) {
            float *c = &gemm->c[i * gemm->ldc + j];
            *c = gemm->beta == 0 ? 0 : gemm->beta * *c;
        }
}

static const void *operand_at(const struct ddp_gemm *gemm, const void *operand, int64_t at)
{
    return (const char *)operand + at * (int64_t)(gemm->bf16 ? sizeof(uint16_t) : sizeof(float));
}

static void run_tile(struct run *run, const struct tile *tile)
{
    const struct ddp_gemm *gemm = run->gemm;
    if (gemm->k == 0) {
        empty_tile(gemm, tile);
        return;
    }
    struct ddp_gemm part = *gemm;
    part.m = tile->rows;
    part.n = tile->columns;
    part.a = operand_at(gemm, gemm->a, gemm->transpose_a ? tile->row : tile->row * gemm->lda);
    const int64_t column = tile->column - run->first_column;
    part.b = operand_at(gemm, gemm->b, gemm->transpose_b ? column * gemm->ldb : column);
    part.c = gemm->c + tile->row * gemm->ldc + tile->column;
    const int error = run->product(&part);
    if (error)
        atomic_store(&run->error, error);
}

static void tile_task(void *arg, size_t index)
{
    struct run *run = arg;
    const struct ddp_gemm *gemm = run->gemm;
    const struct tile tile = tile_at(run, index);
    run_tile(run, &tile);
    if (gemm->epilogue)
        gemm->epilogue(gemm->epilogue_arg, tile.row, tile.rows, tile.column, tile.columns);
}

/* --- B of bf16 -------------------------------------------------------------------------------- */

#define UNPACK_ELEMENTS 65536 /* of a task, about */

/* Lines of B, from one array to another. */
struct unpack {
    const uint16_t *from;
    float *to;
    int64_t from_step, to_step, width;
};

DDP_MULTIVERSION
static void unpack_lines(const void *arg, int64_t begin, int64_t end)
{
    const struct unpack *unpack = arg;
    for (int64_t line = begin; line < end; line++) {
        const uint16_t *restrict from = unpack->from + line * unpack->from_step;
        float *restrict to = unpack->to + line * unpack->to_step;
        for (int64_t i = 0; i < unpack->width; i++)
            to[i] = ddp_bf16_to_f32(from[i]);
    }
}

/* The columns of op(B) that the selected tiles read become the B of `panel`. */
static void unpack_panel(struct run *run, struct ddp_gemm *panel, const struct ddp_gemm *whole,
                         void *stream)
{
    const int64_t begin = run->first_tile * run->tile_columns;
    int64_t end = begin + run->panel_tiles * run->tile_columns;
    end = end < whole->n ? end : whole->n;
    const int64_t lines = whole->transpose_b ? end - begin : whole->k;
    const int64_t width = whole->transpose_b ? whole->k : end - begin;
    const uint16_t *b = whole->b;
    const struct unpack unpack = {b + (whole->transpose_b ? begin * whole->ldb : begin),
                                  whole->panel, whole->ldb, width, width};
    ddp_blocks_run(ddp_blocks_cut(lines, UNPACK_ELEMENTS / width + 1, 1), unpack_lines, &unpack,
                   stream);
    run->first_column = begin;
    panel->b = whole->panel;
    panel->ldb = width;
}

/* Panel after panel: the tiles are those of the whole product. */
static enum ddp_status run_panels(struct run *run, void *stream)
{
    const struct ddp_gemm *whole = run->gemm;
    struct ddp_gemm panel = *whole;
    const int64_t tiles = whole->panel_count / whole->k / run->tile_columns;
    const bool all = whole->panel && whole->panel_count / whole->k >= whole->n;
    if (!whole->panel || (tiles < 1 && !all))
        return ddp_fail(DDP_ERR_INVALID, "gemm: no memory to unpack b");
    run->gemm = &panel;
    for (int64_t first = 0; first < run->column_tiles; first += tiles) {
        const bool last = all || run->column_tiles - first < tiles;
        select_tiles(run, first, last ? run->column_tiles : first + tiles);
        unpack_panel(run, &panel, whole, stream);
        ddp_pool_run(ddp_stream_pool(stream), run->count, tile_task, run);
        if (last)
            break;
    }
    run->gemm = whole;
    return DDP_OK;
}

static enum ddp_status run_tiles(const struct ddp_gemm *gemm, product_function *product,
                                 bool serial, void *stream)
{
    struct run run = {.gemm = gemm, .product = product};
    enum ddp_status status = ddp_gemm_check(gemm);
    if (status || gemm->m == 0 || gemm->n == 0)
        return status;
    if (serial && gemm->b_bf16)
        return ddp_fail(DDP_ERR_INVALID, "gemm: b of bf16 is not for one thread");
    struct ddp_signals signals; /* of this thread, which computes tiles too */
    ddp_signals_hold(&signals);
    if (serial) {
        run_tile(&run, &(struct tile){.rows = gemm->m, .columns = gemm->n});
    } else {
        cut_grid(&run);
        select_tiles(&run, 0, run.column_tiles);
        if (gemm->b_bf16 && gemm->k > 0)
            status = run_panels(&run, stream);
        else
            ddp_pool_run(ddp_stream_pool(stream), run.count, tile_task, &run);
    }
    ddp_signals_release(&signals);
    if (status != DDP_OK)
        return status;
    return ddp_onednn_status(atomic_load(&run.error), name_of(gemm));
}

static enum ddp_status run_best(const struct ddp_gemm *gemm, bool serial, void *stream)
{
    product_function *product = ddp_gemm_plain_tile;
#ifdef HAVE_ONEDNN
    if (!gemm->bf16 || ddp_gemm_bf16_native())
        product = ddp_onednn_multiply;
#endif
    const enum ddp_status status = ddp_onednn_prepare(gemm->m == 1 || gemm->n == 1);
    return status == DDP_OK ? run_tiles(gemm, product, serial, stream) : status;
}

enum ddp_status ddp_gemm(const struct ddp_gemm *gemm, void *stream)
{
    return run_best(gemm, false, stream);
}

enum ddp_status ddp_gemm_serial(const struct ddp_gemm *gemm)
{
    return run_best(gemm, true, NULL);
}

enum ddp_status ddp_gemm_plain(const struct ddp_gemm *gemm, void *stream)
{
    return run_tiles(gemm, ddp_gemm_plain_tile, false, stream);
}
