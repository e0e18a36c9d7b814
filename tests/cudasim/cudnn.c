/* SPDX-License-Identifier: MIT
 *
 * A library in cuDNN's place that computes nothing: it accepts every description and proposes no
 * engine, so that what is seen is how the plugin does without. DDP_CUDASIM_CUDNN is its version
 * (91900); without it there is no library. DDP_CUDASIM_FAIL makes its calls fail. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

static cudnnStatus_t fault(const char *name)
{
    int code = CUDNN_STATUS_INTERNAL_ERROR;
    return sim_fault(name, &code) ? (cudnnStatus_t)code : CUDNN_STATUS_SUCCESS;
}

static size_t version(void)
{
    return (size_t)sim_settings.cudnn_version;
}

static const char *error_string(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR ? "CUDNN_STATUS_INTERNAL_ERROR"
                                                 : "CUDNN_UNKNOWN_STATUS";
}

/* Handles and descriptors are memory, so that one that is not freed is seen. */
static cudnnStatus_t create(cudnnHandle_t *handle)
{
    cudnnStatus_t status = fault("cudnnCreate");
    if (status == CUDNN_STATUS_SUCCESS)
        *handle = malloc(1);
    return status;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle, (void)stream;
    return fault("cudnnSetStream");
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *descriptor)
{
    cudnnStatus_t status = fault("cudnnBackendCreateDescriptor");
    (void)type;
    if (status == CUDNN_STATUS_SUCCESS)
        *descriptor = malloc(1);
    return status;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor)
{
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    (void)descriptor, (void)name, (void)type, (void)count, (void)values;
    return fault("cudnnBackendSetAttribute");
}

/* Asked for engines: none. */
static cudnnStatus_t get(const cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t wanted, int64_t *count, void *values)
{
    (void)descriptor, (void)name, (void)type, (void)wanted, (void)values;
    *count = 0;
    return fault("cudnnBackendGetAttribute");
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    (void)descriptor;
    return fault("cudnnBackendFinalize");
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack)
{
    (void)handle, (void)plan, (void)pack;
    abort(); /* there is no plan */
}

static const struct {
    const char *name;
    void (*function)(void);
} functions[] = {
    {"cudnnGetVersion", (void (*)(void))version},
    {"cudnnGetErrorString", (void (*)(void))error_string},
    {"cudnnCreate", (void (*)(void))create},
    {"cudnnDestroy", (void (*)(void))destroy},
    {"cudnnSetStream", (void (*)(void))set_stream},
    {"cudnnBackendCreateDescriptor", (void (*)(void))create_descriptor},
    {"cudnnBackendDestroyDescriptor", (void (*)(void))destroy_descriptor},
    {"cudnnBackendSetAttribute", (void (*)(void))set},
    {"cudnnBackendGetAttribute", (void (*)(void))get},
    {"cudnnBackendFinalize", (void (*)(void))finalize},
    {"cudnnBackendExecute", (void (*)(void))execute},
};

/* --- how the plugin finds it ---------------------------------------------------------------- */

void *cudasim_dlopen(const char *name);
void *cudasim_dlsym(void *library, const char *name);

VISIBLE void *cudasim_dlopen(const char *name)
{
    static char library;
    sim_lock(); /* reads the environment, the first time */
    const bool present = sim_settings.cudnn_version > 0;
    sim_unlock();
    return present && strcmp(name, "libcudnn.so.9") == 0 ? &library : NULL;
}

VISIBLE void *cudasim_dlsym(void *library, const char *name)
{
    void *symbol = NULL;
    if (!library || sim_fault("dlsym", NULL))
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            memcpy(&symbol, &functions[i].function, sizeof symbol);
    return symbol;
}
