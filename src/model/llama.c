/* SPDX-License-Identifier: MIT
 *
 * Llama-type decoders (Touvron et al., "LLaMA: Open and Efficient Foundation Language
 * Models", 2023, and its descendants): pre-norm blocks with RMS norm, rotary positions, grouped
 * queries and a gated perceptron. One graph with flags covers the families that llama.h names.
 * Parameters are called as in Hugging Face's files; matrices are (out, in). New weights are normal
 * with deviation 0.02, biases 0, norms 1, as transformers draws them. */
#include "config.h"

#include "model/llama.h"

#include "core/log.h"
#include "model/rope.h"

#include <stdio.h>
#include <string.h>

/* --- shapes by name --------------------------------------------------------------------------- */

#define LLAMA3_ROPE(times)                                                                         \
    {                                                                                              \
        .kind = DDP_ROPE_LLAMA3, .theta = 5e5, .factor = times, .low_factor = 1, .high_factor = 4, \
        .original = 8192                                                                           \
    }

static const struct {
    const char *name;
    int64_t vocabulary;
    struct ddp_llama shape;
} sizes[] = {
    {"d2", 0, {.layers = 2, .channels = 128, .heads = 4, .kv_heads = 2, .hidden = 384}},
    {"d4", 0, {.layers = 4, .channels = 256, .heads = 8, .kv_heads = 4, .hidden = 768}},
    {"d6", 0, {.layers = 6, .channels = 384, .heads = 12, .kv_heads = 4, .hidden = 1024}},
    {"smollm2-135m",
     49152,
     {.layers = 30,
      .channels = 576,
      .heads = 9,
      .kv_heads = 3,
      .hidden = 1536,
      .context = 8192,
      .norm_eps = 1e-5,
      .rope.theta = 1e5,
      .tied = true}},
    {"smollm2-360m",
     49152,
     {.layers = 32,
      .channels = 960,
      .heads = 15,
      .kv_heads = 5,
      .hidden = 2560,
      .context = 8192,
      .norm_eps = 1e-5,
      .rope.theta = 1e5,
      .tied = true}},
    {"qwen2.5-0.5b",
     151936,
     {.family = DDP_LLAMA_QWEN2,
      .layers = 24,
      .channels = 896,
      .heads = 14,
      .kv_heads = 2,
      .hidden = 4864,
      .context = 32768,
      .norm_eps = 1e-6,
      .rope.theta = 1e6,
      .qkv_bias = true,
      .tied = true}},
    {"qwen3-0.6b",
     151936,
     {.family = DDP_LLAMA_QWEN3,
      .layers = 28,
      .channels = 1024,
      .heads = 16,
      .kv_heads = 8,
      .head_size = 128,
      .hidden = 3072,
      .context = 40960,
      .norm_eps = 1e-6,
      .rope.theta = 1e6,
      .qk_norm = true,
      .tied = true}},
    {"qwen3-1.7b",
     151936,
     {.family = DDP_LLAMA_QWEN3,
      .layers = 28,
      .channels = 2048,
      .heads = 16,
      .kv_heads = 8,
      .head_size = 128,
      .hidden = 6144,
      .context = 40960,
      .norm_eps = 1e-6,
      .rope.theta = 1e6,
      .qk_norm = true,
      .tied = true}},
    {"llama3.2-1b",
     128256,
     {.layers = 16,
      .channels = 2048,
      .heads = 32,
      .kv_heads = 8,
      .hidden = 8192,
      .context = 131072,
      .norm_eps = 1e-5,
      .rope = LLAMA3_ROPE(32),
      .tied = true}},
    {"llama2-7b",
     32000,
     {.layers = 32,
      .channels = 4096,
      .heads = 32,
      .kv_heads = 32,
      .hidden = 11008,
      .context = 4096,
      .norm_eps = 1e-5}},
    {"mistral-7b",
     32768,
     {.family = DDP_LLAMA_MISTRAL,
      .layers = 32,
      .channels = 4096,
      .heads = 32,
      .kv_heads = 8,
      .hidden = 14336,
      .context = 32768,
      .norm_eps = 1e-5,
      .rope.theta = 1e6}},
    {"llama3.1-8b",
     128256,
     {.layers = 32,
      .channels = 4096,
      .heads = 32,
      .kv_heads = 8,
      .hidden = 14336,
      .context = 131072,
      .norm_eps = 1e-5,
      .rope = LLAMA3_ROPE(8)}},
    {"qwen3-8b",
     151936,
     {.family = DDP_LLAMA_QWEN3,
      .layers = 36,
      .channels = 4096,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128,
      .hidden = 12288,
      .context = 40960,
      .norm_eps = 1e-6,
      .rope.theta = 1e6,
      .qk_norm = true}},
};

