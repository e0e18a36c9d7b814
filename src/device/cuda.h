/* SPDX-License-Identifier: MIT
 *
 * NVIDIA GPUs as devices, and what the communicator beside them needs of one. */
#ifndef DDP_DEVICE_CUDA_H
#define DDP_DEVICE_CUDA_H

#include "device/device.h"

#include "kernels/cuda.h"

extern const struct ddp_device_ops ddp_device_cuda;

#endif
