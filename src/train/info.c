/* SPDX-License-Identifier: MIT
 *
 * See info.h. */
#include "config.h"

#include "train/info.h"

#include "checkpoint/checkpoint.h"
#include "core/json.h"
#include "core/log.h"
#include "core/staged_directory.h"
#include "core/text.h"
#include "core/write.h"
#include "ddp_train.h"
#include "generate/texts.h"
#include "plan/load.h"
#include "model/bert.h"
#include "weights/format.h"
#include "weights/gguf.h"
#include "weights/hf_keys.h"
#include "weights/hf_bert.h"
#include "weights/peft.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GIB          (1024.0 * 1024 * 1024)
#define INFO_LISTED  20   /* classes or columns that are named */
#define TOKENS       2048 /* of a shard, in the table */
#define CHUNK        256  /* tokens of logits at a time */
#define F32_BYTES    16.0 /* of a parameter: weight, gradient, two moments */
#define MASTER_BYTES 18.0 /* and the weight in bf16, with a gradient in float32 */
#define BF16_BYTES   2.0

enum ddp_status ddp_train_needs(const struct ddp_hf_llama *config, struct ddp_train_needs *needs)
{
    const struct ddp_llama *shape = &config->shape;
    const double queries = (double)(shape->heads * shape->head_size);
    const double keys = (double)(shape->kv_heads * shape->head_size);
    double values =
        4.0 * (double)shape->channels + 2 * queries + 2 * keys + 3.0 * (double)shape->hidden;
    *needs = (struct ddp_train_needs){0};
    enum ddp_status status =
        ddp_hf_llama_count(config, DDP_TRAIN_INFO_RANK, &needs->parameters, &needs->adapters);
    if (status != DDP_OK)
        return status;
    if (shape->qk_norm)
        values += queries + keys;
    const double parameters = (double)needs->parameters;
    needs->full_f32 = F32_BYTES * parameters;
    needs->full_bf16 = MASTER_BYTES * parameters;
    needs->lora = BF16_BYTES * parameters + F32_BYTES * (double)needs->adapters;
    needs->block = sizeof(float) * values;
    needs->kept = needs->block * (double)shape->layers;
    needs->recomputed = sizeof(float) * (double)(shape->channels * shape->layers);
    needs->logits = 2 * sizeof(float) * (double)config->vocabulary;
    return DDP_OK;
}

/* --- the files beside ------------------------------------------------------------------------- */

static bool has_tokenizer(const char *path)
{
    struct ddp_gguf gguf;
    const bool has =
        ddp_gguf_open(&gguf, path) == DDP_OK && json_object_get(gguf.keys, "tokenizer.ggml.tokens");
    ddp_gguf_close(&gguf);
    return has;
}

/* path: of a directory, or of a GGUF file */
static const char *find_tokenizer(const char *path)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
    if (ddp_gguf_is(path))
        return has_tokenizer(path) ? "in the file" : NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ddp_path_is_in(path, names[i]))
            return names[i];
    return NULL;
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_rope(const struct ddp_llama *shape, FILE *out)
{
    const struct ddp_rope *rope = &shape->rope;
    int unrotated = 0;
    for (int64_t l = 0; l < shape->layers; l++)
        unrotated += ddp_llama_has_layer(&shape->unrotated, l);
    fprintf(out, "rope        theta %.12g", rope->theta);
    if (rope->size != shape->head_size)
        fprintf(out, ", %" PRId64 " of %" PRId64 " features of a head", rope->size,
                shape->head_size);
    if (rope->kind == DDP_ROPE_LINEAR)
        fprintf(out, ", linear: factor %g", rope->factor);
    if (rope->kind == DDP_ROPE_LLAMA3)
        fprintf(out, ", llama3: factor %g, from %g to %g, of %" PRId64 " positions", rope->factor,
                rope->low_factor, rope->high_factor, rope->original);
    if (rope->kind == DDP_ROPE_YARN)
        fprintf(out, ", yarn: factor %g, of %" PRId64 " positions", rope->factor, rope->original);
    if (unrotated)
        fprintf(out, ", none in %d layers", unrotated);
    fputc('\n', out);
}

