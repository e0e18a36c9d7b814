/* SPDX-License-Identifier: MIT
 *
 * Channels: what is the same for all backends; and those between threads. */
#include "config.h"

#include "comm/channel.h"

#include "comm/comm_state.h"
#include "comm/ring.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"

#include <inttypes.h>
#include <stdlib.h>

#define SLICE_MS 1    /* of a wait, while collectives are pending that need this rank */
#define SPINS    2000 /* of a wait between threads */

/* --- opening --- */

static enum ddp_status check(size_t bytes, int slots)
{
    if (slots < 1 || slots > DDP_CHANNEL_MAX_SLOTS)
        return ddp_fail(DDP_ERR_INVALID, "a channel has 1 to %d slots, not %d",
                        DDP_CHANNEL_MAX_SLOTS, slots);
    if (bytes > SIZE_MAX / 2 / DDP_CHANNEL_MAX_SLOTS)
        return ddp_fail(DDP_ERR_INVALID, "a channel cannot have messages of %zu bytes", bytes);
    return DDP_OK;
}

/* This rank's end; on other ranks it goes again when all have opened the channel. */
static struct ddp_channel *new_end(ddp_comm *comm, int from, int to)
{
    struct ddp_channel *c = ddp_array_alloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->comm = comm;
    c->end.sends = comm->place.rank == from;
    c->end.peer = ddp_comm_job_rank(&comm->place, c->end.sends ? to : from);
    return c;
}

enum ddp_status ddp_channel_open(ddp_channel **channel, ddp_comm *comm, int from, int to,
                                 size_t bytes, int slots)
{
    const int size = comm->place.size;
    enum ddp_status status = check(bytes, slots);
    if (status != DDP_OK)
        return status;
    if (from == to || from < 0 || from >= size || to < 0 || to >= size)
        return ddp_fail(DDP_ERR_INVALID, "no channel leads from rank %d to rank %d of %d", from, to,
                        size);
    if (!comm->ops->open)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "the communicator '%s' has no channels",
                        comm->ops->name);
    struct ddp_comm_call call = {.kind = DDP_COMM_OPEN_CHANNEL,
                                 .count = bytes,
                                 .root = from,
                                 .to = to,
                                 .slots = (uint32_t)slots};
    const bool is_end = comm->place.rank == from || comm->place.rank == to;
    struct ddp_channel *c = new_end(comm, from, to);
    if (!c)
        return DDP_ERR_MEMORY;
    status = ddp_comm_enter(comm, &call);
    if (status == DDP_OK)
        status = ddp_comm_leave(comm, comm->ops->open(comm->state, &call, is_end ? &c->end : NULL));
    if (status != DDP_OK || !is_end) {
        free(c);
        c = NULL;
    } else {
        c->next = comm->channels;
        comm->channels = c;
    }
    if (status == DDP_OK)
        *channel = c;
    return status;
}

/* --- waiting --- */

static bool is_pending(const ddp_comm *comm)
{
    return comm && comm->overlapping;
}

/* In slices, where collectives were started: other ranks wait for this one's part of them, and the
 * message may come after. */
static enum ddp_status wait_for(struct ddp_channel *c, int timeout_ms)
{
    ddp_comm *comm = c->comm;
    const int64_t deadline = ddp_deadline_ns(timeout_ms);
    while (is_pending(comm) || is_pending(comm->beside)) {
        enum ddp_status status = comm->ops->await(&c->end, c->acquired, SLICE_MS);
        if (status != DDP_ERR_TIMEOUT || ddp_deadline_passed(deadline))
            return status;
        status = is_pending(comm) ? comm->ops->progress(comm->state) : DDP_OK;
        if (status == DDP_OK && is_pending(comm->beside))
            status = ddp_comm_progress(comm->beside);
        if (status != DDP_OK)
            return status;
    }
    return comm->ops->await(&c->end, c->acquired, timeout_ms);
}

