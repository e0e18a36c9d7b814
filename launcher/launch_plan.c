/* SPDX-License-Identifier: MIT
 *
 * See launch_plan.h. */
#include "config.h"

#include "launcher/launch_plan.h"

#include "core/log.h"
#include "core/memory.h"
#include "job/board.h"
#include "launcher/device_paths.h"
#include "launcher/system/limits.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the program ------------------------------------------------------------------------------ */

/* True when DIR/NAME is a file that can be executed. Otherwise errno has the reason; a directory is
 * EISDIR. */
static bool is_program(const char *path)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return false;
    if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return false;
    }
    return access(path, X_OK) == 0;
}

/* The directory that holds ddprun; "" when unknown. */
static void own_directory(char *directory, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", directory, size - 1);
    directory[n > 0 ? n : 0] = 0;
    char *slash = strrchr(directory, '/');
    if (slash)
        slash[slash == directory] = 0;
}

struct search {
    const char *name;
    char *found;
    int error; /* EACCES when something of that name was there; ENOMEM */
};

/* Whether the search is over. */
static bool try_directory(struct search *search, const char *directory, size_t length)
{
    char *path;
    if (asprintf(&path, "%.*s%s%s", (int)length, directory, length ? "/" : "./", search->name) <
        0) {
        search->error = ENOMEM;
        return true;
    }
    if (is_program(path)) {
        search->found = path;
        return true;
    }
    if (errno == EACCES)
        search->error = EACCES;
    free(path);
    return false;
}

/* Is the directory one of those in the search path? */
static bool on_path(const char *directory, const char *path)
{
    struct stat own, other;
    char part[4096];
    if (stat(directory, &own) < 0)
        return false;
    for (;;) {
        size_t length = strcspn(path, ":");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        if (length && length < sizeof part && stat(part, &other) == 0 &&
            own.st_dev == other.st_dev && own.st_ino == other.st_ino)
            return true;
        if (!path[length])
            return false;
        path += length + 1;
    }
}

static bool try_path(struct search *search, const char *path)
{
    for (;;) {
        size_t length = strcspn(path, ":");
        if (try_directory(search, path, length))
            return true;
        if (!path[length])
            return false;
        path += length + 1;
    }
}

/* ddprun's own directory comes first, so that the one in a build tree starts the trainer beside it;
 * unless PATH led to ddprun, itself or through a link such as pipx makes: then PATH decides, and a
 * Python from a virtual environment is not passed over for /usr/bin's or pipx's. */
static void search_program(struct search *search)
{
    char directory[4096];
    const char *path = getenv("PATH");
    if (!path)
        path = "/usr/local/bin:/usr/bin:/bin";
    own_directory(directory, sizeof directory);
    const bool own_first = strchr(program_invocation_name, '/') && !on_path(directory, path);
    if (!own_first && try_path(search, path))
        return;
    if (*directory && try_directory(search, directory, strlen(directory)))
        return;
    if (own_first)
        try_path(search, path);
}

static enum ddp_status find_program(struct launch_plan *plan, int *exit_code)
{
    const char *name = plan->argv[0];
    struct search search = {.name = name, .error = ENOENT};
    if (strchr(name, '/')) {
        if (!is_program(name))
            search.error = errno;
        else if (!(search.found = strdup(name)))
            search.error = ENOMEM;
    } else {
        search_program(&search);
    }
    plan->program = search.found;
    if (plan->program && plan->python_argv) /* Python looks for its virtual environment there */
        plan->python_argv[0] = plan->program;
    if (plan->program)
        return DDP_OK;
    if (search.error == ENOMEM)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    bool missing = search.error == ENOENT || search.error == ENOTDIR;
    *exit_code = missing ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    if (missing && !strchr(name, '/'))
        return ddp_fail(DDP_ERR_INVALID, "%s: no such program, neither beside ddprun nor on PATH",
                        name);
    return ddp_fail(DDP_ERR_INVALID, "%s: cannot be executed: %s", name, strerror(search.error));
}

/* torchrun starts scripts with Python: a PROGRAM that ends in .py, and a module. PYTHON_EXEC names
 * another one. */
static enum ddp_status add_python(struct launch_plan *plan, int *exit_code)
{
    const struct settings *s = plan->settings;
    const char *python = getenv("PYTHON_EXEC");
    const char *name = plan->argv[0];
    size_t length = strlen(name), count = 0, n = 0;
    bool script =
        s->run_path || (length > 3 && strcmp(name + length - 3, ".py") == 0 && !s->no_python);
    if (!script && !s->module)
        return DDP_OK;
    if (!s->module && access(name, F_OK) != 0) { /* each worker would say so */
        *exit_code = EXIT_NOT_FOUND;
        return ddp_fail(DDP_ERR_INVALID, "%s: cannot read: %s", name, strerror(errno));
    }
    while (plan->argv[count])
        count++;
    plan->python_argv = ddp_array_alloc(count + 4, sizeof(char *));
    if (!plan->python_argv)
        return DDP_ERR_MEMORY;
    plan->python_argv[n++] = (char *)(python && *python ? python : "python3");
    plan->python_argv[n++] = (char *)"-u"; /* lines at once, as torchrun asks for */
    if (s->module)
        plan->python_argv[n++] = (char *)"-m";
    memcpy(plan->python_argv + n, plan->argv, count * sizeof(char *));
    plan->argv = plan->python_argv;
    return DDP_OK;
}

