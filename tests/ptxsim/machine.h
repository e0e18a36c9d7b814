/* SPDX-License-Identifier: MIT
 *
 * Inside the interpreter: warps, blocks, and what the handlers of instructions use. */
#ifndef DDP_TESTS_PTXSIM_MACHINE_H
#define DDP_TESTS_PTXSIM_MACHINE_H

#include "tests/ptxsim/ptx.h"

enum ptx_wait { PTX_RUNS, PTX_WAITS, PTX_AT_BARRIER };

/* Lanes of a warp that are at the same instruction. */
struct ptx_group {
    int at;
    uint32_t lanes;
    enum ptx_wait wait;
};

/* cp.async that was not waited for. */
struct ptx_copy {
    uint64_t to, from;
    unsigned bytes; /* that are read; the rest of the 16 are zeros */
    int lane;
};

struct ptx_warp {
    char *registers;
    struct ptx_block *block;
    int id;
    uint32_t live;   /* lanes that have not exited */
    uint32_t synced; /* time of the last bar.warp.sync of all that live */
    struct ptx_group group[PTX_WARP];
    int groups;
    const struct ptx_ins *barrier; /* where it waits */
    struct ptx_copy *copy;
    int copies, copy_room;
};

/* Times count the barriers of the process, of whatever kind: what happened before a time happened
 * before the barrier that began it. */
struct ptx_block {
    const struct ptx_launch *launch;
    ptx_lookup *lookup;
    unsigned index[3];
    int threads, warps;
    uint32_t shared_bytes;
    unsigned char *shared;
    uint32_t now;
    uint32_t launched, began, synced; /* times: of the launch, of the block, of its last barrier */
    uint64_t start, end;              /* of the memory that was looked up last */
    bool watched;
    uint64_t reports;
    struct ptx_warp warp[PTX_MAX_WARPS];
};

uint32_t ptx_tick(struct ptx_block *block); /* a new time */

/* Something is wrong, in the words of `format`. kind: a static string. One line for each kind and
 * instruction of a launch; all are counted. */
void ptx_report(struct ptx_warp *warp, const struct ptx_ins *ins, int lane, const char *kind,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
/* "FILE:LINE", valid for the next few calls. */
const char *ptx_place(const struct ptx_kernel *kernel, const struct ptx_ins *ins);

/* --- registers --- */

#define PTX_U32(w, o) ((uint32_t *)((w)->registers + (o).at))
#define PTX_S32(w, o) ((int32_t *)((w)->registers + (o).at))
#define PTX_F32(w, o) ((float *)((w)->registers + (o).at))
#define PTX_U64(w, o) ((uint64_t *)((w)->registers + (o).at))
#define PTX_S64(w, o) ((int64_t *)((w)->registers + (o).at))
#define PTX_F64(w, o) ((double *)((w)->registers + (o).at))

static inline uint64_t ptx_value(const struct ptx_warp *w, const struct ptx_operand *o, int lane)
{
    return o->bytes == 8 ? PTX_U64(w, *o)[lane] : PTX_U32(w, *o)[lane];
}

static inline void ptx_put(const struct ptx_warp *w, const struct ptx_operand *to, int lane,
                           uint64_t value)
{
    if (to->none)
        return;
    if (to->bytes == 8)
        PTX_U64(w, *to)[lane] = value;
    else
        PTX_U32(w, *to)[lane] = (uint32_t)value;
}

static inline uint32_t ptx_predicate(const struct ptx_warp *w, const struct ptx_operand *o)
{
    return o->negated ? ~*PTX_U32(w, *o) : *PTX_U32(w, *o);
}

static inline void ptx_set_predicate(const struct ptx_warp *w, const struct ptx_operand *o,
                                     uint32_t value, uint32_t lanes)
{
    if (!o->none)
        *PTX_U32(w, *o) = (*PTX_U32(w, *o) & ~lanes) | (value & lanes);
}

/* For each lane of a mask: full warps are loops that a compiler makes vectors of, as two registers
 * are one or have nothing in common. */
#ifdef __clang__
#define PTX_LANES_APART
#else
#define PTX_LANES_APART _Pragma("GCC ivdep")
#endif
#define PTX_EACH(lanes, statement)                                                                 \
    do {                                                                                           \
        if ((lanes) == PTX_FULL) {                                                                 \
            PTX_LANES_APART                                                                        \
            for (int l = 0; l < PTX_WARP; l++) {                                                   \
                statement;                                                                         \
            }                                                                                      \
        } else {                                                                                   \
            for (int l = 0; l < PTX_WARP; l++)                                                     \
                if ((lanes) >> l & 1) {                                                            \
                    statement;                                                                     \
                }                                                                                  \
        }                                                                                          \
    } while (0)

/* --- instructions --- */

/* The table of those that compute on registers: name without rounding and other modifiers; for each
 * operand 4 or 8 bytes, 'p' for a predicate, '?' for any. */
struct ptx_operation {
    const char *name, *operands;
    ptx_handler *run;
};
extern const struct ptx_operation ptx_integers[], ptx_floats[], ptx_moves[];

ptx_handler ptx_convert;
ptx_handler ptx_load, ptx_store, ptx_copy_start, ptx_copies_wait;
ptx_handler ptx_shuffle, ptx_vote, ptx_sync_warp, ptx_mma, ptx_load_matrix;

/* Element `half` of two bf16 or float16 in a word. */
float ptx_half(struct ptx_type type, uint32_t word, int half);

/* Where the elements of fragments are (warp.c). */
int ptx_mma_row(char matrix, int lane, int i);
int ptx_mma_column(char matrix, int lane, int i);
void ptx_matrix_element(bool transposed, int lane, int half, int *row, int *column);

/* Noted of an access of these lanes, `bytes` at at[lane] each (traffic.c). */
void ptx_note_traffic(struct ptx_warp *w, const struct ptx_ins *ins, enum ptx_space space,
                      const uint64_t *at, uint32_t lanes, unsigned bytes);

/* --- memory (races.c): what is known of it, noted for one access --- */

void ptx_shared_begin(struct ptx_block *block); /* of a launch */
/* lane < 0: any of the warp, which has no order with any other lane's access */
void ptx_note_read(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                   unsigned bytes, enum ptx_space space);
/* data: what is written; NULL: not known yet */
void ptx_note_write(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                    unsigned bytes, enum ptx_space space, const unsigned char *data);
void ptx_note_copy(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                   bool arrived);
/* False, with a report: not all of it is memory. */
bool ptx_in_bounds(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                   unsigned bytes, enum ptx_space space);

#endif
