/* SPDX-License-Identifier: MIT
 *
 * The collectives of the simulated NCCL as they run: state machines that go on as far as the other
 * ranks let them and never wait. A collective goes in rounds: each rank posts what it contributes
 * to its slot of the round, and takes the others' when all have posted; a slot is used again two
 * rounds later, when all have taken. Signatures are compared in every round. */
#include "config.h"

#include "tests/cudasim/nccl_sim.h"

#include "tests/cudasim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"AllReduce", "Broadcast", "Reduce", "ReduceScatter",
                                         "AllGather", "Send",      "Recv"};

static void describe(char *text, size_t bytes, const struct nccl_sim_signature *signature)
{
    static const char *const types[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                        "uint64", "float16", "float32", "float64", "bfloat16"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};
    const int32_t kind = signature->kind, type = signature->type;
    int length = snprintf(text, bytes, "%s(count %llu, %s",
                          kind >= 0 && kind <= NCCL_SIM_RECV ? kind_names[kind] : "?",
                          (unsigned long long)signature->count,
                          type >= 0 && type <= ncclBfloat16 ? types[type] : "?");
    if (signature->op >= 0 && signature->op < 5 && length > 0 && (size_t)length < bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", %s", ops[signature->op]);
    if (signature->root >= 0 && length > 0 && (size_t)length < bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", root %d", signature->root);
    if (length > 0 && (size_t)length < bytes)
        snprintf(text + length, bytes - (size_t)length, ")");
}

static void mismatch(struct ncclComm *comm, const struct nccl_sim_signature *own, int other,
                     const struct nccl_sim_signature *others)
{
    char mine[160], theirs[160];
    describe(mine, sizeof mine, own);
    describe(theirs, sizeof theirs, others);
    comm->error = nccl_sim_fail(ncclInvalidUsage,
                                "collective %llu: rank %d calls %s, rank %d calls %s: a GPU would "
                                "hang",
                                (unsigned long long)own->number, comm->rank, mine, other, theirs);
}

static bool alike(const struct nccl_sim_signature *a, const struct nccl_sim_signature *b)
{
    return a->kind == b->kind && a->count == b->count && a->type == b->type && a->op == b->op &&
           a->root == b->root && a->number == b->number;
}

/* --- collectives --- */
/* Parts of a call that one round carries: ReduceScatter posts a block for each rank. */
static size_t blocks_posted(const struct ncclComm *comm, const struct nccl_sim_task *task)
{
    return task->signature.kind == NCCL_SIM_REDUCE_SCATTER ? (size_t)comm->size : 1;
}

static size_t round_elements(const struct ncclComm *comm, const struct nccl_sim_task *task)
{
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)task->signature.type);
    size_t most = NCCL_SIM_SLOT_BYTES / blocks_posted(comm, task) / bytes / 16 * 16;
    const uint64_t left = task->signature.count - task->done;
    return left < most ? (size_t)left : most;
}

static bool may_post(const struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (atomic_load_explicit(&nccl_sim_rank(comm, rank)->taken, memory_order_acquire) + 1 <
            comm->round)
            return false;
    return true;
}

static bool may_take(const struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (atomic_load_explicit(&nccl_sim_rank(comm, rank)->posted, memory_order_acquire) <=
            comm->round)
            return false;
    return true;
}

static void post(struct ncclComm *comm, struct nccl_sim_task *task)
{
    struct nccl_sim_rank *own = nccl_sim_rank(comm, comm->rank);
    const struct nccl_sim_signature *signature = &task->signature;
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)signature->type);
    const size_t length = round_elements(comm, task) * bytes, offset = task->done * bytes;
    char *slot = nccl_sim_slot(comm, comm->rank, comm->round);
    if (signature->kind != NCCL_SIM_BROADCAST || signature->root == comm->rank)
        for (size_t block = 0; block < blocks_posted(comm, task); block++)
            memcpy(slot + block * length,
                   (const char *)task->send + block * signature->count * bytes + offset, length);
    own->signature[comm->round % 2] = *signature;
    atomic_store_explicit(&own->posted, comm->round + 1, memory_order_release);
    task->posted = true;
}

static bool permuted_order(void)
{
    const char *order = getenv("DDP_CUDASIM_NCCL_ORDER");
    return order && strcmp(order, "permuted") == 0;
}

