/* SPDX-License-Identifier: MIT
 *
 * What gemm_tile.c needs of an instruction set: micro-kernels, which keep a block of C in
 * registers, and the packing of operands into what they read. */
#ifndef DDP_KERNELS_CPU_GEMM_MICRO_H
#define DDP_KERNELS_CPU_GEMM_MICRO_H

#include "core/multiversion.h"
#include "kernels/cpu/isa.h"

#include <stdint.h>

#define DDP_GEMM_ROWS_MOST    14 /* of a micro-kernel, on any set */
#define DDP_GEMM_VECTORS_MOST 3

/* What one depth of an operand becomes when packed: always 32 bits. */
enum ddp_gemm_form {
    DDP_GEMM_F32,     /* float32 as it is */
    DDP_GEMM_WIDENED, /* bf16 as float32 */
    DDP_GEMM_SWAPPED, /* the same in pairs along K, the odd one first; zero after an odd K */
    DDP_GEMM_PAIRS,   /* such a pair in one depth, the odd one in the upper half */
};

/* How many packed depths so many become. */
DDP_INLINE int64_t ddp_gemm_packed(int64_t depths, enum ddp_gemm_form form)
{
    return form == DDP_GEMM_PAIRS     ? (depths + 1) / 2
           : form == DDP_GEMM_SWAPPED ? (depths + 1) / 2 * 2
                                      : depths;
}

/* Lines (rows of op(A) or columns of op(B)) to be packed. */
struct ddp_gemm_lines {
    const void *from; /* the first element of the first line */
    int64_t step;     /* elements: along K if `along`, else from line to line */
    bool along;       /* lines lie side by side; else the elements of a line do */
    int64_t lines, depths;
    int64_t readable; /* lines from the first on that exist: may be read, and dropped */
    enum ddp_gemm_form form;
};

/* C = A B, or C += A B, of a block whose size the kernel stands for. */
struct ddp_gemm_micro {
    int64_t depths; /* packed ones */
    const float *a; /* packed: [depth][a_step]; in place: [row][a_step] */
    const float *b; /* [depth][b_step] */
    float *c;       /* [row][ldc] */
    float *copy;    /* B is packed to here on the way */
    int64_t a_step, b_step, ldc;
    int64_t columns; /* that C has; fewer than the kernel's only where the set has masks */
    bool add;
};
typedef void ddp_gemm_kernel(const struct ddp_gemm_micro *micro);

/* How a micro-kernel finds its operands. */
enum ddp_gemm_kind {
    DDP_GEMM_PACKED,
    DDP_GEMM_A_IN_PLACE, /* rows of A, each along K */
    DDP_GEMM_B_COPIED,   /* B in place, packed for the other rows */
    DDP_GEMM_KINDS
};

/* Rows of C, a multiple of DDP_GEMM_FEW or a single one: sums[row * columns.lines + j], a chain
 * over packed depths of x[row * (their number) + l] times column j. Several ask for columns that
 * lie side by side. */
#define DDP_GEMM_FEW  4
#define DDP_GEMM_ROWS 16
struct ddp_gemm_row {
    const float *x;
    int64_t rows;
    struct ddp_gemm_lines columns; /* not of form PAIRS */
    float *sums;
};

struct ddp_gemm_set {
    int lanes;   /* of a vector */
    int rows;    /* of the largest micro-kernel */
    int vectors; /* across it */
    bool masks;  /* the last vector of C may be cut */
    int wide;    /* rows up to which there are micro-kernels of a vector more; or 0 */
    /* By kind, rows - 1 and vectors - 1. */
    ddp_gemm_kernel *const (*kernels)[DDP_GEMM_ROWS_MOST][DDP_GEMM_VECTORS_MOST];
    /* to[depth * width + line]; between `lines` and `width`, a multiple of `lanes`, anything. */
    void (*pack)(float *to, int64_t width, const struct ddp_gemm_lines *lines);
    void (*row)(const struct ddp_gemm_row *row); /* of DDP_GEMM_ROWS at most */
    int few; /* rows up to which that is fastest where memory bounds a product */
};

/* NULL: there are no micro-kernels for it. */
const struct ddp_gemm_set *ddp_gemm_set(enum ddp_isa isa);
/* The micro-kernels of vdpbf16ps, for operands of DDP_GEMM_PAIRS; only packed, no rows. NULL: this
 * set has no such instruction. */
const struct ddp_gemm_set *ddp_gemm_pairs_set(enum ddp_isa isa);

#endif
