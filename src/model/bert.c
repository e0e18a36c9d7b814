/* SPDX-License-Identifier: MIT
 *
 * Encoders of BERT's kind (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers
 * for Language Understanding", 2019; MiniLM): post-norm blocks over learned positions, whose
 * attention sees the whole text. Texts with labels go through the first token's vector, the pooler
 * and a classifier; texts that belong together are pooled and compared with those of their shard.
 * Parameters are called as in Hugging Face's files, without "bert.". */
#include "config.h"

#include "model/bert.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

#define SCALE 20 /* of cosines: sentence-transformers' default */

static const struct {
    const char *name;
    struct ddp_bert shape;
} sizes[] = {
    {"tiny", {.layers = 2, .channels = 128, .heads = 2, .hidden = 512}},
    {"mini", {.layers = 4, .channels = 256, .heads = 4, .hidden = 1024}},
    {"small", {.layers = 4, .channels = 512, .heads = 8, .hidden = 2048}},
    {"minilm-l6", {.layers = 6, .channels = 384, .heads = 12, .hidden = 1536}},
    {"base", {.layers = 12, .channels = 768, .heads = 12, .hidden = 3072}},
};

_Static_assert(sizeof(struct ddp_bert) <= DDP_MODEL_OWN, "room for it");
_Static_assert(offsetof(struct ddp_bert, lora) == offsetof(struct ddp_llama, lora),
               "ddp_lora_options are of both");

const char *const ddp_bert_linear_names[DDP_BERT_LINEARS] = {
    "attention.self.query", "attention.self.key", "attention.self.value"};

#define FIELD(name, kind, member, least, most)                                                     \
    {                                                                                              \
        name, kind, offsetof(struct ddp_bert, member), least, most, 0, 0                           \
    }

static const struct ddp_model_field fields[] = {
    FIELD("layers", DDP_FIELD_INT, layers, 0, 1000),
    FIELD("channels", DDP_FIELD_INT, channels, 0, 65536),
    FIELD("heads", DDP_FIELD_INT, heads, 0, 1000),
    FIELD("hidden", DDP_FIELD_INT, hidden, 0, 1 << 20),
    FIELD("context", DDP_FIELD_INT, context, 0, 1 << 20),
    FIELD("types", DDP_FIELD_INT, types, 0, 1 << 16),
    FIELD("vocabulary", DDP_FIELD_INT, vocabulary, 0, 1 << 24),
    FIELD("pooling", DDP_FIELD_INT, pooling, 0, DDP_BERT_CLS),
    FIELD("length", DDP_FIELD_INT, length, 0, 1 << 20),
    FIELD("normalizes", DDP_FIELD_INT, normalizes, 0, 1),
    FIELD("norm_eps", DDP_FIELD_REAL, norm_eps, 0, 1),
    FIELD("lora_r", DDP_FIELD_INT, lora.rank, 0, 4096),
    FIELD("lora_targets", DDP_FIELD_INT, lora.targets, 0, (1 << DDP_LLAMA_LINEARS) - 1),
    FIELD("lora_alpha", DDP_FIELD_REAL, lora.alpha, 0, 1e6),
    FIELD("lora_dropout", DDP_FIELD_REAL, lora.dropout, 0, 1),
    FIELD("rslora", DDP_FIELD_BOOL, lora.rslora, 0, 1),
    FIELD("frozen_bf16", DDP_FIELD_BOOL, lora.frozen_bf16, 0, 1),
    {0},
};

struct ddp_bert *ddp_bert_of(union ddp_model_own *own)
{
    return (struct ddp_bert *)(void *)own;
}

const struct ddp_bert *ddp_bert_in(const struct ddp_model_config *config)
{
    return (const struct ddp_bert *)(const void *)&config->own;
}

/* --- the graph -------------------------------------------------------------------------------- */

struct build {
    ddp_graph *graph;
    const struct ddp_bert *bert;
    int64_t layer;
    char name[96];
};

/* The name of the block's parameter, until the next call. */
static const char *named(struct build *b, const char *layer, const char *suffix)
{
    snprintf(b->name, sizeof b->name, "encoder.layer.%d.%s%s", (int)b->layer, layer, suffix);
    return b->name;
}

