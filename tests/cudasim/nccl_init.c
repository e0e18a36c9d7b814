/* SPDX-License-Identifier: MIT
 *
 * The life of a simulated NCCL communicator: ids, joining, errors, the end. */
#include "config.h"

#include "tests/cudasim/nccl_sim.h"

#include "tests/cudasim/internal.h"
#include "tests/cudasim/sim.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

enum {
    CONFIG_MAGIC = 0xcafebeef,
    PATIENCE = 1, /* polls that still find a non-blocking call in progress */
    WAIT_NANOSECONDS = 100000,
};

static char last_error[512];
static struct ncclComm
    *comms; /* all that ever were: their structs stay, to tell who uses them late */

ncclResult_t nccl_sim_fail(ncclResult_t result, const char *format, ...)
{
    va_list args;
    sim_lock();
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    fprintf(stderr, "cudasim: NCCL: %s\n", last_error);
    sim_unlock();
    return result;
}

VISIBLE const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

VISIBLE const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

VISIBLE ncclResult_t ncclGetVersion(int *version)
{
    int code = ncclSystemError;
    if (sim_fault("ncclGetVersion", &code))
        return (ncclResult_t)code;
    if (!version)
        return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

VISIBLE ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int code = ncclSystemError;
    if (sim_fault("ncclGetUniqueId", &code))
        return (ncclResult_t)code;
    return id ? nccl_sim_id_create(id) : ncclInvalidArgument;
}

/* --- memory --- */
VISIBLE ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    int code = ncclUnhandledCudaError, device;
    if (sim_fault("ncclMemAlloc", &code))
        return (ncclResult_t)code;
    if (!memory)
        return ncclInvalidArgument;
    if (cudaGetDevice(&device) != cudaSuccess || sim_malloc(memory, bytes, device) != cudaSuccess)
        return nccl_sim_fail(ncclUnhandledCudaError, "ncclMemAlloc: %zu bytes: out of memory",
                             bytes);
    return ncclSuccess;
}

VISIBLE ncclResult_t ncclMemFree(void *memory)
{
    return sim_free(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* --- joining --- */
void nccl_sim_check_comm(const char *call, const struct ncclComm *comm)
{
    const struct ncclComm *known = comms;
    while (known && known != comm)
        known = known->next;
    if (!known)
        sim_report("%s: not a communicator", call);
    if (known->state == NCCL_SIM_GONE)
        sim_report("%s: the communicator has been %s", call,
                   known->aborted ? "aborted" : "destroyed");
}

/* Which machine this is: NCCL takes ranks with different names for ranks of different hosts. Read
 * once in a process, as NCCL does. */
static uint64_t host_of_process(void)
{
    static uint64_t host;
    char name[256] = "";
    const char *id = getenv("NCCL_HOSTID");
    if (host)
        return host;
    if (!id) {
        gethostname(name, sizeof name - 1);
        id = name;
    }
    for (host = 5381; *id; id++)
        host = host * 33 + (unsigned char)*id;
    return host;
}

static ncclResult_t join(struct ncclComm *comm)
{
    ncclResult_t result = nccl_sim_attach(comm);
    if (result != ncclSuccess)
        return result;
    struct nccl_sim_rank *own = nccl_sim_rank(comm, comm->rank);
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&own->joined, &none, 1))
        return nccl_sim_fail(ncclInvalidUsage, "rank %d has come twice", comm->rank);
    own->device = comm->device;
    own->pid = getpid();
    own->host = host_of_process();
    snprintf(own->bus, sizeof own->bus, "0000:%02x:00.0", sim_settings.physical[comm->device] + 1);
    atomic_store_explicit(&own->joined, 2, memory_order_release);
    return ncclSuccess;
}

static bool all_joined(const struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (atomic_load_explicit(&nccl_sim_rank(comm, rank)->joined, memory_order_acquire) != 2)
            return false;
    return true;
}

/* Each rank finds the same. */
static ncclResult_t check_devices(const struct ncclComm *comm)
{
    for (int a = 0; a < comm->size; a++)
        for (int b = a + 1; b < comm->size; b++) {
            const struct nccl_sim_rank *first = nccl_sim_rank(comm, a);
            const struct nccl_sim_rank *second = nccl_sim_rank(comm, b);
            if (first->host == second->host && strcmp(first->bus, second->bus) == 0)
                return nccl_sim_fail(ncclInvalidUsage,
                                     "Duplicate GPU detected : rank %d and rank %d both on CUDA "
                                     "device %s",
                                     a, b, first->bus);
        }
    return ncclSuccess;
}

