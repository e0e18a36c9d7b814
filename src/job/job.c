/* SPDX-License-Identifier: MIT
 *
 * See job.h and ddp.h. A world of one has a board too, in private memory: nothing below asks which
 * it is. */
#include "config.h"

#include "job/job.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/terminal.h"
#include "job/state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- opening -------------------------------------------------------------------------------- */

/* Reads a whole number from the environment. A variable that is not set leaves *value alone. */
static enum ddp_status read_variable(const char *name, int64_t min, int64_t max, int *value)
{
    const char *text = getenv(name);
    int64_t number;
    if (!text)
        return DDP_OK;
    if (!ddp_parse_int64(text, min, max, &number))
        return ddp_fail(DDP_ERR_INVALID, "%s=%s: must be a whole number from %lld to %lld", name,
                        text, (long long)min, (long long)max);
    *value = (int)number;
    return DDP_OK;
}

/* Variables in which other launchers pass the size of the world. */
static const char *const world_variables[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                              "SLURM_STEP_NUM_TASKS"};

static enum ddp_status check_alone(void)
{
    int rank = 0;
    for (size_t i = 0; i < sizeof world_variables / sizeof world_variables[0]; i++) {
        const char *name = world_variables[i];
        int64_t size = 1;
        const char *text = getenv(name);
        if (text && i == 0 && !ddp_parse_int64(text, 1, INT32_MAX, &size))
            return ddp_fail(DDP_ERR_INVALID, "%s=%s: must be a whole number of at least 1", name,
                            text);
        if (text && ddp_parse_int64(text, 1, INT32_MAX, &size) && size > 1)
            return ddp_fail(
                DDP_ERR_UNSUPPORTED,
                "%s=%s says that another launcher started this process, and it gave no board "
                "(%s): let it start one ddprun on each node, which starts the workers there (srun "
                "--ntasks-per-node=1 ddprun, mpirun -N 1 ddprun), or unset %s for a world of one",
                name, text, DDP_BOARD_FD_VARIABLE, name);
    }
    enum ddp_status status = read_variable("RANK", 0, INT32_MAX, &rank);
    if (status == DDP_OK && rank != 0)
        status = ddp_fail(DDP_ERR_INVALID,
                          "RANK=%d, but WORLD_SIZE is not larger: start with ddprun", rank);
    return status;
}

static enum ddp_status open_alone(struct ddp_job *job)
{
    enum ddp_status status = check_alone();
    if (status != DDP_OK)
        return status;
    int fd;
    status = ddp_board_create(&job->board, &fd, (const int[]){0, 1}, 0, 1);
    if (status == DDP_OK)
        close(fd);
    return status;
}

/* A descriptor of our own: the inherited one stays for programs that this one may start. */
static enum ddp_status take_fd(const char *name, int *inherited, int *fd)
{
    *inherited = -1;
    enum ddp_status status = read_variable(name, 0, INT32_MAX, inherited);
    if (status != DDP_OK)
        return status;
    if (*inherited < 0)
        return ddp_fail(DDP_ERR_INVALID, "%s is set, but %s is not: both come from ddprun",
                        DDP_BOARD_FD_VARIABLE, name);
    *fd = fcntl(*inherited, F_DUPFD_CLOEXEC, 3);
    if (*fd < 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s=%d: %s: a wrapper between ddprun and this program has closed it", name,
                        *inherited, strerror(errno));
    return DDP_OK;
}

/* In both: any other file would be written over. */
static enum ddp_status open_heap(struct ddp_job *job)
{
    int fd;
    enum ddp_status status = take_fd(DDP_HEAP_FD_VARIABLE, &fd, &job->heap_fd);
    if (status == DDP_OK && !ddp_board_is_file(&job->board.memory->heap, job->heap_fd))
        status = ddp_fail(DDP_ERR_INVALID, "%s=%d: not the heap of this ddprun job",
                          DDP_HEAP_FD_VARIABLE, fd);
    return status;
}

/* Without one on the board a variable is that of a job around this one. */
static enum ddp_status open_copy(struct ddp_job *job)
{
    int fd;
    if (job->board.memory->copy.inode == 0)
        return DDP_OK;
    enum ddp_status status = take_fd(DDP_COPY_FD_VARIABLE, &fd, &job->copy_fd);
    if (status == DDP_OK && !ddp_board_is_file(&job->board.memory->copy, job->copy_fd))
        status = ddp_fail(DDP_ERR_INVALID, "%s=%d: not the copy of this ddprun job",
                          DDP_COPY_FD_VARIABLE, fd);
    return status;
}

