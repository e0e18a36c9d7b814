/* SPDX-License-Identifier: MIT
 *
 * config.json of a Llama-type model, read into its shape; hf_llama_text.c writes it. */
#include "config.h"

#include "weights/hf_llama.h"

#include "core/log.h"
#include "weights/hf_llama_rope.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LARGEST     ((int64_t)1 << 20) /* width */
#define LONGEST     ((int64_t)1 << 30) /* positions */
#define VOCABULARY  ((int64_t)1 << 24)
#define QWEN_WINDOW 28 /* max_window_layers */

/* What a key that is left out means; kv_heads and head_size 0: heads, and channels / heads. */
static const struct {
    const char *name, *class;
    int64_t channels, hidden, layers, heads, kv_heads, head_size, vocabulary, context;
    int64_t window; /* of sliding_window */
    double norm_eps;
    bool tied;
    bool attention_flag;    /* attention_bias is read: of q, k, v and o */
    bool mlp_flag;          /* mlp_bias is read */
    bool qkv_bias, qk_norm; /* always */
    bool window_flag;       /* a window needs use_sliding_window, and layer_types may name layers */
} families[] = {
    [DDP_LLAMA_LLAMA] = {"llama", "LlamaForCausalLM", 4096, 11008, 32, 32, 0, 0, 32000, 2048,
                         .norm_eps = 1e-6, .attention_flag = true, .mlp_flag = true},
    [DDP_LLAMA_QWEN2] = {"qwen2", "Qwen2ForCausalLM", 4096, 22016, 32, 32, 32, 0, 151936, 32768,
                         .window = 4096, .norm_eps = 1e-6, .qkv_bias = true, .window_flag = true},
    [DDP_LLAMA_QWEN3] = {"qwen3", "Qwen3ForCausalLM", 4096, 22016, 32, 32, 32, 128, 151936, 32768,
                         .window = 4096, .norm_eps = 1e-6, .attention_flag = true, .qk_norm = true,
                         .window_flag = true},
    [DDP_LLAMA_MISTRAL] = {"mistral", "MistralForCausalLM", 4096, 14336, 32, 32, 8, 0, 32000,
                           131072, .window = 4096, .norm_eps = 1e-6},
    [DDP_LLAMA_SMOLLM3] = {"smollm3", "SmolLM3ForCausalLM", 2048, 11008, 36, 16, 4, 0, 128256,
                           32768, .norm_eps = 1e-6, .tied = true, .attention_flag = true,
                           .mlp_flag = true, .window_flag = true},
    [DDP_LLAMA_PHI3] = {"phi3", "Phi3ForCausalLM", 3072, 8192, 32, 32, 0, 0, 32064, 4096,
                        .norm_eps = 1e-5},
};

#define FAMILIES (int64_t)(sizeof families / sizeof families[0])

const char *ddp_hf_llama_family(int64_t family)
{
    return families[family].name;
}

const char *ddp_hf_llama_class(int64_t family)
{
    return families[family].class;
}

static enum ddp_status read_family(const struct ddp_hf_keys *in, int64_t *family)
{
    const char *type = NULL;
    enum ddp_status status = ddp_hf_keys_text(in, "model_type", &type);
    if (status != DDP_OK)
        return status;
    if (!type)
        return ddp_fail(DDP_ERR_FORMAT, "%s: model_type is missing", in->name);
    for (*family = 0; *family < FAMILIES; ++*family)
        if (strcmp(type, families[*family].name) == 0)
            return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: model_type \"%s\" is not supported: llama, qwen2, qwen3, mistral, smollm3 "
                    "or phi3",
                    in->name, type);
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* A count that may be null: then it is what is there. */
static enum ddp_status read_open_count(const struct ddp_hf_keys *in, const char *key, int64_t most,
                                       int64_t *value)
{
    return ddp_hf_keys_get(in, key) ? ddp_hf_keys_count(in, key, most, value) : DDP_OK;
}

