/* SPDX-License-Identifier: MIT
 *
 * What the threads of a block wait for: barriers, and operations of a warp's lanes, which the last
 * lane to come does for all. Threads that can never go on are reported with the lines they wait
 * at. */
#include "config.h"

#include "tests/cudasim/block.h"

#include <stdio.h>
#include <string.h>

/* Lanes of one warp that gather for an operation. */
struct group {
    enum cudasim_warp kind;
    unsigned mask, arrived;
    int first; /* the first of them that came */
};

struct warp {
    struct group groups[SIM_WARP];
    int group_count;
    unsigned round;
    unsigned exited; /* lanes */
};

static struct warp warps[SIM_MAX_THREADS / SIM_WARP];
static struct {
    enum cudasim_barrier kind;
    int waiting, first;
    int holds; /* threads whose predicate holds */
    unsigned round;
} barrier;

void sim_reset_sync(void)
{
    for (int w = 0; w * SIM_WARP < sim_block.thread_count; w++) {
        warps[w].group_count = 0;
        warps[w].exited = 0;
    }
    barrier.waiting = 0;
    barrier.holds = 0;
}

static void name_thread(int thread, char *text, size_t size)
{
    int x = (int)blockDim.x, y = (int)blockDim.y;
    snprintf(text, size, "thread (%d,%d,%d)", thread % x, thread / x % y, thread / x / y);
}

static bool same_site(const struct sim_thread *a, const struct sim_thread *b)
{
    return a->line == b->line && (a->file == b->file || strcmp(a->file, b->file) == 0);
}

/* Two threads that should have met and did not. */
static void __attribute__((noreturn)) report_pair(const char *what, int first, int second)
{
    const struct sim_thread *a = &sim_block.thread[first], *b = &sim_block.thread[second];
    char here[160], one[48], two[48];
    sim_running_kernel(here, sizeof here);
    name_thread(first, one, sizeof one);
    name_thread(second, two, sizeof two);
    sim_report("%s: %s: %s is at %s:%d, %s at %s:%d", here, what, one, a->file, a->line, two,
               b->file, b->line);
}

/* One line for all threads that wait at the same place. */
void sim_report_deadlock(void)
{
    struct sim_block *b = &sim_block;
    char text[1024];
    size_t used = 0;
    for (int i = 0; i < b->thread_count; i++) {
        struct sim_thread *t = &b->thread[i];
        int count = 0, earlier = 0;
        if (t->state != SIM_THREAD_AT_BARRIER && t->state != SIM_THREAD_AT_WARP)
            continue;
        for (int j = 0; j < b->thread_count; j++)
            if (b->thread[j].state == t->state && same_site(&b->thread[j], t))
                j < i ? earlier++ : count++;
        if (earlier > 0 || used + 128 > sizeof text)
            continue;
        char name[48];
        name_thread(i, name, sizeof name);
        used += (size_t)snprintf(text + used, sizeof text - used, "; %d from %s wait at %s:%d",
                                 count, name, t->file, t->line);
        if (t->state == SIM_THREAD_AT_WARP && used + 48 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " for lanes %#x", t->mask);
    }
    sim_report("kernel %s, block (%u,%u,%u): deadlock: %d of %d threads have exited%s",
               b->launch->name, blockIdx.x, blockIdx.y, blockIdx.z, b->thread_count - b->live,
               b->thread_count, text);
}

static int barrier_result(void)
{
    switch (barrier.kind) {
    case CUDASIM_COUNT:
        return barrier.holds;
    case CUDASIM_AND:
        return barrier.holds == barrier.waiting;
    default:
        return barrier.holds > 0;
    }
}

static void release_barrier(void)
{
    struct sim_block *b = &sim_block;
    uint64_t result = (uint64_t)barrier_result();
    for (int i = 0; i < b->thread_count; i++) {
        struct sim_thread *t = &b->thread[b->order[i]];
        if (t->state != SIM_THREAD_AT_BARRIER)
            continue;
        t->state = SIM_THREAD_RUNS;
        t->result = result;
        sim_push_ready(b->order[i], false);
    }
    barrier.waiting = 0;
    barrier.holds = 0;
    barrier.round++;
}

