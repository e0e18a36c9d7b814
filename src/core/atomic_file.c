/* SPDX-License-Identifier: MIT
 *
 * See atomic_file.h. The temporary file has no name at all where the file system has O_TMPFILE, so
 * that even a SIGKILL leaves nothing behind; linkat() then names it just before the rename. */
#include "config.h"

#include "core/atomic_file.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ddp_atomic_file {
    char *path;
    char *directory;
    char *temporary; /* the name that the file has, or will have, before the rename */
    int fd;
    bool named; /* the temporary name exists */
};

static enum ddp_status io_error(const struct ddp_atomic_file *file, const char *what)
{
    return ddp_fail(DDP_ERR_IO, "%s: cannot %s: %s", file->path, what, strerror(errno));
}

static bool set_names(struct ddp_atomic_file *file, const char *path)
{
    const char *slash = strrchr(path, '/');
    file->path = strdup(path);
    file->directory =
        slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (asprintf(&file->temporary, "%s.%ld.tmp", path, (long)getpid()) < 0)
        file->temporary = NULL;
    return file->path && file->directory && file->temporary;
}

enum ddp_status ddp_atomic_file_open(ddp_atomic_file **file, const char *path)
{
    struct stat info;
    struct ddp_atomic_file *f = ddp_array_alloc(1, sizeof *f);
    if (!f)
        return DDP_ERR_MEMORY;
    f->fd = -1;
    enum ddp_status status = DDP_OK;
    if (!set_names(f, path)) {
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    } else if (!*path || path[strlen(path) - 1] == '/' ||
               (stat(path, &info) == 0 && S_ISDIR(info.st_mode))) {
        status = ddp_fail(DDP_ERR_IO, "%s: cannot write: it is a directory, not a file", path);
    } else {
        f->fd = open(f->directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
        if (f->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
            f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
            f->named = f->fd >= 0;
        }
        if (f->fd < 0)
            status = io_error(f, "write");
    }
    if (status != DDP_OK) {
        ddp_atomic_file_close(f);
        return status;
    }
    *file = f;
    return DDP_OK;
}

enum ddp_status ddp_atomic_file_write(ddp_atomic_file *file, const void *data, size_t bytes)
{
    const char *next = data;
    while (bytes > 0) {
        ssize_t n = write(file->fd, next, bytes);
        if (n < 0 && errno != EINTR)
            return io_error(file, "write");
        if (n > 0) {
            next += n;
            bytes -= (size_t)n;
        }
    }
    return DDP_OK;
}

static enum ddp_status sync_directory(const struct ddp_atomic_file *file)
{
    int fd = open(file->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_error(file, "open its directory");
    enum ddp_status status = DDP_OK;
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        status = io_error(file, "sync its directory");
    close(fd);
    return status;
}

/* Gives an O_TMPFILE its temporary name. */
static int name_file(struct ddp_atomic_file *file)
{
    char proc[64];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
    unlink(file->temporary); /* left by an earlier process of the same number */
    return linkat(AT_FDCWD, proc, AT_FDCWD, file->temporary, AT_SYMLINK_FOLLOW);
}

enum ddp_status ddp_atomic_file_commit(ddp_atomic_file *file)
{
    if (fsync(file->fd) < 0 && errno != EINVAL)
        return io_error(file, "sync");
    if (!file->named) {
        if (name_file(file) < 0)
            return io_error(file, "name the new file");
        file->named = true;
    }
    if (rename(file->temporary, file->path) < 0)
        return io_error(file, "rename the new file");
    file->named = false;
    return sync_directory(file);
}

void ddp_atomic_file_close(ddp_atomic_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->named)
        unlink(file->temporary);
    free(file->temporary);
    free(file->directory);
    free(file->path);
    free(file);
}
