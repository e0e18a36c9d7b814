/* SPDX-License-Identifier: MIT
 *
 * See hf_bert.h: reading. */
#include "config.h"

#include "weights/hf_bert.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"
#include "weights/format.h"
#include "weights/hf_keys.h"
#include "weights/peft.h"
#include "weights/safetensors_index.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG  "config.json"
#define WEIGHTS "model.safetensors"
#define MODULES "modules.json"
#define PREFIX  "bert."
#define WORDS   "embeddings.word_embeddings.weight"

/* --- config.json ------------------------------------------------------------------------------ */

bool ddp_hf_bert_is(const char *directory)
{
    char unsaid[512];
    struct ddp_hf_keys in;
    const char *type = NULL;
    char *path = ddp_path_in(directory, CONFIG);
    if (!path || access(path, R_OK) != 0) {
        free(path);
        return false;
    }
    const struct ddp_log_held before =
        ddp_log_exchange((struct ddp_log_held){unsaid, sizeof unsaid});
    bool is = ddp_hf_keys_open(&in, path, "a config.json", NULL, 0) == DDP_OK &&
              ddp_hf_keys_text(&in, "model_type", &type) == DDP_OK && type &&
              strcmp(type, "bert") == 0;
    ddp_log_exchange(before);
    json_decref(in.root);
    free(path);
    return is;
}

/* A key that has one value which we can do. */
static enum ddp_status require_text(const struct ddp_hf_keys *in, const char *key,
                                    const char *wanted)
{
    const char *value = wanted;
    enum ddp_status status = ddp_hf_keys_text(in, key, &value);
    if (status == DDP_OK && strcmp(value, wanted) != 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %s \"%s\" is not supported: only \"%s\" is",
                          in->name, key, value, wanted);
    return status;
}

static enum ddp_status read_keys(struct ddp_bert *bert, const struct ddp_hf_keys *in)
{
    const struct {
        const char *key;
        int64_t most, *value;
    } counts[] = {
        {"vocab_size", 1 << 24, &bert->vocabulary},
        {"hidden_size", 65536, &bert->channels},
        {"num_hidden_layers", 1000, &bert->layers},
        {"num_attention_heads", 1000, &bert->heads},
        {"intermediate_size", 1 << 20, &bert->hidden},
        {"max_position_embeddings", 1 << 20, &bert->context},
        {"type_vocab_size", 1 << 16, &bert->types},
    };
    enum ddp_status status = require_text(in, "model_type", "bert");
    for (size_t i = 0; status == DDP_OK && i < sizeof counts / sizeof counts[0]; i++)
        status = ddp_hf_keys_count(in, counts[i].key, counts[i].most, counts[i].value);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "layer_norm_eps", 0, 1, &bert->norm_eps);
    if (status == DDP_OK)
        status = require_text(in, "hidden_act", "gelu");
    if (status == DDP_OK)
        status = require_text(in, "position_embedding_type", "absolute");
    if (status == DDP_OK)
        status = ddp_hf_keys_require(in, "is_decoder", false);
    return status;
}

enum ddp_status ddp_hf_bert_parse(struct ddp_bert *bert, const char *name, const char *text,
                                  size_t bytes)
{
    struct ddp_hf_keys in;
    *bert = (struct ddp_bert){.vocabulary = 30522,
                              .channels = 768,
                              .layers = 12,
                              .heads = 12,
                              .hidden = 3072,
                              .context = 512,
                              .types = 2,
                              .norm_eps = 1e-12};
    enum ddp_status status = ddp_hf_keys_open(&in, name, "a config.json", text, bytes);
    if (status == DDP_OK)
        status = read_keys(bert, &in);
    json_decref(in.root);
    return status;
}

/* 1_Pooling/config.json of sentence-transformers, where there is one. */
static enum ddp_status read_pooling(struct ddp_bert *bert, const char *directory)
{
    struct ddp_hf_keys in;
    char *path = ddp_path_in(directory, "1_Pooling/" CONFIG);
    bool mean = false, first = false;
    if (!path)
        return DDP_ERR_MEMORY;
    if (access(path, F_OK) != 0) {
        free(path);
        return DDP_OK;
    }
    enum ddp_status status = ddp_hf_keys_open(&in, path, "a config.json", NULL, 0);
    const char *mode = json_string_value(json_object_get(in.root, "pooling_mode"));
    if (status == DDP_OK && !mode)
        status = ddp_hf_keys_flag(&in, "pooling_mode_mean_tokens", &mean);
    if (status == DDP_OK && !mode)
        status = ddp_hf_keys_flag(&in, "pooling_mode_cls_token", &first);
    if (mode) {
        mean = strcmp(mode, "mean") == 0;
        first = strcmp(mode, "cls") == 0;
    }
    if (status == DDP_OK && mean == first)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: only the pooling of mean_tokens or of cls_token is supported", path);
    bert->pooling = first ? DDP_BERT_CLS : DDP_BERT_MEAN;
    json_decref(in.root);
    free(path);
    return status;
}

/* sentence_bert_config.json of sentence-transformers. */
static enum ddp_status read_length(struct ddp_bert *bert, const char *directory)
{
    struct ddp_hf_keys in = {.root = NULL};
    char *path = ddp_path_in(directory, "sentence_bert_config.json");
    enum ddp_status status = path ? DDP_OK : DDP_ERR_MEMORY;
    if (path && access(path, F_OK) == 0)
        status = ddp_hf_keys_open(&in, path, "a configuration of sentences", NULL, 0);
    if (in.root && status == DDP_OK)
        status = ddp_hf_keys_count(&in, "max_seq_length", bert->context, &bert->length);
    json_decref(in.root);
    free(path);
    return status;
}

