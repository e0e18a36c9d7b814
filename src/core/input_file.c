/* SPDX-License-Identifier: MIT
 *
 * See input_file.h. */
#include "config.h"

#include "core/input_file.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
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

enum ddp_status ddp_input_file_open(struct ddp_input_file *file, const char *path, bool keep)
{
    struct stat info;
    *file = (struct ddp_input_file){.fd = open_path(path)};
    if (file->fd < 0)
        return ddp_fail_path(path, "open");
    enum ddp_status status = DDP_OK;
    if (fstat(file->fd, &info) < 0)
        status = ddp_fail_path(path, "read");
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

void ddp_input_file_close(struct ddp_input_file *file)
{
    if (!file->path) /* not open */
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = (struct ddp_input_file){.fd = -1};
}

static enum ddp_status read_all(const struct ddp_input_file *file, int fd, uint64_t offset,
                                void *to, size_t bytes)
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

enum ddp_status ddp_input_file_read(const struct ddp_input_file *file, uint64_t offset, void *to,
                                    size_t bytes)
{
    if (file->fd >= 0)
        return read_all(file, file->fd, offset, to, bytes);
    int fd = open_path(file->path);
    if (fd < 0)
        return ddp_fail_path(file->path, "open it again");
    enum ddp_status status = read_all(file, fd, offset, to, bytes);
    close(fd);
    return status;
}

enum ddp_status ddp_input_file_read_whole(const char *path, const char *what, size_t most,
                                          char **text, size_t *bytes)
{
    struct ddp_input_file file;
    if (access(path, R_OK) < 0)
        return ddp_fail_path(path, "read");
    enum ddp_status status = ddp_input_file_open(&file, path, true);
    if (status != DDP_OK)
        return status;
    *bytes = (size_t)file.bytes;
    *text = NULL;
    if (file.bytes > most)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %s: it is larger than %zu bytes", path, what, most);
    else if (!(*text = malloc(*bytes + 1)))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    else
        status = ddp_input_file_read(&file, 0, *text, *bytes);
    ddp_input_file_close(&file);
    if (status != DDP_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}
