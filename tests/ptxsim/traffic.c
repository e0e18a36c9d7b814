/* SPDX-License-Identifier: MIT
 *
 * What memory is made to move for the requests of warps, against the least that their bytes need.
 * Global memory moves sectors of 32 bytes. The least are those of as many bytes in a row, from the
 * lowest address on: where arrays begin is not the kernel's choice. Shared memory moves a word of
 * each of its 32 banks at a time, for 8 lanes together where they ask for 16 bytes each, for 16
 * lanes where for 8.
 */
#include "config.h"

#include "tests/ptxsim/machine.h"

enum { SECTOR = 32, BANKS = 32, WORD = 4 };

/* Those of `from` that differ, each divided by `unit`, in `to`. Returns how many. */
static unsigned distinct(const uint64_t *from, unsigned count, unsigned unit, uint64_t *to)
{
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint64_t value = from[i] / unit;
        unsigned same = found; /* neighbours ask for neighbours: the last is the likeliest */
        while (same && to[same - 1] != value)
            same--;
        if (!same)
            to[found++] = value;
    }
    return found;
}

static unsigned most_of_a_bank(const uint64_t *at, unsigned count, unsigned bytes)
{
    uint64_t pieces[PTX_WARP];
    unsigned of_bank[BANKS] = {0}, most = 0;
    const unsigned unit = bytes < WORD ? WORD : bytes;
    const unsigned found = distinct(at, count, unit, pieces);
    for (unsigned i = 0; i < found; i++)
        for (unsigned word = 0; word < unit / WORD; word++) {
            const unsigned in = ++of_bank[(pieces[i] * (unit / WORD) + word) % BANKS];
            most = in > most ? in : most;
        }
    return most;
}

static unsigned least_sectors(const uint64_t *at, unsigned count, unsigned bytes)
{
    uint64_t pieces[PTX_WARP], lowest = at[0];
    for (unsigned i = 1; i < count; i++)
        lowest = at[i] < lowest ? at[i] : lowest;
    const unsigned room = (unsigned)(lowest % SECTOR) + distinct(at, count, bytes, pieces) * bytes;
    return (room + SECTOR - 1) / SECTOR;
}

void ptx_note_traffic(struct ptx_warp *w, const struct ptx_ins *ins, enum ptx_space space,
                      const uint64_t *at, uint32_t lanes, unsigned bytes)
{
    const struct ptx_kernel *k = w->block->launch->kernel;
    struct ptx_traffic *t = &k->traffic[ins - k->code];
    uint64_t asked[PTX_WARP], pieces[PTX_WARP];
    const int together = space == PTX_GLOBAL || bytes < 8 ? PTX_WARP : bytes == 8 ? 16 : 8;
    for (int first = 0; first < PTX_WARP; first += together) {
        unsigned count = 0;
        for (int l = first; l < first + together; l++)
            if (lanes >> l & 1)
                asked[count++] = at[l];
        if (count && space == PTX_GLOBAL) {
            t->moves[0] += distinct(asked, count, SECTOR, pieces);
            t->least[0] += least_sectors(asked, count, bytes);
        } else if (count) {
            t->moves[1] += most_of_a_bank(asked, count, bytes);
            t->least[1]++;
        }
    }
}
