/* SPDX-License-Identifier: MIT
 *
 * See keeper.h. The keeper sleeps in read() on a pipe whose other end only ddprun holds, and its
 * children until they have executed their program. So when the pipe ends, every group that there
 * will ever be is in the table. */
#include "config.h"

#include "launcher/keeper.h"

#include "core/log.h"
#include "launcher/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME       "job-keeper" /* does not hold "ddprun" */
#define MAX_DEATHS 16           /* then something is wrong that another keeper does not mend */

static char *title;
static size_t title_bytes;

void keeper_remember_title(int argc, char **argv)
{
    char *end = argc > 0 ? argv[0] : NULL;
    title = end;
    for (int i = 0; i < argc && argv[i] == end; i++)
        end += strlen(end) + 1;
    title_bytes = (size_t)(end - title);
}

static void change_title(void)
{
    prctl(PR_SET_NAME, NAME);
    if (title_bytes <= 1)
        return;
    memset(title, 0, title_bytes);
    memcpy(title, NAME, sizeof NAME < title_bytes ? sizeof NAME - 1 : title_bytes - 1);
}

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
    change_title();
    close_all_but(fd);
    while (read(fd, &byte, 1) != 0)
        if (errno != EINTR)
            break;
    for (int i = 0; i < keeper->count; i++) {
        int32_t group = atomic_load(&keeper->groups[i]);
        if (group > 1)
            kill(-group, SIGKILL);
    }
    mark_kill(keeper->mark);
    _exit(0);
}

static enum ddp_status start(struct keeper *keeper)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        keep(keeper, ends[0]);
    }
    int error = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return ddp_fail(DDP_ERR_SYSTEM, "cannot start a process: %s%s", strerror(error),
                        error == EAGAIN ? " (the limit of processes, ulimit -u, is reached)" : "");
    }
    keeper->pid = pid;
    keeper->pipe = ends[1];
    return DDP_OK;
}

enum ddp_status keeper_start(struct keeper *keeper, int workers, const char *mark)
{
    size_t bytes = (size_t)workers * sizeof *keeper->groups;
    void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for %d workers", workers);
    *keeper = (struct keeper){.count = workers, .groups = table, .mark = mark};
    enum ddp_status status = start(keeper);
    if (status != DDP_OK)
        keeper_stop(keeper);
    return status;
}

void keeper_forget(struct keeper *keeper)
{
    for (int i = 0; i < keeper->count; i++)
        atomic_store(&keeper->groups[i], 0);
}

void keeper_replace(struct keeper *keeper, int wait_status)
{
    char name[32];
    int signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    long pid = keeper->pid;
    close(keeper->pipe);
    keeper->pid = 0;
    if (++keeper->deaths <= MAX_DEATHS && start(keeper) == DDP_OK)
        ddp_log(DDP_LOG_WARNING, "the keeper (pid %ld) was ended by %s; pid %ld takes its place",
                pid, report_signal_name(signal, name, sizeof name), (long)keeper->pid);
    else
        ddp_log(DDP_LOG_WARNING,
                "the keeper (pid %ld) was ended by %s and has no successor: should ddprun be "
                "killed with SIGKILL, processes that the workers have started will stay",
                pid, report_signal_name(signal, name, sizeof name));
}

void keeper_stop(struct keeper *keeper)
{
    if (keeper->pid > 0) {
        kill(keeper->pid, SIGKILL);
        while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        close(keeper->pipe);
    }
    if (keeper->groups)
        munmap((void *)keeper->groups, (size_t)keeper->count * sizeof *keeper->groups);
    *keeper = (struct keeper){.pid = 0};
}