/* --- workers and devices --------------------------------------------------------------------- */

static enum ddp_status find_devices(struct launch_plan *plan)
{
    if (plan->devices_found)
        return DDP_OK;
    plan->devices_found = true;
    return devices_find(&plan->devices);
}

static enum ddp_status count_workers(struct launch_plan *plan, int *exit_code)
{
    const struct settings *s = plan->settings;
    *exit_code = EXIT_LAUNCHER;
    plan->cores = cores_usable();
    plan->quota = cores_quota();
    plan->nproc = s->nproc;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool mig = visible && strstr(visible, "MIG-");
    if (s->nproc_kind == NPROC_AUTO || s->nproc_kind == NPROC_GPU || s->virtual_local_rank ||
        s->oversubscribe || mig) {
        enum ddp_status status = find_devices(plan);
        if (status != DDP_OK)
            return status;
    }
    if (s->nproc_kind == NPROC_CPU)
        plan->nproc = plan->cores;
    if (s->nproc_kind == NPROC_GPU || s->nproc_kind == NPROC_AUTO)
        plan->nproc = plan->devices.count;
    if (s->nproc_kind == NPROC_GPU && plan->nproc == 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "--nproc gpu: no GPU is visible%s%s",
                        visible ? "; CUDA_VISIBLE_DEVICES=" : " (NVML finds none)",
                        visible ? visible : "");
    if (s->nproc_kind == NPROC_AUTO && plan->nproc == 0)
        plan->nproc = plan->cores < NPROC_AUTO_CORES ? plan->cores : NPROC_AUTO_CORES;
    if (plan->nproc > DDP_BOARD_MAX_WORLD)
        plan->nproc = DDP_BOARD_MAX_WORLD;
    const int devices = plan->devices.count;
    plan->oversubscribed = s->oversubscribe && devices > 0 && plan->nproc > devices;
    plan->own_device =
        devices > 0 && (s->virtual_local_rank || plan->devices.mig || plan->oversubscribed);
    if (plan->own_device && plan->nproc > devices && !plan->oversubscribed) {
        *exit_code = EXIT_USAGE;
        return ddp_fail(DDP_ERR_INVALID,
                        "--nproc %d: only %d GPU%s visible, and each worker needs its own; "
                        "--oversubscribe lets them share",
                        plan->nproc, devices, devices == 1 ? " is" : "s are");
    }
    if (s->min_nproc > plan->nproc) {
        *exit_code = EXIT_USAGE;
        return ddp_fail(DDP_ERR_INVALID, "--nproc %d:%d: there are at most %d workers",
                        (int)s->min_nproc, plan->nproc, plan->nproc);
    }
    return DDP_OK;
}

enum ddp_status launch_plan_check_faults(const struct launch_plan *plan, int *exit_code)
{
    const struct settings *s = plan->settings;
    for (int i = 0; i < s->fault_count; i++)
        if (s->faults[i].rank >= plan->job_size) {
            *exit_code = EXIT_USAGE;
            return ddp_fail(DDP_ERR_INVALID,
                            "DDP_FAULTS: %s: there is no rank %d among %d worker%s",
                            s->fault_texts[i], s->faults[i].rank, plan->job_size,
                            plan->job_size == 1 ? "" : "s");
        }
    return DDP_OK;
}

/* Ranks that are neighbours get GPUs that are near, unless the user has said which to use. */
static enum ddp_status order_devices(struct launch_plan *plan)
{
    if (plan->nproc < 2 || getenv("CUDA_VISIBLE_DEVICES"))
        return DDP_OK;
    const enum ddp_status status = find_devices(plan);
    if (status == DDP_OK && plan->devices.count > 1)
        plan->own_list = devices_sort(&plan->devices, plan->nproc, &plan->island);
    return status;
}

static enum ddp_status bind_workers(struct launch_plan *plan)
{
    const struct settings *s = plan->settings;
    enum bind_kind kind = s->bind;
    if (kind == BIND_AUTO && (plan->nproc == 1 || !bindings_useful()))
        kind = BIND_NONE;
    if (kind != BIND_NONE || s->min_nproc) {
        enum ddp_status status = find_devices(plan);
        if (status != DDP_OK)
            return status;
        devices_identify(&plan->devices);
    }
    /* A worker that leads several GPUs may need the CPUs near any of them. */
    if (kind == BIND_AUTO && plan->devices.count != plan->nproc)
        kind = BIND_NONE;
    return bindings_make(&plan->bindings, kind, plan->nproc, &plan->devices);
}

