/* SPDX-License-Identifier: MIT
 *
 * Which elements of a matrix the lanes of a warp hold: layouts.cc compares this with NVIDIA's own
 * tables. */
#include "config.h"

#include "tests/ptxsim/machine.h"

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", of which those of
 * mma.m16n8k8 with .f16 are the first half. With group = lane / 4 and
 * t = lane % 4, the elements of a lane in the order of its registers, the lower half first:
 *   A  a0..a7: row group (a0 a1 a4 a5) or group + 8, column 2 t + (i & 1), and 8 more from a4 on
 *   B  b0..b3: row 2 t + (i & 1), and 8 more from b2 on, column group
 *   C  c0..c3: row group (c0 c1) or group + 8, column 2 t + (i & 1) */
int ptx_mma_row(char matrix, int lane, int i)
{
    const int group = lane / 4, t = lane % 4;
    return matrix == 'a'   ? group + (i & 2 ? 8 : 0)
           : matrix == 'b' ? 2 * t + (i & 1) + (i & 2 ? 8 : 0)
                           : group + (i & 2 ? 8 : 0);
}

int ptx_mma_column(char matrix, int lane, int i)
{
    return matrix == 'b' ? lane / 4 : 2 * (lane % 4) + (i & 1) + (i & 4 ? 8 : 0);
}

/* PTX ISA, "ldmatrix": the element of each matrix that a lane gets, in a half of its register. */
void ptx_matrix_element(bool transposed, int lane, int half, int *row, int *column)
{
    *row = transposed ? 2 * (lane % 4) + half : lane / 4;
    *column = transposed ? lane / 4 : 2 * (lane % 4) + half;
}
