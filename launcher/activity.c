/* SPDX-License-Identifier: MIT
 *
 * See activity.h. All that the workers have started is below ddprun, which adopts what they leave.
 * Time of children that were waited for is in their parent's. */
#include "config.h"

#include "launcher/activity.h"

#include "core/clock.h"
#include "launcher/system/entries.h"
#include "launcher/system/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_SHARE 0.01 /* of a CPU: more than threads need that only look around */
#define MAX_DEPTH  64   /* of processes below each other */
#define UNKNOWN    (-2) /* owner */

static void add_process(void *arg, int proc, const char *name)
{
    (void)proc;
    struct activity *activity = arg;
    char text[512], state;
    int parent;
    unsigned long user, system;
    long user_children, system_children;
    if (name[strspn(name, "0123456789")] != 0)
        return;
    const char *end = proc_read(atol(name), "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!end || sscanf(end, ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &state,
                       &parent, &user, &system, &user_children, &system_children) != 6)
        return;
    if (activity->count == activity->capacity) {
        const int capacity = activity->capacity ? 2 * activity->capacity : 256;
        void *more = realloc(activity->list, (size_t)capacity * sizeof *activity->list);
        if (!more)
            return;
        activity->list = more;
        activity->capacity = capacity;
    }
    activity->list[activity->count++] = (struct process){
        .pid = atoi(name),
        .parent = parent,
        .owner = UNKNOWN,
        .state = state,
        .ticks = (int64_t)user + (int64_t)system + user_children + system_children,
    };
}

static int by_pid(const void *a, const void *b)
{
    const struct process *first = a, *second = b;
    return (first->pid > second->pid) - (first->pid < second->pid);
}

static struct process *find(const struct activity *activity, int pid)
{
    const struct process key = {.pid = pid};
    return activity->count
               ? bsearch(&key, activity->list, (size_t)activity->count, sizeof key, by_pid)
               : NULL;
}

/* Finds the worker that each process is, or descends from; nproc: ddprun has adopted it; -1: it is
 * not of the job. */
static int owner_of(const struct job *job, struct process *process, int depth)
{
    if (process->owner != UNKNOWN)
        return process->owner;
    struct process *parent = depth < MAX_DEPTH ? find(&job->activity, process->parent) : NULL;
    const bool ours = process->parent == getpid() && !keeper_is(&job->keeper, process->pid) &&
                      !children_is_foreign(&job->children, process->pid);
    process->owner = ours ? job->plan->nproc : parent ? owner_of(job, parent, depth + 1) : -1;
    return process->owner;
}

/* Adds up the time of each worker's processes, and counts them. One that could run, and gets no
 * processor because others have them, is busy too. */
static void add_up(const struct job *job, int64_t *ticks, int64_t *counts, bool *busy,
                   bool *debugged)
{
    struct process *self = find(&job->activity, getpid());
    if (self)
        self->owner = -1;
    for (int rank = 0; rank < job->plan->nproc; rank++) {
        struct process *worker = find(&job->activity, job->workers[rank].pid);
        if (worker && job->workers[rank].running)
            worker->owner = rank;
    }
    for (int i = 0; i < job->activity.count; i++) {
        struct process *process = &job->activity.list[i];
        const int owner = owner_of(job, process, 0);
        if (owner < 0)
            continue;
        ticks[owner] += process->ticks;
        counts[owner]++;
        *busy = *busy || process->state == 'R';
        *debugged = *debugged || process->state == 't';
    }
}

/* What a worker's own process has written anywhere, where its output does not come through ddprun.
 */
static uint64_t written_by(int pid)
{
    char text[512];
    const char *found = proc_read(pid, "io", text, sizeof text) ? strstr(text, "wchar: ") : NULL;
    return found ? strtoull(found + strlen("wchar: "), NULL, 10) : 0;
}

static bool has_written(struct job *job)
{
    uint64_t written = output_bytes(&job->output);
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (job->workers[rank].running && !output_passes(&job->output, rank))
            written += written_by(job->workers[rank].pid);
    const bool more = written != job->activity.written;
    job->activity.written = written;
    return more;
}

bool activity_visible(void)
{
    return access("/proc/self/stat", R_OK) == 0;
}

/* The processes there are now. */
static void look(struct activity *activity)
{
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    activity->count = 0;
    if (proc < 0)
        return;
    entries_visit(proc, add_process, activity);
    close(proc);
    if (activity->count)
        qsort(activity->list, (size_t)activity->count, sizeof *activity->list, by_pid);
}

enum activity_kind activity_since(struct job *job)
{
    struct activity *activity = &job->activity;
    const int owners = job->plan->nproc + 1;
    const int64_t now = ddp_clock_ns();
    const double seconds = (double)(now - activity->looked_ns) / 1e9;
    const int64_t spare = (int64_t)(seconds * BUSY_SHARE * (double)sysconf(_SC_CLK_TCK)) + 1;
    bool busy = !activity->ticks, debugged = false;
    int64_t *ticks = calloc(2 * (size_t)owners, sizeof *ticks);
    activity->looked_ns = now;
    look(activity);
    if (ticks)
        add_up(job, ticks, ticks + owners, &busy, &debugged);
    for (int i = 0; ticks && activity->ticks && i < owners; i++)
        busy = busy || ticks[i] < activity->ticks[i] || ticks[i] > activity->ticks[i] + spare ||
               ticks[owners + i] != activity->ticks[owners + i];
    free(activity->ticks);
    activity->ticks = ticks;
    if (has_written(job) || debugged)
        return ACTIVITY_WRITES;
    return busy ? ACTIVITY_COMPUTES : ACTIVITY_NONE;
}

void activity_free(struct activity *activity)
{
    free(activity->ticks);
    free(activity->list);
    *activity = (struct activity){0};
}
