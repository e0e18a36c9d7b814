/* SPDX-License-Identifier: MIT
 *
 * See cgroup.h. Processes are born in the group (CLONE_INTO_CGROUP): to move one there takes
 * milliseconds. */
#include "config.h"

#include "launcher/system/cgroup.h"

#include "launcher/system/entries.h"
#include "launcher/system/mark.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define PREFIX         "ddprun-"
#define REMOVE_TRIES   200 /* a millisecond each */
#define MAX_DEPTH      16
#define OPEN_DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Is this process in the group? In a container the path from the kernel may lead to another group,
 * and a job must not leave its limits. */
static bool holds_us(int group)
{
    long pid = 0;
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    while (file && pid != getpid() && fscanf(file, "%ld", &pid) == 1)
        ;
    if (file)
        fclose(file);
    return pid == getpid();
}

static int open_at(const char *root, const char *group)
{
    char path[PATH_MAX + 64];
    struct statfs info;
    snprintf(path, sizeof path, "%s%s", root, group);
    int fd = open(path, OPEN_DIRECTORY);
    if (fd >= 0 && fstatfs(fd, &info) == 0 && info.f_type == CGROUP2_SUPER_MAGIC && holds_us(fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The group that ddprun is in, or -1. On systems with both versions, that of version 2. */
static int open_parent(void)
{
    char line[PATH_MAX];
    int fd = -1;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fd < 0 && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) == 0 && (fd = open_at("/sys/fs/cgroup", line + 3)) < 0)
            fd = open_at("/sys/fs/cgroup/unified", line + 3);
    }
    if (file)
        fclose(file);
    return fd;
}

static bool kill_group(int group)
{
    int fd = openat(group, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    bool killed = fd >= 0 && write(fd, "1", 1) == 1;
    if (fd >= 0)
        close(fd);
    return killed;
}

/* Removes a group with those below it, made by jobs in the job or by workers. */
static void remove_group(void *arg, int parent, const char *name)
{
    const int *depth = arg, below = *depth + 1;
    int group = below > MAX_DEPTH ? -1 : openat(parent, name, OPEN_DIRECTORY);
    if (group < 0)
        return; /* a file */
    entries_visit(group, remove_group, (void *)&below);
    close(group);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* Waits for the end of those that were killed, but not long. */
static void remove_whole(int parent, const char *name)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const int depth = 0;
    for (int i = 0; i < REMOVE_TRIES; i++) {
        remove_group((void *)&depth, parent, name);
        if (faccessat(parent, name, F_OK, 0) < 0)
            break;
        nanosleep(&pause, NULL);
    }
}

/* Kills the rest of a job whose ddprun and keepers are all dead: its group is not locked. */
static void end_forsaken(void *arg, int parent, const char *name)
{
    const char *mark = name + strlen(PREFIX);
    (void)arg;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(mark) != MARK_SIZE - 1 ||
        mark[strspn(mark, "0123456789")] != 0)
        return;
    int group = openat(parent, name, OPEN_DIRECTORY);
    if (group >= 0 && flock(group, LOCK_EX | LOCK_NB) == 0 && kill_group(group))
        remove_whole(parent, name);
    if (group >= 0)
        close(group);
}

static bool make_own(struct cgroup *cgroup)
{
    if (mkdirat(cgroup->parent, cgroup->name, 0755) < 0)
        return false;
    cgroup->own = openat(cgroup->parent, cgroup->name, OPEN_DIRECTORY);
    if (cgroup->own >= 0 && flock(cgroup->own, LOCK_SH | LOCK_NB) == 0 &&
        faccessat(cgroup->own, "cgroup.kill", W_OK, 0) == 0)
        return true;
    unlinkat(cgroup->parent, cgroup->name, AT_REMOVEDIR);
    if (cgroup->own >= 0)
        close(cgroup->own);
    return false;
}

void cgroup_open(struct cgroup *cgroup, const char *mark)
{
    *cgroup = (struct cgroup){.parent = open_parent(), .own = -1};
    if (cgroup->parent < 0)
        return;
    entries_visit(cgroup->parent, end_forsaken, NULL);
    snprintf(cgroup->name, sizeof cgroup->name, PREFIX "%s", mark);
    if (!make_own(cgroup)) {
        close(cgroup->parent);
        cgroup->parent = cgroup->own = -1;
    }
}

pid_t cgroup_fork(const struct cgroup *cgroup)
{
    struct clone_args how = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup->own};
    pid_t pid = cgroup->own < 0 ? -1 : (pid_t)syscall(SYS_clone3, &how, sizeof how);
    return pid < 0 ? fork() : pid;
}

void cgroup_kill(const struct cgroup *cgroup)
{
    if (cgroup->own >= 0)
        kill_group(cgroup->own);
}

void cgroup_remove(const struct cgroup *cgroup)
{
    if (cgroup->own >= 0)
        remove_whole(cgroup->parent, cgroup->name);
}
