/* SPDX-License-Identifier: MIT
 *
 * Models by name. A model is one file that builds a graph for a shard of given shape, with the rows
 * of the option table for what can be chosen about it, and one line in model.c. */
#ifndef DDP_MODEL_MODEL_H
#define DDP_MODEL_MODEL_H

#include "core/options.h"
#include "graph/graph.h"
#include "optim/schedule.h"

#define DDP_MODELS    16 /* in the table, at most */
#define DDP_MODEL_OWN 512

/* A model's own struct: set from its options and its description. Begins as zeros. */
union ddp_model_own {
    unsigned char bytes[DDP_MODEL_OWN];
    double aligned;
};

/* What a model is built from. */
struct ddp_model_config {
    int64_t batch;    /* samples of a shard */
    int64_t features; /* numbers of one sample */
    int dim_count;    /* ... and its shape: (C,H,W) of images, (T) of tokens */
    int64_t dims[4];
    int64_t classes;        /* or tokens of the vocabulary; 0: no labels, or numbers */
    enum ddp_dtype compute; /* of matrix products: DDP_F32, DDP_BF16 or DDP_F16 */
    /* What the device's kernels offer; of the run, not of the model: */
    enum ddp_dtype activations; /* in memory: DDP_F32, or DDP_BF16 with that compute */
    struct ddp_graph_offers offers;
    bool recompute;         /* blocks are computed again in backward */
    enum ddp_dtype x_dtype; /* of the samples */
    int64_t label_count;
    enum ddp_dtype label_dtype;
    struct ddp_objective objective; /* of texts: preferences; of the run, not of the model */
    bool head_only;                 /* is learned: of the run too; models with `holds` alone */
    bool last_only; /* tokens: the output is of the last position only; to generate, not to train */
    int64_t positions;  /* ... which a cache of keys and values may hold; 0: those of dims */
    int64_t vocabulary; /* of sentences; else 0 */
    int64_t table_rows; /* to train on, of a table; else 0 */
    int64_t words, word_rows, word_most; /* of its rows: of data/dataset.h */
    const char *size; /* by name, of a model that has several; NULL: the default */
    bool described;   /* own is that of weights that are loaded, and leaves nothing open */
    bool open_head;   /* ... and are another program's: a head for other classes begins anew */
    union ddp_model_own own;
};

/* A member of a model's own struct that its description has if it is not 0. */
struct ddp_model_field {
    const char *name; /* NULL ends the list */
    enum { DDP_FIELD_INT, DDP_FIELD_REAL, DDP_FIELD_BOOL, DDP_FIELD_LIST } kind;
    size_t offset;
    double min, max;
    /* LIST, of int64_t: how many there may be, and the member with how many there are, an int. */
    int most;
    size_t count_offset;
};

struct ddp_lora;

struct ddp_model {
    const char *name;
    const char *dataset;    /* the source of its data by default */
    enum ddp_dtype x_dtype; /* of its samples: DDP_F32 numbers, DDP_I32 tokens */
    bool labels;            /* it needs labels */
    bool holds;             /* it can hold all but its head: head_only */
    bool numbers;           /* ... which may be numbers: then it gives one */
    int sample_dim_count;   /* what a plan without data takes a sample for; 0: --seq-len tokens */
    int64_t sample_dims[4], sample_classes;
    int64_t batch;                        /* default samples of a shard; 0: 64 */
    int64_t batch_least;                  /* ... of few samples, in plan/plan.c; 0: the same */
    int64_t epochs;                       /* default; 0: 5 */
    int64_t epochs_most;                  /* ... of few samples; 0: the same */
    const char *default_size;             /* NULL: it has one size only */
    const struct ddp_option *options;     /* of its own struct; NULL: none */
    const struct ddp_model_field *fields; /* the same; what else the shapes need is in the config */
    double rate;                          /* the default learning rate, and how it changes */
    double tuned_rate, adapted_rate;      /* ... of weights that are loaded, and of adapters to
                                             them; 0: the same */
    enum ddp_schedule_kind schedule;
    /* what else people train it with; 0: what PyTorch has as default */
    const char *optimizer; /* NULL: sgd */
    double beta2, weight_decay, clip_norm;
    bool decay_matrices_only; /* no weight decay for biases and norms */
    /* Fills in what is open, for the size if it has several, or says why it cannot be built
     * (DDP_ERR_INVALID). May be NULL. */
    enum ddp_status (*check)(struct ddp_model_config *config);
    /* Of a completed config: the positions that the model distinguishes. NULL: it does not learn
     * texts. */
    int64_t (*context)(const struct ddp_model_config *config);
    /* The same of a model that learns sentences, which it needs whole (data/sentences.c). NULL: it
     * does not. */
    int64_t (*sentence)(const struct ddp_model_config *config);
    bool borders;           /* texts: it knows those of documents in a row */
    bool exports_directory; /* other programs have its weights in a directory, not in a file */
    /* Tokens of the vocabulary that a size, or NULL, has; 0: those of the data. NULL: always. */
    int64_t (*vocabulary)(const char *size);
    double (*dropout)(const struct ddp_model_config *config); /* NULL: it has none */
    struct ddp_lora *(*lora)(union ddp_model_own *own);       /* adapters; NULL: it has none */
    /* Completes a config with that of loaded weights, except what options say of dropout. NULL: own
     * is all of it; without adapters the shapes of parameters are compared. */
    void (*take)(struct ddp_model_config *config, const struct ddp_model_config *loaded,
                 bool own_dropout);
    /* What a size leaves open becomes that of loaded weights: before and after it is configured.
     * May be NULL. */
    void (*leave_open)(struct ddp_model_config *named, const struct ddp_model_config *loaded,
                       bool configured);
    enum ddp_status (*build)(ddp_graph *graph, const struct ddp_model_config *config);
};

