/* SPDX-License-Identifier: MIT
 *
 * See launch_plan.h. */
#include "config.h"

#include "launcher/launch_plan.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "job/board.h"
#include "launcher/limits.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
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

/* ddprun's own directory comes first, so that the one in a build tree starts the trainer beside it;
 * unless it is on PATH anyway: then PATH decides, and a Python from a virtual environment is not
 * passed over for /usr/bin's. */
static void search_program(struct search *search)
{
    char directory[4096];
    const char *path = getenv("PATH");
    if (!path)
        path = "/usr/local/bin:/usr/bin:/bin";
    own_directory(directory, sizeof directory);
    if (*directory && !on_path(directory, path) &&
        try_directory(search, directory, strlen(directory)))
        return;
    for (;;) {
        size_t length = strcspn(path, ":");
        if (try_directory(search, path, length) || !path[length])
            return;
        path += length + 1;
    }
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
        return ddp_fail(DDP_ERR_INVALID, "--min-nproc %d is more than the number of workers, %d",
                        (int)s->min_nproc, plan->nproc);
    }
    return DDP_OK;
}

/* A fault of a rank that there is not would never come. */
static enum ddp_status check_faults(const struct launch_plan *plan, int *exit_code)
{
    const struct settings *s = plan->settings;
    for (int i = 0; i < s->fault_count; i++)
        if (s->faults[i].rank >= plan->nproc) {
            *exit_code = EXIT_USAGE;
            return ddp_fail(DDP_ERR_INVALID, "--inject %s: there is no rank %d among %d worker%s",
                            s->fault_texts[i], s->faults[i].rank, plan->nproc,
                            plan->nproc == 1 ? "" : "s");
        }
    return DDP_OK;
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
        if (plan->restart == 0)
            devices_identify(&plan->devices);
    }
    /* A worker that leads several GPUs may need the CPUs near any of them. */
    if (kind == BIND_AUTO && plan->devices.count != plan->nproc)
        kind = BIND_NONE;
    return bindings_make(&plan->bindings, kind, plan->nproc, &plan->devices);
}

/* Asks the system for a free port. It is not kept open: not every program sets SO_REUSEADDR. */
static int free_port(void)
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

enum ddp_status launch_plan_make(struct launch_plan *plan, const struct settings *settings,
                                 int *exit_code)
{
    *plan = (struct launch_plan){.settings = settings, .argv = settings->command};
    *exit_code = EXIT_LAUNCHER;
    enum ddp_status status = add_python(plan, exit_code);
    if (status == DDP_OK)
        status = find_program(plan, exit_code);
    if (status == DDP_OK)
        status = count_workers(plan, exit_code);
    if (status == DDP_OK)
        status = check_faults(plan, exit_code);
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
    plan->master_port = settings->master_port ? (int)settings->master_port : free_port();
    return DDP_OK;
}

enum ddp_status launch_plan_next(struct launch_plan *plan, bool changed)
{
    plan->restart++;
    if (!plan->settings->master_port)
        plan->master_port = free_port();
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

/* --- environment ----------------------------------------------------------------------------- */

#define MAX_ADDED 40

/* The variables that ddprun adds: collected in one text buffer. */
struct added {
    char text[8192];
    size_t used;
    size_t offsets[MAX_ADDED];
    size_t count;
    bool overflow;
};

static void add(struct added *added, const char *name, const char *format, ...) DDP_PRINTF(3, 4);

static void add(struct added *added, const char *name, const char *format, ...)
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
    if (tail < 0 || (size_t)head + (size_t)tail >= left || added->count == MAX_ADDED) {
        added->overflow = true;
        return;
    }
    added->offsets[added->count++] = added->used;
    added->used += (size_t)head + (size_t)tail + 1;
}

static bool replaced(const struct added *added, const char *variable)
{
    size_t length = strcspn(variable, "=") + 1;
    for (size_t i = 0; i < added->count; i++)
        if (strncmp(added->text + added->offsets[i], variable, length) == 0)
            return true;
    return false;
}

/* A job in a job has the marks of both: it ends with each. */
static void add_mark(struct added *added, const char *mark)
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

/* What a device is called in CUDA_VISIBLE_DEVICES: as the user wrote it, unless a device is lost:
 * then an index may mean another one. */
static const char *device_name(const struct launch_plan *plan, int index)
{
    const struct device *device = &plan->devices.list[index];
    return plan->fewer_devices && device->uuid[0] ? device->uuid : device->token;
}

/* The device of a worker; there are some. */
static int device_of(const struct launch_plan *plan, int rank)
{
    return plan->oversubscribed ? rank % plan->devices.count : rank;
}

/* NCCL refuses two ranks on one device of one host. With ids of their own they count as hosts,
 * which use sockets: the loopback interface, unless it is set already. */
static void add_sharing(struct added *added, int rank)
{
    add(added, "NCCL_HOSTID", "ddprun-%d", rank);
    if (!getenv("NCCL_SOCKET_IFNAME"))
        add(added, "NCCL_SOCKET_IFNAME", "lo");
}