static void print_shape(const struct ddp_hf_llama *config, FILE *out)
{
    const struct ddp_llama *shape = &config->shape;
    int windowed = 0;
    for (int64_t l = 0; l < shape->layers; l++)
        windowed += ddp_llama_has_layer(&shape->windowed, l);
    fprintf(out,
            "model       %s: %" PRId64 " layers of %" PRId64 " channels, perceptrons of %" PRId64
            "\n",
            ddp_hf_llama_family(shape->family), shape->layers, shape->channels, shape->hidden);
    fprintf(out,
            "attention   %" PRId64 " heads of %" PRId64 " features, %" PRId64
            " of keys and values%s%s\n",
            shape->heads, shape->head_size, shape->kv_heads,
            shape->qk_norm ? ", normed queries and keys" : "", shape->qkv_bias ? ", biases" : "");
    if (windowed)
        fprintf(out, "window      %" PRId64 " tokens, in %d of the layers\n", shape->window,
                windowed);
    print_rope(shape, out);
    fprintf(out, "context     %" PRId64 " tokens\n", shape->context);
    fprintf(out, "vocabulary  %" PRId64 " tokens, %s\n", config->vocabulary,
            shape->tied ? "the head is the embedding" : "a head of its own");
}

static const char *dtype_name(const char *dtype)
{
    return strcmp(dtype, "F32") == 0    ? "float32"
           : strcmp(dtype, "F16") == 0  ? "float16"
           : strcmp(dtype, "BF16") == 0 ? "bf16"
                                        : dtype; /* of GGUF */
}

/* With what is wrong with them, in so far as texts would meet it. */
static void print_tokenizer(const char *directory, FILE *out)
{
    char said[512] = "";
    const char *name = find_tokenizer(directory), *file = NULL;
    ddp_chat_template *chat = NULL;
    ddp_tokenizer *tokenizer = NULL;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    if (name && ddp_tokenizer_open(&tokenizer, directory) == DDP_OK &&
        ddp_tokenizer_chat_template(tokenizer, &file))
        (void)ddp_chat_template_choose(&chat, tokenizer, NULL);
    ddp_log_exchange(before);
    fprintf(out, "tokenizer   %s%s", name ? name : "none", name && !tokenizer ? ", refused: " : "");
    if (!tokenizer)
        (void)ddp_train_print_text(out, said, strlen(said));
    file = file && strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    fprintf(out, "\ntemplate    %s%s", file ? file : "none", file && !chat ? ", refused: " : "");
    if (file && !chat)
        (void)ddp_train_print_text(out, said, strlen(said));
    fputc('\n', out);
    ddp_chat_template_close(chat);
    ddp_tokenizer_close(tokenizer);
}

static void print_files(const char *directory, const struct ddp_hf_llama_files *files, FILE *out)
{
    if (files->count == 0)
        fprintf(out, "weights     none\n");
    else
        fprintf(out, "weights     %s, %zu file%s of %.2f GiB\n", dtype_name(files->dtype),
                files->count, files->count > 1 ? "s" : "", (double)files->bytes / GIB);
    print_tokenizer(directory, out);
}

static void print_needs(const struct ddp_train_needs *needs, bool adapters, FILE *out)
{
    const double tokens = TOKENS / GIB;
    char text[32];
    fprintf(out, "parameters  %s\n", ddp_train_info_number(text, needs->parameters));
    fprintf(out, "\nGiB to train with AdamW\n");
    fprintf(out, "  all, float32                     %10.2f\n", needs->full_f32 / GIB);
    fprintf(out, "  all, bf16 with float32 masters   %10.2f\n", needs->full_bf16 / GIB);
    if (adapters)
        fprintf(out, "  LoRA of rank %d, bf16 base       %10.2f  (%s parameters)\n",
                DDP_TRAIN_INFO_RANK, needs->lora / GIB,
                ddp_train_info_number(text, needs->adapters));
    fprintf(out, "and for a shard of %d tokens          float32      bf16\n", TOKENS);
    fprintf(out, "  activations                      %10.2f%10.2f\n", needs->kept * tokens,
            needs->kept * tokens / 2);
    fprintf(out, "  activations, --recompute         %10.2f%10.2f\n",
            (needs->recomputed + needs->block) * tokens,
            (needs->recomputed + needs->block) * tokens / 2);
    fprintf(out, "  logits, %d tokens at a time     %10.2f%10.2f\n", CHUNK,
            needs->logits * CHUNK / GIB, needs->logits * CHUNK / GIB);
}

