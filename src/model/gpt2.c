/* SPDX-License-Identifier: MIT
 *
 * GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): pre-norm
 * transformer blocks over learned positions; the head is tied to the token embedding. Parameters
 * are called and ordered as in nanoGPT; weights are drawn from a normal distribution of deviation
 * 0.02, those that end in the residual stream 0.02 / sqrt(2 layers), in that order. */
#include "config.h"

#include "model/gpt2.h"

#include "core/log.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *alias;
    struct ddp_gpt2 shape;
} sizes[] = {
#define SIZE(l, c, h, t)                                                                           \
    {                                                                                              \
        .layers = l, .channels = c, .heads = h, .context = t                                       \
    }
    {"d2", NULL, SIZE(2, 128, 2, 0)},           {"d4", NULL, SIZE(4, 256, 4, 0)},
    {"d6", NULL, SIZE(6, 384, 6, 0)},           {"d12", "124M", SIZE(12, 768, 12, 1024)},
    {"d24", "355M", SIZE(24, 1024, 16, 1024)},  {"d36", "774M", SIZE(36, 1280, 20, 1024)},
    {"d48", "1558M", SIZE(48, 1600, 25, 1024)},
#undef SIZE
};

_Static_assert(sizeof(struct ddp_gpt2) <= DDP_MODEL_OWN, "room for it");

#define OPTION_STRUCT struct ddp_gpt2

static const struct ddp_option options[] = {
    {OPTION_INT("layers", layers, 1, 1000, "N"),
     .help = "gpt2: number of blocks, overrides --size"},
    {OPTION_INT("heads", heads, 1, 1000, "N"),
     .help = "gpt2: number of attention heads, overrides --size"},
    {OPTION_INT("channels", channels, 1, 65536, "N"),
     .help = "gpt2: embedding width, overrides --size"},
    {OPTION_INT("context", context, 1, 1 << 20, "N"),
     .help = "gpt2: number of positions (default --seq-len; 1024 from 124M on)"},
    {OPTION_REAL("dropout", dropout, 0, 0.99, "P"),
     .help = "gpt2: fraction of elements that are zeroed after embeddings and layers (default 0)"},
    {0},
};

#define FIELD(kind, member, most)                                                                  \
    {                                                                                              \
#member, kind, offsetof(struct ddp_gpt2, member), 0, most, 0, 0                            \
    }

static const struct ddp_model_field fields[] = {
    FIELD(DDP_FIELD_INT, layers, 1000),
    FIELD(DDP_FIELD_INT, heads, 1000),
    FIELD(DDP_FIELD_INT, channels, 65536),
    FIELD(DDP_FIELD_INT, context, 1 << 20),
    FIELD(DDP_FIELD_REAL, norm_eps, 1),
    FIELD(DDP_FIELD_BOOL, exact_gelu, 1),
    {0},
};

struct ddp_gpt2 *ddp_gpt2_of(union ddp_model_own *own)
{
    return (struct ddp_gpt2 *)(void *)own;
}

const struct ddp_gpt2 *ddp_gpt2_in(const struct ddp_model_config *config)
{
    return (const struct ddp_gpt2 *)(const void *)&config->own;
}

void ddp_gpt2_fill(struct ddp_gpt2 *gpt2, const struct ddp_gpt2 *from)
{
    gpt2->layers = gpt2->layers ? gpt2->layers : from->layers;
    gpt2->heads = gpt2->heads ? gpt2->heads : from->heads;
    gpt2->channels = gpt2->channels ? gpt2->channels : from->channels;
    gpt2->context = gpt2->context ? gpt2->context : from->context;
    if (gpt2->norm_eps == 0 && from->norm_eps > 0) {
        gpt2->norm_eps = from->norm_eps;
        gpt2->exact_gelu = from->exact_gelu;
    }
}

static const struct ddp_gpt2 *find_size(const char *name)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(name, sizes[i].name) == 0 ||
            (sizes[i].alias && strcmp(name, sizes[i].alias) == 0))
            return &sizes[i].shape;
    return NULL;
}

static ddp_tensor *linear(ddp_graph *graph, const char *name, ddp_tensor *x, int64_t out,
                          double std, enum ddp_activation activation)
{
    char full[64];
    const int64_t in = x ? ddp_graph_dims(x)[2] : 0;
    snprintf(full, sizeof full, "%s.weight", name);
    ddp_tensor *weight =
        ddp_graph_parameter(graph, full, 2, (int64_t[]){out, in},
                            (struct ddp_init){.kind = DDP_INIT_NORMAL, .std = std});
    snprintf(full, sizeof full, "%s.bias", name);
    ddp_tensor *bias =
        ddp_graph_parameter(graph, full, 1, &out, (struct ddp_init){.kind = DDP_INIT_ZEROS});
    return ddp_graph_linear(graph, x, weight, bias, activation);
}