static void add_devices(struct added *added, const struct launch_plan *plan, int rank)
{
    char list[4096] = "";
    size_t used = 0;
    if (plan->oversubscribed)
        add_sharing(added, rank);
    if (plan->own_device) {
        add(added, "CUDA_VISIBLE_DEVICES", "%s", device_name(plan, device_of(plan, rank)));
        return;
    }
    if (!plan->fewer_devices)
        return;
    for (int i = 0; i < plan->devices.count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? "," : "",
                                 device_name(plan, i));
    if (used >= sizeof list)
        added->overflow = true;
    add(added, "CUDA_VISIBLE_DEVICES", "%s", list);
}

static void add_python_stack(struct added *added, const struct launch_plan *plan, int rank)
{
    char path[4096], stack[32];
    if (!python_stack(&plan->python, rank, stack, sizeof stack) ||
        !python_path(&plan->python, path, sizeof path))
        return;
    add(added, "PYTHONPATH", "%s", path);
    add(added, PYTHON_STACK_VARIABLE, "%s", stack);
}

static void add_all(struct added *added, const struct launch_plan *plan, int rank, int board_fd,
                    int heap_fd, const char *error_file)
{
    add(added, "RANK", "%d", rank);
    add(added, "LOCAL_RANK", "%d", plan->own_device ? 0 : rank);
    add(added, "WORLD_SIZE", "%d", plan->nproc);
    add(added, "LOCAL_WORLD_SIZE", "%d", plan->nproc);
    add(added, "MASTER_ADDR", "%s", plan->settings->master_addr);
    add(added, "MASTER_PORT", "%d", plan->master_port);
    add(added, "GROUP_RANK", "0");
    add(added, "GROUP_WORLD_SIZE", "1");
    add(added, "ROLE_RANK", "%d", rank);
    add(added, "ROLE_NAME", "%s", plan->settings->role);
    add(added, "ROLE_WORLD_SIZE", "%d", plan->nproc);
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
    add_python_stack(added, plan, rank);
    if (!getenv("OMP_NUM_THREADS"))
        add(added, "OMP_NUM_THREADS", "%d", threads_of(plan, rank));
    add_devices(added, plan, rank);
}

char **launch_plan_environment(const struct launch_plan *plan, int rank, int board_fd, int heap_fd,
                               const char *error_file)
{
    struct added added = {.used = 0};
    size_t inherited = 0, n = 0;
    add_all(&added, plan, rank, board_fd, heap_fd, error_file);
    if (added.overflow) {
        ddp_log(DDP_LOG_ERROR, "the environment of rank %d has a value that is too long", rank);
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
        if (!replaced(&added, environ[i]))
            block[n++] = environ[i];
    for (size_t i = 0; i < added.count; i++)
        block[n++] = text + added.offsets[i];
    block[n] = NULL;
    return block;
}

/* --- --dry-run ------------------------------------------------------------------------------- */

/* Prints a word that a terminal must not see as it is, as bash and others read it back: $'\x1b'. */
static void print_escaped(const char *word, FILE *out)
{
    fputs(" $'", out);
    for (; *word; word++) {
        const unsigned char byte = (unsigned char)*word;
        if (byte < 0x20 || byte >= 0x7f)
            fprintf(out, "\\x%02x", byte);
        else
            fprintf(out, byte == '\'' || byte == '\\' ? "\\%c" : "%c", byte);
    }
    fputc('\'', out);
}

/* Prints a word so that a shell reads it back. */
static void print_word(const char *word, FILE *out)
{
    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-+=:,./@%") == strlen(word)) {
        fprintf(out, " %s", word);
        return;
    }
    char shown[DDP_TEXT_SHOWN];
    if (strcmp(ddp_text_show(shown, word), word) != 0) {
        print_escaped(word, out);
        return;
    }
    fputs(" '", out);
    for (; *word; word++)
        fprintf(out, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', out);
}

void launch_plan_report_bindings(const struct launch_plan *plan)
{
    for (int rank = 0; rank < plan->nproc; rank++)
        ddp_log(DDP_LOG_INFO, "rank %d: %s", rank,
                rank < plan->bindings.count ? plan->bindings.workers[rank].text : "not bound");
}

void launch_plan_print(const struct launch_plan *plan, FILE *out)
{
    struct added added;
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, "program: %s\ncommand:", ddp_text_show(shown, plan->program));
    for (char *const *arg = plan->argv; *arg; arg++)
        print_word(*arg, out);
    fprintf(out, "\nworkers: %d, on %d usable core%s\n", plan->nproc, plan->cores,
            plan->cores == 1 ? "" : "s");
    for (int rank = 0; rank < plan->nproc; rank++) {
        added.used = added.count = 0;
        added.overflow = false;
        add_all(&added, plan, rank, 3, 4, NULL);
        fprintf(out, "rank %d:", rank);
        if (device_of(plan, rank) < plan->devices.count)
            fprintf(out, " GPU %s,",
                    ddp_text_show(shown, device_name(plan, device_of(plan, rank))));
        if (rank < plan->bindings.count)
            fprintf(out, " %s,", plan->bindings.workers[rank].text);
        fputs(" environment", out);
        for (size_t i = 0; i < added.count; i++)
            print_word(added.text + added.offsets[i], out);
        fputc('\n', out);
    }
}
