/* SPDX-License-Identifier: MIT
 *
 * The table of operations of a CUDA device; see kernels.h. */
#include "config.h"

#include "kernels/kernels_cuda.h"

#include "kernels/check.h"

enum ddp_status ddp_check_dtype(const char *operation, enum ddp_dtype dtype)
{
    if (dtype != DDP_F32 && dtype != DDP_BF16)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: CUDA keeps activations in float32 or bf16, not dtype %d", operation,
                        (int)dtype);
    return DDP_OK;
}

#define ENTRY(operation) .operation = ddp_cuda_##operation,

const struct ddp_kernels ddp_kernels_cuda = {.name = "cuda",
                                             .bf16_activations = true,
                                             .pads_classes = true,
                                             DDP_KERNELS(ENTRY) ENTRY(add_layer_norm_forward)
                                                 ENTRY(preference_targets) ENTRY(preference)
                                                     ENTRY(reduce)};