static void freeze(struct build *b, bool frozen)
{
    const struct ddp_lora *lora = &b->bert->lora;
    if (lora->rank > 0 && frozen)
        ddp_graph_begin_frozen(b->graph, lora->frozen_bf16 ? DDP_BF16 : DDP_F32);
    else if (lora->rank > 0)
        ddp_graph_end_frozen(b->graph);
}

/* A linear layer from `in` features to `out`: NAME.weight and NAME.bias. */
static ddp_tensor *linear(struct build *b, const char *name, ddp_tensor *x, int64_t in, int64_t out,
                          enum ddp_activation activation)
{
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    ddp_tensor *weight =
        ddp_graph_parameter(b->graph, full, 2, (int64_t[]){out, in},
                            (struct ddp_init){.kind = DDP_INIT_NORMAL, .std = DDP_BERT_INIT_STD});
    snprintf(full, sizeof full, "%s.bias", name);
    ddp_tensor *bias =
        ddp_graph_parameter(b->graph, full, 1, &out, (struct ddp_init){.kind = DDP_INIT_ZEROS});
    return ddp_graph_linear(b->graph, x, weight, bias, activation);
}

/* Queries, keys or values, with what an adapter adds to them: s B A dropout(x). */
static ddp_tensor *projection(struct build *b, enum ddp_llama_linear which, ddp_tensor *x)
{
    const struct ddp_lora *lora = &b->bert->lora;
    const int64_t channels = b->bert->channels;
    const char *name = ddp_bert_linear_names[which];
    ddp_tensor *y = linear(b, named(b, name, ""), x, channels, channels, DDP_ACTIVATION_NONE);
    if (lora->rank == 0 || !(lora->targets >> which & 1))
        return y;
    freeze(b, false);
    ddp_tensor *down = ddp_graph_parameter(
        b->graph, named(b, name, ".lora_A.weight"), 2, (int64_t[]){lora->rank, channels},
        (struct ddp_init){.kind = DDP_INIT_LINEAR, .fan_in = channels});
    ddp_tensor *up = ddp_graph_parameter(b->graph, named(b, name, ".lora_B.weight"), 2,
                                         (int64_t[]){channels, lora->rank},
                                         (struct ddp_init){.kind = DDP_INIT_ZEROS});
    freeze(b, true);
    x = ddp_graph_dropout(b->graph, x, lora->dropout);
    x = ddp_graph_linear(b->graph, x, down, NULL, DDP_ACTIVATION_NONE);
    x = ddp_graph_scale(b->graph, x, ddp_lora_scale(lora));
    x = ddp_graph_linear(b->graph, x, up, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_add(b->graph, y, x);
}

/* x (B,T,C) */
static ddp_tensor *block(struct build *b, ddp_tensor *x)
{
    const struct ddp_bert *bert = b->bert;
    const int64_t channels = bert->channels;
    const float eps = (float)bert->norm_eps;
    ddp_tensor *q = projection(b, DDP_LLAMA_Q, x);
    ddp_tensor *k = projection(b, DDP_LLAMA_K, x);
    ddp_tensor *v = projection(b, DDP_LLAMA_V, x);
    ddp_tensor *y = ddp_graph_full_attention(b->graph, q, k, v, bert->heads);
    y = linear(b, named(b, "attention.output.dense", ""), y, channels, channels,
               DDP_ACTIVATION_NONE);
    x = ddp_graph_layer_norm_layer(b->graph, named(b, "attention.output.LayerNorm", ""),
                                   ddp_graph_add(b->graph, y, x), eps);
    y = linear(b, named(b, "intermediate.dense", ""), x, channels, bert->hidden,
               DDP_ACTIVATION_GELU);
    y = linear(b, named(b, "output.dense", ""), y, bert->hidden, channels, DDP_ACTIVATION_NONE);
    return ddp_graph_layer_norm_layer(b->graph, named(b, "output.LayerNorm", ""),
                                      ddp_graph_add(b->graph, y, x), eps);
}

/* texts (B,3,T) as data/sentences.c has them: their tokens' vectors, packed, before the blocks. */
static ddp_tensor *embeddings(struct build *b, ddp_tensor *texts)
{
    const struct ddp_bert *bert = b->bert;
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = DDP_BERT_INIT_STD};
    ddp_tensor *bounds = ddp_graph_text_bounds(b->graph, texts);
    ddp_tensor *tokens = ddp_graph_pack_texts(b->graph, texts, bounds, DDP_TEXT_TOKENS);
    ddp_tensor *types = ddp_graph_pack_texts(b->graph, texts, bounds, DDP_TEXT_TYPES);
    ddp_tensor *places = ddp_graph_pack_texts(b->graph, texts, bounds, DDP_TEXT_POSITIONS);
    ddp_tensor *words = ddp_graph_parameter(b->graph, "embeddings.word_embeddings.weight", 2,
                                            (int64_t[]){bert->vocabulary, bert->channels}, normal);
    ddp_tensor *positions =
        ddp_graph_parameter(b->graph, "embeddings.position_embeddings.weight", 2,
                            (int64_t[]){bert->context, bert->channels}, normal);
    ddp_tensor *kinds = ddp_graph_parameter(b->graph, "embeddings.token_type_embeddings.weight", 2,
                                            (int64_t[]){bert->types, bert->channels}, normal);
    ddp_tensor *x = ddp_graph_embedding(b->graph, tokens, words, NULL);
    x = ddp_graph_add(b->graph, x, ddp_graph_embedding(b->graph, types, kinds, NULL));
    x = ddp_graph_add(b->graph, x, ddp_graph_embedding(b->graph, places, positions, NULL));
    return ddp_graph_layer_norm_layer(b->graph, "embeddings.LayerNorm", x, (float)bert->norm_eps);
}

