/* SPDX-License-Identifier: MIT
 *
 * See gpt2_tensors.h. */
#include "config.h"

#include "weights/gpt2_tensors.h"

#include <inttypes.h>

const struct ddp_gpt2_tensor ddp_gpt2_tensors[DDP_GPT2_TENSORS] = {
    {"wte.weight", false, false, DDP_GPT2_V, 1}, {"wpe.weight", false, false, DDP_GPT2_T, 1},
    {"ln_1.weight", true, false, 1, 0},          {"ln_1.bias", true, false, 1, 0},
    {"attn.c_attn.weight", true, true, 3, 1},    {"attn.c_attn.bias", true, false, 3, 0},
    {"attn.c_proj.weight", true, true, 1, 1},    {"attn.c_proj.bias", true, false, 1, 0},
    {"ln_2.weight", true, false, 1, 0},          {"ln_2.bias", true, false, 1, 0},
    {"mlp.c_fc.weight", true, true, 4, 1},       {"mlp.c_fc.bias", true, false, 4, 0},
    {"mlp.c_proj.weight", true, true, 1, 4},     {"mlp.c_proj.bias", true, false, 1, 0},
    {"ln_f.weight", false, false, 1, 0},         {"ln_f.bias", false, false, 1, 0},
};

const char *ddp_gpt2_tensor_name(char name[DDP_GPT2_NAME], const struct ddp_gpt2_tensor *tensor,
                                 int64_t layer)
{
    if (tensor->of_layer)
        snprintf(name, DDP_GPT2_NAME, "h.%" PRId64 ".%s", layer, tensor->name);
    else
        snprintf(name, DDP_GPT2_NAME, "%s", tensor->name);
    return name;
}

int ddp_gpt2_tensor_dims(int64_t *dims, const struct ddp_gpt2_tensor *tensor,
                         const struct ddp_gpt2_shape *shape)
{
    dims[0] = tensor->rows == DDP_GPT2_V   ? shape->vocabulary
              : tensor->rows == DDP_GPT2_T ? shape->context
                                           : tensor->rows * shape->channels;
    dims[1] = tensor->columns * shape->channels;
    return tensor->columns ? 2 : 1;
}