/* x (B,T,C): attention, then the two-layer perceptron, each on a normed copy and added to x. */
static ddp_tensor *block(ddp_graph *graph, const struct ddp_gpt2 *gpt2, int64_t index,
                         ddp_tensor *x)
{
    const int64_t channels = gpt2->channels;
    const double std = 0.02, residual_std = std / sqrt(2.0 * (double)gpt2->layers);
    const float eps = (float)gpt2->norm_eps;
    char name[48];
#define NAME(suffix) (snprintf(name, sizeof name, "h.%d.%s", (int)index, suffix), name)
    ddp_tensor *y = ddp_graph_layer_norm_layer(graph, NAME("ln_1"), x, eps);
    y = linear(graph, NAME("attn.c_attn"), y, 3 * channels, std, DDP_ACTIVATION_NONE);
    y = ddp_graph_attention(graph, y, gpt2->heads);
    y = linear(graph, NAME("attn.c_proj"), y, channels, residual_std, DDP_ACTIVATION_NONE);
    x = ddp_graph_add(graph, x, ddp_graph_dropout(graph, y, gpt2->dropout));
    y = ddp_graph_layer_norm_layer(graph, NAME("ln_2"), x, eps);
    y = linear(graph, NAME("mlp.c_fc"), y, 4 * channels, std,
               gpt2->exact_gelu ? DDP_ACTIVATION_GELU : DDP_ACTIVATION_GELU_TANH);
    y = linear(graph, NAME("mlp.c_proj"), y, channels, residual_std, DDP_ACTIVATION_NONE);
    return ddp_graph_add(graph, x, ddp_graph_dropout(graph, y, gpt2->dropout));
#undef NAME
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct ddp_gpt2 *gpt2 = ddp_gpt2_in(config);
    const int64_t length = config->dims[0];
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.02};
    const int64_t shape[] = {config->batch, length};
    ddp_tensor *tokens = ddp_graph_input(graph, "tokens", DDP_I32, 2, shape);
    ddp_tensor *labels = ddp_graph_input(
        graph, "labels", DDP_I32, 2, (int64_t[]){config->batch, config->last_only ? 1 : length});
    ddp_tensor *wte = ddp_graph_parameter(graph, "wte.weight", 2,
                                          (int64_t[]){config->classes, gpt2->channels}, normal);
    ddp_tensor *wpe = ddp_graph_parameter(graph, "wpe.weight", 2,
                                          (int64_t[]){gpt2->context, gpt2->channels}, normal);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, wpe);
    x = ddp_graph_dropout(graph, x, gpt2->dropout);
    for (int64_t i = 0; i < gpt2->layers; i++) {
        ddp_graph_begin_block(graph);
        x = block(graph, gpt2, i, x);
        ddp_graph_end_block(graph);
    }
    if (config->last_only)
        x = ddp_graph_last(graph, x);
    x = ddp_graph_layer_norm_layer(graph, "ln_f", x, (float)gpt2->norm_eps);
    x = ddp_graph_linear(graph, x, wte, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

static enum ddp_status check(struct ddp_model_config *config)
{
    const struct ddp_gpt2 *size = config->size ? find_size(config->size) : NULL;
    struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&config->own);
    const int64_t length = config->dims[0];
    if (!size && config->size)
        return ddp_fail(DDP_ERR_INVALID,
                        "--size %s: gpt2 comes as d2, d4, d6, d12 (124M), d24 (355M), d36 (774M) "
                        "or d48 (1558M)",
                        config->size);
    if (size)
        ddp_gpt2_fill(gpt2, size);
    if (gpt2->context == 0)
        gpt2->context = length;
    if (gpt2->norm_eps == 0)
        gpt2->norm_eps = 1e-5;
    if (ddp_model_check_length(length, gpt2->context) != DDP_OK)
        return DDP_ERR_INVALID;
    if (gpt2->layers == 0 || gpt2->heads == 0 || gpt2->channels == 0)
        return ddp_fail(DDP_ERR_INVALID, "gpt2: no layers, heads or channels");
    if (gpt2->channels % gpt2->heads)
        return ddp_fail(DDP_ERR_INVALID, "--channels %lld is not a multiple of --heads %lld",
                        (long long)gpt2->channels, (long long)gpt2->heads);
    return DDP_OK;
}

static int64_t context(const struct ddp_model_config *config)
{
    return ddp_gpt2_in(config)->context;
}

static double dropout(const struct ddp_model_config *config)
{
    return ddp_gpt2_in(config)->dropout;
}

static void take(struct ddp_model_config *config, const struct ddp_model_config *loaded,
                 bool own_dropout)
{
    struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&config->own);
    ddp_gpt2_fill(gpt2, ddp_gpt2_in(loaded));
    if (!own_dropout)
        gpt2->dropout = ddp_gpt2_in(loaded)->dropout;
}

static void leave_open(struct ddp_model_config *named, const struct ddp_model_config *loaded,
                       bool configured)
{
    if (!configured)
        ddp_gpt2_of(&named->own)->context = ddp_gpt2_in(loaded)->context;
}

const struct ddp_model ddp_model_gpt2 = {
    .name = "gpt2",
    .dataset = "tokens",
    .x_dtype = DDP_I32,
    .labels = true,
    .sample_classes = 50257,
    .batch = 8,
    .default_size = "d4",
    .rate = 6e-4,
    .schedule = DDP_SCHEDULE_COSINE,
    .optimizer = "adamw",
    .beta2 = 0.95,
    .weight_decay = 0.1,
    .clip_norm = 1.0,
    .decay_matrices_only = true,
    .options = options,
    .fields = fields,
    .check = check,
    .context = context,
    .dropout = dropout,
    .take = take,
    .leave_open = leave_open,
    .build = build,
};
