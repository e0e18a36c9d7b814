/* SPDX-License-Identifier: MIT
 *
 * Announcing and waiting; see shm.h. */
#include "config.h"

#include "comm/shm.h"

#include "core/clock.h"
#include "core/futex.h"
#include "core/log.h"
#include "core/trace.h"

#include <inttypes.h>
#include <string.h>

#define NAP_NS 20000000 /* how late an abort or a deadline can be noticed */

static bool reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}

/* Sleeps until the word of `peer` reaches the target. */
static enum ddp_status sleep_until(struct shm *shm, int peer, _Atomic uint32_t *word,
                                   uint32_t target)
{
    const _Atomic uint32_t *abort_word = ddp_job_abort_word(shm->place->job);
    const int64_t deadline = ddp_deadline_ns(shm->place->timeout_ms);
    struct shm_line *line = &shm->lines[peer];
    for (;;) {
        if (atomic_load_explicit(abort_word, memory_order_relaxed))
            return DDP_ERR_ABORTED;
        if (ddp_deadline_passed(deadline))
            return ddp_fail(DDP_ERR_TIMEOUT, "waited %d ms for rank %d in a collective",
                            shm->place->timeout_ms, peer);
        atomic_fetch_add(&line->sleepers, 1);
        uint32_t value = atomic_load(word);
        if (!reached(value, target))
            ddp_futex_wait(word, value, NAP_NS);
        atomic_fetch_sub(&line->sleepers, 1);
        if (reached(atomic_load_explicit(word, memory_order_acquire), target))
            return DDP_OK;
    }
}

static enum ddp_status wait_until(struct shm *shm, int peer, _Atomic uint32_t *word,
                                  uint32_t target)
{
    if (reached(atomic_load_explicit(word, memory_order_acquire), target))
        return DDP_OK;
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = DDP_OK;
    bool done = false;
    for (int i = 0; i < shm->spins && !done; i++) {
        ddp_cpu_relax();
        done = reached(atomic_load_explicit(word, memory_order_acquire), target);
    }
    if (!done)
        status = sleep_until(shm, peer, word, target);
    ddp_trace_end("wait", begin, "for rank", peer);
    return status;
}

/* Stores a word of this rank's line and wakes who sleeps on it. The store and the load of
 * `sleepers` are both sequentially consistent, as are their counterparts in sleep_until(): one side
 * sees the other. */
static void publish(struct shm *shm, _Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    if (atomic_load(&shm->lines[shm->place->rank].sleepers))
        ddp_futex_wake(word);
}

static struct shm_entry *entry(const struct shm *shm, int rank, uint32_t number)
{
    return &shm->lines[rank].ring[number % SHM_RING];
}

uint32_t shm_post(struct shm *shm, const struct shm_call *call, uint64_t offset,
                  const void *payload, size_t payload_bytes)
{
    const uint32_t number = shm->next++;
    struct shm_entry *mine = entry(shm, shm->place->rank, number);
    mine->call = *call;
    mine->offset = offset;
    if (payload_bytes > 0)
        memcpy(mine->payload, payload, payload_bytes);
    publish(shm, &mine->sequence, number + 1);
    return number;
}

const struct shm_entry *shm_entry_of(const struct shm *shm, int rank, uint32_t number)
{
    return entry(shm, rank, number);
}

static void describe(const struct shm_call *call, char *text, size_t size)
{
    static const char *const kinds[] = {"all-reduce",
                                        "all-reduce (started)",
                                        "reduce-scatter",
                                        "all-gather",
                                        "broadcast",
                                        "barrier",
                                        "alloc",
                                        "free",
                                        "reduce-scatter (started)",
                                        "all-gather of slices",
                                        "alloc of shared memory",
                                        "exchange"};
    static const char *const dtypes[] = {"f32", "f64", "i32", "i64", "bf16"};
    static const char *const ops[] = {"sum", "min", "max"};
    const char *kind = call->kind <= SHM_EXCHANGE ? kinds[call->kind] : "an unknown collective";
    const char *dtype = call->dtype <= DDP_BF16 ? dtypes[call->dtype] : "?";
    const char *op = call->op <= DDP_MAX ? ops[call->op] : "?";
    if (call->kind == SHM_BARRIER || call->kind == SHM_FREE)
        snprintf(text, size, "%s", kind);
    else if (call->kind == SHM_ALLOC || call->kind == SHM_ALLOC_SHARED ||
             call->kind == SHM_EXCHANGE)
        snprintf(text, size, "%s of %" PRIu64 " bytes", kind, call->count);
    else if (call->kind == SHM_BROADCAST)
        snprintf(text, size, "%s of %" PRIu64 " %s from rank %d", kind, call->count, dtype,
                 call->root);
    else if (call->kind == SHM_ALL_GATHER || call->kind == SHM_GATHER_SLICES)
        snprintf(text, size, "%s of %" PRIu64 " %s", kind, call->count, dtype);
    else
        snprintf(text, size, "%s (%s) of %" PRIu64 " %s", kind, op, call->count, dtype);
}

static enum ddp_status compare(const struct shm *shm, int peer, uint32_t number,
                               const struct shm_call *call)
{
    const struct shm_call *theirs = &entry(shm, peer, number)->call;
    if (memcmp(theirs, call, sizeof *call) == 0)
        return DDP_OK;
    char here[96], there[96];
    describe(call, here, sizeof here);
    describe(theirs, there, sizeof there);
    return ddp_fail(DDP_ERR_MISMATCH, "collective %" PRIu32 ": rank %d calls %s, rank %d %s",
                    number, shm->place->rank, here, peer, there);
}

enum ddp_status shm_gather(struct shm *shm, uint32_t number, const struct shm_call *call)
{
    for (int i = 1; i < shm->place->size; i++) {
        const int peer = (shm->place->rank + i) % shm->place->size;
        enum ddp_status status =
            wait_until(shm, peer, &entry(shm, peer, number)->sequence, number + 1);
        if (status == DDP_OK)
            status = compare(shm, peer, number, call);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

enum ddp_status shm_try_gather(struct shm *shm, uint32_t number, const struct shm_call *call,
                               bool *all)
{
    *all = false;
    for (int peer = 0; peer < shm->place->size; peer++)
        if (!reached(
                atomic_load_explicit(&entry(shm, peer, number)->sequence, memory_order_acquire),
                number + 1))
            return DDP_OK;
    for (int peer = 0; peer < shm->place->size; peer++) {
        enum ddp_status status = compare(shm, peer, number, call);
        if (status != DDP_OK)
            return status;
    }
    *all = true;
    return DDP_OK;
}

void shm_done(struct shm *shm, uint32_t number)
{
    publish(shm, &shm->lines[shm->place->rank].done, number + 1);
}

enum ddp_status shm_wait_done(struct shm *shm, uint32_t number)
{
    for (int i = 1; i < shm->place->size; i++) {
        const int peer = (shm->place->rank + i) % shm->place->size;
        enum ddp_status status = wait_until(shm, peer, &shm->lines[peer].done, number + 1);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

bool shm_all_done(const struct shm *shm, uint32_t number)
{
    for (int peer = 0; peer < shm->place->size; peer++)
        if (!reached(atomic_load_explicit(&shm->lines[peer].done, memory_order_acquire),
                     number + 1))
            return false;
    return true;
}
