/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed: what this project uses of
 * it. A test compares it with the real one where that exists: constants are in lists, and
 * CUDASIM_CHECK leaves everything but lists and prototypes out. */
#ifndef CUDASIM_CUDA_RUNTIME_API_H
#define CUDASIM_CUDA_RUNTIME_API_H

#include <stddef.h>

#include "vector_types.h"

#define CUDASIM_ERRORS(X)                                                                          \
    X(cudaSuccess, 0)                                                                              \
    X(cudaErrorInvalidValue, 1)                                                                    \
    X(cudaErrorMemoryAllocation, 2)                                                                \
    X(cudaErrorInitializationError, 3)                                                             \
    X(cudaErrorInvalidConfiguration, 9)                                                            \
    X(cudaErrorInvalidMemcpyDirection, 21)                                                         \
    X(cudaErrorInsufficientDriver, 35)                                                             \
    X(cudaErrorNoDevice, 100)                                                                      \
    X(cudaErrorInvalidDevice, 101)                                                                 \
    X(cudaErrorECCUncorrectable, 214)                                                              \
    X(cudaErrorInvalidResourceHandle, 400)                                                         \
    X(cudaErrorIllegalState, 401)                                                                  \
    X(cudaErrorNotReady, 600)                                                                      \
    X(cudaErrorIllegalAddress, 700)                                                                \
    X(cudaErrorPeerAccessAlreadyEnabled, 704)                                                      \
    X(cudaErrorHostMemoryAlreadyRegistered, 712)                                                   \
    X(cudaErrorHostMemoryNotRegistered, 713)                                                       \
    X(cudaErrorLaunchFailure, 719)                                                                 \
    X(cudaErrorNotSupported, 801)                                                                  \
    X(cudaErrorStreamCaptureUnsupported, 900)                                                      \
    X(cudaErrorStreamCaptureInvalidated, 901)                                                      \
    X(cudaErrorStreamCaptureMerge, 902)                                                            \
    X(cudaErrorStreamCaptureUnmatched, 903)                                                        \
    X(cudaErrorStreamCaptureUnjoined, 904)                                                         \
    X(cudaErrorStreamCaptureIsolation, 905)                                                        \
    X(cudaErrorCapturedEvent, 907)                                                                 \
    X(cudaErrorUnknown, 999)                                                                       \
    X(cudaErrorDevicesUnavailable, 46)                                                             \
    X(cudaErrorNoKernelImageForDevice, 209)                                                        \
    X(cudaErrorSystemDriverMismatch, 803)                                                          \
    X(cudaErrorMisalignedAddress, 716)                                                             \
    X(cudaErrorAssert, 710)                                                                        \
    X(cudaErrorHardwareStackError, 714)                                                            \
    X(cudaErrorLaunchTimeout, 702)                                                                 \
    X(cudaErrorIllegalInstruction, 715)                                                            \
    X(cudaErrorInvalidPc, 718)                                                                     \
    X(cudaErrorInvalidPtx, 218)                                                                    \
    X(cudaErrorPeerAccessUnsupported, 217)                                                         \
    X(cudaErrorUnsupportedPtxVersion, 222)

#define CUDASIM_COPIES(X)                                                                          \
    X(cudaMemcpyHostToHost, 0)                                                                     \
    X(cudaMemcpyHostToDevice, 1)                                                                   \
    X(cudaMemcpyDeviceToHost, 2)                                                                   \
    X(cudaMemcpyDeviceToDevice, 3)                                                                 \
    X(cudaMemcpyDefault, 4)

#define CUDASIM_MEMORY_TYPES(X)                                                                    \
    X(cudaMemoryTypeUnregistered, 0)                                                               \
    X(cudaMemoryTypeHost, 1)                                                                       \
    X(cudaMemoryTypeDevice, 2)                                                                     \
    X(cudaMemoryTypeManaged, 3)

#define CUDASIM_CAPTURE_MODES(X)                                                                   \
    X(cudaStreamCaptureModeGlobal, 0)                                                              \
    X(cudaStreamCaptureModeThreadLocal, 1)                                                         \
    X(cudaStreamCaptureModeRelaxed, 2)

#define CUDASIM_CAPTURE_STATUSES(X)                                                                \
    X(cudaStreamCaptureStatusNone, 0)                                                              \
    X(cudaStreamCaptureStatusActive, 1)                                                            \
    X(cudaStreamCaptureStatusInvalidated, 2)

#define CUDASIM_FUNCTION_ATTRIBUTES(X)                                                             \
    X(cudaFuncAttributeMaxDynamicSharedMemorySize, 8)                                              \
    X(cudaFuncAttributePreferredSharedMemoryCarveout, 9)

