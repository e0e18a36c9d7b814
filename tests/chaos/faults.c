/* SPDX-License-Identifier: MIT
 *
 * A preload library that makes calls of the C library fail, for faults.py. In the environment:
 *   CHAOS_FAULT=PROGRAM:CALL:N:HOW:REPEAT
 *       in programs of this name, the N-th CALL fails (from 1) with the error number HOW ("short":
 *       read and write do half of what they were asked for; "kill": the program is killed before
 *       it); with REPEAT "on" all later ones too
 *   CHAOS_LACKS=CALL,CALL        what the file system does not have: flock, fallocate, tmpfile
 *                                (files without a name)
 *   CHAOS_FAULT_RANK=R           only where the environment has RANK=R
 *   CHAOS_FAULT_SPARE=NAME,NAME  calls from libraries of these names neither count nor fail
 *   CHAOS_HITS=FILE              gets a line for each process in which the fault occurred
 *   CHAOS_COUNTS=FILE            gets a line "PROGRAM CALL COUNT" for each call when a program ends
 *   CHAOS_CLOCK=SECONDS          the time of day jumps each 50 ms, forth and back by so much
 * Calls count from main() on; what libraries do before that is outside a program's control. Of the
 * calls that the C library makes itself only those for memory are seen. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* What can fail: X(type, failure, name, parameters, arguments). A failure of ERROR returns the
 * error number, as pthread_create() does; others set errno. */
#define ERROR fault.how
#define CALLS(X)                                                                                   \
    X(void *, NULL, malloc, (size_t n), (n))                                                       \
    X(void *, NULL, calloc, (size_t n, size_t size), (n, size))                                    \
    X(void *, NULL, realloc, (void *old, size_t n), (old, n))                                      \
    X(void *, NULL, reallocarray, (void *old, size_t n, size_t size), (old, n, size))              \
    X(void *, NULL, aligned_alloc, (size_t align, size_t n), (align, n))                           \
    X(int, ERROR, posix_memalign, (void **p, size_t align, size_t n), (p, align, n))               \
    X(void *, MAP_FAILED, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset),   \
      (at, n, prot, flags, fd, offset))                                                            \
    X(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))                    \
    X(int, -1, ftruncate, (int fd, off_t n), (fd, n))                                              \
    X(int, -1, fallocate, (int fd, int mode, off_t from, off_t n), (fd, mode, from, n))            \
    X(int, ERROR, posix_fallocate, (int fd, off_t from, off_t n), (fd, from, n))                   \
    X(int, -1, fsync, (int fd), (fd))                                                              \
    X(int, -1, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))       \
    X(int, -1, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),        \
      (a, from, b, to, flags))                                                                     \
    X(int, -1, linkat, (int a, const char *from, int b, const char *to, int flags),                \
      (a, from, b, to, flags))                                                                     \
    X(int, -1, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))                 \
    X(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))                               \
    X(int, -1, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))                 \
    X(DIR *, NULL, opendir, (const char *path), (path))                                            \
    X(DIR *, NULL, fdopendir, (int fd), (fd))                                                      \
    X(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))                     \
    X(off_t, -1, lseek, (int fd, off_t to, int whence), (fd, to, whence))                          \
    X(int, -1, flock, (int fd, int operation), (fd, operation))                                    \
    X(ssize_t, -1, getrandom, (void *to, size_t n, unsigned flags), (to, n, flags))                \
    X(int, -1, dup2, (int from, int to), (from, to))                                               \
    X(int, -1, pipe2, (int fds[2], int flags), (fds, flags))                                       \
    X(int, -1, eventfd, (unsigned value, int flags), (value, flags))                               \
    X(int, -1, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))               \
    X(int, -1, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout))              \
    X(int, -1, setpgid, (pid_t pid, pid_t group), (pid, group))                                    \
    X(int, -1, execve, (const char *path, char *const *argv, char *const *envp),                   \
      (path, argv, envp))                                                                          \
    X(pid_t, -1, fork, (void), ())                                                                 \
    X(int, ERROR, pthread_create,                                                                  \
      (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *data),          \
      (thread, attr, run, data))

