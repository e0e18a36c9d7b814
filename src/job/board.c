/* SPDX-License-Identifier: MIT
 *
 * See board.h. The memfd is sealed against a change of its size: no worker can make the launcher,
 * or another worker, fault by truncating it. */
#include "config.h"

#include "job/board.h"

#include "core/clock.h"
#include "core/futex.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct ddp_board_line) == 192 + 8 * DDP_ID_SLOTS, "no gaps between lines");
_Static_assert(offsetof(struct ddp_board_id, data) == sizeof(struct ddp_board_post) &&
                   offsetof(struct ddp_board_address, data) == sizeof(struct ddp_board_post),
               "data follow their post");
_Static_assert(sizeof(struct ddp_board_memory) % DDP_CACHE_LINE == 0, "lines start aligned");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
               "atomics must work between processes");

static size_t board_bytes(const struct ddp_board_shape *shape)
{
    const size_t workers = (size_t)shape->workers, nodes = (size_t)shape->nodes;
    return sizeof(struct ddp_board_memory) + workers * sizeof(struct ddp_board_line) +
           (nodes > 1 ? (size_t)shape->size * sizeof(struct ddp_board_address) +
                            nodes * sizeof(struct ddp_board_node)
                      : 0);
}

static bool shape_is_valid(const struct ddp_board_shape *shape)
{
    return shape->size <= DDP_BOARD_MAX_WORLD && shape->node >= 0 && shape->node < shape->nodes &&
           shape->workers >= 1 && shape->workers <= shape->size && shape->first >= shape->node &&
           shape->first <= shape->size - shape->workers - (shape->nodes - 1 - shape->node);
}

static enum ddp_status map(struct ddp_board *board, int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return ddp_fail(ddp_errno_status(errno, DDP_ERR_SYSTEM), "cannot map the job's board: %s",
                        strerror(errno));
    board->memory = memory;
    board->bytes = bytes;
    return DDP_OK;
}

