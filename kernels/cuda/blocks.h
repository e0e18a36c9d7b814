/* SPDX-License-Identifier: MIT
 *
 * Frozen weights that lie in blocks (core/blocks.h), unpacked on the device for a product. */
#ifndef DDP_KERNELS_CUDA_BLOCKS_H
#define DDP_KERNELS_CUDA_BLOCKS_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_cuda_blocks {
    enum ddp_dtype type; /* one that ddp_linear_gpus_read() */
    const void *values;
    int64_t first, count; /* of the values, what is unpacked */
    enum ddp_dtype result;
    void *to; /* (count) out, aligned to 16 bytes, of the type `result`: DDP_F32, or rounded to
                 DDP_BF16 or DDP_F16 */
};

enum ddp_status ddp_cuda_unpack(const struct ddp_cuda_blocks *args, struct ddp_cuda *cuda);

#ifdef __cplusplus
}
#endif

#endif
