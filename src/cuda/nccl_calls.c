/* SPDX-License-Identifier: MIT
 *
 * What all ranks call, in a page of the job's heap; see nccl_state.h. Each rank writes its own line
 * and reads the others'. A rank may run far ahead of the others, and then overwrites what it called
 * a while ago: that is not compared any more, NCCL's own hang and a deadline remain. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define RING  256
#define WORDS (sizeof(struct nccl_call) / sizeof(uint64_t))

struct entry {
    _Atomic uint32_t sequence; /* number of the call + 1; 0 while it is written */
    _Atomic uint64_t words[WORDS];
};

struct line {
    _Alignas(64) _Atomic uint32_t called; /* calls so far */
    struct entry ring[RING];
};

struct nccl_calls {
    struct line line;
};

static struct line *line_of(const struct nccl *nccl, int rank)
{
    return &nccl->calls[rank].line;
}

static size_t page_bytes(int size)
{
    return ddp_align_up((size_t)size * sizeof(struct nccl_calls), DDP_PAGE);
}

enum ddp_status nccl_calls_make(struct nccl *nccl, uint64_t *offset)
{
    const struct ddp_comm_place *place = nccl->place;
    const int heap = ddp_job_heap_fd(place->job);
    const size_t bytes = page_bytes(place->size);
    *offset = UINT64_MAX;
    if (heap < 0)
        return DDP_OK;
    enum ddp_status status = ddp_job_heap_reserve(place->job, bytes, offset);
    if (status == DDP_OK && fallocate(heap, 0, (off_t)*offset, (off_t)bytes) < 0)
        status = ddp_fail(DDP_ERR_MEMORY, "shared memory: cannot allocate %zu bytes: %s", bytes,
                          strerror(errno));
    return status;
}

enum ddp_status nccl_calls_map(struct nccl *nccl, uint64_t offset)
{
    const struct ddp_comm_place *place = nccl->place;
    const size_t bytes = page_bytes(place->size);
    if (offset == UINT64_MAX)
        return DDP_OK;
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                         ddp_job_heap_fd(place->job), (off_t)offset);
    if (mapping == MAP_FAILED)
        return ddp_fail(DDP_ERR_SYSTEM, "shared memory: cannot map %zu bytes: %s", bytes,
                        strerror(errno));
    nccl->calls = mapping;
    nccl->calls_bytes = bytes;
    return DDP_OK;
}

void nccl_calls_unmap(struct nccl *nccl)
{
    if (nccl->calls)
        munmap(nccl->calls, nccl->calls_bytes);
    nccl->calls = NULL;
}

uint32_t nccl_calls_post(struct nccl *nccl, const struct nccl_call *call)
{
    const uint32_t number = nccl->called++;
    uint64_t words[WORDS];
    if (!nccl->calls)
        return number;
    struct line *line = line_of(nccl, nccl->place->rank);
    struct entry *entry = &line->ring[number % RING];
    memcpy(words, call, sizeof *call);
    atomic_store_explicit(&entry->sequence, 0, memory_order_relaxed);
    for (size_t i = 0; i < WORDS; i++)
        atomic_store_explicit(&entry->words[i], words[i], memory_order_release);
    atomic_store_explicit(&entry->sequence, number + 1, memory_order_release);
    atomic_store_explicit(&line->called, number + 1, memory_order_release);
    return number;
}

static bool has_called(const struct nccl *nccl, int rank, uint32_t number)
{
    const uint32_t called =
        atomic_load_explicit(&line_of(nccl, rank)->called, memory_order_acquire);
    return (int32_t)(called - number) > 0;
}

/* False when the rank has overwritten it. */
static bool read_call(const struct nccl *nccl, int rank, uint32_t number, struct nccl_call *call)
{
    struct entry *entry = &line_of(nccl, rank)->ring[number % RING];
    uint64_t words[WORDS];
    if (atomic_load_explicit(&entry->sequence, memory_order_acquire) != number + 1)
        return false;
    for (size_t i = 0; i < WORDS; i++)
        words[i] = atomic_load_explicit(&entry->words[i], memory_order_acquire);
    if (atomic_load_explicit(&entry->sequence, memory_order_relaxed) != number + 1)
        return false;
    memcpy(call, words, sizeof *call);
    return true;
}

