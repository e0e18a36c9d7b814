/* SPDX-License-Identifier: MIT
 *
 * See readiness.h. Seen from outside, a program that cannot take a signal yet looks like one that
 * never will. It is given a moment, and more while it loads libddp or gets no time to. */
#include "config.h"

#include "launcher/readiness.h"

#include "core/clock.h"
#include "launcher/system/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY_SECONDS    0.25 /* for any program, such as a script that starts another one */
#define MOST_SECONDS   5    /* for one that is being loaded, and one that holds the signal back */
#define LOAD_SECONDS   0.02 /* of CPU time: before, it may not have begun to load its libraries */
#define LIBDDP_SECONDS 1    /* ... with libddp among them */

static bool has(const char *status, const char *name, int signal)
{
    const char *mask = strstr(status, name);
    return mask && strtoull(mask + strlen(name), NULL, 16) >> (signal - 1) & 1;
}

static bool maps_libddp(pid_t pid)
{
    char path[64], line[512];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/maps", (long)pid);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps))
        found = strstr(line, "/libddp.so");
    if (maps)
        fclose(maps);
    return found;
}

static bool is_loading(pid_t pid)
{
    char text[128];
    const char state = proc_state(pid);
    if (!proc_read(pid, "schedstat", text, sizeof text))
        return false;
    const double used = (double)strtoull(text, NULL, 10) / 1e9;
    return ((state == 'R' || state == 'D') && used < LOAD_SECONDS) ||
           (used < LIBDDP_SECONDS && maps_libddp(pid));
}

static bool starts(const struct job *job, int rank, int signal)
{
    char status[4096];
    struct ddp_board_view view;
    const struct worker *worker = &job->workers[rank];
    const double age = (double)(ddp_clock_ns() - worker->start_ns) / 1e9;
    if (!worker->running || age > MOST_SECONDS ||
        !proc_read(worker->pid, "status", status, sizeof status) ||
        has(status, "\nSigCgt:", signal) || has(status, "\nSigIgn:", signal))
        return false;
    if (has(status, "\nSigBlk:", signal)) /* also between fork and exec */
        return true;
    ddp_board_read(&job->board, rank, &view);
    return view.pid == 0 && (age < ANY_SECONDS || is_loading(worker->pid));
}

bool readiness_some_start(const struct job *job, int signal)
{
    for (int rank = 0; rank < job->plan->nproc; rank++)
        if (starts(job, rank, signal))
            return true;
    return false;
}
