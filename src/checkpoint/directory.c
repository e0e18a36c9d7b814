/* SPDX-License-Identifier: MIT
 *
 * See directory.h. */
#include "config.h"

#include "checkpoint/directory.h"

#include "core/directory.h"
#include "core/log.h"
#include "core/parse.h"
#include "core/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS         8
#define BEST_TEMPORARY "." DDP_CHECKPOINT_BEST ".tmp-"
#define MARK           ".mark.tmp-"

static enum ddp_status dir_error(const struct ddp_checkpoint_dir *dir, const char *name,
                                 const char *what)
{
    return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s%s%s: cannot %s: %s", dir->path,
                    *name ? "/" : "", name, what, strerror(errno));
}

/* --- names ------------------------------------------------------------------------------------ */

const char *ddp_checkpoint_name(char name[DDP_CHECKPOINT_NAME], int64_t step)
{
    snprintf(name, DDP_CHECKPOINT_NAME, "step-%0*" PRId64, DIGITS, step);
    return name;
}

static const char *temporary_name(char name[DDP_CHECKPOINT_NAME], int64_t step)
{
    snprintf(name, DDP_CHECKPOINT_NAME, ".step-%0*" PRId64 ".tmp-%ld", DIGITS, step,
             (long)getpid());
    return name;
}

/* The step of a name that ddp_checkpoint_name() gives, followed by `behind`; -1: it is none. */
static int64_t name_step(const char *name, const char *behind)
{
    char digits[24];
    int64_t step;
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const size_t count = strspn(name + 5, "0123456789");
    if (count < DIGITS || count >= sizeof digits || (count > DIGITS && name[5] == '0') ||
        strncmp(name + 5 + count, behind, strlen(behind)) != 0)
        return -1;
    if (!*behind && name[5 + count])
        return -1;
    snprintf(digits, sizeof digits, "%.*s", (int)count, name + 5);
    return ddp_parse_int64(digits, 0, INT64_MAX, &step) ? step : -1;
}

static bool is_temporary(const char *name)
{
    return (name[0] == '.' && name_step(name + 1, ".tmp-") >= 0) ||
           strncmp(name, BEST_TEMPORARY, strlen(BEST_TEMPORARY)) == 0 ||
           strncmp(name, MARK, strlen(MARK)) == 0;
}

/* --- reading the directory -------------------------------------------------------------------- */

/* Under the lock there is no other writer: temporary names are leftovers. */
static void remove_stale(const struct ddp_checkpoint_dir *dir)
{
    DIR *stream = ddp_directory_entries(dir->fd, ".");
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (is_temporary(entry->d_name))
            ddp_directory_remove(dir->fd, entry->d_name);
    closedir(stream);
}

static int highest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static bool append(int64_t **steps, size_t *count, size_t *room, int64_t step)
{
    if (*count == *room) {
        const size_t wanted = *room ? *room * 2 : 16;
        int64_t *larger = reallocarray(*steps, wanted, sizeof **steps);
        if (!larger)
            return false;
        *steps = larger;
        *room = wanted;
    }
    (*steps)[(*count)++] = step;
    return true;
}