/* Reduces block `block` of everybody's slot. All ranks take the same order. */
static void reduce_slots(const struct ncclComm *comm, const struct nccl_sim_task *task,
                         size_t block, void *out, size_t count)
{
    const void *sources[NCCL_SIM_MAX_RANKS];
    const size_t bytes = count * nccl_sim_type_bytes((ncclDataType_t)task->signature.type);
    const int first =
        permuted_order() ? (int)((comm->round + task->signature.number) % (uint64_t)comm->size) : 0;
    for (int i = 0; i < comm->size; i++)
        sources[i] = nccl_sim_slot(comm, (first + i) % comm->size, comm->round) + block * bytes;
    sim_writes(out, bytes);
    nccl_sim_reduce(out, sources, comm->size, count, (ncclDataType_t)task->signature.type,
                    (ncclRedOp_t)task->signature.op);
}

static void take(struct ncclComm *comm, struct nccl_sim_task *task)
{
    const struct nccl_sim_signature *signature = &task->signature;
    const size_t count = round_elements(comm, task);
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)signature->type);
    char *out = (char *)task->receive + task->done * bytes;
    switch (signature->kind) {
    case NCCL_SIM_REDUCE:
        if (signature->root != comm->rank)
            break;
        /* fall through */
    case NCCL_SIM_ALL_REDUCE:
        reduce_slots(comm, task, 0, out, count);
        break;
    case NCCL_SIM_REDUCE_SCATTER:
        reduce_slots(comm, task, (size_t)comm->rank, out, count);
        break;
    case NCCL_SIM_BROADCAST:
        memcpy(out, nccl_sim_slot(comm, signature->root, comm->round), count * bytes);
        break;
    default: /* AllGather */
        for (int rank = 0; rank < comm->size; rank++)
            memcpy(out + (size_t)rank * signature->count * bytes,
                   nccl_sim_slot(comm, rank, comm->round), count * bytes);
    }
    task->done += count;
    task->posted = false;
    comm->round++;
    atomic_store_explicit(&nccl_sim_rank(comm, comm->rank)->taken, comm->round,
                          memory_order_release);
}

/* false: it cannot go on now (or the communicator has met an error). */
static bool step_collective(struct ncclComm *comm, struct nccl_sim_task *task)
{
    if (!task->posted) {
        if (!may_post(comm))
            return false;
        if (task->signature.number == 0)
            task->signature.number = ++comm->collectives;
        post(comm, task);
    }
    if (!may_take(comm))
        return false;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct nccl_sim_signature *other =
            &nccl_sim_rank(comm, rank)->signature[comm->round % 2];
        if (!alike(&task->signature, other)) {
            mismatch(comm, &task->signature, rank, other);
            return false;
        }
    }
    take(comm, task);
    task->finished = task->done == task->signature.count;
    return true;
}

/* --- send and receive --- */
static size_t pair_elements(const struct nccl_sim_task *task)
{
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)task->signature.type);
    const uint64_t left = task->signature.count - task->done;
    return left < NCCL_SIM_PAIR_BYTES / bytes ? (size_t)left : NCCL_SIM_PAIR_BYTES / bytes;
}

static bool step_send(struct ncclComm *comm, struct nccl_sim_task *task)
{
    struct nccl_sim_pair *pair = nccl_sim_pair(comm, comm->rank, task->peer);
    uint64_t *round = &comm->sent[task->peer];
    if (atomic_load_explicit(&pair->refused, memory_order_acquire)) {
        mismatch(comm, &task->signature, task->peer, &pair->expected);
        return false;
    }
    const uint64_t taken = atomic_load_explicit(&pair->taken, memory_order_acquire);
    if (task->done == task->signature.count) { /* ends when the receiver has everything */
        task->finished = taken == *round;
        return task->finished;
    }
    if (taken + 1 < *round)
        return false;
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)task->signature.type);
    const size_t count = pair_elements(task);
    memcpy(nccl_sim_pair_slot(comm, comm->rank, task->peer, *round),
           (const char *)task->send + task->done * bytes, count * bytes);
    pair->sent[*round % 2] = task->signature;
    task->done += count;
    atomic_store_explicit(&pair->posted, ++*round, memory_order_release);
    return true;
}

static bool step_receive(struct ncclComm *comm, struct nccl_sim_task *task)
{
    struct nccl_sim_pair *pair = nccl_sim_pair(comm, task->peer, comm->rank);
    uint64_t *round = &comm->received[task->peer];
    if (atomic_load_explicit(&pair->posted, memory_order_acquire) <= *round)
        return false;
    const struct nccl_sim_signature *sent = &pair->sent[*round % 2];
    if (sent->count != task->signature.count || sent->type != task->signature.type) {
        mismatch(comm, &task->signature, task->peer, sent);
        pair->expected = task->signature;
        atomic_store_explicit(&pair->refused, 1, memory_order_release);
        return false;
    }
    const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)task->signature.type);
    const size_t count = pair_elements(task);
    memcpy((char *)task->receive + task->done * bytes,
           nccl_sim_pair_slot(comm, task->peer, comm->rank, *round), count * bytes);
    task->done += count;
    atomic_store_explicit(&pair->taken, ++*round, memory_order_release);
    task->finished = task->done == task->signature.count;
    return true;
}