static enum ddp_status open_bell(struct ddp_job *job)
{
    int fd;
    struct stat info;
    enum ddp_status status = take_fd(DDP_BELL_FD_VARIABLE, &fd, &job->bell_fd);
    /* fstat() gives an eventfd no file type. */
    if (status == DDP_OK && (fstat(job->bell_fd, &info) < 0 || (info.st_mode & S_IFMT) != 0))
        status = ddp_fail(DDP_ERR_INVALID, "%s=%d: not the bell of this ddprun job",
                          DDP_BELL_FD_VARIABLE, fd);
    return status;
}

static enum ddp_status open_launched(struct ddp_job *job, const char *fd_text)
{
    char source[64];
    int fd = -1, world_size = 0;
    snprintf(source, sizeof source, "%s=%.20s", DDP_BOARD_FD_VARIABLE, fd_text);
    enum ddp_status status = read_variable(DDP_BOARD_FD_VARIABLE, 0, INT32_MAX, &fd);
    if (status == DDP_OK)
        status = ddp_board_attach(&job->board, fd, source);
    if (status != DDP_OK)
        return status;
    const int job_size = ddp_board_job_size(&job->board);
    world_size = job_size;
    job->rank = -1;
    if ((status = read_variable("WORLD_SIZE", 1, INT32_MAX, &world_size)) != DDP_OK ||
        (status = read_variable("RANK", 0, INT32_MAX, &job->rank)) != DDP_OK)
        return status;
    if (world_size != job_size)
        return ddp_fail(DDP_ERR_INVALID, "WORLD_SIZE=%d, but ddprun started %d workers", world_size,
                        job_size);
    if (job->rank < 0 && world_size == 1)
        job->rank = 0;
    const int first = ddp_board_first_rank(&job->board);
    const int last = first + job->board.shape.workers - 1;
    if (job->rank < first || job->rank > last)
        return ddp_fail(DDP_ERR_INVALID, "RANK=%s: must be from %d to %d, as ddprun set it",
                        getenv("RANK") ? getenv("RANK") : "", first, last);
    job->local_rank = job->node_rank = job->rank - first;
    if ((status = read_variable("LOCAL_RANK", 0, DDP_BOARD_MAX_WORLD, &job->local_rank)) != DDP_OK)
        return status;
    if (job_size > 1)
        status = open_heap(job);
    if (status == DDP_OK)
        status = open_copy(job);
    if (status == DDP_OK && job->board.shape.nodes > 1)
        status = open_bell(job);
    return status;
}

enum ddp_status ddp_job_find_starts(struct ddp_job *job)
{
    job->starts = ddp_array_alloc((size_t)job->board.shape.nodes + 1, sizeof *job->starts);
    if (!job->starts)
        return DDP_ERR_MEMORY;
    return ddp_board_starts(&job->board, job->starts)
               ? DDP_OK
               : ddp_fail(DDP_ERR_INVALID,
                          "the job's board is damaged: where the workers of its "
                          "%d nodes begin",
                          job->board.shape.nodes);
}

enum ddp_status ddp_job_open(ddp_job **job)
{
    struct ddp_job *j = ddp_array_alloc(1, sizeof *j);
    if (!j)
        return DDP_ERR_MEMORY;
    j->heap_fd = j->bell_fd = j->copy_fd = j->board_fd = -1;
    const char *fd_text = getenv(DDP_BOARD_FD_VARIABLE);
    enum ddp_status status = fd_text ? open_launched(j, fd_text) : open_alone(j);
    if (status == DDP_OK)
        status = ddp_job_find_starts(j);
    if (status != DDP_OK) {
        ddp_job_close(j);
        return status;
    }
    const struct ddp_board_memory *m = j->board.memory;
    j->line = &j->board.memory->lines[j->node_rank];
    j->timing = m->flags & DDP_BOARD_TIMES;
    j->has_faults = m->fault_count > 0 && m->fault_count <= DDP_BOARD_FAULTS;
    atomic_store(&j->line->closed, 0);
    atomic_store(&j->line->changed_ns, ddp_clock_ns());
    atomic_store(&j->line->pid, (int32_t)getpid());
    if (ddp_job_world_size(j) > 1)
        ddp_log_set_rank(j->rank);
    ddp_bar_share(&j->board.memory->bar_columns);
    if (fd_text)
        ddp_job_share_errors();
    *job = j;
    return DDP_OK;
}