static int find_size(const char *name)
{
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
        if (strcmp(name, sizes[i].name) == 0)
            return i;
    return -1;
}

static int64_t llama_vocabulary(const char *size)
{
    const int at = size ? find_size(size) : -1;
    return at < 0 ? 0 : sizes[at].vocabulary;
}

/* --- options and description ------------------------------------------------------------------ */

_Static_assert(sizeof(struct ddp_llama) <= DDP_MODEL_OWN, "room for it");

#define OPTION_STRUCT struct ddp_llama

const struct ddp_option ddp_lora_options[] = {
    {OPTION_CUSTOM_AT("lora", lora, ddp_lora_read, "SPEC"),
     .help = "llama, bert: train low-rank adapters alone: r=16,alpha=32,targets=q_proj,v_proj or "
             "targets=all-linear, dropout=0.05, rslora (default r=8,alpha=8, q_proj and v_proj)"},
    {0},
};

#define FIELD(name, kind, member, least, most)                                                     \
    {                                                                                              \
        name, kind, offsetof(struct ddp_llama, member), least, most, 0, 0                          \
    }
#define LAYERS_FIELD(name, member)                                                                 \
    {                                                                                              \
        name, DDP_FIELD_LIST, offsetof(struct ddp_llama, member.words), 0, UINT32_MAX,             \
            DDP_LLAMA_LAYERS / 32, offsetof(struct ddp_llama, member.count)                        \
    }

static const struct ddp_model_field fields[] = {
    FIELD("family", DDP_FIELD_INT, family, 0, DDP_LLAMA_PHI3),
    FIELD("layers", DDP_FIELD_INT, layers, 0, DDP_LLAMA_LAYERS),
    FIELD("channels", DDP_FIELD_INT, channels, 0, 1 << 20),
    FIELD("heads", DDP_FIELD_INT, heads, 0, 4096),
    FIELD("kv_heads", DDP_FIELD_INT, kv_heads, 0, 4096),
    FIELD("head_size", DDP_FIELD_INT, head_size, 0, DDP_LLAMA_HEAD),
    FIELD("hidden", DDP_FIELD_INT, hidden, 0, 1 << 24),
    FIELD("context", DDP_FIELD_INT, context, 0, 1 << 24),
    FIELD("window", DDP_FIELD_INT, window, 0, 1 << 24),
    FIELD("norm_eps", DDP_FIELD_REAL, norm_eps, 0, 1),
    FIELD("rope", DDP_FIELD_INT, rope.kind, 0, DDP_ROPE_YARN),
    FIELD("rope_size", DDP_FIELD_INT, rope.size, 0, DDP_LLAMA_HEAD),
    FIELD("rope_original", DDP_FIELD_INT, rope.original, 0, 1 << 24),
    FIELD("rope_theta", DDP_FIELD_REAL, rope.theta, 0, 1e12),
    FIELD("rope_factor", DDP_FIELD_REAL, rope.factor, 0, 1e6),
    FIELD("rope_low", DDP_FIELD_REAL, rope.low_factor, 0, 1e6),
    FIELD("rope_high", DDP_FIELD_REAL, rope.high_factor, 0, 1e6),
    FIELD("rope_fast", DDP_FIELD_REAL, rope.beta_fast, 0, 1e6),
    FIELD("rope_slow", DDP_FIELD_REAL, rope.beta_slow, 0, 1e6),
    FIELD("rope_attention", DDP_FIELD_REAL, rope.attention_factor, 0, 1e6),
    FIELD("rope_untruncated", DDP_FIELD_BOOL, rope.untruncated, 0, 1),
    FIELD("qkv_bias", DDP_FIELD_BOOL, qkv_bias, 0, 1),
    FIELD("o_bias", DDP_FIELD_BOOL, o_bias, 0, 1),
    FIELD("mlp_bias", DDP_FIELD_BOOL, mlp_bias, 0, 1),
    FIELD("qk_norm", DDP_FIELD_BOOL, qk_norm, 0, 1),
    FIELD("tied", DDP_FIELD_BOOL, tied, 0, 1),
    LAYERS_FIELD("windowed", windowed),
    LAYERS_FIELD("unrotated", unrotated),
    FIELD("lora_r", DDP_FIELD_INT, lora.rank, 0, 4096),
    FIELD("lora_targets", DDP_FIELD_INT, lora.targets, 0, (1 << DDP_LLAMA_LINEARS) - 1),
    FIELD("lora_alpha", DDP_FIELD_REAL, lora.alpha, 0, 1e6),
    FIELD("lora_dropout", DDP_FIELD_REAL, lora.dropout, 0, 1),
    FIELD("rslora", DDP_FIELD_BOOL, lora.rslora, 0, 1),
    FIELD("frozen_bf16", DDP_FIELD_BOOL, lora.frozen_bf16, 0, 1),
    FIELD("frozen_blocks", DDP_FIELD_INT, lora.blocks, 0, DDP_Q6_K),
    {0},
};

