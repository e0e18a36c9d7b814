/* SPDX-License-Identifier: MIT
 *
 * The keys of GGUF that say what a model is. They are turned into a config.json and read as one. */
#include "config.h"

#include "core/log.h"
#include "core/portable_math.h"
#include "model/rope.h"
#include "weights/gguf.h"
#include "weights/hf_keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((int64_t)1 << 30)
#define NOPE 4 /* each fourth layer of a smollm3 is without positions */
#define PI   3.14159265358979323846

/* --- positions of llama3 ---------------------------------------------------------------------- */

void ddp_gguf_rope_factors(const struct ddp_rope *rope, float *factors)
{
    const double original = (double)rope->original;
    for (int64_t i = 0; i < rope->size / 2; i++) {
        const double wave =
            2 * PI * ddp_math_pow(rope->theta, (double)(2 * i) / (double)rope->size);
        const double share =
            (original / wave - rope->low_factor) / (rope->high_factor - rope->low_factor);
        factors[i] = 1;
        if (rope->kind == DDP_ROPE_LLAMA3 && wave > original / rope->low_factor)
            factors[i] = (float)rope->factor;
        else if (rope->kind == DDP_ROPE_LLAMA3 && wave >= original / rope->high_factor)
            factors[i] = (float)(1 / ((1 - share) / rope->factor + share));
    }
}

/* Which llama3 has these factors? With the low and high factor that all published ones have. */
static bool find_llama3(struct ddp_rope *rope, const float *factors)
{
    float made[DDP_LLAMA_HEAD / 2];
    const int64_t count = rope->size / 2;
    rope->kind = DDP_ROPE_LLAMA3;
    rope->low_factor = 1;
    rope->high_factor = 4;
    rope->factor = (double)factors[count - 1];
    for (rope->original = 1; rope->original <= MOST; rope->original *= 2) {
        bool same = true;
        ddp_gguf_rope_factors(rope, made);
        for (int64_t i = 0; same && i < count; i++)
            same = fabsf(made[i] - factors[i]) <= 1e-5f * factors[i];
        if (same)
            return true;
    }
    return false;
}

static enum ddp_status read_factors(const struct ddp_gguf *gguf, struct ddp_rope *rope)
{
    float factors[DDP_LLAMA_HEAD / 2];
    const struct ddp_gguf_tensor *tensor = ddp_gguf_find(gguf, DDP_GGUF_ROPE_FACTORS);
    if (!tensor)
        return DDP_OK;
    if (tensor->type != DDP_GGUF_F32 || tensor->dim_count != 1 || rope->size > DDP_LLAMA_HEAD ||
        tensor->dims[0] != rope->size / 2)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is not %" PRId64 " values of F32",
                        gguf->file.path, tensor->name, rope->size / 2);
    enum ddp_status status = ddp_gguf_read_bytes(gguf, tensor, 0, factors, (size_t)tensor->bytes);
    if (status == DDP_OK && rope->kind != DDP_ROPE_DEFAULT)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s beside another scaling of positions",
                          gguf->file.path, tensor->name);
    if (status == DDP_OK && !find_llama3(rope, factors))
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: tensor %s: these positions are not scaled as Llama 3 does it, with "
                          "low_freq_factor 1, high_freq_factor 4 and a power of two of positions",
                          gguf->file.path, tensor->name);
    return status;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct reading {
    struct ddp_hf_keys in;
    const char *architecture;
    json_t *config;
    bool failed; /* no memory */
};

static void put(struct reading *reading, const char *key, json_t *value)
{
    reading->failed |= json_object_set_new(reading->config, key, value) != 0;
}

/* "llama.block_count" */
static const char *key_of(char key[128], const struct reading *reading, const char *name)
{
    snprintf(key, 128, "%s.%s", reading->architecture, name);
    return key;
}

