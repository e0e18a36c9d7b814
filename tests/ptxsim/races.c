/* SPDX-License-Identifier: MIT
 *
 * What is known of memory: who wrote and who read each piece of it last, and when. Two accesses of
 * which one writes race unless one thread did both, a barrier of the block lies between, or both
 * are of one warp and a bar.warp.sync of all its lanes lies between; what other blocks of the
 * launch did has no order with anything. Shuffles, votes, matrices and products order no memory. */
#include "config.h"

#include "tests/ptxsim/machine.h"

#include <stdlib.h>
#include <string.h>

enum { MANY_LANES = 1 << 14, MANY_WARPS = 1 << 15, LANES = MANY_LANES - 1 };

/* A piece: as many bytes as the smallest access of the kernel. Times as in machine.h; 0: never. */
struct piece {
    uint32_t written, read;
    uint16_t writer, reader; /* threads; reader: | MANY_LANES of its warp, | MANY_WARPS */
    bool on_its_way;         /* a copy of `writer` that it has not waited for */
    bool read_by_blocks;     /* by several, in this launch */
    const struct ptx_ins *write, *reading;
};

/* Global memory: pages, found by their number, whose pieces are those of the last launch. */
enum { PAGE_BYTES = 4096, BUCKETS = 1 << 14 };
struct page {
    struct page *next;
    uint64_t number;
    unsigned grain;
    struct piece *piece;
};
static struct page *buckets[BUCKETS], *last_page;

static struct piece *shared_pieces;
static uint32_t shared_count;

static struct piece *pieces(size_t count)
{
    struct piece *made = calloc(count, sizeof *made);
    if (!made)
        abort();
    return made;
}

void ptx_shared_begin(struct ptx_block *block)
{
    const uint32_t count = block->shared_bytes / block->launch->kernel->grain + 1;
    if (count <= shared_count)
        return;
    free(shared_pieces);
    shared_pieces = pieces(count);
    shared_count = count;
}

static struct piece *global_piece(uint64_t at, unsigned grain)
{
    const uint64_t number = at / PAGE_BYTES;
    if (!last_page || last_page->number != number) {
        struct page **link = &buckets[number % BUCKETS];
        while (*link && (*link)->number != number)
            link = &(*link)->next;
        if (!*link) {
            *link = calloc(1, sizeof **link);
            if (!*link)
                abort();
            (*link)->number = number;
        }
        last_page = *link;
    }
    if (last_page->grain != grain) {
        free(last_page->piece);
        last_page->piece = pieces(PAGE_BYTES / grain);
        last_page->grain = grain;
    }
    return &last_page->piece[at % PAGE_BYTES / grain];
}

/* An access that is looked at. */
struct access {
    struct ptx_warp *warp;
    const struct ptx_ins *ins;
    int lane, thread; /* thread -1: all of the warp */
    uint64_t at;
    uint32_t since; /* what is older than this is of another life of the memory */
    const char *memory;
};

static struct piece *piece_of(const struct access *a, enum ptx_space space)
{
    const unsigned grain = a->warp->block->launch->kernel->grain;
    return space == PTX_SHARED ? &shared_pieces[a->at / grain] : global_piece(a->at, grain);
}

static void race(const struct access *a, const char *kind, const char *did, int thread,
                 const struct ptx_ins *other)
{
    ptx_report(a->warp, a->ins, a->lane, kind, "%s byte %#llx, which thread %d %s at %s", a->memory,
               (unsigned long long)a->at, thread, did,
               ptx_place(a->warp->block->launch->kernel, other));
}

/* Whether what `thread`, or several of its warp, did at `time` in this block comes before an
 * access. */
static bool comes_before(const struct access *a, int thread, bool several, uint32_t time)
{
    return time < a->warp->block->synced || (thread == a->thread && !several) ||
           (thread / PTX_WARP == a->warp->id && time < a->warp->synced);
}

static void against_write(const struct access *a, const struct piece *p, bool write)
{
    const struct ptx_block *b = a->warp->block;
    const bool in_warp = p->writer / PTX_WARP == a->warp->id;
    if (p->written < a->since)
        return;
    if (p->on_its_way)
        race(a, "a copy that was not waited for", "copies", p->writer, p->write);
    else if (p->written < b->began)
        race(a, write ? "race of blocks: both write" : "race of blocks: read after write",
             "of another block wrote", p->writer, p->write);
    else if (!comes_before(a, p->writer, false, p->written) && in_warp)
        race(a, write ? "race in a warp: both write" : "race in a warp: read after write", "wrote",
             p->writer, p->write);
    else if (!comes_before(a, p->writer, false, p->written))
        race(a, write ? "race: both write" : "race: read after write", "wrote", p->writer,
             p->write);
}

