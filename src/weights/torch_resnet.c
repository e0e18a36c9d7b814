/* SPDX-License-Identifier: MIT
 *
 * See torch_resnet.h. */
#include "config.h"

#include "weights/torch_resnet.h"

#include "core/log.h"
#include "core/text.h"
#include "model/resnet.h"
#include "weights/weights.h"

#include <string.h>

static int count_blocks(const ddp_safetensors *file, int stage)
{
    char name[64];
    int count = 0;
    do
        snprintf(name, sizeof name, "layer%d.%d.conv1.weight", stage, count);
    while (count < 100 && ddp_safetensors_find(file, name) && ++count);
    return count;
}

/* 0: they are not of one that we know. */
static int64_t count_layers(const ddp_safetensors *file)
{
    static const int known[][6] = {{18, 0, 2, 2, 2, 2}, {34, 0, 3, 4, 6, 3}, {50, 1, 3, 4, 6, 3}};
    const int bottleneck = ddp_safetensors_find(file, "layer1.0.conv3.weight") != NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        bool same = bottleneck == known[i][1];
        for (int stage = 1; same && stage <= 4; stage++)
            same = count_blocks(file, stage) == known[i][1 + stage];
        if (same)
            return known[i][0];
    }
    return 0;
}

bool ddp_torch_resnet_is(const ddp_safetensors *file)
{
    const struct ddp_safetensor *first = ddp_safetensors_find(file, "conv1.weight");
    return !ddp_safetensors_metadata(file, DDP_WEIGHTS_MODEL_KEY) && first &&
           first->dim_count == 4 && ddp_safetensors_find(file, "layer1.0.bn1.running_mean");
}

enum ddp_status ddp_torch_resnet_describe(const ddp_safetensors *file, const char *path,
                                          const struct ddp_model **model,
                                          struct ddp_model_config *config)
{
    const struct ddp_safetensor *first = ddp_safetensors_find(file, "conv1.weight");
    const struct ddp_safetensor *head = ddp_safetensors_find(file, "fc.weight");
    const int64_t layers = count_layers(file);
    if (layers == 0 || (first->dims[2] != 7 && first->dims[2] != 3) ||
        (first->dims[1] != 1 && first->dims[1] != 3) || (head && head->dim_count != 2))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a residual network that is not known here: those of torchvision and "
                        "timm are read that are called resnet18, resnet34 and resnet50",
                        path);
    *model = &ddp_model_resnet;
    *config = (struct ddp_model_config){
        .features = first->dims[1] * DDP_TORCH_RESNET_SIDE * DDP_TORCH_RESNET_SIDE,
        .dim_count = 3,
        .dims = {first->dims[1], DDP_TORCH_RESNET_SIDE, DDP_TORCH_RESNET_SIDE},
        .classes = head && head->dims[0] > 0 ? head->dims[0] : 1,
        .described = true,
        .open_head = true,
    };
    *ddp_resnet_of(&config->own) = (struct ddp_resnet){.layers = layers, .first = first->dims[2]};
    return DDP_OK;
}

bool ddp_torch_resnet_replaces(const ddp_safetensors *file, const struct ddp_parameter *parameter)
{
    const struct ddp_safetensor *head = ddp_safetensors_find(file, "fc.weight");
    return strncmp(parameter->name, "fc.", 3) == 0 &&
           (!head || head->dims[0] != parameter->dims[0]);
}

bool ddp_torch_resnet_ignores(const char *name)
{
    return ddp_text_ends_with(name, ".num_batches_tracked");
}