/* A number of the file that is a key of config.json. `count` 0: it is not there. */
static enum ddp_status take_count(struct reading *reading, const char *name, const char *to,
                                  bool needed, int64_t *count)
{
    char key[128];
    key_of(key, reading, name);
    *count = 0;
    enum ddp_status status = ddp_hf_keys_count(&reading->in, key, MOST, count);
    if (status == DDP_OK && needed && *count == 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the key %s is missing", reading->in.name, key);
    if (status == DDP_OK && to && *count > 0)
        put(reading, to, json_integer(*count));
    return status;
}

double ddp_gguf_shortest(double value)
{
    char text[32];
    double same = value;
    for (int digits = 6; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        same = strtod(text, NULL);
        if ((float)same == (float)value)
            break;
    }
    return same;
}

static enum ddp_status take_real(struct reading *reading, const char *name, const char *to,
                                 double fallback, double *value)
{
    char key[128];
    *value = fallback;
    enum ddp_status status =
        ddp_hf_keys_real(&reading->in, key_of(key, reading, name), 0, 1e12, value);
    *value = ddp_gguf_shortest(*value);
    if (status == DDP_OK && to)
        put(reading, to, json_real(*value));
    return status;
}

static enum ddp_status take_sizes(struct reading *reading)
{
    static const struct {
        const char *name, *to;
        bool needed;
    } rows[] = {
        {"block_count", "num_hidden_layers", true},
        {"context_length", "max_position_embeddings", true},
        {"embedding_length", "hidden_size", true},
        {"feed_forward_length", "intermediate_size", true},
        {"attention.head_count", "num_attention_heads", true},
        {"attention.head_count_kv", "num_key_value_heads", false},
    };
    int64_t sizes[6], head, value;
    double ignored;
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < 6; i++)
        status = take_count(reading, rows[i].name, rows[i].to, rows[i].needed, &sizes[i]);
    if (status == DDP_OK && sizes[5] == 0)
        put(reading, rows[5].to, json_integer(sizes[4]));
    if (status == DDP_OK)
        status = take_count(reading, "attention.key_length", "head_dim", false, &head);
    if (status == DDP_OK && head == 0)
        put(reading, "head_dim",
            sizes[2] % sizes[4] ? json_null() : json_integer(sizes[2] / sizes[4]));
    if (status == DDP_OK)
        status = take_count(reading, "attention.value_length", NULL, false, &value);
    if (status == DDP_OK && value > 0 && value != (head ? head : sizes[2] / sizes[4]))
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: %s.attention.value_length differs from key_length, which is not "
                          "supported",
                          reading->in.name, reading->architecture);
    if (status == DDP_OK)
        status =
            take_real(reading, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6, &ignored);
    return status;
}

static enum ddp_status take_scaling(struct reading *reading, const char *type, json_t *rope)
{
    int64_t original;
    double factor, attention;
    enum ddp_status status = take_real(reading, "rope.scaling.factor", NULL, 1, &factor);
    if (status == DDP_OK)
        status =
            take_count(reading, "rope.scaling.original_context_length", NULL, false, &original);
    if (status == DDP_OK)
        status = take_real(reading, "rope.scaling.attn_factor", NULL, 1, &attention);
    if (status == DDP_OK && attention != 1)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %s.rope.scaling.attn_factor is not supported",
                          reading->in.name, reading->architecture);
    if (status != DDP_OK)
        return status;
    reading->failed |= json_object_set_new(rope, "rope_type", json_string(type)) != 0 ||
                       json_object_set_new(rope, "factor", json_real(factor)) != 0;
    if (original > 0)
        reading->failed |= json_object_set_new(rope, "original_max_position_embeddings",
                                               json_integer(original)) != 0;
    return DDP_OK;
}