static enum ddp_status read_heads(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    const bool null_kv = json_is_null(json_object_get(in->root, "num_key_value_heads"));
    const bool null_size = json_is_null(json_object_get(in->root, "head_dim"));
    shape->kv_heads = null_kv ? 0 : families[shape->family].kv_heads;
    shape->head_size = null_size ? 0 : families[shape->family].head_size;
    enum ddp_status status = ddp_hf_keys_count(in, "num_attention_heads", LARGEST, &shape->heads);
    if (status == DDP_OK)
        status = read_open_count(in, "num_key_value_heads", LARGEST, &shape->kv_heads);
    if (status == DDP_OK)
        status = read_open_count(in, "head_dim", LARGEST, &shape->head_size);
    if (status != DDP_OK)
        return status;
    if (shape->kv_heads == 0)
        shape->kv_heads = shape->heads;
    if (shape->head_size == 0 && shape->channels % shape->heads != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: hidden_size %" PRId64 " is not a multiple of num_attention_heads "
                        "%" PRId64 ", and there is no head_dim",
                        in->name, shape->channels, shape->heads);
    if (shape->head_size == 0)
        shape->head_size = shape->channels / shape->heads;
    if (shape->heads % shape->kv_heads != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: num_attention_heads %" PRId64 " is not a multiple of "
                        "num_key_value_heads %" PRId64,
                        in->name, shape->heads, shape->kv_heads);
    if (shape->heads * shape->head_size > LARGEST)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: num_attention_heads %" PRId64 " x head_dim %" PRId64
                        " is more than %" PRId64,
                        in->name, shape->heads, shape->head_size, LARGEST);
    return DDP_OK;
}

static enum ddp_status read_sizes(const struct ddp_hf_keys *in, struct ddp_hf_llama *config)
{
    struct ddp_llama *shape = &config->shape;
    const int64_t family = shape->family;
    shape->channels = families[family].channels;
    shape->hidden = families[family].hidden;
    shape->layers = families[family].layers;
    shape->heads = families[family].heads;
    shape->context = families[family].context;
    shape->norm_eps = families[family].norm_eps;
    config->vocabulary = families[family].vocabulary;
    config->init_std = DDP_LLAMA_INIT_STD;
    config->bos = config->eos = -1;
    enum ddp_status status =
        ddp_hf_keys_count(in, "num_hidden_layers", DDP_LLAMA_LAYERS, &shape->layers);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "hidden_size", LARGEST, &shape->channels);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "intermediate_size", LARGEST, &shape->hidden);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "vocab_size", VOCABULARY, &config->vocabulary);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "max_position_embeddings", LONGEST, &shape->context);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "rms_norm_eps", 1e-12, 1, &shape->norm_eps);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "initializer_range", 0, 100, &config->init_std);
    return status == DDP_OK ? read_heads(in, shape) : status;
}

static enum ddp_status read_flags(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    const int64_t family = shape->family;
    bool attention = false, mlp = false;
    shape->tied = families[family].tied;
    enum ddp_status status = ddp_hf_keys_flag(in, "tie_word_embeddings", &shape->tied);
    if (status == DDP_OK && families[family].attention_flag)
        status = ddp_hf_keys_flag(in, "attention_bias", &attention);
    if (status == DDP_OK && families[family].mlp_flag)
        status = ddp_hf_keys_flag(in, "mlp_bias", &mlp);
    shape->qkv_bias = attention || families[family].qkv_bias;
    shape->o_bias = attention;
    shape->mlp_bias = mlp;
    shape->qk_norm = families[family].qk_norm;
    return status;
}

/* --- layers ----------------------------------------------------------------------------------- */

/* A list with an entry for each layer; NULL: there is none. */
static enum ddp_status find_list(const struct ddp_hf_keys *in, const char *key, int64_t layers,
                                 const json_t **list)
{
    *list = ddp_hf_keys_get(in, key);
    if (*list && (!json_is_array(*list) || json_array_size(*list) != (size_t)layers))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s is not a list of num_hidden_layers = %" PRId64 " entries", in->name,
                        key, layers);
    return DDP_OK;
}

static enum ddp_status read_unrotated(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    int64_t interval = 4;
    const json_t *list;
    if (shape->family != DDP_LLAMA_SMOLLM3)
        return DDP_OK;
    enum ddp_status status = find_list(in, "no_rope_layers", shape->layers, &list);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "no_rope_layer_interval", LONGEST, &interval);
    for (int64_t l = 0; status == DDP_OK && l < shape->layers; l++) {
        const json_t *entry = list ? json_array_get(list, (size_t)l) : NULL;
        const json_int_t value = json_integer_value(entry);
        if (entry && (!json_is_integer(entry) || value < 0 || value > 1))
            status = ddp_fail(DDP_ERR_FORMAT, "%s: no_rope_layers has values other than 0 and 1",
                              in->name);
        else if (entry ? value == 0 : (l + 1) % interval == 0) /* 1: the layer does rotate */
            ddp_llama_add_layer(&shape->unrotated, l);
    }
    return status;
}

