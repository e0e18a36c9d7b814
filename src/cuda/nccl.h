/* SPDX-License-Identifier: MIT
 *
 * NCCL between GPUs; ends in the backend's table. */
#ifndef DDP_CUDA_NCCL_H
#define DDP_CUDA_NCCL_H

#include "comm/comm.h"

extern const struct ddp_comm_ops ddp_comm_nccl;

#endif
