/* SPDX-License-Identifier: MIT
 *
 * main() of cudasim_bugs, and what the bugs share. */
#include "config.h"

#include "tests/cudasim/bugs.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bug_must(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
    exit(2);
}

float *bug_device(size_t count)
{
    void *memory;
    MUST(cudaMalloc(&memory, count * sizeof(float)));
    return static_cast<float *>(memory);
}

float *bug_pinned(size_t count)
{
    void *memory;
    MUST(cudaHostAlloc(&memory, count * sizeof(float), cudaHostAllocDefault));
    return static_cast<float *>(memory);
}

cudaStream_t bug_stream(void)
{
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void bug_fetch(float *results, const float *device, size_t count, cudaStream_t stream)
{
    MUST(cudaMemcpyAsync(results, device, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
}

void bug_fill(float *device, size_t count, cudaStream_t stream)
{
    float values[BUG_RESULTS];
    for (size_t i = 0; i < count; i++)
        values[i] = static_cast<float>((i * 37 + 11) % 101) * 0.125f;
    MUST(cudaMemcpyAsync(device, values, count * sizeof(float), cudaMemcpyHostToDevice, stream));
    MUST(cudaStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    const struct bug *tables[] = {bug_kernels, bug_streams};
    static float results[BUG_RESULTS];
    for (const struct bug *table : tables) {
        for (const struct bug *bug = table; bug->name; bug++) {
            if (argc != 2) {
                puts(bug->name);
                continue;
            }
            if (strcmp(bug->name, argv[1]) != 0)
                continue;
            bug->run(results);
            uint64_t hash = 0;
            int nans = 0;
            for (float value : results) {
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                hash = hash * 1099511628211u + bits;
                nans += isnan(value) != 0;
            }
            printf("result %016llx nan %d\n", static_cast<unsigned long long>(hash), nans);
            return 0;
        }
    }
    return argc == 2 ? 3 : 0;
}