/* The launcher does not start a job again whose disk is full. */
static void report_full_disk(const ddp_job *job)
{
    if (ddp_fail_disk_full())
        atomic_store(&job->line->disk_full, 1);
}

void ddp_job_close(ddp_job *job)
{
    if (!job)
        return;
    if (job->line) {
        ddp_stop_refuse(job);
        report_full_disk(job);
        atomic_store(&job->line->closed, 1);
    }
    ddp_board_unmap(&job->board);
    free(job->starts);
    if (job->heap_fd >= 0)
        close(job->heap_fd);
    if (job->bell_fd >= 0)
        close(job->bell_fd);
    if (job->copy_fd >= 0)
        close(job->copy_fd);
    if (job->board_fd >= 0)
        close(job->board_fd);
    free(job);
}

int ddp_job_rank(const ddp_job *job)
{
    return job->rank;
}

int ddp_job_world_size(const ddp_job *job)
{
    return ddp_board_job_size(&job->board);
}

int ddp_job_node(const ddp_job *job)
{
    return job->board.shape.node;
}

int ddp_job_node_count(const ddp_job *job)
{
    return job->board.shape.nodes;
}

int ddp_job_node_rank(const ddp_job *job)
{
    return job->node_rank;
}

int ddp_job_node_size(const ddp_job *job)
{
    return job->board.shape.workers;
}

int ddp_job_first_size(const ddp_job *job)
{
    const uint32_t size = job->board.memory->first_size;
    return size > 0 && size <= DDP_BOARD_MAX_WORLD ? (int)size : ddp_job_world_size(job);
}

void ddp_job_begin_run(ddp_job *job, uint64_t run)
{
    atomic_store(&job->board.memory->begun, run);
}

bool ddp_job_had_begun(ddp_job *job, uint64_t run)
{
    return atomic_compare_exchange_strong(&job->board.memory->begun_before, &run, 0);
}

const int *ddp_job_node_starts(const ddp_job *job)
{
    return job->starts;
}

int ddp_job_node_of(const ddp_job *job, int rank)
{
    return ddp_node_of(job, rank);
}

int ddp_job_local_rank(const ddp_job *job)
{
    return job->local_rank;
}

/* --- heap and abort -------------------------------------------------------------------------- */

int ddp_job_heap_fd(const ddp_job *job)
{
    return job->heap_fd;
}

int ddp_job_copy_fd(const ddp_job *job)
{
    return job->copy_fd;
}

bool ddp_job_nodes_change(const ddp_job *job)
{
    return job->board.memory->members.most > 0;
}

enum ddp_status ddp_job_heap_reserve(ddp_job *job, size_t bytes, uint64_t *offset)
{
    _Atomic uint64_t *next = &job->board.memory->heap_next;
    uint64_t start = atomic_load(next), end;
    do {
        if (__builtin_add_overflow(start, bytes, &end) || end > INT64_MAX)
            return ddp_fail(DDP_ERR_MEMORY, "the job's heap cannot grow by %zu bytes", bytes);
    } while (!atomic_compare_exchange_weak(next, &start, end));
    *offset = start;
    return DDP_OK;
}

bool ddp_job_hosted(const ddp_job *job)
{
    return job->board_fd >= 0;
}

/* Counted on the board: a worker may be several processes, one after another. */
int ddp_job_take_slots(ddp_job *job, int count)
{
    const uint64_t first = atomic_fetch_add(&job->line->slots, (uint64_t)count);
    return first < DDP_ID_SLOTS ? (int)first : DDP_ID_SLOTS;
}

const _Atomic uint32_t *ddp_job_abort_word(const ddp_job *job)
{
    return &job->board.memory->abort_word;
}

void ddp_job_sole_output(ddp_job *job)
{
    atomic_store(&job->board.memory->sole_output, 1);
}

void ddp_job_abort(ddp_job *job)
{
    report_full_disk(job);
    ddp_board_abort(&job->board, (uint32_t)job->rank + 1);
    ddp_bell_ring(job->bell_fd);
}

bool ddp_job_aborted(const ddp_job *job)
{
    return atomic_load_explicit(&job->board.memory->abort_word, memory_order_acquire) != 0;
}

/* --- this worker's line ---------------------------------------------------------------------- */

/* Release: readers must not see a word without the odd sequence number before it. */
#define STORE(word, value) atomic_store_explicit(&(word), value, memory_order_release)