static void poll_joining(struct ncclComm *comm)
{
    if (!comm->shared && comm->error == ncclSuccess)
        comm->error = join(comm);
    if (comm->error != ncclSuccess || !all_joined(comm))
        return;
    nccl_sim_id_close(&comm->id);
    comm->error = check_devices(comm);
    if (comm->error == ncclSuccess)
        comm->state = NCCL_SIM_READY;
}

/* DDP_CUDASIM_NCCL_REMOTE=1: a rank that has died or aborted is noticed, as over a network; by
 * default not, as between GPUs of a machine. */
static bool peer_is_lost(const struct ncclComm *comm)
{
    const char *setting = getenv("DDP_CUDASIM_NCCL_REMOTE");
    if (!setting || strcmp(setting, "1") != 0 || comm->state != NCCL_SIM_READY)
        return false;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct nccl_sim_rank *peer = nccl_sim_rank(comm, rank);
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)peer->pid);
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (file)
            fclose(file);
        if (!file || state == 'Z' || state == 'X' || atomic_load(&peer->aborted)) {
            nccl_sim_fail(ncclRemoteError, "rank %d: connection closed by remote peer", rank);
            return true;
        }
    }
    return false;
}

ncclResult_t nccl_sim_poll(struct ncclComm *comm)
{
    if (comm->error == ncclSuccess && comm->state == NCCL_SIM_JOINING)
        poll_joining(comm);
    if (comm->error == ncclSuccess && peer_is_lost(comm))
        comm->error = ncclRemoteError;
    if (comm->error != ncclSuccess)
        return comm->error;
    if (comm->state == NCCL_SIM_JOINING)
        return ncclInProgress;
    if (comm->patience > 0) {
        comm->patience--;
        return ncclInProgress;
    }
    comm->error = nccl_sim_launch_pending(comm);
    if (comm->error != ncclSuccess)
        return comm->error;
    if (comm->state == NCCL_SIM_FINALIZING && comm->outstanding > 0)
        return ncclInProgress;
    if (comm->state == NCCL_SIM_FINALIZING)
        comm->state = NCCL_SIM_FINALIZED;
    return ncclSuccess;
}

ncclResult_t nccl_sim_ready(const char *call, struct ncclComm *comm)
{
    nccl_sim_check_comm(call, comm);
    if (comm->error != ncclSuccess)
        return comm->error;
    if (comm->state == NCCL_SIM_JOINING || comm->patience > 0 || comm->unlaunched)
        return nccl_sim_fail(ncclInvalidArgument,
                             "%s: Attempt to use communicator before the previous operation "
                             "returned ncclSuccess",
                             call);
    return ncclSuccess;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = WAIT_NANOSECONDS}, NULL);
}

/* Until a blocking call is through. */
ncclResult_t nccl_sim_wait_ready(struct ncclComm *comm)
{
    for (;;) {
        sim_lock();
        const ncclResult_t result = nccl_sim_poll(comm);
        const bool failed =
            comm->state != NCCL_SIM_JOINING && sim_device_error(comm->device) != cudaSuccess;
        sim_unlock();
        if (failed)
            return ncclUnhandledCudaError;
        if (result != ncclInProgress)
            return result;
        rest();
    }
}

static ncclResult_t check_config(const ncclConfig_t *config, bool *blocking)
{
    const char *setting = getenv("NCCL_COMM_BLOCKING");
    *blocking = !setting || strcmp(setting, "0") != 0;
    if (!config)
        return ncclSuccess;
    if (config->magic != CONFIG_MAGIC || config->size == 0 || config->size > sizeof *config)
        return nccl_sim_fail(ncclInvalidArgument,
                             "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return nccl_sim_fail(ncclInvalidArgument, "config: blocking is %d", config->blocking);
    if (config->blocking != NCCL_CONFIG_UNDEF_INT)
        *blocking = config->blocking == 1;
    return ncclSuccess;
}

static ncclResult_t comm_create(ncclComm_t *out, int size, const ncclUniqueId *id, int rank,
                                bool blocking)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess)
        return ncclUnhandledCudaError;
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (comm) {
        comm->sent = calloc((size_t)size, sizeof *comm->sent);
        comm->received = calloc((size_t)size, sizeof *comm->received);
    }
    if (!comm || !comm->sent || !comm->received)
        sim_report("no memory");
    comm->blocking = blocking;
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->id = *id;
    comm->patience = blocking ? 0 : PATIENCE;
    sim_lock();
    comm->next = comms;
    comms = comm;
    sim_unlock();
    *out = comm;
    return ncclSuccess;
}

