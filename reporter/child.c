/* SPDX-License-Identifier: MIT
 *
 * See child.h. Files without a name take what a program writes, so no pipe has to be emptied while
 * it runs. It leads a process group of its own, which ends with it. */
#include "config.h"

#include "reporter/child.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAID_BYTES 65536

static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
#define WATCHED (sizeof watched / sizeof watched[0])

static volatile sig_atomic_t ended_by, running;
static bool watching; /* also while no program runs */

static void end_child(int signal)
{
    ended_by = signal;
    if (running > 0)
        kill(-(pid_t)running, SIGTERM);
}

/* What is ignored stays so. */
static void change(void (*from)(int), void (*to)(int))
{
    struct sigaction now, next = {.sa_handler = to, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < WATCHED; i++)
        if (sigaction(watched[i], NULL, &now) == 0 && now.sa_handler == from)
            sigaction(watched[i], &next, NULL);
}

void child_watch_signals(void)
{
    watching = true;
    change(SIG_DFL, end_child);
}

void child_end_by_signal(void)
{
    if (!ended_by)
        return;
    signal(ended_by, SIG_DFL);
    raise(ended_by);
}

static void become(const struct child *child, pid_t parent, int error, const sigset_t *mask)
{
    const int null = open("/dev/null", O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    change(end_child, SIG_DFL);
    if (null < 0 || getppid() != parent || dup2(child->in < 0 ? null : child->in, 0) < 0 ||
        dup2(child->out < 0 ? null : child->out, 1) < 0 || dup2(error, 2) < 0)
        _exit(126);
    sigprocmask(SIG_SETMASK, mask, NULL);
    alarm(child->seconds); /* outlives exec */
    execvp(child->argv[0], child->argv);
    _exit(127);
}

enum ddp_status child_read(int fd, size_t most, char **text, size_t *bytes)
{
    struct stat status;
    *bytes = 0;
    if (fstat(fd, &status) < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "fstat: %s", strerror(errno));
    const size_t all = (size_t)status.st_size, wanted = all < most ? all : most;
    *text = malloc(wanted + 1);
    if (!*text)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    while (*bytes < wanted) {
        const ssize_t got =
            pread(fd, *text + *bytes, wanted - *bytes, (off_t)(all - wanted + *bytes));
        if (got <= 0)
            break;
        *bytes += (size_t)got;
    }
    (*text)[*bytes] = '\0';
    return DDP_OK;
}

enum ddp_status child_run(const struct child *child, int *code, char **said)
{
    sigset_t all, before;
    int state = 0;
    size_t bytes;
    *said = NULL;
    const int error = memfd_create("error", MFD_CLOEXEC);
    if (error < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "memfd_create: %s", strerror(errno));
    const pid_t parent = getpid();
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    if (ended_by) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(error);
        return DDP_ERR_PREEMPTED;
    }
    change(SIG_DFL, end_child);
    const pid_t pid = fork();
    if (pid == 0)
        become(child, parent, error, &before);
    const int failure = errno;
    if (pid > 0)
        setpgid(pid, pid); /* as the child does: whoever is first */
    running = pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        if (!watching)
            change(end_child, SIG_DFL);
        close(error);
        return ddp_fail(DDP_ERR_SYSTEM, "fork: %s", strerror(failure));
    }
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    kill(-pid, SIGKILL); /* what it has started; until it is reaped the number is its own */
    running = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    if (!watching) {
        change(end_child, SIG_DFL);
        child_end_by_signal();
    }
    *code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    enum ddp_status status = child_read(error, SAID_BYTES, said, &bytes);
    close(error);
    if (status == DDP_OK && *code == 127 && bytes == 0)
        *code = CHILD_MISSING;
    return ended_by ? DDP_ERR_PREEMPTED : status;
}
