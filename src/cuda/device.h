/* SPDX-License-Identifier: MIT
 *
 * NVIDIA GPUs as devices, and what the communicator beside them needs of one. */
#ifndef DDP_CUDA_DEVICE_H
#define DDP_CUDA_DEVICE_H

#include "device/device.h"

#include "kernels/cuda/cuda.h"

extern const struct ddp_device_ops ddp_device_cuda;

/* For the trace: when a stream of this device did something. `track` names where it is shown
 * ("NCCL"; the GPU's number comes before it), and lives as long as the program. begin() is NULL
 * when nothing records; end() takes NULL, and of the event the name, key, text and value. Both come
 * from the thread that synchronizes the device, which adds what is done to the trace. */
struct ddp_cuda_span;
struct ddp_cuda_span *ddp_cuda_span_begin(struct ddp_cuda *cuda, cudaStream_t stream,
                                          const char *track);
void ddp_cuda_span_end(struct ddp_cuda_span *span, const struct ddp_trace_event *event);

#endif