enum ddp_status ddp_board_create(struct ddp_board *board, int *fd, const int *starts, int node,
                                 int nodes)
{
    const struct ddp_board_shape shape = {.workers = starts[node + 1] - starts[node],
                                          .node = node,
                                          .nodes = nodes,
                                          .first = starts[node],
                                          .size = starts[nodes]};
    size_t bytes = board_bytes(&shape);
    int board_fd = memfd_create("ddprun-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (board_fd < 0)
        return ddp_fail(ddp_errno_status(errno, DDP_ERR_SYSTEM),
                        "cannot create the job's board: %s", strerror(errno));
    int error =
        ftruncate(board_fd, (off_t)bytes) < 0 ? errno : posix_fallocate(board_fd, 0, (off_t)bytes);
    if (!error && fcntl(board_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        error = errno;
    enum ddp_status status =
        error ? ddp_fail(DDP_ERR_MEMORY,
                         "cannot get %zu bytes of shared memory for the job's board: %s", bytes,
                         ddp_strerror(error))
              : map(board, board_fd, bytes);
    if (status != DDP_OK) {
        close(board_fd);
        return status;
    }
    struct ddp_board_memory *m = board->memory;
    m->version = DDP_BOARD_VERSION;
    m->workers = (uint32_t)shape.workers;
    m->node = (uint32_t)node;
    m->nodes = (uint32_t)nodes;
    m->first = (uint32_t)shape.first;
    m->size = (uint32_t)shape.size;
    m->bytes = bytes;
    m->start_ns = ddp_clock_ns();
    atomic_store(&m->stop_step, INT64_MAX);
    for (int i = 0; i < shape.workers; i++) {
        atomic_store(&m->lines[i].step, -1);
        atomic_store(&m->lines[i].passed, INT64_MIN);
    }
    m->magic = DDP_BOARD_MAGIC;
    board->shape = shape;
    for (int n = 0; nodes > 1 && n < nodes; n++)
        ddp_board_node(board, n)->first = (uint32_t)starts[n];
    *fd = board_fd;
    return DDP_OK;
}

/* An empty memfd. */
static enum ddp_status create_file(const char *name, int *fd)
{
    *fd = memfd_create(name, MFD_CLOEXEC);
    return *fd >= 0 ? DDP_OK
                    : ddp_fail(ddp_errno_status(errno, DDP_ERR_SYSTEM), "cannot create %s: %s",
                               name, strerror(errno));
}

static struct ddp_board_file file_of(int fd)
{
    struct stat info = {0};
    return fstat(fd, &info) == 0 ? (struct ddp_board_file){info.st_dev, info.st_ino}
                                 : (struct ddp_board_file){0};
}

enum ddp_status ddp_board_create_heap(struct ddp_board *board, int *fd)
{
    enum ddp_status status = create_file("ddprun-heap", fd);
    if (status == DDP_OK)
        board->memory->heap = file_of(*fd);
    return status;
}

enum ddp_status ddp_board_create_copy(int *fd)
{
    return create_file("ddprun-copy", fd);
}

void ddp_board_know_copy(struct ddp_board *board, int fd)
{
    board->memory->copy = file_of(fd);
}

bool ddp_board_is_file(const struct ddp_board_file *file, int fd)
{
    const struct ddp_board_file found = file_of(fd);
    return found.inode != 0 && found.device == file->device && found.inode == file->inode;
}

/* Checks the head, and keeps a copy of the shape, which must agree with the size of the memfd, for
 * that is sealed: the numbers in the head may change after they were checked. */
static enum ddp_status check_header(struct ddp_board *board, const char *source)
{
    const volatile struct ddp_board_memory *m = board->memory;
    const uint32_t version = m->version, workers = m->workers, node = m->node, nodes = m->nodes;
    if (m->magic != DDP_BOARD_MAGIC)
        return ddp_fail(DDP_ERR_INVALID, "%s: not the board of a ddprun job", source);
    if (version != DDP_BOARD_VERSION)
        return ddp_fail(
            DDP_ERR_INVALID,
            "%s: the board has version %u, this libddp needs %u: use ddprun and libddp of "
            "the same release",
            source, version, DDP_BOARD_VERSION);
    board->shape =
        (struct ddp_board_shape){(int)workers, (int)node, (int)nodes, (int)m->first, (int)m->size};
    if (!shape_is_valid(&board->shape) || m->bytes != board->bytes ||
        board_bytes(&board->shape) != board->bytes)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: the board is damaged (%u workers on node %u of %u, %zu bytes)", source,
                        workers, node, nodes, board->bytes);
    return DDP_OK;
}

enum ddp_status ddp_board_attach(struct ddp_board *board, int fd, const char *source)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return ddp_fail(
            DDP_ERR_INVALID,
            "%s: the descriptor is not open: a wrapper between ddprun and this program has "
            "closed it",
            source);
    int seals = S_ISREG(info.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) ||
        info.st_size < (off_t)sizeof(struct ddp_board_memory) ||
        info.st_size > (off_t)board_bytes(
                           &(struct ddp_board_shape){.workers = DDP_BOARD_MAX_WORLD, .nodes = 1}) +
                           (off_t)(DDP_BOARD_MAX_WORLD * (sizeof(struct ddp_board_address) +
                                                          sizeof(struct ddp_board_node))))
        return ddp_fail(DDP_ERR_INVALID, "%s: not the board of a ddprun job", source);
    struct ddp_board mapped = {0};
    enum ddp_status status = map(&mapped, fd, (size_t)info.st_size);
    if (status != DDP_OK)
        return status;
    status = check_header(&mapped, source);
    if (status != DDP_OK) {
        ddp_board_unmap(&mapped);
        return status;
    }
    *board = mapped;
    return DDP_OK;
}

void ddp_board_unmap(struct ddp_board *board)
{
    if (board->memory) {
        ddp_bar_unshare(&board->memory->bar_columns);
        munmap(board->memory, board->bytes);
    }
    board->memory = NULL;
}

bool ddp_board_starts(const struct ddp_board *board, int *starts)
{
    const struct ddp_board_shape *shape = &board->shape;
    starts[0] = 0;
    starts[shape->nodes] = shape->size;
    for (int n = 1; n < shape->nodes; n++) {
        const uint32_t first = ddp_board_node(board, n)->first;
        if (first <= (uint32_t)starts[n - 1] || first >= (uint32_t)shape->size)
            return false;
        starts[n] = (int)first;
    }
    return starts[shape->node] == shape->first &&
           starts[shape->node + 1] == shape->first + shape->workers;
}

void ddp_board_abort(struct ddp_board *board, uint32_t by)
{
    struct ddp_board_memory *m = board->memory;
    uint32_t none = 0;
    atomic_compare_exchange_strong(&m->abort_word, &none, by);
    ddp_futex_wake(&m->barrier);
    ddp_futex_wake(&m->hold);
    for (int slot = 0; slot < DDP_ID_SLOTS; slot++) {
        ddp_futex_wake(&m->ids[slot].post.state);
        ddp_futex_wake(&m->node_ids[slot].post.state);
    }
    for (int rank = 0; board->shape.nodes > 1 && rank < ddp_board_job_size(board); rank++)
        ddp_futex_wake(&ddp_board_address(board, rank)->state);
}