/* --- a file of weights ------------------------------------------------------------------------ */

static void print_name(const char *name, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, " %s", ddp_text_show(shown, name));
}

/* "            mean   0.286 0.5": the numbers or names of an array of the description. */
static void print_list(const char *title, const json_t *list, FILE *out)
{
    const json_t *value;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    fprintf(out, "  %-10s", title);
    json_array_foreach(list, i, value)
    {
        if (i == INFO_LISTED)
            break;
        if (json_is_string(value))
            print_name(json_string_value(value), out);
        else if (json_is_object(value))
            print_name(json_string_value(json_object_get(value, "name")), out);
        else
            fprintf(out, " %g", json_number_value(value));
    }
    fprintf(out, json_array_size(list) > INFO_LISTED ? " and %zu more\n" : "\n",
            json_array_size(list) - INFO_LISTED);
}

/* What new samples are treated by: see data/describe.h. */
static void print_data(const json_t *data, FILE *out)
{
    const char *kind = json_string_value(json_object_get(data, "kind"));
    const char *tokenizer = json_string_value(json_object_get(data, "tokenizer"));
    const json_t *target = json_object_get(data, "target");
    const char *name = json_string_value(json_object_get(target, "name"));
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, "data        %s\n", kind ? ddp_text_show(shown, kind) : "not known");
    if (tokenizer)
        fprintf(out, "  tokenizer  of hash %s\n", ddp_text_show(shown, tokenizer));
    print_list("size", json_object_get(data, "size"), out);
    print_list("mean", json_object_get(data, "mean"), out);
    print_list("deviation", json_object_get(data, "std"), out);
    print_list("classes", json_object_get(data, "classes"), out);
    print_list("columns", json_object_get(data, "columns"), out);
    if (!target)
        return;
    fprintf(out, "  predicts  %s%s", name ? " " : "",
            name ? ddp_text_show(shown, name) : " a number");
    if (!json_object_get(target, "words"))
        fprintf(out, ", mean %g, deviation %g", json_number_value(json_object_get(target, "mean")),
                json_number_value(json_object_get(target, "std")));
    fputc('\n', out);
    print_list("classes", json_object_get(target, "words"), out);
}

static enum ddp_status count_parameters(const struct ddp_model *model,
                                        const struct ddp_model_config *config, int64_t *count)
{
    struct ddp_model_config one = *config;
    ddp_graph *graph = NULL;
    one.batch = 1;
    const enum ddp_status status = ddp_model_build(&graph, model, &one);
    if (status == DDP_OK)
        *count = ddp_graph_element_count(graph) + ddp_graph_frozen_element_count(graph);
    ddp_graph_destroy(graph);
    return status;
}

static enum ddp_status print_weights(const char *file, FILE *out)
{
    const struct ddp_model *model = NULL;
    struct ddp_model_config config = {0};
    char *data = NULL, text[DDP_MODEL_TEXT], shown[DDP_TEXT_SHOWN], number[32];
    int64_t count = 0;
    json_t *root = NULL;
    enum ddp_status status = ddp_train_weights_model(file, &model, &config);
    if (status == DDP_OK && !model)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: it does not say which model it holds", file);
    if (status == DDP_OK)
        status = ddp_train_weights_data(file, &data);
    if (status == DDP_OK)
        status = count_parameters(model, &config, &count);
    if (status == DDP_OK && data)
        status = ddp_json_parse_object(&root, file, data, strlen(data), 0);
    free(data);
    if (status != DDP_OK)
        return status;
    ddp_model_describe(model, &config, text);
    fprintf(out, "file        %s\n", ddp_text_show(shown, file));
    fprintf(out, "model       %s\n", ddp_text_show(shown, text));
    fprintf(out, "parameters  %s\n", ddp_train_info_number(number, count));
    if (root)
        print_data(root, out);
    json_decref(root);
    return DDP_OK;
}

