/* SPDX-License-Identifier: MIT
 *
 * See mark.h. No malloc and no stdio where processes are killed: the caller is a fork of a process
 * with threads. */
#include "config.h"

#include "launcher/system/mark.h"

#include "core/clock.h"
#include "launcher/system/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KILL_MS      2000
#define CLEAN_PASSES 2 /* in a row: a process may fork to a number that was passed already */
#define CALM_PASSES  5 /* the same, while processes come to an end, perhaps after a fork */

/* Marks are between these, which have as many digits. */
#define LEAST ((rlim_t)1000000000000000000)
#define MOST  ((rlim_t)1 << 62)
#define RANGE ((rlim_t)1 << 48)

static char text[65536];

/* A job in a job needs a mark below that of the outer one: without privileges a limit can only be
 * lowered. */
void mark_make(char mark[MARK_SIZE])
{
    struct rlimit limit = {.rlim_max = RLIM_INFINITY};
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        number = (uint64_t)ddp_clock_ns() << 22 ^ (uint64_t)getpid();
    getrlimit(RLIMIT_RTTIME, &limit);
    bool below = limit.rlim_max < MOST && limit.rlim_max > LEAST + RANGE;
    snprintf(mark, MARK_SIZE, "%llu",
             (unsigned long long)((below ? limit.rlim_max : MOST) - 1 - number % RANGE));
}

/* Lowers the limit to `number`; one that is lower already means something, and stays. */
static void lower(rlim_t number)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_RTTIME, &limit) < 0 || limit.rlim_max < number)
        return;
    limit.rlim_max = number;
    if (limit.rlim_cur > number)
        limit.rlim_cur = number;
    setrlimit(RLIMIT_RTTIME, &limit);
}

void mark_put(const char mark[MARK_SIZE])
{
    lower((rlim_t)strtoull(mark, NULL, 10));
}

void mark_take_off(void)
{
    char *variable = getenv(MARK_VARIABLE);
    if (variable)
        memset(variable, 0, strlen(variable));
    lower(LEAST);
}

/* Searches a file for the mark, a buffer at a time; a mark may cross two buffers. */
static bool holds_mark(int directory, const char *name, const char *mark)
{
    size_t kept = 0;
    bool found = false;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !found) {
        ssize_t n = read(fd, text + kept, sizeof text - kept);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        size_t bytes = kept + (size_t)n;
        found = memmem(text, bytes, mark, MARK_SIZE - 1) != NULL;
        kept = bytes < MARK_SIZE - 2 ? bytes : MARK_SIZE - 2;
        memmove(text, text + bytes - kept, kept);
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* A process that has not been waited for still has its limits. */
static bool is_zombie(int process)
{
    int fd = openat(process, "stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *end = strrchr(text, ')');
    return end && strncmp(end, ") Z", 3) == 0;
}

struct killing {
    const char *mark;
    int killed;
    int ended; /* while it was looked at, or before */
};

/* Kills the process behind an entry of /proc if it has the mark. The open directory identifies the
 * process: if its number is reused meanwhile, the new process is not killed. */
static void kill_marked(void *arg, int proc, const char *name)
{
    struct killing *killing = arg;
    if (name[strspn(name, "0123456789")] != 0)
        return;
    int process = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process < 0) {
        killing->ended++;
        return;
    }
    if (holds_mark(process, "limits", killing->mark) ||
        holds_mark(process, "environ", killing->mark)) {
        syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
        bool zombie = is_zombie(process);
        killing->ended += zombie;
        killing->killed += !zombie;
    } else if (syscall(SYS_pidfd_send_signal, process, 0, NULL, 0) < 0 && errno == ESRCH) {
        killing->ended++;
    }
    close(process);
}

void mark_kill(const char mark[MARK_SIZE])
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int64_t deadline_ns = ddp_deadline_ns(KILL_MS);
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return;
    for (int clean = 0, calm = 0;
         clean < CLEAN_PASSES && calm < CALM_PASSES && !ddp_deadline_passed(deadline_ns);) {
        struct killing killing = {.mark = mark};
        entries_visit(proc, kill_marked, &killing);
        calm = killing.killed == 0 ? calm + 1 : 0;
        clean = killing.killed == 0 && killing.ended == 0 ? clean + 1 : 0;
        nanosleep(&pause, NULL);
    }
    close(proc);
}
