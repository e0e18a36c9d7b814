/* SPDX-License-Identifier: MIT
 *
 * Channels between GPUs; see nccl_state.h.
 *
 * NCCL runs what a communicator is given in order, so a send that waits for its receive would hold
 * up all behind it, and two ranks that send first would wait for each other. So a channel is a
 * communicator of its own, of two ranks, with a stream of its own. Both ends have slots; a message
 * leaves when its receiver acquires it, and the host never waits. The compute stream waits for what
 * the host acquires, the channel's stream for what it releases. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "comm/channel.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

struct nccl_channel {
    struct nccl *link;                         /* the communicator of two */
    cudaEvent_t events[DDP_CHANNEL_MAX_SLOTS]; /* by slot: it is sent; it is read */
    struct ddp_comm_call call;
    size_t bytes; /* on the wire: a message of no bytes has one */
};

/* --- the queue --- */

static enum ddp_status send(struct nccl_channel *c, const void *memory)
{
    struct nccl *link = c->link;
    enum ddp_status status = nccl_begin_after(link, &c->call, true, NULL);
    if (status == DDP_OK)
        status = nccl_taken(
            link, ncclSend(memory, c->bytes, ncclInt8, 1, link->comm, link->own.stream), &c->call);
    return status == DDP_OK ? nccl_finish(link, false) : status;
}

static enum ddp_status receive(struct nccl_channel *c, void *memory, cudaEvent_t after)
{
    struct nccl *link = c->link;
    enum ddp_status status = nccl_begin_after(link, &c->call, false, after);
    if (status == DDP_OK)
        status = nccl_taken(
            link, ncclRecv(memory, c->bytes, ncclInt8, 0, link->comm, link->own.stream), &c->call);
    return status == DDP_OK ? nccl_finish(link, true) : status;
}

static char *slot_of(const struct ddp_channel_end *end, uint64_t message)
{
    return end->memory + message % end->slots * end->stride;
}

enum ddp_status nccl_channel_await(struct ddp_channel_end *end, uint64_t message, int timeout_ms)
{
    struct nccl_channel *c = end->link;
    const bool used = message >= end->slots;
    cudaEvent_t event = c->events[message % end->slots];
    (void)timeout_ms; /* what is on a stream has its deadline there */
    enum ddp_status status = nccl_check(c->link);
    if (status != DDP_OK)
        return status;
    if (!end->sends)
        return receive(c, slot_of(end, message), used ? event : NULL);
    cudaError_t error = used ? cudaStreamWaitEvent(c->link->cuda->stream, event, 0) : cudaSuccess;
    return error == cudaSuccess ? DDP_OK : nccl_call_failed(c->link, error, &c->call);
}

enum ddp_status nccl_channel_pass(struct ddp_channel_end *end, uint64_t message)
{
    struct nccl_channel *c = end->link;
    struct nccl *link = c->link;
    enum ddp_status status = end->sends ? send(c, slot_of(end, message)) : nccl_check(link);
    if (status != DDP_OK)
        return status;
    cudaError_t error = cudaEventRecord(c->events[message % end->slots],
                                        end->sends ? link->own.stream : link->cuda->stream);
    return error == cudaSuccess ? DDP_OK : nccl_call_failed(link, error, &c->call);
}

/* --- opening --- */

/* The sender's id to all, through the communicator. */
static enum ddp_status share_id(struct nccl *nccl, const struct ddp_comm_call *call)
{
    const size_t bytes = sizeof *nccl->id;
    cudaStream_t stream = nccl->own.stream;
    enum ddp_status status = DDP_OK;
    if (nccl->place->rank == call->root)
        status = nccl_taken(nccl, ncclGetUniqueId(nccl->id), call);
    if (status != DDP_OK)
        return status;
    cudaError_t error =
        cudaMemcpyAsync(nccl->device_id, nccl->id, bytes, cudaMemcpyHostToDevice, stream);
    if (error != cudaSuccess)
        return nccl_call_failed(nccl, error, call);
    status = nccl_taken(nccl,
                        ncclBroadcast(nccl->device_id, nccl->device_id, bytes, ncclInt8, call->root,
                                      nccl->comm, stream),
                        call);
    if (status != DDP_OK)
        return status;
    error = cudaMemcpyAsync(nccl->id, nccl->device_id, bytes, cudaMemcpyDeviceToHost, stream);
    return error == cudaSuccess ? DDP_OK : nccl_call_failed(nccl, error, call);
}

/* The first message, which nobody sees: it connects both ends while they are here together. Later
 * the host would wait for that. */
static enum ddp_status connect_ends(struct nccl_channel *c, const struct ddp_channel_end *end)
{
    enum ddp_status status = end->sends ? send(c, end->memory) : receive(c, end->memory, NULL);
    return status == DDP_OK ? nccl_drain(c->link, &c->call) : status;
}

static enum ddp_status open_end(struct nccl_channel *c, struct ddp_channel_end *end,
                                const struct ddp_comm_call *call)
{
    void *memory = NULL;
    size_t bytes = 0;
    cudaError_t error = cudaSuccess;
    c->call = *call;
    c->call.bytes = call->count;
    c->bytes = call->count > 0 ? call->count : 1;
    end->link = c;
    end->comm = c->link;
    end->bytes = call->count;
    end->slots = call->slots;
    end->stride = ddp_align_up(c->bytes, NCCL_ALIGN);
    for (uint32_t i = 0; i < call->slots && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&c->events[i], cudaEventDisableTiming);
    if (error != cudaSuccess)
        return nccl_call_failed(c->link, error, call);
    if (!ddp_size_multiply(end->stride, call->slots, &bytes))
        return DDP_ERR_MEMORY;
    enum ddp_status status = nccl_take(c->link, bytes, &memory);
    end->memory = memory;
    return status;
}

void nccl_channel_close(struct nccl *link)
{
    struct nccl_channel *c = link->channel;
    for (int i = 0; c && i < DDP_CHANNEL_MAX_SLOTS; i++)
        if (c->events[i])
            (void)cudaEventDestroy(c->events[i]); /* nothing is left to do about a failure */
    free(c);
    link->channel = NULL;
}

enum ddp_status nccl_channel_agree(struct nccl *nccl, const struct ddp_comm_call *call)
{
    enum ddp_status status = nccl_begin(nccl, call);
    if (status == DDP_OK)
        status = share_id(nccl, call);
    return status == DDP_OK ? nccl_vote(nccl, DDP_OK, call) : status;
}

enum ddp_status nccl_channel_open(struct nccl *nccl, struct nccl *link,
                                  const struct ddp_comm_call *call, struct ddp_channel_end *end)
{
    struct nccl_channel *c = end ? ddp_array_alloc(1, sizeof *c) : NULL;
    enum ddp_status own = DDP_OK;
    if (c) {
        c->link = link;
        link->channel = c;
        own = open_end(c, end, call);
    } else if (end) {
        own = DDP_ERR_MEMORY;
    }
    if (own != DDP_OK && own != DDP_ERR_MEMORY)
        return own;
    enum ddp_status status = nccl_begin(nccl, call);
    if (status == DDP_OK)
        status = nccl_vote(nccl, own, call);
    return status == DDP_OK && c ? connect_ends(c, end) : status;
}
