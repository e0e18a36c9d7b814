/* SPDX-License-Identifier: MIT
 *
 * The weights that a run begins with, and what it exports; see weights.h. */
#include "config.h"

#include "plan/weights.h"

#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/text.h"
#include "data/data_names.h"
#include "data/text/gguf_tokens.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "weights/format.h"
#include "weights/gguf.h"
#include "weights/hf_bert.h"
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

/* --- parameters by name ----------------------------------------------------------------------- */

struct values {
    struct ddp_hf_values *all; /* those of the base, then those of adapters */
    size_t base, count;
    struct ddp_hf_merged merged;
};

/* The table of a graph's parameters, in host memory. Freed with free(values->all). */
static enum ddp_status list_values(struct values *values, const ddp_graph *graph, float *weights,
                                   void *frozen)
{
    const int count = ddp_graph_place_count(graph);
    *values = (struct values){.all = ddp_array_alloc((size_t)count, sizeof *values->all)};
    if (!values->all)
        return DDP_ERR_MEMORY;
    for (int adapters = 0; adapters < 2; adapters++) {
        for (int i = 0; i < count; i++) {
            const struct ddp_parameter_place place = ddp_graph_place_at(graph, i, weights, frozen);
            if (ddp_peft_owns(place.parameter->name) != (adapters > 0))
                continue;
            values->all[values->count++] = ddp_hf_values_of(place);
        }
        values->base = adapters ? values->base : values->count;
    }
    return DDP_OK;
}

static enum ddp_status load_directory(const struct ddp_load *load, const ddp_graph *graph,
                                      float *weights, void *frozen)
{
    struct values values;
    enum ddp_status status = list_values(&values, graph, weights, frozen);
    if (status == DDP_OK)
        status = load->gguf
                     ? ddp_gguf_load(load->directory, &load->hf, values.all, values.base)
                     : ddp_hf_llama_load(load->directory, &load->hf, values.all, values.base);
    const struct ddp_hf_values *adapters = values.all + values.base;
    const size_t count = values.count - values.base;
    if (status == DDP_OK && load->saved)
        status = ddp_train_weights_load(load->saved, graph, 0, weights, frozen);
    else if (status == DDP_OK && load->adapters)
        status = ddp_gguf_is(load->adapters)
                     ? ddp_gguf_load_each(load->adapters, &load->hf.shape, adapters, count)
                     : ddp_peft_load(load->adapters, adapters, count);
    free(values.all);
    return status;
}

/* An encoder, whose adapters have a directory of their own. */
static enum ddp_status load_adapters(const struct ddp_load *load, const ddp_graph *graph,
                                     float *weights, void *frozen)
{
    struct values values;
    enum ddp_status status = list_values(&values, graph, weights, frozen);
    if (status == DDP_OK)
        status = ddp_peft_load(load->adapters, values.all, values.count);
    free(values.all);
    return status;
}

enum ddp_status ddp_load_weights(const struct ddp_load *load, const struct ddp_model *model,
                                 const struct ddp_model_config *config, const ddp_graph *graph,
                                 float *weights, void *frozen)
{
    const int64_t heads = model == &ddp_model_gpt2 ? ddp_gpt2_in(config)->heads : 0;
    if (load->directory)
        return load_directory(load, graph, weights, frozen);
    const enum ddp_status status =
        ddp_train_weights_load(load->file, graph, heads, weights, frozen);
    return status == DDP_OK && load->adapters ? load_adapters(load, graph, weights, frozen)
                                              : status;
}

enum ddp_status ddp_planned_begin_weights(const struct ddp_planned *planned, float *weights,
                                          void *frozen)
{
    /* A file has all parameters, or the frozen ones, and adapters or a head begin anew. An encoder
     * may have no head yet. */
    const bool drawn = !planned->load.file || planned->load.config.open_head ||
                       planned->plan.model->sentence || ddp_graph_frozen_count(planned->graph) > 0;
    void *const drawn_frozen = planned->load.file ? NULL : frozen;
    struct ddp_rng rng;
    ddp_rng_seed(&rng, planned->options->seed);
    enum ddp_status status =
        drawn ? ddp_graph_init_parameters(planned->graph, &rng, weights, drawn_frozen) : DDP_OK;
    if (status != DDP_OK || !planned->load.file)
        return status;
    return ddp_load_weights(&planned->load, planned->plan.model, &planned->model_config,
                            planned->graph, weights, frozen);
}

/* --- export ----------------------------------------------------------------------------------- */

