/* SPDX-License-Identifier: MIT
 *
 * See atomic_file.h. If the file system has O_TMPFILE, the temporary file has no name, so that a
 * SIGKILL while it is written leaves nothing behind; linkat() then names it. If an old file must be
 * replaced, the new one has a temporary name between linkat() and rename(). If a kill leaves such a
 * file, the next writer of the same file removes it: nobody holds its lock then. All names are
 * looked up in the directory that was opened first. */
#include "config.h"

#include "core/atomic_file.h"

#include "core/clock.h"
#include "core/directory.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HEAD_BYTES 8
#define BASE_MAX   200 /* bytes of its name that the temporary one has: with more it may not fit */
#define MARK       ".ddprun-"
#define ENDING     ".tmp"

struct ddp_atomic_file {
    char *path;
    const char *base; /* the last part of path */
    char *temporary;  /* the name that the file has, or will have, before the rename */
    size_t stem;      /* bytes that all temporary names of this file begin with */
    int fd;
    int directory;
    mode_t mode;                    /* of the old file; 0: there is none */
    bool named;                     /* the temporary name exists */
    bool in_place;                  /* the old file is written over */
    unsigned char head[HEAD_BYTES]; /* of a file in place: what it begins with in the end */
    size_t head_bytes;
};

/* --- the target ------------------------------------------------------------------------------- */

static bool is_mount_point(const struct ddp_atomic_file *file)
{
    struct statx info;
    return statx(file->directory, file->base, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &info) ==
               0 &&
           info.stx_attributes & info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT;
}

