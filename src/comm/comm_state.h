/* SPDX-License-Identifier: MIT
 *
 * The inside of a communicator, for comm.c and channel.c, which calls comm.c. */
#ifndef DDP_COMM_COMM_STATE_H
#define DDP_COMM_COMM_STATE_H

#include "comm/channel.h"
#include "comm/comm.h"

struct ddp_comm {
    const struct ddp_comm_ops *ops;
    void *state;
    struct ddp_comm_place place;
    uint64_t number;      /* of the next collective */
    bool fast;            /* see ddp_comm_set_fast() */
    bool overlapping;     /* all-reduces are started and not finished */
    ddp_comm *beside;     /* see ddp_comm_set_beside() */
    enum ddp_status dead; /* the failure that ended it, or DDP_OK */
    const char *name;     /* of the current collective, its size and begin: for the trace */
    int64_t begin_ns;
    size_t bytes;
    struct ddp_channel *channels; /* of which this rank is an end */
};

struct ddp_channel {
    struct ddp_channel *next;
    ddp_comm *comm; /* NULL: between threads */
    struct ddp_channel_end end;
    const _Atomic uint32_t *stop; /* of a channel between threads */
    uint64_t acquired, released;  /* messages so far */
};

/* Checks the call, and writes to the board that this rank has arrived at it. */
enum ddp_status ddp_comm_enter(ddp_comm *comm, struct ddp_comm_call *call);

/* Notes that it has left with this status, which this returns. */
enum ddp_status ddp_comm_leave(ddp_comm *comm, enum ddp_status status);

#endif