#define NAME(type, failure, name, parameters, arguments) CALL_##name,
enum call {
    CALLS(NAME) CALL_open,
    CALL_openat,
    CALL_read,
    CALL_pread,
    CALL_write,
    CALL_close,
    CALL_COUNT
};
#undef NAME
#define NAME(type, failure, name, parameters, arguments) #name,
static const char *const names[] = {
    CALLS(NAME) "open", "openat", "read", "pread", "write", "close"};
#undef NAME

enum { SHORT = -1, KILL = -2 };

static struct {
    _Atomic int
        state; /* 0: the environment was not read yet, 1: nothing is to fail, 2: a call is */
    int call, how;
    unsigned n;
    bool on;
    const char *hits, *counts;
    const char *lacks; /* or NULL */
    _Atomic unsigned seen[CALL_COUNT];
    struct range {
        uintptr_t begin, end;
    } spared[16];
    size_t spared_count;
} fault;

/* The C library's own function. NULL for calloc() that dlsym() calls itself, which bears that. */
static void *find(const char *name)
{
    static _Thread_local bool inside;
    if (inside)
        return NULL;
    inside = true;
    void *found = dlsym(RTLD_NEXT, name);
    inside = false;
    return found;
}

/* Past all the functions of this file. */
static void append(const char *path, const char *text)
{
    const long fd =
        syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    syscall(SYS_write, fd, text, strlen(text));
    syscall(SYS_close, fd);
}

/* Notes where the code of a library lies that is to be spared. */
static int spare(struct dl_phdr_info *info, size_t size, void *names_data)
{
    char list[256], *rest = NULL;
    snprintf(list, sizeof list, "%s", (const char *)names_data);
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        for (int i = 0; strstr(info->dlpi_name, name) && i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_flags & PF_X && fault.spared_count < 16) {
                struct range *range = &fault.spared[fault.spared_count++];
                range->begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
                range->end = range->begin + info->dlpi_phdr[i].p_memsz;
            }
    (void)size;
    return 0;
}

static int read_environment(void)
{
    char program[32], call[32], how[16], repeat[16];
    const char *text = getenv("CHAOS_FAULT"), *rank = getenv("CHAOS_FAULT_RANK"),
               *own = getenv("RANK");
    fault.hits = getenv("CHAOS_HITS");
    fault.counts = getenv("CHAOS_COUNTS");
    fault.lacks = getenv("CHAOS_LACKS");
    if (getenv("CHAOS_FAULT_SPARE"))
        dl_iterate_phdr(spare, getenv("CHAOS_FAULT_SPARE"));
    if (!text ||
        sscanf(text, "%31[^:]:%31[^:]:%u:%15[^:]:%15s", program, call, &fault.n, how, repeat) !=
            5 ||
        strcmp(program, program_invocation_short_name) != 0 ||
        (rank && (!own || strcmp(rank, own) != 0)))
        return 1;
    fault.call = -1;
    for (int i = 0; i < CALL_COUNT; i++)
        if (strcmp(names[i], call) == 0)
            fault.call = i;
    fault.how = strcmp(how, "short") == 0 ? SHORT : strcmp(how, "kill") == 0 ? KILL : atoi(how);
    fault.on = strcmp(repeat, "on") == 0;
    return 2;
}

static bool is_spared(const void *caller)
{
    for (size_t i = 0; i < fault.spared_count; i++)
        if ((uintptr_t)caller >= fault.spared[i].begin && (uintptr_t)caller < fault.spared[i].end)
            return true;
    return false;
}

static bool lacks(const char *name)
{
    if (fault.state == 0 || !fault.lacks || !strstr(fault.lacks, name))
        return false;
    errno = EOPNOTSUPP;
    return true;
}

/* Counts a call; whether it is to fail. Then errno is set. */
static bool due(enum call call, const void *caller)
{
    if (fault.state == 0 || is_spared(caller))
        return false;
    if ((call == CALL_flock || call == CALL_fallocate) && lacks(names[call]))
        return true;
    const unsigned n = atomic_fetch_add(&fault.seen[call], 1) + 1;
    if (fault.state == 1 || (int)call != fault.call || (fault.on ? n < fault.n : n != fault.n))
        return false;
    if (n == fault.n && fault.hits)
        append(fault.hits, "hit\n");
    if (fault.how == KILL)
        kill(getpid(), SIGKILL);
    if (fault.how != SHORT)
        errno = fault.how;
    return true;
}