static uint32_t line_begin(_Atomic uint32_t *sequence)
{
    uint32_t next = atomic_load_explicit(sequence, memory_order_relaxed) | 1;
    atomic_store_explicit(sequence, next, memory_order_relaxed);
    return next + 1;
}

/* Acts out a fault that a test asked for with DDP_FAULTS (ddprun). */
static void act(const struct ddp_board_fault *fault)
{
    struct timespec pause = {.tv_sec = fault->value / 1000,
                             .tv_nsec = fault->value % 1000 * 1000000};
    switch (fault->kind) {
    case DDP_FAULT_KILL:
        raise(SIGKILL);
        break;
    case DDP_FAULT_STOP:
        raise(SIGSTOP);
        break;
    case DDP_FAULT_EXIT:
        _exit((int)fault->value);
    case DDP_FAULT_SLOW:
        nanosleep(&pause, NULL);
        break;
    }
}

static void inject(ddp_job *job, int64_t step)
{
    const struct ddp_board_memory *m = job->board.memory;
    for (uint32_t i = 0; i < m->fault_count && i < DDP_BOARD_FAULTS; i++) {
        const struct ddp_board_fault *fault = &m->faults[i];
        if ((fault->rank < 0 || fault->rank == job->rank) &&
            (fault->step < 0 || fault->step == step))
            act(fault);
    }
}

void ddp_job_report(ddp_job *job, const char *phase, int64_t step)
{
    struct ddp_board_line *line = job->line;
    const int64_t before = atomic_load_explicit(&line->step, memory_order_relaxed);
    uint32_t done = line_begin(&line->sequence);
    if (before >= 0 && step == before + 1)
        STORE(line->finished, atomic_load_explicit(&line->finished, memory_order_relaxed) + 1);
    STORE(line->step, step);
    STORE(line->changed_ns, ddp_clock_ns());
    ddp_board_store_text(line->phase, DDP_BOARD_WORDS, phase ? phase : "");
    atomic_store_explicit(&line->sequence, done, memory_order_release);
    if (job->has_faults && step != before)
        inject(job, step);
}

/* In a word; 0: of all ranks. */
static uint64_t pack(const struct ddp_job_group *group)
{
    return group ? (uint64_t)group->first | (uint64_t)group->stride << 16 |
                       (uint64_t)group->size << 32 | (uint64_t)group->slot << 48
                 : 0;
}

static void enter(ddp_job *job, const struct ddp_job_group *group, const char *name,
                  uint64_t number, uint64_t bytes, unsigned counts)
{
    struct ddp_board_line *line = job->line;
    uint32_t done = line_begin(&line->collective_sequence);
    STORE(line->inside, 1);
    STORE(line->entered, atomic_load_explicit(&line->entered, memory_order_relaxed) + counts);
    STORE(line->number, number);
    STORE(line->bytes, bytes);
    STORE(line->enter_ns, ddp_clock_ns());
    STORE(line->group, pack(group));
    if (group)
        STORE(line->arrived[group->slot], number + 1);
    ddp_board_store_text(line->name, DDP_BOARD_WORDS, name);
    atomic_store_explicit(&line->collective_sequence, done, memory_order_release);
}

void ddp_job_collective_enter(ddp_job *job, const struct ddp_job_group *group, const char *name,
                              uint64_t number, uint64_t bytes)
{
    enter(job, group, name, number, bytes, 1);
}

void ddp_job_transfer_enter(ddp_job *job, bool sends, int peer, uint64_t number, uint64_t bytes)
{
    char name[DDP_BOARD_NAME + 8];
    snprintf(name, sizeof name, sends ? "send to %d" : "recv from %d", peer);
    enter(job, NULL, name, number, bytes, 0);
}

void ddp_job_collective_leave(ddp_job *job)
{
    struct ddp_board_line *line = job->line;
    if (job->timing) {
        int64_t now = ddp_clock_ns();
        int64_t entered = atomic_load_explicit(&line->enter_ns, memory_order_relaxed);
        STORE(line->leave_ns, now);
        STORE(line->wait_ns,
              atomic_load_explicit(&line->wait_ns, memory_order_relaxed) + now - entered);
        STORE(line->timed, atomic_load_explicit(&line->timed, memory_order_relaxed) + 1);
    }
    STORE(line->inside, 0);
}

void ddp_job_collective_wait(ddp_job *job, bool waits)
{
    STORE(job->line->inside, waits);
}
