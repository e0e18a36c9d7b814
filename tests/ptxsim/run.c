/* SPDX-License-Identifier: MIT
 *
 * Warps in lock step, blocks with barriers, and reports. Lanes that have diverged are groups, of
 * which the one that is behind runs, until it is where another is: so they meet again as early as
 * they can, and where all must come together and cannot, the kernel has an error. */
#include "config.h"

#include "tests/ptxsim/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t ticks;

uint32_t ptx_tick(struct ptx_block *block)
{
    return block->now = ++ticks;
}

/* --- reports --- */

const char *ptx_place(const struct ptx_kernel *kernel, const struct ptx_ins *ins)
{
    static char texts[4][256];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    const char *file = kernel->module->file[ins->file], *slash = file ? strrchr(file, '/') : NULL;
    const char *caller = ins->caller_line ? kernel->module->file[ins->caller_file] : NULL;
    int length = snprintf(text, sizeof *texts, "%s:%d",
                          slash  ? slash + 1
                          : file ? file
                                 : "PTX",
                          file ? ins->source_line : ins->line);
    if (caller)
        snprintf(text + length, sizeof *texts - (size_t)length, ", in %s:%d",
                 strrchr(caller, '/') ? strrchr(caller, '/') + 1 : caller, ins->caller_line);
    return text;
}

void ptx_report(struct ptx_warp *warp, const struct ptx_ins *ins, int lane, const char *kind,
                const char *format, ...)
{
    enum { SEEN = 256 };
    static struct {
        const struct ptx_ins *ins;
        const char *kind;
    } seen[SEEN];
    static int seen_count;
    struct ptx_block *b = warp->block;
    const struct ptx_launch *launch = b->launch;
    char text[400];
    va_list arguments;
    if (b->reports++ == 0)
        seen_count = 0;
    for (int i = 0; i < seen_count; i++)
        if (seen[i].ins == ins && seen[i].kind == kind)
            return;
    if (seen_count == SEEN)
        return;
    seen[seen_count].ins = ins;
    seen[seen_count++].kind = kind;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr,
            "ptxsim: %s: %s\n  by thread %d of %d, block (%u, %u, %u) of (%u, %u, %u), at %s "
            "(%s, line %d of the PTX)\n  kernel %s\n",
            kind, text, warp->id * PTX_WARP + (lane < 0 ? 0 : lane), b->threads, b->index[0],
            b->index[1], b->index[2], launch->grid[0], launch->grid[1], launch->grid[2],
            ptx_place(launch->kernel, ins), ins->name, ins->line, launch->kernel->name);
}

/* --- a warp --- */

static void drop(struct ptx_warp *w, int group)
{
    w->group[group] = w->group[--w->groups];
}

/* Groups that are at the same instruction become one, unless they are at the block's barrier. */
static void merge(struct ptx_warp *w)
{
    for (int a = 0; a < w->groups; a++)
        for (int b = w->groups - 1; b > a; b--)
            if (w->group[a].at == w->group[b].at && w->group[a].wait != PTX_AT_BARRIER &&
                w->group[b].wait != PTX_AT_BARRIER) {
                w->group[a].lanes |= w->group[b].lanes;
                w->group[a].wait = PTX_RUNS;
                drop(w, b);
            }
}

/* The group of the warp in this state that is behind the others; -1: none. */
static int behind(const struct ptx_warp *w, enum ptx_wait wait)
{
    int first = -1;
    for (int g = 0; g < w->groups; g++)
        if (w->group[g].wait == wait && (first < 0 || w->group[g].at < w->group[first].at))
            first = g;
    return first;
}

/* Some of a group take a branch. */
static void branch(struct ptx_warp *w, int group, const struct ptx_ins *i, uint32_t lanes)
{
    struct ptx_group *g = &w->group[group];
    if (lanes && lanes != g->lanes) {
        g->lanes &= ~lanes;
        w->group[w->groups++] = (struct ptx_group){i->target, lanes, PTX_RUNS};
        g->at++;
    } else {
        g->at = lanes ? i->target : g->at + 1;
    }
}