/* Which layers have the window where layer_types does not say. */
static bool has_window(const struct ddp_llama *shape, int64_t layer, int64_t first)
{
    switch (shape->family) {
    case DDP_LLAMA_QWEN2:
    case DDP_LLAMA_QWEN3:
        return layer >= first;
    case DDP_LLAMA_SMOLLM3:
        return ddp_llama_has_layer(&shape->unrotated, layer);
    default:
        return true;
    }
}

/* An entry of layer_types. */
static enum ddp_status read_layer_type(const struct ddp_hf_keys *in, const json_t *entry,
                                       const struct ddp_llama *shape, bool *windowed)
{
    const char *type = json_string_value(entry);
    const bool sliding = type && strcmp(type, "sliding_attention") == 0;
    if (!sliding && (!type || strcmp(type, "full_attention") != 0))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: layer_types has %s%s%s: full_attention and sliding_attention are "
                        "supported",
                        in->name, type ? "\"" : "", type ? type : "a value that is not a string",
                        type ? "\"" : "");
    if (sliding && shape->window == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: layer_types has \"sliding_attention\", but %s",
                        in->name,
                        families[shape->family].window_flag
                            ? "use_sliding_window is false or sliding_window null"
                            : "there is no sliding_window");
    if (!families[shape->family].window_flag && sliding != *windowed)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: layer_types contradicts sliding_window, which is of all layers in %s",
                        in->name, families[shape->family].name);
    *windowed = sliding;
    return DDP_OK;
}

/* The first layer with a window in qwen2 and qwen3. */
static enum ddp_status read_first_window(const struct ddp_hf_keys *in, int64_t *first)
{
    const json_t *member = ddp_hf_keys_get(in, "max_window_layers");
    *first = member ? json_integer_value(member) : QWEN_WINDOW;
    if (member && (!json_is_integer(member) || *first < 0))
        return ddp_fail(DDP_ERR_FORMAT, "%s: max_window_layers is not a whole number from 0",
                        in->name);
    return DDP_OK;
}

static enum ddp_status read_windows(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    const int64_t family = shape->family;
    const bool null = json_is_null(json_object_get(in->root, "sliding_window"));
    const bool has = family != DDP_LLAMA_LLAMA; /* which ignores the key */
    int64_t first;
    bool use = false;
    const json_t *list;
    shape->window = null ? 0 : families[family].window;
    enum ddp_status status = find_list(in, "layer_types", shape->layers, &list);
    if (status == DDP_OK && has)
        status = read_open_count(in, "sliding_window", LONGEST, &shape->window);
    if (status == DDP_OK && families[family].window_flag)
        status = ddp_hf_keys_flag(in, "use_sliding_window", &use);
    if (status == DDP_OK)
        status = read_first_window(in, &first);
    if (status != DDP_OK)
        return status;
    if (families[family].window_flag && !use)
        shape->window = 0;
    for (int64_t l = 0; status == DDP_OK && l < shape->layers; l++) {
        bool windowed = shape->window > 0 && has_window(shape, l, first);
        if (list)
            status = read_layer_type(in, json_array_get(list, (size_t)l), shape, &windowed);
        if (windowed)
            ddp_llama_add_layer(&shape->windowed, l);
    }
    if (shape->windowed.count == 0)
        shape->window = 0;
    return status;
}

/* --- what we do not do ------------------------------------------------------------------------ */

static enum ddp_status check_others(const struct ddp_hf_keys *in)
{
    static const char *const rates[] = {"attention_dropout", "resid_pdrop", "embd_pdrop"};
    const char *act = "silu";
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < sizeof rates / sizeof rates[0]; i++) {
        double rate = 0;
        if (ddp_hf_keys_get(in, rates[i]))
            status = ddp_hf_keys_real(in, rates[i], 0, 1, &rate);
        if (status == DDP_OK && rate > 0)
            status = ddp_fail(DDP_ERR_FORMAT, "%s: %s %g is not supported; it must be 0", in->name,
                              rates[i], rate);
    }
    if (status == DDP_OK)
        status = ddp_hf_keys_text(in, "hidden_act", &act);
    if (status == DDP_OK && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: hidden_act \"%s\" is not supported; it must be silu",
                          in->name, act);
    return status;
}

