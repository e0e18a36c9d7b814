/* SPDX-License-Identifier: MIT
 *
 * See cores.h. */
#include "config.h"

#include "launcher/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cores_by_affinity(void)
{
    /* The kernel refuses a mask smaller than its own: grow until it fits. */
    for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static bool read_numbers(const char *path, long long *first, long long *second)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    int n = second ? fscanf(file, "%lld %lld", first, second) : fscanf(file, "%lld", first);
    fclose(file);
    return n == (second ? 2 : 1); /* "max 100000" gives 0: no limit */
}

/* The quota of one group in whole cores, at least 1; 0 when it has none. */
static int quota_of(const char *root, const char *group, bool unified)
{
    char path[4608];
    long long quota = 0, period = 0;
    if (unified) {
        snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
        if (!read_numbers(path, &quota, &period))
            return 0;
    } else {
        snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", root, group);
        if (!read_numbers(path, &quota, NULL))
            return 0;
        snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", root, group);
        if (!read_numbers(path, &period, NULL))
            return 0;
    }
    if (quota <= 0 || period <= 0)
        return 0;
    long long cores = quota / period;
    return cores < 1 ? 1 : cores > 1 << 18 ? 1 << 18 : (int)cores;
}

/* The tightest quota of a group and of all groups above it. */
static int quota_upwards(const char *root, char *group, bool unified)
{
    int least = 0;
    for (;;) {
        size_t length = strlen(group);
        if (length && group[length - 1] == '/')
            group[--length] = 0;
        int quota = quota_of(root, group, unified);
        if (quota && (!least || quota < least))
            least = quota;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

/* True when a comma separated list of controllers has "cpu". */
static bool has_cpu(const char *controllers)
{
    for (const char *at = controllers; (at = strstr(at, "cpu")); at += 3)
        if ((at == controllers || at[-1] == ',') && (at[3] == 0 || at[3] == ','))
            return true;
    return false;
}

int cores_quota(void)
{
    char line[4352];
    int least = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        /* "0::/user.slice/x" (version 2) or "4:cpu,cpuacct:/docker/x" (version 1) */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        bool unified = controllers[1] == 0;
        if (!unified && !has_cpu(controllers + 1))
            continue;
        int quota =
            quota_upwards(unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", group, unified);
        if (quota && (!least || quota < least))
            least = quota;
    }
    if (file)
        fclose(file);
    return least;
}

int cores_usable(void)
{
    int cores = cores_by_affinity(), quota = cores_quota();
    return quota && quota < cores ? quota : cores;
}
