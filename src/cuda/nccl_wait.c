/* SPDX-License-Identifier: MIT
 *
 * Waiting, finding out that something went wrong, and ending then; see nccl_state.h. */
#include "config.h"

#include "cuda/nccl_state.h"

#include "core/clock.h"
#include "core/futex.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPINS        64
#define NAP_FIRST_NS 10000
#define NAP_MOST_NS  1000000
#define ABORT_MS     10000 /* for NCCL to release the GPU */
#define CLOSE_MS     10000 /* for the others to release it, at the end */
#define NEWS_MS      1000  /* for the launcher to report a rank's death, which NCCL may see first */

static bool aborted(const struct nccl *nccl)
{
    return atomic_load_explicit(ddp_job_abort_word(nccl->place->job), memory_order_relaxed) != 0;
}

static void sleep_ns(int64_t ns)
{
    const struct timespec nap = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&nap, NULL);
}

/* --- the communicators of a device --- */

static pthread_mutex_t watched_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl *watched;

/* Communicators of one device belong to one thread; only the list is shared. */
static int watched_on(const void *device_state, struct nccl *found[DDP_ID_SLOTS])
{
    int count = 0;
    pthread_mutex_lock(&watched_lock);
    for (struct nccl *nccl = watched; nccl && count < DDP_ID_SLOTS; nccl = nccl->next)
        if (nccl->place->device_state == device_state)
            found[count++] = nccl;
    pthread_mutex_unlock(&watched_lock);
    return count;
}

/* --- ending --- */

/* ncclCommAbort() on a thread of its own, which may never return; the last user frees this. */
struct ending {
    ncclComm_t comm;
    int device;
    _Atomic uint32_t done, users;
};

static void let_go(struct ending *ending)
{
    if (atomic_fetch_sub(&ending->users, 1) == 1)
        free(ending);
}

static void *abort_comm(void *arg)
{
    struct ending *ending = arg;
    if (cudaSetDevice(ending->device) == cudaSuccess)
        (void)ncclCommAbort(ending->comm); /* it has failed already */
    atomic_store(&ending->done, 1);
    ddp_futex_wake(&ending->done);
    let_go(ending);
    return NULL;
}

