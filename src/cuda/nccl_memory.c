/* SPDX-License-Identifier: MIT
 *
 * Memory of a GPU that NCCL reaches without copies, and votes; see nccl_state.h. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "core/log.h"
#include "core/memory.h"
#include "cuda/state.h"

#include <stdlib.h>

static enum ddp_status too_little(const struct nccl *nccl, size_t bytes)
{
    size_t available = 0, total = 0;
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        return ddp_fail(DDP_ERR_MEMORY, "GPU %d: cannot allocate %.1f MiB", nccl->cuda->index,
                        (double)bytes / 0x1p20);
    return ddp_fail(DDP_ERR_MEMORY,
                    "GPU %d: %.1f MiB are needed, %.1f of its %.1f MiB are free: use a smaller "
                    "batch or model",
                    nccl->cuda->index, (double)bytes / 0x1p20, (double)available / 0x1p20,
                    (double)total / 0x1p20);
}

/* NCCL's own way makes memory that peers can map; where that is impossible, any memory will do. */
static cudaError_t get(struct nccl_block *block)
{
    if (ncclMemAlloc(&block->memory, block->bytes) == ncclSuccess) {
        block->of_nccl = true;
        return cudaSuccess;
    }
    (void)cudaGetLastError();
    return cudaMalloc(&block->memory, block->bytes);
}

static void put(const struct nccl_block *block)
{
    if (block->of_nccl)
        (void)ncclMemFree(block->memory); /* nothing is left to do about a failure */
    else
        (void)cudaFree(block->memory);
}

enum ddp_status nccl_take(struct nccl *nccl, size_t bytes, void **memory)
{
    struct nccl_block *block = ddp_array_alloc(1, sizeof *block);
    if (!block)
        return DDP_ERR_MEMORY;
    block->bytes = bytes;
    cudaError_t error = get(block);
    if (error != cudaSuccess) {
        free(block);
        return error == cudaErrorMemoryAllocation ? too_little(nccl, bytes)
                                                  : ddp_cuda_failed(error, "memory for NCCL");
    }
    if (ncclCommRegister(nccl->comm, block->memory, bytes, &block->handle)) {
        block->handle = NULL; /* it is copied through NCCL's own buffers then */
        ddp_log(DDP_LOG_DEBUG, "NCCL does not register memory here: %s",
                ncclGetLastError(nccl->comm));
    }
    block->next = nccl->blocks;
    nccl->blocks = block;
    *memory = block->memory;
    return DDP_OK;
}

static void forget(const struct nccl *nccl, struct nccl_block *block)
{
    if (block->handle && nccl->comm)
        (void)ncclCommDeregister(nccl->comm, block->handle);
    block->handle = NULL;
}

void nccl_give_back(struct nccl *nccl, void *memory)
{
    for (struct nccl_block **link = &nccl->blocks; memory && *link; link = &(*link)->next) {
        struct nccl_block *block = *link;
        if (block->memory != memory)
            continue;
        *link = block->next;
        forget(nccl, block);
        put(block);
        free(block);
        return;
    }
}

void nccl_forget_memory(struct nccl *nccl)
{
    for (struct nccl_block *block = nccl->blocks; block; block = block->next)
        forget(nccl, block);
}

/* What the device still has to do may read or write it: that comes to an end first, also after a
 * failure. */
void nccl_free_memory(struct nccl *nccl)
{
    nccl->stuck =
        nccl->stuck || !nccl_quiesce(nccl) || !ddp_cuda_quiesce(nccl->place->device_state);
    while (nccl->blocks) {
        struct nccl_block *next = nccl->blocks->next;
        if (!nccl->stuck)
            put(nccl->blocks);
        free(nccl->blocks);
        nccl->blocks = next;
    }
}

bool nccl_registered(const void *state, const void *memory, size_t bytes)
{
    const struct nccl *nccl = state;
    for (const struct nccl_block *block = nccl->blocks; block; block = block->next)
        if (ddp_comm_within(block->memory, block->bytes, memory, bytes))
            return true;
    return false;
}

/* --- votes --- */

enum ddp_status nccl_ballot_open(struct nccl *nccl)
{
    cudaError_t error = cudaMalloc(&nccl->device_id, sizeof *nccl->id);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&nccl->id, sizeof *nccl->id, cudaHostAllocDefault);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "memory for NCCL");
    if (nccl->place->node_count == 1)
        return DDP_OK;
    error = cudaHostAlloc((void **)&nccl->ballot, sizeof *nccl->ballot, cudaHostAllocDefault);
    if (error == cudaSuccess)
        error = cudaMalloc(&nccl->device_ballot, sizeof *nccl->ballot);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "memory for NCCL");
}

