/* SPDX-License-Identifier: MIT
 *
 * See staged_directory.h. Files are written into STAGING, which gets the name COMPLETE when all of
 * them are durable: from then on whoever finds it puts them in their places. The file MARK in it
 * says that it is ours, and which old files must go; when they have, it is renamed to CLEARED. */
#include "config.h"

#include "core/staged_directory.h"

#include "core/directory.h"
#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAGING    ".ddprun-export"
#define COMPLETE   ".ddprun-export-complete"
#define MARK       ".made-by-ddprun"
#define CLEARED    ".made-by-ddprun-old-removed"
#define COPY_BYTES ((size_t)1 << 20)

struct ddp_staged_directory {
    char *path;    /* as it was given, for messages */
    char *target;  /* links followed */
    char *staged;  /* path/STAGING */
    int fd, place; /* of the directory and of STAGING */
    bool made;     /* by us */
    bool locked, staging;
};

static enum ddp_status fail(const struct ddp_staged_directory *directory, const char *name,
                            const char *what)
{
    return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s%s%s: cannot %s: %s", directory->path,
                    *name ? "/" : "", name, what, strerror(errno));
}

static bool is_there(int parent, const char *name)
{
    struct stat info;
    return fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Opens such a directory if it has one of our marks; -1: it has none. */
static int open_marked(const struct ddp_staged_directory *directory, const char *name)
{
    const int fd = ddp_directory_open(directory->fd, name);
    if (fd < 0 || is_there(fd, MARK) || is_there(fd, CLEARED))
        return fd;
    close(fd);
    return -1;
}

/* Removes a directory of ours with the files in it, the mark last: it may be left half removed. */
static int remove_marked(const struct ddp_staged_directory *directory, int fd, const char *name)
{
    DIR *entries = ddp_directory_entries(fd, ".");
    if (!entries)
        return unlinkat(directory->fd, name, AT_REMOVEDIR);
    for (struct dirent *entry; (entry = ddp_directory_next(entries));)
        if (strcmp(entry->d_name, MARK) != 0 && strcmp(entry->d_name, CLEARED) != 0)
            (void)unlinkat(fd, entry->d_name, 0);
    (void)unlinkat(fd, MARK, 0);
    (void)unlinkat(fd, CLEARED, 0);
    closedir(entries);
    return unlinkat(directory->fd, name, AT_REMOVEDIR);
}

/* --- putting in place ------------------------------------------------------------------------- */

/* 0: files that may be there without the others; 1, 2: those that come last. */
static int turn_of(const char *name)
{
    return ddp_text_ends_with(name, ".index.json") ? 2 : ddp_text_ends_with(name, ".safetensors");
}

/* Writes the names of the old files, each with a zero behind it, into MARK. */
static enum ddp_status list_old(const struct ddp_staged_directory *directory,
                                bool (*is_old)(const char *name))
{
    const int mark = openat(directory->place, MARK, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = mark < 0 ? NULL : ddp_directory_entries(directory->fd, ".");
    bool written = entries != NULL;
    for (struct dirent *entry; written && (entry = ddp_directory_next(entries));)
        if (is_old(entry->d_name))
            written = ddp_write_all(mark, entry->d_name, strlen(entry->d_name) + 1) == 0;
    enum ddp_status status =
        written && ddp_sync(mark) == 0 ? DDP_OK : fail(directory, STAGING "/" MARK, "write");
    if (entries)
        closedir(entries);
    if (mark >= 0)
        close(mark);
    return status;
}

static enum ddp_status remove_old(const struct ddp_staged_directory *directory, int complete)
{
    const int mark = openat(complete, MARK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    FILE *list = mark < 0 ? NULL : fdopen(mark, "r");
    enum ddp_status status = DDP_OK;
    char *name = NULL;
    size_t room = 0;
    if (!list)
        return fail(directory, COMPLETE "/" MARK, "read");
    while (status == DDP_OK && getdelim(&name, &room, '\0', list) > 0)
        if (!strchr(name, '/') && unlinkat(directory->fd, name, 0) < 0 && errno != ENOENT &&
            errno != EISDIR)
            status = fail(directory, name, "replace");
    free(name);
    fclose(list);
    if (status == DDP_OK && ddp_directory_sync(directory->fd) < 0)
        status = fail(directory, "", "sync");
    if (status == DDP_OK && renameat(complete, MARK, complete, CLEARED) < 0)
        status = fail(directory, COMPLETE, "write");
    return status;
}

/* Moves the files of one turn out of COMPLETE. */
static enum ddp_status move_turn(const struct ddp_staged_directory *directory, int complete,
                                 int turn)
{
    enum ddp_status status = DDP_OK;
    DIR *entries = ddp_directory_entries(complete, ".");
    if (!entries)
        return fail(directory, COMPLETE, "list");
    for (struct dirent *entry; status == DDP_OK && (entry = ddp_directory_next(entries));)
        if (strcmp(entry->d_name, CLEARED) != 0 && turn_of(entry->d_name) == turn &&
            renameat(complete, entry->d_name, directory->fd, entry->d_name) < 0)
            status = fail(directory, entry->d_name, "replace");
    closedir(entries);
    if (status == DDP_OK && ddp_directory_sync(directory->fd) < 0)
        status = fail(directory, "", "sync");
    return status;
}

/* From wherever a kill interrupted it.
 *   complete  descriptor of COMPLETE */
static enum ddp_status put_in_place(const struct ddp_staged_directory *directory, int complete)
{
    enum ddp_status status = is_there(complete, CLEARED) ? DDP_OK : remove_old(directory, complete);
    for (int turn = 0; status == DDP_OK && turn <= 2; turn++)
        status = move_turn(directory, complete, turn);
    if (status == DDP_OK)
        (void)remove_marked(directory, complete, COMPLETE);
    else
        ddp_log(DDP_LOG_INFO,
                "%s: the new files are in " COMPLETE " in it; the next export there moves them "
                "into place",
                directory->path);
    return status;
}

/* --- leftovers -------------------------------------------------------------------------------- */

static enum ddp_status refuse(const struct ddp_staged_directory *directory, const char *name)
{
    return ddp_fail(DDP_ERR_IO, "%s/%s: %s: remove or rename it", directory->path, name,
                    directory->locked
                        ? "this name is needed for the export, and what is there is not ddprun's"
                        : "an interrupted export left it, or another trainer writes there now, "
                          "which cannot be told on this file system");
}

/* Is there nothing of that name? A kill may have left an empty directory: before it was marked, or
 * after that. */
static bool is_free(const struct ddp_staged_directory *directory, const char *name)
{
    return !is_there(directory->fd, name) ||
           (directory->locked && unlinkat(directory->fd, name, AT_REMOVEDIR) == 0);
}

/* Completes or removes what kills left. */
static enum ddp_status clean_up(const struct ddp_staged_directory *directory)
{
    const char *const names[] = {COMPLETE, STAGING};
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < 2; i++) {
        if (is_free(directory, names[i]))
            continue;
        const int fd = directory->locked ? open_marked(directory, names[i]) : -1;
        if (fd >= 0 && i == 0) {
            ddp_log(DDP_LOG_INFO, "%s: completing an export that was interrupted", directory->path);
            status = put_in_place(directory, fd);
        } else if (fd < 0 || remove_marked(directory, fd, names[i]) < 0)
            status = refuse(directory, names[i]);
        if (fd >= 0)
            close(fd);
    }
    return status;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* In a sticky directory of another user files of others cannot be replaced: find out early. */
static enum ddp_status check_owners(const struct ddp_staged_directory *directory)
{
    const uid_t user = geteuid();
    struct stat info, own;
    enum ddp_status status = DDP_OK;
    if (user == 0 || fstat(directory->fd, &own) < 0 || !(own.st_mode & S_ISVTX) ||
        own.st_uid == user)
        return DDP_OK;
    DIR *entries = ddp_directory_entries(directory->fd, ".");
    for (struct dirent *entry;
         status == DDP_OK && entries && (entry = ddp_directory_next(entries));)
        if (fstatat(directory->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            info.st_uid != user &&
            (turn_of(entry->d_name) > 0 || ddp_text_ends_with(entry->d_name, ".json")))
            status = ddp_fail(DDP_ERR_IO,
                              "%s/%s: cannot write: it belongs to another user, in a directory "
                              "where only owners replace files",
                              directory->path, entry->d_name);
    if (entries)
        closedir(entries);
    return status;
}

static enum ddp_status open_target(struct ddp_staged_directory *directory)
{
    enum ddp_status status = ddp_path_follow(&directory->target, directory->path);
    if (status != DDP_OK)
        return status;
    directory->made = mkdir(directory->target, 0777) == 0;
    if (!directory->made && errno != EEXIST)
        return fail(directory, "", "write");
    directory->fd = open(directory->target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory->fd < 0 && errno == ENOTDIR)
        return ddp_fail(DDP_ERR_IO, "%s: cannot write: it is not a directory", directory->path);
    return directory->fd < 0 ? fail(directory, "", "open") : DDP_OK;
}

static enum ddp_status make_staging(struct ddp_staged_directory *directory)
{
    if (mkdirat(directory->fd, STAGING, 0777) < 0)
        return fail(directory, "", "write");
    directory->staging = true;
    directory->place =
        openat(directory->fd, STAGING, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int mark = directory->place < 0 ? -1
                                          : openat(directory->place, MARK,
                                                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (mark < 0)
        return fail(directory, STAGING, "write");
    close(mark);
    return DDP_OK;
}

static enum ddp_status create(struct ddp_staged_directory **directory, const char *path)
{
    struct ddp_staged_directory *d = ddp_array_alloc(1, sizeof *d);
    if (!d)
        return DDP_ERR_MEMORY;
    *d = (struct ddp_staged_directory){.fd = -1, .place = -1, .path = ddp_path_bare(path)};
    *directory = d;
    d->staged = d->path ? ddp_path_in(d->path, STAGING) : NULL;
    return d->staged ? DDP_OK : DDP_ERR_MEMORY;
}

enum ddp_status ddp_staged_directory_open(ddp_staged_directory **directory, const char *path,
                                          int wait_ms)
{
    struct ddp_staged_directory *d = NULL;
    enum ddp_status status = create(&d, path);
    if (status == DDP_OK)
        status = open_target(d);
    if (status == DDP_OK)
        status = ddp_directory_lock(d->fd, d->path, wait_ms, "writes", &d->locked);
    if (status == DDP_OK)
        status = check_owners(d);
    if (status == DDP_OK)
        status = clean_up(d);
    if (status == DDP_OK)
        status = make_staging(d);
    if (status != DDP_OK) {
        ddp_staged_directory_close(d);
        return status;
    }
    *directory = d;
    return DDP_OK;
}

void ddp_staged_directory_recover(const char *path)
{
    struct ddp_staged_directory *d = NULL;
    if (!ddp_path_is_in(path, COMPLETE) || access(path, W_OK | X_OK) < 0)
        return;
    enum ddp_status status = create(&d, path);
    if (status == DDP_OK)
        status = open_target(d);
    if (status == DDP_OK)
        status = ddp_directory_lock(d->fd, d->path, DDP_STAGED_WAIT_MS, "writes", &d->locked);
    if (status == DDP_OK)
        (void)clean_up(d);
    ddp_staged_directory_close(d);
}

/* Whether it was empty, or has a file of that name. */
static bool is_of(const ddp_staged_directory *directory, const char *name)
{
    bool empty = true;
    DIR *entries = ddp_directory_entries(directory->fd, ".");
    for (struct dirent *entry; entries && (entry = ddp_directory_next(entries));)
        empty = empty && strcmp(entry->d_name, STAGING) == 0;
    if (entries)
        closedir(entries);
    return (entries && empty) || is_there(directory->fd, name);
}

enum ddp_status ddp_staged_directory_open_of(ddp_staged_directory **directory, const char *path,
                                             int wait_ms, const char *name, const char *refusal)
{
    enum ddp_status status = ddp_staged_directory_open(directory, path, wait_ms);
    if (status != DDP_OK || is_of(*directory, name))
        return status;
    ddp_staged_directory_close(*directory);
    return ddp_fail(DDP_ERR_INVALID, "%s: %s", path, refusal);
}

/* --- files ------------------------------------------------------------------------------------ */

enum ddp_status ddp_staged_directory_file(const ddp_staged_directory *directory, const char *name,
                                          ddp_atomic_file **file, char **path)
{
    *path = ddp_path_in(directory->staged, name);
    return *path ? ddp_atomic_file_open_at(file, directory->place, *path) : DDP_ERR_MEMORY;
}

static enum ddp_status open_file(const ddp_staged_directory *directory, const char *name,
                                 ddp_atomic_file **file)
{
    char *path;
    enum ddp_status status = ddp_staged_directory_file(directory, name, file, &path);
    free(path);
    return status;
}

enum ddp_status ddp_staged_directory_put(const ddp_staged_directory *directory, const char *name,
                                         const char *text)
{
    ddp_atomic_file *file = NULL;
    enum ddp_status status = open_file(directory, name, &file);
    return status ? status : ddp_atomic_file_end(file, text);
}

enum ddp_status ddp_staged_directory_reserve(const ddp_staged_directory *directory,
                                             const char *name, uint64_t bytes, uint64_t largest)
{
    ddp_atomic_file *file = NULL;
    enum ddp_status status = open_file(directory, name, &file);
    if (status == DDP_OK)
        status = ddp_atomic_file_reserve(file, bytes, largest);
    ddp_atomic_file_close(file);
    return status;
}

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

enum ddp_status ddp_staged_directory_copy(const ddp_staged_directory *directory, const char *from,
                                          const char *name)
{
    struct ddp_input_file in = {0};
    ddp_atomic_file *out = NULL;
    struct stat there, source;
    if (fstatat(directory->fd, name, &there, 0) == 0 && stat(from, &source) == 0 &&
        there.st_dev == source.st_dev && there.st_ino == source.st_ino)
        return DDP_OK;
    enum ddp_status status = ddp_input_file_open(&in, from, true);
    if (status == DDP_OK)
        status = open_file(directory, name, &out);
    if (status == DDP_OK)
        status = copy_bytes(&in, out);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(out);
    ddp_atomic_file_close(out);
    ddp_input_file_close(&in);
    return status;
}

/* --- the end ---------------------------------------------------------------------------------- */

enum ddp_status ddp_staged_directory_commit(ddp_staged_directory *directory,
                                            bool (*is_old)(const char *name))
{
    enum ddp_status status = list_old(directory, is_old);
    if (status != DDP_OK)
        return status;
    if (ddp_directory_sync(directory->place) < 0)
        return fail(directory, STAGING, "sync");
    if (renameat(directory->fd, STAGING, directory->fd, COMPLETE) < 0)
        return fail(directory, STAGING, "rename");
    directory->staging = directory->made = false;
    if (ddp_directory_sync(directory->fd) < 0)
        return fail(directory, "", "sync");
    return put_in_place(directory, directory->place);
}

void ddp_staged_directory_close(ddp_staged_directory *directory)
{
    if (!directory)
        return;
    if (directory->staging)
        (void)remove_marked(directory, directory->place, STAGING);
    if (directory->place >= 0)
        close(directory->place);
    if (directory->made)
        (void)rmdir(directory->target);
    if (directory->fd >= 0)
        close(directory->fd);
    free(directory->staged);
    free(directory->target);
    free(directory->path);
    free(directory);
}
