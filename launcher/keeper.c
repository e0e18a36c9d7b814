/* SPDX-License-Identifier: MIT
 *
 * See keeper.h. A keeper sleeps on a pipe whose other end only ddprun holds, and its children until
 * they have executed their program. So when the pipe ends, every group that there will ever be is
 * in the table. */
#include "config.h"

#include "launcher/keeper.h"

#include "core/log.h"
#include "launcher/link.h"
#include "launcher/proc.h"
#include "launcher/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEATHS 32   /* then something is wrong that another keeper does not mend */
#define MAX_TRIES  5000 /* to see that a keeper is ready */
#define MAX_LIFE   4    /* seconds after ddprun's end: more than the work takes */
#define LOOK_MS    500  /* between two looks at whether ddprun is stopped */

/* Neither contains "ddprun", and killing one by its name does not kill the other. */
static const char *const names[KEEPERS] = {"job-keeper", "job-watcher"};

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

/* --- in a keeper ------------------------------------------------------------------------------ */

static void change_title(const char *name)
{
    prctl(PR_SET_NAME, name);
    if (title_bytes <= 1)
        return;
    memset(title, 0, title_bytes);
    memcpy(title, name, strlen(name) < title_bytes ? strlen(name) : title_bytes - 1);
}

/* Keeps three descriptors as 0 to 2, or as many as there are. */
static void close_all_but(int kept[3])
{
    for (int i = 0; i < 3; i++) {
        if (kept[i] < 0 || dup2(kept[i], i) < 0)
            close(i);
        else
            kept[i] = i;
    }
    close_range(3, ~0u, 0);
}

/* Whatever happens to this keeper now, also if it is stopped, it is killed after a while. */
static void limit_life(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec after = {.it_value = {.tv_sec = MAX_LIFE}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        timer_settime(timer, 0, &after, NULL);
}

static void kill_workers(const struct keeper *keeper, const struct cgroup *cgroup)
{
    cgroup_kill(cgroup);
    for (int i = 0; i < keeper->count; i++) {
        int32_t group = atomic_load(&keeper->table->groups[i]);
        if (group > 1)
            kill(-group, SIGKILL);
    }
    mark_kill(keeper->mark);
}

/* Returns when ddprun has ended. Looks are counted, not time: a keeper that was stopped with ddprun
 * has not looked meanwhile. A poll that fails, for want of memory, says nothing of ddprun. */
static void wait_for_end(const struct keeper *keeper, const struct cgroup *cgroup, int pipe,
                         pid_t ddprun)
{
    struct pollfd end = {.fd = pipe, .events = POLLIN};
    const struct timespec pause = {.tv_nsec = 10000000};
    int stopped = 0, events;
    while ((events = poll(&end, 1, keeper->watches ? LOOK_MS : -1)) <= 0) {
        if (events < 0)
            nanosleep(&pause, NULL);
        stopped = proc_state(ddprun) == 'T' ? stopped + 1 : 0;
        if (stopped * LOOK_MS >= (int)(LINK_DEFAULT_LOST * 1000))
            kill_workers(keeper, cgroup);
    }
}

/* The other keeper may be stopped at its work. One whose life has no limit yet is not left alone.
 */
static void continue_all(const struct keeper *keeper)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < KEEPERS; i++) {
        int32_t pid;
        int tries = 0;
        while ((pid = atomic_load(&keeper->table->keepers[i])) > 0 && kill(pid, SIGCONT) == 0 &&
               tries++ < 1000)
            nanosleep(&pause, NULL);
        if (pid < 0)
            kill(-pid, SIGCONT);
    }
}

static _Noreturn void keep(const struct keeper *keeper, int slot)
{
    const pid_t ddprun = getppid();
    struct cgroup cgroup = *keeper->cgroup;
    int kept[3] = {keeper->pipe_read, cgroup.parent, cgroup.own};
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* a stopped one continues when ddprun dies */
    setsid();                         /* out of reach of a signal to ddprun's group */
    change_title(names[slot]);
    mark_take_off(); /* a job around this one may not kill it before it has cleaned up */
    close_all_but(kept);
    cgroup.parent = kept[1];
    cgroup.own = kept[2];
    atomic_store(&keeper->table->keepers[slot], (int32_t)getpid());
    wait_for_end(keeper, &cgroup, kept[0], ddprun);
    limit_life();
    atomic_store(&keeper->table->keepers[slot], -(int32_t)getpid());
    kill_workers(keeper, &cgroup);
    cgroup_remove(&cgroup);
    continue_all(keeper);
    _exit(0);
}

