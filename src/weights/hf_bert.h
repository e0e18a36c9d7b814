/* SPDX-License-Identifier: MIT
 *
 * Hugging Face directories with an encoder of BERT's kind: config.json beside model.safetensors;
 * those of sentence-transformers also say how tokens are pooled. */
#ifndef DDP_WEIGHTS_HF_BERT_H
#define DDP_WEIGHTS_HF_BERT_H

#include "model/bert.h"
#include "weights/hf_llama.h"

/* Whether the directory has a config.json with the model_type bert. Reports nothing. */
bool ddp_hf_bert_is(const char *directory);

/* Reads a config.json, or a text where one is given. What our model does not do is refused by name.
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_bert_parse(struct ddp_bert *bert, const char *name, const char *text,
                                  size_t bytes);

/* Samples of a model that gives so many values: classes, or a number; 0: embeddings. */
void ddp_hf_bert_set_outputs(struct ddp_model_config *config, int64_t outputs);

struct ddp_hf_bert_export {
    const char *directory; /* to write; its parent must exist */
    const struct ddp_bert *bert;
    bool contrasts;                 /* embeddings, for sentence-transformers; else a classifier */
    int64_t classes;                /* 0: it gives a number */
    const char *const *class_names; /* NULL: they have none */
    int64_t length;                 /* tokens that texts are cut to */
    const char *tokenizer;          /* the file of the vocabulary, which is copied */
    bool lowers;                    /* it makes letters small */
};

/* Whether that directory can be written, at the beginning of a run. */
enum ddp_status ddp_hf_bert_export_check(const char *directory);

/* Writes a directory that transformers and, of embeddings, sentence-transformers load.
 *   values  of all parameters but adapters
 * DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_bert_export(const struct ddp_hf_bert_export *to,
                                   const struct ddp_hf_values *values, size_t count);

#endif