void nccl_describe(const struct nccl_call *call, char *text, size_t size)
{
    static const char *const kinds[] = {
        [NCCL_CREATE] = "set-up",
        [NCCL_ALLREDUCE] = "all-reduce",
        [NCCL_ALLREDUCE_STARTED] = "all-reduce (started)",
        [NCCL_REDUCE_SCATTER] = "reduce-scatter",
        [NCCL_SLICES_STARTED] = "reduce-scatter (started)",
        [NCCL_ALL_GATHER] = "all-gather",
        [NCCL_GATHER_SLICES] = "all-gather of slices",
        [NCCL_BROADCAST] = "broadcast",
        [NCCL_BARRIER] = "barrier",
        [NCCL_ALLOC] = "alloc",
        [NCCL_FREE] = "free",
        [NCCL_DESTROY] = "end",
    };
    static const char *const dtypes[] = {"f32", "f64", "i32", "i64", "bf16"};
    static const char *const ops[] = {"sum", "min", "max"};
    const char *kind = call->kind <= NCCL_DESTROY ? kinds[call->kind] : "an unknown collective";
    const char *dtype = call->dtype <= DDP_BF16 ? dtypes[call->dtype] : "?";
    const char *op = call->op <= DDP_MAX ? ops[call->op] : "?";
    switch (call->kind) {
    case NCCL_CREATE:
    case NCCL_BARRIER:
    case NCCL_FREE:
    case NCCL_DESTROY:
        snprintf(text, size, "%s", kind);
        break;
    case NCCL_ALLOC:
        snprintf(text, size, "%s of %" PRIu64 " bytes", kind, call->count);
        break;
    case NCCL_BROADCAST:
        snprintf(text, size, "%s of %" PRIu64 " %s from rank %d", kind, call->count, dtype,
                 call->root);
        break;
    case NCCL_ALL_GATHER:
    case NCCL_GATHER_SLICES:
        snprintf(text, size, "%s of %" PRIu64 " %s", kind, call->count, dtype);
        break;
    default:
        snprintf(text, size, "%s (%s%s) of %" PRIu64 " %s", kind, op, call->fast ? ", fast" : "",
                 call->count, dtype);
    }
}

static enum ddp_status mismatch(const struct nccl *nccl, uint32_t number, int peer,
                                const struct nccl_call *mine, const struct nccl_call *theirs)
{
    char here[96], there[96];
    nccl_describe(mine, here, sizeof here);
    nccl_describe(theirs, there, sizeof there);
    return ddp_fail(DDP_ERR_MISMATCH, "NCCL collective %" PRIu32 ": rank %d calls %s, rank %d %s",
                    number, nccl->place->rank, here, peer, there);
}

/* Compares with the ranks that have called it; *all [out]: these are all ranks. */
static enum ddp_status compare_one(const struct nccl *nccl, uint32_t number, bool *all)
{
    struct nccl_call mine, theirs;
    const bool known = read_call(nccl, nccl->place->rank, number, &mine);
    *all = true;
    for (int r = 0; r < nccl->place->size; r++) {
        if (!has_called(nccl, r, number))
            *all = false;
        else if (known && read_call(nccl, r, number, &theirs) &&
                 memcmp(&mine, &theirs, sizeof mine) != 0)
            return mismatch(nccl, number, r, &mine, &theirs);
    }
    return DDP_OK;
}

enum ddp_status nccl_calls_compare(struct nccl *nccl)
{
    for (bool all = true; nccl->calls && nccl->compared != nccl->called; nccl->compared++) {
        enum ddp_status status = compare_one(nccl, nccl->compared, &all);
        if (status != DDP_OK || !all)
            return status;
    }
    return DDP_OK;
}

void nccl_calls_missing(const struct nccl *nccl, uint32_t number, char *text, size_t size)
{
    size_t used = 0;
    int count = 0;
    char ranks[100] = "";
    for (int r = 0; nccl->calls && r < nccl->place->size; r++)
        if (!has_called(nccl, r, number) && count++ < 16)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, " %d", r);
    if (count == 0)
        snprintf(text, size, "%s", "");
    else
        snprintf(text, size, ": rank%s%s%s not arrived", count == 1 ? "" : "s", ranks,
                 count > 16  ? " ... have"
                 : count > 1 ? " have"
                             : " has");
}
