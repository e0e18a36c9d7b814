/* SPDX-License-Identifier: MIT
 *
 * See comm_ranks.h. */
#include "config.h"

#include "tests/comm/comm_ranks.h"

#include "core/clock.h"
#include "core/log.h"
#include "job/board.h"
#include "job/mirror.h"
#include "kernels/reduce.h"
#include "tests/lib/runner.h"
#include "tests/kernels/reference/reference.h"

#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const char *device_kind, *device_backend;
static bool without_comm;

ddp_device *ranks_device;
void (*ranks_prepare)(int rank);

void ranks_use(const char *kind, const char *backend)
{
    device_kind = kind;
    device_backend = backend;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Workers that share a GPU look like different machines to NCCL, as with ddprun --oversubscribe. */
static void open_device(int rank, int size)
{
    struct ddp_device_kind found;
    NEED(ddp_device_find(&found, device_kind) == DDP_OK);
    if (found.count < size && !getenv("RANKS_AS_ONE_HOST")) {
        set_number("NCCL_HOSTID", rank);
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    }
    NEED(ddp_device_open(&ranks_device, device_kind, rank % found.count, 1) == DDP_OK);
}

enum ddp_status ranks_join(ddp_comm **comm, ddp_job *job)
{
    return device_kind ? ddp_comm_create_on(comm, job, device_backend, ranks_device)
                       : ddp_comm_create(comm, job, NULL);
}

enum ddp_status ranks_join_group(ddp_comm **comm, ddp_job *job, int first, int stride, int size)
{
    const struct ddp_comm_group group = {first, stride, size};
    return ddp_comm_create_group(comm, job, device_backend, ranks_device, &group);
}

/* What a launcher has: one machine's board. */
struct machine {
    struct ddp_board board;
    int board_fd, heap_fd, bell;
    struct ddp_mirror mirror;
};

static void child(int rank, const struct machine *on, ranks_body *run)
{
    const int size = ddp_board_job_size(&on->board);
    ddp_job *job;
    ddp_comm *comm = NULL;
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 1 << 28); /* rows allocate and free all the time: pages stay */
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
#endif
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank - ddp_board_first_rank(&on->board));
    set_number("WORLD_SIZE", size);
    set_number(DDP_BOARD_FD_VARIABLE, on->board_fd);
    set_number(DDP_HEAP_FD_VARIABLE, on->heap_fd);
    if (on->board.shape.nodes > 1)
        set_number(DDP_BELL_FD_VARIABLE, on->bell);
    ddp_log_set_rank(rank);
    if (ranks_prepare)
        ranks_prepare(rank);
    NEED(ddp_job_open(&job) == DDP_OK);
    if (device_kind)
        open_device(rank, size);
    if (!without_comm)
        NEED(ranks_join(&comm, job) == DDP_OK);
    run(comm, job);
    ddp_comm_destroy(comm);
    ddp_device_close(ranks_device);
    ddp_job_close(job);
    _exit(0);
}

static void machine_make(struct machine *machine, const int *starts, int node, int nodes)
{
    memset(machine, 0, sizeof *machine);
    ck_assert_int_eq(ddp_board_create(&machine->board, &machine->board_fd, starts, node, nodes),
                     DDP_OK);
    ck_assert_int_eq(ddp_board_create_heap(&machine->board, &machine->heap_fd), DDP_OK);
    ck_assert_int_eq(ddp_bell_create(&machine->bell), DDP_OK);
}

static void machine_end(struct machine *machine)
{
    ddp_board_unmap(&machine->board);
    close(machine->board_fd);
    close(machine->heap_fd);
    close(machine->bell);
}

/* The launchers' part: what is new on a board goes to the others. */
static void pump(struct machine *machines)
{
    const int nodes = machines->board.shape.nodes;
    struct ddp_posted posted;
    for (int n = 0; n < nodes; n++) {
        struct machine *from = &machines[n];
        ddp_bell_take(from->bell);
        while (ddp_mirror_next(&from->mirror, &from->board, &posted))
            for (int m = 0; m < nodes; m++)
                if (m != n)
                    ddp_mirror_put(&machines[m].mirror, &machines[m].board, &posted);
    }
}

