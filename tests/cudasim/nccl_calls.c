/* SPDX-License-Identifier: MIT
 *
 * The collectives of the simulated NCCL as called: checks of arguments, groups, and putting what a
 * group holds on streams. */
#include "config.h"

#include "tests/cudasim/nccl_sim.h"

#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

enum { PATIENCE = 1 };

/* The group that the thread is in. */
static _Thread_local struct {
    int depth;
    ncclResult_t error;             /* of the first call in it that failed */
    struct nccl_sim_batch *batches; /* one for each communicator, in order of their first calls */
    struct ncclComm **joining;
    size_t joining_count, joining_capacity;
} group;

bool nccl_sim_in_group(void)
{
    return group.depth > 0;
}

static void *grow(void *array, size_t count, size_t *capacity, size_t element)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? 2 * *capacity : 4;
    array = realloc(array, *capacity * element);
    if (!array)
        sim_report("no memory");
    return array;
}

ncclResult_t nccl_sim_group_add_init(struct ncclComm *comm)
{
    group.joining =
        grow(group.joining, group.joining_count, &group.joining_capacity, sizeof *group.joining);
    group.joining[group.joining_count++] = comm;
    return ncclSuccess;
}

/* --- batches --- */
void nccl_sim_batch_free(struct nccl_sim_batch *batch)
{
    free(batch->streams);
    free(batch->tasks);
    free(batch);
}

static struct nccl_sim_batch *batch_of(struct ncclComm *comm)
{
    struct nccl_sim_batch **link = &group.batches;
    while (*link && (*link)->comm != comm)
        link = &(*link)->next;
    if (*link)
        return *link;
    struct nccl_sim_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        sim_report("no memory");
    batch->comm = comm;
    *link = batch;
    return batch;
}

static void batch_add(struct nccl_sim_batch *batch, const struct nccl_sim_task *task,
                      cudaStream_t stream)
{
    batch->tasks = grow(batch->tasks, batch->count, &batch->capacity, sizeof *batch->tasks);
    batch->tasks[batch->count++] = *task;
    for (int i = 0; i < batch->stream_count; i++)
        if (batch->streams[i] == stream)
            return;
    batch->streams =
        realloc(batch->streams, (size_t)(batch->stream_count + 1) * sizeof *batch->streams);
    if (!batch->streams)
        sim_report("no memory");
    batch->streams[batch->stream_count++] = stream;
}

static bool is_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusActive;
}

ncclResult_t nccl_sim_launch(struct nccl_sim_batch *batch)
{
    struct ncclComm *comm = batch->comm;
    struct nccl_sim_operation operation = {.batch = batch};
    batch->captured = is_capturing(batch->streams[0]);
    if (batch->captured && batch->stream_count > 1)
        return nccl_sim_fail(ncclInvalidUsage,
                             "a captured group on several streams is not simulated");
    batch->gates = batch->stream_count - 1;
    batch->references = batch->stream_count;
    if (batch->captured)
        comm->outstanding--; /* counts when it runs */
    else
        operation.ticket = ++comm->issued;
    if (!batch->captured)
        nccl_sim_place(batch);
    for (int i = batch->stream_count - 1; i >= 0; i--)
        if (sim_enqueue(batch->streams[i], i == 0 ? "NCCL collective" : "NCCL group", SIM_POLL,
                        i == 0 ? nccl_sim_run : nccl_sim_gate, &operation,
                        sizeof operation) != cudaSuccess)
            return nccl_sim_fail(ncclUnhandledCudaError, "a stream does not take a collective");
    return ncclSuccess;
}

ncclResult_t nccl_sim_launch_pending(struct ncclComm *comm)
{
    while (comm->unlaunched) {
        struct nccl_sim_batch *batch = comm->unlaunched;
        comm->unlaunched = batch->next;
        ncclResult_t result = nccl_sim_launch(batch);
        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}

/* --- groups --- */
static void group_clear(void)
{
    while (group.batches) {
        struct nccl_sim_batch *next = group.batches->next;
        nccl_sim_batch_free(group.batches);
        group.batches = next;
    }
    free(group.joining);
    memset(&group, 0, sizeof group);
}

/* Ranks of the thread's own come together here. */
static ncclResult_t finish_joining(struct ncclComm **joining, size_t count)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < count; i++) {
        const ncclResult_t one =
            joining[i]->blocking ? nccl_sim_wait_ready(joining[i]) : ncclInProgress;
        if (result == ncclSuccess || (result == ncclInProgress && one != ncclSuccess))
            result = one;
    }
    return result;
}