static ncclResult_t init(const char *call, ncclComm_t *out, int size, const ncclUniqueId *id,
                         int rank, const ncclConfig_t *config)
{
    int code = ncclSystemError;
    bool blocking;
    if (sim_fault(call, &code))
        return (ncclResult_t)code;
    if (!out)
        return nccl_sim_fail(ncclInvalidArgument, "%s: newcomm is NULL", call);
    *out = NULL;
    if (size < 1 || size > NCCL_SIM_MAX_RANKS || rank < 0 || rank >= size)
        return nccl_sim_fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, size);
    ncclResult_t result = check_config(config, &blocking);
    if (result == ncclSuccess)
        result = comm_create(out, size, id, rank, blocking);
    if (result != ncclSuccess)
        return result;
    struct ncclComm *comm = *out;
    sim_lock();
    poll_joining(comm); /* be seen by the others */
    sim_unlock();
    if (nccl_sim_in_group())
        return nccl_sim_group_add_init(comm);
    return blocking ? nccl_sim_wait_ready(comm) : ncclInProgress;
}

VISIBLE ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    return init("ncclCommInitRank", comm, size, &id, rank, NULL);
}

VISIBLE ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                            ncclConfig_t *config)
{
    return init("ncclCommInitRankConfig", comm, size, &id, rank, config);
}

VISIBLE ncclResult_t ncclCommInitAll(ncclComm_t *out, int count, const int *devices)
{
    int code = ncclSystemError, current, available;
    ncclUniqueId id;
    if (sim_fault("ncclCommInitAll", &code))
        return (ncclResult_t)code;
    if (cudaGetDevice(&current) != cudaSuccess || cudaGetDeviceCount(&available) != cudaSuccess)
        return ncclUnhandledCudaError;
    if (!out || count < 1 || count > available)
        return nccl_sim_fail(ncclInvalidArgument, "Invalid device count requested : %d", count);
    for (int i = 0; devices && i < count; i++) {
        if (devices[i] < 0 || devices[i] >= available)
            return nccl_sim_fail(ncclInvalidArgument, "Invalid device %d", devices[i]);
        for (int j = 0; j < i; j++)
            if (devices[i] == devices[j])
                return nccl_sim_fail(ncclInvalidUsage, "device %d is there twice", devices[i]);
    }
    ncclResult_t result = nccl_sim_id_create(&id);
    if (result != ncclSuccess)
        return result;
    ncclGroupStart();
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        if (cudaSetDevice(devices ? devices[i] : i) != cudaSuccess)
            result = ncclUnhandledCudaError;
        else
            result = init("ncclCommInitRank", &out[i], count, &id, i, NULL);
    }
    const ncclResult_t end = ncclGroupEnd();
    if (cudaSetDevice(current) != cudaSuccess)
        return ncclUnhandledCudaError;
    return result != ncclSuccess ? result : end;
}

/* --- questions --- */
VISIBLE ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    int code = ncclSystemError;
    if (sim_fault("ncclCommGetAsyncError", &code))
        return (ncclResult_t)code;
    if (!comm || !error)
        return ncclInvalidArgument;
    sim_lock();
    nccl_sim_check_comm("ncclCommGetAsyncError", comm);
    *error = nccl_sim_poll(comm);
    sim_unlock();
    return ncclSuccess;
}

/* One number of a communicator that is ready. */
static ncclResult_t ask(const char *call, ncclComm_t comm, const int *answer, int *out)
{
    if (!comm || !out)
        return ncclInvalidArgument;
    sim_lock();
    ncclResult_t result = nccl_sim_ready(call, comm);
    if (result == ncclSuccess)
        *out = *answer;
    sim_unlock();
    return result;
}

VISIBLE ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return ask("ncclCommCount", comm, comm ? &comm->size : NULL, count);
}

VISIBLE ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return ask("ncclCommCuDevice", comm, comm ? &comm->device : NULL, device);
}

VISIBLE ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return ask("ncclCommUserRank", comm, comm ? &comm->rank : NULL, rank);
}

