/* SPDX-License-Identifier: MIT
 *
 * What the files of the shared-memory communicator share. Each calls only those before it:
 * shm_memory.c, shm_channel.c, shm_collectives.c, shm.c. All call the ledger, in which the ranks
 * meet.
 *
 * Small sums are done in the ledger: each rank adds up all payloads itself. Large ones are done
 * where the buffers are, or, if those are not registered, through slots beside the ledger. */
#ifndef DDP_COMM_SHM_H
#define DDP_COMM_SHM_H

#include "comm/ledger.h"

#define SHM_SLOT_BYTES ((size_t)256 << 10)
#define SHM_RING       32
#define SHM_PENDING    (SHM_RING - 2)

/* Memory from alloc: `size` parts of `stride` bytes, one a rank, mapped by all. Shared memory has
 * one part, which is everybody's. */
struct shm_region {
    struct shm_region *next;
    char *base;
    uint64_t offset; /* in the heap */
    size_t total, stride, bytes;
    bool shared;
};

/* A sum that was started and is not complete. */
struct shm_pending {
    uint32_t number;
    bool reduced;     /* this rank's slice is done */
    int64_t begin_ns; /* for the trace */
    struct ddp_comm_call call;
};

struct shm {
    const struct ddp_comm_place *place;
    struct ddp_ledger ledger;
    struct shm_region *regions;
    uint32_t exchanges; /* counts pieces: which of the two slots is used */
    struct shm_pending pending[SHM_PENDING];
    int pending_first, pending_count;
};

/* --- shm_memory.c --- */

enum ddp_status shm_alloc(void *state, const struct ddp_comm_call *call, void **memory);

/* The same for a call that counts something else. */
enum ddp_status shm_alloc_for(struct shm *shm, const struct ddp_comm_call *call, size_t bytes,
                              bool shared, void **memory);
enum ddp_status shm_free(struct shm *shm, const struct ddp_comm_call *call);
enum ddp_status shm_provide(const struct shm *shm, void *memory, size_t bytes);
void shm_punch(const struct shm *shm, const void *memory, size_t bytes);

/* After a sum over thin memory: all but this rank's result. */
void shm_give_back(const struct shm *shm, const struct ddp_comm_call *call);
bool shm_registered(const void *state, const void *memory, size_t bytes);
void shm_free_regions(struct shm *shm);

/* Its offset in the heap; DDP_LEDGER_NOWHERE: it is not registered. */
uint64_t shm_offset_of(const struct shm *shm, const void *memory, size_t bytes);

/* The memory that a rank has announced; NULL: it is not registered. */
char *shm_memory_of(const struct shm *shm, int rank, uint32_t number);

/* The same for shared memory. */
uint64_t shm_offset_of_shared(const struct shm *shm, const void *memory, size_t bytes);

/* A rank's part of the registered memory whose part for this rank begins there; NULL: none does. */
char *shm_part_of(const struct shm *shm, const void *memory, int rank);

/* --- shm_channel.c --- */

/* Between two ranks of this machine: a ring that both map (ring.h). */
enum ddp_status shm_channel_open(void *state, const struct ddp_comm_call *call,
                                 struct ddp_channel_end *end);
enum ddp_status shm_channel_await(struct ddp_channel_end *end, uint64_t message, int timeout_ms);
enum ddp_status shm_channel_pass(struct ddp_channel_end *end, uint64_t message);

/* --- shm_collectives.c --- */

/* All calls except alloc, free, and those that are started. */
enum ddp_status shm_collective(struct shm *shm, const struct ddp_comm_call *call);

/* This rank's slice of a sum over registered buffers that all have announced. */
enum ddp_status shm_reduce_slice(struct shm *shm, uint32_t number,
                                 const struct ddp_comm_call *call);

/* --- shm.c --- */

/* Between the ranks of a machine, on a zeroed object. Collective. */
enum ddp_status shm_join(struct shm *shm, const struct ddp_comm_place *place, size_t rest_bytes);
void shm_leave(struct shm *shm);

#endif
