/* SPDX-License-Identifier: MIT
 *
 * GGUF files among the formats of weights. */
#include "config.h"

#include "core/memory.h"
#include "model/gpt2.h"
#include "weights/format.h"
#include "weights/gguf.h"

#include <stdlib.h>

static enum ddp_status describe_gpt2(const char *path, const struct ddp_model **model,
                                     struct ddp_model_config *config)
{
    struct ddp_gguf_gpt2 gpt2;
    enum ddp_status status = ddp_gguf_read_gpt2(&gpt2, path);
    if (status != DDP_OK)
        return status;
    ddp_gpt2_describe(&gpt2.shape, model, config);
    ddp_gpt2_of(&config->own)->norm_eps = gpt2.norm_eps;
    return DDP_OK;
}

static enum ddp_status describe(const char *path, const struct ddp_model **model,
                                struct ddp_model_config *config)
{
    struct ddp_hf_llama hf;
    if (ddp_gguf_is_gpt2(path))
        return describe_gpt2(path, model, config);
    enum ddp_status status = ddp_gguf_read(&hf, path);
    if (status != DDP_OK)
        return status;
    ddp_llama_describe(&hf.shape, hf.vocabulary, model, config);
    return DDP_OK;
}

static enum ddp_status read_file(const char *path, const ddp_graph *graph, int64_t heads,
                                 float *flat, void *frozen)
{
    static const struct ddp_llama none; /* no rows are permuted */
    struct ddp_hf_llama config;
    const bool gpt2 = ddp_gguf_is_gpt2(path);
    const int count = ddp_graph_place_count(graph);
    struct ddp_hf_values *values = ddp_array_alloc((size_t)count, sizeof *values);
    enum ddp_status status = !values ? DDP_ERR_MEMORY
                             : gpt2  ? DDP_OK
                                     : ddp_gguf_read(&config, path);
    (void)heads;
    for (int i = 0; status == DDP_OK && i < count; i++)
        values[i] = ddp_hf_values_of(ddp_graph_place_at(graph, i, flat, frozen));
    if (status == DDP_OK)
        status = gpt2 ? ddp_gguf_load_each(path, &none, values, (size_t)count)
                      : ddp_gguf_load(path, &config, values, (size_t)count);
    free(values);
    return status;
}

/* Written by the plan: with a tokenizer, and in a type. */
const struct ddp_weight_format ddp_format_gguf = {
    .name = "gguf",
    .suffix = ".gguf",
    .is = ddp_gguf_is,
    .describe = describe,
    .read = read_file,
};