/* Asks the system for a free port. It is not kept open: not every program sets SO_REUSEADDR. */
int launch_plan_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int port = 29500; /* torchrun's default, should there be no network at all */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return port;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

void launch_plan_take_part(struct launch_plan *plan, int node, int node_count)
{
    plan->node = node;
    plan->node_count = node_count;
    plan->first_rank = plan->starts[node];
    plan->job_size = plan->starts[node_count];
}

/* The plan's part in the job. On one machine --master-addr is only what workers are told. */
static enum ddp_status find_part(struct launch_plan *plan, const struct place *place,
                                 int *exit_code)
{
    const struct settings *s = plan->settings;
    const char *address = place->address;
    plan->place = place;
    plan->bell_fd = plan->copy_fd = -1;
    *exit_code = EXIT_USAGE;
    if (place->node_count > DDP_BOARD_MAX_WORLD - plan->nproc + 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "%d nodes, with %d workers on this one: a job has at most %d workers",
                        place->node_count, plan->nproc, DDP_BOARD_MAX_WORLD);
    for (int n = 1; n <= place->node_count; n++)
        plan->starts[n] = n * plan->nproc;
    launch_plan_take_part(plan, place->node, place->node_count);
    if (plan->node_count > 1 && s->min_nproc)
        return ddp_fail(DDP_ERR_INVALID,
                        "--nproc %d:%d is for one machine: several nodes continue with fewer by "
                        "--nnodes MIN:MAX",
                        (int)s->min_nproc, plan->nproc);
    if (plan->node_count == 1)
        address = s->master_addr ? s->master_addr : s->local_addr ? s->local_addr : "127.0.0.1";
    if (snprintf(plan->master_addr, sizeof plan->master_addr, "%s", address) >=
        (int)sizeof plan->master_addr)
        return ddp_fail(DDP_ERR_INVALID, "--master-addr: must have at most %zu bytes",
                        sizeof plan->master_addr - 1);
    return DDP_OK;
}

enum ddp_status launch_plan_make(struct launch_plan *plan, const struct settings *settings,
                                 const struct place *place, int *exit_code)
{
    *plan = (struct launch_plan){.settings = settings, .argv = settings->command};
    *exit_code = EXIT_LAUNCHER;
    enum ddp_status status = add_python(plan, exit_code);
    if (status == DDP_OK)
        status = find_program(plan, exit_code);
    if (status == DDP_OK)
        status = count_workers(plan, exit_code);
    if (status == DDP_OK)
        status = find_part(plan, place, exit_code);
    if (status == DDP_OK)
        status = plan->node_count == 1 ? launch_plan_check_faults(plan, exit_code) : DDP_OK;
    *exit_code = status == DDP_OK ? EXIT_LAUNCHER : *exit_code;
    if (status == DDP_OK)
        status = order_devices(plan);
    if (status == DDP_OK)
        status = bind_workers(plan);
    if (status != DDP_OK) {
        launch_plan_free(plan);
        return status;
    }
    if (plan->oversubscribed)
        ddp_log(DDP_LOG_WARNING,
                "--oversubscribe: %d workers share %d GPU%s: they take turns, and NCCL works "
                "through sockets",
                plan->nproc, plan->devices.count, plan->devices.count == 1 ? "" : "s");
    plan->runs_python = plan->python_argv || python_is(plan->program);
    if (plan->node_count == 1)
        plan->master_port =
            settings->master_port ? (int)settings->master_port : launch_plan_free_port();
    return DDP_OK;
}

enum ddp_status launch_plan_next(struct launch_plan *plan, bool changed)
{
    plan->restart++;
    if (plan->node_count == 1)
        plan->job_size = plan->starts[1] = plan->nproc;
    if (plan->node_count == 1 && !plan->settings->master_port)
        plan->master_port = launch_plan_free_port();
    if (!changed)
        return DDP_OK;
    bindings_free(&plan->bindings);
    return bind_workers(plan);
}

void launch_plan_free(struct launch_plan *plan)
{
    bindings_free(&plan->bindings);
    devices_free(&plan->devices);
    free(plan->program);
    free(plan->python_argv);
    plan->program = NULL;
    plan->python_argv = NULL;
}

void launch_plan_report_bindings(const struct launch_plan *plan)
{
    for (int rank = 0; rank < plan->nproc; rank++)
        ddp_log(DDP_LOG_INFO, "rank %d: %s", plan->first_rank + rank,
                rank < plan->bindings.count ? plan->bindings.workers[rank].text : "not bound");
}
