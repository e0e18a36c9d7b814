/* SPDX-License-Identifier: MIT
 *
 * Waiting for a GPU by asking again and again, so that a wait can be given up. */
#include "config.h"

#include "cuda/state.h"

#include "core/clock.h"

#include <time.h>

#define SPIN_NS    INT64_C(100000)
#define NAP_NS     INT64_C(20000)  /* shortest sleep, and longest */
#define REST_NS    INT64_C(200000) /* longer ones would show in the time of a step */
#define QUIESCE_MS 30000           /* for the work on the streams, before memory is given back */
#define LOST_MS    2000            /* the same after a wait has failed */

/* At first without giving the processor away; then for a small part of the time so far. */
static void pause_waiting(int64_t waited_ns)
{
    if (waited_ns < SPIN_NS)
        return;
    int64_t nap = waited_ns / 32;
    nap = nap < NAP_NS ? NAP_NS : nap > REST_NS ? REST_NS : nap;
    nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
}

static bool is_idle(const struct ddp_cuda_device *gpu)
{
    const cudaStream_t streams[] = {gpu->filling, gpu->aside.stream, gpu->cuda.stream};
    bool idle = true;
    for (int i = 0; i < 3; i++)
        idle = idle && !(streams[i] && cudaStreamQuery(streams[i]) == cudaErrorNotReady);
    (void)cudaGetLastError(); /* errors are no longer reported: they have been, or do not matter */
    return idle;
}

bool ddp_cuda_quiesce(struct ddp_cuda_device *gpu)
{
    int64_t begin = ddp_clock_ns();
    while (!is_idle(gpu)) {
        const int64_t waited = ddp_clock_ns() - begin;
        const int64_t limit_ms = gpu->stuck ? 0 : gpu->lost ? LOST_MS : QUIESCE_MS;
        if (waited >= limit_ms * 1000000) {
            gpu->stuck = true;
            return false;
        }
        if (!gpu->lost && gpu->poll && gpu->poll(gpu->poll_arg) != DDP_OK) {
            gpu->lost = true;
            begin = ddp_clock_ns();
        }
        pause_waiting(waited);
    }
    gpu->stuck = false;
    return true;
}

enum ddp_status ddp_cuda_wait_event(struct ddp_cuda_device *gpu, cudaEvent_t event)
{
    int64_t begin = 0;
    enum ddp_status status = DDP_OK;
    cudaError_t error;
    while ((error = cudaEventQuery(event)) == cudaErrorNotReady && status == DDP_OK) {
        const int64_t now = ddp_clock_ns();
        begin = begin ? begin : now;
        if (gpu->poll)
            status = gpu->poll(gpu->poll_arg);
        if (status == DDP_OK)
            pause_waiting(now - begin);
    }
    if (begin)
        (void)cudaGetLastError(); /* "not ready" is kept as if it were an error */
    if (error != cudaSuccess && status == DDP_OK)
        status = ddp_cuda_failed(error, "waiting for the GPU");
    gpu->lost |= status != DDP_OK;
    return status;
}
