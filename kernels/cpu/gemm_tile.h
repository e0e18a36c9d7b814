/* SPDX-License-Identifier: MIT
 *
 * Tiles of a product, each on one thread. */
#ifndef DDP_KERNELS_CPU_GEMM_TILE_H
#define DDP_KERNELS_CPU_GEMM_TILE_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"

struct ddp_gemm_tile {
    int64_t row, rows, column, columns;
};

/* Depths of the next part of a sum that still has `rest` (of pairs, with bf16): see gemm.h. */
#define DDP_GEMM_PART 384
static inline int64_t ddp_gemm_part(int64_t rest)
{
    return rest >= 2 * DDP_GEMM_PART ? DDP_GEMM_PART : rest > DDP_GEMM_PART ? (rest + 1) / 2 : rest;
}

/* One tile of a product with k >= 1, and its epilogue; by the micro-kernels for a set. The bits do
 * not depend on the tile, nor on the set. false: there is no memory to pack operands into. */
bool ddp_gemm_tile_run(const struct ddp_gemm *gemm, const struct ddp_gemm_tile *tile,
                       enum ddp_isa isa);

/* Values that lie in blocks: `count` of element `first` on, as the product takes them. */
static inline void ddp_gemm_unpack(const struct ddp_gemm *gemm, int64_t first, int64_t count,
                                   void *to)
{
    if (gemm->bf16)
        ddp_blocks_round(gemm->b_block, gemm->b, first, count, to);
    else
        ddp_blocks_unpack(gemm->b_block, gemm->b, first, count, to);
}

/* The same in plain C, element by element: slow. */
bool ddp_gemm_tile_plain(const struct ddp_gemm *gemm, const struct ddp_gemm_tile *tile);

#endif
