/* SPDX-License-Identifier: MIT
 *
 * The memory that the ranks of a simulated NCCL communicator meet in: a memfd of the process that
 * made the id, which the others open through /proc. Nothing has a name; the kernel cleans up. */
#include "config.h"

#include "tests/cudasim/nccl_sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      0x6e63636c2d73696dull /* nccl-sim */
#define PAGE       ((size_t)4096)
#define RANK_BYTES ((size_t)512)

_Static_assert(sizeof(struct nccl_sim_rank) <= RANK_BYTES, "a rank's part");
_Static_assert(sizeof(struct nccl_sim_pair) <= RANK_BYTES, "a pair's part");

/* The first bytes of an id. */
struct id {
    uint64_t magic, nonce;
    int32_t pid, fd;
};

_Static_assert(sizeof(struct id) <= sizeof(ncclUniqueId), "id");

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t slots_offset(size_t size)
{
    return round_up(PAGE + size * RANK_BYTES);
}

static size_t pairs_offset(size_t size)
{
    return slots_offset(size) + size * 2 * NCCL_SIM_SLOT_BYTES;
}

static size_t pair_slots_offset(size_t size)
{
    return round_up(pairs_offset(size) + size * size * RANK_BYTES);
}

static size_t total_bytes(size_t size)
{
    return pair_slots_offset(size) + size * size * 2 * NCCL_SIM_PAIR_BYTES;
}

struct nccl_sim_rank *nccl_sim_rank(const struct ncclComm *comm, int rank)
{
    return (void *)((char *)comm->shared + PAGE + (size_t)rank * RANK_BYTES);
}

char *nccl_sim_slot(const struct ncclComm *comm, int rank, uint64_t round)
{
    return (char *)comm->shared + slots_offset((size_t)comm->size) +
           ((size_t)rank * 2 + round % 2) * NCCL_SIM_SLOT_BYTES;
}

struct nccl_sim_pair *nccl_sim_pair(const struct ncclComm *comm, int from, int to)
{
    const size_t size = (size_t)comm->size, index = (size_t)from * size + (size_t)to;
    return (void *)((char *)comm->shared + pairs_offset(size) + index * RANK_BYTES);
}

char *nccl_sim_pair_slot(const struct ncclComm *comm, int from, int to, uint64_t round)
{
    const size_t size = (size_t)comm->size, index = (size_t)from * size + (size_t)to;
    return (char *)comm->shared + pair_slots_offset(size) +
           (index * 2 + round % 2) * NCCL_SIM_PAIR_BYTES;
}

ncclResult_t nccl_sim_id_create(ncclUniqueId *out)
{
    struct id id = {.magic = MAGIC, .pid = (int32_t)getpid()};
    if (getrandom(&id.nonce, sizeof id.nonce, 0) != (ssize_t)sizeof id.nonce)
        return nccl_sim_fail(ncclSystemError, "getrandom: %s", strerror(errno));
    id.fd = memfd_create("nccl", MFD_CLOEXEC);
    const struct nccl_sim_shared shared = {.magic = MAGIC, .nonce = id.nonce};
    if (id.fd < 0 || write(id.fd, &shared, sizeof shared) != (ssize_t)sizeof shared) {
        const int error = errno;
        if (id.fd >= 0)
            close(id.fd);
        return nccl_sim_fail(ncclSystemError, "memory of an id: %s", strerror(error));
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    return ncclSuccess;
}

static bool read_id(struct id *id, const ncclUniqueId *from)
{
    memcpy(id, from, sizeof *id);
    return id->magic == MAGIC;
}

void nccl_sim_id_close(const ncclUniqueId *from)
{
    struct id id;
    struct nccl_sim_shared shared;
    /* Only if the descriptor still is what it was: with several ranks in this process the first
     * has closed it, and its number may be another file's. */
    if (read_id(&id, from) && id.pid == getpid() &&
        pread(id.fd, &shared, sizeof shared, 0) == (ssize_t)sizeof shared &&
        shared.magic == MAGIC && shared.nonce == id.nonce)
        close(id.fd);
}

/* Opens the memory; -1 with a reason. */
static int open_id(const struct id *id)
{
    char path[64];
    struct nccl_sim_shared shared;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id->pid, (int)id->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        nccl_sim_fail(ncclSystemError,
                      "process %d, which made the unique id, cannot be reached: %s", (int)id->pid,
                      strerror(errno));
        return -1;
    }
    if (pread(fd, &shared, sizeof shared, 0) == (ssize_t)sizeof shared && shared.magic == MAGIC &&
        shared.nonce == id->nonce)
        return fd;
    nccl_sim_fail(ncclSystemError, "the unique id is stale: all its ranks have come before");
    close(fd);
    return -1;
}

ncclResult_t nccl_sim_attach(struct ncclComm *comm)
{
    struct id id;
    if (!read_id(&id, &comm->id))
        return nccl_sim_fail(ncclSystemError, "not a unique id of ncclGetUniqueId");
    int fd = open_id(&id);
    if (fd < 0)
        return ncclSystemError;
    const size_t bytes = total_bytes((size_t)comm->size);
    void *memory = MAP_FAILED;
    struct stat status;
    /* Never smaller: another rank may use it already, of a larger communicator by mistake. */
    if (fstat(fd, &status) == 0 &&
        ((size_t)status.st_size >= bytes || ftruncate(fd, (off_t)bytes) == 0))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    const int error = errno;
    close(fd);
    if (memory == MAP_FAILED)
        return nccl_sim_fail(ncclSystemError, "shared memory of %zu bytes: %s", bytes,
                             strerror(error));
    comm->shared = memory;
    comm->shared_bytes = bytes;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&comm->shared->size, &none, (uint32_t)comm->size) &&
        none != (uint32_t)comm->size)
        return nccl_sim_fail(ncclInvalidArgument,
                             "rank %d comes to a communicator of %d ranks, others to one of %u",
                             comm->rank, comm->size, none);
    return ncclSuccess;
}

void nccl_sim_detach(struct ncclComm *comm)
{
    if (comm->shared)
        munmap(comm->shared, comm->shared_bytes);
    comm->shared = NULL;
}