void nccl_ballot_close(struct nccl *nccl)
{
    if (nccl->device_id)
        (void)cudaFree(nccl->device_id); /* nothing is left to do about a failure */
    if (nccl->id)
        (void)cudaFreeHost(nccl->id);
    if (nccl->device_ballot)
        (void)cudaFree(nccl->device_ballot);
    if (nccl->ballot)
        (void)cudaFreeHost(nccl->ballot);
}

/* Several machines: puts the ballots of all ranks on the stream. */
static enum ddp_status cast(struct nccl *nccl, enum ddp_status own,
                            const struct ddp_comm_call *call)
{
    const size_t bytes = sizeof *nccl->ballot;
    const int64_t calls = (int64_t)(nccl->ledger.calls >> 1);
    if (!nccl->ballot)
        return DDP_OK;
    *nccl->ballot = (struct nccl_ballot){(int64_t)own, calls, -calls};
    cudaError_t error = cudaMemcpyAsync(nccl->device_ballot, nccl->ballot, bytes,
                                        cudaMemcpyHostToDevice, nccl->own.stream);
    if (error != cudaSuccess)
        return nccl_call_failed(nccl, error, call);
    enum ddp_status status =
        nccl_taken(nccl,
                   ncclAllReduce(nccl->device_ballot, nccl->device_ballot, NCCL_BALLOT_WORDS,
                                 ncclInt64, ncclMin, nccl->comm, nccl->own.stream),
                   call);
    if (status != DDP_OK)
        return status;
    error = cudaMemcpyAsync(nccl->ballot, nccl->device_ballot, bytes, cudaMemcpyDeviceToHost,
                            nccl->own.stream);
    return error == cudaSuccess ? DDP_OK : nccl_call_failed(nccl, error, call);
}

/* ... and reads what came of them. */
static enum ddp_status count(const struct nccl *nccl, const struct ddp_comm_call *call,
                             enum ddp_status *own)
{
    char text[96];
    if (!nccl->ballot)
        return DDP_OK;
    if (nccl->ballot->calls != -nccl->ballot->negated) {
        ddp_comm_describe(nccl->place, call, text, sizeof text);
        return ddp_fail(DDP_ERR_MISMATCH,
                        "collective %u: rank %d calls %s, and ranks of other machines differ, in "
                        "this call or in one before",
                        nccl->ledger.next - 1, ddp_comm_job_rank(nccl->place, nccl->place->rank),
                        text);
    }
    *own = (enum ddp_status)nccl->ballot->status;
    return DDP_OK;
}

enum ddp_status nccl_vote(struct nccl *nccl, enum ddp_status own, const struct ddp_comm_call *call)
{
    enum ddp_status status = cast(nccl, own, call);
    if (status == DDP_OK)
        status = nccl_finish(nccl, true);
    if (status == DDP_OK)
        status = nccl_drain(nccl, call);
    if (status == DDP_OK)
        status = ddp_ledger_gather(&nccl->ledger, nccl->ledger.next - 1, call);
    if (status == DDP_OK)
        status = count(nccl, call, &own);
    if (status == DDP_OK)
        status = ddp_ledger_vote(&nccl->ledger, call, &own);
    return status == DDP_OK ? own : nccl_end(nccl, status);
}

enum ddp_status nccl_alloc(void *state, const struct ddp_comm_call *call, void **memory)
{
    struct nccl *nccl = state;
    void *taken = NULL;
    enum ddp_status status = nccl_begin(nccl, call);
    if (status != DDP_OK)
        return status;
    status = nccl_take(nccl, call->count, &taken);
    if (status == DDP_OK) {
        cudaError_t error = cudaMemsetAsync(taken, 0, call->count, nccl->own.stream);
        if (error != cudaSuccess)
            return nccl_cuda_failed(nccl, error, "memory for NCCL");
    }
    status = nccl_vote(nccl, status, call);
    if (status == DDP_OK)
        *memory = taken;
    else if (nccl->dead == DDP_OK)
        nccl_give_back(nccl, taken);
    return status;
}

enum ddp_status nccl_free(struct nccl *nccl, const struct ddp_comm_call *call)
{
    enum ddp_status status = nccl_begin(nccl, call);
    if (status == DDP_OK)
        status = nccl_finish(nccl, false);
    if (status == DDP_OK)
        status = nccl_drain(nccl, call);
    if (status == DDP_OK)
        nccl_give_back(nccl, call->receive);
    return status;
}

enum ddp_status nccl_barrier(struct nccl *nccl, const struct ddp_comm_call *call)
{
    enum ddp_status status = nccl_begin(nccl, call);
    return status == DDP_OK ? nccl_vote(nccl, DDP_OK, call) : status;
}
