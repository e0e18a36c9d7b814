/* SPDX-License-Identifier: MIT
 *
 * ResNets of torchvision and timm, saved with safetensors. Their tensors have our names. A file has
 * no description of ours, and its head, "fc", may give way to one for other classes. */
#ifndef DDP_WEIGHTS_TORCH_RESNET_H
#define DDP_WEIGHTS_TORCH_RESNET_H

#include "graph/graph.h"
#include "model/model.h"
#include "weights/safetensors.h"

/* What they learned from: ImageNet, scaled as by both programs. As ddp_dataset_describe(). */
#define DDP_TORCH_RESNET_SIDE 224
#define DDP_TORCH_RESNET_DATA                                                                      \
    "{\"kind\":\"images\",\"size\":[224,224],"                                                     \
    "\"mean\":[0.485,0.456,0.406],\"std\":[0.229,0.224,0.225]}"

bool ddp_torch_resnet_is(const ddp_safetensors *file);

/* As ddp_train_weights_model(). DDP_ERR_FORMAT: it is not resnet18, 34 or 50. */
enum ddp_status ddp_torch_resnet_describe(const ddp_safetensors *file, const char *path,
                                          const struct ddp_model **model,
                                          struct ddp_model_config *config);

/* Whether a parameter begins anew, being the head for other classes than the file's; and whether a
 * tensor is none of the model's. */
bool ddp_torch_resnet_replaces(const ddp_safetensors *file, const struct ddp_parameter *parameter);
bool ddp_torch_resnet_ignores(const char *name);

#endif
