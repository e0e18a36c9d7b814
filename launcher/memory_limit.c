/* SPDX-License-Identifier: MIT
 *
 * See memory_limit.h. */
#include "config.h"

#include "launcher/memory_limit.h"

#include <stdio.h>
#include <string.h>

/* The number after "oom_kill" in a file of both versions' form: "word number" on each line. */
static long long read_kills(const char *path)
{
    char word[64];
    long long value, kills = -1;
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    while (fscanf(file, "%63s %lld", word, &value) == 2)
        if (strcmp(word, "oom_kill") == 0)
            kills = value;
    fclose(file);
    return kills;
}

long long memory_limit_kills(void)
{
    char line[4352], path[4608];
    long long kills = -1;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && kills < 0 && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3) == 0)
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
        else if (strstr(line, ":memory:"))
            snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control",
                     strstr(line, ":memory:") + 8);
        else
            continue;
        kills = read_kills(path);
    }
    if (file)
        fclose(file);
    return kills;
}
