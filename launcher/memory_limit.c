/* SPDX-License-Identifier: MIT
 *
 * See memory_limit.h. */
#include "config.h"

#include "launcher/memory_limit.h"

#include "core/cgroup.h"

#include <stdio.h>
#include <string.h>

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

long long memory_limit_kills(void)
{
    long long kills = -1;
    ddp_cgroup_visit("memory", find_kills, &kills);
    return kills >= 0 ? kills : read_kills("/proc/vmstat");
}
