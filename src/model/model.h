/* SPDX-License-Identifier: MIT
 *
 * Models by name. A model is one file that builds a graph for a shard of given shape, and one line
 * in model.c. */
#ifndef DDP_MODEL_MODEL_H
#define DDP_MODEL_MODEL_H

#include "graph/graph.h"
#include "optim/schedule.h"

#define DDP_MODEL_LAYERS 16

/* What a model is built from. Zeros are filled in by ddp_model_configure(). */
struct ddp_model_config {
    int64_t batch;    /* samples of a shard */
    int64_t features; /* numbers of one sample */
    int dim_count;    /* ... and its shape: (C,H,W) of images, (T) of tokens */
    int64_t dims[4];
    int64_t classes;        /* or tokens of the vocabulary; 0: no labels */
    enum ddp_dtype compute; /* of matrix products: DDP_F32 or DDP_BF16 */
    /* What the device's kernels offer; of the run, not of the model: */
    enum ddp_dtype activations; /* in memory: DDP_F32, or DDP_BF16 with that compute */
    bool fuses_norms;           /* sums are normalised in one pass */
    int hidden_count;           /* mlp: hidden layers */
    int64_t hidden[DDP_MODEL_LAYERS];
    ddp_model_builder *builder; /* custom: the user's, and its argument */
    void *builder_arg;
    enum ddp_dtype x_dtype; /* of its samples */
    int64_t label_count;
    const char *size; /* of gpt2 and resnet, by name; NULL: the default */
    int64_t layers;   /* gpt2: blocks; resnet: depth */
    int64_t heads;    /* gpt2, as all below */
    int64_t channels; /* C */
    int64_t context;  /* positions that it distinguishes, at least T */
    double dropout;   /* of embeddings and of what is added to the residual stream */
    double norm_eps;
    bool exact_gelu; /* erf; otherwise the approximation by tanh, as GPT-2 was trained */
};

struct ddp_model {
    const char *name;
    const char *dataset;      /* the source of its data by default */
    enum ddp_dtype x_dtype;   /* of its samples: DDP_F32 numbers, DDP_I32 tokens */
    bool labels;              /* it needs labels */
    int64_t batch;            /* default samples of a shard; 0: 64 */
    const char *default_size; /* NULL: it has one size only */
    double rate;              /* the default learning rate, and how it changes */
    enum ddp_schedule_kind schedule;
    /* what else people train it with; 0: what PyTorch has as default */
    const char *optimizer; /* NULL: sgd */
    double beta2, weight_decay, clip_norm;
    bool decay_matrices_only; /* no weight decay for biases and norms */
    /* Sets the fields of a named size; a message if there is no such size. */
    const char *(*set_size)(struct ddp_model_config *config, const char *size);
    /* Fills in what is open, or says why it cannot be built (DDP_ERR_INVALID). May be NULL. */
    enum ddp_status (*check)(struct ddp_model_config *config);
    enum ddp_status (*build)(ddp_graph *graph, const struct ddp_model_config *config);
};

/* The model of that name; NULL: there is none. */
const struct ddp_model *ddp_model_find(const char *name);

/* The i-th model; NULL after the last. */
const struct ddp_model *ddp_model_at(int index);

/* Completes a config: size, then what is given beside it, then the model's own check.
 * DDP_ERR_INVALID: names the option that does not fit the model. */
enum ddp_status ddp_model_configure(const struct ddp_model *model, struct ddp_model_config *config);

/* A completed config as one line of text, "gpt2 classes=256 layers=4 ...", to be kept with weights:
 * what is needed to build the model again for other batches. */
#define DDP_MODEL_TEXT 512
void ddp_model_describe(const char *name, const struct ddp_model_config *config,
                        char text[DDP_MODEL_TEXT]);
/* The reverse, for text from a file. DDP_ERR_FORMAT: names it.
 *   name [out]    of the model, which this version may not have
 *   config [out]  all but batch
 *   path          for the message */
enum ddp_status ddp_model_read_description(char name[DDP_MODEL_TEXT],
                                           struct ddp_model_config *config, const char *text,
                                           const char *path);

/* Builds a model's graph: inputs 0 (samples) and, with classes, 1 (labels).
 *   graph [out]  freed with ddp_graph_destroy() */
enum ddp_status ddp_model_build(ddp_graph **graph, const struct ddp_model *model,
                                const struct ddp_model_config *config);

extern const struct ddp_model ddp_model_article, ddp_model_mlp, ddp_model_cnn, ddp_model_resnet,
    ddp_model_gpt2;
extern const struct ddp_model ddp_model_custom; /* has no name of its own, and is not listed */

#endif
