/* SPDX-License-Identifier: MIT
 *
 * The library cuDNN, loaded when a device first wants it: the plugin runs on machines without it.
 * See cudnn_graph.h. */
#include "config.h"

#include "kernels/cuda/cudnn_graph.h"

#include "core/log.h"
#include "core/parse.h"
#include "kernels/cuda/cudnn.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

/* Before 9.0 the descriptors of attention were others; two later ones compute it wrongly. */
#define OLDEST_VERSION 90000
static const size_t broken_versions[] = {91000, 91001};

/* Of attention's backward pass. */
#define LEAST_WORKSPACE DDP_CUDA_WORKSPACE_BYTES
#define MOST_WORKSPACE  ((size_t)512 << 20)

bool ddp_cudnn_resolve(struct ddp_cudnn_calls *calls, void *library, const char **missing)
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

static bool is_broken(size_t version)
{
    for (size_t i = 0; i < sizeof broken_versions / sizeof *broken_versions; i++)
        if (version == broken_versions[i])
            return true;
    return version < OLDEST_VERSION;
}

/* Its functions and version. Not logged as an error: our own kernels do all that cuDNN does. */
static void load(struct ddp_cudnn *cudnn)
{
    const char *missing = NULL;
    if (ddp_cuda_is_set("DDP_CUDNN", "0") || ddp_cuda_is_set("DDP_CUDA_PLAIN", "1"))
        return;
    void *library = ddp_cuda_dlopen(LIBRARY); /* for good: it cannot be unloaded safely */
    if (!library) {
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: %s cannot be loaded", LIBRARY);
        return;
    }
    if (!ddp_cudnn_resolve(&cudnn->calls, library, &missing)) {
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: %s lacks %s", LIBRARY, missing);
        return;
    }
    cudnn->version = cudnn->calls.version();
    cudnn->loaded = !is_broken(cudnn->version);
    if (!cudnn->loaded)
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: version %zu is too old, or has known errors",
                cudnn->version);
}

/* The device's, loaded the first time. */
static enum ddp_status loaded_of(struct ddp_cuda *cuda)
{
    if (cuda->cudnn)
        return DDP_OK;
    cuda->cudnn = calloc(1, sizeof *cuda->cudnn);
    if (!cuda->cudnn)
        return ddp_fail(DDP_ERR_MEMORY, "cuDNN: out of memory");
    load(cuda->cudnn);
    return DDP_OK;
}

enum ddp_status ddp_cudnn_workspace(struct ddp_cuda *cuda, size_t memory_bytes, size_t *bytes)
{
    const char *set = getenv("DDP_CUDNN_WORKSPACE");
    double wanted = 0;
    *bytes = 0;
    if (set && !ddp_parse_bytes(set, &wanted))
        return ddp_fail(DDP_ERR_INVALID, "DDP_CUDNN_WORKSPACE=%s: not a size, such as 256MiB", set);
    if (cuda->capability < 80 || cuda->capability >= DDP_CUDNN_NAMED_ENGINES)
        return DDP_OK;
    enum ddp_status status = loaded_of(cuda);
    if (status != DDP_OK || !cuda->cudnn->loaded)
        return status;
    *bytes = memory_bytes / 64;
    if (*bytes < LEAST_WORKSPACE)
        *bytes = LEAST_WORKSPACE;
    if (*bytes > MOST_WORKSPACE)
        *bytes = MOST_WORKSPACE;
    if (set)
        *bytes = wanted < (double)memory_bytes ? (size_t)wanted : memory_bytes;
    return DDP_OK;
}

static void open_handle(struct ddp_cudnn *cudnn, struct ddp_cuda *cuda)
{
    cudnnStatus_t status = cudnn->calls.create(&cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->calls.set_stream(cudnn->handle, cuda->stream);
    cudnn->opened = true;
    cudnn->usable = status == CUDNN_STATUS_SUCCESS;
    (void)cudaGetLastError(); /* its failure is not an error of ours */
    if (cudnn->usable)
        ddp_log(DDP_LOG_DEBUG,
                "cuDNN %zu.%zu.%zu computes attention and convolution in bf16, with %zu MiB for "
                "attention's backward pass",
                cudnn->version / 10000, cudnn->version / 100 % 100, cudnn->version % 100,
                cuda->cudnn_bytes >> 20);
    else
        ddp_log(DDP_LOG_DEBUG, "cuDNN is not used: %s", cudnn->calls.error_string(status));
}

enum ddp_status ddp_cudnn_of(struct ddp_cuda *cuda, struct ddp_cudnn **out)
{
    enum ddp_status status = loaded_of(cuda);
    if (status == DDP_OK && cuda->cudnn->loaded && !cuda->cudnn->opened)
        open_handle(cuda->cudnn, cuda);
    *out = cuda->cudnn;
    return status;
}

void ddp_cudnn_forget(struct ddp_cuda *cuda)
{
    struct ddp_cudnn *cudnn = cuda->cudnn;
    if (!cudnn)
        return;
    ddp_cudnn_plans_free(cudnn);
    if (cudnn->handle)
        (void)cudnn->calls.destroy(cudnn->handle);
    free(cudnn);
    cuda->cudnn = NULL;
}
