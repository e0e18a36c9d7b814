/* SPDX-License-Identifier: MIT
 *
 * Preloaded into a trainer by durable.sh: writes to DURABLE_LOG what becomes of files, a line a
 * call, each file and directory as its inode:
 *   write FILE, sync FILE, make FILE DIRECTORY, name FILE DIRECTORY (a rename or a link) */
#include "config.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

static void say(const char *text, int length)
{
    const char *path = getenv("DURABLE_LOG");
    const int fd = path ? NEXT(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    if (NEXT(write)(fd, text, (size_t)length) != length)
        abort();
    close(fd);
}

/* Regular files and directories only. */
static void say_fd(const char *what, int fd)
{
    struct stat info;
    char line[64];
    if (fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)))
        say(line, snprintf(line, sizeof line, "%s %lu\n", what, (unsigned long)info.st_ino));
}

/* A path that is there now, and the directory it is in. */
static void say_path(const char *what, int at, const char *path)
{
    struct stat info, above;
    char line[96], copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    if (fstatat(at, path, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        fstatat(at, dirname(copy), &above, 0) == 0)
        say(line, snprintf(line, sizeof line, "%s %lu %lu\n", what, (unsigned long)info.st_ino,
                           (unsigned long)above.st_ino));
}

static int opened(int fd, int at, const char *path, int flags)
{
    if (fd >= 0 && flags & O_CREAT)
        say_path("make", at, path);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened(NEXT(open)(path, flags, mode), AT_FDCWD, path, flags);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened(NEXT(openat)(at, path, flags, mode), at, path, flags);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    say_fd("write", fd);
    return NEXT(write)(fd, data, bytes);
}

int fsync(int fd)
{
    const int result = NEXT(fsync)(fd);
    if (result == 0)
        say_fd("sync", fd);
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    const int result = NEXT(mkdir)(path, mode);
    if (result == 0)
        say_path("make", AT_FDCWD, path);
    return result;
}

int mkdirat(int at, const char *path, mode_t mode)
{
    const int result = NEXT(mkdirat)(at, path, mode);
    if (result == 0)
        say_path("make", at, path);
    return result;
}

static int named(int result, int at, const char *path)
{
    if (result == 0)
        say_path("name", at, path);
    return result;
}

int rename(const char *from, const char *to)
{
    return named(NEXT(rename)(from, to), AT_FDCWD, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    return named(NEXT(renameat)(from_at, from, to_at, to), to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    return named(NEXT(renameat2)(from_at, from, to_at, to, flags), to_at, to);
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
    return named(NEXT(linkat)(from_at, from, to_at, to, flags), to_at, to);
}
