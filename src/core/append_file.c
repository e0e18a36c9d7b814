/* SPDX-License-Identifier: MIT
 *
 * See append_file.h. */
#include "config.h"

#include "core/append_file.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ddp_append_file {
    int fd;
    bool regular; /* what was written of half a record can be taken back */
    bool warned;
    char *path;
};

static void end_last_line(int fd)
{
    char last;
    const off_t end = lseek(fd, 0, SEEK_END);
    if (end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n')
        (void)!write(fd, "\n", 1); /* when this fails, so does the first record, which warns */
}

enum ddp_status ddp_append_file_open(ddp_append_file **file, const char *path, bool lines)
{
    struct stat status;
    ddp_append_file *f = ddp_array_alloc(1, sizeof *f);
    if (!f)
        return DDP_ERR_MEMORY;
    f->fd = -1;
    f->path = strdup(path);
    enum ddp_status failure = f->path ? ddp_open_for_writing(&f->fd, path, O_CREAT | O_APPEND)
                                      : ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    if (failure != DDP_OK) {
        ddp_append_file_close(f);
        return failure;
    }
    f->regular = fstat(f->fd, &status) == 0 && S_ISREG(status.st_mode);
    if (lines && f->regular)
        end_last_line(f->fd);
    *file = f;
    return DDP_OK;
}

void ddp_append_file_write(ddp_append_file *file, const void *record, size_t bytes)
{
    const off_t begin = file->regular ? lseek(file->fd, 0, SEEK_END) : 0;
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = ddp_write_quietly(file->fd, (const char *)record + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (done == bytes)
        return;
    const int error = errno;
    if (file->regular && done > 0)
        (void)!ftruncate(file->fd, begin);
    if (!file->warned)
        ddp_log(DDP_LOG_WARNING, "%s: cannot write to it: %s: further lines are dropped",
                file->path, strerror(error));
    file->warned = true;
}

void ddp_append_file_close(ddp_append_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file);
}