/* The head of a text with a class or a number, and its loss. */
static enum ddp_status finish_labelled(struct build *b, ddp_tensor *x, ddp_tensor *labels,
                                       int64_t classes)
{
    const int64_t channels = b->bert->channels;
    x = ddp_graph_token_mean(b->graph, x, true);
    x = ddp_graph_tanh(b->graph,
                       linear(b, "pooler.dense", x, channels, channels, DDP_ACTIVATION_NONE));
    freeze(b, false);
    x = linear(b, "classifier", x, channels, classes ? classes : 1, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(b->graph, x,
                            classes ? ddp_graph_softmax_cross_entropy(b->graph, x, labels)
                                    : ddp_graph_mse(b->graph, x, labels));
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct ddp_bert *bert = ddp_bert_in(config);
    const bool contrasts = ddp_bert_contrasts(config), numbers = config->classes == 0;
    const int64_t texts = contrasts ? config->dims[0] : 1;
    const int64_t length = config->dims[config->dim_count - 1];
    struct build b = {.graph = graph, .bert = bert};
    ddp_tensor *samples =
        ddp_graph_input(graph, "texts", DDP_I32, 3, (int64_t[]){config->batch, texts * 3, length});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", numbers ? DDP_F32 : DDP_I32,
                                         numbers ? 2 : 1, (int64_t[]){config->batch, 1});
    freeze(&b, true);
    ddp_tensor *x = embeddings(
        &b, ddp_graph_reshape(graph, samples, 3, (int64_t[]){config->batch * texts, 3, length}));
    for (b.layer = 0; b.layer < bert->layers; b.layer++) {
        ddp_graph_begin_block(graph);
        x = block(&b, x);
        ddp_graph_end_block(graph);
    }
    if (!contrasts)
        return finish_labelled(&b, x, labels, config->classes);
    x = ddp_graph_token_mean(graph, x, bert->pooling == DDP_BERT_CLS);
    freeze(&b, false);
    return ddp_graph_finish(graph, x, ddp_graph_contrastive(graph, x, labels, texts, SCALE));
}

/* --- what must fit ---------------------------------------------------------------------------- */