int cudasim_barrier(enum cudasim_barrier kind, int predicate, const char *file, int line)
{
    struct sim_block *b = &sim_block;
    if (b->thread_count == 0)
        sim_report("%s:%d: __syncthreads outside of a kernel", file, line);
    int thread = b->current;
    struct sim_thread *me = &b->thread[thread];
    me->file = file;
    me->line = line;
    if (barrier.waiting == 0) {
        barrier.first = thread;
        barrier.kind = kind;
    } else if (barrier.kind != kind || !same_site(me, &b->thread[barrier.first])) {
        report_pair("threads of one block wait in different __syncthreads", barrier.first, thread);
    }
    uint64_t *sync = b->threads ? &b->threads->barrier[barrier.round % 2] : NULL;
    barrier.waiting++;
    barrier.holds += predicate != 0;
    if (sync)
        sim_release(sync);
    if (barrier.waiting < b->live) {
        me->state = SIM_THREAD_AT_BARRIER;
        sim_go_on(me->fibre);
    } else {
        me->result = (uint64_t)barrier_result();
        release_barrier();
    }
    if (sync)
        sim_acquire(sync);
    return (int)me->result;
}

/* The lane whose value a lane gets in a shuffle; its own where CUDA leaves it unchanged. */
static int source_lane(enum cudasim_warp kind, int lane, const struct sim_thread *t)
{
    int first = lane & ~(t->width - 1), last = first + t->width - 1, source;
    switch (kind) {
    case CUDASIM_SHUFFLE:
        return first + (t->parameter & (t->width - 1));
    case CUDASIM_SHUFFLE_UP:
        source = lane - t->parameter;
        return source < first ? lane : source;
    case CUDASIM_SHUFFLE_DOWN:
        source = lane + t->parameter;
        return source > last ? lane : source;
    default:
        source = lane ^ t->parameter;
        return source > last ? lane : source;
    }
}

static uint64_t reduce(enum cudasim_warp kind, unsigned mask, const struct sim_thread *lanes)
{
    uint64_t result = 0;
    bool first = true;
    for (int lane = 0; lane < SIM_WARP; lane++) {
        if (!(mask >> lane & 1))
            continue;
        int64_t value = (int64_t)lanes[lane].value;
        if (kind == CUDASIM_BALLOT)
            result |= (uint64_t)(value != 0) << lane;
        else if (kind == CUDASIM_REDUCE_ADD)
            result += (uint64_t)value;
        else if (first ||
                 (kind == CUDASIM_REDUCE_MIN ? value < (int64_t)result : value > (int64_t)result))
            result = (uint64_t)value;
        first = false;
    }
    return result;
}

/* Gives every lane its result. A value from a lane that takes no part is undefined: NaN. */
static void complete(const struct group *group, struct sim_thread *lanes)
{
    bool shuffles = group->kind >= CUDASIM_SHUFFLE && group->kind <= CUDASIM_SHUFFLE_XOR;
    if (group->kind == CUDASIM_SYNC)
        return;
    uint64_t same = shuffles ? 0 : reduce(group->kind, group->arrived, lanes);
    for (int lane = 0; lane < SIM_WARP; lane++) {
        if (!(group->arrived >> lane & 1))
            continue;
        lanes[lane].result = same;
        if (shuffles) {
            int source = source_lane(group->kind, lane, &lanes[lane]);
            bool known = source >= 0 && source < SIM_WARP && group->arrived >> source & 1;
            lanes[lane].result = known ? lanes[source].value : UINT64_MAX;
        }
    }
}

