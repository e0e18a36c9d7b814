/* SPDX-License-Identifier: MIT
 *
 * See keeper.h. The keeper sleeps in read() on a pipe whose other end only ddprun holds, and its
 * children until they have executed their program. So when the pipe ends, every group that there
 * will ever be is in the table. */
#include "config.h"

#include "launcher/keeper.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_all_but(int kept)
{
    if (kept > 0)
        close_range(0, (unsigned)kept - 1, 0);
    close_range((unsigned)kept + 1, ~0u, 0);
}

static _Noreturn void keep(const struct keeper *keeper, int fd)
{
    char byte;
    setsid(); /* out of reach of a signal to ddprun's group */
    prctl(PR_SET_NAME, "ddprun-keeper");
    close_all_but(fd);
    while (read(fd, &byte, 1) != 0)
        if (errno != EINTR)
            break;
    for (int i = 0; i < keeper->count; i++) {
        int32_t group = atomic_load(&keeper->groups[i]);
        if (group > 1)
            kill(-group, SIGKILL);
    }
    _exit(0);
}

enum ddp_status keeper_start(struct keeper *keeper, int workers)
{
    int ends[2];
    size_t bytes = (size_t)workers * sizeof *keeper->groups;
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for %d workers", workers);
    *keeper = (struct keeper){.count = workers, .groups = table};
    if (pipe2(ends, O_CLOEXEC) < 0) {
        munmap(table, bytes);
        return ddp_fail(DDP_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        keep(keeper, ends[0]);
    }
    int error = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        munmap(table, bytes);
        return ddp_fail(DDP_ERR_SYSTEM, "cannot start a process: %s%s", strerror(error),
                        error == EAGAIN ? " (the limit of processes, ulimit -u, is reached)" : "");
    }
    keeper->pid = pid;
    keeper->pipe = ends[1];
    return DDP_OK;
}

void keeper_stop(struct keeper *keeper)
{
    if (keeper->pid > 0) {
        kill(keeper->pid, SIGKILL);
        while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        close(keeper->pipe);
        munmap((void *)keeper->groups, (size_t)keeper->count * sizeof *keeper->groups);
        *keeper = (struct keeper){.pid = 0};
    }
}
