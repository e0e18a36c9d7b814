/* SPDX-License-Identifier: MIT
 *
 * The communicator between GPUs: setting up and ending; see nccl_state.h. */
#include "config.h"

#include "cuda/nccl.h"

#include "cuda/nccl_state.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "job/board.h"
#include "kernels/reduce.h"

#include <stdlib.h>
#include <string.h>

#if NCCL_VERSION_CODE < 21903
#error "NCCL 2.19.3 or newer is needed"
#endif

static bool fits(const struct ddp_comm_place *place)
{
    return place->size <= DDP_REDUCE_MAX;
}

/* Rank 0's, to all ranks of the job. */
static enum ddp_status share_id(struct nccl *nccl, const struct ddp_comm_call *call,
                                ncclUniqueId *id)
{
    const struct ddp_comm_place *place = nccl->place;
    memset(id, 0, sizeof *id);
    if (place->rank != 0)
        return ddp_job_get_id(place->job, place->id_slot, id, sizeof *id,
                              place->timeout_ms < 0 ? NCCL_SETUP_MS : place->timeout_ms);
    const ncclResult_t result = ncclGetUniqueId(id);
    return result == ncclSuccess ? ddp_job_put_id(place->job, place->id_slot, id, sizeof *id)
                                 : nccl_failed(nccl, result, call);
}

static enum ddp_status join(struct nccl *nccl)
{
    const struct ddp_comm_place *place = nccl->place;
    const struct ddp_comm_call call = {.kind = DDP_COMM_CREATE};
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    enum ddp_status status = ddp_ledger_open(&nccl->ledger, place, NCCL_RING, 0);
    if (status == DDP_OK)
        status = share_id(nccl, &call, &id);
    if (status != DDP_OK)
        return status;
    ddp_ledger_post(&nccl->ledger, &call, DDP_LEDGER_NOWHERE, NULL, 0);
    config.blocking = 0;
    return nccl_taken(
        nccl, ncclCommInitRankConfig(&nccl->comm, place->size, id, place->rank, &config), &call);
}

/* Machines, or what ddprun has found on one. It decides what is sent where, never a bit. Powers of
 * two, so that an island's ranks are a subtree's where all ranks have as many leaves. */
static int island_of(const struct ddp_comm_place *place)
{
    const char *found = getenv(DDP_ISLAND_VARIABLE);
    int64_t ranks = place->starts[1];
    for (int i = 1; i < place->node_count; i++)
        if (place->starts[i + 1] != (i + 1) * ranks)
            return 0;
    if (place->node_count == 1) {
        if (!found || !ddp_parse_int64(found, 2, DDP_REDUCE_MAX, &ranks) ||
            ranks % place->stride != 0 || (place->first - place->first % place->stride) % ranks)
            return 0;
        ranks /= place->stride;
    }
    const bool apart = ranks > 1 && ranks < place->size && place->size % ranks == 0;
    return apart && (ranks & (ranks - 1)) == 0 ? (int)ranks : 0;
}

/* A stream of its own, before others: what waits for it has nothing else to do. */
static cudaError_t create_stream(struct nccl *nccl)
{
    int least = 0, greatest = 0;
    cudaError_t error = cudaSetDevice(nccl->cuda->index);
    if (error == cudaSuccess)
        error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithPriority(&nccl->own.stream, cudaStreamNonBlocking, greatest);
    return error;
}

static enum ddp_status open_device(struct nccl *nccl)
{
    nccl->cuda = ddp_device_cuda.stream(nccl->place->device_state);
    nccl->own = *nccl->cuda;
    nccl->own.stream = NULL;
    nccl->own.workspace = NULL;    /* of the device's own stream */
    nccl->own.synchronous = false; /* the host does not wait without looking */
    cudaError_t error = create_stream(nccl);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "NCCL's stream");
    enum ddp_status status = nccl_queue_open(nccl);
    return status == DDP_OK ? nccl_ballot_open(nccl) : status;
}

