/* SPDX-License-Identifier: MIT
 *
 * The CPU's tables of operations; see kernels.h. */
#include "config.h"

#include "kernels/kernels.h"

#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cached.h"
#include "kernels/batch_norm.h"
#include "kernels/clip.h"
#include "kernels/bf16.h"
#include "kernels/check.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/dropout.h"
#include "kernels/ema.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/merge.h"
#include "kernels/mse.h"
#include "kernels/norm.h"
#include "kernels/pool2d.h"
#include "kernels/preference.h"
#include "kernels/relu.h"
#include "kernels/rotary.h"
#include "kernels/sgd.h"
#include "kernels/softmax_cross_entropy.h"
#include "kernels/sum.h"
#include "kernels/swiglu.h"
#include "kernels/transpose.h"

enum ddp_status ddp_check_dtype(const char *operation, enum ddp_dtype dtype)
{
    if (dtype != DDP_F32)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: the CPU keeps activations in float32, not dtype %d", operation,
                        (int)dtype);
    return DDP_OK;
}

#define ENTRY(operation) .operation = ddp_##operation,

const struct ddp_kernels ddp_kernels_cpu = {.name = "cpu",
                                            .reads_bf16_weights = true,
                                            .preference_targets = ddp_preference_targets,
                                            .preference = ddp_preference,
                                            DDP_KERNELS(ENTRY)};