/* Lanes end. Those that wait for them look again. */
static void leave(struct ptx_warp *w, int group, const struct ptx_ins *i, uint32_t lanes)
{
    for (int c = 0; c < w->copies; c++)
        if (lanes >> w->copy[c].lane & 1) {
            ptx_report(w, i, w->copy[c].lane, "a copy that was not waited for",
                       "the thread ends before it");
            w->copies = 0;
        }
    w->live &= ~lanes;
    w->group[group].lanes &= ~lanes;
    w->group[group].at++;
    for (int g = 0; g < w->groups; g++)
        if (w->group[g].wait == PTX_WAITS)
            w->group[g].wait = PTX_RUNS;
    if (!w->group[group].lanes)
        drop(w, group);
}

/* The lanes that have to come together for an instruction. */
static uint32_t wanted(const struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    return i->flow == PTX_MEMBERS ? PTX_U32(w, i->o[0])[__builtin_ctz(lanes)] & w->live : w->live;
}

/* An instruction that lanes execute together. `forced`: they will not all come. */
static void together(struct ptx_warp *w, int group, const struct ptx_ins *i, uint32_t lanes,
                     bool forced)
{
    struct ptx_group *g = &w->group[group];
    if (lanes != g->lanes && lanes)
        ptx_report(w, i, __builtin_ctz(lanes), "divergence",
                   "lanes %#x of %#x execute it, by its predicate", lanes, g->lanes);
    if (!lanes) {
        g->at++;
        return;
    }
    const uint32_t all = wanted(w, i, lanes);
    if (all & ~lanes && !forced) {
        g->wait = PTX_WAITS;
        return;
    }
    if (all & ~lanes || (i->flow == PTX_ALIGNED && lanes != PTX_FULL))
        ptx_report(w, i, __builtin_ctz(lanes), "divergence",
                   "lanes %#x execute it, without lanes %#x", lanes,
                   (i->flow == PTX_ALIGNED ? PTX_FULL : all) & ~lanes);
    if (i->flow == PTX_BARRIER) {
        g->wait = PTX_AT_BARRIER;
        w->barrier = i;
        return;
    }
    i->run(w, i, lanes);
    g->at++;
    g->wait = PTX_RUNS;
}

static void step(struct ptx_warp *w, int group, bool forced)
{
    struct ptx_group *g = &w->group[group];
    const struct ptx_ins *i = &w->block->launch->kernel->code[g->at];
    const uint32_t lanes = i->guarded ? g->lanes & ptx_predicate(w, &i->guard) : g->lanes;
    switch (i->flow) {
    case PTX_PLAIN:
        if (lanes)
            i->run(w, i, lanes);
        g->at++;
        break;
    case PTX_BRANCH:
        branch(w, group, i, lanes);
        break;
    case PTX_EXIT:
        leave(w, group, i, lanes);
        break;
    default:
        together(w, group, i, lanes, forced);
    }
}

/* Until all lanes have ended or are at the barrier of the block. */
static void run_warp(struct ptx_warp *w)
{
    while (w->groups) {
        if (w->groups > 1)
            merge(w);
        const int group = behind(w, PTX_RUNS), stuck = group < 0 ? behind(w, PTX_WAITS) : -1;
        if (group < 0 && stuck < 0)
            return;
        if (group < 0) {
            step(w, stuck, true);
            continue;
        }
        do
            step(w, group, false);
        while (group == 0 && w->groups == 1 && w->group[0].wait == PTX_RUNS);
    }
}

/* --- a block --- */

static unsigned special_value(const struct ptx_block *b, int id, unsigned thread)
{
    const unsigned *size = b->launch->block;
    const unsigned of_thread[] = {thread % size[0], thread / size[0] % size[1],
                                  thread / size[0] / size[1]};
    return id < 3    ? of_thread[id]
           : id < 6  ? size[id - 3]
           : id < 9  ? b->index[id - 6]
           : id < 12 ? b->launch->grid[id - 9]
                     : thread % PTX_WARP;
}