/* All ranks end their communicators together, or this one ends alone. */
static void leave(struct nccl *nccl)
{
    const struct ddp_comm_call call = {.kind = DDP_COMM_DESTROY};
    nccl->closing = true;
    enum ddp_status status = nccl_drain(nccl, &call);
    if (status == DDP_OK) {
        nccl_forget_memory(nccl);
        status = nccl_taken(nccl, ncclCommFinalize(nccl->comm), &call);
    }
    if (status == DDP_OK)
        (void)ncclCommDestroy(nccl->comm); /* nothing is left to do about a failure */
    nccl->comm = NULL;
}

/* Also of a link, which has the ledger of nobody. */
static void destroy(void *state)
{
    struct nccl *nccl = state;
    while (nccl->links) {
        struct nccl *link = nccl->links;
        nccl->links = link->next_link;
        destroy(link);
    }
    nccl_unwatch(nccl);
    if (nccl->cuda)
        (void)cudaSetDevice(nccl->cuda->index);
    nccl_leave_others(nccl);
    if (nccl->comm)
        leave(nccl);
    nccl_free_memory(nccl);
    if (!nccl->stuck) { /* else each of these calls may wait for ever */
        nccl_channel_close(nccl);
        nccl_queue_close(nccl);
        nccl_ballot_close(nccl);
        if (nccl->own.stream)
            (void)cudaStreamDestroy(nccl->own.stream);
    }
    (void)cudaGetLastError();
    ddp_ledger_close(&nccl->ledger);
    free(nccl);
}

static enum ddp_status create(void **state, const struct ddp_comm_place *place)
{
    struct nccl *nccl = ddp_array_alloc(1, sizeof *nccl);
    if (!nccl)
        return DDP_ERR_MEMORY;
    nccl->place = place;
    nccl->ordered = true;
    nccl->island = island_of(place);
    enum ddp_status status = open_device(nccl);
    if (status == DDP_OK)
        status = join(nccl);
    if (status == DDP_OK)
        status = nccl_connect(nccl);
    if (status != DDP_OK) {
        nccl_end(nccl, status);
        destroy(nccl);
        return status;
    }
    nccl_watch(nccl);
    *state = nccl;
    return DDP_OK;
}

/* A communicator of the two ends of a channel: the sender is its rank 0. */
static enum ddp_status open_link(struct nccl *nccl, const struct ddp_channel_end *end,
                                 const struct ddp_comm_call *call, struct nccl **made)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct nccl *link = ddp_array_alloc(1, sizeof *link);
    if (!link)
        return nccl_end(nccl, DDP_ERR_SYSTEM); /* the other end waits already */
    link->place = nccl->place;
    link->next_link = nccl->links;
    nccl->links = link;
    config.blocking = 0;
    enum ddp_status status = open_device(link);
    if (status == DDP_OK) {
        nccl_watch(link);
        status = nccl_taken(
            link, ncclCommInitRankConfig(&link->comm, 2, *nccl->id, end->sends ? 0 : 1, &config),
            call);
    }
    *made = link;
    return status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
}

static enum ddp_status open_channel(void *state, const struct ddp_comm_call *call,
                                    struct ddp_channel_end *end)
{
    struct nccl *link = NULL;
    enum ddp_status status = nccl_channel_agree(state, call);
    if (status == DDP_OK && end)
        status = open_link(state, end, call, &link);
    return status == DDP_OK ? nccl_channel_open(state, link, call, end) : status;
}

static enum ddp_status run(void *state, const struct ddp_comm_call *call)
{
    if (call->kind == DDP_COMM_FREE)
        return nccl_free(state, call);
    return call->kind == DDP_COMM_BARRIER ? nccl_barrier(state, call)
                                          : nccl_collective(state, call);
}

static enum ddp_status progress(void *state)
{
    return nccl_check(state);
}

static enum ddp_status finish(void *state)
{
    enum ddp_status status = nccl_check(state);
    return status == DDP_OK ? nccl_join(state) : status;
}

const struct ddp_comm_ops ddp_comm_nccl = {
    .name = "nccl",
    .has_ranges = true,
    .fits = fits,
    .create = create,
    .destroy = destroy,
    .alloc = nccl_alloc,
    .registered = nccl_registered,
    .run = run,
    .progress = progress,
    .finish = finish,
    .open = open_channel,
    .await = nccl_channel_await,
    .pass = nccl_channel_pass,
};