/* Until a rank has put something on its board, or a moment later: then a rank may have ended. */
static void wait_for_bells(const struct machine *machines)
{
    const int nodes = machines->board.shape.nodes;
    struct pollfd bells[16];
    for (int n = 0; n < nodes; n++)
        bells[n] = (struct pollfd){.fd = machines[n].bell, .events = POLLIN};
    poll(bells, (nfds_t)nodes, 1);
}

static void abort_all(const struct machine *machines)
{
    for (int n = 0; n < machines->board.shape.nodes; n++) {
        struct ddp_board board = machines[n].board;
        ddp_board_abort(&board, DDP_ABORT_BY_LAUNCHER);
    }
}

/* Has a rank ended the job? Its launcher tells the others. */
static bool any_aborted(const struct machine *machines)
{
    for (int n = 0; n < machines->board.shape.nodes; n++)
        if (atomic_load(&machines[n].board.memory->abort_word))
            return true;
    return false;
}

bool ranks_untold;

void ranks_need_end(ddp_job *job, int64_t start_ns)
{
    while (!ddp_job_aborted(job) && ddp_clock_ns() - start_ns < 60000000000)
        usleep(1000);
    NEED(ddp_job_aborted(job));
}

enum { MOST_RANKS = 64 };
static _Atomic int *calls; /* of ranks_come_last(), by rank */

void ranks_come_last(const ddp_job *job, const struct ddp_comm_group *group, int last)
{
    const struct ddp_comm_group all = {.stride = 1, .size = ddp_job_world_size(job)};
    const int rank = ddp_job_rank(job), call = ++calls[rank];
    group = group ? group : &all;
    for (int i = 0; rank == last && i < group->size; i++)
        while (calls[group->first + i * group->stride] < call)
            usleep(1000);
}

void run_starts(int nodes, const int *starts, ranks_body *body, int dies)
{
    const int size = starts[nodes];
    struct machine machines[16];
    pid_t pids[MOST_RANKS];
    ck_assert(nodes <= 16 && size <= MOST_RANKS);
    calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(calls != MAP_FAILED);
    for (int n = 0; n < nodes; n++)
        machine_make(&machines[n], starts, n, nodes);
    for (int r = 0, n = 0; r < size; r++) {
        n += r == starts[n + 1];
        pids[r] = fork();
        ck_assert_int_ge(pids[r], 0);
        if (pids[r] == 0)
            child(r, &machines[n], body);
    }
    int bad = 0;
    for (int left = size; left > 0;) {
        int code;
        pid_t pid = waitpid(-1, &code, nodes > 1 ? WNOHANG : 0);
        if (nodes > 1)
            pump(machines);
        if (!ranks_untold && any_aborted(machines))
            abort_all(machines);
        if (pid <= 0) {
            wait_for_bells(machines);
            continue;
        }
        left--;
        bool expected = dies >= 0 && pid == pids[dies];
        if (code != 0 && !ranks_untold)
            abort_all(machines);
        if (code != 0 && !expected) {
            bad++;
            fprintf(stderr, "process %d ended with %s %d\n", (int)pid,
                    WIFSIGNALED(code) ? "signal" : "status",
                    WIFSIGNALED(code) ? WTERMSIG(code) : WEXITSTATUS(code));
        }
    }
    for (int n = 0; n < nodes; n++)
        machine_end(&machines[n]);
    munmap(calls, 4096);
    ck_assert_int_eq(bad, 0);
}

void run_nodes(int nodes, int per_node, ranks_body *body, int dies)
{
    int starts[17];
    ck_assert(nodes <= 16);
    for (int n = 0; n <= nodes; n++)
        starts[n] = n * per_node;
    run_starts(nodes, starts, body, dies);
}

void run_ranks(int size, ranks_body *body, int dies)
{
    run_nodes(1, size, body, dies);
}