static enum ddp_status take_rope(struct reading *reading, bool phi3)
{
    char key[128];
    const char *type = "none";
    double theta;
    int64_t turned = 0;
    json_t *rope = json_object();
    enum ddp_status status = take_real(reading, "rope.freq_base", NULL, 1e4, &theta);
    reading->failed |= json_object_set_new(rope, "rope_theta", json_real(theta)) != 0;
    if (status == DDP_OK)
        status = ddp_hf_keys_text(&reading->in, key_of(key, reading, "rope.scaling.type"), &type);
    if (status == DDP_OK && strcmp(type, "none") != 0)
        status = take_scaling(reading, type, rope);
    if (status == DDP_OK)
        status = take_count(reading, "rope.dimension_count", NULL, false, &turned);
    const int64_t head = json_integer_value(json_object_get(reading->config, "head_dim"));
    if (status == DDP_OK && turned > 0 && head > 0 && turned != head) {
        if (!phi3 || turned > head)
            status = ddp_fail(DDP_ERR_FORMAT,
                              "%s: %s.rope.dimension_count is %" PRId64 ", and heads of %" PRId64
                              " features turn as a whole",
                              reading->in.name, reading->architecture, turned, head);
        /* Its reader multiplies and truncates. */
        reading->failed |=
            json_object_set_new(rope, "partial_rotary_factor",
                                json_real(((double)turned + 0.5) / (double)head)) != 0;
    }
    put(reading, "rope_parameters", rope);
    return status;
}

static enum ddp_status take_family(struct reading *reading)
{
    const char *name = NULL;
    int64_t family = 0;
    enum ddp_status status = ddp_hf_keys_text(&reading->in, "general.architecture", &name);
    if (status == DDP_OK && !name)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: general.architecture is missing", reading->in.name);
    while (status == DDP_OK && family <= DDP_LLAMA_PHI3 &&
           strcmp(ddp_gguf_architecture(family), name) != 0)
        family++;
    if (status == DDP_OK && family > DDP_LLAMA_PHI3)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: the architecture \"%s\" is not supported: llama, qwen2, qwen3, "
                          "smollm3, phi3 or gpt2",
                          reading->in.name, name);
    reading->architecture = name;
    if (status == DDP_OK)
        put(reading, "model_type", json_string(name));
    return status;
}

static enum ddp_status fill(struct reading *reading, const struct ddp_gguf *gguf)
{
    char key[128];
    int64_t window = 0, experts = 0;
    const char *kind = json_string_value(json_object_get(gguf->keys, "general.type"));
    if (kind && strcmp(kind, "adapter") == 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: adapters alone: load their base, and give them with --adapters",
                        gguf->file.path);
    enum ddp_status status = take_family(reading);
    if (status != DDP_OK)
        return status;
    const bool phi3 = strcmp(reading->architecture, "phi3") == 0;
    const struct ddp_gguf_tensor *tokens = ddp_gguf_find(gguf, "token_embd.weight");
    if (!tokens || tokens->dim_count != 2)
        return ddp_fail(DDP_ERR_FORMAT, "%s: there is no matrix token_embd.weight",
                        gguf->file.path);
    put(reading, "vocab_size", json_integer(tokens->dims[1]));
    put(reading, "tie_word_embeddings", json_boolean(!ddp_gguf_find(gguf, "output.weight")));
    put(reading, "attention_bias", json_boolean(ddp_gguf_find(gguf, "blk.0.attn_q.bias") != NULL));
    put(reading, "mlp_bias", json_boolean(ddp_gguf_find(gguf, "blk.0.ffn_up.bias") != NULL));
    put(reading, "no_rope_layer_interval", json_integer(NOPE));
    status = take_sizes(reading);
    if (status == DDP_OK)
        status = take_rope(reading, phi3);
    if (status == DDP_OK)
        status = take_count(reading, "expert_count", NULL, false, &experts);
    if (status == DDP_OK && experts > 0)
        status =
            ddp_fail(DDP_ERR_FORMAT, "%s: a mixture of experts is not supported", gguf->file.path);
    const json_t *given =
        json_object_get(gguf->keys, key_of(key, reading, "attention.sliding_window"));
    if (status == DDP_OK && given && json_integer_value(given) != 0) /* 0: none */
        status = take_count(reading, "attention.sliding_window", NULL, false, &window);
    if (status == DDP_OK)
        put(reading, "sliding_window", phi3 && window > 0 ? json_integer(window) : json_null());
    return status;
}

