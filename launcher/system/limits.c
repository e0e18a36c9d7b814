/* SPDX-License-Identifier: MIT
 *
 * See limits.h. */
#include "config.h"

#include "launcher/system/limits.h"

#include "core/cgroup.h"
#include "core/thread.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* How many numbers a file of a group begins with, of at most two; "max 100000" has none. */
static int read_numbers(const char *directory, const char *name, long long *first,
                        long long *second)
{
    char path[DDP_CGROUP_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    const int count = file ? fscanf(file, "%lld %lld", first, second) : 0;
    if (file)
        fclose(file);
    return count;
}

/* The least of the quotas, in whole cores, at least 1. */
static void tighten(void *arg, const char *directory, bool unified)
{
    long long quota = 0, period = 0, unused;
    int *least = arg;
    const bool known = unified
                           ? read_numbers(directory, "cpu.max", &quota, &period) == 2
                           : read_numbers(directory, "cpu.cfs_quota_us", &quota, &unused) > 0 &&
                                 read_numbers(directory, "cpu.cfs_period_us", &period, &unused) > 0;
    if (!known || quota <= 0 || period <= 0)
        return;
    const long long cores = quota / period;
    const int whole = cores < 1 ? 1 : cores > 1 << 18 ? 1 << 18 : (int)cores;
    if (!*least || whole < *least)
        *least = whole;
}

int cores_quota(void)
{
    int least = 0;
    ddp_cgroup_visit("cpu", tighten, &least);
    return least;
}

int cores_usable(void)
{
    int cores = ddp_cpu_count(), quota = cores_quota();
    return quota && quota < cores ? quota : cores;
}

/* The number after the word oom_kill in a file of lines "word number", or -1. */
static long long read_kills(const char *path)
{
    char word[64];
    long long value, found = -1;
    FILE *file = fopen(path, "re");
    while (file && found < 0 && fscanf(file, "%63s %lld", word, &value) == 2)
        if (strcmp(word, "oom_kill") == 0)
            found = value;
    if (file)
        fclose(file);
    return found;
}

static void find_kills(void *arg, const char *directory, bool unified)
{
    char path[DDP_CGROUP_PATH + 32];
    long long *kills = arg;
    snprintf(path, sizeof path, "%s/%s", directory,
             unified ? "memory.events" : "memory.oom_control");
    if (*kills < 0)
        *kills = read_kills(path);
}

long long memory_kills(void)
{
    long long kills = -1;
    ddp_cgroup_visit("memory", find_kills, &kills);
    return kills >= 0 ? kills : read_kills("/proc/vmstat");
}

static struct rlimit found; /* before the first raise */

void descriptors_raise(int wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)wanted)
        return;
    if (found.rlim_max == 0)
        found = limit;
    limit.rlim_cur = limit.rlim_max < (rlim_t)wanted ? limit.rlim_max : (rlim_t)wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void descriptors_restore(void)
{
    if (found.rlim_max != 0)
        setrlimit(RLIMIT_NOFILE, &found);
}
