/* SPDX-License-Identifier: MIT
 *
 * Collectives on the communicator's stream, between the events that begin and end them; see
 * nccl_state.h. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "core/clock.h"
#include "cuda/state.h"

#include <assert.h>

static const char *const names[] = {
    [NCCL_CREATE] = "set-up",
    [NCCL_ALLREDUCE] = "all-reduce",
    [NCCL_ALLREDUCE_STARTED] = "all-reduce",
    [NCCL_REDUCE_SCATTER] = "reduce-scatter",
    [NCCL_SLICES_STARTED] = "reduce-scatter",
    [NCCL_ALL_GATHER] = "all-gather",
    [NCCL_GATHER_SLICES] = "all-gather",
    [NCCL_BROADCAST] = "broadcast",
    [NCCL_BARRIER] = "barrier",
    [NCCL_ALLOC] = "alloc",
    [NCCL_FREE] = "free",
    [NCCL_DESTROY] = "end",
};

static const char *name_of(const struct nccl_call *call)
{
    return names[call->kind];
}

cudaError_t nccl_query(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady)
        (void)cudaGetLastError(); /* or it would be taken for that of the next launch */
    return error;
}

static struct nccl_pending *at(struct nccl *nccl, unsigned index)
{
    return &nccl->pending[index % NCCL_PENDING];
}

struct nccl_pending *nccl_oldest(struct nccl *nccl)
{
    return nccl->first == nccl->last ? NULL : at(nccl, nccl->first);
}

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

enum ddp_status nccl_begin(struct nccl *nccl, const struct nccl_call *call)
{
    if (nccl->dead != DDP_OK)
        return nccl->dead;
    const bool recording = ddp_cuda_refuse(nccl->place->device_state);
    assert(!recording); /* no mode records collectives */
    (void)recording;
    cudaError_t error = cudaSetDevice(nccl->cuda->index);
    const uint32_t number = nccl_calls_post(nccl, call);
    enum ddp_status status = nccl_check(nccl);
    while (status == DDP_OK && nccl->last - nccl->first == NCCL_PENDING) {
        status = nccl_wait_event(nccl, nccl_oldest(nccl)->end, call);
        if (status == DDP_OK)
            status = nccl_check(nccl);
    }
    if (status != DDP_OK)
        return status;
    struct nccl_pending *pending = at(nccl, nccl->last);
    pending->call = *call;
    pending->number = number;
    pending->begun_ns = 0;
    if (error == cudaSuccess)
        error = cudaEventRecord(nccl->computed, nccl->cuda->stream);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(nccl->own.stream, nccl->computed, 0);
    if (error == cudaSuccess)
        error = cudaEventRecord(pending->begin, nccl->own.stream);
    if (error != cudaSuccess)
        return nccl_cuda_failed(nccl, error, name_of(call));
    nccl->span = ddp_cuda_span_begin(nccl->cuda, nccl->own.stream, "NCCL");
    return DDP_OK;
}

enum ddp_status nccl_join(struct nccl *nccl)
{
    if (nccl->dead != DDP_OK)
        return nccl->dead;
    if (!nccl->to_join)
        return DDP_OK;
    nccl->to_join = false;
    cudaError_t error = cudaStreamWaitEvent(nccl->cuda->stream, at(nccl, nccl->last - 1)->end, 0);
    return error == cudaSuccess ? DDP_OK : nccl_cuda_failed(nccl, error, "waiting for NCCL");
}

enum ddp_status nccl_finish(struct nccl *nccl, bool join)
{
    struct nccl_pending *pending = at(nccl, nccl->last);
    const struct ddp_trace_event event = {
        .name = name_of(&pending->call),
        .key = "bytes",
        .value =
            (int64_t)(pending->call.count * ddp_dtype_bytes((enum ddp_dtype)pending->call.dtype)),
    };
    ddp_cuda_span_end(nccl->span, &event);
    nccl->span = NULL;
    cudaError_t error = cudaEventRecord(pending->end, nccl->own.stream);
    if (error != cudaSuccess)
        return nccl_cuda_failed(nccl, error, name_of(&pending->call));
    nccl->last++;
    nccl->to_join = true;
    enum ddp_status status = join ? nccl_join(nccl) : DDP_OK;
    if (status == DDP_OK && nccl->cuda->synchronous)
        status = nccl_drain(nccl, &pending->call);
    return status;
}

enum ddp_status nccl_retire(struct nccl *nccl)
{
    struct nccl_pending *oldest;
    while ((oldest = nccl_oldest(nccl))) {
        cudaError_t error = nccl_query(oldest->end);
        if (error == cudaErrorNotReady && !oldest->begun_ns &&
            nccl_query(oldest->begin) == cudaSuccess)
            oldest->begun_ns = ddp_clock_ns();
        if (error == cudaErrorNotReady)
            return DDP_OK;
        if (error != cudaSuccess)
            return nccl_cuda_failed(nccl, error, name_of(&oldest->call));
        nccl->first++;
    }
    return DDP_OK;
}

enum ddp_status nccl_copy(struct nccl *nccl, void *to, const void *from, size_t bytes)
{
    cudaError_t error =
        to == from || bytes == 0
            ? cudaSuccess
            : cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nccl->cuda->stream);
    return error == cudaSuccess ? DDP_OK : nccl_cuda_failed(nccl, error, "a copy");
}
