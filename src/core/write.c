/* SPDX-License-Identifier: MIT
 *
 * See write.h. */
#include "config.h"

#include "core/write.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define LINKS_MAX 40

/* --- links ------------------------------------------------------------------------------------ */

/* The kernel's rule for links (protected_symlinks): in a directory where all may make files, only
 * the links of this user and of the directory's owner count. */
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

enum { NO_LINK = -1, FOREIGN_LINK = -2, KERNELS_LINK = -3 };

/* What a symbolic link says, as readlink(), or one of the above. */
static ssize_t read_link(const char *path, char *text, size_t size)
{
    struct stat info;
    struct statfs system;
    ssize_t length = NO_LINK;
    const int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return NO_LINK;
    if (fstat(fd, &info) == 0 && S_ISLNK(info.st_mode)) {
        if (fstatfs(fd, &system) == 0 && system.f_type == PROC_SUPER_MAGIC)
            length = KERNELS_LINK;
        else
            length = is_foreign(path, &info) ? FOREIGN_LINK : readlinkat(fd, "", text, size);
    }
    close(fd);
    return length;
}

/* Takes the first part off `rest` and appends it to `done`; false: it does not fit. */
static bool take_part(char done[PATH_MAX], char rest[PATH_MAX], bool all)
{
    memmove(rest, rest + strspn(rest, "/"), strlen(rest + strspn(rest, "/")) + 1);
    const size_t used = strlen(done), length = all ? strlen(rest) : strcspn(rest, "/");
    const char *between = used > 0 && done[used - 1] != '/' ? "/" : "";
    const int bytes = snprintf(done + used, PATH_MAX - used, "%s%.*s", between, (int)length, rest);
    memmove(rest, rest + length, strlen(rest + length) + 1);
    return bytes >= 0 && (size_t)bytes < PATH_MAX - used;
}

/* Follows links in `rest`, which ends in `done`; false sets errno and leaves the link in `done`. */
static bool follow(char done[PATH_MAX], char rest[PATH_MAX])
{
    char link[PATH_MAX], together[2 * PATH_MAX];
    int hops = 0;
    for (;;) {
        if (*rest == '/' && !*done)
            strcpy(done, "/");
        if (strspn(rest, "/") == strlen(rest))
            return true;
        const size_t before = strlen(done);
        errno = ENAMETOOLONG;
        if (!take_part(done, rest, false))
            return false;
        const ssize_t length = read_link(done, link, sizeof link);
        if (length == KERNELS_LINK)
            return !*rest || take_part(done, rest, true);
        if (length == NO_LINK)
            continue;
        errno = length == FOREIGN_LINK ? EACCES : hops++ == LINKS_MAX ? ELOOP : ENAMETOOLONG;
        if (length < 0 || errno == ELOOP ||
            snprintf(together, sizeof together, "%.*s%s", (int)length, link, rest) >= PATH_MAX)
            return false;
        strcpy(rest, together);
        done[link[0] == '/' ? 0 : before] = '\0';
    }
}

enum ddp_status ddp_path_follow(char **followed, const char *path)
{
    char done[PATH_MAX] = "", rest[PATH_MAX];
    if (!*path || strlen(path) >= sizeof rest) {
        errno = *path ? ENAMETOOLONG : ENOENT;
        return ddp_fail_path(path, "write");
    }
    strcpy(rest, path);
    const bool known = follow(done, rest);
    if (!known && errno == EACCES)
        return ddp_fail(DDP_ERR_IO,
                        "%s: cannot write: %s is a symbolic link of another user, in a directory "
                        "where everybody may create files",
                        path, strcmp(done, path) == 0 ? "it" : done);
    if (!known)
        return ddp_fail_path(path, "write");
    const size_t length = strlen(path);
    if (path[length - 1] == '/' && strlen(done) + 1 < sizeof done && strcmp(done, "/") != 0)
        strcat(done, "/"); /* still only a directory */
    *followed = strdup(done);
    return *followed ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* --- opening ---------------------------------------------------------------------------------- */

static int open_plainly(const char *path, int flags)
{
    struct stat info;
    flags |= O_CLOEXEC | O_NONBLOCK;
    int fd = open(path, O_RDWR | flags, 0666);
    /* A FIFO that is open for reading too would be its own reader. */
    const bool fifo = fd >= 0 && fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
    if (fifo)
        close(fd);
    if (fifo || (fd < 0 && (errno == EACCES || errno == ENXIO)))
        fd = open(path, O_WRONLY | flags, 0666);
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

enum ddp_status ddp_open_for_writing(int *fd, const char *path, int flags)
{
    struct stat info;
    char *followed;
    enum ddp_status status = ddp_path_follow(&followed, path);
    if (status != DDP_OK)
        return status;
    *fd = open_plainly(followed, flags);
    const int error = errno;
    if (*fd < 0 && error == ENXIO && stat(followed, &info) == 0 && S_ISFIFO(info.st_mode))
        status =
            ddp_fail(DDP_ERR_IO, "%s: cannot write to it: it is a FIFO that nobody reads", path);
    free(followed);
    errno = error;
    return *fd >= 0 || status != DDP_OK ? status : ddp_fail_path(path, "open it for writing");
}

/* --- writing ---------------------------------------------------------------------------------- */

ssize_t ddp_write_quietly(int fd, const void *data, size_t bytes)
{
    sigset_t pipe, pending, old;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    const ssize_t n = write(fd, data, bytes);
    const int error = errno;
    if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = error;
    return n;
}

int ddp_write_all(int fd, const void *data, size_t bytes)
{
    for (const char *next = data; bytes > 0;) {
        const ssize_t n = write(fd, next, bytes);
        if (n < 0 && errno != EINTR)
            return -1;
        next += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

void ddp_fill_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int ddp_sync(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result < 0 && errno == EINTR);
    return result < 0 && (errno == EINVAL || errno == EROFS) ? 0 : result;
}

char *ddp_path_in(const char *directory, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) >= 0)
        return path;
    (void)ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", directory);
    return NULL;
}

char *ddp_path_bare(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return strndup(path, length);
}

bool ddp_path_is_in(const char *directory, const char *name)
{
    char *path = ddp_path_in(directory, name);
    const bool is = path && access(path, F_OK) == 0;
    free(path);
    return is;
}

char *ddp_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

static int make_directory(const char *path, bool durable)
{
    if (mkdir(path, 0777) < 0)
        return errno == EEXIST ? 0 : -1;
    char *above = durable ? ddp_directory_of(path) : NULL;
    const int fd = above ? open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(above);
    if (fd >= 0) {
        ddp_sync(fd);
        close(fd);
    }
    return 0;
}

enum ddp_status ddp_make_directories(const char *path, bool durable)
{
    char *copy;
    enum ddp_status status = ddp_path_follow(&copy, path);
    if (status != DDP_OK)
        return status;
    for (char *slash = copy + strspn(copy, "/"); status == DDP_OK && *slash;) {
        slash += strcspn(slash, "/");
        const char kept = *slash;
        *slash = '\0';
        if (make_directory(copy, durable) < 0)
            status = ddp_fail_path(copy, "make this directory");
        *slash = kept;
        slash += strspn(slash, "/");
    }
    free(copy);
    return status;
}
