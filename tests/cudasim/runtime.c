/* SPDX-License-Identifier: MIT
 *
 * The runtime's functions about devices and errors. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <stdio.h>
#include <string.h>

/* What the error of a call means, as far as callers tell errors apart; the text is for people. */
static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

static cudaError_t last_error(bool reset)
{
    sim_lock();
    cudaError_t *mine = &sim_host_thread.last_error,
                device = sim_device_error(sim_host_thread.device);
    cudaError_t error = *mine != cudaSuccess ? *mine : device;
    if (reset)
        *mine = device;
    sim_unlock();
    return error;
}

cudaError_t cudaGetLastError(void)
{
    return last_error(true);
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error(false);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = sim_enter("cudaGetDeviceCount");
    *count = error == cudaSuccess ? sim_settings.device_count : 0;
    return sim_leave(error);
}

/* An injected fault aside, these answer whatever the devices do. */
static cudaError_t version(const char *name, int *result)
{
    cudaError_t error = sim_enter(name);
    *result = 13000;
    return sim_leave(error == cudaErrorNoDevice ? cudaSuccess : error);
}

cudaError_t cudaDriverGetVersion(int *result)
{
    return version("cudaDriverGetVersion", result);
}

cudaError_t cudaRuntimeGetVersion(int *result)
{
    return version("cudaRuntimeGetVersion", result);
}

static cudaError_t enter_device(const char *name, int device)
{
    cudaError_t error = sim_enter(name);
    if (error == cudaSuccess && (device < 0 || device >= sim_settings.device_count))
        error = cudaErrorInvalidDevice;
    return error;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = enter_device("cudaSetDevice", device);
    if (error == cudaSuccess)
        sim_host_thread.device = device;
    return sim_leave(error);
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t error = sim_enter("cudaGetDevice");
    *device = sim_host_thread.device;
    return sim_leave(error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = enter_device("cudaGetDeviceProperties", device);
    if (error != cudaSuccess)
        return sim_leave(error);
    int physical = sim_settings.physical[device];
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "Simulated GPU %d", physical);
    memcpy(properties->uuid.bytes, "cudasim", 7);
    properties->uuid.bytes[15] = (char)physical;
    properties->totalGlobalMem = sim_settings.memory_bytes;
    properties->sharedMemPerBlock = SIM_SHARED_BYTES;
    properties->sharedMemPerBlockOptin = SIM_SHARED_OPTIN_BYTES;
    properties->warpSize = SIM_WARP;
    properties->maxThreadsPerBlock = SIM_MAX_THREADS;
    properties->multiProcessorCount = 4;
    properties->major = 9;
    properties->minor = 0;
    properties->pciBusID = physical + 1;
    properties->l2CacheSize = 4 << 20;
    properties->canMapHostMemory = 1;
    properties->unifiedAddressing = 1;
    properties->concurrentKernels = 1;
    properties->asyncEngineCount = 2;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t error = enter_device("cudaDeviceGetAttribute", device);
    if (error != cudaSuccess)
        return sim_leave(error);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = SIM_MAX_THREADS;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = SIM_SHARED_BYTES;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = SIM_SHARED_OPTIN_BYTES;
        break;
    case cudaDevAttrWarpSize:
        *value = SIM_WARP;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrL2CacheSize:
        *value = 4 << 20;
        break;
    case cudaDevAttrPciBusId:
        *value = sim_settings.physical[device] + 1;
        break;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrMemoryPoolsSupported:
        *value = 0;
        break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrHostRegisterSupported:
        *value = 1;
        break;
    default:
        sim_report("cudaDeviceGetAttribute: attribute %d is not simulated", (int)attribute);
    }
    return sim_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    cudaError_t error = enter_device("cudaDeviceGetPCIBusId", device);
    if (error == cudaSuccess)
        snprintf(text, (size_t)size, "0000:%02X:00.0", sim_settings.physical[device] + 1);
    return sim_leave(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = sim_enter("cudaDeviceSynchronize");
    if (error == cudaSuccess)
        error = sim_capture_forbids();
    if (error == cudaSuccess)
        error = sim_wait_device(sim_host_thread.device);
    return sim_leave(error);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = enter_device("cudaDeviceCanAccessPeer", device);
    if (error == cudaSuccess && (peer < 0 || peer >= sim_settings.device_count))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        *can = device != peer;
    return sim_leave(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    cudaError_t error = enter_device("cudaDeviceEnablePeerAccess", peer);
    int device = sim_host_thread.device;
    if (error == cudaSuccess && flags != 0)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && device == peer)
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess && sim_peer_enabled(device, peer))
        error = cudaErrorPeerAccessAlreadyEnabled;
    if (error == cudaSuccess)
        sim_enable_peer(device, peer);
    return sim_leave(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t error = sim_enter("cudaMemGetInfo");
    if (error == cudaSuccess) {
        *total = sim_settings.memory_bytes;
        *free_bytes = sim_settings.memory_bytes - sim_memory_used(sim_host_thread.device);
    }
    return sim_leave(error);
}