static void against_read(const struct access *a, const struct piece *p)
{
    const struct ptx_block *b = a->warp->block;
    const int thread = p->reader & LANES;
    const bool warps = p->reader & MANY_WARPS, several = p->reader & MANY_LANES;
    if (p->read < a->since)
        return;
    if (p->read < b->began || p->read_by_blocks)
        race(a, "race of blocks: write after read", "of another block read", thread, p->reading);
    else if (warps ? p->read >= b->synced : !comes_before(a, thread, several, p->read))
        race(a,
             warps || thread / PTX_WARP != a->warp->id ? "race: write after read"
                                                       : "race in a warp: write after read",
             "read", thread, p->reading);
}

/* Remembers a read beside those that a barrier has not ended. */
static void remember_read(const struct access *a, struct piece *p)
{
    const struct ptx_block *b = a->warp->block;
    const int thread = a->thread < 0 ? a->warp->id * PTX_WARP : a->thread;
    uint16_t reader = (uint16_t)(thread | (a->thread < 0 ? MANY_LANES : 0));
    p->read_by_blocks = p->read >= a->since && (p->read_by_blocks || p->read < b->began);
    if (p->read >= b->synced) {
        if (p->reader & MANY_WARPS || (p->reader & LANES) / PTX_WARP != a->warp->id)
            reader |= MANY_WARPS;
        else if (p->read >= a->warp->synced && (p->reader & ~MANY_WARPS) != reader)
            reader |= MANY_LANES;
    }
    p->reader = reader;
    p->read = b->now;
    p->reading = a->ins;
}

static struct access access_of(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                               enum ptx_space space)
{
    const int thread = lane < 0 ? -1 : w->id * PTX_WARP + lane;
    return space == PTX_SHARED
               ? (struct access){w, ins, lane, thread, at, w->block->began, "shared"}
               : (struct access){w, ins, lane, thread, at, w->block->launched, "global"};
}

void ptx_note_read(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                   unsigned bytes, enum ptx_space space)
{
    struct access a = access_of(w, ins, lane, at, space);
    const unsigned grain = w->block->launch->kernel->grain;
    if (space == PTX_GLOBAL && !w->block->watched)
        return;
    for (; a.at < at + bytes; a.at += grain) {
        struct piece *p = piece_of(&a, space);
        if (space == PTX_SHARED && p->written < a.since) {
            ptx_report(w, ins, lane, "uninitialised shared memory", "nobody wrote byte %llu",
                       (unsigned long long)a.at);
            p->written = w->block->now; /* said once */
            p->writer = (uint16_t)(a.thread < 0 ? w->id * PTX_WARP : a.thread);
            p->write = ins;
            p->on_its_way = false;
        } else {
            against_write(&a, p, false);
        }
        remember_read(&a, p);
    }
}

/* Several lanes that store one value by one instruction: "only one of the writes is performed", and
 * it does not matter which. */
static bool same_value(const struct access *a, const struct piece *p, enum ptx_space space,
                       const unsigned char *data, unsigned bytes)
{
    const unsigned char *old =
        space == PTX_SHARED ? a->warp->block->shared + a->at : (void *)(uintptr_t)a->at;
    return data && p->write == a->ins && p->written == a->warp->block->now &&
           p->writer / PTX_WARP == a->warp->id && memcmp(old, data, bytes) == 0;
}

void ptx_note_write(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                    unsigned bytes, enum ptx_space space, const unsigned char *data)
{
    struct access a = access_of(w, ins, lane, at, space);
    const unsigned grain = w->block->launch->kernel->grain;
    if (space == PTX_GLOBAL && !w->block->watched)
        return;
    for (; a.at < at + bytes; a.at += grain) {
        struct piece *p = piece_of(&a, space);
        if (!same_value(&a, p, space, data ? data + (a.at - at) : NULL, grain)) {
            against_write(&a, p, true);
            against_read(&a, p);
        }
        p->written = w->block->now;
        p->writer = (uint16_t)a.thread;
        p->write = ins;
        p->read = 0;
        p->read_by_blocks = false;
        p->on_its_way = false;
    }
}

void ptx_note_copy(struct ptx_warp *w, const struct ptx_ins *ins, int lane, uint64_t at,
                   bool arrived)
{
    if (!arrived)
        ptx_note_write(w, ins, lane, at, 16, PTX_SHARED, NULL);
    struct access a = access_of(w, ins, lane, at, PTX_SHARED);
    for (; a.at < at + 16; a.at += w->block->launch->kernel->grain) {
        struct piece *p = piece_of(&a, PTX_SHARED);
        p->on_its_way = !arrived;
        p->written = w->block->now;
    }
}
