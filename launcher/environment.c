/* SPDX-License-Identifier: MIT
 *
 * See environment.h. */
#include "config.h"

#include "launcher/environment.h"

#include "core/log.h"
#include "job/board.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add(struct environment *added, const char *name, const char *format, ...)
    DDP_PRINTF(3, 4);

static void add(struct environment *added, const char *name, const char *format, ...)
{
    size_t left = sizeof added->text - added->used;
    char *at = added->text + added->used;
    int head = snprintf(at, left, "%s=", name);
    va_list args;
    va_start(args, format);
    int tail = head < 0 || (size_t)head >= left
                   ? -1
                   : vsnprintf(at + head, left - (size_t)head, format, args);
    va_end(args);
    if (tail < 0 || (size_t)head + (size_t)tail >= left || added->count == ENVIRONMENT_MAX) {
        added->overflow = true;
        return;
    }
    added->offsets[added->count++] = added->used;
    added->used += (size_t)head + (size_t)tail + 1;
}

/* Is this a variable that workers do not get? The key of the link is ddprun's. In a job on several
 * nodes so is what says that this process is a task of a launcher: a second client of PMIx with
 * the same identity fails, and a ddprun that a worker starts is no node. */
static bool hidden(const struct launch_plan *plan, const char *variable)
{
    static const char *const prefixes[] = {"PMIX_",
                                           "PMI_",
                                           "OMPI_",
                                           "SLURM_STEP_NUM_NODES=",
                                           "MPI_LOCALNRANKS=",
                                           "MPI_LOCALRANKID=",
                                           "PET_NNODES=",
                                           "PET_NODE_RANK="};
    if (strncmp(variable, "DDPRUN_KEY=", 11) == 0)
        return true;
    if (plan->place->node_count == 1)
        return false;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool replaced(const struct environment *added, const char *variable)
{
    size_t length = strcspn(variable, "=") + 1;
    for (size_t i = 0; i < added->count; i++)
        if (strncmp(added->text + added->offsets[i], variable, length) == 0)
            return true;
    return false;
}

/* A job in a job has the marks of both: it ends with each. */
static void add_mark(struct environment *added, const char *mark)
{
    const char *outer = getenv(MARK_VARIABLE);
    bool nested = outer && *outer && strlen(outer) < 1024;
    add(added, MARK_VARIABLE, "%s%s%s", nested ? outer : "", nested ? "/" : "", mark);
}

/* Threads that a worker's share of the CPUs can keep busy. */
static int threads_of(const struct launch_plan *plan, int rank)
{
    int threads = plan->cores / plan->nproc;
    if (rank < plan->bindings.count) {
        const struct binding *binding = &plan->bindings.workers[rank];
        threads = binding->cpus / binding->sharers;
        if (plan->quota && threads > plan->quota / plan->nproc)
            threads = plan->quota / plan->nproc;
    }
    return threads > 1 ? threads : 1;
}

/* As the user wrote it, unless the list is ours: CUDA may count otherwise than NVML. */
const char *environment_device_name(const struct launch_plan *plan, int index)
{
    const struct device *device = &plan->devices.list[index];
    return plan->own_list && device->uuid[0] ? device->uuid : device->token;
}

int environment_device(const struct launch_plan *plan, int rank)
{
    return plan->oversubscribed ? rank % plan->devices.count : rank;
}

/* NCCL refuses two ranks on one device of one host. With ids of their own they count as hosts,
 * which use a network: sockets, because a plugin for InfiniBand connects other machines, and on one
 * machine the loopback interface, unless these are set already. */
static void add_sharing(struct environment *added, const struct launch_plan *plan, int rank)
{
    add(added, "NCCL_HOSTID", "ddprun-%d", plan->first_rank + rank);
    if (plan->node_count == 1 && !getenv("NCCL_SOCKET_IFNAME"))
        add(added, "NCCL_SOCKET_IFNAME", "lo");
    if (!getenv("NCCL_NET"))
        add(added, "NCCL_NET", "Socket");
}

/* Where workers meet. Over several nodes libraries are told the interface of the link: gloo takes
 * the one that the host's name resolves to, which may be the loopback, and NCCL any. */
static void add_network(struct environment *added, const struct launch_plan *plan)
{
    if (plan->master_port) {
        add(added, "MASTER_ADDR", "%s", plan->master_addr);
        add(added, "MASTER_PORT", "%d", plan->master_port);
    }
    if (!*plan->interface)
        return;
    if (!getenv("GLOO_SOCKET_IFNAME"))
        add(added, "GLOO_SOCKET_IFNAME", "%s", plan->interface);
    if (!getenv("NCCL_SOCKET_IFNAME"))
        add(added, "NCCL_SOCKET_IFNAME", "=%s", plan->interface);
}

static void add_devices(struct environment *added, const struct launch_plan *plan, int rank)
{
    char list[4096] = "";
    size_t used = 0;
    if (plan->oversubscribed)
        add_sharing(added, plan, rank);
    if (plan->island > 0)
        add(added, DDP_ISLAND_VARIABLE, "%d", plan->island);
    if (plan->own_device) {
        add(added, "CUDA_VISIBLE_DEVICES", "%s",
            environment_device_name(plan, environment_device(plan, rank)));
        return;
    }
    if (!plan->own_list)
        return;
    for (int i = 0; i < plan->devices.count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? "," : "",
                                 environment_device_name(plan, i));
    if (used >= sizeof list)
        added->overflow = true;
    add(added, "CUDA_VISIBLE_DEVICES", "%s", list);
}

static void add_python_stack(struct environment *added, const struct launch_plan *plan, int rank)
{
    char path[4096], stack[32];
    if (!python_stack(&plan->python, rank, stack, sizeof stack) ||
        !python_path(&plan->python, path, sizeof path))
        return;
    add(added, "PYTHONPATH", "%s", path);
    add(added, PYTHON_STACK_VARIABLE, "%s", stack);
}

void environment_collect(struct environment *added, const struct launch_plan *plan, int rank,
                         int board_fd, int heap_fd, const char *error_file)
{
    added->used = added->count = 0;
    added->overflow = false;
    add(added, "RANK", "%d", plan->first_rank + rank);
    add(added, "LOCAL_RANK", "%d", plan->own_device ? 0 : rank);
    add(added, "WORLD_SIZE", "%d", plan->job_size);
    add(added, "LOCAL_WORLD_SIZE", "%d", plan->nproc);
    add_network(added, plan);
    add(added, "GROUP_RANK", "%d", plan->node);
    add(added, "GROUP_WORLD_SIZE", "%d", plan->node_count);
    add(added, "ROLE_RANK", "%d", plan->first_rank + rank);
    add(added, "ROLE_NAME", "%s", plan->settings->role);
    add(added, "ROLE_WORLD_SIZE", "%d", plan->job_size);
    add(added, "TORCHELASTIC_RESTART_COUNT", "%d", plan->restart);
    add(added, "TORCHELASTIC_MAX_RESTARTS", "%d", (int)plan->settings->max_restarts);
    add(added, "TORCHELASTIC_RUN_ID", "%s", plan->settings->run_id);
    /* Rank 0 creates the store: there is no agent with one. */
    add(added, "TORCHELASTIC_USE_AGENT_STORE", "False");
    if (!getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        add(added, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (error_file)
        add(added, "TORCHELASTIC_ERROR_FILE", "%s", error_file);
    if (*plan->mark)
        add_mark(added, plan->mark);
    add(added, DDP_BOARD_FD_VARIABLE, "%d", board_fd);
    add(added, DDP_HEAP_FD_VARIABLE, "%d", heap_fd);
    if (plan->bell_fd >= 0)
        add(added, DDP_BELL_FD_VARIABLE, "%d", plan->bell_fd);
    if (plan->copy_fd >= 0)
        add(added, DDP_COPY_FD_VARIABLE, "%d", plan->copy_fd);
    add_python_stack(added, plan, rank);
    if (!getenv("OMP_NUM_THREADS"))
        add(added, "OMP_NUM_THREADS", "%d", threads_of(plan, rank));
    add_devices(added, plan, rank);
}

char **launch_plan_environment(const struct launch_plan *plan, int rank, int board_fd, int heap_fd,
                               const char *error_file)
{
    struct environment added;
    size_t inherited = 0, n = 0;
    environment_collect(&added, plan, rank, board_fd, heap_fd, error_file);
    if (added.overflow) {
        ddp_log(DDP_LOG_ERROR, "the environment of rank %d has a value that is too long",
                plan->first_rank + rank);
        return NULL;
    }
    while (environ && environ[inherited])
        inherited++;
    size_t pointers = (inherited + added.count + 1) * sizeof(char *);
    char **block = malloc(pointers + added.used);
    if (!block) {
        ddp_log(DDP_LOG_ERROR, "out of memory for an environment of %zu variables", inherited);
        return NULL;
    }
    char *text = (char *)block + pointers;
    memcpy(text, added.text, added.used);
    for (size_t i = 0; i < inherited; i++)
        if (!replaced(&added, environ[i]) && !hidden(plan, environ[i]))
            block[n++] = environ[i];
    for (size_t i = 0; i < added.count; i++)
        block[n++] = text + added.offsets[i];
    block[n] = NULL;
    return block;
}
