/* SPDX-License-Identifier: MIT
 *
 * See atomic_file.h. If the file system has O_TMPFILE, the temporary file has no name, so that a
 * SIGKILL while it is written leaves nothing behind; linkat() then names it. If an old file must be
 * replaced, the new one has a temporary name between linkat() and rename(). If a kill leaves such a
 * file, the next writer of the same file removes it. */
#include "config.h"

#include "core/atomic_file.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40
#define BASE_MAX                                                                                   \
    200 /* bytes of the name that its temporary name keeps: with more it may not fit               \
         */

struct ddp_atomic_file {
    char *path;
    const char *base; /* the last part of path */
    char *directory;
    char *temporary; /* the name that the file has, or will have, before the rename */
    int fd;
    int directory_fd; /* opened early: at the end there may be no descriptor left; -1: unreadable */
    mode_t mode;      /* of the old file; 0: there is none */
    bool named;       /* the temporary name exists */
};

/* The kernel's rule for links that it follows itself (protected_symlinks): in a directory where all
 * may make files, only the links of this user and of the directory's owner count. */
static bool is_foreign(const char *path, const struct stat *link)
{
    const mode_t shared = S_ISVTX | S_IWOTH;
    struct stat above;
    char *directory = ddp_directory_of(path);
    const bool known = directory && stat(directory, &above) == 0;
    free(directory);
    return !known || ((above.st_mode & shared) == shared && link->st_uid != geteuid() &&
                      link->st_uid != above.st_uid);
}

/* What a symbolic link says, as readlink(); -1: it is none (errno is 0), or must not be followed.
 */
static ssize_t read_link(const char *path, char *text, size_t size)
{
    struct stat info;
    ssize_t length = -1;
    const int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    const bool is = fd >= 0 && fstat(fd, &info) == 0 && S_ISLNK(info.st_mode);
    const bool foreign = is && is_foreign(path, &info);
    if (is && !foreign)
        length = readlinkat(fd, "", text, size);
    if (fd >= 0)
        close(fd);
    errno = foreign ? EACCES : 0;
    return length;
}

/* Follows symbolic links by hand: unlike realpath(), also to a file that is yet to be made. The
 * caller frees the result; NULL sets errno, to EACCES for a link that must not be followed. */
static char *follow_links(const char *path)
{
    char *target = strdup(path), link[PATH_MAX];
    for (int hops = 0; target; hops++) {
        ssize_t length = read_link(target, link, sizeof link);
        if (length < 0 && errno == 0)
            return target;
        char *slash = strrchr(target, '/');
        int prefix = slash && link[0] != '/' ? (int)(slash - target) + 1 : 0;
        char *next = NULL;
        if (length < 0)
            errno = EACCES;
        else if (hops == LINKS_MAX)
            errno = ELOOP;
        else if (asprintf(&next, "%.*s%.*s", prefix, target, (int)length, link) < 0)
            next = NULL;
        free(target);
        target = next;
    }
    return NULL;
}

static bool set_names(struct ddp_atomic_file *file)
{
    const char *slash = strrchr(file->path, '/');
    file->base = slash ? slash + 1 : file->path;
    file->directory = ddp_directory_of(file->path);
    if (asprintf(&file->temporary, "%.*s%.*s.%ld.tmp", (int)(file->base - file->path), file->path,
                 BASE_MAX, file->base, (long)getpid()) < 0)
        file->temporary = NULL;
    return file->directory && file->temporary;
}