static bool writes_adapters(const struct ddp_planned *planned)
{
    return ddp_model_adapters(planned->plan.model, &planned->model_config) > 0 &&
           !planned->options->merge;
}

static bool writes_gguf(const struct ddp_train_options *options)
{
    return options->export_format == &ddp_format_gguf;
}

bool ddp_planned_exports_directory(const struct ddp_train_options *options,
                                   const struct ddp_model *model)
{
    return model->exports_directory && !writes_gguf(options);
}

static struct ddp_hf_export export_of(const struct ddp_planned *planned, const char *path)
{
    const struct ddp_train_options *options = planned->options;
    const bool bf16 = options->export_dtype == DDP_TRAIN_FILE_BF16 ||
                      (options->export_dtype == DDP_TRAIN_AS_LOADED && planned->load.hf.dtype &&
                       strcmp(planned->load.hf.dtype, "BF16") == 0);
    return (struct ddp_hf_export){
        .directory = path,
        .source = planned->load.gguf ? NULL : planned->load.directory,
        .dtype = bf16 ? DDP_BF16 : DDP_F32,
        .shard_bytes = (uint64_t)options->shard_bytes,
    };
}

enum ddp_status ddp_planned_check_llama(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const bool lora =
        ddp_llama_in(&planned->load.config)->lora.rank > 0 || ddp_train_given(options, "lora");
    if (options->merge && !lora)
        return ddp_fail(DDP_ERR_INVALID, "--export: merge: there are no adapters: it goes with "
                                         "--lora or --adapters");
    const char *of_model = options->export_dtype                               ? "dtype"
                           : options->shard_bytes > 0                          ? "shard"
                           : options->export_path && options->export_type >= 0 ? "type"
                                                                               : NULL;
    if (lora && !options->merge && of_model)
        return ddp_fail(DDP_ERR_INVALID,
                        "--export: %s: adapters are exported in one file of float32: add merge to "
                        "export the whole model",
                        of_model);
    if (options->export_path && options->export_type >= 0 && !writes_gguf(options))
        return ddp_fail(DDP_ERR_INVALID, "--export: type belongs to GGUF files: end the name in "
                                         ".gguf, or use dtype=fp32 or bf16");
    if (writes_gguf(options) && (options->export_dtype || options->shard_bytes > 0))
        return ddp_fail(DDP_ERR_INVALID,
                        "--export: %s: a GGUF file is written in one piece, with matrices of "
                        "type=f32, f16, bf16, q8_0 or q4_0",
                        options->export_dtype ? "dtype" : "shard");
    if (!options->export_path || options->plan || planned->plan.rank != 0)
        return DDP_OK;
    if (writes_gguf(options))
        return planned->load.hf.vocabulary > 0
                   ? ddp_gguf_check_said(options->export_path, &planned->load.hf.shape)
                   : DDP_OK;
    if (options->export_format && options->export_format != &ddp_format_hf_gpt2)
        return ddp_fail(DDP_ERR_INVALID, "--export: format: a llama is exported in the form of "
                                         "Hugging Face or of GGUF");
    const struct ddp_hf_export to = export_of(planned, options->export_path);
    return lora && !options->merge ? ddp_peft_save_check(to.directory)
                                   : ddp_hf_llama_export_check(&to);
}

enum ddp_status ddp_planned_check_gpt2(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const bool gguf = writes_gguf(options);
    const char *of_llama = options->merge             ? "merge"
                           : options->export_dtype    ? "dtype"
                           : options->shard_bytes > 0 ? "shard"
                                                      : NULL;
    if (of_llama)
        return ddp_fail(DDP_ERR_INVALID,
                        "--export: %s belongs to the model llama, and the model is %s", of_llama,
                        planned->plan.model->name);
    if (options->export_path && options->export_type >= 0 && !gguf)
        return ddp_fail(DDP_ERR_INVALID, "--export: type belongs to GGUF files");
    if (gguf && (planned->hf_config.exact_gelu ||
                 (planned->load.model && ddp_gpt2_in(&planned->load.config)->exact_gelu)))
        return ddp_fail(DDP_ERR_INVALID,
                        "--export %s: GGUF has a gpt2 with the activation gelu_new, and this one "
                        "has gelu: export a .safetensors",
                        options->export_path);
    return DDP_OK;
}