struct ddp_llama *ddp_llama_of(union ddp_model_own *own)
{
    return (struct ddp_llama *)(void *)own;
}

const struct ddp_llama *ddp_llama_in(const struct ddp_model_config *config)
{
    return (const struct ddp_llama *)(const void *)&config->own;
}

/* --- the graph -------------------------------------------------------------------------------- */

struct build {
    ddp_graph *graph;
    const struct ddp_llama *llama;
    int64_t layer;
    ddp_tensor *documents; /* (B,T) the first position of each one's document; NULL: one each row */
    ddp_tensor *turns;     /* cosines and sines */
    char name[96];
};

/* The name of the block's parameter, until the next call. */
static const char *named(struct build *b, const char *layer, const char *suffix)
{
    snprintf(b->name, sizeof b->name, "model.layers.%d.%s%s", (int)b->layer, layer, suffix);
    return b->name;
}

static ddp_tensor *norm(struct build *b, const char *name, ddp_tensor *x)
{
    return ddp_graph_rms_norm_layer(b->graph, name, x, (float)b->llama->norm_eps);
}

/* Under adapters all parameters but theirs are frozen. */
static void freeze(struct build *b, bool frozen)
{
    const struct ddp_lora *lora = &b->llama->lora;
    if (lora->rank > 0 && frozen)
        ddp_graph_begin_frozen(b->graph, lora->frozen_bf16 ? DDP_BF16 : DDP_F32);
    else if (lora->rank > 0)
        ddp_graph_end_frozen(b->graph);
}

/* What the adapter of a layer adds to its output: s B A dropout(x). */
static ddp_tensor *adapter(struct build *b, const char *layer, ddp_tensor *x, int64_t in,
                           int64_t out)
{
    const struct ddp_lora *lora = &b->llama->lora;
    const struct ddp_init kaiming = {.kind = DDP_INIT_LINEAR, .fan_in = in};
    const struct ddp_init zeros = {.kind = DDP_INIT_ZEROS};
    freeze(b, false);
    ddp_tensor *down = ddp_graph_parameter(b->graph, named(b, layer, ".lora_A.weight"), 2,
                                           (int64_t[]){lora->rank, in}, kaiming);
    ddp_tensor *up = ddp_graph_parameter(b->graph, named(b, layer, ".lora_B.weight"), 2,
                                         (int64_t[]){out, lora->rank}, zeros);
    freeze(b, true);
    x = ddp_graph_dropout(b->graph, x, lora->dropout);
    x = ddp_graph_linear(b->graph, x, down, NULL, DDP_ACTIVATION_NONE);
    x = ddp_graph_scale(b->graph, x, ddp_lora_scale(lora));
    return ddp_graph_linear(b->graph, x, up, NULL, DDP_ACTIVATION_NONE);
}

