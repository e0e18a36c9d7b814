/* SPDX-License-Identifier: MIT
 *
 * The library cuDNN, loaded when a device first wants it: the plugin runs on machines without it.
 * See cudnn_graph.h. */
#include "config.h"

#include "kernels/cuda/cudnn_graph.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

/* Its functions; false: it lacks one, whose name is in *missing. */
static bool resolve(struct ddp_cudnn_calls *calls, void *library, const char **missing)
{
    const struct {
        const char *name;
        void *function; /* address of a pointer to a function */
    } names[] = {
        {"cudnnGetVersion", &calls->version},
        {"cudnnGetErrorString", &calls->error_string},
        {"cudnnCreate", &calls->create},
        {"cudnnDestroy", &calls->destroy},
        {"cudnnSetStream", &calls->set_stream},
        {"cudnnBackendCreateDescriptor", &calls->create_descriptor},
        {"cudnnBackendDestroyDescriptor", &calls->destroy_descriptor},
        {"cudnnBackendSetAttribute", &calls->set},
        {"cudnnBackendGetAttribute", &calls->get},
        {"cudnnBackendFinalize", &calls->finalize},
        {"cudnnBackendExecute", &calls->execute},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *const symbol = ddp_cuda_dlsym(library, names[i].name);
        if (!symbol) {
            *missing = names[i].name;
            return false;
        }
        memcpy(names[i].function, &symbol, sizeof symbol);
    }
    return true;
}

/* Its functions, and a handle. Not logged as an error: our own kernels do all that cuDNN does. */
static void open_library(struct ddp_cudnn *cudnn, struct ddp_cuda *cuda)
{
    const struct ddp_cudnn_calls *calls = &cudnn->calls;
    const char *missing = NULL;
    if (ddp_cuda_is_set("DDP_CUDNN", "0") || ddp_cuda_is_set("DDP_CUDA_PLAIN", "1"))
        return;
    void *library = ddp_cuda_dlopen(LIBRARY); /* for good: it cannot be unloaded safely */
    if (!library) {
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: %s cannot be loaded", LIBRARY);
        return;
    }
    if (!resolve(&cudnn->calls, library, &missing)) {
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: %s lacks %s", LIBRARY, missing);
        return;
    }
    cudnnStatus_t status = calls->create(&cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->set_stream(cudnn->handle, cuda->stream);
    cudnn->usable = status == CUDNN_STATUS_SUCCESS;
    (void)cudaGetLastError();                /* its failure is not an error of ours */
    const size_t version = calls->version(); /* 91900 for 9.19.0 */
    if (cudnn->usable)
        ddp_log(DDP_LOG_DEBUG, "cuDNN %zu.%zu.%zu computes convolution in bf16", version / 10000,
                version / 100 % 100, version % 100);
    else
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: %s", calls->error_string(status));
}

enum ddp_status ddp_cudnn_open(struct ddp_cuda *cuda)
{
    if (cuda->cudnn)
        return DDP_OK;
    cuda->cudnn = calloc(1, sizeof *cuda->cudnn);
    if (!cuda->cudnn)
        return ddp_fail(DDP_ERR_MEMORY, "cuDNN: out of memory");
    open_library(cuda->cudnn, cuda);
    return DDP_OK;
}