static enum ddp_status take_size(struct ddp_model_config *config)
{
    struct ddp_bert *bert = ddp_bert_of(&config->own);
    const struct ddp_lora lora = bert->lora;
    size_t i = 0;
    while (i < sizeof sizes / sizeof sizes[0] && strcmp(sizes[i].name, config->size) != 0)
        i++;
    if (i == sizeof sizes / sizeof sizes[0])
        return ddp_fail(DDP_ERR_INVALID,
                        "--size %s: bert comes as tiny, mini, small, minilm-l6 or base",
                        config->size);
    if (bert->layers == 0) {
        *bert = sizes[i].shape;
        bert->lora = lora;
    }
    return DDP_OK;
}

static enum ddp_status check_lora(struct ddp_lora *lora)
{
    const int64_t possible = 1 << DDP_LLAMA_Q | 1 << DDP_LLAMA_K | 1 << DDP_LLAMA_V;
    if (lora->rank > 0 && lora->targets == 0)
        lora->targets = 1 << DDP_LLAMA_Q | 1 << DDP_LLAMA_V;
    return lora->rank > 0 && (lora->targets & ~possible)
               ? ddp_fail(DDP_ERR_INVALID, "--lora: adapters of bert are of query, key and value: "
                                           "name some of them, as in targets=query,value")
               : DDP_OK;
}

static enum ddp_status check(struct ddp_model_config *config)
{
    struct ddp_bert *bert = ddp_bert_of(&config->own);
    const int64_t length = config->dims[config->dim_count - 1];
    if (config->size && take_size(config) != DDP_OK)
        return DDP_ERR_INVALID;
    bert->context = bert->context ? bert->context : 512;
    bert->types = bert->types ? bert->types : 2;
    bert->vocabulary = bert->vocabulary ? bert->vocabulary : config->vocabulary;
    bert->norm_eps = bert->norm_eps > 0 ? bert->norm_eps : 1e-12;
    if (bert->layers < 1 || bert->heads < 1 || bert->channels < 1 || bert->hidden < 1)
        return ddp_fail(DDP_ERR_INVALID, "bert: no layers, heads, channels or hidden width");
    if (bert->channels % bert->heads)
        return ddp_fail(DDP_ERR_INVALID, "bert: a width of %lld is not a multiple of %lld heads",
                        (long long)bert->channels, (long long)bert->heads);
    if (ddp_model_check_length(length, bert->context) != DDP_OK)
        return DDP_ERR_INVALID;
    if (config->vocabulary > bert->vocabulary)
        return ddp_fail(DDP_ERR_INVALID,
                        "the tokenizer has %lld tokens, and the model's vocabulary %lld: give the "
                        "model's own with --tokenizer",
                        (long long)config->vocabulary, (long long)bert->vocabulary);
    return check_lora(&bert->lora);
}

static int64_t sentence(const struct ddp_model_config *config)
{
    return ddp_bert_in(config)->length ? ddp_bert_in(config)->length : ddp_bert_in(config)->context;
}

static struct ddp_lora *lora_of(union ddp_model_own *own)
{
    return &ddp_bert_of(own)->lora;
}

static void leave_open(struct ddp_model_config *named, const struct ddp_model_config *loaded,
                       bool configured)
{
    const struct ddp_bert size = *ddp_bert_of(&named->own);
    struct ddp_bert *bert = ddp_bert_of(&named->own);
    if (!configured)
        return;
    *bert = *ddp_bert_in(loaded);
    bert->layers = size.layers;
    bert->channels = size.channels;
    bert->heads = size.heads;
    bert->hidden = size.hidden;
}

const struct ddp_model ddp_model_bert = {
    .name = "bert",
    .dataset = "sentences",
    .x_dtype = DDP_I32,
    .labels = true,
    .numbers = true,
    .sample_dim_count = 2,
    .sample_dims = {3, 128},
    .sample_classes = 2,
    .batch = 32,
    .epochs = 3,
    .default_size = "mini",
    .rate = 1e-4,
    .tuned_rate = 5e-5,
    .adapted_rate = 5e-4,
    .schedule = DDP_SCHEDULE_LINEAR,
    .optimizer = "adamw",
    .clip_norm = 1.0,
    .options = ddp_lora_options,
    .fields = fields,
    .check = check,
    .sentence = sentence,
    .exports_directory = true,
    .lora = lora_of,
    .leave_open = leave_open,
    .build = build,
};