static void begin_warp(struct ptx_block *b, int id)
{
    const struct ptx_kernel *k = b->launch->kernel;
    struct ptx_warp *w = &b->warp[id];
    const int threads = b->threads - id * PTX_WARP;
    w->block = b;
    w->id = id;
    w->live = threads >= PTX_WARP ? PTX_FULL : (1U << threads) - 1;
    w->synced = b->synced;
    w->groups = 1;
    w->group[0] = (struct ptx_group){0, w->live, PTX_RUNS};
    w->copies = 0;
    for (int s = 0; s < k->special_count; s++)
        for (int l = 0; l < PTX_WARP; l++)
            ((uint32_t *)(void *)(w->registers + k->special[s].at))[l] =
                special_value(b, k->special[s].id, (unsigned)(id * PTX_WARP + l));
}

/* All warps that live are at the barrier. */
static void pass_barrier(struct ptx_block *b)
{
    const struct ptx_ins *barrier = NULL;
    b->synced = ptx_tick(b);
    for (int n = 0; n < b->warps; n++) {
        struct ptx_warp *w = &b->warp[n];
        if (!w->groups)
            continue;
        if (barrier && w->barrier != barrier)
            ptx_report(w, w->barrier, -1, "different barriers", "other warps wait at %s",
                       ptx_place(b->launch->kernel, barrier));
        barrier = w->barrier;
        for (int g = 0; g < w->groups; g++) {
            w->group[g].at++;
            w->group[g].wait = PTX_RUNS;
        }
    }
}

static void run_block(struct ptx_block *b, uint64_t number)
{
    const struct ptx_launch *launch = b->launch;
    bool more = true;
    b->index[0] = (unsigned)(number % launch->grid[0]);
    b->index[1] = (unsigned)(number / launch->grid[0] % launch->grid[1]);
    b->index[2] = (unsigned)(number / launch->grid[0] / launch->grid[1]);
    b->began = b->synced = ptx_tick(b);
    memset(b->shared, 0xff, b->shared_bytes);
    for (int n = 0; n < b->warps; n++)
        begin_warp(b, n);
    while (more) {
        more = false;
        for (int n = 0; n < b->warps; n++) {
            run_warp(&b->warp[n]);
            more |= b->warp[n].groups > 0;
        }
        if (more)
            pass_barrier(b);
    }
}

/* Memory for the launch, of the last one if it is enough. */
static void *room(void *old, size_t *had, size_t bytes)
{
    if (bytes <= *had)
        return old;
    free(old);
    *had = (bytes + 63) / 64 * 64;
    void *made = aligned_alloc(64, *had);
    if (!made)
        abort();
    return made;
}

uint64_t ptx_run(const struct ptx_launch *launch, ptx_lookup *lookup)
{
    const struct ptx_kernel *k = launch->kernel;
    static struct ptx_block block;
    static char *registers;
    static size_t registers_had, shared_had;
    const unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    const size_t bytes = (k->register_bytes + 63U) / 64 * 64;
    struct ptx_block *b = &block;
    b->launch = launch;
    b->lookup = lookup;
    b->threads = (int)threads;
    b->warps = (int)(threads + PTX_WARP - 1) / PTX_WARP;
    b->shared_bytes = k->shared_bytes + launch->dynamic_bytes;
    b->reports = 0;
    memset(k->traffic, 0, (size_t)k->count * sizeof *k->traffic);
    b->start = b->end = 0;
    b->launched = ptx_tick(b);
    registers = room(registers, &registers_had, bytes * (size_t)b->warps);
    b->shared = room(b->shared, &shared_had, b->shared_bytes);
    ptx_shared_begin(b);
    memset(registers, 0xee, bytes * (size_t)b->warps);
    for (int n = 0; n < b->warps; n++) {
        b->warp[n].registers = registers + (size_t)n * bytes;
        memcpy(b->warp[n].registers + k->constants_at, k->constants,
               k->register_bytes - k->constants_at);
    }
    if (k->max_threads && b->threads > k->max_threads) {
        begin_warp(b, 0);
        ptx_report(&b->warp[0], &k->code[0], -1, "launch", "%d threads, of at most %d", b->threads,
                   k->max_threads);
    }
    const uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    for (uint64_t number = 0; number < blocks; number++)
        run_block(b, number);
    return b->reports;
}
