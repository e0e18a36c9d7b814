/* SPDX-License-Identifier: MIT
 *
 * What a GPT-2 has of its own, for those who read and write files of other programs. */
#ifndef DDP_MODEL_GPT2_H
#define DDP_MODEL_GPT2_H

#include "model/model.h"

struct ddp_gpt2 {
    int64_t layers; /* blocks */
    int64_t heads;
    int64_t channels; /* C */
    int64_t context;  /* positions that it distinguishes, at least T */
    double dropout;   /* of embeddings and of what is added to the residual stream */
    double norm_eps;
    bool exact_gelu; /* erf; otherwise the approximation by tanh, as GPT-2 was trained */
};

/* Of a config of ddp_model_gpt2. Zeros are filled in by ddp_model_configure(). */
struct ddp_gpt2 *ddp_gpt2_of(union ddp_model_own *own);
const struct ddp_gpt2 *ddp_gpt2_in(const struct ddp_model_config *config);

/* Fills in zeros from another; not the dropout. */
void ddp_gpt2_fill(struct ddp_gpt2 *gpt2, const struct ddp_gpt2 *from);

#endif