/* Hands a batch over: to its streams, or, non-blocking, to the next polls. */
static ncclResult_t submit(struct nccl_sim_batch *batch)
{
    struct ncclComm *comm = batch->comm;
    comm->outstanding++;
    if (comm->blocking || comm->size == 1)
        return nccl_sim_launch(batch);
    struct nccl_sim_batch **link = &comm->unlaunched;
    while (*link)
        link = &(*link)->next;
    *link = batch;
    comm->patience = PATIENCE;
    return ncclInProgress;
}

static ncclResult_t group_end(void)
{
    struct nccl_sim_batch *batches = group.batches;
    struct ncclComm **joining = group.joining;
    const size_t joining_count = group.joining_count;
    ncclResult_t result = group.error;
    if (result == ncclSuccess && batches && joining_count > 0)
        result =
            nccl_sim_fail(ncclInvalidUsage, "a group of both collectives and ncclCommInitRank");
    for (const struct nccl_sim_batch *batch = batches; batch; batch = batch->next)
        if (result == ncclSuccess && batch->comm->blocking != batches->comm->blocking)
            result = nccl_sim_fail(ncclInvalidArgument,
                                   "a group of blocking and non-blocking communicators");
    if (result != ncclSuccess) {
        group_clear();
        return result;
    }
    memset(&group, 0, sizeof group);
    sim_lock();
    while (batches) {
        struct nccl_sim_batch *next = batches->next;
        batches->next = NULL;
        const ncclResult_t one = submit(batches);
        if (one != ncclSuccess && (result == ncclSuccess || result == ncclInProgress))
            result = one;
        batches = next;
    }
    sim_unlock();
    if (joining_count > 0)
        result = finish_joining(joining, joining_count);
    free(joining);
    return result;
}

VISIBLE ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

VISIBLE ncclResult_t ncclGroupEnd(void)
{
    int code = ncclSystemError;
    if (group.depth == 0)
        return nccl_sim_fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (group.depth == 1 && sim_fault("ncclGroupEnd", &code))
        group.error = (ncclResult_t)code;
    if (--group.depth > 0)
        return ncclSuccess;
    return group_end();
}

/* --- calls --- */
/* Elements of a buffer, for each element of the call's count. */
static size_t blocks(const struct ncclComm *comm, bool of_all)
{
    return of_all ? (size_t)comm->size : 1;
}

static ncclResult_t check(const char *call, struct ncclComm *comm, const struct nccl_sim_task *task,
                          cudaStream_t stream)
{
    const struct nccl_sim_signature *signature = &task->signature;
    const int kind = signature->kind;
    const bool pair = kind == NCCL_SIM_SEND || kind == NCCL_SIM_RECV;
    const bool rooted = kind == NCCL_SIM_BROADCAST || kind == NCCL_SIM_REDUCE;
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)signature->type);
    if (!comm)
        return nccl_sim_fail(ncclInvalidArgument, "%s: comm is NULL", call);
    ncclResult_t result = nccl_sim_ready(call, comm);
    if (result != ncclSuccess)
        return result;
    if (comm->state != NCCL_SIM_READY)
        return nccl_sim_fail(ncclInvalidArgument, "%s: the communicator is finalized", call);
    if (bytes == 0)
        return nccl_sim_fail(ncclInvalidArgument, "%s : invalid type %d", call, signature->type);
    if (signature->op != -1 && (signature->op < ncclSum || signature->op > ncclAvg))
        return nccl_sim_fail(ncclInvalidArgument, "%s : invalid reduction operation %d", call,
                             signature->op);
    if (signature->op != -1 && !nccl_sim_reducible((ncclDataType_t)signature->type))
        return nccl_sim_fail(ncclInvalidArgument, "%s: float16 is not simulated", call);
    if ((rooted && (signature->root < 0 || signature->root >= comm->size)) ||
        (pair && (task->peer < 0 || task->peer >= comm->size)))
        return nccl_sim_fail(ncclInvalidArgument,
                             "%s : invalid root %d (root should be in the 0..%d range)", call,
                             rooted ? signature->root : task->peer, comm->size);
    if (sim_stream_device(stream) != comm->device)
        sim_report("%s: the stream is on device %d, the communicator on device %d", call,
                   sim_stream_device(stream), comm->device);
    if (signature->count == 0)
        return ncclSuccess;
    const bool sends =
        kind != NCCL_SIM_RECV && (kind != NCCL_SIM_BROADCAST || signature->root == comm->rank);
    const bool receives =
        kind != NCCL_SIM_SEND && (kind != NCCL_SIM_REDUCE || signature->root == comm->rank);
    if (sends)
        sim_check_pointer(call, "sendbuff", task->send,
                          signature->count * bytes * blocks(comm, kind == NCCL_SIM_REDUCE_SCATTER),
                          comm->device);
    if (receives)
        sim_check_pointer(call, "recvbuff", task->receive,
                          signature->count * bytes * blocks(comm, kind == NCCL_SIM_ALL_GATHER),
                          comm->device);
    return ncclSuccess;
}

