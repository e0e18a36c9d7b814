/* SPDX-License-Identifier: MIT
 *
 * What the products of gemm.h and gemm_bf16.h share: the grid of tiles. */
#ifndef DDP_KERNELS_GEMM_TILES_H
#define DDP_KERNELS_GEMM_TILES_H

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

/* C = beta C, for k = 0, where the operands may be NULL and oneDNN would leave C as it is. */
void ddp_gemm_empty_tile(float *c, int64_t ldc, const struct ddp_gemm_tile *tile, float beta);

/* Keeps oneDNN on the calling thread: outside a parallel region of OpenMP each of its calls would
 * start a team of its own. */
void ddp_gemm_stay_single(void);

#endif