static ddp_tensor *linear(struct build *b, enum ddp_llama_linear which, ddp_tensor *x, int64_t out,
                          bool biased)
{
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = DDP_LLAMA_INIT_STD};
    const struct ddp_init zeros = {.kind = DDP_INIT_ZEROS};
    const char *layer = ddp_llama_linear_names[which];
    const struct ddp_lora *lora = &b->llama->lora;
    const int64_t in = x ? ddp_graph_dims(x)[2] : 0;
    const int64_t blocks =
        lora->each ? lora->each[b->layer * DDP_LLAMA_LINEARS + which] : lora->blocks;
    if (lora->rank > 0 && blocks)
        ddp_graph_begin_frozen(b->graph, (enum ddp_dtype)blocks);
    ddp_tensor *weight =
        ddp_graph_parameter(b->graph, named(b, layer, ".weight"), 2, (int64_t[]){out, in}, normal);
    freeze(b, true);
    ddp_tensor *bias =
        biased ? ddp_graph_parameter(b->graph, named(b, layer, ".bias"), 1, &out, zeros) : NULL;
    ddp_tensor *y = ddp_graph_linear(b->graph, x, weight, bias, DDP_ACTIVATION_NONE);
    if (lora->rank == 0 || !(lora->targets >> which & 1))
        return y;
    return ddp_graph_add(b->graph, y, adapter(b, layer, x, in, out));
}

/* Queries or keys (B,T,heads D): normed head by head, then turned to their positions. */
static ddp_tensor *positioned(struct build *b, const char *name, ddp_tensor *x, int64_t heads)
{
    const struct ddp_llama *llama = b->llama;
    if (llama->qk_norm && x) {
        const int64_t rows = ddp_graph_dims(x)[0], length = ddp_graph_dims(x)[1];
        x = ddp_graph_reshape(b->graph, x, 3, (int64_t[]){rows, length * heads, llama->head_size});
        x = norm(b, named(b, name, ""), x);
        x = ddp_graph_reshape(b->graph, x, 3, (int64_t[]){rows, length, heads * llama->head_size});
    }
    return ddp_llama_has_layer(&llama->unrotated, b->layer)
               ? x
               : ddp_graph_rope(b->graph, x, heads, b->turns);
}

/* x (B,T,C) */
static ddp_tensor *block(struct build *b, ddp_tensor *x)
{
    const struct ddp_llama *llama = b->llama;
    const int64_t size = llama->head_size;
    const bool windowed = ddp_llama_has_layer(&llama->windowed, b->layer);
    ddp_tensor *y = norm(b, named(b, "input_layernorm", ""), x);
    ddp_tensor *q = linear(b, DDP_LLAMA_Q, y, llama->heads * size, llama->qkv_bias);
    ddp_tensor *k = linear(b, DDP_LLAMA_K, y, llama->kv_heads * size, llama->qkv_bias);
    ddp_tensor *v = linear(b, DDP_LLAMA_V, y, llama->kv_heads * size, llama->qkv_bias);
    q = positioned(b, "self_attn.q_norm", q, llama->heads);
    k = positioned(b, "self_attn.k_norm", k, llama->kv_heads);
    y = ddp_graph_grouped_attention(b->graph, q, k, v, b->documents, llama->heads, llama->kv_heads,
                                    windowed ? llama->window : 0);
    x = ddp_graph_add(b->graph, x, linear(b, DDP_LLAMA_O, y, llama->channels, llama->o_bias));
    y = norm(b, named(b, "post_attention_layernorm", ""), x);
    ddp_tensor *gate = linear(b, DDP_LLAMA_GATE, y, llama->hidden, llama->mlp_bias);
    ddp_tensor *up = linear(b, DDP_LLAMA_UP, y, llama->hidden, llama->mlp_bias);
    y = ddp_graph_swiglu(b->graph, gate, up);
    return ddp_graph_add(b->graph, x,
                         linear(b, DDP_LLAMA_DOWN, y, llama->channels, llama->mlp_bias));
}