/* bitsandbytes' nf4 is read; each matrix says more of itself. */
static enum ddp_status read_quantisation(const struct ddp_hf_keys *in, bool *nf4)
{
    const json_t *given = ddp_hf_keys_get(in, "quantization_config");
    const char *method = json_string_value(json_object_get(given, "quant_method"));
    const char *type = json_string_value(json_object_get(given, "bnb_4bit_quant_type"));
    const char *storage = json_string_value(json_object_get(given, "bnb_4bit_quant_storage"));
    *nf4 = given != NULL;
    if (given && (!method || strcmp(method, "bitsandbytes") != 0 ||
                  !json_is_true(json_object_get(given, "load_in_4bit")) || !type ||
                  strcmp(type, "nf4") != 0 || (storage && strcmp(storage, "uint8") != 0)))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: quantization_config: of quantised weights only bitsandbytes' nf4 in "
                        "uint8 are supported; take the model that they were made from",
                        in->name);
    return DDP_OK;
}

static enum ddp_status read_dtype(const struct ddp_hf_keys *in, const char **dtype)
{
    static const char *const names[][2] = {
        {"float32", "F32"}, {"float16", "F16"}, {"bfloat16", "BF16"}};
    const char *key = ddp_hf_keys_get(in, "dtype") ? "dtype" : "torch_dtype", *text = NULL;
    enum ddp_status status = ddp_hf_keys_text(in, key, &text);
    *dtype = NULL;
    if (status != DDP_OK || !text)
        return status;
    const char *name = strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i][0]) == 0)
            *dtype = names[i][1];
    if (*dtype || strcmp(name, "auto") == 0)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT, "%s: %s \"%s\" is not supported: float32, float16 or bfloat16",
                    in->name, key, text);
}

static enum ddp_status read_root(const struct ddp_hf_keys *in, struct ddp_hf_llama *config)
{
    enum ddp_status status = read_family(in, &config->shape.family);
    if (status == DDP_OK)
        status = check_others(in);
    if (status == DDP_OK)
        status = read_sizes(in, config);
    if (status == DDP_OK)
        status = read_flags(in, &config->shape);
    if (status == DDP_OK)
        status = read_unrotated(in, &config->shape);
    if (status == DDP_OK)
        status = read_windows(in, &config->shape);
    if (status == DDP_OK)
        status = ddp_hf_llama_rope_read(in, &config->shape);
    if (status == DDP_OK)
        status = read_quantisation(in, &config->nf4);
    return status == DDP_OK ? read_dtype(in, &config->dtype) : status;
}

enum ddp_status ddp_hf_llama_parse(struct ddp_hf_llama *config, const char *name, const char *text,
                                   size_t bytes)
{
    struct ddp_hf_llama found = {0};
    struct ddp_hf_keys in;
    enum ddp_status status = ddp_hf_keys_open(&in, name, "not a config.json", text, bytes);
    if (status == DDP_OK)
        status = read_root(&in, &found);
    json_decref(in.root);
    if (status == DDP_OK)
        *config = found;
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

/* The file itself, or that of a directory; NULL: no memory. */
static char *config_of(const char *path)
{
    char *file;
    struct stat info;
    const bool is_file = stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
    return asprintf(&file, "%s%s", path, is_file ? "" : "/config.json") < 0 ? NULL : file;
}

bool ddp_hf_llama_is(const char *from)
{
    char *path = config_of(from);
    struct stat info;
    if (!path)
        return false;
    const bool there = stat(path, &info) == 0;
    json_t *root = NULL;
    if (there && S_ISREG(info.st_mode) && info.st_size <= DDP_HF_CONFIG_BYTES)
        root = json_load_file(path, 0, NULL);
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const bool is = root ? type && strcmp(type, "gpt2") != 0 && strcmp(type, "bert") != 0 : there;
    json_decref(root);
    free(path);
    return is;
}

enum ddp_status ddp_hf_llama_read(struct ddp_hf_llama *config, const char *from)
{
    char *path = config_of(from);
    enum ddp_status status = path ? ddp_hf_llama_parse(config, path, NULL, 0)
                                  : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    free(path);
    return status;
}
