/* SPDX-License-Identifier: MIT
 *
 * Jobs without a launcher: one process makes the board and the heap, the others find both through
 * its descriptors in /proc. Nobody watches over them, so they watch each other: each holds a lock
 * on its byte of the board, which the system takes away when the process ends. */
#include "config.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "job/job.h"
#include "job/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes the rank's line on the attached board. */
static enum ddp_status take_line(struct ddp_job *job, int rank)
{
    struct flock lock = ddp_rank_byte(rank);
    if (rank < 0 || rank >= job->board.shape.workers)
        return ddp_fail(DDP_ERR_INVALID, "rank %d: must be from 0 to %d", rank,
                        job->board.shape.workers - 1);
    if (fcntl(job->board_fd, F_SETLK, &lock) < 0)
        return ddp_fail(errno == EACCES || errno == EAGAIN ? DDP_ERR_INVALID : DDP_ERR_SYSTEM,
                        "cannot join as rank %d: %s: do two processes have this rank?", rank,
                        strerror(errno));
    job->rank = job->node_rank = job->local_rank = rank;
    job->line = &job->board.memory->lines[rank];
    atomic_store(&job->line->changed_ns, ddp_clock_ns());
    atomic_store(&job->line->pid, (int32_t)getpid());
    return ddp_job_find_starts(job);
}

static struct ddp_job *new_job(void)
{
    struct ddp_job *job = ddp_array_alloc(1, sizeof *job);
    if (job)
        job->heap_fd = job->bell_fd = job->copy_fd = job->board_fd = -1;
    return job;
}

enum ddp_status ddp_job_host(ddp_job **job, int size, char address[DDP_JOB_ADDRESS_BYTES])
{
    struct stat info = {0};
    if (size < 1 || size > DDP_BOARD_MAX_WORLD)
        return ddp_fail(DDP_ERR_INVALID, "a job of %d ranks: must be from 1 to %d", size,
                        DDP_BOARD_MAX_WORLD);
    struct ddp_job *j = new_job();
    if (!j)
        return DDP_ERR_MEMORY;
    enum ddp_status status =
        ddp_board_create(&j->board, &j->board_fd, (const int[]){0, size}, 0, 1);
    if (status == DDP_OK)
        status = ddp_board_create_heap(&j->board, &j->heap_fd);
    if (status == DDP_OK)
        status = take_line(j, 0);
    if (status == DDP_OK && fstat(j->board_fd, &info) < 0)
        status = ddp_fail(DDP_ERR_SYSTEM, "the job's board: %s", strerror(errno));
    if (status != DDP_OK) {
        ddp_job_close(j);
        return status;
    }
    snprintf(address, DDP_JOB_ADDRESS_BYTES, "%d/%d/%d/%" PRIu64, (int)getpid(), j->board_fd,
             j->heap_fd, (uint64_t)info.st_ino);
    *job = j;
    return DDP_OK;
}

static int open_of(int pid, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

enum ddp_status ddp_job_join(ddp_job **job, const char *address, int rank)
{
    int pid, board_fd, heap_fd;
    uint64_t inode;
    struct stat info = {0};
    char end;
    if (sscanf(address, "%d/%d/%d/%" SCNu64 "%c", &pid, &board_fd, &heap_fd, &inode, &end) != 4)
        return ddp_fail(DDP_ERR_INVALID, "'%s' is not the address of a job", address);
    struct ddp_job *j = new_job();
    if (!j)
        return DDP_ERR_MEMORY;
    enum ddp_status status = DDP_OK;
    j->board_fd = open_of(pid, board_fd);
    j->heap_fd = open_of(pid, heap_fd);
    if (j->board_fd < 0 || j->heap_fd < 0 || fstat(j->board_fd, &info) < 0 || info.st_ino != inode)
        status = ddp_fail(DDP_ERR_UNSUPPORTED,
                          "rank %d cannot reach the memory of rank 0, process %d: a job without "
                          "ddprun needs all ranks on one machine, in one container, as one user",
                          rank, pid);
    if (status == DDP_OK)
        status = ddp_board_attach(&j->board, j->board_fd, address);
    if (status == DDP_OK && !ddp_board_is_file(&j->board.memory->heap, j->heap_fd))
        status = ddp_fail(DDP_ERR_INVALID, "'%s' is not the address of a job", address);
    if (status == DDP_OK)
        status = take_line(j, rank);
    if (status != DDP_OK) {
        ddp_job_close(j);
        return status;
    }
    *job = j;
    return DDP_OK;
}

int ddp_job_culprit(const ddp_job *job)
{
    const uint32_t word = atomic_load(ddp_job_abort_word(job));
    return word == 0 || word > DDP_BOARD_MAX_WORLD ? -1 : (int)word - 1;
}