/* --- batches --- */
static bool is_pair(const struct nccl_sim_task *task)
{
    return task->signature.kind == NCCL_SIM_SEND || task->signature.kind == NCCL_SIM_RECV;
}

/* An earlier call of the same direction with the same peer goes first. */
static bool is_next(const struct nccl_sim_batch *batch, size_t index)
{
    const struct nccl_sim_task *task = &batch->tasks[index];
    for (size_t i = 0; i < index; i++) {
        const struct nccl_sim_task *other = &batch->tasks[i];
        if (!other->finished && is_pair(other) && other->peer == task->peer &&
            other->signature.kind == task->signature.kind)
            return false;
    }
    return true;
}

/* As far as it goes: sends and receives side by side, collectives one after another. */
static bool progress(struct nccl_sim_batch *batch)
{
    struct ncclComm *comm = batch->comm;
    for (;;) {
        bool moved = false, complete = true, collective = false;
        for (size_t i = 0; i < batch->count && comm->error == ncclSuccess; i++) {
            struct nccl_sim_task *task = &batch->tasks[i];
            if (task->finished)
                continue;
            if (!is_pair(task) && !collective) {
                collective = true;
                moved |= step_collective(comm, task);
            } else if (is_pair(task) && is_next(batch, i)) {
                moved |= task->signature.kind == NCCL_SIM_SEND ? step_send(comm, task)
                                                               : step_receive(comm, task);
            }
            complete &= task->finished;
        }
        if (complete || comm->error != ncclSuccess)
            return true;
        if (!moved)
            return false;
    }
}

static void start(struct nccl_sim_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct nccl_sim_task *task = &batch->tasks[i];
        task->done = 0;
        task->signature.number = 0;
        task->posted = task->finished = false;
    }
    batch->complete = false;
}

/* What nobody has summed must not look like a result. */
static void spoil(const struct nccl_sim_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct nccl_sim_task *task = &batch->tasks[i];
        const size_t bytes = nccl_sim_type_bytes((ncclDataType_t)task->signature.type);
        if (task->receive && !task->finished)
            memset(task->receive, 0xff, task->signature.count * bytes);
    }
}

static void drop(struct nccl_sim_batch *batch)
{
    struct ncclComm *comm = batch->comm;
    if (--batch->references == 0 && !batch->captured)
        nccl_sim_batch_free(batch);
    nccl_sim_release(comm);
}

cudaError_t nccl_sim_run(void *args)
{
    struct nccl_sim_operation *operation = args;
    struct nccl_sim_batch *batch = operation->batch;
    struct ncclComm *comm = batch->comm;
    if (batch->captured && !operation->started && comm->state == NCCL_SIM_GONE)
        sim_report("a graph with NCCL's collectives is launched after their communicator is gone");
    if (!comm->aborted && comm->error == ncclSuccess) {
        if (batch->captured && operation->ticket == 0) {
            operation->ticket = ++comm->issued;
            comm->outstanding++;
        }
        if (batch->gates_arrived < batch->gates || comm->served + 1 != operation->ticket)
            return cudaErrorNotReady;
        if (!operation->started && !nccl_sim_may_begin(batch))
            return cudaErrorNotReady;
        if (!operation->started)
            start(batch);
        operation->started = true;
        if (!progress(batch))
            return cudaErrorNotReady;
    }
    if (comm->error != ncclSuccess && !comm->aborted)
        spoil(batch);
    nccl_sim_skip(batch); /* which it has not begun if the communicator has failed */
    nccl_sim_ended(batch);
    comm->served++;
    if (!batch->captured || operation->ticket != 0)
        comm->outstanding--;
    batch->complete = true;
    if (!batch->captured)
        drop(batch);
    else
        nccl_sim_release(comm);
    return cudaSuccess;
}

/* Another stream of the same group: the batch waits for it, and it for the batch. */
cudaError_t nccl_sim_gate(void *args)
{
    struct nccl_sim_operation *operation = args;
    struct nccl_sim_batch *batch = operation->batch;
    if (!operation->arrived)
        batch->gates_arrived++;
    operation->arrived = true;
    if (!batch->complete && !batch->comm->aborted)
        return cudaErrorNotReady;
    drop(batch);
    return cudaSuccess;
}
