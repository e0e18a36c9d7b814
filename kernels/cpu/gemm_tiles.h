/* SPDX-License-Identifier: MIT
 *
 * What the products of gemm.h and gemm_bf16.h share: the arguments but for the operands' type, the
 * grid of tiles, and its run. */
#ifndef DDP_KERNELS_CPU_GEMM_TILES_H
#define DDP_KERNELS_CPU_GEMM_TILES_H

#include "ddp.h"

/* C (m,n) cut into tiles. */
struct ddp_gemm_grid {
    int64_t m, n;
    int64_t tile_rows, tile_columns;
    int64_t column_tiles;
    size_t count;
};

struct ddp_gemm_tile {
    int64_t row, rows, column, columns;
};

/* Depends on the shape alone; m, n >= 1. Columns are cut first: then every part of B is packed
 * once. */
struct ddp_gemm_grid ddp_gemm_grid_cut(int64_t m, int64_t n, int64_t k);

struct ddp_gemm_tile ddp_gemm_grid_tile(const struct ddp_gemm_grid *grid, size_t index);

/* A product without the type of its operands; fields as in struct ddp_gemm. */
struct ddp_gemm_frame {
    const char *name; /* in messages */
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const void *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    float beta;
    void (*epilogue)(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *epilogue_arg;
};

/* The frame of a struct ddp_gemm or ddp_gemm_bf16. */
#define DDP_GEMM_FRAME(name_, gemm)                                                                \
    ((struct ddp_gemm_frame){(name_), (gemm)->transpose_a, (gemm)->transpose_b, (gemm)->m,         \
                             (gemm)->n, (gemm)->k, (gemm)->a, (gemm)->b, (gemm)->c, (gemm)->lda,   \
                             (gemm)->ldb, (gemm)->ldc, (gemm)->beta, (gemm)->epilogue,             \
                             (gemm)->epilogue_arg})

/* DDP_ERR_INVALID as ddp_gemm() says. */
enum ddp_status ddp_gemm_check(const struct ddp_gemm_frame *frame);

/* One tile of the product `gemm` (a struct ddp_gemm or ddp_gemm_bf16), k > 0; from any thread.
 * Returns 0, or the library's status. */
typedef int ddp_gemm_tile_function(const void *gemm, const struct ddp_gemm_tile *tile);

/* Checks, cuts the grid, runs `tile` and the epilogue on each tile. */
enum ddp_status ddp_gemm_run(const struct ddp_gemm_frame *frame, ddp_gemm_tile_function *tile,
                             const void *gemm, void *stream);

/* The same with the whole as one tile on the calling thread, without the epilogue. */
enum ddp_status ddp_gemm_run_serial(const struct ddp_gemm_frame *frame,
                                    ddp_gemm_tile_function *tile, const void *gemm);

/* Keeps oneDNN on the calling thread: outside a parallel region of OpenMP each of its calls would
 * start a team of its own. */
void ddp_gemm_stay_single(void);

#endif