/* The wait is on the board and in the trace. */
static enum ddp_status await_shown(struct ddp_channel *c)
{
    ddp_comm *comm = c->comm;
    const int timeout_ms = comm->place.timeout_ms;
    const uint64_t awaited = c->acquired - (c->end.sends ? c->end.slots : 0);
    const int64_t begin = ddp_trace_begin();
    ddp_job_transfer_enter(comm->place.job, c->end.sends, c->end.peer, awaited, c->end.bytes);
    enum ddp_status status = wait_for(c, timeout_ms);
    ddp_job_collective_leave(comm->place.job);
    ddp_trace_end(c->end.sends ? "wait to send" : "wait to receive", begin, "rank", c->end.peer);
    if (status == DDP_ERR_TIMEOUT)
        return ddp_fail(status, "waited %d ms for rank %d to %s message %" PRIu64, timeout_ms,
                        c->end.peer, c->end.sends ? "take" : "send", awaited);
    return status;
}

static enum ddp_status await_thread(struct ddp_channel *c)
{
    const struct ddp_comm_waiting waiting = {.stop = c->stop, .spins = SPINS, .timeout_ms = -1};
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_ring_await(&c->end, c->acquired, &waiting);
    ddp_trace_end(c->end.sends ? "wait to send" : "wait to receive", begin, "message",
                  (int64_t)c->acquired);
    return status;
}

enum ddp_status ddp_channel_acquire(ddp_channel *channel, void **slot)
{
    struct ddp_channel *c = channel;
    enum ddp_status status;
    if (c->acquired - c->released == c->end.slots)
        return ddp_fail(DDP_ERR_INVALID, "all %u slots of a channel are in use here", c->end.slots);
    if (c->comm && c->comm->dead != DDP_OK)
        return c->comm->dead;
    if (!c->comm) {
        status = await_thread(c);
    } else {
        status = c->comm->ops->await(&c->end, c->acquired, 0);
        if (status == DDP_ERR_TIMEOUT)
            status = await_shown(c);
        c->comm->dead = status;
    }
    if (status == DDP_OK)
        *slot = c->end.memory + c->acquired++ % c->end.slots * c->end.stride;
    return status;
}

enum ddp_status ddp_channel_release(ddp_channel *channel)
{
    struct ddp_channel *c = channel;
    if (c->released == c->acquired)
        return ddp_fail(DDP_ERR_INVALID, "no slot of a channel is in use here");
    if (c->comm && c->comm->dead != DDP_OK)
        return c->comm->dead;
    const uint64_t message = c->released++;
    if (c->comm)
        return c->comm->dead = c->comm->ops->pass(&c->end, message);
    ddp_ring_pass(&c->end, message);
    return DDP_OK;
}

/* --- between threads --- */

enum ddp_status ddp_channel_open_threads(ddp_channel *ends[2], size_t bytes, int slots,
                                         const _Atomic uint32_t *stop)
{
    size_t total;
    enum ddp_status status = check(bytes, slots);
    if (status != DDP_OK)
        return status;
    if (!ddp_ring_bytes(bytes, (uint32_t)slots, &total))
        return ddp_fail(DDP_ERR_INVALID, "a channel of %d slots of %zu bytes is too large", slots,
                        bytes);
    struct ddp_channel *sender = ddp_array_alloc(1, sizeof *sender);
    struct ddp_channel *receiver = ddp_array_alloc(1, sizeof *receiver);
    void *memory = sender && receiver ? ddp_pages_alloc(total) : NULL;
    if (!memory) {
        free(sender);
        free(receiver);
        return DDP_ERR_MEMORY;
    }
    ddp_ring_attach(&sender->end, memory, bytes, (uint32_t)slots);
    receiver->end = sender->end;
    sender->end.sends = true;
    sender->stop = receiver->stop = stop;
    ends[0] = sender;
    ends[1] = receiver;
    return DDP_OK;
}

void ddp_channel_close_threads(ddp_channel *ends[2])
{
    size_t total;
    if (ends[0] && ddp_ring_bytes(ends[0]->end.bytes, ends[0]->end.slots, &total))
        ddp_pages_free(ends[0]->end.link, total);
    free(ends[0]);
    free(ends[1]);
    ends[0] = ends[1] = NULL;
}