/* The model of that name; NULL: there is none. */
const struct ddp_model *ddp_model_find(const char *name);

enum ddp_model_data {
    DDP_ON_NUMBERS,
    DDP_ON_TOKENS,
    DDP_ON_TABLE,
    DDP_ON_IMAGES, /* directories of them */
};

/* The one that is trained where none is named. */
const struct ddp_model *ddp_model_default(enum ddp_model_data data);

/* The same model with the defaults that it has on such data; and whether two are the same but for
 * these. */
const struct ddp_model *ddp_model_on(const struct ddp_model *model, enum ddp_model_data data);
bool ddp_model_same(const struct ddp_model *a, const struct ddp_model *b);

/* That the length of samples is at most the model's context. */
enum ddp_status ddp_model_check_length(int64_t length, int64_t context);

/* Completes a config with that of loaded weights, except what options say of dropout and adapters.
 * false: the model leaves that to its caller. */
bool ddp_model_take(const struct ddp_model *model, struct ddp_model_config *config,
                    const struct ddp_model_config *loaded, bool own_dropout, bool own_lora);

/* The rank of a config's adapters; 0: none. */
int64_t ddp_model_adapters(const struct ddp_model *model, const struct ddp_model_config *config);

/* The i-th model; NULL after the last. */
const struct ddp_model *ddp_model_at(int index);

/* Models may share options, whose members both structs then begin with: the first one that has
 * those of the i-th. */
int ddp_model_options_of(int index);

/* Completes a config: the size's name, then the model's own check. DDP_ERR_INVALID: names the
 * option that does not fit the model. */
enum ddp_status ddp_model_configure(const struct ddp_model *model, struct ddp_model_config *config);

/* A completed config as one line of text, "gpt2 classes=256 layers=4 ...", to be kept with weights:
 * what is needed to build the model again for other batches. */
#define DDP_MODEL_TEXT 1024
void ddp_model_describe(const struct ddp_model *model, const struct ddp_model_config *config,
                        char text[DDP_MODEL_TEXT]);
/* The reverse, for text from a file. DDP_ERR_FORMAT: names it.
 *   model [out]   NULL: this version does not have it; its own fields are not read then
 *   config [out]  all but batch
 *   find          ddp_model_find()
 *   path          for the message */
enum ddp_status ddp_model_read_description(const struct ddp_model **model,
                                           struct ddp_model_config *config, const char *text,
                                           const struct ddp_model *(*find)(const char *name),
                                           const char *path);

/* Builds a model's graph: inputs 0 (samples) and, with classes, 1 (labels).
 *   graph [out]  freed with ddp_graph_destroy() */
enum ddp_status ddp_model_build(ddp_graph **graph, const struct ddp_model *model,
                                const struct ddp_model_config *config);

extern const struct ddp_model ddp_model_article, ddp_model_mlp, ddp_model_cnn, ddp_model_resnet,
    ddp_model_gpt2, ddp_model_llama, ddp_model_bert;
/* They are called mlp and resnet too, and are not listed. */
extern const struct ddp_model ddp_model_mlp_table, ddp_model_resnet_images;
extern const struct ddp_model ddp_model_custom; /* has no name of its own, and is not listed */

/* The builder of a custom model, and what it is called with. */
void ddp_model_custom_set(union ddp_model_own *own, ddp_model_builder *builder, void *arg);

#endif