/* --- in ddprun -------------------------------------------------------------------------------- */

static enum ddp_status start(struct keeper *keeper, int slot)
{
    atomic_store(&keeper->table->keepers[slot], 0);
    pid_t pid = fork();
    if (pid == 0)
        keep(keeper, slot);
    if (pid < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot start a process: %s%s", strerror(errno),
                        errno == EAGAIN ? " (the limit of processes, ulimit -u, is reached)" : "");
    keeper->pids[slot] = pid;
    return DDP_OK;
}

static size_t table_bytes(const struct keeper *keeper)
{
    return sizeof *keeper->table + (size_t)keeper->count * sizeof keeper->table->groups[0];
}

enum ddp_status keeper_start(struct keeper *keeper, int workers, int nodes, const char *mark,
                             const struct cgroup *cgroup)
{
    int ends[2];
    *keeper =
        (struct keeper){.count = workers, .watches = nodes > 1, .mark = mark, .cgroup = cgroup};
    void *table =
        mmap(NULL, table_bytes(keeper), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for %d workers", workers);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        munmap(table, table_bytes(keeper));
        return ddp_fail(DDP_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    }
    keeper->table = table;
    keeper->pipe_read = ends[0];
    keeper->pipe_write = ends[1];
    enum ddp_status status = DDP_OK;
    for (int slot = 0; slot < KEEPERS && status == DDP_OK; slot++)
        status = start(keeper, slot);
    if (status != DDP_OK)
        keeper_stop(keeper);
    return status;
}

void keeper_wait(const struct keeper *keeper)
{
    const struct timespec pause = {.tv_nsec = 20000};
    for (int slot = 0, tries = 0; slot < KEEPERS && tries < MAX_TRIES;)
        if (atomic_load(&keeper->table->keepers[slot]) != 0)
            slot++;
        else if (++tries < MAX_TRIES)
            nanosleep(&pause, NULL);
}

void keeper_forget(struct keeper *keeper)
{
    for (int i = 0; i < keeper->count; i++)
        atomic_store(&keeper->table->groups[i], 0);
}

static int slot_of(const struct keeper *keeper, pid_t pid)
{
    for (int slot = 0; slot < KEEPERS; slot++)
        if (keeper->pids[slot] == pid)
            return slot;
    return -1;
}

bool keeper_is(const struct keeper *keeper, pid_t pid)
{
    return slot_of(keeper, pid) >= 0;
}

void keeper_replace(struct keeper *keeper, pid_t pid, int wait_status)
{
    char signal[32];
    int slot = slot_of(keeper, pid), left = 0;
    if (slot < 0)
        return;
    report_signal_name(WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0, signal, sizeof signal);
    keeper->pids[slot] = 0;
    if (++keeper->deaths <= MAX_DEATHS && start(keeper, slot) == DDP_OK) {
        ddp_log(DDP_LOG_WARNING, "%s (pid %ld) was killed by %s; pid %ld replaces it", names[slot],
                (long)pid, signal, (long)keeper->pids[slot]);
        return;
    }
    for (int i = 0; i < KEEPERS; i++)
        left += keeper->pids[i] != 0;
    ddp_log(DDP_LOG_WARNING, "%s (pid %ld) was killed by %s and is not replaced%s", names[slot],
            (long)pid, signal,
            left > 0 ? ""
                     : "; if ddprun is killed with SIGKILL now, processes that the workers have "
                       "started survive");
}

void keeper_stop(struct keeper *keeper)
{
    if (!keeper->table)
        return;
    for (int slot = 0; slot < KEEPERS; slot++)
        if (keeper->pids[slot] > 0)
            kill(keeper->pids[slot], SIGKILL);
    for (int slot = 0; slot < KEEPERS; slot++)
        while (keeper->pids[slot] > 0 && waitpid(keeper->pids[slot], NULL, 0) < 0 && errno == EINTR)
            ;
    close(keeper->pipe_read);
    close(keeper->pipe_write);
    munmap((void *)keeper->table, table_bytes(keeper));
    keeper->table = NULL;
}