static ncclResult_t enqueue(const char *call, struct ncclComm *comm, struct nccl_sim_task task,
                            cudaStream_t stream)
{
    int code = ncclSystemError;
    if (sim_fault(call, &code)) {
        if (group.depth > 0 && group.error == ncclSuccess)
            group.error = (ncclResult_t)code;
        return (ncclResult_t)code;
    }
    sim_lock();
    ncclResult_t result = check(call, comm, &task, stream);
    sim_unlock();
    if (result != ncclSuccess) {
        if (group.depth > 0 && group.error == ncclSuccess)
            group.error = result;
        return result;
    }
    if (task.signature.count == 0)
        return ncclSuccess;
    if (task.signature.kind == NCCL_SIM_REDUCE && task.signature.root != comm->rank)
        task.receive = NULL;
    batch_add(batch_of(comm), &task, stream);
    return group.depth > 0 ? ncclSuccess : group_end();
}

VISIBLE ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream)
{
    return enqueue("ncclAllReduce", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_ALL_REDUCE,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = (int32_t)op,
                                                        .root = -1},
                                          .send = send,
                                          .receive = receive},
                   stream);
}

VISIBLE ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count,
                                   ncclDataType_t type, int root, ncclComm_t comm,
                                   cudaStream_t stream)
{
    return enqueue("ncclBroadcast", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_BROADCAST,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = -1,
                                                        .root = root},
                                          .send = send,
                                          .receive = receive},
                   stream);
}

VISIBLE ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue("ncclReduce", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_REDUCE,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = (int32_t)op,
                                                        .root = root},
                                          .send = send,
                                          .receive = receive},
                   stream);
}

VISIBLE ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream)
{
    return enqueue("ncclReduceScatter", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_REDUCE_SCATTER,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = (int32_t)op,
                                                        .root = -1},
                                          .send = send,
                                          .receive = receive},
                   stream);
}

VISIBLE ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                                   ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue("ncclAllGather", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_ALL_GATHER,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = -1,
                                                        .root = -1},
                                          .send = send,
                                          .receive = receive},
                   stream);
}

/* DDP_CUDASIM_NCCL_LOG names a file that gets a line for each send: "FROM TO BYTES". */
static void log_send(const struct ncclComm *comm, int peer, size_t bytes)
{
    const char *name = getenv("DDP_CUDASIM_NCCL_LOG");
    FILE *file = name ? fopen(name, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%d %d %zu\n", comm->rank, peer, bytes);
    fclose(file);
}

VISIBLE ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                              ncclComm_t comm, cudaStream_t stream)
{
    log_send(comm, peer, count * nccl_sim_type_bytes(type));
    return enqueue("ncclSend", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_SEND,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = -1,
                                                        .root = -1},
                                          .peer = peer,
                                          .send = send},
                   stream);
}

VISIBLE ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer,
                              ncclComm_t comm, cudaStream_t stream)
{
    return enqueue("ncclRecv", comm,
                   (struct nccl_sim_task){.signature = {.kind = NCCL_SIM_RECV,
                                                        .count = count,
                                                        .type = (int32_t)type,
                                                        .op = -1,
                                                        .root = -1},
                                          .peer = peer,
                                          .receive = receive},
                   stream);
}
