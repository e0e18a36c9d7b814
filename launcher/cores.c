/* SPDX-License-Identifier: MIT
 *
 * See cores.h. */
#include "config.h"

#include "launcher/cores.h"

#include "core/cgroup.h"
#include "core/thread.h"

#include <stdio.h>

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