static bool start_detached(struct ending *ending)
{
    pthread_t thread;
    if (ddp_thread_create(&thread, abort_comm, ending) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

/* NULL: it cannot be. */
static struct ending *start_abort(const struct nccl *nccl)
{
    struct ending *ending = ddp_array_alloc(1, sizeof *ending);
    if (!ending)
        return NULL;
    ending->comm = nccl->comm;
    ending->device = nccl->cuda->index;
    atomic_init(&ending->users, 2);
    if (start_detached(ending))
        return ending;
    free(ending);
    return NULL;
}

/* False: NCCL still holds on to it after a while. Takes NULL. */
static bool ends_in_time(struct ending *ending, int64_t deadline)
{
    if (!ending)
        return false;
    while (!atomic_load(&ending->done) && !ddp_deadline_passed(deadline))
        ddp_futex_wait(&ending->done, 0, 100000000);
    const bool done = atomic_load(&ending->done) != 0;
    let_go(ending);
    return done;
}

/* Together: to free memory waits for all that is on a device, and NCCL frees some of its own, so
 * that one may come to an end only with the others. */
static void abort_all(struct nccl *const *comms, int count)
{
    const int64_t deadline = ddp_deadline_ns(ABORT_MS);
    struct ending *endings[DDP_ID_SLOTS + 1];
    for (int i = 0; i < count; i++)
        endings[i] = comms[i]->comm ? start_abort(comms[i]) : NULL;
    for (int i = 0; i < count; i++) {
        if (comms[i]->comm && !ends_in_time(endings[i], deadline)) {
            comms[i]->stuck = true;
            ddp_log(DDP_LOG_WARNING, "NCCL does not release the GPU within %d s", ABORT_MS / 1000);
        }
        comms[i]->comm = NULL;
    }
}

static void mark_dead(struct nccl *nccl, enum ddp_status status)
{
    nccl->dead = status;
    if (nccl->waits)
        ddp_job_collective_wait(nccl->place->job, true); /* for the launcher to show */
}

/* Adds the device's others, which end likewise. */
static int add_others(struct nccl *comms[DDP_ID_SLOTS + 1], int count, const struct nccl *nccl)
{
    struct nccl *found[DDP_ID_SLOTS];
    const int watched_count = watched_on(nccl->place->device_state, found);
    for (int i = 0; i < watched_count; i++)
        if (found[i] != nccl && found[i]->dead == DDP_OK) {
            mark_dead(found[i], DDP_ERR_ABORTED);
            comms[count++] = found[i];
        }
    return count;
}

void nccl_leave_others(const struct nccl *nccl)
{
    struct nccl *comms[DDP_ID_SLOTS + 1];
    if (aborted(nccl))
        abort_all(comms, add_others(comms, 0, nccl));
}

enum ddp_status nccl_end(struct nccl *nccl, enum ddp_status status)
{
    struct nccl *comms[DDP_ID_SLOTS + 1] = {nccl};
    int count = 1;
    if (nccl->dead != DDP_OK)
        return nccl->dead;
    mark_dead(nccl, status);
    if (!nccl->closing) {
        ddp_job_abort(nccl->place->job);
        count = add_others(comms, count, nccl);
    }
    abort_all(comms, count);
    return status;
}

cudaError_t nccl_wait_others(struct nccl *nccl)
{
    struct nccl *found[DDP_ID_SLOTS];
    const int count = watched_on(nccl->place->device_state, found);
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < count && error == cudaSuccess; i++) {
        struct nccl *other = found[i];
        if (other != nccl && other->ordered && nccl_oldest(other))
            error = cudaStreamWaitEvent(nccl->own.stream,
                                        nccl_pending_at(other, other->last - 1)->end, 0);
    }
    return error;
}

bool nccl_quiesce(const struct nccl *nccl)
{
    const int64_t deadline = ddp_deadline_ns(CLOSE_MS);
    bool busy;
    while ((busy = nccl->own.stream && cudaStreamQuery(nccl->own.stream) == cudaErrorNotReady) &&
           !ddp_deadline_passed(deadline))
        sleep_ns(NAP_FIRST_NS);
    (void)cudaGetLastError();
    return !busy;
}

/* --- failures in words --- */

/* NCCL's last message, without the newline. */
static void last_words(const struct nccl *nccl, ncclResult_t result, char *text, size_t size)
{
    const char *words = ncclGetLastError(nccl->comm);
    while (words && (*words == '\n' || *words == ' '))
        words++;
    if (!words || !*words)
        words = ncclGetErrorString(result);
    snprintf(text, size, "%.*s", (int)strcspn(words, "\n"), words);
}

/* A rank that dies takes its connections along. What the launcher says of it is better than what
 * NCCL says of those. */
static bool aborted_soon(const struct nccl *nccl)
{
    const int64_t deadline = ddp_deadline_ns(NEWS_MS);
    while (!aborted(nccl) && !ddp_deadline_passed(deadline))
        sleep_ns(NAP_MOST_NS);
    return aborted(nccl);
}

static enum ddp_status fail_quietly(struct nccl *nccl)
{
    return nccl_end(nccl, DDP_ERR_ABORTED);
}

enum ddp_status nccl_failed(struct nccl *nccl, ncclResult_t result,
                            const struct ddp_comm_call *call)
{
    char text[400], what[96] = "between collectives";
    if (nccl->dead != DDP_OK)
        return nccl->dead;
    if (nccl->closing || aborted(nccl))
        return fail_quietly(nccl);
    if (ddp_ledger_compare(&nccl->ledger) != DDP_OK)
        return nccl_end(nccl, DDP_ERR_MISMATCH);
    last_words(nccl, result, text, sizeof text);
    if (strstr(text, "Duplicate GPU")) {
        ddp_log(DDP_LOG_ERROR,
                "NCCL: several workers share one GPU (%s): start no more workers than there are "
                "GPUs, or start them with ddprun --oversubscribe",
                text);
        return nccl_end(nccl, DDP_ERR_UNSUPPORTED);
    }
    if ((result == ncclRemoteError || result == ncclSystemError) && aborted_soon(nccl))
        return fail_quietly(nccl);
    if (call)
        ddp_comm_describe(nccl->place, call, what, sizeof what);
    ddp_log(DDP_LOG_ERROR, "NCCL: %s: %s: NCCL_DEBUG=INFO in the environment shows more", what,
            text);
    return nccl_end(nccl, DDP_ERR_SYSTEM);
}

enum ddp_status nccl_cuda_failed(struct nccl *nccl, cudaError_t error, const char *what)
{
    return nccl->dead != DDP_OK ? nccl->dead : nccl_end(nccl, ddp_cuda_failed(error, what));
}

enum ddp_status nccl_call_failed(struct nccl *nccl, cudaError_t error,
                                 const struct ddp_comm_call *call)
{
    char text[96];
    ddp_comm_describe(nccl->place, call, text, sizeof text);
    return nccl_cuda_failed(nccl, error, text);
}

/* How long a wait may last; -1: for ever. */
static int limit_ms(const struct nccl *nccl, const struct ddp_comm_call *call)
{
    const int most = nccl->place->timeout_ms;
    if (nccl->closing)
        return CLOSE_MS;
    return most < 0 && call->kind == DDP_COMM_CREATE ? NCCL_SETUP_MS : most;
}

static enum ddp_status too_late(struct nccl *nccl, const struct ddp_comm_call *call,
                                uint32_t number)
{
    char text[96], missing[160];
    if (nccl->closing)
        return fail_quietly(nccl);
    ddp_comm_describe(nccl->place, call, text, sizeof text);
    ddp_ledger_missing(&nccl->ledger, number, missing, sizeof missing);
    ddp_log(DDP_LOG_ERROR, "waited %d ms for the other ranks in NCCL's %s%s", limit_ms(nccl, call),
            text, missing);
    return nccl_end(nccl, DDP_ERR_TIMEOUT);
}

/* --- looking --- */

/* Writes to the board whether this rank waits for its device. Each time, because meanwhile the
 * board was told that the call has returned. */
static void show_waiting(struct nccl *nccl, bool waits)
{
    if (nccl->waits || waits)
        ddp_job_collective_wait(nccl->place->job, waits);
    nccl->waits = waits;
}

static cudaError_t query(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady)
        (void)cudaGetLastError(); /* or it would be taken for that of the next launch */
    return error;
}

