/* SPDX-License-Identifier: MIT
 *
 * See data_file.h. */
#include "config.h"

#include "data/data_file.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK: opening a FIFO would wait for its writer. */
static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

enum ddp_status ddp_data_file_open(struct ddp_data_file *file, const char *path, bool keep)
{
    struct stat info;
    *file = (struct ddp_data_file){.fd = open_path(path)};
    if (file->fd < 0)
        return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot open: %s", path,
                        strerror(errno));
    enum ddp_status status = DDP_OK;
    if (fstat(file->fd, &info) < 0)
        status = ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot read: %s", path,
                          strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = ddp_fail(DDP_ERR_IO, "%s: cannot read: not a regular file", path);
    else if (!(file->path = strdup(path)))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    if (status == DDP_OK)
        file->bytes = (uint64_t)info.st_size;
    if (status != DDP_OK || !keep) {
        close(file->fd);
        file->fd = -1;
    }
    return status;
}

void ddp_data_file_close(struct ddp_data_file *file)
{
    if (!file->path) /* not open */
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = (struct ddp_data_file){.fd = -1};
}

static enum ddp_status read_all(const struct ddp_data_file *file, int fd, uint64_t offset, void *to,
                                size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO),
                            "%s: cannot read at byte %" PRIu64 ": %s", file->path, offset + done,
                            strerror(errno));
        if (n == 0) {
            struct stat info;
            int64_t now = fstat(fd, &info) == 0 ? (int64_t)info.st_size : 0;
            return ddp_fail(DDP_ERR_IO,
                            "%s: the file has changed while it was in use: it had %" PRIu64
                            " bytes and now has %" PRId64,
                            file->path, file->bytes, now);
        }
        done += (size_t)n;
    }
    return DDP_OK;
}

enum ddp_status ddp_data_file_read(const struct ddp_data_file *file, uint64_t offset, void *to,
                                   size_t bytes)
{
    if (file->fd >= 0)
        return read_all(file, file->fd, offset, to, bytes);
    int fd = open_path(file->path);
    if (fd < 0)
        return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot open it again: %s",
                        file->path, strerror(errno));
    enum ddp_status status = read_all(file, fd, offset, to, bytes);
    close(fd);
    return status;
}

bool ddp_data_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool ddp_data_directory_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *ddp_data_path(const char *directory, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) < 0) {
        (void)ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", directory);
        return NULL;
    }
    return path;
}

/* --- names --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum ddp_status copy_names(struct ddp_data_names *names, char *const *from, size_t count)
{
    names->at = ddp_array_alloc(count, sizeof *names->at);
    if (!names->at)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < count; i++, names->count++)
        if (!(names->at[i] = strdup(from[i])))
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", from[i]);
    qsort(names->at, count, sizeof *names->at, by_name);
    return DDP_OK;
}

static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") != NULL;
}

enum ddp_status ddp_data_names_list(struct ddp_data_names *names, const char *path)
{
    if (!is_pattern(path) || ddp_data_file_exists(path))
        return copy_names(names, (char *[]){(char *)(uintptr_t)path}, 1);
    glob_t found = {0};
    enum ddp_status status;
    int result = glob(path, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (result == 0)
        status = copy_names(names, found.gl_pathv, found.gl_pathc);
    else if (result == GLOB_NOMATCH)
        status = ddp_fail(DDP_ERR_IO, "%s: no such file, and no file matches this pattern", path);
    else if (result == GLOB_NOSPACE)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    else
        status = ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot list the files: %s",
                          path, strerror(errno));
    globfree(&found);
    return status;
}

void ddp_data_names_free(struct ddp_data_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct ddp_data_names){0};
}

bool ddp_data_names_any(const char *path)
{
    glob_t found = {0};
    if (!is_pattern(path) || ddp_data_file_exists(path))
        return ddp_data_file_exists(path);
    bool any = glob(path, GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc > 0;
    globfree(&found);
    return any;
}