/* The table of the layers that rotate, if there are some. */
static enum ddp_status make_turns(struct build *b, int64_t positions)
{
    const struct ddp_rope *rope = &b->llama->rope;
    int64_t layer = 0;
    while (layer < b->llama->layers && ddp_llama_has_layer(&b->llama->unrotated, layer))
        layer++;
    if (layer == b->llama->layers)
        return DDP_OK;
    float frequencies[DDP_LLAMA_HEAD / 2];
    enum ddp_status status = ddp_rope_frequencies(rope, frequencies);
    if (status == DDP_OK)
        b->turns = ddp_graph_rope_table(b->graph, positions, rope->size, frequencies,
                                        (float)rope->attention_factor);
    return status;
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct ddp_llama *llama = ddp_llama_in(config);
    const int64_t length = config->dims[config->dim_count - 1], batch = config->batch;
    const int64_t table[] = {config->classes, llama->channels};
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = DDP_LLAMA_INIT_STD};
    struct build b = {.graph = graph, .llama = llama};
    ddp_tensor *tokens =
        config->dim_count == 2
            ? ddp_graph_input(graph, "tokens", DDP_I32, 3, (int64_t[]){batch, 2, length})
            : ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){batch, length});
    const bool prefers = config->objective.kind && !config->last_only;
    ddp_tensor *labels = prefers
                             ? ddp_graph_input(graph, "labels", DDP_I32, 3,
                                               (int64_t[]){batch, DDP_ROLE_PLANES, length})
                             : ddp_graph_input(graph, "labels", DDP_I32, 2,
                                               (int64_t[]){batch, config->last_only ? 1 : length});
    if (config->dim_count == 2) {
        b.documents = ddp_graph_select(graph, tokens, 1);
        tokens = ddp_graph_select(graph, tokens, 0);
    }
    enum ddp_status status = make_turns(&b, config->positions ? config->positions : length);
    if (status != DDP_OK)
        return status;
    freeze(&b, true);
    ddp_tensor *embedding =
        ddp_graph_parameter(graph, "model.embed_tokens.weight", 2, table, normal);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, embedding, NULL);
    for (b.layer = 0; b.layer < llama->layers; b.layer++) {
        ddp_graph_begin_block(graph);
        x = block(&b, x);
        ddp_graph_end_block(graph);
    }
    if (config->last_only)
        x = ddp_graph_last(graph, x);
    x = norm(&b, "model.norm", x);
    ddp_tensor *head =
        llama->tied ? embedding : ddp_graph_parameter(graph, "lm_head.weight", 2, table, normal);
    freeze(&b, false);
    if (!config->last_only) {
        ddp_tensor *loss =
            prefers ? ddp_graph_head_preference(graph, x, head, labels, &config->objective)
                    : ddp_graph_head_cross_entropy(graph, x, head, labels);
        return ddp_graph_finish(graph, loss, loss);
    }
    x = ddp_graph_linear(graph, x, head, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

/* --- what must fit ---------------------------------------------------------------------------- */

/* What a size leaves open. */
static void fill(struct ddp_llama *llama, int64_t length)
{
    llama->kv_heads = llama->kv_heads ? llama->kv_heads : llama->heads;
    if (llama->head_size == 0 && llama->heads > 0)
        llama->head_size = llama->channels / llama->heads;
    llama->context = llama->context ? llama->context : length;
    llama->norm_eps = llama->norm_eps > 0 ? llama->norm_eps : 1e-5;
    llama->rope.theta = llama->rope.theta > 0 ? llama->rope.theta : 1e4;
    llama->rope.size = llama->rope.size ? llama->rope.size : llama->head_size;
    if (!(llama->rope.attention_factor > 0))
        llama->rope.attention_factor = 1;
}

static enum ddp_status check_lora(struct ddp_llama *llama)
{
    struct ddp_lora *lora = &llama->lora;
    const bool usual = llama->family != DDP_LLAMA_SMOLLM3 && llama->family != DDP_LLAMA_PHI3;
    if (lora->rank == 0)
        return DDP_OK;
    if (llama->family == DDP_LLAMA_PHI3)
        return ddp_fail(DDP_ERR_INVALID, "--lora: adapters of phi3, whose projections are fused in "
                                         "its files, are not supported: train it in full");
    if (lora->targets == 0 && !usual)
        return ddp_fail(DDP_ERR_INVALID, "--lora: smollm3 has no usual targets: name them, as in "
                                         "targets=q_proj,v_proj or targets=all-linear");
    if (lora->targets == 0)
        lora->targets = 1 << DDP_LLAMA_Q | 1 << DDP_LLAMA_V;
    return DDP_OK;
}

static enum ddp_status check(struct ddp_model_config *config)
{
    struct ddp_llama *llama = ddp_llama_of(&config->own);
    const int64_t length = config->dims[config->dim_count - 1];
    const int size = config->size ? find_size(config->size) : -1;
    if (config->size && size < 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--size %s: llama comes as d2, d4, d6, smollm2-135m, smollm2-360m, "
                        "qwen2.5-0.5b, qwen3-0.6b, qwen3-1.7b, qwen3-8b, llama2-7b, llama3.2-1b, "
                        "llama3.1-8b or mistral-7b",
                        config->size);
    if (size >= 0 && llama->layers == 0) {
        const struct ddp_lora lora = llama->lora;
        *llama = sizes[size].shape;
        llama->lora = lora;
    }
    fill(llama, length);
    if (llama->layers < 1 || llama->heads < 1 || llama->channels < 1 || llama->hidden < 1)
        return ddp_fail(DDP_ERR_INVALID, "llama: no layers, heads, channels or hidden width");
    if (llama->heads % llama->kv_heads)
        return ddp_fail(DDP_ERR_INVALID, "llama: %lld heads are not a multiple of %lld kv_heads",
                        (long long)llama->heads, (long long)llama->kv_heads);
    if (llama->head_size < 2 || llama->rope.size % 2 || llama->rope.size > llama->head_size ||
        llama->head_size > DDP_LLAMA_HEAD)
        return ddp_fail(DDP_ERR_INVALID, "llama: a head size of %lld, of which %lld turn",
                        (long long)llama->head_size, (long long)llama->rope.size);
    if (ddp_model_check_length(length, llama->context) != DDP_OK)
        return DDP_ERR_INVALID;
    return check_lora(llama);
}

static int64_t context(const struct ddp_model_config *config)
{
    return ddp_llama_in(config)->context;
}

static struct ddp_lora *lora_of(union ddp_model_own *own)
{
    return &ddp_llama_of(own)->lora;
}

static void leave_open(struct ddp_model_config *named, const struct ddp_model_config *loaded,
                       bool configured)
{
    struct ddp_llama *llama = ddp_llama_of(&named->own);
    if (!configured) {
        named->dims[0] = 1;
        return;
    }
    llama->lora = ddp_llama_in(loaded)->lora;
    llama->context = llama->context > 1 ? llama->context : ddp_llama_in(loaded)->context;
}

const struct ddp_model ddp_model_llama = {
    .name = "llama",
    .dataset = "tokens",
    .x_dtype = DDP_I32,
    .labels = true,
    .sample_classes = 49152,
    .batch = 8,
    .default_size = "d4",
    .rate = 6e-4,
    .tuned_rate = 2e-5,
    .adapted_rate = 2e-4,
    .schedule = DDP_SCHEDULE_COSINE,
    .optimizer = "adamw",
    .beta2 = 0.95,
    .weight_decay = 0.1,
    .clip_norm = 1.0,
    .decay_matrices_only = true,
    .options = ddp_lora_options,
    .fields = fields,
    .check = check,
    .context = context,
    .borders = true,
    .exports_directory = true,
    .vocabulary = llama_vocabulary,
    .lora = lora_of,
    .leave_open = leave_open,
    .build = build,
};

void ddp_llama_describe(const struct ddp_llama *shape, int64_t vocabulary,
                        const struct ddp_model **model, struct ddp_model_config *config)
{
    *model = &ddp_model_llama;
    *ddp_llama_of(&config->own) = *shape;
    config->described = true;
    config->classes = vocabulary;
    config->x_dtype = DDP_I32;
    config->dim_count = 1;
    config->dims[0] = config->features = 1;
}
