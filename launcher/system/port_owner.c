/* SPDX-License-Identifier: MIT
 *
 * See port_owner.h. */
#include "config.h"

#include "launcher/system/port_owner.h"

#include "core/text.h"
#include "launcher/system/proc.h"

#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define LISTENS 0x0a /* TCP_LISTEN */

/* A line of /proc/net/tcp and tcp6 for each socket. */
static bool find_socket(const char *table, int port, unsigned long *inode, unsigned *uid)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(table, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned local, state;
        found = sscanf(line,
                       " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %u %*d %lu",
                       &local, &state, uid, inode) == 4 &&
                (int)local == port && state == LISTENS;
    }
    if (file)
        fclose(file);
    return found;
}

static bool has_socket(long pid, const char *wanted)
{
    char path[300], target[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/fd", pid);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "/proc/%ld/fd/%s", pid, entry->d_name);
        const ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        found = strcmp(target, wanted) == 0;
    }
    if (directory)
        closedir(directory);
    return found;
}

bool port_owner(int port, char *out, size_t size)
{
    unsigned long inode;
    unsigned uid;
    char wanted[64], name[64], clean[128];
    long pid = 0;
    *out = 0;
    if (!find_socket("/proc/net/tcp", port, &inode, &uid) &&
        !find_socket("/proc/net/tcp6", port, &inode, &uid))
        return false;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *directory = opendir("/proc");
    for (struct dirent *entry; directory && !pid && (entry = readdir(directory));) {
        const long candidate = strtol(entry->d_name, NULL, 10);
        if (candidate > 0 && has_socket(candidate, wanted))
            pid = candidate;
    }
    if (directory)
        closedir(directory);
    if (pid && proc_read(pid, "comm", name, sizeof name)) {
        ddp_text_clean(clean, sizeof clean, name, strcspn(name, "\n"));
        snprintf(out, size, "%s (pid %ld)", clean, pid);
        return true;
    }
    const struct passwd *user = getpwuid(uid);
    if (user)
        snprintf(out, size, "a process of user %s", user->pw_name);
    else
        snprintf(out, size, "a process of user %u", uid);
    return true;
}
