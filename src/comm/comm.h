/* SPDX-License-Identifier: MIT
 *
 * The calls, and the contract of a communicator's backend. comm.c checks arguments, numbers the
 * collectives and writes them to the board; a backend moves data. A backend ends in one const
 * struct ddp_comm_ops and is one line in comm.c. Both structs cross the plugin border: a change to
 * them changes DDP_PLUGIN_ABI. */
#ifndef DDP_COMM_COMM_H
#define DDP_COMM_COMM_H

#include "ddp.h"

#include "device/device.h"
#include "job/job.h"

/* In the order of ddp_comm_kinds (ledger.c). */
enum ddp_comm_kind {
    DDP_COMM_CREATE,
    DDP_COMM_DESTROY,
    DDP_COMM_ALLOC,
    DDP_COMM_ALLOC_SHARED,
    DDP_COMM_FREE,
    DDP_COMM_BARRIER,
    DDP_COMM_ALLREDUCE,
    DDP_COMM_ALLREDUCE_START,
    DDP_COMM_REDUCE_SCATTER,
    DDP_COMM_REDUCE_SLICES_START,
    DDP_COMM_ALL_GATHER,
    DDP_COMM_GATHER_SLICES,
    DDP_COMM_GATHER_SLICES_START,
    DDP_COMM_GATHER_RANGES,
    DDP_COMM_BROADCAST,
    DDP_COMM_OPEN_CHANNEL,
};

/* A part of a vector of which each rank has a slice: the elements from `begin` to `end`. */
struct ddp_comm_range {
    void *vector;
    size_t count; /* elements of the vector */
    size_t begin, end;
    enum ddp_dtype dtype;
};

/* Sums of subtrees that each rank has several of, in one registered memory: kernels/reduce.h. */
struct ddp_comm_roots {
    int count;    /* of all ranks; at most DDP_REDUCE_LEAVES */
    int *first;   /* (size + 1): the first one of each rank */
    int *end;     /* (count): where its subtree ends */
    size_t bytes; /* from the elements of one to those of the next of a rank */
};

/* Arrays of a rank that are added up: its roots, or the one that it has. */
static inline int ddp_comm_arrays(const struct ddp_comm_roots *roots, int rank)
{
    return roots ? roots->first[rank + 1] - roots->first[rank] : 1;
}

/* A call, from the public function to the backend. Members that a kind does not use are 0. */
struct ddp_comm_call {
    /* All ranks must call the same. */
    uint64_t count; /* elements, as in ddp.h; of memory bytes */
    uint32_t grain; /* of slices */
    int32_t root;   /* of a channel: who sends */
    int32_t to;     /* ... and who receives */
    uint32_t slots;
    enum ddp_comm_kind kind;
    enum ddp_dtype dtype;
    enum ddp_redop op;
    bool fast;    /* sums in whatever order is fastest */
    size_t bytes; /* of `count` elements */
    /* This rank's own. The same memory where a collective has one buffer. */
    const void *send;
    void *receive; /* also what is to be freed */
    const struct ddp_comm_range *ranges;
    size_t range_count;
    const struct ddp_comm_roots *roots; /* of a sum that is started; NULL: each rank has one */
    bool thin;        /* memory with nothing behind it; of a sum: what is not its result goes */
    uint64_t rounded; /* of such: elements at the end, whose sums are bf16 (kernels/reduce.h) */
};

/* What to say and to check for each kind of call. */
struct ddp_comm_kind_info {
    const char *name;    /* in messages and in a device's trace */
    const char *board;   /* ... on the board, when not the same: "+" says that it is started */
    const char *details; /* ... of calls that differ, when not the same */
    bool reduces, slices, starts;
    bool elements; /* `count` counts elements of dtype */
    bool bytes;    /* ... bytes */
};
extern const struct ddp_comm_kind_info ddp_comm_kinds[];

/* Whether [memory, memory + bytes) lies in [begin, begin + length). */
static inline bool ddp_comm_within(const void *begin, size_t length, const void *memory,
                                   size_t bytes)
{
    const uintptr_t from = (uintptr_t)begin, at = (uintptr_t)memory;
    return at >= from && at - from <= length && bytes <= length - (at - from);
}

/* What a backend knows of its communicator. Its ranks are some of the job's, and its machines those
 * that have some of them. Messages to users have the job's ranks. */
