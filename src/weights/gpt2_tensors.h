/* SPDX-License-Identifier: MIT
 *
 * The tensors of a GPT-2, as other programs name, order and turn them. Ours have the names without
 * the prefix "transformer." and matrices (out, in), as torch.nn.Linear.
 *
 * L layers, C channels, V vocabulary, T context. */
#ifndef DDP_WEIGHTS_GPT2_TENSORS_H
#define DDP_WEIGHTS_GPT2_TENSORS_H

#include "graph/graph.h"
#include "model/model.h"

struct ddp_gpt2_shape {
    int64_t layers, heads, channels, vocabulary, context; /* heads 0: not known */
};

#define DDP_GPT2_TENSORS 16
#define DDP_GPT2_NAME    64 /* bytes of a name with its layer */

/* One kind of tensor; in the order of llm.c's files, which have each for all layers together. */
struct ddp_gpt2_tensor {
    const char *name; /* behind "h.N." for those of a layer */
    bool of_layer;
    bool turned;       /* Hugging Face stores it (in, out) */
    int rows, columns; /* in C, or DDP_GPT2_V or DDP_GPT2_T; columns 0: a vector */
};

enum { DDP_GPT2_V = -1, DDP_GPT2_T = -2 };

extern const struct ddp_gpt2_tensor ddp_gpt2_tensors[DDP_GPT2_TENSORS];

/* "h.3.attn.c_attn.weight" */
const char *ddp_gpt2_tensor_name(char name[DDP_GPT2_NAME], const struct ddp_gpt2_tensor *tensor,
                                 int64_t layer);

/* Sets dims (2 of them) and returns how many there are. */
int ddp_gpt2_tensor_dims(int64_t *dims, const struct ddp_gpt2_tensor *tensor,
                         const struct ddp_gpt2_shape *shape);

/* Whether the graph is a GPT-2, and its shape. Heads stay as they are: weights do not have them. */
bool ddp_gpt2_shape_of(struct ddp_gpt2_shape *shape, const ddp_graph *graph);

/* The config of a model of that shape. Heads that are not known are guessed: then `described` is
 * false. */
void ddp_gpt2_describe(const struct ddp_gpt2_shape *shape, const struct ddp_model **model,
                       struct ddp_model_config *config);

/* The graph's parameter of that name; NULL: there is none. */
const struct ddp_parameter *ddp_gpt2_parameter(const ddp_graph *graph, const char *name);

#endif
