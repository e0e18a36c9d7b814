/* SPDX-License-Identifier: MIT
 *
 * See cuda.h: errors of CUDA in words. */
#include "config.h"

#include "kernels/cuda/cuda.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

bool ddp_cuda_is_set(const char *variable, const char *value)
{
    const char *set = getenv(variable);
    return set && strcmp(set, value) == 0;
}

/* What to do about an error; NULL: nothing is known. */
static const char *advice(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "a smaller --batch-size or more --acc-steps";
    case cudaErrorECCUncorrectable:
        return "its memory is damaged: leave this GPU out with CUDA_VISIBLE_DEVICES, or reset it "
               "(nvidia-smi -q -d ECC shows more)";
    case cudaErrorDevicesUnavailable:
        return "another process uses it exclusively (nvidia-smi shows which)";
    case cudaErrorNoKernelImageForDevice:
        return "this build has no code for this model of GPU: build with NVCC_GENCODE set for it";
    case cudaErrorInsufficientDriver:
        return "update the NVIDIA driver";
    case cudaErrorInitializationError:
        return "the process was forked after CUDA had been used, or the driver does not work "
               "(try nvidia-smi)";
    case cudaErrorUnknown:
    case cudaErrorNoDevice:
        return "the GPU may be lost: see dmesg for lines with Xid, and nvidia-smi";
    case cudaErrorLaunchTimeout:
        return "this GPU also serves a display, which ends long operations";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
        return ddp_cuda_is_set("DDP_CUDA_SYNC", "1") /* all is waited for */
                   ? "this is an error in the program"
                   : "in this operation or one before: with DDP_CUDA_SYNC=1 in the environment the "
                     "message names the right one";
    default:
        return NULL;
    }
}

enum ddp_status ddp_cuda_failed(cudaError_t error, const char *operation)
{
    int index = 0;
    const char *what = advice(error);
    (void)cudaGetLastError(); /* else it shows again in calls that succeed */
    if (cudaGetDevice(&index) != cudaSuccess)
        index = 0;
    return ddp_fail(error == cudaErrorMemoryAllocation ? DDP_ERR_MEMORY : DDP_ERR_SYSTEM,
                    "%s: GPU %d: %s%s%s", operation, index, cudaGetErrorString(error),
                    what ? ": " : "", what ? what : "");
}

enum ddp_status ddp_cuda_launched(struct ddp_cuda *cuda, const char *operation)
{
    cudaError_t error = cudaPeekAtLastError();
    if (error == cudaErrorNotReady) { /* left by a query, and no error */
        (void)cudaGetLastError();
        error = cudaSuccess;
    }
    if (error == cudaSuccess && cuda->synchronous)
        error = cudaStreamSynchronize(cuda->stream);
    return error == cudaSuccess ? DDP_OK : ddp_cuda_failed(error, operation);
}
