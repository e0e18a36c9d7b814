/* SPDX-License-Identifier: MIT
 *
 * Recording work on a GPU's stream as a CUDA graph, which runs again without launching each
 * operation. If recording fails, the work is run unrecorded. */
#include "config.h"

#include "cuda/state.h"

bool ddp_cuda_refuse(struct ddp_cuda_device *gpu)
{
    gpu->refused |= gpu->recording;
    return gpu->recording;
}

/* Of this thread only: others allocate and wait as they like meanwhile. */
enum ddp_status ddp_cuda_record_begin(void *state)
{
    struct ddp_cuda_device *gpu = state;
    if (!gpu->graphs || gpu->recording)
        return DDP_ERR_UNSUPPORTED;
    ddp_cuda_use(gpu);
    if (cudaStreamBeginCapture(gpu->cuda.stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        (void)cudaGetLastError();
        return DDP_ERR_UNSUPPORTED;
    }
    gpu->recording = true;
    gpu->refused = false;
    return DDP_OK;
}

enum ddp_status ddp_cuda_record_end(void *state, void **recording)
{
    struct ddp_cuda_device *gpu = state;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    *recording = NULL;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaStreamEndCapture(gpu->cuda.stream, &graph);
    gpu->recording = false;
    if (error == cudaSuccess && !gpu->refused)
        error = cudaGraphInstantiate(&exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (error == cudaSuccess && !gpu->refused)
        *recording = exec;
    (void)cudaGetLastError();
    return DDP_OK;
}

enum ddp_status ddp_cuda_replay(void *state, void *recording)
{
    struct ddp_cuda_device *gpu = state;
    ddp_cuda_use(gpu);
    cudaError_t error = cudaGraphLaunch(recording, gpu->cuda.stream);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, "a recorded step");
}

void ddp_cuda_recording_free(void *state, void *recording)
{
    ddp_cuda_use(state);
    (void)cudaGraphExecDestroy(recording);
}