#define CUDASIM_DEVICE_ATTRIBUTES(X)                                                               \
    X(cudaDevAttrMaxThreadsPerBlock, 1)                                                            \
    X(cudaDevAttrMaxSharedMemoryPerBlock, 8)                                                       \
    X(cudaDevAttrWarpSize, 10)                                                                     \
    X(cudaDevAttrMultiProcessorCount, 16)                                                          \
    X(cudaDevAttrCanMapHostMemory, 19)                                                             \
    X(cudaDevAttrEccEnabled, 32)                                                                   \
    X(cudaDevAttrPciBusId, 33)                                                                     \
    X(cudaDevAttrPciDeviceId, 34)                                                                  \
    X(cudaDevAttrL2CacheSize, 38)                                                                  \
    X(cudaDevAttrUnifiedAddressing, 41)                                                            \
    X(cudaDevAttrPciDomainId, 50)                                                                  \
    X(cudaDevAttrComputeCapabilityMajor, 75)                                                       \
    X(cudaDevAttrComputeCapabilityMinor, 76)                                                       \
    X(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97)                                                 \
    X(cudaDevAttrHostRegisterSupported, 99)                                                        \
    X(cudaDevAttrMemoryPoolsSupported, 115)

#define CUDASIM_FLAGS(X)                                                                           \
    X(cudaStreamDefault, 0)                                                                        \
    X(cudaStreamNonBlocking, 1)                                                                    \
    X(cudaEventDefault, 0)                                                                         \
    X(cudaEventBlockingSync, 1)                                                                    \
    X(cudaEventDisableTiming, 2)                                                                   \
    X(cudaHostAllocDefault, 0)                                                                     \
    X(cudaHostAllocPortable, 1)                                                                    \
    X(cudaHostAllocMapped, 2)                                                                      \
    X(cudaHostAllocWriteCombined, 4)                                                               \
    X(cudaHostRegisterDefault, 0)                                                                  \
    X(cudaHostRegisterPortable, 1)                                                                 \
    X(cudaHostRegisterMapped, 2)                                                                   \
    X(cudaInvalidDeviceId, -2)

#ifndef CUDASIM_CHECK
#define CUDASIM_RUNTIME_CONSTANT(name, value) name = value,

enum cudaError { CUDASIM_ERRORS(CUDASIM_RUNTIME_CONSTANT) };
enum cudaMemcpyKind { CUDASIM_COPIES(CUDASIM_RUNTIME_CONSTANT) };
enum cudaMemoryType { CUDASIM_MEMORY_TYPES(CUDASIM_RUNTIME_CONSTANT) };
enum cudaStreamCaptureMode { CUDASIM_CAPTURE_MODES(CUDASIM_RUNTIME_CONSTANT) };
enum cudaStreamCaptureStatus { CUDASIM_CAPTURE_STATUSES(CUDASIM_RUNTIME_CONSTANT) };
enum cudaFuncAttribute { CUDASIM_FUNCTION_ATTRIBUTES(CUDASIM_RUNTIME_CONSTANT) };
enum cudaDeviceAttr { CUDASIM_DEVICE_ATTRIBUTES(CUDASIM_RUNTIME_CONSTANT) };
enum cudasim_flags { CUDASIM_FLAGS(CUDASIM_RUNTIME_CONSTANT) };

typedef enum cudaError cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef void (*cudaHostFn_t)(void *argument);
typedef struct CUuuid_st {
    char bytes[16];
} cudaUUID_t;

#define cudaStreamLegacy ((cudaStream_t)0x1)

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int warpSize, maxThreadsPerBlock, multiProcessorCount, major, minor, pciBusID, pciDeviceID,
        pciDomainID, l2CacheSize, ECCEnabled, canMapHostMemory, unifiedAddressing,
        concurrentKernels, asyncEngineCount;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
#endif

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function);
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value);

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer);
cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes,
                       enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *destination, int destination_device, const void *source,
                                int source_device, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset(void *memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

#ifdef __cplusplus
}
#endif

/* NVIDIA's have default arguments in C++. */
#ifdef CUDASIM_CHECK
#define CUDASIM_DEFAULT(value)
#elif defined(__cplusplus)
#define CUDASIM_DEFAULT(value) = value
extern "C" {
#else
#define CUDASIM_DEFAULT(value)
#endif
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream CUDASIM_DEFAULT(0));
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags CUDASIM_DEFAULT(0));
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags CUDASIM_DEFAULT(0));
#if !defined(CUDASIM_CHECK) && defined(__cplusplus)
}
#endif

#endif