/* What could only fail at the end, after hours of work, is found out here. */
static enum ddp_status check_target(struct ddp_atomic_file *file)
{
    struct stat info, directory;
    const uid_t user = geteuid();
    if (!*file->base)
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it is a directory, not a file", file->path);
    if (fstatat(file->directory, file->base, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? DDP_OK : ddp_fail_path(file->path, "write");
    if (S_ISDIR(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it is a directory, not a file", file->path);
    if (!S_ISREG(info.st_mode)) /* a rename would put a file in the place of /dev/null */
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: not a regular file", file->path);
    if (user != 0 && fstat(file->directory, &directory) == 0 && directory.st_mode & S_ISVTX &&
        user != info.st_uid && user != directory.st_uid)
        return ddp_fail(DDP_ERR_IO,
                        "%s: cannot write: it belongs to another user, in a directory where only "
                        "owners replace files",
                        file->path);
    file->mode = info.st_mode & 0777;
    file->in_place = is_mount_point(file);
    return DDP_OK;
}

static bool is_stale(const struct ddp_atomic_file *file, const char *name)
{
    struct stat info;
    if (strncmp(name, file->temporary, file->stem) != 0 || !ddp_text_ends_with(name, ENDING))
        return false;
    const int fd = openat(file->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool is = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                    info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Removes what writers of this file left that were killed between naming and renaming it. */
static void remove_stale(const struct ddp_atomic_file *file)
{
    DIR *entries = ddp_directory_entries(file->directory, ".");
    if (!entries)
        return;
    for (struct dirent *entry; (entry = ddp_directory_next(entries));)
        if (is_stale(file, entry->d_name))
            unlinkat(file->directory, entry->d_name, 0);
    closedir(entries);
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum ddp_status set_names(struct ddp_atomic_file *file)
{
    const char *slash = strrchr(file->path, '/');
    file->base = slash ? slash + 1 : file->path;
    if (asprintf(&file->temporary, ".%.*s" MARK "%lx-%llx" ENDING, BASE_MAX, file->base,
                 (long)getpid(), (unsigned long long)ddp_clock_ns()) < 0) {
        file->temporary = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    file->stem = 1 + strnlen(file->base, BASE_MAX) + strlen(MARK);
    return DDP_OK;
}

/* A file with the temporary name and its lock; -1 sets errno. */
static int open_named(const struct ddp_atomic_file *file)
{
    struct stat info;
    const int fd =
        openat(file->directory, file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    (void)!flock(fd, LOCK_EX | LOCK_NB);
    if (fstat(fd, &info) == 0 && info.st_nlink > 0) /* nobody took it for a leftover before that */
        return fd;
    close(fd);
    errno = EAGAIN;
    return -1;
}

static enum ddp_status open_in_place(struct ddp_atomic_file *file)
{
    file->in_place = true;
    file->fd = openat(file->directory, file->base, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return file->fd < 0 ? ddp_fail_path(file->path, "write") : DDP_OK;
}

static bool may_not(int error)
{
    return error == EACCES || error == EPERM || error == EROFS;
}

/* Without /proc a file that has no name cannot be given one. */
static enum ddp_status open_file(struct ddp_atomic_file *file)
{
    if (file->in_place)
        return open_in_place(file);
    if (access("/proc/self/fd", X_OK) < 0)
        errno = EOPNOTSUPP;
    else
        file->fd = openat(file->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file->fd >= 0)
        (void)!flock(file->fd, LOCK_EX | LOCK_NB);
    else if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
        file->fd = open_named(file);
        file->named = file->fd >= 0;
    }
    if (file->fd < 0 && file->mode && may_not(errno))
        return open_in_place(file);
    if (file->fd < 0)
        return ddp_fail_path(file->path, "write");
    if (file->mode && fchmod(file->fd, file->mode) < 0)
        return ddp_fail_path(file->path, "keep its permissions");
    return DDP_OK;
}

static enum ddp_status open_target(struct ddp_atomic_file *file)
{
    enum ddp_status status = set_names(file);
    if (status == DDP_OK)
        status = check_target(file);
    if (status != DDP_OK)
        return status;
    remove_stale(file);
    return open_file(file);
}

/* The directory is opened early: at the end there may be no descriptor left. */
static enum ddp_status open_directory(struct ddp_atomic_file *file, const char *path)
{
    enum ddp_status status = ddp_path_follow(&file->path, path);
    char *directory = status == DDP_OK ? ddp_directory_of(file->path) : NULL;
    if (status == DDP_OK && !directory)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK && (file->directory = ddp_directory_open(AT_FDCWD, directory)) < 0)
        status = ddp_fail_path(file->path, "write");
    free(directory);
    return status;
}

/*   directory  -1: that of the path */
static enum ddp_status open_either(ddp_atomic_file **file, int directory, const char *path)
{
    enum ddp_status status = DDP_OK;
    struct ddp_atomic_file *f = ddp_array_alloc(1, sizeof *f);
    if (!f)
        return DDP_ERR_MEMORY;
    f->fd = f->directory = -1;
    if (directory < 0)
        status = open_directory(f, path);
    else if (!(f->path = strdup(path)))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    else if ((f->directory = fcntl(directory, F_DUPFD_CLOEXEC, 0)) < 0)
        status = ddp_fail_path(path, "write");
    if (status == DDP_OK)
        status = open_target(f);
    if (status != DDP_OK) {
        ddp_atomic_file_close(f);
        return status;
    }
    *file = f;
    return DDP_OK;
}

enum ddp_status ddp_atomic_file_open(ddp_atomic_file **file, const char *path)
{
    return open_either(file, -1, path);
}

enum ddp_status ddp_atomic_file_open_at(ddp_atomic_file **file, int directory, const char *path)
{
    return open_either(file, directory, path);
}

/* --- writing ---------------------------------------------------------------------------------- */

enum ddp_status ddp_atomic_file_reserve(ddp_atomic_file *file, uint64_t bytes, uint64_t largest)
{
    struct stat info;
    struct statvfs system;
    struct rlimit limit;
    if (bytes == 0 || fstat(file->fd, &info) < 0)
        return DDP_OK;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < largest)
        return ddp_fail(DDP_ERR_IO,
                        "%s: cannot write it: it will have %.3f MB, and no file may have more than "
                        "%.3f MB: raise ulimit -f",
                        file->path, (double)largest / 1e6, (double)limit.rlim_cur / 1e6);
    int failed = fallocate(file->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
    if (failed && errno == EOPNOTSUPP && fstatvfs(file->fd, &system) == 0) {
        const uint64_t used = (uint64_t)info.st_blocks * 512;
        const uint64_t room = (uint64_t)system.f_bavail * system.f_frsize + used;
        failed = system.f_blocks > 0 && room < bytes;
        errno = ENOSPC;
    }
    const int error = errno;
    (void)!ftruncate(file->fd, info.st_size); /* gives back what lies behind the end */
    if (!failed || error == EINTR)
        return DDP_OK;
    errno = error;
    return ddp_fail(DDP_ERR_IO, "%s: cannot write it: it will have %.3f MB: %s", file->path,
                    (double)bytes / 1e6, strerror(errno));
}

/* Of a file in place: the first bytes are kept back, and zeros stand for them. */
static int keep_head(struct ddp_atomic_file *file, const void *data, size_t bytes)
{
    static const unsigned char zeros[HEAD_BYTES];
    const size_t begin = file->head_bytes, left = HEAD_BYTES - begin;
    const size_t taken = bytes < left ? bytes : left;
    memcpy(file->head + begin, data, taken);
    file->head_bytes += taken;
    if (taken > 0 && ddp_write_all(file->fd, zeros, taken) < 0)
        return -1;
    return begin == 0 && taken > 0 ? ddp_sync(file->fd) : 0;
}

enum ddp_status ddp_atomic_file_write(ddp_atomic_file *file, const void *data, size_t bytes)
{
    const size_t begin = file->head_bytes;
    int failed = file->in_place ? keep_head(file, data, bytes) : 0;
    const size_t kept = file->head_bytes - begin;
    if (!failed)
        failed = ddp_write_all(file->fd, (const char *)data + kept, bytes - kept);
    return failed ? ddp_fail_path(file->path, "write") : DDP_OK;
}

static enum ddp_status commit_in_place(struct ddp_atomic_file *file)
{
    const off_t end = lseek(file->fd, 0, SEEK_CUR);
    if (end < 0 || ftruncate(file->fd, end) < 0)
        return ddp_fail_path(file->path, "set its length");
    if (ddp_sync(file->fd) < 0)
        return ddp_fail_path(file->path, "sync");
    if (lseek(file->fd, 0, SEEK_SET) < 0 ||
        ddp_write_all(file->fd, file->head, file->head_bytes) < 0 || ddp_sync(file->fd) < 0)
        return ddp_fail_path(file->path, "write");
    return DDP_OK;
}

/* Gives an O_TMPFILE its name: at once the final one where nothing has it, else a temporary one. */
static int name_file(struct ddp_atomic_file *file)
{
    char proc[64];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
    if (linkat(AT_FDCWD, proc, file->directory, file->base, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno != EEXIST)
        return -1;
    file->named = true;
    return linkat(AT_FDCWD, proc, file->directory, file->temporary, AT_SYMLINK_FOLLOW);
}

enum ddp_status ddp_atomic_file_commit(ddp_atomic_file *file)
{
    if (file->in_place)
        return commit_in_place(file);
    if (ddp_sync(file->fd) < 0)
        return ddp_fail_path(file->path, "sync");
    if (!file->named && name_file(file) < 0)
        return ddp_fail_path(file->path, "name the new file");
    if (file->named && renameat(file->directory, file->temporary, file->directory, file->base) < 0)
        return ddp_fail_path(file->path, "rename the new file");
    file->named = false;
    if (ddp_directory_sync(file->directory) < 0)
        return ddp_fail_path(file->path, "sync its directory");
    return DDP_OK;
}

void ddp_atomic_file_close(ddp_atomic_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->named)
        unlinkat(file->directory, file->temporary, 0);
    if (file->directory >= 0)
        close(file->directory);
    free(file->temporary);
    free(file->path);
    free(file);
}

enum ddp_status ddp_atomic_file_end(ddp_atomic_file *file, const char *text)
{
    enum ddp_status status = ddp_atomic_file_write(file, text, strlen(text));
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    return status;
}

enum ddp_status ddp_atomic_file_put(const char *path, const char *text)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    return status ? status : ddp_atomic_file_end(file, text);
}