enum ddp_status ddp_checkpoint_dir_list(const struct ddp_checkpoint_dir *dir, int64_t **steps,
                                        size_t *count)
{
    int64_t *list = NULL;
    size_t used = 0, room = 0;
    bool fits = true;
    DIR *stream = ddp_directory_entries(dir->fd, ".");
    if (!stream)
        return dir_error(dir, "", "read");
    for (struct dirent *entry; fits && (entry = readdir(stream));) {
        const int64_t step = name_step(entry->d_name, "");
        if (step >= 0)
            fits = append(&list, &used, &room, step);
    }
    closedir(stream);
    if (!fits) {
        free(list);
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    if (used > 0)
        qsort(list, used, sizeof *list, highest_first);
    *steps = list;
    *count = used;
    return DDP_OK;
}

/* --- marks ------------------------------------------------------------------------------------ */

static const char *mark_name(char name[DDP_CHECKPOINT_NAME], uint64_t mark)
{
    snprintf(name, DDP_CHECKPOINT_NAME, MARK "%016" PRIx64, mark);
    return name;
}

enum ddp_status ddp_checkpoint_dir_mark(const struct ddp_checkpoint_dir *dir, uint64_t mark)
{
    char name[DDP_CHECKPOINT_NAME];
    const int fd =
        openat(dir->fd, mark_name(name, mark), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return dir_error(dir, name, "make");
    close(fd);
    return DDP_OK;
}

void ddp_checkpoint_dir_unmark(const struct ddp_checkpoint_dir *dir, uint64_t mark)
{
    char name[DDP_CHECKPOINT_NAME];
    unlinkat(dir->fd, mark_name(name, mark), 0);
}

bool ddp_checkpoint_dir_has_mark(const char *path, uint64_t mark)
{
    char name[DDP_CHECKPOINT_NAME];
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool found = fd >= 0 && faccessat(fd, mark_name(name, mark), F_OK, 0) == 0;
    if (fd >= 0)
        close(fd);
    return found;
}

bool ddp_checkpoint_dir_has_checkpoints(const char *path)
{
    bool found = false;
    DIR *stream = opendir(path);
    if (!stream)
        return false;
    for (struct dirent *entry; !found && (entry = readdir(stream));)
        found = name_step(entry->d_name, "") >= 0;
    closedir(stream);
    return found;
}

/* --- opening ---------------------------------------------------------------------------------- */

enum ddp_status ddp_checkpoint_dir_open(struct ddp_checkpoint_dir *dir, const char *path,
                                        int wait_ms)
{
    *dir = (struct ddp_checkpoint_dir){.fd = -1};
    char *followed = NULL;
    dir->path = ddp_path_bare(path);
    if (!dir->path)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = ddp_path_follow(&followed, dir->path);
    if (status == DDP_OK && access(followed, F_OK) < 0)
        status = ddp_make_directories(followed, true);
    if (status == DDP_OK) {
        dir->fd = open(followed, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (dir->fd < 0)
            status = dir_error(dir, "", "open");
    }
    free(followed);
    if (status == DDP_OK)
        status =
            ddp_directory_lock(dir->fd, dir->path, wait_ms, "writes its checkpoints", &dir->locked);
    if (status == DDP_OK && faccessat(dir->fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        status = dir_error(dir, "", "write");
    if (status == DDP_OK && dir->locked)
        remove_stale(dir);
    if (status != DDP_OK)
        ddp_checkpoint_dir_close(dir);
    return status;
}

void ddp_checkpoint_dir_close(struct ddp_checkpoint_dir *dir)
{
    if (dir->path && dir->fd >= 0)
        close(dir->fd);
    free(dir->path);
    *dir = (struct ddp_checkpoint_dir){.fd = -1};
}

/* --- changing --------------------------------------------------------------------------------- */

enum ddp_status ddp_checkpoint_dir_begin(const struct ddp_checkpoint_dir *dir, int64_t step,
                                         int *fd)
{
    char name[DDP_CHECKPOINT_NAME];
    temporary_name(name, step);
    ddp_checkpoint_dir_discard(dir, step); /* of an earlier process of the same number */
    if (mkdirat(dir->fd, name, 0777) < 0)
        return dir_error(dir, name, "make");
    const int opened = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (opened < 0) {
        enum ddp_status status = dir_error(dir, name, "open");
        ddp_checkpoint_dir_discard(dir, step);
        return status;
    }
    *fd = opened;
    return DDP_OK;
}

/* Replaces the old checkpoint by the temporary directory. If they cannot be exchanged in one step,
 * the old one is removed first. */
static int replace(const struct ddp_checkpoint_dir *dir, const char *temporary, const char *name)
{
    if (renameat2(dir->fd, temporary, dir->fd, name, RENAME_EXCHANGE) == 0) {
        ddp_directory_remove(dir->fd, temporary);
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (ddp_directory_remove(dir->fd, name) < 0)
        return -1;
    return renameat(dir->fd, temporary, dir->fd, name);
}

enum ddp_status ddp_checkpoint_dir_commit(const struct ddp_checkpoint_dir *dir, int64_t step,
                                          int fd)
{
    char name[DDP_CHECKPOINT_NAME], temporary[DDP_CHECKPOINT_NAME];
    ddp_checkpoint_name(name, step);
    temporary_name(temporary, step);
    if (ddp_sync(fd) < 0)
        return dir_error(dir, name, "sync");
    int error = renameat(dir->fd, temporary, dir->fd, name);
    if (error < 0 && (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR))
        error = replace(dir, temporary, name);
    if (error < 0)
        return dir_error(dir, name, "give the new checkpoint its name");
    if (ddp_sync(dir->fd) < 0)
        return dir_error(dir, "", "sync");
    return DDP_OK;
}

void ddp_checkpoint_dir_discard(const struct ddp_checkpoint_dir *dir, int64_t step)
{
    char name[DDP_CHECKPOINT_NAME];
    ddp_directory_remove(dir->fd, temporary_name(name, step));
}

void ddp_checkpoint_dir_remove(const struct ddp_checkpoint_dir *dir, int64_t step)
{
    char name[DDP_CHECKPOINT_NAME], temporary[DDP_CHECKPOINT_NAME];
    ddp_checkpoint_name(name, step);
    temporary_name(temporary, step);
    ddp_checkpoint_dir_discard(dir, step);
    if (renameat(dir->fd, name, dir->fd, temporary) < 0 ||
        ddp_directory_remove(dir->fd, temporary) < 0)
        ddp_log(DDP_LOG_WARNING, "%s/%s: cannot remove this old checkpoint: %s", dir->path, name,
                strerror(errno));
}

int64_t ddp_checkpoint_dir_best(const struct ddp_checkpoint_dir *dir)
{
    char target[DDP_CHECKPOINT_NAME];
    const ssize_t length = readlinkat(dir->fd, DDP_CHECKPOINT_BEST, target, sizeof target);
    if (length < 0 || length >= (ssize_t)sizeof target)
        return -1;
    target[length] = '\0';
    return name_step(target, "");
}

bool ddp_checkpoint_dir_set_best(const struct ddp_checkpoint_dir *dir, int64_t step)
{
    char name[DDP_CHECKPOINT_NAME], temporary[DDP_CHECKPOINT_NAME];
    snprintf(temporary, sizeof temporary, BEST_TEMPORARY "%ld", (long)getpid());
    unlinkat(dir->fd, temporary, 0); /* of an earlier process of the same number */
    if (symlinkat(ddp_checkpoint_name(name, step), dir->fd, temporary) == 0 &&
        renameat(dir->fd, temporary, dir->fd, DDP_CHECKPOINT_BEST) == 0 && ddp_sync(dir->fd) == 0)
        return true;
    const int error = errno;
    unlinkat(dir->fd, temporary, 0);
    ddp_log(DDP_LOG_WARNING, "%s/%s: cannot make this link to %s, the best checkpoint: %s",
            dir->path, DDP_CHECKPOINT_BEST, name, strerror(error));
    return false;
}
