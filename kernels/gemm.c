/* SPDX-License-Identifier: MIT
 *
 * Matrix product on the CPU; see gemm.h. Tiles of C are tasks. A tile is one single-threaded
 * product over the whole of K: by oneDNN where the build has it, else by gemm_plain.c. */
#include "config.h"

#include "kernels/gemm.h"

#include "core/log.h"
#include "kernels/cpu.h"
#include "kernels/gemm_plain.h"

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

struct product {
    const struct ddp_gemm *gemm;
    int64_t tile_rows, tile_columns;
    int64_t column_tiles;
    void (*tile)(struct product *product, int64_t row, int64_t rows, int64_t column,
                 int64_t columns);
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

/* The grid depends on the shape alone. Columns are cut first: then every part of B is packed once.
 */
static void choose_grid(struct product *product)
{
    const struct ddp_gemm *gemm = product->gemm;
    int64_t down = divide_up(gemm->m, TILE_ROWS), across = divide_up(gemm->n, TILE_COLUMNS);
    const double tiles = (double)gemm->m * (double)gemm->n * (double)gemm->k / TILE_PRODUCTS;
    const int64_t wanted = tiles < TILES_WANTED ? (int64_t)tiles : TILES_WANTED;
    while (down * across < wanted && gemm->n / (across + 1) >= SMALL_COLUMNS)
        across++;
    while (down * across < wanted && gemm->m / (down + 1) >= SMALL_ROWS)
        down++;
    product->tile_rows = even_part(gemm->m, down, 8);
    product->tile_columns = even_part(gemm->n, across, 16);
    product->column_tiles = divide_up(gemm->n, product->tile_columns);
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
static void onednn_tile(struct product *product, int64_t row, int64_t rows, int64_t column,
                        int64_t columns)
{
#ifdef HAVE_GOMP
    /* Outside a parallel region each call would start a team of its own. The setting is the calling
     * thread's. */
    static _Thread_local bool single;
    if (!single)
        omp_set_num_threads(1);
    single = true;
#endif
    const struct ddp_gemm *gemm = product->gemm;
    dnnl_status_t status =
        dnnl_sgemm(gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', rows, columns,
                   gemm->k, 1.0f, a_at(gemm, row), gemm->lda, b_at(gemm, column), gemm->ldb,
                   gemm->beta, gemm->c + row * gemm->ldc + column, gemm->ldc);
    if (status != dnnl_success)
        atomic_store(&product->error, (int)status);
}
#endif

static void plain_tile(struct product *product, int64_t row, int64_t rows, int64_t column,
                       int64_t columns)
{
    const struct ddp_gemm *gemm = product->gemm;
    struct ddp_gemm tile = *gemm;
    tile.m = rows;
    tile.n = columns;
    tile.a = a_at(gemm, row);
    tile.b = b_at(gemm, column);
    tile.c = gemm->c + row * gemm->ldc + column;
    ddp_gemm_plain_tile(&tile);
}

/* For k = 0, where the operands may be NULL. */
static void empty_tile(struct product *product, int64_t row, int64_t rows, int64_t column,
                       int64_t columns)
{
    const struct ddp_gemm *gemm = product->gemm;
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = column; j < column + columns; j++) {
            float *c = &gemm->c[i * gemm->ldc + j];
            *c = gemm->beta == 0 ? 0 : gemm->beta * *c;
        }
}

static void tile_task(void *arg, size_t index)
{
    struct product *product = arg;
    const struct ddp_gemm *gemm = product->gemm;
    int64_t row = (int64_t)index / product->column_tiles * product->tile_rows;
    int64_t column = (int64_t)index % product->column_tiles * product->tile_columns;
    int64_t rows = gemm->m - row < product->tile_rows ? gemm->m - row : product->tile_rows;
    int64_t columns =
        gemm->n - column < product->tile_columns ? gemm->n - column : product->tile_columns;
    product->tile(product, row, rows, column, columns);
    if (gemm->epilogue)
        gemm->epilogue(gemm->epilogue_arg, row, rows, column, columns);
}

static enum ddp_status check(const struct ddp_gemm *gemm)
{
    const int64_t m = gemm->m, n = gemm->n, k = gemm->k;
    if (m < 0 || n < 0 || k < 0)
        return ddp_fail(DDP_ERR_INVALID, "gemm: negative size (%lld x %lld x %lld)", (long long)m,
                        (long long)n, (long long)k);
    if (m == 0 || n == 0)
        return DDP_OK;
    if (!gemm->c || (k > 0 && (!gemm->a || !gemm->b)))
        return ddp_fail(DDP_ERR_INVALID, "gemm: a, b or c is NULL");
    if (gemm->ldc < n || (k > 0 && (gemm->lda < (gemm->transpose_a ? m : k) ||
                                    gemm->ldb < (gemm->transpose_b ? k : n))))
        return ddp_fail(DDP_ERR_INVALID,
                        "gemm: a leading dimension is shorter than a row (%lld, %lld, %lld)",
                        (long long)gemm->lda, (long long)gemm->ldb, (long long)gemm->ldc);
    return DDP_OK;
}

static enum ddp_status run(struct product *product, void *stream)
{
    const struct ddp_gemm *gemm = product->gemm;
    enum ddp_status status = check(gemm);
    if (status || gemm->m == 0 || gemm->n == 0)
        return status;
    if (gemm->k == 0)
        product->tile = empty_tile; /* oneDNN would leave C as it is */
    choose_grid(product);
    int64_t row_tiles = divide_up(gemm->m, product->tile_rows);
    ddp_pool_run(ddp_stream_pool(stream), (size_t)(row_tiles * product->column_tiles), tile_task,
                 product);
    int error = atomic_load(&product->error);
    if (error)
        return ddp_fail(DDP_ERR_SYSTEM, "gemm: oneDNN's sgemm failed with status %d", error);
    return DDP_OK;
}

enum ddp_status ddp_gemm(const struct ddp_gemm *gemm, void *stream)
{
#ifdef HAVE_ONEDNN
    struct product product = {.gemm = gemm, .tile = onednn_tile};
#else
    struct product product = {.gemm = gemm, .tile = plain_tile};
#endif
    return run(&product, stream);
}

enum ddp_status ddp_gemm_plain(const struct ddp_gemm *gemm, void *stream)
{
    struct product product = {.gemm = gemm, .tile = plain_tile};
    return run(&product, stream);
}

enum ddp_status ddp_gemm_reference(const struct ddp_gemm *gemm, void *stream)
{
    (void)stream;
    enum ddp_status status = check(gemm);
    if (status)
        return status;
    for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < gemm->k; l++)
                sum += (double)gemm->a[gemm->transpose_a ? l * gemm->lda + i : i * gemm->lda + l] *
                       (double)gemm->b[gemm->transpose_b ? j * gemm->ldb + l : l * gemm->ldb + j];
            float *c = &gemm->c[i * gemm->ldc + j];
            if (gemm->beta != 0)
                sum += (double)gemm->beta * (double)*c;
            *c = (float)sum;
        }
    if (gemm->epilogue && gemm->m > 0 && gemm->n > 0)
        gemm->epilogue(gemm->epilogue_arg, 0, gemm->m, 0, gemm->n);
    return DDP_OK;
}
