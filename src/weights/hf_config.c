/* SPDX-License-Identifier: MIT
 *
 * See hf_config.h. */
#include "config.h"

#include "weights/hf_config.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/json.h"
#include "weights/hf_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum ddp_status read_type(const struct ddp_hf_keys *in)
{
    const json_t *member = json_object_get(in->root, "model_type");
    const char *type = json_string_value(member);
    if (member && (!type || strcmp(type, "gpt2") != 0))
        return ddp_fail(DDP_ERR_FORMAT, "%s: model_type is %s%s%s: only gpt2 is supported",
                        in->name, type ? "\"" : "", type ? type : "no text", type ? "\"" : "");
    return DDP_OK;
}

static enum ddp_status read_activation(const struct ddp_hf_keys *in, bool *exact)
{
    const json_t *member = json_object_get(in->root, "activation_function");
    const char *name = json_string_value(member);
    *exact = false;
    if (!member)
        return DDP_OK;
    if (!name)
        return ddp_fail(DDP_ERR_FORMAT, "%s: activation_function is not a string", in->name);
    *exact = strcmp(name, "gelu") == 0;
    if (*exact || strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: activation_function \"%s\" is not supported: gelu_new, "
                    "gelu_pytorch_tanh or gelu",
                    in->name, name);
}

/* One rate for embedding and blocks: that is what the model has. */
static enum ddp_status read_dropout(const struct ddp_hf_keys *in, struct ddp_hf_config *config)
{
    const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    double rates[3] = {0.1, 0.1, 0.1};
    for (int i = 0; i < 3; i++) {
        enum ddp_status status = ddp_hf_keys_real(in, keys[i], 0, 1, &rates[i]);
        if (status != DDP_OK)
            return status;
    }
    if (rates[0] != rates[1])
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: resid_pdrop %g and embd_pdrop %g differ, which is not supported",
                        in->name, rates[0], rates[1]);
    config->dropout = rates[0];
    config->attention_dropout = rates[2];
    return DDP_OK;
}

static enum ddp_status check_inner(const struct ddp_hf_keys *in, int64_t channels)
{
    const json_t *member = json_object_get(in->root, "n_inner");
    if (!member || json_is_null(member))
        return DDP_OK;
    if (!json_is_integer(member) || json_integer_value(member) != 4 * channels)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: n_inner is not 4 x n_embd = %" PRId64 ", which is not supported",
                        in->name, 4 * channels);
    return DDP_OK;
}

/* Older files say n_ctx where others say n_positions. */
static enum ddp_status read_context(const struct ddp_hf_keys *in, int64_t *context)
{
    int64_t older = 0;
    enum ddp_status status = ddp_hf_keys_count(in, "n_ctx", 1 << 24, &older);
    if (status == DDP_OK && older)
        *context = older;
    return status == DDP_OK ? ddp_hf_keys_count(in, "n_positions", 1 << 24, context) : status;
}

static enum ddp_status read_shape(const struct ddp_hf_keys *in, struct ddp_gpt2_shape *shape)
{
    enum ddp_status status = ddp_hf_keys_count(in, "n_layer", 10000, &shape->layers);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "n_head", 1 << 20, &shape->heads);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "n_embd", 1 << 20, &shape->channels);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "vocab_size", 1 << 24, &shape->vocabulary);
    if (status == DDP_OK)
        status = read_context(in, &shape->context);
    if (status == DDP_OK && shape->channels % shape->heads != 0)
        status =
            ddp_fail(DDP_ERR_FORMAT, "%s: n_embd %" PRId64 " is not a multiple of n_head %" PRId64,
                     in->name, shape->channels, shape->heads);
    return status == DDP_OK ? check_inner(in, shape->channels) : status;
}

static enum ddp_status read_root(const struct ddp_hf_keys *in, struct ddp_hf_config *config)
{
    static const struct {
        const char *key;
        bool wanted;
    } required[] = {
        {"scale_attn_weights", true},
        {"scale_attn_by_inverse_layer_idx", false},
        {"add_cross_attention", false},
        {"tie_word_embeddings", true},
    };
    enum ddp_status status = read_type(in);
    if (status == DDP_OK)
        status = read_shape(in, &config->shape);
    if (status == DDP_OK)
        status = read_activation(in, &config->exact_gelu);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "layer_norm_epsilon", 1e-12, 1, &config->norm_eps);
    if (status == DDP_OK)
        status = read_dropout(in, config);
    for (size_t i = 0; status == DDP_OK && i < sizeof required / sizeof required[0]; i++)
        status = ddp_hf_keys_require(in, required[i].key, required[i].wanted);
    return status;
}

enum ddp_status ddp_hf_config_parse(struct ddp_hf_config *config, const char *name,
                                    const char *text, size_t bytes)
{
    struct ddp_hf_config found = {
        .shape = {.layers = 12, .heads = 12, .channels = 768, .vocabulary = 50257, .context = 1024},
        .norm_eps = 1e-5,
    };
    struct ddp_hf_keys in;
    enum ddp_status status = ddp_hf_keys_open(&in, name, "not a config.json", text, bytes);
    if (status == DDP_OK)
        status = read_root(&in, &found);
    json_decref(in.root);
    if (status == DDP_OK)
        *config = found;
    return status;
}

enum ddp_status ddp_hf_config_write(const char *path, const struct ddp_hf_config *config)
{
    const struct ddp_gpt2_shape *shape = &config->shape;
    json_t *root =
        json_pack("{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:b, s:s}",
                  "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function",
                  config->exact_gelu ? "gelu" : "gelu_new", "vocab_size",
                  (json_int_t)shape->vocabulary, "n_positions", (json_int_t)shape->context,
                  "n_embd", (json_int_t)shape->channels, "n_layer", (json_int_t)shape->layers,
                  "n_head", (json_int_t)shape->heads, "layer_norm_epsilon", config->norm_eps,
                  "resid_pdrop", config->dropout, "embd_pdrop", config->dropout, "attn_pdrop",
                  config->attention_dropout, "tie_word_embeddings", 1, "torch_dtype", "float32");
    char *text = root ? ddp_json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL,
         *line = NULL;
    const bool made = text && asprintf(&line, "%s\n", text) >= 0;
    json_decref(root);
    free(text);
    if (!made)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = ddp_atomic_file_put(path, line);
    free(line);
    return status;
}
