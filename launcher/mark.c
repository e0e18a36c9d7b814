/* SPDX-License-Identifier: MIT
 *
 * See mark.h. No malloc and no stdio: the caller is a fork of a process with threads. */
#include "config.h"

#include "launcher/mark.h"

#include "core/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KILL_MS      2000
#define CLEAN_PASSES 2 /* in a row: a process may fork to a number that was passed already */

/* What getdents64() fills in. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static _Alignas(8) char entries[32768];
static char text[65536];

void mark_make(char mark[MARK_SIZE])
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        number = (uint64_t)ddp_clock_ns() << 22 ^ (uint64_t)getpid();
    snprintf(mark, MARK_SIZE, "%016llx", (unsigned long long)number);
}

static bool is_number(const char *name)
{
    return name[strspn(name, "0123456789")] == 0;
}

/* Looks for the mark in what `fd` holds, a buffer at a time; a mark may lie across two. */
static bool holds_mark(int fd, const char *mark)
{
    size_t kept = 0;
    for (;;) {
        ssize_t n = read(fd, text + kept, sizeof text - kept);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        size_t bytes = kept + (size_t)n;
        if (memmem(text, bytes, mark, MARK_SIZE - 1))
            return true;
        kept = bytes < MARK_SIZE - 2 ? bytes : MARK_SIZE - 2;
        memmove(text, text + bytes - kept, kept);
    }
}

/* Kills the process behind an entry of /proc if it has the mark. The open directory stands for the
 * process: should its number go to another meanwhile, that one is not hit. */
static bool kill_marked(int proc, const char *name, const char *mark)
{
    bool marked = false;
    int process = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        return false;
    int environment = openat(process, "environ", O_RDONLY | O_CLOEXEC);
    if (environment >= 0) {
        marked = holds_mark(environment, mark);
        close(environment);
    }
    if (marked)
        syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
    close(process);
    return marked;
}

static int kill_all(int proc, const char *mark)
{
    int killed = 0;
    long n;
    lseek(proc, 0, SEEK_SET);
    while ((n = syscall(SYS_getdents64, proc, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            killed += is_number(entry->name) && kill_marked(proc, entry->name, mark);
            at += entry->bytes;
        }
    return killed;
}

void mark_kill(const char mark[MARK_SIZE])
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int64_t deadline_ns = ddp_deadline_ns(KILL_MS);
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return;
    for (int clean = 0; clean < CLEAN_PASSES && !ddp_deadline_passed(deadline_ns);) {
        clean = kill_all(proc, mark) == 0 ? clean + 1 : 0;
        nanosleep(&pause, NULL);
    }
    close(proc);
}
