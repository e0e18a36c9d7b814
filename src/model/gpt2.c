/* SPDX-License-Identifier: MIT
 *
 * GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): pre-norm
 * transformer blocks over learned positions; the head is tied to the token embedding. Parameters
 * are called and ordered as in nanoGPT; weights are drawn from a normal distribution of deviation
 * 0.02, those that end in the residual stream 0.02 / sqrt(2 layers), in that order. */
#include "config.h"

#include "model/model.h"

#include "core/log.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *alias;
    int64_t layers, channels, heads;
} sizes[] = {
    {"d2", NULL, 2, 128, 2},        {"d4", NULL, 4, 256, 4},       {"d6", NULL, 6, 384, 6},
    {"d12", "124M", 12, 768, 12},   {"d24", "355M", 24, 1024, 16}, {"d36", "774M", 36, 1280, 20},
    {"d48", "1558M", 48, 1600, 25},
};

static const char *set_size(struct ddp_model_config *config, const char *size)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(size, sizes[i].name) == 0 ||
            (sizes[i].alias && strcmp(size, sizes[i].alias) == 0)) {
            config->layers = sizes[i].layers;
            config->channels = sizes[i].channels;
            config->heads = sizes[i].heads;
            if (sizes[i].alias)
                config->context = 1024;
            return NULL;
        }
    return "gpt2 comes as d2, d4, d6, d12 (124M), d24 (355M), d36 (774M) or d48 (1558M)";
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
static ddp_tensor *block(ddp_graph *graph, const struct ddp_model_config *config, int64_t index,
                         ddp_tensor *x)
{
    const int64_t channels = config->channels;
    const double std = 0.02, residual_std = std / sqrt(2.0 * (double)config->layers);
    const float eps = (float)config->norm_eps;
    char name[48];
#define NAME(suffix) (snprintf(name, sizeof name, "h.%d.%s", (int)index, suffix), name)
    ddp_tensor *y = ddp_graph_layer_norm_layer(graph, NAME("ln_1"), x, eps);
    y = linear(graph, NAME("attn.c_attn"), y, 3 * channels, std, DDP_ACTIVATION_NONE);
    y = ddp_graph_attention(graph, y, config->heads);
    y = linear(graph, NAME("attn.c_proj"), y, channels, residual_std, DDP_ACTIVATION_NONE);
    x = ddp_graph_add(graph, x, ddp_graph_dropout(graph, y, config->dropout));
    y = ddp_graph_layer_norm_layer(graph, NAME("ln_2"), x, eps);
    y = linear(graph, NAME("mlp.c_fc"), y, 4 * channels, std,
               config->exact_gelu ? DDP_ACTIVATION_GELU : DDP_ACTIVATION_GELU_TANH);
    y = linear(graph, NAME("mlp.c_proj"), y, channels, residual_std, DDP_ACTIVATION_NONE);
    return ddp_graph_add(graph, x, ddp_graph_dropout(graph, y, config->dropout));
#undef NAME
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_config *config)
{
    const int64_t length = config->dims[0];
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.02};
    const int64_t shape[] = {config->batch, length};
    ddp_tensor *tokens = ddp_graph_input(graph, "tokens", DDP_I32, 2, shape);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 2, shape);
    ddp_tensor *wte = ddp_graph_parameter(graph, "wte.weight", 2,
                                          (int64_t[]){config->classes, config->channels}, normal);
    ddp_tensor *wpe = ddp_graph_parameter(graph, "wpe.weight", 2,
                                          (int64_t[]){config->context, config->channels}, normal);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, wpe);
    x = ddp_graph_dropout(graph, x, config->dropout);
    for (int64_t i = 0; i < config->layers; i++)
        x = block(graph, config, i, x);
    x = ddp_graph_layer_norm_layer(graph, "ln_f", x, (float)config->norm_eps);
    x = ddp_graph_linear(graph, x, wte, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

static enum ddp_status check(struct ddp_model_config *config)
{
    const int64_t length = config->dims[0];
    if (config->context == 0)
        config->context = length;
    if (config->norm_eps == 0)
        config->norm_eps = 1e-5;
    if (length > config->context)
        return ddp_fail(DDP_ERR_INVALID,
                        "--seq-len %lld is more than the model's context of %lld tokens",
                        (long long)length, (long long)config->context);
    if (config->channels % config->heads)
        return ddp_fail(DDP_ERR_INVALID, "--channels %lld is not a multiple of --heads %lld",
                        (long long)config->channels, (long long)config->heads);
    return DDP_OK;
}

const struct ddp_model ddp_model_gpt2 = {
    .name = "gpt2",
    .dataset = "tokens",
    .x_dtype = DDP_I32,
    .labels = true,
    .batch = 8,
    .default_size = "d4",
    .rate = 6e-4,
    .schedule = DDP_SCHEDULE_COSINE,
    .optimizer = "adamw",
    .beta2 = 0.95,
    .weight_decay = 0.1,
    .clip_norm = 1.0,
    .decay_matrices_only = true,
    .set_size = set_size,
    .check = check,
    .build = build,
};
