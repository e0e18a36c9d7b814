/* SPDX-License-Identifier: MIT
 *
 * Hugging Face's config.json of a GPT-2: read for the shape of a model, written beside exported
 * weights. */
#ifndef DDP_WEIGHTS_HF_CONFIG_H
#define DDP_WEIGHTS_HF_CONFIG_H

#include "weights/gpt2_tensors.h"

struct ddp_hf_config {
    struct ddp_gpt2_shape shape;
    double dropout; /* of the embedding and what the blocks add (embd_pdrop, resid_pdrop) */
    double attention_dropout; /* attn_pdrop, which our attention does not do */
    bool exact_gelu;          /* "gelu", and not its tanh form, "gelu_new" */
    double norm_eps;
};

/* Reads a text, or the file `name` where it is NULL. Fields that are left out have the values of
 * transformers' GPT2Config; fields that ask for what our model does not do are refused by name;
 * others are ignored.
 * DDP_ERR_IO, DDP_ERR_FORMAT: names the file and the field. */
enum ddp_status ddp_hf_config_parse(struct ddp_hf_config *config, const char *name,
                                    const char *text, size_t bytes);

/* Writes a file that transformers reads with weights beside it. */
enum ddp_status ddp_hf_config_write(const char *path, const struct ddp_hf_config *config);

#endif
