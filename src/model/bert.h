/* SPDX-License-Identifier: MIT
 *
 * The shape of an encoder of BERT's kind, for the model itself and for those who read and write
 * files of Hugging Face. */
#ifndef DDP_MODEL_BERT_H
#define DDP_MODEL_BERT_H

#include "model/llama.h"

#define DDP_BERT_INIT_STD 0.02 /* deviation of new matrices; initializer_range */

/* How the vectors of a text's tokens become one, in embeddings. */
enum ddp_bert_pooling { DDP_BERT_MEAN, DDP_BERT_CLS };

struct ddp_bert {
    struct ddp_lora lora; /* first, as in struct ddp_llama */
    int64_t layers, channels, heads, hidden;
    int64_t context;    /* max_position_embeddings */
    int64_t types;      /* type_vocab_size */
    int64_t vocabulary; /* tokens */
    int64_t pooling;    /* enum ddp_bert_pooling */
    int64_t length;     /* tokens of a text that embeddings are made of; 0: context */
    int64_t normalizes; /* 1: embeddings are given with length 1 */
    double norm_eps;
};

/* Those that may have adapters, by DDP_LLAMA_Q, K and V: "attention.self.query", ... */
#define DDP_BERT_LINEARS 3
extern const char *const ddp_bert_linear_names[DDP_BERT_LINEARS];

/* Of a config of ddp_model_bert. */
struct ddp_bert *ddp_bert_of(union ddp_model_own *own);
const struct ddp_bert *ddp_bert_in(const struct ddp_model_config *config);

/* Whether texts are compared with each other, as the sample's shape says; else they have labels. */
static inline bool ddp_bert_contrasts(const struct ddp_model_config *config)
{
    return config->dim_count == 3;
}

#endif