static void print_encoder(const char *directory, const struct ddp_model_config *config,
                          int64_t count, FILE *out)
{
    const struct ddp_bert *bert = ddp_bert_in(config);
    const bool json = ddp_path_is_in(directory, "tokenizer.json");
    char shown[DDP_TEXT_SHOWN], number[32];
    fprintf(out, "directory   %s\n", ddp_text_show(shown, directory));
    fprintf(out,
            "model       bert: %" PRId64 " layers of %" PRId64 " channels, perceptrons of %" PRId64
            "\n",
            bert->layers, bert->channels, bert->hidden);
    fprintf(out, "attention   %" PRId64 " heads of %" PRId64 " features, of the whole text\n",
            bert->heads, bert->channels / bert->heads);
    fprintf(out, "context     %" PRId64 " tokens\n", bert->context);
    fprintf(out, "vocabulary  %" PRId64 " tokens, in %s\n", bert->vocabulary,
            json                                     ? "tokenizer.json"
            : ddp_path_is_in(directory, "vocab.txt") ? "vocab.txt"
                                                     : "no file: name one with --tokenizer");
    if (ddp_bert_contrasts(config))
        fprintf(out, "gives       embeddings: the %s%s\n",
                bert->pooling == DDP_BERT_MEAN ? "mean of the tokens" : "first token",
                bert->normalizes ? ", of length 1" : "");
    else if (config->classes > 0)
        fprintf(out, "gives       %" PRId64 " classes\n", config->classes);
    else
        fprintf(out, "gives       a number\n");
    fprintf(out, "parameters  %s\n", ddp_train_info_number(number, count));
    fprintf(out, "\nGiB to train with AdamW\n  all, float32                     %10.2f\n",
            F32_BYTES * (double)count / GIB);
}

/* A directory of Hugging Face with an encoder. */
static enum ddp_status print_bert(const char *directory, FILE *out)
{
    const struct ddp_model *model = NULL;
    struct ddp_model_config config = {0};
    int64_t count = 0;
    char *file = ddp_path_in(directory, "model.safetensors");
    enum ddp_status status = file ? ddp_train_weights_model(file, &model, &config) : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = count_parameters(model, &config, &count);
    if (status == DDP_OK)
        print_encoder(directory, &config, count, out);
    free(file);
    return status;
}

/* --- adapters --------------------------------------------------------------------------------- */

/* What adapter_config.json says; it may be one that --adapters refuses. */
static enum ddp_status print_peft(const char *directory, FILE *out)
{
    struct ddp_hf_keys in = {.root = NULL};
    const char *base = NULL;
    char *name = ddp_path_in(directory, "adapter_config.json"), shown[DDP_TEXT_SHOWN];
    int64_t rank = 0;
    double alpha = 0;
    enum ddp_status status =
        name ? ddp_hf_keys_open(&in, name, "a configuration of adapters", NULL, 0) : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_hf_keys_count(&in, "r", INT32_MAX, &rank);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(&in, "lora_alpha", 0, HUGE_VAL, &alpha);
    if (status == DDP_OK)
        status = ddp_hf_keys_text(&in, "base_model_name_or_path", &base);
    if (status == DDP_OK) {
        fprintf(out, "directory   %s\n", ddp_text_show(shown, directory));
        fprintf(out, "adapters    rank %" PRId64 ", alpha %g\n", rank, alpha);
        print_list("targets", ddp_hf_keys_get(&in, "target_modules"), out);
        fprintf(out, "base        %s\n", base ? ddp_text_show(shown, base) : "not known");
    }
    json_decref(in.root);
    free(name);
    return status;
}

