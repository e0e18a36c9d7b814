/* SPDX-License-Identifier: MIT
 *
 * The interchange of GPT-2 weights without a training run:
 *   gpt2_tool SHAPE load FILE OUT          reads any form, writes ours
 *   gpt2_tool SHAPE FORMAT FILE OUT        reads any form, writes for another program: hf, llmc,
 *                                          llmc-bf16
 *   gpt2_tool config FILE OUT              reads a config.json and writes it anew
 * SHAPE is layers,heads,channels,vocabulary,context. Exit status as the trainer's. */
#include "config.h"

#include "core/log.h"
#include "model/gpt2.h"
#include "weights/format.h"
#include "weights/hf_config.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NONE DDP_ACTIVATION_NONE

/* The parameters of a GPT-2, each read by some operation: what a graph demands. */
static ddp_tensor *use_layer(ddp_graph *graph, ddp_tensor *x, ddp_tensor *const *t, int64_t heads)
{
    ddp_tensor *square = t[6]; /* attn.c_proj.weight; vectors of C are biases of its product */
    x = ddp_graph_linear(graph, x, square, t[2], NONE);
    x = ddp_graph_linear(graph, x, square, t[3], NONE);
    x = ddp_graph_attention(graph, ddp_graph_linear(graph, x, t[4], t[5], NONE), heads);
    x = ddp_graph_linear(graph, x, square, t[7], NONE);
    x = ddp_graph_linear(graph, x, square, t[8], NONE);
    x = ddp_graph_linear(graph, x, square, t[9], NONE);
    x = ddp_graph_linear(graph, x, t[10], t[11], NONE);
    return ddp_graph_linear(graph, x, t[12], t[13], NONE);
}

static ddp_tensor *make(ddp_graph *graph, const struct ddp_gpt2_shape *shape, int i, int64_t layer)
{
    char name[DDP_GPT2_NAME];
    int64_t dims[2];
    const struct ddp_init zeros = {.kind = DDP_INIT_ZEROS};
    const int count = ddp_gpt2_tensor_dims(dims, &ddp_gpt2_tensors[i], shape);
    ddp_gpt2_tensor_name(name, &ddp_gpt2_tensors[i], layer);
    return ddp_graph_parameter(graph, name, count, dims, zeros);
}

static ddp_graph *make_graph(const struct ddp_gpt2_shape *shape)
{
    ddp_graph *graph = NULL;
    ddp_tensor *t[DDP_GPT2_TENSORS];
    if (ddp_graph_create(&graph) != DDP_OK)
        return NULL;
    ddp_tensor *tokens = ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){1, 1});
    for (int i = 0; i < 2; i++)
        t[i] = make(graph, shape, i, 0);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, t[0], t[1]);
    for (int64_t l = 0; l < shape->layers; l++) {
        for (int i = 2; i < DDP_GPT2_TENSORS - 2; i++)
            t[i] = make(graph, shape, i, l);
        x = use_layer(graph, x, t, shape->heads);
    }
    for (int i = DDP_GPT2_TENSORS - 2; i < DDP_GPT2_TENSORS; i++)
        x = ddp_graph_linear(graph, x, t[6], make(graph, shape, i, 0), NONE);
    if (ddp_graph_finish(graph, x, ddp_graph_sum(graph, x)) == DDP_OK)
        return graph;
    ddp_graph_destroy(graph);
    return NULL;
}

static enum ddp_status convert(const char *text, const char *format, const char *from,
                               const char *to)
{
    struct ddp_hf_config config = {.norm_eps = 1e-5};
    struct ddp_gpt2_shape *shape = &config.shape;
    if (sscanf(text, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64, &shape->layers,
               &shape->heads, &shape->channels, &shape->vocabulary, &shape->context) != 5)
        return DDP_ERR_INVALID;
    ddp_graph *graph = make_graph(shape);
    if (!graph)
        return DDP_ERR_MEMORY;
    float *flat = calloc((size_t)ddp_graph_flat_count(graph), sizeof *flat);
    enum ddp_status status = flat ? DDP_OK : DDP_ERR_MEMORY;
    const struct ddp_weight_format *chosen = ddp_weight_format_named(format);
    const struct ddp_gpt2 gpt2 = {.heads = shape->heads, .norm_eps = config.norm_eps};
    if (status == DDP_OK)
        status = ddp_train_weights_load(from, graph, shape->heads, flat, NULL);
    if (status == DDP_OK && strcmp(format, "load") == 0)
        status = ddp_train_weights_save(to, graph, flat, NULL);
    else if (status == DDP_OK && (status = ddp_weight_format_choose(&chosen, to)) == DDP_OK)
        status = chosen->write(to, graph, &gpt2, flat);
    free(flat);
    ddp_graph_destroy(graph);
    return status;
}

int main(int argc, char **argv)
{
    struct ddp_hf_config config;
    enum ddp_status status = DDP_ERR_INVALID;
    ddp_log_set_name("gpt2_tool");
    if (argc == 4 && strcmp(argv[1], "config") == 0) {
        status = ddp_hf_config_parse(&config, argv[2], NULL, 0);
        if (status == DDP_OK)
            status = ddp_hf_config_write(argv[3], &config);
    } else if (argc == 5) {
        status = convert(argv[1], argv[2], argv[3], argv[4]);
    }
    return ddp_status_exit_code(status);
}