enum ddp_status ddp_gguf_config(struct ddp_hf_llama *config, const struct ddp_gguf *gguf)
{
    struct reading reading = {.in = {gguf->file.path, "", gguf->keys}, .config = json_object()};
    char *text = NULL;
    enum ddp_status status = fill(&reading, gguf);
    if (status == DDP_OK && !reading.failed)
        text = ddp_json_text(reading.config, 0);
    json_decref(reading.config);
    if (status == DDP_OK && !text)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", gguf->file.path);
    if (status == DDP_OK)
        status = ddp_hf_llama_parse(config, gguf->file.path, text, strlen(text));
    free(text);
    return status == DDP_OK ? read_factors(gguf, &config->shape.rope) : status;
}

/* --- writing ---------------------------------------------------------------------------------- */

enum ddp_status ddp_gguf_check_said(const char *path, const struct ddp_llama *shape)
{
    const struct ddp_rope *rope = &shape->rope;
    int64_t other = -1;
    for (int64_t l = 0; shape->family == DDP_LLAMA_SMOLLM3 && l < shape->layers; l++)
        if (ddp_llama_has_layer(&shape->unrotated, l) != ((l + 1) % NOPE == 0))
            other = l;
    if (other >= 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: GGUF has a smollm3 without positions in each fourth layer, and layer "
                        "%" PRId64 " of this one is otherwise: export a directory",
                        path, other);
    const double usual = rope->factor > 1 ? 0.1 * ddp_math_log(rope->factor) + 1 : 1;
    if (rope->kind == DDP_ROPE_YARN &&
        (rope->untruncated || rope->beta_fast != 32 || rope->beta_slow != 1 ||
         fabs(rope->attention_factor - usual) > 1e-9))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: GGUF has yarn with beta_fast 32, beta_slow 1, the usual "
                        "attention_factor and truncate alone: export a directory",
                        path);
    if (shape->windowed.count > 0)
        ddp_log(DDP_LOG_WARNING,
                "%s: llama.cpp does not use the window of %" PRId64 " tokens of a %s: longer "
                "contexts get other answers there",
                path, shape->window, ddp_hf_llama_family(shape->family));
    return DDP_OK;
}

enum ddp_status ddp_gguf_set_config(json_t *keys, const struct ddp_hf_llama *config)
{
    const struct ddp_llama *shape = &config->shape;
    const struct ddp_rope *rope = &shape->rope;
    const char *architecture = ddp_gguf_architecture(shape->family);
    const bool phi3 = shape->family == DDP_LLAMA_PHI3;
    const bool scaled = rope->kind == DDP_ROPE_LINEAR || rope->kind == DDP_ROPE_YARN;
    const struct {
        const char *name;
        json_t *value; /* NULL: left out */
    } rows[] = {
        {"block_count", json_integer(shape->layers)},
        {"context_length", json_integer(shape->context)},
        {"embedding_length", json_integer(shape->channels)},
        {"feed_forward_length", json_integer(shape->hidden)},
        {"vocab_size", json_integer(config->vocabulary)},
        {"attention.head_count", json_integer(shape->heads)},
        {"attention.head_count_kv", json_integer(shape->kv_heads)},
        {"attention.key_length", json_integer(shape->head_size)},
        {"attention.value_length", json_integer(shape->head_size)},
        {"attention.layer_norm_rms_epsilon", json_real(shape->norm_eps)},
        {"attention.sliding_window", phi3 ? json_integer(shape->window) : NULL},
        {"rope.dimension_count", json_integer(rope->size)},
        {"rope.freq_base", json_real(rope->theta)},
        {"rope.scaling.type",
         scaled ? json_string(rope->kind == DDP_ROPE_YARN ? "yarn" : "linear") : NULL},
        {"rope.scaling.factor", scaled ? json_real(rope->factor) : NULL},
        {"rope.scaling.original_context_length", phi3 ? json_integer(shape->context)
                                                 : rope->kind == DDP_ROPE_YARN
                                                     ? json_integer(rope->original)
                                                     : NULL},
    };
    int failed = json_object_set_new(keys, "general.architecture", json_string(architecture));
    failed |= json_object_set_new(keys, "general.type", json_string("model"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", architecture, rows[i].name);
        if (rows[i].value)
            failed |= json_object_set_new(keys, key, rows[i].value);
    }
    return failed ? ddp_fail(DDP_ERR_MEMORY, "out of memory") : DDP_OK;
}
