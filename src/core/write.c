/* SPDX-License-Identifier: MIT
 *
 * See write.h. */
#include "config.h"

#include "core/write.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int ddp_open_for_writing(const char *path, int flags)
{
    struct stat info;
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    /* Open for reading too it would be its own reader. */
    if (fd >= 0 && (flags & O_ACCMODE) == O_RDWR && fstat(fd, &info) == 0 &&
        S_ISFIFO(info.st_mode)) {
        close(fd);
        fd = open(path, (flags & ~O_ACCMODE) | O_WRONLY | O_CLOEXEC | O_NONBLOCK, 0666);
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

enum ddp_status ddp_open_failed(const char *path)
{
    struct stat info;
    if (errno == ENXIO && stat(path, &info) == 0 && S_ISFIFO(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot write to it: it is a FIFO that nobody reads", path);
    return ddp_fail_path(path, "open it for writing");
}

ssize_t ddp_write_quietly(int fd, const void *data, size_t bytes)
{
    sigset_t pipe, pending, old;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    const ssize_t n = write(fd, data, bytes);
    const int error = errno;
    if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = error;
    return n;
}

int ddp_write_all(int fd, const void *data, size_t bytes)
{
    for (const char *next = data; bytes > 0;) {
        const ssize_t n = write(fd, next, bytes);
        if (n < 0 && errno != EINTR)
            return -1;
        next += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int ddp_sync(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result < 0 && errno == EINTR);
    return result < 0 && (errno == EINVAL || errno == EROFS) ? 0 : result;
}

char *ddp_path_in(const char *directory, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) >= 0)
        return path;
    (void)ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", directory);
    return NULL;
}

bool ddp_path_is_in(const char *directory, const char *name)
{
    char *path = ddp_path_in(directory, name);
    const bool is = path && access(path, F_OK) == 0;
    free(path);
    return is;
}

char *ddp_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

static int make_directory(const char *path, bool durable)
{
    if (mkdir(path, 0777) < 0)
        return errno == EEXIST ? 0 : -1;
    char *above = durable ? ddp_directory_of(path) : NULL;
    const int fd = above ? open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(above);
    if (fd >= 0) {
        ddp_sync(fd);
        close(fd);
    }
    return 0;
}

enum ddp_status ddp_make_directories(const char *path, bool durable)
{
    char *copy = strdup(path);
    if (!copy)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = DDP_OK;
    for (char *slash = copy + strspn(copy, "/"); status == DDP_OK && *slash;) {
        slash += strcspn(slash, "/");
        const char kept = *slash;
        *slash = '\0';
        if (make_directory(copy, durable) < 0)
            status = ddp_fail_path(copy, "make this directory");
        *slash = kept;
        slash += strspn(slash, "/");
    }
    free(copy);
    return status;
}