/* --- registration --- */
VISIBLE ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes,
                                      void **handle)
{
    int code = ncclSystemError;
    if (sim_fault("ncclCommRegister", &code))
        return (ncclResult_t)code;
    if (!comm || !memory || !handle || bytes == 0)
        return ncclInvalidArgument;
    *handle = NULL;
    sim_lock();
    ncclResult_t result = nccl_sim_ready("ncclCommRegister", comm);
    sim_unlock();
    if (result != ncclSuccess || comm->size == 1) /* NULL then, as NCCL's */
        return result;
    sim_check_pointer("ncclCommRegister", "buff", memory, bytes, comm->device);
    struct nccl_sim_registration *registration = malloc(sizeof *registration);
    if (!registration)
        return ncclSystemError;
    sim_lock();
    *registration = (struct nccl_sim_registration){.next = comm->registrations, .memory = memory};
    comm->registrations = registration;
    sim_hold(memory, 1);
    sim_unlock();
    *handle = registration;
    return ncclSuccess;
}

VISIBLE ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    if (!comm)
        return ncclInvalidArgument;
    if (!handle)
        return ncclSuccess;
    sim_lock();
    nccl_sim_check_comm("ncclCommDeregister", comm);
    struct nccl_sim_registration **link = &comm->registrations;
    while (*link && *link != handle)
        link = &(*link)->next;
    struct nccl_sim_registration *found = *link;
    if (found) {
        *link = found->next;
        sim_hold(found->memory, -1);
    }
    sim_unlock();
    if (!found)
        return nccl_sim_fail(ncclInvalidUsage,
                             "ncclCommDeregister: not a handle of this communicator");
    free(found);
    return ncclSuccess;
}

/* --- the end --- */
void nccl_sim_release(struct ncclComm *comm)
{
    if (comm->state != NCCL_SIM_GONE)
        return;
    while (comm->registrations) {
        struct nccl_sim_registration *next = comm->registrations->next;
        sim_hold(comm->registrations->memory, -1);
        free(comm->registrations);
        comm->registrations = next;
    }
    if (comm->outstanding > 0)
        return;
    nccl_sim_detach(comm);
    free(comm->sent);
    free(comm->received);
    comm->sent = comm->received = NULL;
}

VISIBLE ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    int code = ncclSystemError;
    if (sim_fault("ncclCommFinalize", &code))
        return (ncclResult_t)code;
    if (!comm)
        return ncclSuccess;
    sim_lock();
    ncclResult_t result = nccl_sim_ready("ncclCommFinalize", comm);
    if (result == ncclSuccess && comm->state != NCCL_SIM_READY)
        result = nccl_sim_fail(ncclInvalidArgument, "ncclCommFinalize: called before");
    if (result == ncclSuccess) {
        comm->state = NCCL_SIM_FINALIZING;
        comm->patience = comm->blocking ? 0 : PATIENCE;
    }
    sim_unlock();
    if (result != ncclSuccess)
        return result;
    return comm->blocking ? nccl_sim_wait_ready(comm) : ncclInProgress;
}

VISIBLE ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    int code = ncclSystemError;
    if (sim_fault("ncclCommDestroy", &code))
        return (ncclResult_t)code;
    if (!comm)
        return ncclSuccess;
    sim_lock();
    ncclResult_t result = nccl_sim_ready("ncclCommDestroy", comm);
    if (result == ncclSuccess && comm->state == NCCL_SIM_READY)
        comm->state = NCCL_SIM_FINALIZING;
    sim_unlock();
    if (result == ncclSuccess)
        result = nccl_sim_wait_ready(comm);
    if (result != ncclSuccess)
        return result;
    sim_lock();
    comm->state = NCCL_SIM_GONE;
    nccl_sim_release(comm);
    sim_unlock();
    return ncclSuccess;
}

VISIBLE ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    int code = ncclSystemError;
    if (sim_fault("ncclCommAbort", &code))
        return (ncclResult_t)code;
    if (!comm)
        return ncclSuccess;
    sim_lock();
    nccl_sim_check_comm("ncclCommAbort", comm);
    comm->aborted = true;
    comm->state = NCCL_SIM_GONE;
    if (comm->shared)
        atomic_store(&nccl_sim_rank(comm, comm->rank)->aborted, 1);
    while (comm->unlaunched) {
        struct nccl_sim_batch *batch = comm->unlaunched;
        comm->unlaunched = batch->next;
        comm->outstanding--;
        nccl_sim_batch_free(batch);
    }
    nccl_sim_release(comm); /* or when what is on the streams has ended */
    sim_unlock();
    return ncclSuccess;
}
