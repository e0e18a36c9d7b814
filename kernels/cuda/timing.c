/* SPDX-License-Identifier: MIT
 *
 * See timing.h. */
#include "config.h"

#include "kernels/cuda/timing.h"

#define ROUNDS  5     /* behind the first one, which also loads what a way needs */
#define SLOW    1.5F  /* times the best: not timed again */
#define CLEARLY 0.97F /* a later way takes at most so much of an earlier one's time */
#define LONG_MS 20.0F /* one round is enough */

struct events {
    cudaEvent_t begin, end;
};

/* *ms is the smaller of what it was and what the way takes now; negative: not yet known. */
static cudaError_t time_one(int number, ddp_cuda_way *way, void *arg, struct ddp_cuda *cuda,
                            const struct events *events, bool *possible, float *ms)
{
    float now = 0;
    cudaError_t error = cudaEventRecord(events->begin, cuda->stream);
    if (error != cudaSuccess)
        return error;
    *possible = way(arg, number);
    if (*possible)
        error = cudaEventRecord(events->end, cuda->stream);
    if (*possible && error == cudaSuccess)
        error = cudaEventSynchronize(events->end);
    if (*possible && error == cudaSuccess)
        error = cudaEventElapsedTime(&now, events->begin, events->end);
    if (*possible && error == cudaSuccess && (*ms < 0 || now < *ms))
        *ms = now;
    return error;
}

static float best_of(int count, const float *ms)
{
    float best = -1;
    for (int i = 0; i < count; i++)
        if (ms[i] >= 0 && (best < 0 || ms[i] < best))
            best = ms[i];
    return best;
}

static cudaError_t time_all(int count, ddp_cuda_way *way, void *arg, struct ddp_cuda *cuda,
                            const struct events *events, float *ms)
{
    cudaError_t error = cudaSuccess;
    bool possible[DDP_CUDA_TIMED];
    for (int i = 0; i < count; i++) {
        float first = -1; /* not counted */
        ms[i] = -1;
        if (error == cudaSuccess)
            error = time_one(i, way, arg, cuda, events, &possible[i], &first);
    }
    for (int round = 0; error == cudaSuccess && round < ROUNDS; round++) {
        const float best = best_of(count, ms);
        for (int i = 0; i < count && error == cudaSuccess; i++)
            if (possible[i] && (round == 0 || (ms[i] <= SLOW * best && best < LONG_MS)))
                error = time_one(i, way, arg, cuda, events, &possible[i], &ms[i]);
    }
    return error;
}

enum ddp_status ddp_cuda_time(int count, ddp_cuda_way *way, void *arg, struct ddp_cuda *cuda,
                              int *fastest, float ms[DDP_CUDA_TIMED])
{
    struct events events = {NULL, NULL};
    cudaError_t error = cudaEventCreate(&events.begin);
    if (error == cudaSuccess)
        error = cudaEventCreate(&events.end);
    if (error == cudaSuccess)
        error = time_all(count, way, arg, cuda, &events, ms);
    if (events.end)
        (void)cudaEventDestroy(events.end);
    if (events.begin)
        (void)cudaEventDestroy(events.begin);
    if (error != cudaSuccess)
        return ddp_cuda_failed(error, "timing a matrix product");
    *fastest = -1;
    for (int i = 0; i < count; i++)
        if (ms[i] >= 0 && (*fastest < 0 || ms[i] < CLEARLY * ms[*fastest]))
            *fastest = i;
    return DDP_OK;
}
