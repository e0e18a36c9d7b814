/* SPDX-License-Identifier: MIT
 *
 * Collectives on the communicator's stream, between the events that begin and end them; see
 * nccl_state.h. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "cuda/state.h"

#include <assert.h>

enum ddp_status nccl_queue_open(struct nccl *nccl)
{
    cudaError_t error = cudaEventCreateWithFlags(&nccl->computed, cudaEventDisableTiming);
    for (int i = 0; error == cudaSuccess && i < NCCL_PENDING; i++) {
        error = cudaEventCreateWithFlags(&nccl->pending[i].begin, cudaEventDisableTiming);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&nccl->pending[i].end, cudaEventDisableTiming);
    }
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "NCCL's events");
}

static void destroy_event(cudaEvent_t event)
{
    if (event)
        (void)cudaEventDestroy(event); /* nothing is left to do about a failure */
}

void nccl_queue_close(struct nccl *nccl)
{
    destroy_event(nccl->computed);
    for (int i = 0; i < NCCL_PENDING; i++) {
        destroy_event(nccl->pending[i].begin);
        destroy_event(nccl->pending[i].end);
    }
}

static enum ddp_status ready(const struct nccl *nccl)
{
    const bool recording = nccl->dead == DDP_OK && ddp_cuda_refuse(nccl->place->device_state);
    assert(!recording); /* no mode records collectives */
    (void)recording;
    return nccl->dead;
}

/* Takes the next place in the queue, behind what the stream has to wait for. */
static enum ddp_status begin(struct nccl *nccl, const struct ddp_comm_call *call, uint32_t number,
                             bool computed, cudaEvent_t event)
{
    cudaError_t error = cudaSetDevice(nccl->cuda->index);
    enum ddp_status status = nccl_check(nccl);
    while (status == DDP_OK && nccl->last - nccl->first == NCCL_PENDING) {
        status = nccl_wait_event(nccl, nccl_oldest(nccl)->end, call);
        if (status == DDP_OK)
            status = nccl_check(nccl);
    }
    if (status != DDP_OK)
        return status;
    struct nccl_pending *pending = nccl_pending_at(nccl, nccl->last);
    pending->call = *call;
    pending->number = number;
    pending->begun_ns = 0;
    if (error == cudaSuccess && computed)
        error = cudaEventRecord(nccl->computed, nccl->cuda->stream);
    if (error == cudaSuccess && computed)
        error = cudaStreamWaitEvent(nccl->own.stream, nccl->computed, 0);
    if (error == cudaSuccess && nccl->ordered)
        error = nccl_wait_others(nccl);
    if (error == cudaSuccess && event)
        error = cudaStreamWaitEvent(nccl->own.stream, event, 0);
    if (error == cudaSuccess)
        error = cudaEventRecord(pending->begin, nccl->own.stream);
    if (error != cudaSuccess)
        return nccl_call_failed(nccl, error, call);
    nccl->span = ddp_cuda_span_begin(nccl->cuda, nccl->own.stream, "NCCL");
    return DDP_OK;
}

enum ddp_status nccl_begin(struct nccl *nccl, const struct ddp_comm_call *call)
{
    enum ddp_status status = ready(nccl);
    if (status != DDP_OK)
        return status;
    const uint32_t number = ddp_ledger_post(&nccl->ledger, call, DDP_LEDGER_NOWHERE, NULL, 0);
    return begin(nccl, call, number, true, NULL);
}

enum ddp_status nccl_begin_after(struct nccl *nccl, const struct ddp_comm_call *call, bool computed,
                                 cudaEvent_t event)
{
    enum ddp_status status = ready(nccl);
    return status == DDP_OK ? begin(nccl, call, 0, computed, event) : status;
}

enum ddp_status nccl_join(struct nccl *nccl)
{
    if (nccl->dead != DDP_OK)
        return nccl->dead;
    if (!nccl->to_join)
        return DDP_OK;
    nccl->to_join = false;
    cudaError_t error =
        cudaStreamWaitEvent(nccl->cuda->stream, nccl_pending_at(nccl, nccl->last - 1)->end, 0);
    return error == cudaSuccess ? DDP_OK : nccl_cuda_failed(nccl, error, "waiting for NCCL");
}

enum ddp_status nccl_finish(struct nccl *nccl, bool join)
{
    struct nccl_pending *pending = nccl_pending_at(nccl, nccl->last);
    const struct ddp_trace_event event = {
        .name = ddp_comm_kinds[pending->call.kind].name,
        .key = "bytes",
        .value = (int64_t)pending->call.bytes,
    };
    ddp_cuda_span_end(nccl->span, &event);
    nccl->span = NULL;
    cudaError_t error = cudaEventRecord(pending->end, nccl->own.stream);
    if (error != cudaSuccess)
        return nccl_call_failed(nccl, error, &pending->call);
    nccl->last++;
    nccl->to_join = true;
    enum ddp_status status = join ? nccl_join(nccl) : DDP_OK;
    if (status == DDP_OK && nccl->cuda->synchronous)
        status = nccl_drain(nccl, &pending->call);
    return status;
}