/* Found before there are threads: dlsym() takes a lock, which a child that was made without fork()
 * may find taken for ever. */
#define DECLARE(type, failure, name, parameters, arguments) static type(*real_##name) parameters;
CALLS(DECLARE)

#define DEFINE(type, failure, name, parameters, arguments)                                         \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        if (!real_##name && !(real_##name = (type(*) parameters)find(#name)))                      \
            return failure;                                                                        \
        return due(CALL_##name, __builtin_return_address(0)) ? failure : real_##name arguments;    \
    }
CALLS(DEFINE)

/* The mode is there where a file may be made. */
#define OPEN(fd, path, flags, result)                                                              \
    va_list rest;                                                                                  \
    mode_t mode = 0;                                                                               \
    va_start(rest, flags);                                                                         \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)                                       \
        mode = va_arg(rest, mode_t);                                                               \
    va_end(rest);                                                                                  \
    const int result = (int)syscall(SYS_openat, fd, path, flags, mode)

EXPORT int open(const char *path, int flags, ...)
{
    if (due(CALL_open, __builtin_return_address(0)))
        return -1;
    OPEN(AT_FDCWD, path, flags, fd);
    return fd;
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    if ((flags & O_TMPFILE) == O_TMPFILE && lacks("tmpfile"))
        return -1;
    if (due(CALL_openat, __builtin_return_address(0)))
        return -1;
    OPEN(dir, path, flags, fd);
    return fd;
}

static size_t half(size_t n)
{
    return n > 1 ? n / 2 : n;
}

/* Files and pipes: other descriptors know no error that a program could meet. */
static bool is_plain(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode));
}

EXPORT ssize_t read(int fd, void *to, size_t n)
{
    if (!is_plain(fd) || !due(CALL_read, __builtin_return_address(0)))
        return syscall(SYS_read, fd, to, n);
    return fault.how == SHORT ? syscall(SYS_read, fd, to, half(n)) : -1;
}

EXPORT ssize_t pread(int fd, void *to, size_t n, off_t from)
{
    if (!due(CALL_pread, __builtin_return_address(0)))
        return syscall(SYS_pread64, fd, to, n, from);
    return fault.how == SHORT ? syscall(SYS_pread64, fd, to, half(n), from) : -1;
}

/* Not to standard error, which has the error messages. */
EXPORT ssize_t write(int fd, const void *from, size_t n)
{
    if (fd == STDERR_FILENO || !is_plain(fd) || !due(CALL_write, __builtin_return_address(0)))
        return syscall(SYS_write, fd, from, n);
    return fault.how == SHORT ? syscall(SYS_write, fd, from, half(n)) : -1;
}

/* Closed in any case, as the kernel does it. */
EXPORT int close(int fd)
{
    const int result = (int)syscall(SYS_close, fd);
    return due(CALL_close, __builtin_return_address(0)) ? -1 : result;
}

/* The C library's first function, which calls main(). */
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
EXPORT int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                             void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                             void *stack_end)
{
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                void (*)(void), void *);
    real = (__typeof__(real))find("__libc_start_main");
#define RESOLVE(type, failure, name, parameters, arguments)                                        \
    if (!real_##name)                                                                              \
        real_##name = (type(*) parameters)find(#name);
    CALLS(RESOLVE)
    fault.state = read_environment();
    return real(main, argc, argv, init, fini, rtld_fini, stack_end);
}

static void __attribute__((destructor)) tell_counts(void)
{
    char line[128];
    for (int i = 0; fault.counts && i < CALL_COUNT; i++) {
        snprintf(line, sizeof line, "%s %s %u\n", program_invocation_short_name, names[i],
                 fault.seen[i]);
        append(fault.counts, line);
    }
}

/* --- the time of day -------------------------------------------------------------------------- */

EXPORT int clock_gettime(clockid_t clock, struct timespec *out)
{
    static _Atomic long jump = -1;
    struct timespec now;
    if (jump < 0)
        jump = getenv("CHAOS_CLOCK") ? atol(getenv("CHAOS_CLOCK")) : 0;
    const int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && jump > 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        out->tv_sec += jump * (now.tv_nsec / 50000000 % 3 - 1);
    }
    return result;
}

EXPORT int gettimeofday(struct timeval *out, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

EXPORT time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
