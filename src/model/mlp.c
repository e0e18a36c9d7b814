/* SPDX-License-Identifier: MIT
 *
 * A multi-layer perceptron: linear layers with ReLU between them, softmax cross-entropy at the end,
 * or the mean squared error of one number where there are no classes. Words of a table's columns
 * that have many are learned as an embedding, "words", beside the other numbers.
 * The layers are fc1, fc2, ..., initialised as torch.nn.Linear in that order. */
#include "config.h"

#include "model/model.h"

#include "core/portable_math.h"

#include <string.h>

#define LAYERS   16   /* that are hidden, at most */
#define WORD_STD 0.01 /* fastai's: a word that nobody has seen stays close to the middle of all */

struct mlp {
    bool given; /* else two of 512 */
    int count;
    int64_t hidden[LAYERS];
    int64_t words, word_rows, word_width; /* of a sample, and of the embedding; 0: none */
};

_Static_assert(sizeof(struct mlp) <= DDP_MODEL_OWN, "room for it");

#define OPTION_STRUCT struct mlp

static const char *read_hidden(void *own, const char *value)
{
    struct mlp *mlp = own;
    mlp->given = true;
    mlp->count = 0;
    if (strcmp(value, "none") == 0 ||
        ddp_option_list(value, ",", LAYERS, 1, 1 << 20, false, mlp->hidden, &mlp->count))
        return NULL;
    return "must be at most 16 widths from 1 to 1048576 with commas between, or none";
}

static const struct ddp_option options[] = {
    {OPTION_CUSTOM_AT("hidden", given, read_hidden, "N,N,..."),
     .help = "mlp: widths of the hidden layers (default 512,512), or none"},
    {0},
};

static const struct ddp_model_field fields[] = {
    {"hidden", DDP_FIELD_LIST, offsetof(struct mlp, hidden), 1, 1 << 20, LAYERS,
     offsetof(struct mlp, count)},
    {"words", DDP_FIELD_INT, offsetof(struct mlp, words), 1, 1 << 16, 0, 0},
    {"word_rows", DDP_FIELD_INT, offsetof(struct mlp, word_rows), 1, 1 << 30, 0, 0},
    {"word_width", DDP_FIELD_INT, offsetof(struct mlp, word_width), 1, 1 << 10, 0, 0},
    {0},
};

/* As wide as rows can determine: about twice the root of their number, a power of two. */
static int64_t table_width(int64_t rows)
{
    int64_t width = 32;
    while (width < 512 && width * width < 2 * rows)
        width *= 2;
    return width;
}

/* The rule of fastai for a column of so many words. */
static int64_t word_width(int64_t words)
{
    const double width = 1.6 * ddp_math_pow((double)words, 0.56) + 0.5;
    return width < 600 ? (int64_t)width : 600;
}

static enum ddp_status check(struct ddp_model_config *config)
{
    struct mlp *mlp = (void *)&config->own;
    const int64_t width = config->table_rows > 0 ? table_width(config->table_rows) : 512;
    if (config->described)
        return DDP_OK;
    if (!mlp->given)
        *mlp = (struct mlp){.given = true, .count = 2, .hidden = {width, width}};
    mlp->words = config->words;
    mlp->word_rows = config->word_rows;
    mlp->word_width = mlp->words ? word_width(config->word_most) : 0;
    return DDP_OK;
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct mlp *mlp = (const void *)&config->own;
    const int64_t outputs = config->classes ? config->classes : 1;
    ddp_tensor *x =
        ddp_graph_input(graph, "samples", DDP_F32, 2, (int64_t[]){config->batch, config->features});
    const bool numbers = config->classes == 0;
    if (mlp->words)
        x = ddp_graph_words(graph, x, mlp->words,
                            ddp_graph_parameter(graph, "words.weight", 2,
                                                (int64_t[]){mlp->word_rows, mlp->word_width},
                                                (struct ddp_init){DDP_INIT_NORMAL, 0, WORD_STD}));
    ddp_tensor *labels = ddp_graph_input(graph, "labels", numbers ? DDP_F32 : DDP_I32,
                                         numbers ? 2 : 1, (int64_t[]){config->batch, 1});
    for (int i = 0; i <= mlp->count; i++) {
        const bool last = i == mlp->count;
        char name[16];
        if (last)
            ddp_graph_end_block(graph);
        else if (i % 2 == 0) /* two hidden layers are a block */
            ddp_graph_begin_block(graph);
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = ddp_graph_linear_layer(graph, name, x, last ? outputs : mlp->hidden[i], true,
                                   last ? DDP_ACTIVATION_NONE : DDP_ACTIVATION_RELU);
    }
    return ddp_graph_finish(graph, x,
                            numbers ? ddp_graph_mse(graph, x, labels)
                                    : ddp_graph_softmax_cross_entropy(graph, x, labels));
}

const struct ddp_model ddp_model_mlp = {
    .name = "mlp",
    .dataset = "idx",
    .labels = true,
    .numbers = true,
    .sample_dim_count = 3,
    .sample_dims = {1, 28, 28},
    .sample_classes = 10,
    .rate = 0.1,
    .schedule = DDP_SCHEDULE_LINEAR,
    .options = options,
    .fields = fields,
    .check = check,
    .build = build,
};

const struct ddp_model ddp_model_mlp_table = {
    .name = "mlp",
    .dataset = "table",
    .labels = true,
    .numbers = true,
    .batch = 32,
    .epochs = 50,
    .rate = 0.001,
    .schedule = DDP_SCHEDULE_COSINE,
    .optimizer = "adamw",
    .weight_decay = 0.3,
    .options = options,
    .fields = fields,
    .check = check,
    .build = build,
};