/* What could only fail at the end, after hours of work, is found out here. */
static enum ddp_status check_target(struct ddp_atomic_file *file)
{
    struct stat info, directory;
    const uid_t user = geteuid();
    file->mode = 0;
    if (!*file->base)
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it is a directory, not a file", file->path);
    if (stat(file->path, &info) < 0)
        return errno == ENOENT ? DDP_OK : ddp_fail_path(file->path, "write");
    if (S_ISDIR(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it is a directory, not a file", file->path);
    if (!S_ISREG(info.st_mode)) /* a rename would put a file in the place of /dev/null */
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: not a regular file", file->path);
    if (user != 0 && stat(file->directory, &directory) == 0 && directory.st_mode & S_ISVTX &&
        user != info.st_uid && user != directory.st_uid)
        return ddp_fail(DDP_ERR_IO,
                        "%s: cannot write: it belongs to another user, in a directory where only "
                        "owners replace files",
                        file->path);
    file->mode = info.st_mode & 0777;
    return DDP_OK;
}

/* The process of a name "BASE.PID.tmp" that this file could have had; 0: it is not such a name. */
static long temporary_owner(const struct ddp_atomic_file *file, const char *name)
{
    const size_t length = strnlen(file->base, BASE_MAX);
    int64_t pid;
    char digits[24];
    if (strncmp(name, file->base, length) != 0 || name[length] != '.')
        return 0;
    name += length + 1;
    const size_t count = strspn(name, "0123456789");
    if (count >= sizeof digits || strcmp(name + count, ".tmp") != 0)
        return 0;
    snprintf(digits, sizeof digits, "%.*s", (int)count, name);
    return ddp_parse_int64(digits, 1, INT32_MAX, &pid) ? (long)pid : 0;
}

/* Removes what processes left that were killed between naming and renaming their file. */
static void remove_stale(const struct ddp_atomic_file *file)
{
    DIR *directory = opendir(file->directory);
    if (!directory)
        return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        long pid = temporary_owner(file, entry->d_name);
        if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
            unlinkat(dirfd(directory), entry->d_name, 0);
    }
    closedir(directory);
}

/* Without /proc a file that has no name cannot be given one. */
static enum ddp_status open_file(struct ddp_atomic_file *file)
{
    if (access("/proc/self/fd", X_OK) < 0)
        errno = EOPNOTSUPP;
    else
        file->fd = open(file->directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        unlink(file->temporary); /* left by an earlier process of the same number */
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        file->named = file->fd >= 0;
    }
    if (file->fd < 0)
        return ddp_fail_path(file->path, "write");
    file->directory_fd = open(file->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->directory_fd < 0 && errno != EACCES)
        return ddp_fail_path(file->path, "open its directory");
    if (file->mode && fchmod(file->fd, file->mode) < 0)
        return ddp_fail_path(file->path, "keep its permissions");
    return DDP_OK;
}

enum ddp_status ddp_atomic_file_open(ddp_atomic_file **file, const char *path)
{
    struct ddp_atomic_file *f = ddp_array_alloc(1, sizeof *f);
    if (!f)
        return DDP_ERR_MEMORY;
    f->fd = f->directory_fd = -1;
    enum ddp_status status = DDP_OK;
    f->path = follow_links(path);
    if (!f->path && errno == EACCES)
        status = ddp_fail(DDP_ERR_IO,
                          "%s: cannot write: it is a symbolic link of another user, in a directory "
                          "where everybody may create files",
                          path);
    else if (!f->path)
        status = ddp_fail_path(path, "write");
    else if (!set_names(f))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK)
        status = check_target(f);
    if (status == DDP_OK) {
        remove_stale(f);
        status = open_file(f);
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
    return ddp_write_all(file->fd, data, bytes) < 0 ? ddp_fail_path(file->path, "write") : DDP_OK;
}

/* Gives an O_TMPFILE its name: at once the final one where nothing has it, else a temporary one. */
static int name_file(struct ddp_atomic_file *file)
{
    char proc[64];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
    if (linkat(AT_FDCWD, proc, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno != EEXIST)
        return -1;
    file->named = true;
    unlink(file->temporary); /* left by an earlier process of the same number */
    return linkat(AT_FDCWD, proc, AT_FDCWD, file->temporary, AT_SYMLINK_FOLLOW);
}

enum ddp_status ddp_atomic_file_commit(ddp_atomic_file *file)
{
    if (ddp_sync(file->fd) < 0)
        return ddp_fail_path(file->path, "sync");
    if (!file->named && name_file(file) < 0)
        return ddp_fail_path(file->path, "name the new file");
    if (file->named && rename(file->temporary, file->path) < 0)
        return ddp_fail_path(file->path, "rename the new file");
    file->named = false;
    if (file->directory_fd >= 0 && ddp_sync(file->directory_fd) < 0)
        return ddp_fail_path(file->path, "sync its directory");
    return DDP_OK;
}

void ddp_atomic_file_close(ddp_atomic_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->directory_fd >= 0)
        close(file->directory_fd);
    if (file->named)
        unlink(file->temporary);
    free(file->temporary);
    free(file->directory);
    free(file->path);
    free(file);
}

enum ddp_status ddp_atomic_file_put(const char *path, const char *text)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status != DDP_OK)
        return status;
    status = ddp_atomic_file_write(file, text, strlen(text));
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    return status;
}
