/* SPDX-License-Identifier: MIT
 *
 * config.json of an export: that of the source with some keys changed, or a new one. */
#include "config.h"

#include "weights/hf_llama.h"

#include "core/log.h"
#include "weights/hf_edit.h"
#include "weights/hf_llama_rope.h"

#include <stdlib.h>
#include <string.h>

/* --- a new one -------------------------------------------------------------------------------- */

static int set_windows(json_t *root, const struct ddp_llama *shape)
{
    const bool some = shape->windowed.count > 0;
    const bool flag = shape->family == DDP_LLAMA_QWEN2 || shape->family == DDP_LLAMA_QWEN3 ||
                      shape->family == DDP_LLAMA_SMOLLM3;
    int failed = 0;
    if (shape->family == DDP_LLAMA_LLAMA)
        return 0;
    failed |= json_object_set_new(root, "sliding_window",
                                  some ? json_integer(shape->window) : json_null());
    if (!flag)
        return failed;
    json_t *types = json_array();
    failed |= json_object_set_new(root, "use_sliding_window", json_boolean(some));
    failed |= json_object_set_new(root, "layer_types", types);
    int64_t first = shape->layers; /* for versions that do not know layer_types */
    for (int64_t l = shape->layers - 1; l >= 0 && ddp_llama_has_layer(&shape->windowed, l); l--)
        first = l;
    failed |= json_object_set_new(root, "max_window_layers", json_integer(first));
    for (int64_t l = 0; !failed && l < shape->layers; l++)
        failed |= json_array_append_new(types, json_string(ddp_llama_has_layer(&shape->windowed, l)
                                                               ? "sliding_attention"
                                                               : "full_attention"));
    return failed;
}

static int set_unrotated(json_t *root, const struct ddp_llama *shape)
{
    if (shape->family != DDP_LLAMA_SMOLLM3)
        return 0;
    json_t *list = json_array();
    int failed = json_object_set_new(root, "no_rope_layers", list);
    for (int64_t l = 0; !failed && l < shape->layers; l++)
        failed |= json_array_append_new(
            list, json_integer(ddp_llama_has_layer(&shape->unrotated, l) ? 0 : 1));
    return failed;
}

/* null: there is none, or the model does not have it. */
static json_t *token_id(const struct ddp_hf_llama *config, int32_t id)
{
    return id >= 0 && id < config->vocabulary ? json_integer(id) : json_null();
}

static json_t *make_root(const struct ddp_hf_llama *config)
{
    const struct ddp_llama *shape = &config->shape;
    const bool attention = shape->o_bias;
    json_t *root = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:f, s:f, s:b, s:b, s:b, s:f, "
        "s:o, s:o, s:n, s:o}",
        "architectures", ddp_hf_llama_class(shape->family), "model_type",
        ddp_hf_llama_family(shape->family), "vocab_size", (json_int_t)config->vocabulary,
        "hidden_size", (json_int_t)shape->channels, "intermediate_size", (json_int_t)shape->hidden,
        "num_hidden_layers", (json_int_t)shape->layers, "num_attention_heads",
        (json_int_t)shape->heads, "num_key_value_heads", (json_int_t)shape->kv_heads, "head_dim",
        (json_int_t)shape->head_size, "hidden_act", "silu", "max_position_embeddings",
        (json_int_t)shape->context, "rms_norm_eps", shape->norm_eps, "initializer_range",
        config->init_std, "tie_word_embeddings", shape->tied, "attention_bias", attention,
        "mlp_bias", shape->mlp_bias, "attention_dropout", 0.0, "bos_token_id",
        token_id(config, config->bos), "eos_token_id", token_id(config, config->eos),
        "pad_token_id", "rope_parameters", ddp_hf_llama_rope_object(shape));
    if (root && (set_windows(root, shape) || set_unrotated(root, shape))) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* --- keys that change ------------------------------------------------------------------------- */

/* What is not so in the source becomes a change. Takes the value. */
static int change(json_t *changes, const struct ddp_hf_keys *in, const char *key, json_t *value)
{
    const json_t *have = json_object_get(in->root, key);
    if (value && have && json_equal(have, value)) {
        json_decref(value);
        return 0;
    }
    return json_object_set_new(changes, key, value);
}

static bool is_number(const json_t *json, double value)
{
    const double difference = json_number_value(json) - value;
    return json_is_number(json) && difference >= 0 && difference <= 0;
}

/* rope_scaling of version 4; null for the default kind. */
static json_t *old_form(const json_t *rope)
{
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (type && strcmp(type, "default") == 0)
        return json_null();
    json_t *old = json_deep_copy(rope);
    json_object_del(old, "rope_theta");
    json_object_del(old, "partial_rotary_factor");
    return old;
}

/* Both forms say the same afterwards; what said it already stays as it is written. */
static int change_rope(json_t *changes, const struct ddp_hf_keys *in, const json_t *rope,
                       int64_t family)
{
    const json_t *theta = json_object_get(rope, "rope_theta");
    const json_t *partial = json_object_get(rope, "partial_rotary_factor");
    const json_t *original = json_object_get(rope, "original_max_position_embeddings");
    const json_t *scaling = ddp_hf_keys_get(in, "rope_scaling");
    int failed = change(changes, in, "rope_parameters", json_deep_copy(rope));
    if (!is_number(json_object_get(in->root, "rope_theta"), json_number_value(theta)))
        failed |= change(changes, in, "rope_theta", json_deep_copy(theta));
    if (!scaling || json_object_size(scaling) == 0)
        failed |= change(changes, in, "rope_scaling", old_form(rope));
    if (family != DDP_LLAMA_PHI3)
        return failed;
    if (partial &&
        !is_number(json_object_get(in->root, "partial_rotary_factor"), json_number_value(partial)))
        failed |= change(changes, in, "partial_rotary_factor", json_deep_copy(partial));
    if (original && !ddp_hf_keys_get(in, "original_max_position_embeddings"))
        failed |= change(changes, in, "original_max_position_embeddings", json_deep_copy(original));
    return failed;
}

