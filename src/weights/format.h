/* SPDX-License-Identifier: MIT
 *
 * The formats of files of weights: one const struct each, and a line in the table of format.c. */
#ifndef DDP_WEIGHTS_FORMAT_H
#define DDP_WEIGHTS_FORMAT_H

#include "graph/graph.h"
#include "model/model.h"

struct ddp_gpt2;

struct ddp_weight_format {
    const char *name;   /* of --export PATH,format=NAME; NULL: it is not chosen */
    const char *suffix; /* of paths that it is written to where none is named; NULL: none */
    size_t value_bytes; /* of a number that it writes */
    /* Is it a file of this format? Says nothing. NULL: another row reads such files. */
    bool (*is)(const char *path);
    /* What model is in it; as ddp_train_weights_model(). */
    enum ddp_status (*describe)(const char *path, const struct ddp_model **model,
                                struct ddp_model_config *config);
    /* As ddp_train_weights_load(), but the values may be anything. */
    enum ddp_status (*read)(const char *path, const ddp_graph *graph, int64_t heads, float *flat,
                            void *frozen);
    /* Writes a GPT-2, of which the graph does not say everything. DDP_ERR_INVALID: it is none. */
    enum ddp_status (*write)(const char *path, const ddp_graph *graph, const struct ddp_gpt2 *gpt2,
                             const float *flat);
};

extern const struct ddp_weight_format ddp_format_llmc, ddp_format_llmc_bf16, ddp_format_hf_gpt2,
    ddp_format_hf_bert, ddp_format_gguf, ddp_format_safetensors;

/* That of a file which is read. */
const struct ddp_weight_format *ddp_weight_format_of(const char *path);

/* The one of that name; NULL: there is none. */
const struct ddp_weight_format *ddp_weight_format_named(const char *name);

/* What --export writes to a path: the format that is named, or NULL, and then the one of its
 * suffix. DDP_ERR_INVALID: neither. */
enum ddp_status ddp_weight_format_choose(const struct ddp_weight_format **format, const char *path);

#endif
