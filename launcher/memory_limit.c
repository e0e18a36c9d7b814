/* SPDX-License-Identifier: MIT
 *
 * See memory_limit.h. Both versions of cgroups; a container without a cgroup namespace shows its
 * own group at the root, under a path that does not lead there. */
#include "config.h"

#include "launcher/memory_limit.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4352

/* Where the memory cgroup is. */
struct group {
    bool unified;
    char path[PATH_BYTES]; /* below the root of its hierarchy: "" or "/a/b" */
};

static const char *root_of(const struct group *group)
{
    return group->unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
}

/* Opens a file of the group, or of the root where there is no such group. */
static FILE *open_file(const struct group *group, const char *path, const char *name)
{
    char full[PATH_BYTES + 256];
    snprintf(full, sizeof full, "%s%s/%s", root_of(group), path, name);
    FILE *file = fopen(full, "re");
    if (file || !*path)
        return file;
    snprintf(full, sizeof full, "%s/%s", root_of(group), name);
    return fopen(full, "re");
}

/* The number after `wanted` in a file of lines "word number", or -1. Closes the file. */
static long long read_word(FILE *file, const char *wanted)
{
    char word[64];
    long long value, found = -1;
    if (!file)
        return -1;
    while (found < 0 && fscanf(file, "%63s %lld", word, &value) == 2)
        if (strcmp(word, wanted) == 0)
            found = value;
    fclose(file);
    return found;
}

/* A memory controller of version 1 comes before the hierarchy of version 2 in mixed systems. */
static bool find_group(struct group *group)
{
    char line[PATH_BYTES];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        const char *memory = strstr(line, ":memory:");
        bool unified = strncmp(line, "0::", 3) == 0;
        if (!memory && (!unified || found))
            continue;
        const char *path = memory ? memory + 8 : line + 3;
        group->unified = !memory;
        snprintf(group->path, sizeof group->path, "%s", strcmp(path, "/") == 0 ? "" : path);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

long long memory_limit_kills(void)
{
    struct group group;
    long long kills = -1;
    if (find_group(&group))
        kills = read_word(
            open_file(&group, group.path, group.unified ? "memory.events" : "memory.oom_control"),
            "oom_kill");
    return kills >= 0 ? kills : read_word(fopen("/proc/vmstat", "re"), "oom_kill");
}

long long memory_limit_bytes(void)
{
    struct group group;
    long long least = LLONG_MAX;
    if (!find_group(&group))
        return -1;
    if (!group.unified) {
        least =
            read_word(open_file(&group, group.path, "memory.stat"), "hierarchical_memory_limit");
    } else {
        for (;;) { /* the limits of the groups above hold too */
            long long value;
            FILE *file = open_file(&group, group.path, "memory.max");
            if (file && fscanf(file, "%lld", &value) == 1 && value < least)
                least = value;
            if (file)
                fclose(file);
            char *slash = strrchr(group.path, '/');
            if (!slash)
                break;
            *slash = 0;
        }
    }
    return least < 0 || least > LLONG_MAX / 2 ? -1 : least;
}
