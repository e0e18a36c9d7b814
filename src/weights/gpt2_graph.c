/* SPDX-License-Identifier: MIT
 *
 * The part of gpt2_tensors.h that looks at a graph. */
#include "config.h"

#include "weights/gpt2_tensors.h"

#include "model/gpt2.h"

#include <string.h>

#define HEAD_SIZE 64 /* of every GPT-2 that was published */

const struct ddp_parameter *ddp_gpt2_parameter(const ddp_graph *graph, const char *name)
{
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        if (strcmp(parameter->name, name) == 0)
            return parameter;
    }
    return NULL;
}

static bool fits(const ddp_graph *graph, const struct ddp_gpt2_tensor *tensor, int64_t layer,
                 const struct ddp_gpt2_shape *shape)
{
    char name[DDP_GPT2_NAME];
    int64_t dims[2];
    const struct ddp_parameter *parameter =
        ddp_gpt2_parameter(graph, ddp_gpt2_tensor_name(name, tensor, layer));
    const int count = ddp_gpt2_tensor_dims(dims, tensor, shape);
    return parameter && parameter->dim_count == count && parameter->dims[0] == dims[0] &&
           (count == 1 || parameter->dims[1] == dims[1]);
}

bool ddp_gpt2_shape_of(struct ddp_gpt2_shape *shape, const ddp_graph *graph)
{
    const struct ddp_parameter *wte = ddp_gpt2_parameter(graph, "wte.weight");
    const struct ddp_parameter *wpe = ddp_gpt2_parameter(graph, "wpe.weight");
    const int per_layer = 12, others = DDP_GPT2_TENSORS - per_layer;
    const int count = ddp_graph_parameter_count(graph);
    if (!wte || !wpe || wte->dim_count != 2 || count <= others || (count - others) % per_layer != 0)
        return false;
    struct ddp_gpt2_shape found = {.layers = (count - others) / per_layer,
                                   .heads = shape->heads,
                                   .channels = wte->dims[1],
                                   .vocabulary = wte->dims[0],
                                   .context = wpe->dims[0]};
    for (int i = 0; i < DDP_GPT2_TENSORS; i++)
        for (int64_t l = 0; l < (ddp_gpt2_tensors[i].of_layer ? found.layers : 1); l++)
            if (!fits(graph, &ddp_gpt2_tensors[i], l, &found))
                return false;
    *shape = found;
    return true;
}

void ddp_gpt2_describe(const struct ddp_gpt2_shape *shape, const struct ddp_model **model,
                       struct ddp_model_config *config)
{
    *model = &ddp_model_gpt2;
    *config = (struct ddp_model_config){
        .features = shape->context,
        .dim_count = 1,
        .dims = {shape->context},
        .classes = shape->vocabulary,
        .described = shape->heads > 0,
    };
    *ddp_gpt2_of(&config->own) =
        (struct ddp_gpt2){.layers = shape->layers,
                          .heads = shape->heads                   ? shape->heads
                                   : shape->channels >= HEAD_SIZE ? shape->channels / HEAD_SIZE
                                                                  : 1,
                          .channels = shape->channels,
                          .context = shape->context,
                          .norm_eps = 1e-5};
}
