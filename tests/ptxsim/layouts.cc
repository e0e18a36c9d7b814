/* SPDX-License-Identifier: MIT
 *
 * Where the elements of fragments are: ours (warp.c) beside NVIDIA's own tables, in the headers of
 * CUTLASS, compiled for the host. Prints how many elements were compared and how many differ. */
#include "config.h"

#include <cute/layout.hpp>

#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cstdio>

extern "C" {
#include "tests/ptxsim/machine.h"
}

static int compared, differ;

static void compare(int theirs, int ours)
{
    compared++;
    differ += theirs != ours;
}

/* Of a product of 16 x columns and columns x 8. */
template <typename MMA> static void compare_product(int columns)
{
    using mma = cute::MMA_Traits<MMA>;
    typename mma::ALayout a;
    typename mma::BLayout b;
    typename mma::CLayout c;
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < columns / 2; i++)
            compare(int(a(lane, i)), ptx_mma_row('a', lane, i) + 16 * ptx_mma_column('a', lane, i));
        for (int i = 0; i < columns / 4; i++)
            compare(int(b(lane, i)), ptx_mma_column('b', lane, i) + 8 * ptx_mma_row('b', lane, i));
        for (int i = 0; i < 4; i++)
            compare(int(c(lane, i)), ptx_mma_row('c', lane, i) + 16 * ptx_mma_column('c', lane, i));
    }
}

int main()
{
    using straight = cute::Copy_Traits<cute::SM75_U32x4_LDSM_N>;
    using transposed = cute::Copy_Traits<cute::SM75_U16x8_LDSM_T>;
    typename straight::SrcLayout rows;
    typename straight::DstLayout to;
    typename transposed::SrcLayout columns;
    typename transposed::DstLayout to_transposed;
    compare_product<cute::SM80_16x8x16_F32BF16BF16F32_TN>(16);
    compare_product<cute::SM80_16x8x16_F32F16F16F32_TN>(16);
    compare_product<cute::SM75_16x8x8_F32F16F16F32_TN>(8);
    for (int lane = 0; lane < 32; lane++)
        for (int n = 0; n < 4; n++)
            for (int half = 0; half < 2; half++) { /* of bits: 16 an element, 32 a register */
                int row, column;
                ptx_matrix_element(false, lane, half, &row, &column);
                compare(int(to(lane, 32 * n + 16 * half)), int(rows(8 * n + row, 16 * column)));
                ptx_matrix_element(true, lane, half, &row, &column);
                compare(int(to_transposed(lane, 32 * n + 16 * half)),
                        int(columns(8 * n + row, 16 * column)));
            }
    std::printf("%d elements, %d differ\n", compared, differ);
    return differ != 0;
}
