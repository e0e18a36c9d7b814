/* SPDX-License-Identifier: MIT
 *
 * What the files of the shared-memory communicator share: its layout in the heap, memory, waiting.
 *
 * Every collective has a number. A rank announces it in its ring (an entry carries what was called,
 * where the buffer lies, and a small payload), waits for the entries of all others and compares.
 * Small sums are done then: each rank adds up all payloads itself. Large ones go on where the
 * buffers lie: a rank does its slice for everybody, then counts up `done` and waits for the others'
 * done. Waiting spins briefly and then sleeps on the word itself. */
#ifndef DDP_COMM_SHM_H
#define DDP_COMM_SHM_H

#include "comm/comm.h"

#include <stdatomic.h>

#define SHM_RING         32
#define SHM_INLINE_BYTES 480
#define SHM_SLOT_BYTES   ((size_t)128 << 10)
#define SHM_NOWHERE      UINT64_MAX /* an offset: the buffer is not registered */

enum shm_kind {
    SHM_ALLREDUCE,
    SHM_ALLREDUCE_STARTED,
    SHM_REDUCE_SCATTER,
    SHM_ALL_GATHER,
    SHM_BROADCAST,
    SHM_BARRIER,
    SHM_ALLOC,
    SHM_FREE,
    SHM_SLICES_STARTED,
    SHM_GATHER_SLICES,
    SHM_ALLOC_SHARED,
    SHM_EXCHANGE, /* a piece of a collective on memory that is not registered */
};

/* What a rank calls; all ranks must call the same. */
struct shm_call {
    uint8_t kind, dtype, op, spare;
    int32_t root; /* of a broadcast; the grain of slices */
    uint64_t count;
};

struct shm_entry {
    _Alignas(64) _Atomic uint32_t sequence; /* number of the collective + 1 */
    uint32_t spare;
    struct shm_call call;
    uint64_t offset; /* of the buffer in the heap, or SHM_NOWHERE */
    char payload[SHM_INLINE_BYTES];
};

/* One rank's part of the control area; only that rank writes it, but for `sleepers`. */
struct shm_line {
    _Alignas(
        64) _Atomic uint32_t done; /* number of the last collective whose slice is complete, + 1 */
    _Atomic uint32_t sleepers;     /* ranks that sleep on a word of this line */
    struct shm_entry ring[SHM_RING];
};

/* Registered memory: `size` parts of `stride` bytes, one a rank, mapped by all. */
struct shm_region {
    struct shm_region *next;
    char *base;
    uint64_t offset; /* in the heap */
    size_t stride, bytes;
};

/* An all-reduce, or one that ends in slices, that was started and is not complete. */
struct shm_pending {
    uint32_t number;
    bool reduced;     /* this rank's slice is done */
    int64_t begin_ns; /* for the trace */
    struct shm_call call;
};

struct shm {
    const struct ddp_comm_place *place;
    int heap;
    void *control;
    size_t control_bytes;
    struct shm_line *lines;              /* by rank */
    char *slots;                         /* by rank, two each */
    struct shm_region *regions, *shared; /* shared: of one part, which is everybody's */
    uint32_t next;                       /* number of the next collective */
    uint32_t exchanges;                  /* counts pieces: which of the two slots is used */
    int spins;                           /* before a wait sleeps */
    struct shm_pending pending[SHM_RING];
    int pending_first, pending_count;
};

/* --- shm_wait.c --- */

/* Announces a collective and returns its number. */
uint32_t shm_post(struct shm *shm, const struct shm_call *call, uint64_t offset,
                  const void *payload, size_t payload_bytes);

/* The entry of a rank; valid once shm_gather() or shm_try_gather() has succeeded. */
const struct shm_entry *shm_entry_of(const struct shm *shm, int rank, uint32_t number);

/* Waits until all ranks have announced `number`, and checks that they agree with `call`.
 * DDP_ERR_MISMATCH, DDP_ERR_ABORTED, DDP_ERR_TIMEOUT. */
enum ddp_status shm_gather(struct shm *shm, uint32_t number, const struct shm_call *call);

/* The same without waiting: *all [out] tells whether everybody is there. */
enum ddp_status shm_try_gather(struct shm *shm, uint32_t number, const struct shm_call *call,
                               bool *all);

/* This rank's slice of `number` is complete. */
void shm_done(struct shm *shm, uint32_t number);

/* Waits until all ranks are done with `number`; or asks. */
enum ddp_status shm_wait_done(struct shm *shm, uint32_t number);
bool shm_all_done(const struct shm *shm, uint32_t number);

/* --- shm_memory.c --- */

enum ddp_status shm_alloc(void *state, size_t bytes, void **memory);
enum ddp_status shm_free(void *state, void *memory);
bool shm_registered(const void *state, const void *memory, size_t bytes);

enum ddp_status shm_alloc_shared(void *state, size_t bytes, void **memory);

/* The place of a buffer in the heap, and the other way round (any rank's). */
uint64_t shm_offset_of(const struct shm *shm, const void *memory, size_t bytes);
void *shm_at(const struct shm *shm, uint64_t offset);

/* Maps part of the heap after making sure that there is memory behind it. DDP_ERR_MEMORY,
 * DDP_ERR_SYSTEM. */
enum ddp_status shm_map(struct shm *shm, uint64_t offset, size_t bytes, uint64_t reserve_offset,
                        size_t reserve_bytes, void **memory);

/* DDP_ERR_MEMORY when the machine, or the container, does not have that much left: says what is
 * needed and there. */
enum ddp_status shm_check_available(size_t bytes, int size);

void shm_free_regions(struct shm *shm);

/* --- shm_collectives.c --- */

enum ddp_status shm_allreduce(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                              enum ddp_redop op);
enum ddp_status shm_reduce_scatter(void *state, const void *send, void *receive, size_t count,
                                   enum ddp_dtype dtype, enum ddp_redop op);
enum ddp_status shm_all_gather(void *state, const void *send, void *receive, size_t count,
                               enum ddp_dtype dtype);
enum ddp_status shm_broadcast(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                              int root);
enum ddp_status shm_barrier(void *state);
enum ddp_status shm_gather_slices(void *state, void *buffer, size_t count, size_t grain,
                                  enum ddp_dtype dtype);

/* This rank's slice of an all-reduce on registered buffers whose entries have been gathered. */
enum ddp_status shm_reduce_slice(struct shm *shm, uint32_t number, const struct shm_call *call);

#endif
