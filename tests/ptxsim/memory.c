/* SPDX-License-Identifier: MIT
 *
 * Loads, stores and asynchronous copies: PTX ISA, "Data Movement and Conversion Instructions". */
#include "config.h"

#include "tests/ptxsim/machine.h"

#include <stdlib.h>
#include <string.h>

bool ptx_in_bounds(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                   unsigned bytes, enum ptx_space space)
{
    struct ptx_block *b = w->block;
    const unsigned long long from = at;
    if (space == PTX_GLOBAL) {
        if (at >= b->start && at + bytes <= b->end)
            return true;
        if (!b->lookup(at, &b->start, &b->end, &b->watched)) {
            b->start = b->end = 0;
            ptx_report(w, ins, lane, "out of bounds", "%u bytes at %#llx: no memory of the device",
                       bytes, from);
            return false;
        }
    }
    const uint64_t start = space == PTX_GLOBAL   ? b->start
                           : space == PTX_SHARED ? PTX_SHARED_START
                                                 : 0;
    const uint64_t end = space == PTX_GLOBAL   ? b->end
                         : space == PTX_SHARED ? b->shared_bytes
                                               : b->launch->kernel->parameter_bytes;
    if (at >= start && at + bytes <= end)
        return true;
    ptx_report(w, ins, lane, "out of bounds", "%u bytes at byte %lld of %llu of %s memory", bytes,
               (long long)(at - start), (unsigned long long)(end - start),
               space == PTX_GLOBAL   ? "global"
               : space == PTX_SHARED ? "shared"
                                     : "parameter");
    return false;
}

/* Where the lanes of a warp access memory: operand `o` of the instruction. */
static void addresses(const struct ptx_warp *w, const struct ptx_ins *i, int o, uint64_t *at)
{
    const uint64_t plus = (uint64_t)i->o[o].plus;
    if (i->o[o].bytes == 8)
        PTX_EACH(PTX_FULL, at[l] = PTX_U64(w, i->o[o])[l] + plus);
    else
        PTX_EACH(PTX_FULL, at[l] = PTX_U32(w, i->o[o])[l] + plus);
}

/* Where an access of a lane goes; NULL, with a report, if it must not. data: what it writes. */
static unsigned char *access(struct ptx_warp *w, const struct ptx_ins *i, int lane, uint64_t at,
                             const unsigned char *data)
{
    const unsigned bytes = i->type.bits / 8U * i->vector;
    if (at % bytes) {
        ptx_report(w, i, lane, "misaligned", "%u bytes at %#llx", bytes, (unsigned long long)at);
        return NULL;
    }
    if (!ptx_in_bounds(w, i, lane, at, bytes, i->space))
        return NULL;
    if (i->space == PTX_PARAM)
        return (unsigned char *)(uintptr_t)w->block->launch->parameters + at;
    if (data)
        ptx_note_write(w, i, lane, at, bytes, i->space, data);
    else
        ptx_note_read(w, i, lane, at, bytes, i->space);
    return i->space == PTX_SHARED ? w->block->shared + at : (void *)(uintptr_t)at;
}

static void load(struct ptx_warp *w, const struct ptx_ins *i, int lane, uint64_t at)
{
    const unsigned size = i->type.bits / 8U, unused = 64U - i->type.bits;
    const unsigned char *from = access(w, i, lane, at, NULL);
    for (unsigned v = 0; v < i->vector; v++) {
        const struct ptx_operand *o = &i->o[1 + v];
        uint64_t value = 0;
        if (from)
            memcpy(&value, from + v * size, size);
        if (i->type.kind == 's')
            value = (uint64_t)((int64_t)(value << unused) >> unused);
        ptx_put(w, o, lane, value);
    }
}

static void store(struct ptx_warp *w, const struct ptx_ins *i, int lane, uint64_t at)
{
    const unsigned size = i->type.bits / 8U;
    unsigned char data[32];
    for (unsigned v = 0; v < i->vector; v++) {
        const uint64_t value = ptx_value(w, &i->o[1 + v], lane);
        memcpy(data + v * size, &value, size);
    }
    unsigned char *to = access(w, i, lane, at, data);
    if (to)
        memcpy(to, data, size * i->vector);
}

static void each_lane(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes,
                      void (*access_of)(struct ptx_warp *, const struct ptx_ins *, int, uint64_t))
{
    uint64_t at[PTX_WARP];
    addresses(w, i, 0, at);
    if (i->space != PTX_PARAM)
        ptx_note_traffic(w, i, i->space, at, lanes, i->type.bits / 8U * i->vector);
    for (int l = 0; l < PTX_WARP; l++)
        if (lanes >> l & 1)
            access_of(w, i, l, at[l]);
}

/* Registers may be wider than what is loaded; signs are extended. */
void ptx_load(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    each_lane(w, i, lanes, load);
}

void ptx_store(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    each_lane(w, i, lanes, store);
}

/* --- cp.async --- */

static void start_copy(struct ptx_warp *w, const struct ptx_ins *i, const struct ptx_copy copy)
{
    const int lane = copy.lane;
    if (copy.to % 16 || (copy.bytes && copy.from % 16) || copy.bytes > 16) {
        ptx_report(w, i, lane, "misaligned", "a copy of %u bytes from %#llx to %#llx", copy.bytes,
                   (unsigned long long)copy.from, (unsigned long long)copy.to);
        return;
    }
    if (!ptx_in_bounds(w, i, lane, copy.to, 16, PTX_SHARED) ||
        (copy.bytes && !ptx_in_bounds(w, i, lane, copy.from, copy.bytes, PTX_GLOBAL)))
        return;
    if (copy.bytes)
        ptx_note_read(w, i, lane, copy.from, copy.bytes, PTX_GLOBAL);
    ptx_note_copy(w, i, lane, copy.to, false);
    memset(w->block->shared + copy.to, 0xff, 16);
    if (w->copies == w->copy_room) {
        w->copy_room = 2 * w->copy_room + 64;
        w->copy = realloc(w->copy, (size_t)w->copy_room * sizeof *w->copy);
        if (!w->copy)
            abort();
    }
    w->copy[w->copies++] = copy;
}

/* 16 bytes, of which `bytes` are read and the others are zeros. It is done when it is waited for,
 * and by nobody else before: "there is no ordering guarantee" between a copy and what comes after
 * it. */
void ptx_copy_start(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const uint32_t *bytes = PTX_U32(w, i->o[2]);
    uint64_t to[PTX_WARP], from[PTX_WARP];
    uint32_t reading = 0;
    addresses(w, i, 0, to);
    addresses(w, i, 1, from);
    for (int l = 0; l < PTX_WARP; l++)
        if (lanes >> l & 1) {
            reading |= (uint32_t)(bytes[l] > 0) << l;
            start_copy(w, i, (struct ptx_copy){to[l], from[l], bytes[l], l});
        }
    ptx_note_traffic(w, i, PTX_SHARED, to, lanes, 16);
    ptx_note_traffic(w, i, PTX_GLOBAL, from, reading, 16);
}

void ptx_copies_wait(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    int left = 0;
    (void)i;
    for (int c = 0; c < w->copies; c++) {
        const struct ptx_copy copy = w->copy[c];
        if (!(lanes >> copy.lane & 1)) {
            w->copy[left++] = copy;
            continue;
        }
        memset(w->block->shared + copy.to, 0, 16);
        if (copy.bytes)
            memcpy(w->block->shared + copy.to, (const void *)(uintptr_t)copy.from, copy.bytes);
        ptx_note_copy(w, i, copy.lane, copy.to, true);
    }
    w->copies = left;
}