static void release_lanes(unsigned lanes, int first_thread)
{
    bool reverse = sim_settings.order == SIM_REVERSE;
    for (int i = 0; i < SIM_WARP; i++) {
        int lane = reverse ? i : SIM_WARP - 1 - i;
        struct sim_thread *t = &sim_block.thread[first_thread + lane];
        if (!(lanes >> lane & 1) || t->state != SIM_THREAD_AT_WARP)
            continue;
        t->state = SIM_THREAD_RUNS;
        sim_push_ready(first_thread + lane, true);
    }
}

static struct group *find_group(struct warp *warp, enum cudasim_warp kind, unsigned mask,
                                int thread)
{
    struct group *group = NULL;
    for (int i = 0; i < warp->group_count && !group; i++)
        if (warp->groups[i].mask == mask)
            group = &warp->groups[i];
    if (!group) {
        group = &warp->groups[warp->group_count++];
        *group = (struct group){.kind = kind, .mask = mask, .first = thread};
    } else if (group->kind != kind ||
               (kind != CUDASIM_SYNC &&
                !same_site(&sim_block.thread[thread], &sim_block.thread[group->first]))) {
        report_pair("lanes of one warp meet in different operations", group->first, thread);
    }
    return group;
}

/* Lanes of the mask that the block has; reports a mask that cannot work. */
static unsigned check_mask(unsigned mask, int thread, const char *file, int line)
{
    struct sim_block *b = &sim_block;
    int first = thread & ~(SIM_WARP - 1), lane = thread - first;
    unsigned exists =
        b->thread_count - first >= SIM_WARP ? UINT32_MAX : (1u << (b->thread_count - first)) - 1;
    char text[160];
    if (!(mask >> lane & 1)) {
        sim_running_kernel(text, sizeof text);
        sim_report("%s: %s:%d: the calling lane %d is not in its own mask %#x", text, file, line,
                   lane, mask);
    }
    unsigned exited = mask & exists & warps[thread / SIM_WARP].exited;
    if (exited != 0) {
        sim_running_kernel(text, sizeof text);
        sim_report("%s: %s:%d: lane %d of the mask %#x has exited", text, file, line,
                   __builtin_ctz(exited), mask);
    }
    return mask & exists;
}

uint64_t cudasim_warp(enum cudasim_warp kind, unsigned mask, uint64_t value, int parameter,
                      int width, const char *file, int line)
{
    struct sim_block *b = &sim_block;
    if (b->thread_count == 0)
        sim_report("%s:%d: an operation of a warp outside of a kernel", file, line);
    if (width < 1 || width > SIM_WARP || (width & (width - 1)) != 0)
        sim_report("%s:%d: %d is no width of a shuffle", file, line, width);
    int thread = b->current, first = thread & ~(SIM_WARP - 1);
    struct sim_thread *me = &b->thread[thread];
    struct warp *warp = &warps[thread / SIM_WARP];
    mask = check_mask(mask, thread, file, line);
    me->file = file;
    me->line = line;
    me->value = value;
    me->parameter = parameter;
    me->width = width;
    me->mask = mask;
    struct group *group = find_group(warp, kind, mask, thread);
    uint64_t *sync = NULL; /* a shuffle orders no memory */
    if (kind == CUDASIM_SYNC && b->threads)
        sync = &b->threads->warp[thread / SIM_WARP][warp->round % 2];
    if (sync)
        sim_release(sync);
    group->arrived |= 1u << (thread - first);
    if (group->arrived == mask) {
        complete(group, &b->thread[first]);
        release_lanes(mask, first);
        *group = warp->groups[--warp->group_count];
        warp->round++;
    } else {
        me->state = SIM_THREAD_AT_WARP;
        sim_go_on(me->fibre);
    }
    if (sync)
        sim_acquire(sync);
    return me->result;
}

void sim_thread_exited(int thread)
{
    warps[thread / SIM_WARP].exited |= 1u << thread % SIM_WARP;
    if (barrier.waiting > 0 && barrier.waiting == sim_block.live)
        release_barrier();
}
