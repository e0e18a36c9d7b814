/* SPDX-License-Identifier: MIT
 *
 * One tile of a matrix product in plain C. Its bits are the same on every instruction set. */
#ifndef DDP_KERNELS_CPU_GEMM_PLAIN_H
#define DDP_KERNELS_CPU_GEMM_PLAIN_H

#include "kernels/cpu/gemm.h"

/* The whole product on the calling thread; k >= 1; the epilogue is not called. Products are added
 * in the order of k, in float32, in blocks of 256; bf16 is widened on its way into the strips.
 * Returns 0. */
int ddp_gemm_plain_tile(const struct ddp_gemm *gemm);

#endif
