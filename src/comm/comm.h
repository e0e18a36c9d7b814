/* SPDX-License-Identifier: MIT
 *
 * The contract of a communicator's backend. comm.c checks arguments, keeps the number of the
 * collective and tells the board; a backend moves data. A backend is one file that ends in one
 * const struct ddp_comm_ops and one line in comm.c. The struct crosses the plugin border: a change
 * in it changes DDP_PLUGIN_ABI. */
#ifndef DDP_COMM_COMM_H
#define DDP_COMM_COMM_H

#include "ddp.h"

#include "device/device.h"
#include "job/job.h"

/* What a backend knows of its communicator. */
struct ddp_comm_place {
    ddp_job *job;
    int rank, size;
    int id_slot;        /* of the job's id slots: this communicator's alone; -1 without needs_id */
    int timeout_ms;     /* of every wait; may change between calls */
    ddp_device *device; /* whose memory is communicated; NULL: host memory */
    void *device_state; /* what its kind made: for a backend that comes with that kind */
    bool fast;          /* sums in whatever order is fastest; may change between calls */
};

struct ddp_comm_ops {
    const char *name;
    bool needs_id;                    /* takes one of the job's id slots, to find the other ranks */
    bool (*fits)(const ddp_job *job); /* can such a communicator be made here? */
    enum ddp_status (*create)(void **state, const struct ddp_comm_place *place); /* collective */
    void (*destroy)(void *state);                                                /* local */
    enum ddp_status (*alloc)(void *state, size_t bytes, void **memory);          /* collective */
    enum ddp_status (*free)(void *state, void *memory);                          /* collective */
    bool (*registered)(const void *state, const void *memory, size_t bytes);     /* from alloc? */
    enum ddp_status (*allreduce)(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                                 enum ddp_redop op);
    enum ddp_status (*reduce_scatter)(void *state, const void *send, void *receive, size_t count,
                                      enum ddp_dtype dtype, enum ddp_redop op);
    enum ddp_status (*all_gather)(void *state, const void *send, void *receive, size_t count,
                                  enum ddp_dtype dtype);
    enum ddp_status (*broadcast)(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                                 int root);
    enum ddp_status (*barrier)(void *state);
    enum ddp_status (*start)(void *state, void *buffer, size_t count, enum ddp_dtype dtype,
                             enum ddp_redop op); /* an all-reduce that overlaps */
    enum ddp_status (*progress)(void *state);    /* never waits */
    enum ddp_status (*finish)(void *state);      /* waits for all that were started */
    /* Optional: NULL where the backend cannot. See the functions below. */
    enum ddp_status (*alloc_shared)(void *state, size_t bytes, void **memory); /* collective */
    enum ddp_status (*start_slices)(void *state, void *buffer, size_t count, size_t grain,
                                    enum ddp_dtype dtype, enum ddp_redop op);
    enum ddp_status (*gather_slices)(void *state, void *buffer, size_t count, size_t grain,
                                     enum ddp_dtype dtype);
};

extern const struct ddp_comm_ops ddp_comm_self, ddp_comm_shm;

/* A communicator for the memory of a device, "nccl" from the device's plugin. Each call puts its
 * work behind what is on the device's stream and returns; what is put on that stream afterwards
 * (for overlapping calls: after ddp_comm_finish()) finds the result. Failures of other ranks show
 * in ddp_device_synchronize() too, which watches the communicator. Collective. */
enum ddp_status ddp_comm_create_on(ddp_comm **comm, ddp_job *job, const char *backend,
                                   ddp_device *device);

/* With `fast` the backend may add up in an order of its own, which may differ between machines and
 * numbers of ranks. Without it (the default) sums have the bits of the fixed tree. */
void ddp_comm_set_fast(ddp_comm *comm, bool fast);

/* --- For modes that share work out; not part of the public interface ---
 *
 * A vector of `count` elements is cut into a slice for each rank, at multiples of `grain` elements,
 * as evenly as that goes: the slice of a rank begins here, that of rank `size` is the end. */
static inline size_t ddp_slice_begin(size_t count, size_t grain, int rank, int size)
{
    const size_t grains = count / grain + (count % grain != 0);
    const size_t share = grains / (size_t)size, rest = grains % (size_t)size;
    const size_t before = (size_t)rank < rest ? (size_t)rank : rest;
    const size_t begin = (share * (size_t)rank + before) * grain;
    return begin < count ? begin : count;
}

/* Can this communicator work on slices? */
bool ddp_comm_has_slices(const ddp_comm *comm);

/* Like ddp_comm_allreduce_start(), but afterwards each rank has the result in its slice only, and
 * the rest of its buffer is as it was. Ends with ddp_comm_finish(); may be mixed with all-reduces.
 */
enum ddp_status ddp_comm_reduce_slices_start(ddp_comm *comm, void *buffer, size_t count,
                                             size_t grain, enum ddp_dtype dtype, enum ddp_redop op);

/* The way back: each rank's slice goes to all others. Collective. */
enum ddp_status ddp_comm_gather_slices(ddp_comm *comm, void *buffer, size_t count, size_t grain,
                                       enum ddp_dtype dtype);

/* One memory that all ranks read and write, zeroed and page-aligned; freed with the communicator.
 * It is not registered: collectives treat it as any other. Collective. */
bool ddp_comm_has_shared(const ddp_comm *comm);
enum ddp_status ddp_comm_alloc_shared(ddp_comm *comm, size_t bytes, void **memory);

#endif
