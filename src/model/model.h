/* SPDX-License-Identifier: MIT
 *
 * Models by name. A model is one file that builds a graph for a shard of given shape, and one line
 * in model.c. */
#ifndef DDP_MODEL_MODEL_H
#define DDP_MODEL_MODEL_H

#include "graph/graph.h"
#include "optim/schedule.h"

#define DDP_MODEL_LAYERS 16

struct ddp_model_config {
    int64_t batch;    /* samples of a shard */
    int64_t features; /* numbers of one sample */
    int64_t classes;  /* 0: no labels */
    int hidden_count; /* mlp: hidden layers */
    int64_t hidden[DDP_MODEL_LAYERS];
};

struct ddp_model {
    const char *name;
    const char *dataset;    /* the source of its data when nothing is said about data */
    enum ddp_dtype x_dtype; /* of its samples: DDP_F32 numbers, DDP_I32 tokens */
    bool labels;            /* it needs labels */
    double rate;            /* the default learning rate, and how it changes */
    enum ddp_schedule_kind schedule;
    /* what else people train it with; 0: what PyTorch has as default */
    const char *optimizer; /* NULL: sgd */
    double beta2, weight_decay, clip_norm;
    bool decay_matrices_only; /* no weight decay for biases and norms */
    enum ddp_status (*build)(ddp_graph *graph, const struct ddp_model_config *config);
};

/* The model of that name; NULL: there is none. */
const struct ddp_model *ddp_model_find(const char *name);

/* The i-th model; NULL after the last. */
const struct ddp_model *ddp_model_at(int index);

/* Builds a model's graph: inputs 0 (samples) and, with classes, 1 (labels).
 *   graph [out]  freed with ddp_graph_destroy() */
enum ddp_status ddp_model_build(ddp_graph **graph, const struct ddp_model *model,
                                const struct ddp_model_config *config);

extern const struct ddp_model ddp_model_article, ddp_model_mlp;

#endif