bool ddp_board_put(struct ddp_board_post *post, uint32_t edition, const void *data, size_t bytes)
{
    uint32_t before = atomic_load(&post->state);
    const bool newer = ddp_post_ready(before) && ddp_post_edition(before) < edition;
    if ((before != DDP_POST_EMPTY && !newer) ||
        !atomic_compare_exchange_strong(&post->state, &before, DDP_POST_WRITING))
        return false;
    memcpy(ddp_board_data(post), data, bytes);
    atomic_store(&post->bytes, (uint32_t)bytes);
    atomic_store(&post->state, edition * DDP_POST_STATES + DDP_POST_READY);
    ddp_futex_wake(&post->state);
    return true;
}

void ddp_board_store_text(_Atomic uint64_t *words, int count, const char *text)
{
    uint64_t copy[DDP_BOARD_HOST_WORDS] = {0};
    memcpy(copy, text, strnlen(text, (size_t)count * 8 - 1));
    for (int i = 0; i < count; i++)
        atomic_store_explicit(&words[i], copy[i], memory_order_release);
}

void ddp_board_load_text(const _Atomic uint64_t *words, int count, char *text)
{
    uint64_t copy[DDP_BOARD_HOST_WORDS];
    for (int i = 0; i < count; i++)
        copy[i] = atomic_load_explicit(&words[i], memory_order_acquire);
    memcpy(text, copy, (size_t)count * 8);
    text[count * 8 - 1] = 0;
    for (char *c = text; *c; c++)
        if (*c < 0x20 || *c > 0x7e)
            *c = '?';
}

/* Acquire: so that the second look at the sequence number comes after. Writers store with release,
 * after they made the number odd. (No fences: the thread sanitizer does not know them.) */
#define LOAD(field) atomic_load_explicit(&line->field, memory_order_acquire)

static void read_progress(const struct ddp_board_line *line, struct ddp_board_view *view)
{
    view->step = LOAD(step);
    view->finished = LOAD(finished);
    view->changed_ns = LOAD(changed_ns);
    ddp_board_load_text(line->phase, DDP_BOARD_WORDS, view->phase);
}

/* What no worker wrote is not taken for a group. */
static struct ddp_job_group unpack(uint64_t word)
{
    const struct ddp_job_group group = {word & 0xffff, word >> 16 & 0xffff, word >> 32 & 0xffff,
                                        (int)(word >> 48)};
    return group.stride > 0 && group.slot < DDP_ID_SLOTS ? group : (struct ddp_job_group){0};
}

static void read_collective(const struct ddp_board_line *line, struct ddp_board_view *view)
{
    view->inside = LOAD(inside) != 0;
    view->entered = LOAD(entered);
    view->number = LOAD(number);
    view->bytes = LOAD(bytes);
    view->enter_ns = LOAD(enter_ns);
    view->group = unpack(LOAD(group));
    ddp_board_load_text(line->name, DDP_BOARD_WORDS, view->name);
}

uint64_t ddp_board_arrived(const struct ddp_board *board, int rank,
                           const struct ddp_job_group *group)
{
    const struct ddp_board_line *line = &board->memory->lines[rank];
    return group->size > 0 ? LOAD(arrived[group->slot]) : LOAD(entered);
}

/* Reads until nothing changed meanwhile. A writer that lost its processor in the middle is given a
 * few milliseconds; one that died there, or that scribbles, cannot keep us: then the words are
 * taken as they are. */
static void read_stable(const struct ddp_board_line *line, const _Atomic uint32_t *sequence,
                        void (*read_part)(const struct ddp_board_line *, struct ddp_board_view *),
                        struct ddp_board_view *view)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int attempt = 0; attempt < 120; attempt++) {
        uint32_t before = atomic_load_explicit(sequence, memory_order_acquire);
        read_part(line, view);
        if (!(before & 1) && atomic_load_explicit(sequence, memory_order_relaxed) == before)
            return;
        if (attempt >= 100)
            nanosleep(&nap, NULL);
    }
}

void ddp_board_read(const struct ddp_board *board, int rank, struct ddp_board_view *view)
{
    const struct ddp_board_line *line = &board->memory->lines[rank];
    memset(view, 0, sizeof *view);
    read_stable(line, &line->sequence, read_progress, view);
    read_stable(line, &line->collective_sequence, read_collective, view);
    view->pid = LOAD(pid);
    view->started = LOAD(started);
    view->closed = LOAD(closed) != 0;
    view->disk_full = LOAD(disk_full) != 0;
    view->told = LOAD(told) != 0;
    view->wait_ns = LOAD(wait_ns);
    view->timed = LOAD(timed);
}