struct ddp_comm_place {
    ddp_job *job;
    int rank, size;
    int first, stride;        /* rank r is rank first + r * stride of the job */
    int node, node_count;     /* of the machines */
    int node_rank, node_size; /* the ranks of this machine; rank = starts[node] + node_rank */
    int *starts;              /* (node_count + 1): the first rank of each machine, and the size */
    int id_slot;    /* of the machine's id slots, and NCCL's of the job's: its alone; -1: none */
    int timeout_ms; /* of every wait; may change between calls */
    ddp_device *device; /* whose memory is communicated; NULL: host memory */
    void *device_state; /* made by its kind: for a backend that comes with that kind */
};

/* The rank in the job of a rank; of a rank of this machine. */
static inline int ddp_comm_job_rank(const struct ddp_comm_place *place, int rank)
{
    return place->first + rank * place->stride;
}

static inline int ddp_comm_rank_here(const struct ddp_comm_place *place, int node_rank)
{
    return ddp_comm_job_rank(place, place->starts[place->node] + node_rank);
}

static inline int ddp_comm_node_of(const struct ddp_comm_place *place, int rank)
{
    int node = 0;
    while (place->starts[node + 1] <= rank)
        node++;
    return node;
}

/* An end of a channel, as the backend sees it. Message n has slot n % slots. */
struct ddp_channel_end {
    void *comm; /* the backend's state */
    void *link; /* the backend's own */
    char *memory;
    size_t bytes, stride; /* of a message, and from slot to slot */
    uint32_t slots;
    int peer;   /* the job's rank at the other end */
    bool sends; /* this is the sender's */
};

struct ddp_comm_ops {
    const char *name;
    bool has_shared;                                  /* knows DDP_COMM_ALLOC_SHARED */
    bool has_ranges;                                  /* ... DDP_COMM_GATHER_RANGES */
    bool (*fits)(const struct ddp_comm_place *place); /* whether it can be made there */
    enum ddp_status (*create)(void **state, const struct ddp_comm_place *place); /* collective */
    void (*destroy)(void *state);
    /* DDP_COMM_ALLOC and _ALLOC_SHARED. */
    enum ddp_status (*alloc)(void *state, const struct ddp_comm_call *call, void **memory);
    bool (*registered)(const void *state, const void *memory, size_t bytes); /* by alloc() */
    /* All other calls. Those that are started return at once, the others when they are done, or
     * behind the work on the device's stream. */
    enum ddp_status (*run)(void *state, const struct ddp_comm_call *call);
    enum ddp_status (*progress)(void *state); /* of what was started; never waits */
    enum ddp_status (*finish)(void *state);   /* waits for all that was started */
    /* Thin memory (thin.h), where there is shared memory; else NULL. */
    enum ddp_status (*settle)(void *state, int most);
    enum ddp_status (*provide)(void *state, void *memory, size_t bytes);
    void (*punch)(void *state, void *memory, size_t bytes);
    /* Channels (channel.h); NULL: it has none. open() is collective, and fills in `end`, which is
     * NULL if this rank is not an end. await() waits, not longer than timeout_ms, for the slot of a
     * message: of the sender's end until it is free, of the receiver's until the message is there;
     * it logs errors other than DDP_ERR_TIMEOUT and DDP_ERR_ABORTED. pass() gives the slot to the
     * other end. destroy() closes them. */
    enum ddp_status (*open)(void *state, const struct ddp_comm_call *call,
                            struct ddp_channel_end *end);
    enum ddp_status (*await)(struct ddp_channel_end *end, uint64_t message, int timeout_ms);
    enum ddp_status (*pass)(struct ddp_channel_end *end, uint64_t message);
};

extern const struct ddp_comm_ops ddp_comm_self, ddp_comm_shm, ddp_comm_nodes;

/* A communicator for the memory of a device, "nccl" from the device's plugin. Each call queues its
 * work on the device's stream and returns; work that is put on that stream afterwards (for
 * overlapping calls: after ddp_comm_finish()) finds the result. Failures of other ranks show in
 * ddp_device_synchronize() too, which watches the communicator. Collective. */
enum ddp_status ddp_comm_create_on(ddp_comm **comm, ddp_job *job, const char *backend,
                                   ddp_device *device);

/* Ranks of a job: first, first + stride, ... */
struct ddp_comm_group {
    int first, stride, size;
};