static void merge_adapter(struct values *values, struct ddp_hf_values *base,
                          const struct ddp_lora *lora)
{
    char down[128], up[128];
    const int stem = (int)(strlen(base->name) - strlen(".weight"));
    if (!ddp_text_ends_with(base->name, ".weight"))
        return;
    snprintf(down, sizeof down, "%.*s.lora_A.weight", stem, base->name);
    snprintf(up, sizeof up, "%.*s.lora_B.weight", stem, base->name);
    base->down = ddp_hf_values_find(values->all, values->count, down);
    base->up = base->down ? ddp_hf_values_find(values->all, values->count, up) : NULL;
    base->scale = (float)ddp_lora_scale(lora);
    base->merged = &values->merged;
}

/* A matrix with an adapter becomes the sum of both where it is read. */
static enum ddp_status merge_adapters(struct values *values, const struct ddp_lora *lora,
                                      const struct ddp_train_options *options)
{
    for (size_t i = 0; lora->rank > 0 && i < values->base; i++)
        merge_adapter(values, &values->all[i], lora);
    return lora->rank > 0 ? ddp_pool_create(&values->merged.pool, ddp_train_threads(options, 1))
                          : DDP_OK;
}

static void free_values(struct values *values)
{
    ddp_pool_destroy(values->merged.pool);
    free(values->merged.rows);
    free(values->all);
}

/* Whose tokenizer goes into the file: the run's, or that beside the weights. Without one llama.cpp
 * can still compute. */