/* modules.json of sentence-transformers: is the last module one that makes lengths 1? */
static enum ddp_status read_modules(struct ddp_bert *bert, const char *directory)
{
    char *path = ddp_path_in(directory, MODULES), *text = NULL;
    size_t bytes, i;
    json_t *root = NULL, *module;
    json_error_t error;
    if (!path)
        return DDP_ERR_MEMORY;
    if (access(path, F_OK) != 0) {
        free(path);
        return DDP_OK;
    }
    enum ddp_status status =
        ddp_input_file_read_whole(path, "a list of modules", DDP_HF_CONFIG_BYTES, &text, &bytes);
    if (status == DDP_OK)
        status = ddp_json_parse(&root, text, bytes, &error);
    if (status == DDP_ERR_FORMAT && text)
        status = ddp_fail(status, "%s: line %d: %s", path, error.line, error.text);
    json_array_foreach(root, i, module)
    {
        const char *type = json_string_value(json_object_get(module, "type"));
        const char *name = type ? strrchr(type, '.') : NULL;
        bert->normalizes |= name && strcmp(name, ".Normalize") == 0;
    }
    json_decref(root);
    free(text);
    free(path);
    return status;
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* The directory of a file; freed with free(). */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
}

static bool is_ours(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, WEIGHTS) != 0)
        return false;
    char *directory = directory_of(path);
    const bool is = directory && ddp_hf_bert_is(directory);
    free(directory);
    return is;
}

static const struct ddp_safetensor *find(const ddp_safetensors *file, const char *name)
{
    char full[160];
    snprintf(full, sizeof full, PREFIX "%s", name);
    const struct ddp_safetensor *tensor = ddp_safetensors_find(file, full);
    return tensor ? tensor : ddp_safetensors_find(file, name);
}

void ddp_hf_bert_set_outputs(struct ddp_model_config *config, int64_t outputs)
{
    config->dim_count = outputs ? 2 : 3;
    config->dims[0] = outputs ? 3 : 1;
    config->dims[1] = outputs ? 4 : 3;
    config->dims[2] = 4;
    config->classes = outputs > 1 ? outputs : 0;
}

static enum ddp_status describe(const char *path, const struct ddp_model **model,
                                struct ddp_model_config *config)
{
    ddp_safetensors *file = NULL;
    char *directory = directory_of(path), *beside = NULL;
    struct ddp_bert *bert = ddp_bert_of(&config->own);
    enum ddp_status status = DDP_ERR_MEMORY;
    if (directory && (beside = ddp_path_in(directory, CONFIG)))
        status = ddp_hf_bert_parse(bert, beside, NULL, 0);
    if (status == DDP_OK)
        status = read_pooling(bert, directory);
    if (status == DDP_OK)
        status = read_modules(bert, directory);
    if (status == DDP_OK)
        status = read_length(bert, directory);
    if (status == DDP_OK)
        status = ddp_safetensors_open_model_header(&file, path);
    if (status == DDP_OK) {
        const struct ddp_safetensor *head = ddp_safetensors_find(file, "classifier.weight");
        *model = &ddp_model_bert;
        config->described = true;
        config->x_dtype = DDP_I32;
        bert->length = head || bert->length ? bert->length : bert->context;
        ddp_hf_bert_set_outputs(config, !head ? 0 : head->dim_count == 2 ? head->dims[0] : 1);
    }
    ddp_safetensors_close(file);
    free(beside);
    free(directory);
    return status;
}

/* A model that is fine-tuned gets a new head; one without pooler may too. */
static bool may_lack(const struct ddp_parameter *parameter)
{
    return ddp_peft_owns(parameter->name) || strncmp(parameter->name, "classifier.", 11) == 0 ||
           (strncmp(parameter->name, "pooler.", 7) == 0 && !parameter->frozen);
}

static enum ddp_status take(const char *path, const ddp_safetensors *file,
                            const struct ddp_parameter_place *place)
{
    const struct ddp_parameter *parameter = place->parameter;
    const struct ddp_safetensor *tensor = find(file, parameter->name);
    float none;
    if (!tensor && may_lack(parameter))
        return DDP_OK;
    if (!tensor)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is missing", path, parameter->name);
    if (!ddp_hf_values_convert(&none, tensor->data, tensor->dtype, 0))
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is %s; F32, F16 and BF16 can be read", path,
                        tensor->name, tensor->dtype);
    bool same = tensor->dim_count == parameter->dim_count;
    for (int d = 0; same && d < tensor->dim_count; d++)
        same = tensor->dims[d] == parameter->dims[d];
    if (!same)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s has another shape than the model's, whose first dimension "
                        "is %" PRId64
                        ": a classifier of other classes must be left out of the file",
                        path, tensor->name, parameter->dims[0]);
    ddp_weights_take(place, tensor);
    return DDP_OK;
}

/* What else is in the file, such as the head of masked language models, is not used. */
static enum ddp_status read_file(const char *path, const ddp_graph *graph, int64_t heads,
                                 float *flat, void *frozen)
{
    ddp_safetensors *file;
    (void)heads;
    enum ddp_status status = ddp_safetensors_open_model(&file, path);
    for (int i = 0; status == DDP_OK && i < ddp_graph_place_count(graph); i++) {
        const struct ddp_parameter_place place = ddp_graph_place_at(graph, i, flat, frozen);
        status = take(path, file, &place);
    }
    ddp_safetensors_close(file);
    return status;
}

const struct ddp_weight_format ddp_format_hf_bert = {
    .is = is_ours,
    .describe = describe,
    .read = read_file,
};
