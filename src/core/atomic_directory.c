/* SPDX-License-Identifier: MIT
 *
 * See atomic_directory.h. What is replaced ends under the temporary name and is removed from there.
 * If a kill leaves such a directory, the next writer of the same target removes it, unless there is
 * a subdirectory in it, which only the user can have put there. */
#include "config.h"

#include "core/atomic_directory.h"

#include "core/atomic_file.h"
#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

struct ddp_atomic_directory {
    char *path;      /* of the target, links followed */
    char *temporary; /* of the new one */
    bool exists;     /* the target does */
    bool made;       /* the new one is there, under the temporary name */
};

static bool is_directory(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Calls visit(arg, name, path) for each entry, until it fails. */
typedef enum ddp_status visitor(void *arg, const char *name, const char *path);
static enum ddp_status for_entries(const char *directory, visitor *visit, void *arg)
{
    enum ddp_status status = DDP_OK;
    DIR *open = opendir(directory);
    if (!open)
        return ddp_fail_path(directory, "list");
    for (struct dirent *entry; status == DDP_OK && (entry = readdir(open));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *path = ddp_path_in(directory, entry->d_name);
        status = path ? visit(arg, entry->d_name, path) : DDP_ERR_MEMORY;
        free(path);
    }
    closedir(open);
    return status;
}

static enum ddp_status remove_file(void *arg, const char *name, const char *path)
{
    (void)arg;
    (void)name;
    (void)unlink(path); /* not of a subdirectory */
    return DDP_OK;
}

static enum ddp_status find_directory(void *arg, const char *name, const char *path)
{
    (void)name;
    *(bool *)arg = *(bool *)arg || is_directory(path);
    return DDP_OK;
}

/* Its files, and itself if nothing else is in it. */
static void remove_directory(const char *path)
{
    for_entries(path, remove_file, NULL);
    rmdir(path);
}

/* --- leftovers -------------------------------------------------------------------------------- */

/* Removes "TARGET.PID.tmp" beside the target, if that process has ended. */
static enum ddp_status remove_stale(void *arg, const char *name, const char *path)
{
    const struct ddp_atomic_directory *directory = arg;
    const char *base = strrchr(directory->path, '/');
    base = base ? base + 1 : directory->path;
    const size_t length = strlen(base);
    const size_t digits = strncmp(name, base, length) == 0 && name[length] == '.'
                              ? strspn(name + length + 1, "0123456789")
                              : 0;
    char number[24];
    int64_t pid;
    bool inner = false;
    if (digits == 0 || digits >= sizeof number || strcmp(name + length + 1 + digits, ".tmp") != 0)
        return DDP_OK;
    snprintf(number, sizeof number, "%.*s", (int)digits, name + length + 1);
    if (!ddp_parse_int64(number, 1, INT32_MAX, &pid) || !is_directory(path) ||
        (pid != getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH)))
        return DDP_OK;
    if (for_entries(path, find_directory, &inner) == DDP_OK && !inner)
        remove_directory(path);
    return DDP_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum ddp_status set_names(struct ddp_atomic_directory *directory, const char *path)
{
    struct stat info;
    directory->exists = stat(path, &info) == 0;
    if (!directory->exists && errno != ENOENT)
        return ddp_fail_path(path, "write");
    if (directory->exists && !S_ISDIR(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it is not a directory", path);
    directory->path = directory->exists ? realpath(path, NULL) : strdup(path);
    if (!directory->path)
        return ddp_fail_path(path, "write");
    for (size_t n = strlen(directory->path); n > 1 && directory->path[n - 1] == '/'; n--)
        directory->path[n - 1] = '\0';
    if (!*directory->path || strcmp(directory->path, "/") == 0)
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it has no name", path);
    if (asprintf(&directory->temporary, "%s.%ld.tmp", directory->path, (long)getpid()) < 0) {
        directory->temporary = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    return DDP_OK;
}

static enum ddp_status make(struct ddp_atomic_directory *directory)
{
    struct stat info;
    char *parent = ddp_directory_of(directory->path);
    if (!parent)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (access(parent, R_OK) == 0)
        for_entries(parent, remove_stale, directory);
    free(parent);
    if (mkdir(directory->temporary, 0777) < 0)
        return ddp_fail_path(directory->path, "write");
    directory->made = true;
    if (directory->exists && stat(directory->path, &info) == 0 &&
        chmod(directory->temporary, info.st_mode & 0777) < 0)
        return ddp_fail_path(directory->path, "keep its permissions");
    return DDP_OK;
}

enum ddp_status ddp_atomic_directory_open(ddp_atomic_directory **directory, const char *path)
{
    struct ddp_atomic_directory *d = ddp_array_alloc(1, sizeof *d);
    if (!d)
        return DDP_ERR_MEMORY;
    enum ddp_status status = set_names(d, path);
    if (status == DDP_OK)
        status = make(d);
    if (status != DDP_OK) {
        ddp_atomic_directory_close(d);
        return status;
    }
    *directory = d;
    return DDP_OK;
}

const char *ddp_atomic_directory_path(const ddp_atomic_directory *directory)
{
    return directory->temporary;
}

const char *ddp_atomic_directory_old(const ddp_atomic_directory *directory)
{
    return directory->exists ? directory->path : NULL;
}

/* --- files ------------------------------------------------------------------------------------ */

static enum ddp_status copy_bytes(const struct ddp_input_file *from, ddp_atomic_file *to)
{
    char *buffer = ddp_array_alloc(1, COPY_BYTES);
    enum ddp_status status = buffer ? DDP_OK : DDP_ERR_MEMORY;
    for (uint64_t done = 0; status == DDP_OK && done < from->bytes; done += COPY_BYTES) {
        const uint64_t left = from->bytes - done;
        const size_t bytes = left < COPY_BYTES ? (size_t)left : COPY_BYTES;
        status = ddp_input_file_read(from, done, buffer, bytes);
        if (status == DDP_OK)
            status = ddp_atomic_file_write(to, buffer, bytes);
    }
    free(buffer);
    return status;
}

enum ddp_status ddp_atomic_directory_copy(const ddp_atomic_directory *directory, const char *from,
                                          const char *name)
{
    struct ddp_input_file in = {0};
    ddp_atomic_file *out = NULL;
    char *path = ddp_path_in(directory->temporary, name);
    enum ddp_status status = path ? ddp_input_file_open(&in, from, true) : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_atomic_file_open(&out, path);
    if (status == DDP_OK)
        status = copy_bytes(&in, out);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(out);
    ddp_atomic_file_close(out);
    ddp_input_file_close(&in);
    free(path);
    return status;
}

struct keeping {
    const struct ddp_atomic_directory *directory;
    bool (*drops)(const char *name);
};

/* A file of the old directory goes into the new one, where that has none of its name. */
static enum ddp_status keep_file(void *arg, const char *name, const char *path)
{
    const struct keeping *keeping = arg;
    if (is_directory(path) || (keeping->drops && keeping->drops(name)))
        return DDP_OK;
    char *to = ddp_path_in(keeping->directory->temporary, name);
    enum ddp_status status = to ? DDP_OK : DDP_ERR_MEMORY;
    if (to && linkat(AT_FDCWD, path, AT_FDCWD, to, 0) < 0 && errno != EEXIST)
        status = ddp_atomic_directory_copy(keeping->directory, path, name);
    free(to);
    return status;
}

/* After the exchange: what is left of the old one has the temporary name. */
static enum ddp_status move_directory(void *arg, const char *name, const char *path)
{
    const struct ddp_atomic_directory *directory = arg;
    if (!is_directory(path))
        return DDP_OK;
    char *to = ddp_path_in(directory->path, name);
    if (to && rename(path, to) < 0)
        ddp_log(DDP_LOG_WARNING, "%s: cannot move it to %s: %s", path, to, strerror(errno));
    free(to);
    return DDP_OK;
}

/* --- commit ----------------------------------------------------------------------------------- */

static enum ddp_status sync_directory(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? DDP_OK : ddp_fail_path(path, "open");
    enum ddp_status status = ddp_sync(fd) < 0 ? ddp_fail_path(path, "sync") : DDP_OK;
    close(fd);
    return status;
}

/* On file systems that cannot exchange, the target is missing for a moment. */
static int exchange_slowly(const struct ddp_atomic_directory *directory)
{
    char *aside;
    if (asprintf(&aside, "%s.%ld.old", directory->path, (long)getpid()) < 0)
        return -1;
    int failed = rename(directory->path, aside);
    if (!failed) {
        failed = rename(directory->temporary, directory->path);
        if (failed) {
            const int cause = errno;
            (void)rename(aside, directory->path);
            errno = cause;
        } else {
            failed = rename(aside, directory->temporary);
        }
    }
    free(aside);
    return failed;
}

static int put_in_place(const struct ddp_atomic_directory *directory)
{
    if (!directory->exists)
        return rename(directory->temporary, directory->path);
    const int failed =
        renameat2(AT_FDCWD, directory->temporary, AT_FDCWD, directory->path, RENAME_EXCHANGE);
    return failed && (errno == EINVAL || errno == ENOSYS) ? exchange_slowly(directory) : failed;
}

enum ddp_status ddp_atomic_directory_commit(ddp_atomic_directory *directory,
                                            bool (*drops)(const char *name))
{
    struct keeping keeping = {directory, drops};
    enum ddp_status status =
        directory->exists ? for_entries(directory->path, keep_file, &keeping) : DDP_OK;
    if (status == DDP_OK)
        status = sync_directory(directory->temporary);
    if (status != DDP_OK)
        return status;
    if (put_in_place(directory) < 0)
        return ddp_fail_path(directory->path, "put the new directory in its place");
    directory->made = false;
    if (directory->exists) {
        for_entries(directory->temporary, move_directory, directory);
        remove_directory(directory->temporary);
    }
    char *parent = ddp_directory_of(directory->path);
    status = parent ? sync_directory(parent) : DDP_ERR_MEMORY;
    free(parent);
    return status;
}

void ddp_atomic_directory_close(ddp_atomic_directory *directory)
{
    if (!directory)
        return;
    if (directory->made)
        remove_directory(directory->temporary);
    free(directory->temporary);
    free(directory->path);
    free(directory);
}