/* Drops what is complete; the oldest of the others is watched. */
static enum ddp_status retire(struct nccl *nccl)
{
    struct nccl_pending *oldest;
    while ((oldest = nccl_oldest(nccl))) {
        cudaError_t error = query(oldest->end);
        if (error == cudaErrorNotReady && !oldest->begun_ns && query(oldest->begin) == cudaSuccess)
            oldest->begun_ns = ddp_clock_ns();
        if (error == cudaErrorNotReady)
            return DDP_OK;
        if (error != cudaSuccess)
            return nccl_call_failed(nccl, error, &oldest->call);
        nccl->first++;
    }
    return DDP_OK;
}

static enum ddp_status check_oldest(struct nccl *nccl)
{
    enum ddp_status status = retire(nccl);
    if (status != DDP_OK)
        return status;
    const struct nccl_pending *oldest = nccl_oldest(nccl);
    show_waiting(nccl, oldest && oldest->begun_ns);
    if (!oldest || !oldest->begun_ns)
        return DDP_OK;
    const int limit = limit_ms(nccl, &oldest->call);
    if (limit >= 0 && ddp_clock_ns() - oldest->begun_ns > (int64_t)limit * 1000000)
        return too_late(nccl, &oldest->call, oldest->number);
    return DDP_OK;
}

enum ddp_status nccl_check(struct nccl *nccl)
{
    ncclResult_t result = ncclSuccess;
    if (nccl->dead != DDP_OK)
        return nccl->dead;
    enum ddp_status status = ddp_ledger_compare(&nccl->ledger);
    if (status != DDP_OK)
        return nccl_end(nccl, status);
    if (aborted(nccl))
        return nccl_end(nccl, DDP_ERR_ABORTED);
    if (nccl->comm) {
        const ncclResult_t asked = ncclCommGetAsyncError(nccl->comm, &result);
        if (asked != ncclSuccess)
            result = asked;
    }
    if (result != ncclSuccess && result != ncclInProgress) {
        const struct nccl_pending *oldest = nccl_oldest(nccl);
        return nccl_failed(nccl, result, oldest ? &oldest->call : NULL);
    }
    return check_oldest(nccl);
}

