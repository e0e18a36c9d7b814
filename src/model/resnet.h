/* SPDX-License-Identifier: MIT
 *
 * What the model resnet is, for readers of files that were written by other programs. */
#ifndef DDP_MODEL_RESNET_H
#define DDP_MODEL_RESNET_H

#include "model/model.h"

struct ddp_resnet {
    int64_t layers;
    int64_t first; /* side of the first layer's kernel; 0: as the images' size has it, 3 or 7 */
};

static inline struct ddp_resnet *ddp_resnet_of(union ddp_model_own *own)
{
    return (struct ddp_resnet *)(void *)own;
}

#endif
