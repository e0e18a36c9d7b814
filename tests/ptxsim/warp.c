/* SPDX-License-Identifier: MIT
 *
 * What the lanes of a warp do together: shuffles, votes, and the products of tensor cores. The
 * lanes that run() passes are those that have come together for it. */
#include "config.h"

#include "tests/ptxsim/machine.h"

#include <string.h>

/* PTX ISA, "membermask": the lanes that take part, the same in all of them, each in its own. */
static uint32_t members(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const uint32_t *mask = PTX_U32(w, i->o[0]), first = mask[__builtin_ctz(lanes)];
    PTX_EACH(lanes, if (mask[l] != first || !(first >> l & 1))
                        ptx_report(w, i, l, "wrong member mask", "%#x, with lanes %#x of mask %#x",
                                   mask[l], lanes, first));
    return first;
}

/* PTX ISA, "shfl.sync". Operands: mask, d, a, b, c, p. */
void ptx_shuffle(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const uint32_t mask = members(w, i, lanes);
    uint32_t from[PTX_WARP], inside = 0;
    memcpy(from, PTX_U32(w, i->o[2]), sizeof from);
    for (int l = 0; l < PTX_WARP; l++) {
        if (!(lanes >> l & 1))
            continue;
        const int b = (int)(PTX_U32(w, i->o[3])[l] & 31), c = (int)(PTX_U32(w, i->o[4])[l] & 31);
        const int segment = (int)(PTX_U32(w, i->o[4])[l] >> 8 & 31);
        const int most = (l & segment) | (c & ~segment), least = l & segment;
        const int of[] = {l - b, l + b, l ^ b, least | (b & ~segment)}; /* up down bfly idx */
        int lane = of[i->mode];
        const bool valid = i->mode == 0 ? lane >= most : lane <= most;
        if (!valid)
            lane = l;
        if (!(lanes & mask & 1U << lane))
            ptx_report(w, i, l, "shuffle", "of lane %d, which takes no part: mask %#x, lanes %#x",
                       lane, mask, lanes);
        if (!i->o[1].none)
            PTX_U32(w, i->o[1])[l] = from[lane];
        inside |= (uint32_t)valid << l;
    }
    ptx_set_predicate(w, &i->o[5], inside, lanes);
}

/* vote.sync.ballot: mask, d, p */
void ptx_vote(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const uint32_t votes = ptx_predicate(w, &i->o[2]) & members(w, i, lanes) & lanes;
    PTX_EACH(lanes, PTX_U32(w, i->o[1])[l] = votes);
}

/* PTX ISA, "bar.warp.sync": orders memory accesses among the participating threads, of which all
 * that live count here. */
void ptx_sync_warp(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    if ((members(w, i, lanes) & w->live) == w->live)
        w->synced = ptx_tick(w->block);
}

/* Products are exact in double, and are added to c in the order of k: which order a tensor core
 * takes, and how it rounds, is not specified. Operands: d, a, b, c. */
void ptx_mma(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    float a[16][16], b[16][8], c[16][8];
    const int columns = i->vector, right = 4 + columns / 4, sums = right + columns / 8;
    (void)lanes;
    for (int l = 0; l < PTX_WARP; l++) {
        for (int e = 0; e < columns / 2; e++)
            a[ptx_mma_row('a', l, e)][ptx_mma_column('a', l, e)] =
                ptx_half(i->from, PTX_U32(w, i->o[4 + e / 2])[l], e & 1);
        for (int e = 0; e < columns / 4; e++)
            b[ptx_mma_row('b', l, e)][ptx_mma_column('b', l, e)] =
                ptx_half(i->from, PTX_U32(w, i->o[right + e / 2])[l], e & 1);
        for (int e = 0; e < 4; e++)
            c[ptx_mma_row('c', l, e)][ptx_mma_column('c', l, e)] = PTX_F32(w, i->o[sums + e])[l];
    }
    for (int row = 0; row < 16 && !w->block->launch->no_products; row++)
        for (int column = 0; column < 8; column++) {
            double sum = (double)c[row][column];
            for (int k = 0; k < columns; k++)
                sum += (double)a[row][k] * (double)b[k][column];
            c[row][column] = (float)sum;
        }
    for (int l = 0; l < PTX_WARP; l++)
        for (int e = 0; e < 4; e++)
            PTX_F32(w, i->o[e])[l] = c[ptx_mma_row('c', l, e)][ptx_mma_column('c', l, e)];
}

/* PTX ISA, "ldmatrix": lane 8 n + r gives the address of row r of matrix n. */
void ptx_load_matrix(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    uint32_t got[4][PTX_WARP];
    uint64_t at[PTX_WARP];
    (void)lanes;
    for (int l = 0; l < PTX_WARP; l++) {
        at[l] = ptx_value(w, &i->o[0], l) + (uint64_t)i->o[0].plus;
        if (at[l] % 16) {
            ptx_report(w, i, l, "misaligned", "a row of a matrix at %#llx",
                       (unsigned long long)at[l]);
            return;
        }
        if (!ptx_in_bounds(w, i, l, at[l], 16, PTX_SHARED))
            return;
        ptx_note_read(w, i, -1, at[l], 16, PTX_SHARED);
    }
    ptx_note_traffic(w, i, PTX_SHARED, at, PTX_FULL, 16);
    for (int n = 0; n < 4; n++)
        for (int l = 0; l < PTX_WARP; l++) {
            uint16_t element[2];
            for (int half = 0; half < 2; half++) {
                int row, column;
                ptx_matrix_element(i->transposed, l, half, &row, &column);
                memcpy(&element[half], w->block->shared + at[8 * n + row] + 2 * column,
                       sizeof *element);
            }
            got[n][l] = (uint32_t)element[1] << 16 | element[0];
        }
    for (int n = 0; n < 4; n++)
        memcpy(PTX_U32(w, i->o[1 + n]), got[n], sizeof got[n]);
}