void run_nodes_alone(int nodes, int workers, ranks_body *body, int dies)
{
    without_comm = true;
    run_nodes(nodes, workers, body, dies);
    without_comm = false;
}

void run_starts_alone(int nodes, const int *starts, ranks_body *body, int dies)
{
    without_comm = true;
    run_starts(nodes, starts, body, dies);
    without_comm = false;
}

void run_ranks_alone(int size, ranks_body *body, int dies)
{
    run_nodes_alone(1, size, body, dies);
}

/* --- memory --- */

void *ranks_alloc(size_t bytes)
{
    void *memory = NULL;
    if (!ranks_device)
        return malloc(bytes);
    NEED(ddp_device_alloc(ranks_device, bytes, &memory) == DDP_OK);
    return memory;
}

void ranks_free(void *memory, size_t bytes)
{
    if (ranks_device)
        ddp_device_free(ranks_device, memory, bytes);
    else
        free(memory);
}

void ranks_put(void *memory, const void *host, size_t bytes)
{
    if (!ranks_device)
        memcpy(memory, host, bytes);
    else
        NEED(ddp_device_copy_in(ranks_device, memory, host, bytes) == DDP_OK);
}

void ranks_get(void *host, const void *memory, size_t bytes)
{
    if (!ranks_device) {
        memcpy(host, memory, bytes);
        return;
    }
    NEED(ddp_device_copy_out(ranks_device, host, memory, bytes) == DDP_OK);
    NEED(ddp_device_synchronize(ranks_device) == DDP_OK);
}

bool ranks_same(const void *memory, const void *expected, size_t bytes)
{
    char *host = malloc(bytes + 1);
    ranks_get(host, memory, bytes);
    const bool same = memcmp(host, expected, bytes) == 0;
    free(host);
    return same;
}

/* --- values --- */

static uint32_t hash_of(size_t i, int rank)
{
    return ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u + 77u) * 2246822519u;
}

void ranks_values(void *host, size_t count, enum ddp_dtype dtype, int rank)
{
#define VALUES(type, value)                                                                        \
    for (size_t i = 0; i < count; i++) {                                                           \
        const uint32_t h = hash_of(i, rank);                                                       \
        ((type *)host)[i] = (type)(value);                                                         \
    }                                                                                              \
    break
    switch (dtype) {
    case DDP_F32:
        VALUES(float, (int32_t)h / 3.0e4);
    case DDP_F64:
        VALUES(double, (int32_t)h / 3.0e4);
    case DDP_I32:
        VALUES(int32_t, h);
    case DDP_I64:
        VALUES(int64_t, (uint64_t)h * 4294967291u);
    case DDP_BF16:
        VALUES(uint16_t, h);
    default:
        break;
    }
}

void ranks_fill(void *memory, size_t count, enum ddp_dtype dtype, int rank)
{
    const size_t bytes = count * ddp_dtype_bytes(dtype);
    void *host = malloc(bytes + 1);
    ranks_values(host, count, dtype, rank);
    ranks_put(memory, host, bytes);
    free(host);
}

void *ranks_expect_of(const struct ddp_comm_group *group, size_t count, enum ddp_dtype dtype,
                      enum ddp_redop op)
{
    const int size = group->size;
    const size_t bytes = count * ddp_dtype_bytes(dtype);
    void *sources[64], *out = malloc(bytes + 1);
    for (int r = 0; r < size; r++) {
        sources[r] = malloc(bytes + 1);
        ranks_values(sources[r], count, dtype, group->first + r * group->stride);
    }
    struct ddp_reduce args = {.source_count = size,
                              .destination_count = 1,
                              .sources = (const void *const *)sources,
                              .destinations = &out,
                              .count = (int64_t)count,
                              .dtype = dtype,
                              .op = op};
    NEED(ddp_reduce_reference(&args) == DDP_OK);
    for (int r = 0; r < size; r++)
        free(sources[r]);
    return out;
}

void *ranks_expect(int size, size_t count, enum ddp_dtype dtype, enum ddp_redop op)
{
    return ranks_expect_of(&(struct ddp_comm_group){0, 1, size}, count, dtype, op);
}