static enum ddp_status gguf_keys(json_t **keys, const struct ddp_planned *planned,
                                 const ddp_tokenizer *tokenizer, int64_t vocabulary)
{
    char said[1024] = "";
    const char *load = planned->options->load;
    const bool beside = load && (ddp_gguf_is(load) || ddp_data_directory_exists(load));
    const char *path = tokenizer                 ? ddp_tokenizer_path(tokenizer)
                       : planned->load.directory ? planned->load.directory
                       : beside                  ? load
                                                 : NULL;
    enum ddp_status status = DDP_ERR_IO;
    if (path) {
        const struct ddp_log_held before =
            ddp_log_exchange((struct ddp_log_held){said, sizeof said});
        status = ddp_tokenizer_to_gguf(keys, path, vocabulary);
        ddp_log_exchange(before);
    }
    if (status == DDP_OK)
        return status;
    if (path && status != DDP_ERR_UNSUPPORTED && status != DDP_ERR_IO)
        return ddp_fail(status, "%s", said);
    ddp_log(DDP_LOG_WARNING, "--export %s: there will be no tokenizer in it%s%s",
            planned->options->export_path, *said ? ": " : "", said);
    *keys = json_pack("{s:s}", "tokenizer.ggml.model", "none");
    return *keys ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* Of matrices in a GGUF file. */
static int gguf_type(const struct ddp_planned *planned)
{
    const char *loaded = planned->load.hf.dtype;
    return planned->options->export_type >= 0      ? planned->options->export_type
           : loaded && strcmp(loaded, "BF16") == 0 ? DDP_GGUF_BF16
           : loaded && strcmp(loaded, "F16") == 0  ? DDP_GGUF_F16
                                                   : DDP_GGUF_F32;
}

static struct ddp_hf_llama config_of(const struct ddp_planned *planned,
                                     const ddp_tokenizer *tokenizer)
{
    return (struct ddp_hf_llama){
        .shape = *ddp_llama_in(&planned->model_config),
        .vocabulary = planned->model_config.classes,
        .init_std = planned->load.hf.init_std > 0 ? planned->load.hf.init_std : DDP_LLAMA_INIT_STD,
        .bos = tokenizer ? ddp_tokenizer_bos(tokenizer) : -1,
        .eos = tokenizer ? ddp_tokenizer_eos(tokenizer) : -1};
}

/* Of a GGUF file; *tokenizer stays NULL where it is of a kind that we do not know. */
static enum ddp_status read_tokenizer(json_t **tokenizer, json_t **about, const char *from,
                                      const char *to)
{
    struct ddp_gguf gguf;
    char said[1024] = "";
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    enum ddp_status status = ddp_gguf_open(&gguf, from);
    if (status == DDP_OK)
        status = ddp_tokenizer_from_gguf(tokenizer, about, from, gguf.keys);
    ddp_gguf_close(&gguf);
    ddp_log_exchange(before);
    if (status == DDP_OK)
        return status;
    if (status != DDP_ERR_UNSUPPORTED)
        return ddp_fail(status, "%s", said);
    ddp_log(DDP_LOG_WARNING, "--export %s: there will be no tokenizer in it: %s", to, said);
    return DDP_OK;
}

/* A directory, with the tokenizer of a GGUF file if that is what was loaded. */
static enum ddp_status export_directory(const struct ddp_planned *planned, const char *path,
                                        const struct ddp_hf_llama *config,
                                        const struct values *values)
{
    struct ddp_hf_export to = export_of(planned, path);
    json_t *tokenizer = NULL, *about = NULL;
    char *texts[2] = {NULL, NULL};
    enum ddp_status status = DDP_OK;
    if (planned->load.gguf)
        status = read_tokenizer(&tokenizer, &about, planned->load.directory, path);
    if (tokenizer) {
        to.tokenizer = texts[0] = ddp_json_text(tokenizer, JSON_INDENT(2));
        to.tokenizer_config = texts[1] = ddp_json_text(about, JSON_INDENT(2));
        if (!texts[0] || !texts[1])
            status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    json_decref(tokenizer);
    json_decref(about);
    if (status == DDP_OK)
        status = ddp_hf_llama_export(&to, config, values->all, values->base);
    free(texts[0]);
    free(texts[1]);
    return status;
}

/* Merged weights are those that were trained, whatever the files of the base say. */
static void tell_quantised(const struct ddp_planned *planned, const char *path)
{
    const enum ddp_dtype type = (enum ddp_dtype)ddp_llama_in(&planned->model_config)->lora.blocks;
    if (ddp_block_of(type))
        ddp_log(DDP_LOG_WARNING,
                "--export %s: the base is quantised to %s, and its rounded values are merged with "
                "the adapters that were trained on them: in any type they have the accuracy of %s",
                path, ddp_block_of(type)->name, ddp_block_of(type)->name);
}

static enum ddp_status export_model(const struct ddp_planned *planned, const char *path,
                                    struct values *values, const ddp_tokenizer *tokenizer)
{
    const struct ddp_hf_llama config = config_of(planned, tokenizer);
    json_t *keys = NULL;
    tell_quantised(planned, path);
    enum ddp_status status = merge_adapters(values, &config.shape.lora, planned->options);
    if (status != DDP_OK || !writes_gguf(planned->options))
        return status == DDP_OK ? export_directory(planned, path, &config, values) : status;
    /* Weights that are loaded were looked at in the beginning. */
    if (planned->load.hf.vocabulary == 0)
        status = ddp_gguf_check_said(path, &config.shape);
    if (status == DDP_OK)
        status = gguf_keys(&keys, planned, tokenizer, config.vocabulary);
    return status == DDP_OK
               ? ddp_gguf_export(path, gguf_type(planned), &config, keys, values->all, values->base)
               : status;
}

static enum ddp_status export_adapters(const struct ddp_planned *planned, const char *path,
                                       const struct values *values)
{
    const struct ddp_llama *llama = ddp_llama_in(&planned->model_config);
    const struct ddp_hf_values *adapters = values->all + values->base;
    const size_t count = values->count - values->base;
    const struct ddp_peft_base of = {.linears = ddp_llama_linear_names,
                                     .linear_count = DDP_LLAMA_LINEARS,
                                     .task = "CAUSAL_LM",
                                     .within = ""};
    return writes_gguf(planned->options)
               ? ddp_gguf_export_adapters(path, llama, adapters, count)
               : ddp_peft_save(path, &of, &llama->lora, planned->load.directory, adapters, count);
}

/* The frozen parameters of all stages, in host memory: where they are, or made again.
 *   made [out]  freed with free() */
static enum ddp_status frozen_values(const struct ddp_planned *planned, void **values, void **made)
{
    const size_t bytes = ddp_graph_frozen_bytes(planned->graph);
    *made = NULL;
    if (*values || bytes == 0)
        return DDP_OK;
    *values = *made = ddp_array_alloc(bytes, 1);
    float *learned = ddp_array_alloc((size_t)ddp_graph_flat_count(planned->graph), sizeof *learned);
    enum ddp_status status =
        *made && learned ? ddp_planned_begin_weights(planned, learned, *made) : DDP_ERR_MEMORY;
    free(learned);
    return status;
}

static enum ddp_status export_llama(const struct ddp_planned *planned, const char *path,
                                    float *weights, void *frozen, const ddp_tokenizer *tokenizer)
{
    struct values values = {.all = NULL};
    void *made = NULL;
    enum ddp_status status =
        writes_adapters(planned) ? DDP_OK : frozen_values(planned, &frozen, &made);
    if (status == DDP_OK)
        status = list_values(&values, planned->graph, weights, frozen);
    if (status == DDP_OK && writes_adapters(planned))
        status = export_adapters(planned, path, &values);
    else if (status == DDP_OK)
        status = export_model(planned, path, &values, tokenizer);
    free_values(&values);
    free(made);
    return status;
}

static enum ddp_status export_gpt2(const struct ddp_planned *planned, const char *path,
                                   float *weights, const ddp_tokenizer *tokenizer)
{
    const struct ddp_gpt2 *gpt2 = ddp_gpt2_in(&planned->model_config);
    struct ddp_gguf_gpt2 to = {.shape = {.heads = gpt2->heads}, .norm_eps = gpt2->norm_eps};
    struct values values = {.all = NULL};
    json_t *keys = NULL;
    if (!ddp_gpt2_shape_of(&to.shape, planned->graph))
        return ddp_fail(DDP_ERR_INVALID, "--export %s: the model is not a gpt2", path);
    enum ddp_status status = list_values(&values, planned->graph, weights, NULL);
    if (status == DDP_OK)
        status = gguf_keys(&keys, planned, tokenizer, to.shape.vocabulary);
    if (status == DDP_OK)
        status = ddp_gguf_export_gpt2(path, gguf_type(planned), &to, keys, values.all, values.base);
    free(values.all);
    return status;
}

static enum ddp_status export_bert(const struct ddp_planned *planned, const char *path,
                                   float *weights, void *frozen)
{
    const struct ddp_model_config *config = &planned->model_config;
    const struct ddp_bert *bert = ddp_bert_in(config);
    const struct ddp_train_options *options = planned->options;
    const bool kept = bert->length && !ddp_train_given(options, "seq-len");
    const int64_t length = kept ? bert->length : options->seq_len;
    const struct ddp_hf_bert_export to = {
        .directory = path,
        .bert = bert,
        .contrasts = ddp_bert_contrasts(config),
        .classes = config->classes,
        .class_names = ddp_dataset_info(planned->data)->class_names,
        .length = length < bert->context ? length : bert->context,
        .tokenizer = ddp_wordpiece_path(planned->wordpiece),
        .lowers = ddp_wordpiece_lowers(planned->wordpiece),
    };
    const struct ddp_peft_base of = {
        .linears = ddp_bert_linear_names,
        .linear_count = DDP_BERT_LINEARS,
        .task = to.contrasts ? "FEATURE_EXTRACTION" : "SEQ_CLS",
        .within = to.contrasts ? "" : "bert.",
        .classifier = !to.contrasts,
    };
    struct values values = {.all = NULL};
    void *made = NULL;
    enum ddp_status status = frozen_values(planned, &frozen, &made);
    if (status == DDP_OK)
        status = list_values(&values, planned->graph, weights, frozen);
    if (status == DDP_OK && bert->lora.rank > 0 && !options->merge) {
        status = ddp_peft_save(path, &of, &bert->lora, options->load, values.all, values.count);
    } else if (status == DDP_OK) {
        status = merge_adapters(&values, &bert->lora, options);
        if (status == DDP_OK)
            status = ddp_hf_bert_export(&to, values.all, values.base);
    }
    free_values(&values);
    free(made);
    return status;
}

enum ddp_status ddp_planned_export(const struct ddp_planned *planned, const char *path,
                                   float *weights, void *frozen, const ddp_tokenizer *tokenizer)
{
    const struct ddp_train_options *options = planned->options;
    if (planned->plan.model == &ddp_model_llama)
        return export_llama(planned, path, weights, frozen, tokenizer);
    if (planned->plan.model == &ddp_model_bert)
        return export_bert(planned, path, weights, frozen);
    if (writes_gguf(options))
        return export_gpt2(planned, path, weights, tokenizer);
    const struct ddp_weight_format *format = options->export_format;
    enum ddp_status status = ddp_weight_format_choose(&format, options->export_path);
    return status == DDP_OK
               ? format->write(path, planned->graph, ddp_gpt2_in(&planned->model_config), weights)
               : status;
}

uint64_t ddp_planned_export_bytes(const struct ddp_planned *planned)
{
    const ddp_graph *graph = planned->graph;
    const bool adapters = writes_adapters(planned);
    const bool merged =
        !adapters && ddp_model_adapters(planned->plan.model, &planned->model_config) > 0;
    const struct ddp_weight_format *format = planned->options->export_format;
    const bool halves = planned->plan.model->exports_directory
                            ? !adapters && export_of(planned, NULL).dtype == DDP_BF16
                            : format && format->value_bytes == sizeof(uint16_t);
    if (planned->plan.model->exports_directory && writes_gguf(planned->options) && !adapters) {
        const struct ddp_hf_llama config = config_of(planned, NULL);
        return ddp_gguf_export_bytes(&config, gguf_type(planned));
    }
    if (planned->plan.model == &ddp_model_gpt2 && writes_gguf(planned->options)) {
        const struct ddp_gguf_block *block = ddp_gguf_block(gguf_type(planned));
        return (uint64_t)(ddp_graph_element_count(graph) / block->values * block->bytes);
    }
    int64_t count = merged ? 0 : ddp_graph_element_count(graph);
    for (int i = 0; merged && i < ddp_graph_frozen_count(graph); i++)
        count += ddp_graph_frozen_at(graph, i)->count;
    return (uint64_t)count * (halves ? 2 : 4);
}

/* --- without training ------------------------------------------------------------------------- */

bool ddp_planned_converts(const struct ddp_train_options *options)
{
    return options->load && options->export_path && !options->data && !options->own_data &&
           !options->plan &&
           (writes_gguf(options) ||
            (ddp_data_file_exists(options->load)
                 ? ddp_gguf_is(options->load)
                 : ddp_hf_llama_is(options->load) || ddp_peft_is(options->load)));
}

/*   weights [out]  freed with free(); frozen [out]  with ddp_frozen_host_free() */
static enum ddp_status read_model(struct ddp_planned *planned, float **weights,
                                  struct ddp_frozen_host *frozen)
{
    struct ddp_model_config *config = &planned->model_config;
    *config = planned->load.config;
    config->batch = 1;
    enum ddp_status status = ddp_load_apply(&planned->load, planned->options, config, "");
    if (status == DDP_OK)
        status = ddp_model_configure(planned->plan.model, config);
    if (status == DDP_OK)
        status = ddp_model_build(&planned->graph, planned->plan.model, config);
    if (status == DDP_OK)
        status = ddp_frozen_host_alloc(frozen, planned->graph, NULL, false, DDP_F32);
    if (status != DDP_OK)
        return status;
    *weights = ddp_array_alloc((size_t)ddp_graph_flat_count(planned->graph), sizeof **weights);
    return *weights ? ddp_load_weights(&planned->load, planned->plan.model, config, planned->graph,
                                       *weights, frozen->values)
                    : DDP_ERR_MEMORY;
}

/* Of a gpt2 in a file the heads may be a guess. */
static enum ddp_status check_converted(const struct ddp_planned *planned)
{
    const struct ddp_load *load = &planned->load;
    if (load->model == &ddp_model_llama)
        return ddp_planned_check_llama(planned);
    if (load->model != &ddp_model_gpt2)
        return ddp_fail(DDP_ERR_INVALID,
                        "--export without --data converts a Hugging Face directory or GGUF file "
                        "of a Llama-family model, or a gpt2 to or from GGUF, and --load %s is "
                        "neither: give --data too, to train",
                        planned->options->load);
    if (!load->config.described)
        return ddp_fail(DDP_ERR_INVALID,
                        "--load %s: it does not say how many heads its gpt2 has: put the "
                        "config.json of the model beside it",
                        planned->options->load);
    return ddp_planned_check_gpt2(planned);
}

enum ddp_status ddp_planned_convert(const struct ddp_train_options *options, FILE *out)
{
    struct ddp_train_options chosen = *options;
    struct ddp_planned planned = {.options = &chosen};
    struct ddp_frozen_host frozen = {.values = NULL};
    float *weights = NULL;
    char shown[DDP_TEXT_SHOWN];
    enum ddp_status status = ddp_train_check_conversion(options);
    if (status == DDP_OK)
        status = ddp_load_open(&planned.load, &chosen, true);
    planned.plan.model = planned.load.model;
    if (status == DDP_OK)
        status = ddp_load_choose_model(&planned.load, &chosen);
    if (status == DDP_OK)
        status = check_converted(&planned);
    if (status == DDP_OK)
        status = read_model(&planned, &weights, &frozen);
    if (status == DDP_OK)
        status = ddp_planned_export(&planned, chosen.export_path, weights, frozen.values, NULL);
    if (status == DDP_OK && !options->quiet)
        fprintf(out, "exported %s\n", ddp_text_show(shown, options->export_path));
    ddp_frozen_host_free(&frozen);
    free(weights);
    ddp_planned_close(&planned);
    return status;
}
