/* SPDX-License-Identifier: MIT
 *
 * See directory.h. */
#include "config.h"

#include "core/directory.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 20000000 /* between looks at a lock that another has */

int ddp_directory_open(int parent, const char *name)
{
    const int flags = O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    const int fd = openat(parent, name, O_RDONLY | flags);
    return fd < 0 && errno == EACCES ? openat(parent, name, O_PATH | flags) : fd;
}

DIR *ddp_directory_entries(int parent, const char *name)
{
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0)
        close(fd);
    return entries;
}

struct dirent *ddp_directory_next(DIR *entries)
{
    struct dirent *entry;
    do
        entry = readdir(entries);
    while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry;
}

int ddp_directory_sync(int directory)
{
    return fcntl(directory, F_GETFL) & O_PATH ? 0 : ddp_sync(directory);
}

int ddp_directory_remove(int parent, const char *name)
{
    DIR *entries = ddp_directory_entries(parent, name);
    if (!entries)
        return errno == ENOTDIR || errno == ELOOP ? unlinkat(parent, name, 0) : -1;
    for (struct dirent *entry; (entry = ddp_directory_next(entries));)
        unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
    return unlinkat(parent, name, AT_REMOVEDIR);
}

/* The process that holds the lock, as " (process 123)"; "" where the kernel does not tell. */
static const char *holder(int directory, char text[48])
{
    char *line = NULL;
    size_t room = 0;
    struct stat own;
    FILE *locks = fstat(directory, &own) == 0 ? fopen("/proc/locks", "re") : NULL;
    text[0] = '\0';
    while (locks && getline(&line, &room, locks) > 0) {
        long pid;
        unsigned major_number, minor_number;
        unsigned long long inode;
        if (sscanf(line, "%*s FLOCK %*s WRITE %ld %x:%x:%llu", &pid, &major_number, &minor_number,
                   &inode) == 4 &&
            pid > 0 && inode == own.st_ino && major_number == major(own.st_dev) &&
            minor_number == minor(own.st_dev))
            snprintf(text, 48, " (process %ld)", pid);
    }
    free(line);
    if (locks)
        fclose(locks);
    return text;
}

enum ddp_status ddp_directory_lock(int directory, const char *path, int wait_ms, const char *use,
                                   bool *locked)
{
    static atomic_bool said;
    const int64_t deadline = ddp_deadline_ns(wait_ms);
    bool told = wait_ms == 0;
    char who[48];
    while (!(*locked = flock(directory, LOCK_EX | LOCK_NB) == 0)) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK) {
            if (atomic_exchange(&said, true))
                return DDP_OK;
            ddp_log(DDP_LOG_WARNING,
                    "%s: this file system has no locks (%s): make sure that no other trainer "
                    "writes there",
                    path, strerror(errno));
            return DDP_OK;
        }
        if (ddp_deadline_passed(deadline))
            return ddp_fail(DDP_ERR_IO,
                            "%s: another trainer%s %s there: wait until it has ended, or name "
                            "another directory",
                            path, holder(directory, who), use);
        if (!told)
            ddp_log(DDP_LOG_INFO,
                    "%s: another trainer%s still uses this directory: waiting for it to end, for "
                    "%d s at most",
                    path, holder(directory, who), wait_ms / 1000);
        told = true;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return DDP_OK;
}