/* A communicator over this rank's group. All ranks of the job call it together, each with its own
 * group; the groups have the same stride and size, and every rank is in one. For a group of one it
 * is "self".
 *   backend  as for ddp_comm_create(), or for ddp_comm_create_on() with a device
 *   device   NULL: the host's memory
 * Ranks of the communicator are numbered from 0, those in messages are the job's.
 * DDP_ERR_MISMATCH: ranks create different ones; the job is aborted. */
enum ddp_status ddp_comm_create_group(ddp_comm **comm, ddp_job *job, const char *backend,
                                      ddp_device *device, const struct ddp_comm_group *group);

/* While a rank waits in a channel of `comm`, sums that it has started on `other` (NULL: no longer)
 * move on, as do those of `comm` itself: ranks that wait for its part of them may be those it waits
 * for. `other` lives longer. */
void ddp_comm_set_beside(ddp_comm *comm, ddp_comm *other);

/* With `fast` the backend may add up in its own order, which may differ between machines and
 * numbers of ranks. Without it (the default) sums have the bits of the fixed tree. */
void ddp_comm_set_fast(ddp_comm *comm, bool fast);

/* --- For modes that share work out; not part of the public interface ---
 *
 * A vector of `count` elements is cut into a slice for each rank, at multiples of `grain` elements,
 * as evenly as possible: a rank's slice begins here; for rank `size` this is the end. */
static inline size_t ddp_slice_begin(size_t count, size_t grain, int rank, int size)
{
    const size_t grains = count / grain + (count % grain != 0);
    const size_t share = grains / (size_t)size, rest = grains % (size_t)size;
    const size_t before = (size_t)rank < rest ? (size_t)rank : rest;
    const size_t begin = (share * (size_t)rank + before) * grain;
    return begin < count ? begin : count;
}

/* Like ddp_comm_allreduce_start(), but afterwards each rank has the result in its slice only, and
 * the rest of its buffer is as it was. Ends with ddp_comm_finish(); may be mixed with all-reduces.
 */
enum ddp_status ddp_comm_reduce_slices_start(ddp_comm *comm, void *buffer, size_t count,
                                             size_t grain, enum ddp_dtype dtype, enum ddp_redop op);

/* As that, or with grain 0 as ddp_comm_allreduce_start(), for sums of which each rank has several
 * parts: those are added up in one tree, the result goes to the first. Floats.
 *   roots    borrowed until ddp_comm_finish(); all ranks give the same
 *   rounded  so many elements at the end are bf16, and each sum of them is rounded to it; in the
 *            host's memory. Machines send each other two bytes for each, where all are
 *   thin     the memory is thin (thin.h): once the sum is complete all of it goes but the result */
enum ddp_status ddp_comm_reduce_roots_start(ddp_comm *comm, float *buffer, size_t count,
                                            size_t grain, const struct ddp_comm_roots *roots,
                                            size_t rounded, bool thin);

/* The way back: each rank's slice goes to all others. Collective. */
enum ddp_status ddp_comm_gather_slices(ddp_comm *comm, void *buffer, size_t count, size_t grain,
                                       enum ddp_dtype dtype);

/* The same of shared memory, without waiting: the slices of other machines come to this one's copy.
 * Complete after ddp_comm_finish() or ddp_comm_settle(). */
enum ddp_status ddp_comm_gather_slices_start(ddp_comm *comm, void *buffer, size_t count,
                                             size_t grain, enum ddp_dtype dtype);

/* The same for parts of several vectors together, all with slices of that grain, in one operation
 * if the backend has one. Otherwise it gathers the whole vectors, one by one. Collective. */
bool ddp_comm_has_ranges(const ddp_comm *comm);
enum ddp_status ddp_comm_gather_ranges(ddp_comm *comm, const struct ddp_comm_range *ranges,
                                       size_t range_count, size_t grain);

/* One memory that all ranks of a machine read and write, zeroed and page-aligned; freed with the
 * communicator. It is not registered: collectives treat it as any other memory. Each machine has a
 * copy: over several machines ddp_comm_gather_slices() and ddp_comm_broadcast() make all copies the
 * same, and when they return, this machine's is complete. Collective. */
bool ddp_comm_has_shared(const ddp_comm *comm);
enum ddp_status ddp_comm_alloc_shared(ddp_comm *comm, size_t bytes, void **memory);

#endif