/* --- waiting --- */

/* A wait of the host: nap() between two looks at what is waited for. */
struct nap {
    int64_t deadline_ns;
    int64_t nap_ns;
    int spins;
};

static struct nap nap_begin(int timeout_ms)
{
    return (struct nap){.deadline_ns = ddp_deadline_ns(timeout_ms), .nap_ns = NAP_FIRST_NS};
}

static enum ddp_status nap(struct nccl *nccl, struct nap *nap, const struct ddp_comm_call *call)
{
    enum ddp_status status = nccl_check(nccl);
    if (status != DDP_OK)
        return status;
    if (ddp_deadline_passed(nap->deadline_ns))
        return too_late(nccl, call, nccl->ledger.next - 1);
    if (nap->spins++ < SPINS) {
        ddp_cpu_relax();
        return DDP_OK;
    }
    sleep_ns(nap->nap_ns);
    if (nap->nap_ns < NAP_MOST_NS)
        nap->nap_ns *= 2;
    return DDP_OK;
}

enum ddp_status nccl_taken(struct nccl *nccl, ncclResult_t result, const struct ddp_comm_call *call)
{
    struct nap wait = nap_begin(limit_ms(nccl, call));
    while (result == ncclInProgress) {
        enum ddp_status status = nap(nccl, &wait, call);
        if (status != DDP_OK)
            return status;
        const ncclResult_t asked = ncclCommGetAsyncError(nccl->comm, &result);
        if (asked != ncclSuccess)
            result = asked;
    }
    return result == ncclSuccess ? DDP_OK : nccl_failed(nccl, result, call);
}

enum ddp_status nccl_wait_event(struct nccl *nccl, cudaEvent_t event,
                                const struct ddp_comm_call *call)
{
    /* What is on the stream has deadlines of its own, from when its turn comes. */
    struct nap wait = nap_begin(nccl->closing ? CLOSE_MS : -1);
    cudaError_t error;
    while ((error = query(event)) == cudaErrorNotReady) {
        enum ddp_status status = nap(nccl, &wait, call);
        if (status != DDP_OK)
            return status;
    }
    return error == cudaSuccess ? DDP_OK : nccl_call_failed(nccl, error, call);
}

enum ddp_status nccl_drain(struct nccl *nccl, const struct ddp_comm_call *call)
{
    while (nccl_oldest(nccl)) {
        enum ddp_status status = nccl_wait_event(nccl, nccl_oldest(nccl)->end, call);
        if (status == DDP_OK)
            status = retire(nccl);
        if (status != DDP_OK)
            return status;
    }
    show_waiting(nccl, false);
    enum ddp_status status = ddp_ledger_compare(&nccl->ledger);
    return status == DDP_OK ? DDP_OK : nccl_end(nccl, status);
}

/* --- polling --- */

static enum ddp_status poll_device(void *device_state)
{
    struct nccl *found[DDP_ID_SLOTS];
    const int count = watched_on(device_state, found);
    for (int i = 0; i < count; i++) {
        enum ddp_status status = nccl_check(found[i]);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

void nccl_watch(struct nccl *nccl)
{
    pthread_mutex_lock(&watched_lock);
    nccl->next = watched;
    watched = nccl;
    pthread_mutex_unlock(&watched_lock);
    ddp_device_cuda.set_poll(nccl->place->device_state, poll_device, nccl->place->device_state);
}

void nccl_unwatch(struct nccl *nccl)
{
    struct nccl *found[DDP_ID_SLOTS];
    pthread_mutex_lock(&watched_lock);
    for (struct nccl **link = &watched; *link; link = &(*link)->next)
        if (*link == nccl) {
            *link = nccl->next;
            break;
        }
    pthread_mutex_unlock(&watched_lock);
    if (watched_on(nccl->place->device_state, found) == 0)
        ddp_device_cuda.set_poll(nccl->place->device_state, NULL, NULL);
}
