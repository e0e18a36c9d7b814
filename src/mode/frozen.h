/* SPDX-License-Identifier: MIT
 *
 * The memory of frozen parameters. If devices compute in the host's memory, all workers of a
 * machine map one copy of all of them, which rank 0 fills; other devices have those their graphs
 * read, and rank 0 has all until then. With thin weights (share.h) a machine keeps a part of that
 * copy, once the mode is made. */
#ifndef DDP_MODE_FROZEN_H
#define DDP_MODE_FROZEN_H

#include "comm/comm.h"
#include "device/device.h"
#include "graph/graph.h"

/* Host memory with the places of a graph's frozen parameters. */
struct ddp_frozen_host {
    void *values;      /* ddp_graph_frozen_bytes(); NULL: this rank has none */
    uint16_t *rounded; /* copies of those of float32, for graphs that compute in bf16; or NULL */
    size_t bytes;      /* of both */
    bool shared;       /* it belongs to a communicator, and to all workers of the machine */
    bool thin;         /* ... which have a part of it: the mode sends rank 0's to all */
    ddp_comm *comm;    /* over all workers; NULL: there is only one */
};

/* Zeroed memory: on rank 0, or, if shared, for all. Nothing for a graph without frozen parameters.
 * Collective.
 *   comm         outlives it, and frees what is shared; NULL: there is one worker
 *   host_memory  devices compute in the host's memory
 *   compute      of the graphs
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_frozen_host_alloc(struct ddp_frozen_host *host, const ddp_graph *graph,
                                      ddp_comm *comm, bool host_memory, enum ddp_dtype compute);

/* The same of thin memory, which only rank 0 may fill: with nothing behind it elsewhere, until the
 * mode is made. Devices compute in the host's memory. */
enum ddp_status ddp_frozen_host_alloc_thin(struct ddp_frozen_host *host, const ddp_graph *graph,
                                           ddp_comm *comm, enum ddp_dtype compute);

/* After rank 0 has filled `values`: completes what is shared, on all machines. Collective. */
enum ddp_status ddp_frozen_host_complete(struct ddp_frozen_host *host, const ddp_graph *graph,
                                         int nodes);
void ddp_frozen_host_free(struct ddp_frozen_host *host); /* takes a zeroed one */

/* A hash of names, shapes and values, without padding: the same wherever they are. */
uint64_t ddp_frozen_hash(const ddp_graph *graph, const void *values);

/* For ddp_exec_set_frozen(). */
struct ddp_frozen {
    ddp_device *device;
    void **values;
    uint16_t **rounded; /* NULL: there are no copies */
    void *memory;       /* the device's own; NULL: the host's is read */
    size_t bytes;
};

/* A device's copy of those that one of two graphs reads. Collective where other workers have
 * devices with memory of their own.
 *   host     NULL: there are none, or their values do not matter
 *   early    NULL: one graph
 *   compute  DDP_BF16: with copies
 * Free it with ddp_frozen_close(), even after a failure. */
enum ddp_status ddp_frozen_open(struct ddp_frozen *frozen, ddp_device *device,
                                const struct ddp_frozen_host *host, const ddp_graph *graph,
                                const ddp_graph *early, enum ddp_dtype compute);
void ddp_frozen_close(struct ddp_frozen *frozen); /* takes a zeroed one */

/* Bytes of a device's own memory for what a graph reads, with bf16 copies. */
size_t ddp_frozen_device_bytes(const ddp_graph *graph, const ddp_graph *early,
                               enum ddp_dtype compute);
/* ... and of the host's for all of them. */
size_t ddp_frozen_host_bytes(const ddp_graph *graph, enum ddp_dtype compute);

#endif
