/* SPDX-License-Identifier: MIT
 *
 * See cgroup.h. */
#include "config.h"

#include "core/cgroup.h"

#include <stdio.h>
#include <string.h>

/* Is a word in a comma-separated list? */
static bool is_in(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

/* group: "" or "/a/b"; hierarchy: "", or the name of that of version 1 */
static void visit_upwards(const char *group, const char *hierarchy,
                          void (*each)(void *arg, const char *directory, bool unified), void *arg)
{
    char directory[DDP_CGROUP_PATH];
    for (int length = (int)strlen(group); length >= 0; length--) {
        if (group[length] != '\0' && group[length] != '/')
            continue;
        snprintf(directory, sizeof directory, "/sys/fs/cgroup%s%s%.*s", *hierarchy ? "/" : "",
                 hierarchy, length, group);
        each(arg, directory, !*hierarchy);
    }
}

void ddp_cgroup_visit(const char *controller,
                      void (*each)(void *arg, const char *directory, bool unified), void *arg)
{
    char line[DDP_CGROUP_PATH - 64];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        /* "0::/user.slice/x" (version 2) or "4:cpu,cpuacct:/docker/x" (version 1) */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(++controllers, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        const bool unified = !*controllers;
        if (!unified && !is_in(controllers, controller))
            continue;
        visit_upwards(strcmp(group, "/") == 0 ? "" : group, unified ? "" : controller, each, arg);
    }
    if (file)
        fclose(file);
}
