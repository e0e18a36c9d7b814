/* SPDX-License-Identifier: MIT
 *
 * See spawn.h. Between fork and exec only async-signal-safe calls are made; all that needs memory
 * is done before. */
#include "config.h"

#include "launcher/spawn.h"

#include "core/log.h"
#include "launcher/system/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum ddp_status spawner_open(struct spawner *spawner, const struct launch_plan *plan,
                             const struct keeper *keeper, int board_fd, int heap_fd)
{
    int ends[2];
    *spawner =
        (struct spawner){.plan = plan, .keeper = keeper, .board_fd = board_fd, .heap_fd = heap_fd};
    spawner->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (spawner->null_fd < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "cannot open /dev/null: %s", strerror(errno));
    if (pipe2(ends, O_CLOEXEC) < 0) {
        close(spawner->null_fd);
        return ddp_fail(DDP_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    spawner->error_read = ends[0];
    spawner->error_write = ends[1];
    return DDP_OK;
}

void spawner_close(struct spawner *spawner)
{
    close(spawner->null_fd);
    close(spawner->error_read);
    close(spawner->error_write);
}

/* --- in the child ---------------------------------------------------------------------------- */

/* Default dispositions and an empty mask, whatever our own parent has set. Only a hang-up,
 * interrupt or quit signal that was ignored stays so: that is how nohup and background jobs of
 * scripts work. */
static void reset_signals(void)
{
    struct sigaction now, normal = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int signal = 1; signal < NSIG; signal++) {
        bool keep = signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
        if (keep && sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            continue;
        sigaction(signal, &normal, NULL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static struct spawn_error tell(const struct spawner *spawner, int rank, enum spawn_stage stage)
{
    struct spawn_error error = {.rank = rank, .stage = stage, .error = errno};
    ssize_t written = write(spawner->error_write, &error, sizeof error);
    (void)written; /* the exit code says it too */
    return error;
}

static void give_up(const struct spawner *spawner, int rank, enum spawn_stage stage)
{
    struct spawn_error error = tell(spawner, rank, stage);
    _exit(spawn_error_exit_code(&error));
}

static void bind_child(const struct spawner *spawner, int rank)
{
    if (rank >= spawner->plan->bindings.count)
        return;
    const struct binding *binding = &spawner->plan->bindings.workers[rank];
    if (sched_setaffinity(0, binding->set_bytes, binding->set) < 0)
        tell(spawner, rank, SPAWN_BIND);
}

static bool inherit(int fd)
{
    return fcntl(fd, F_SETFD, 0) == 0;
}

static bool become(int fd, int standard)
{
    return fd < 0 || dup2(fd, standard) >= 0;
}

static _Noreturn void run_child(const struct spawner *spawner, int rank, pid_t parent, int out,
                                int error, char *const *environment)
{
    const struct launch_plan *plan = spawner->plan;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        give_up(spawner, rank, SPAWN_PREPARE);
    if (getppid() != parent)
        _exit(EXIT_LAUNCHER); /* ddprun died before it could be noticed */
    if (setpgid(0, 0) < 0)
        give_up(spawner, rank, SPAWN_PREPARE);
    atomic_store(&spawner->keeper->table->groups[rank], (int32_t)getpid());
    mark_put(plan->mark);
    bind_child(spawner, rank);
    if (!become(plan->first_rank + rank > 0 ? spawner->null_fd : -1, STDIN_FILENO) ||
        !become(out, STDOUT_FILENO) || !become(error, STDERR_FILENO) ||
        !inherit(spawner->board_fd) || !inherit(spawner->heap_fd) ||
        (plan->bell_fd >= 0 && !inherit(plan->bell_fd)) ||
        (plan->copy_fd >= 0 && !inherit(plan->copy_fd)))
        give_up(spawner, rank, SPAWN_PREPARE);
    python_inherit(&plan->python, rank);
    descriptors_restore();
    reset_signals();
    execve(plan->program, plan->argv, environment);
    give_up(spawner, rank, SPAWN_EXEC);
    _exit(EXIT_LAUNCHER);
}

/* --- in ddprun ------------------------------------------------------------------------------- */

enum ddp_status spawner_start(const struct spawner *spawner, int rank, int out, int error,
                              const char *error_file, pid_t *pid)
{
    pid_t parent = getpid();
    char **environment = launch_plan_environment(spawner->plan, rank, spawner->board_fd,
                                                 spawner->heap_fd, error_file);
    if (!environment)
        return DDP_ERR_MEMORY;
    pid_t child = cgroup_fork(spawner->keeper->cgroup);
    if (child == 0)
        run_child(spawner, rank, parent, out, error, environment);
    int failure = errno;
    free(environment);
    if (child < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "rank %d cannot be started: %s%s",
                        spawner->plan->first_rank + rank, strerror(failure),
                        failure == EAGAIN ? " (the limit of processes, ulimit -u, is reached)"
                                          : "");
    setpgid(child, child); /* as the child does: whoever is first */
    *pid = child;
    return DDP_OK;
}

bool spawner_next_error(const struct spawner *spawner, struct spawn_error *error)
{
    ssize_t n;
    do
        n = read(spawner->error_read, error, sizeof *error);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *error;
}

int spawn_error_exit_code(const struct spawn_error *error)
{
    if (error->stage != SPAWN_EXEC)
        return EXIT_LAUNCHER;
    return error->error == EAGAIN || error->error == ENOMEM ? EXIT_LAUNCHER : EXIT_NOT_EXECUTABLE;
}

/* The interpreter that a script names after "#!", cut to the buffer; "" when it names none. */
static void read_interpreter(const char *program, char *name, size_t size)
{
    char line[256];
    name[0] = 0;
    int fd = open(program, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = 0;
    if (strncmp(line, "#!", 2) != 0)
        return;
    const char *start = line + 2 + strspn(line + 2, " \t");
    snprintf(name, size, "%.*s", (int)strcspn(start, " \t\r\n"), start);
}

void spawn_error_text(const struct spawn_error *error, const struct launch_plan *plan, char *text,
                      size_t size)
{
    char interpreter[128];
    const char *why = strerror(error->error);
    read_interpreter(plan->program, interpreter, sizeof interpreter);
    if (error->stage == SPAWN_BIND)
        snprintf(text, size, "rank %d cannot be bound to %s: %s; it runs unbound",
                 plan->first_rank + error->rank, plan->bindings.workers[error->rank].text, why);
    else if (error->stage != SPAWN_EXEC)
        snprintf(text, size, "cannot prepare the worker: %s", why);
    else if (error->error == ENOENT && *interpreter)
        snprintf(text, size, "%s: its interpreter %s does not exist", plan->program, interpreter);
    else if (error->error == ENOENT)
        snprintf(text, size, "%s: it, or its dynamic loader, does not exist", plan->program);
    else if (error->error == ENOEXEC)
        snprintf(text, size,
                 "%s: not a program for this machine, and no \"#!\" line names an interpreter",
                 plan->program);
    else
        snprintf(text, size, "%s: cannot be executed: %s", plan->program, why);
}