static enum ddp_status print_gguf_adapters(const char *path, FILE *out)
{
    struct ddp_gguf gguf;
    char shown[DDP_TEXT_SHOWN], number[32];
    const char *base = NULL;
    int64_t rank = 0, count = 0;
    double alpha = 0;
    enum ddp_status status = ddp_gguf_open(&gguf, path);
    const struct ddp_hf_keys in = {.name = path, .prefix = "", .root = gguf.keys};
    if (status == DDP_OK)
        status = ddp_hf_keys_real(&in, "adapter.lora.alpha", 0, HUGE_VAL, &alpha);
    if (status == DDP_OK)
        status = ddp_hf_keys_text(&in, "general.architecture", &base);
    for (size_t i = 0; status == DDP_OK && i < gguf.count; i++) {
        const struct ddp_gguf_tensor *tensor = &gguf.tensors[i];
        count += tensor->dims[0] * (tensor->dim_count > 1 ? tensor->dims[1] : 1);
        if (tensor->dim_count == 2 && ddp_text_ends_with(tensor->name, ".lora_a"))
            rank = tensor->dims[1] > rank ? tensor->dims[1] : rank;
    }
    if (status == DDP_OK)
        fprintf(out,
                "file        %s\nadapters    rank %" PRId64 ", alpha %g\nbase        of "
                "architecture %s\nparameters  %s\n",
                ddp_text_show(shown, path), rank, alpha, base ? base : "not known",
                ddp_train_info_number(number, count));
    ddp_gguf_close(&gguf);
    return status;
}

/* --- any -------------------------------------------------------------------------------------- */

/* A checkpoint, or the newest of some, or a model whose file tells all; or data. */
static enum ddp_status print_found(const char *directory, FILE *out)
{
    const struct ddp_train_options options = {.load = directory};
    struct ddp_load load;
    char said[512] = "";
    bool data = false;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    enum ddp_status status = ddp_load_find(&load, &options, true);
    ddp_log_exchange(before);
    const enum ddp_status shown = status == DDP_OK ? print_weights(load.file, out)
                                                   : ddp_train_info_data(directory, out, &data);
    if (status == DDP_OK || data)
        status = shown;
    else
        (void)ddp_fail(status, "%s", said);
    ddp_load_close(&load);
    return status;
}

/* One that is not recognised is read as the weights that it may be. */
static enum ddp_status print_any_file(const char *path, FILE *out)
{
    bool known = ddp_weight_format_of(path) != &ddp_format_safetensors;
    if (known)
        return print_weights(path, out);
    const enum ddp_status status = ddp_train_info_data(path, out, &known);
    return known ? status : print_weights(path, out);
}

enum ddp_status ddp_train_info(const char *path, FILE *out)
{
    struct ddp_hf_llama config;
    struct ddp_hf_llama_files files;
    struct ddp_train_needs needs;
    struct stat info;
    char shown[DDP_TEXT_SHOWN];
    if (stat(path, &info) < 0)
        return ddp_fail_path(path, "read");
    const bool gguf = ddp_gguf_is(path) && !ddp_gguf_is_gpt2(path);
    if (!S_ISDIR(info.st_mode) && !gguf)
        return print_any_file(path, out);
    if (gguf && ddp_gguf_is_adapters(path))
        return print_gguf_adapters(path, out);
    if (!gguf) {
        ddp_staged_directory_recover(path);
        if (ddp_hf_bert_is(path))
            return print_bert(path, out);
        if (ddp_peft_is(path))
            return print_peft(path, out);
        if (!ddp_hf_llama_is(path))
            return print_found(path, out);
    }
    enum ddp_status status = gguf ? ddp_gguf_read(&config, path) : ddp_hf_llama_read(&config, path);
    if (status == DDP_OK)
        status = gguf ? ddp_gguf_check(path, &config, &files)
                      : ddp_hf_llama_check(path, &config, &files);
    if (status == DDP_OK)
        status = ddp_train_needs(&config, &needs);
    if (status != DDP_OK)
        return status;
    fprintf(out, "%s   %s\n", gguf ? "file     " : "directory", ddp_text_show(shown, path));
    print_shape(&config, out);
    print_files(path, &files, out);
    print_needs(&needs, config.shape.family != DDP_LLAMA_PHI3, out);
    return DDP_OK;
}
