/* SPDX-License-Identifier: MIT
 *
 * See children.h. The kernel's list of children is used where it has one, else all of /proc is
 * looked through. Without /proc only the workers' process groups are ended. */
#include "config.h"

#include "launcher/children.h"

#include "core/clock.h"
#include "launcher/system/proc.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void visit(void *arg, pid_t pid);

static bool visit_list(visit *each, void *arg)
{
    char path[64];
    long pid;
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fscanf(file, "%ld", &pid) == 1)
        each(arg, (pid_t)pid);
    fclose(file);
    return true;
}

/* The parent of a process, or -1. Its name may hold blanks and brackets: the last bracket ends it.
 */
static long parent_of(long pid)
{
    char text[512];
    long parent = -1;
    const char *end = proc_read(pid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!end || sscanf(end, ") %*c %ld", &parent) != 1)
        return -1;
    return parent;
}

static void visit_all(visit *each, void *arg)
{
    if (visit_list(each, arg))
        return;
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        const long pid = atol(entry->d_name);
        if (pid > 0 && parent_of(pid) == getpid())
            each(arg, (pid_t)pid);
    }
    if (proc)
        closedir(proc);
}

static void note(void *arg, pid_t pid)
{
    struct children *children = arg;
    if (children->foreign_count < CHILDREN_FOREIGN)
        children->foreign[children->foreign_count++] = pid;
}

static bool has_none(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

bool children_left(const struct children *children)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int64_t deadline_ns = ddp_deadline_ns(200); /* for those that are just dying */
    if (!children->none_before || access("/proc/self", F_OK) == 0)
        return false;
    while (!has_none() && !ddp_deadline_passed(deadline_ns))
        if (waitpid(-1, NULL, WNOHANG) == 0)
            nanosleep(&pause, NULL);
    return !has_none();
}

void children_adopt(struct children *children)
{
    children->foreign_count = 0;
    children->none_before = has_none();
    visit_all(note, children);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

bool children_is_foreign(const struct children *children, pid_t pid)
{
    for (int i = 0; i < children->foreign_count; i++)
        if (children->foreign[i] == pid)
            return true;
    return false;
}

struct killing {
    const struct children *children;
    const struct keeper *keeper;
    int count;
};

static void end_one(void *arg, pid_t pid)
{
    struct killing *killing = arg;
    if (keeper_is(killing->keeper, pid) || children_is_foreign(killing->children, pid))
        return;
    kill(pid, SIGKILL);
    killing->count++;
}

void children_end_all(const struct children *children, struct keeper *keeper)
{
    int64_t deadline_ns = ddp_deadline_ns(2000);
    const struct timespec pause = {.tv_nsec = 500000};
    while (!ddp_deadline_passed(deadline_ns)) {
        pid_t reaped;
        int status;
        while ((reaped = waitpid(-1, &status, WNOHANG)) > 0 || (reaped < 0 && errno == EINTR))
            if (reaped > 0)
                keeper_replace(keeper, reaped, status);
        if (reaped < 0)
            break; /* nobody is left */
        struct killing killing = {.children = children, .keeper = keeper};
        visit_all(end_one, &killing);
        if (killing.count == 0)
            break;
        nanosleep(&pause, NULL);
    }
}