static bool names_class(const struct ddp_hf_keys *in, int64_t family)
{
    const json_t *list = ddp_hf_keys_get(in, "architectures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, ddp_hf_llama_class(family)) == 0)
            return true;
    }
    return false;
}

static enum ddp_status find_changes(const struct ddp_hf_keys *in, int64_t family, const char *dtype,
                                    json_t **changes)
{
    const char *name = strcmp(dtype, "F32") == 0 ? "float32" : "bfloat16";
    json_t *rope;
    enum ddp_status status = ddp_hf_llama_rope_keys(in, family, &rope);
    if (status != DDP_OK)
        return status;
    *changes = json_object();
    int failed = !*changes;
    if (!names_class(in, family))
        failed |=
            change(*changes, in, "architectures", json_pack("[s]", ddp_hf_llama_class(family)));
    failed |= change(*changes, in, "dtype", json_string(name));
    failed |= change(*changes, in, "torch_dtype", json_string(name));
    failed |= change_rope(*changes, in, rope, family);
    json_decref(rope);
    if (!failed)
        return DDP_OK;
    json_decref(*changes);
    return ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

static enum ddp_status edit(char **text, const char *name, const char *source, size_t bytes,
                            int64_t family, const char *dtype)
{
    json_t *changes;
    struct ddp_hf_keys in;
    char *plain = NULL; /* what is written is not quantised */
    enum ddp_status status = ddp_hf_keys_open(&in, name, "not a config.json", source, bytes);
    if (status == DDP_OK && ddp_hf_keys_get(&in, "quantization_config")) {
        json_object_del(in.root, "quantization_config");
        plain = ddp_json_text(in.root, JSON_INDENT(2));
        status = plain ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    if (status == DDP_OK)
        status = find_changes(&in, family, dtype, &changes);
    if (status == DDP_OK) {
        status =
            ddp_hf_edit(text, name, plain ? plain : source, plain ? strlen(plain) : bytes, changes);
        json_decref(changes);
    }
    free(plain);
    json_decref(in.root);
    return status;
}

/* --- whole ------------------------------------------------------------------------------------ */

static bool near(double a, double b)
{
    const double difference = a > b ? a - b : b - a;
    return difference <= 1e-12 * (a > b ? a : b);
}

static bool same_layers(const struct ddp_llama_layers *a, const struct ddp_llama_layers *b)
{
    return memcmp(a->words, b->words, sizeof a->words) == 0;
}

static bool same_rope(const struct ddp_rope *a, const struct ddp_rope *b)
{
    return a->kind == b->kind && a->size == b->size && a->original == b->original &&
           near(a->theta, b->theta) && near(a->factor, b->factor) &&
           near(a->low_factor, b->low_factor) && near(a->high_factor, b->high_factor) &&
           near(a->beta_fast, b->beta_fast) && near(a->beta_slow, b->beta_slow) &&
           near(a->attention_factor, b->attention_factor) && a->untruncated == b->untruncated;
}

static bool same_model(const struct ddp_hf_llama *first, const struct ddp_hf_llama *second)
{
    const struct ddp_llama *a = &first->shape, *b = &second->shape;
    return first->vocabulary == second->vocabulary && a->family == b->family &&
           a->layers == b->layers && a->channels == b->channels && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_size == b->head_size && a->hidden == b->hidden &&
           a->context == b->context && a->window == b->window && near(a->norm_eps, b->norm_eps) &&
           same_rope(&a->rope, &b->rope) && a->qkv_bias == b->qkv_bias && a->o_bias == b->o_bias &&
           a->mlp_bias == b->mlp_bias && a->qk_norm == b->qk_norm && a->tied == b->tied &&
           same_layers(&a->windowed, &b->windowed) && same_layers(&a->unrotated, &b->unrotated);
}

/* What others will read must be the model that there is. */
static enum ddp_status check_text(const struct ddp_hf_llama *config, const char *name,
                                  const char *text, bool from_source)
{
    struct ddp_hf_llama written;
    enum ddp_status status = ddp_hf_llama_parse(&written, name, text, strlen(text));
    if (status == DDP_OK && !same_model(&written, config))
        status = ddp_fail(DDP_ERR_INVALID,
                          from_source ? "%s: it describes another model than the one to be exported"
                                      : "%s: this model_type cannot have the model's shape",
                          name);
    return status;
}

enum ddp_status ddp_hf_llama_config_text(char **text, const struct ddp_hf_llama *config,
                                         const char *name, const char *source, size_t source_bytes,
                                         const char *dtype)
{
    char *made = NULL, *whole = NULL;
    if (!source) {
        json_t *root = make_root(config);
        made = root ? ddp_json_text(root, JSON_INDENT(2)) : NULL;
        json_decref(root);
        if (!made)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory");
        name = ddp_hf_llama_family(config->shape.family);
    }
    enum ddp_status status =
        edit(&whole, name, source ? source : made, source ? source_bytes : strlen(made),
             config->shape.family, dtype);
    free(made);
    if (status != DDP_OK)
        return status;
    status = check_text(config, name, whole, source);
    if (status != DDP_OK) {
        free(whole);
        return status;
    }
    *text = whole;
    return DDP_OK;
}
