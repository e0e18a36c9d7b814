/* SPDX-License-Identifier: MIT
 *
 * See load.h. */
#include "config.h"

#include "plan/load.h"

#include "checkpoint/checkpoint.h"
#include "core/log.h"
#include "core/staged_directory.h"
#include "core/text.h"
#include "core/write.h"
#include "data/data_names.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "model/bert.h"
#include "model/llama.h"
#include "weights/gguf.h"
#include "weights/hf_bert.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- which file ------------------------------------------------------------------------------- */

/* The file of that name in a directory. *file stays NULL: there is none. */
static enum ddp_status find_in(char **file, const char *directory, const char *name)
{
    char *path = ddp_path_in(directory, name);
    if (!path)
        return DDP_ERR_MEMORY;
    if (access(path, F_OK) == 0)
        *file = path;
    else
        free(path);
    return DDP_OK;
}

static enum ddp_status find_in_directory(char **file, const char *directory, bool tell)
{
    enum ddp_status status = ddp_checkpoint_find_weights(file, directory, tell);
    if (status == DDP_OK && !*file)
        status = find_in(file, directory, "model.safetensors");
    if (status == DDP_OK && !*file)
        status = find_in(file, directory, "model.safetensors.index.json");
    if (status != DDP_OK || *file)
        return status;
    if (ddp_path_is_in(directory, "pytorch_model.bin"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: pytorch_model.bin cannot be read, because it may contain "
                        "programs: save the model again as model.safetensors, with "
                        "save_pretrained(..., safe_serialization=True)",
                        directory);
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: no weights in this directory: neither a checkpoint "
                    "(state.json), nor checkpoints (step-...), nor model.safetensors, nor "
                    "model.safetensors.index.json; a file from --save is given by its own "
                    "name",
                    directory);
}

/* The directory has adapters alone: their base takes its place.
 *   path  memory of malloc(), replaced */
static enum ddp_status find_base(struct ddp_load *load, char **path)
{
    struct ddp_peft peft;
    enum ddp_status status = ddp_peft_read(&peft, *path, 0, NULL);
    char *base = peft.base;
    if (status == DDP_OK &&
        (!base || !(ddp_hf_llama_is(base) || ddp_gguf_is(base) || ddp_hf_bert_is(base))))
        status = ddp_fail(DDP_ERR_INVALID,
                          "--load %s: these are adapters, and their base%s%s is not a directory "
                          "here, nor a GGUF file: name it, with --load BASE --adapters %s",
                          *path, base ? " " : "", base ? base : "", *path);
    if (status != DDP_OK) {
        free(base);
        return status;
    }
    load->adapters = *path;
    *path = base;
    return DDP_OK;
}

/* The model is the path, which becomes load's. */
static enum ddp_status take_model(struct ddp_load *load, char *path)
{
    load->file = path;
    load->gguf = ddp_gguf_is(path);
    load->directory = strdup(path);
    return load->directory ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

enum ddp_status ddp_load_find(struct ddp_load *load, const struct ddp_train_options *options,
                              bool tell)
{
    enum ddp_status status = DDP_OK;
    *load = (struct ddp_load){0};
    if (!options->load)
        return DDP_OK;
    const bool directory = ddp_data_directory_exists(options->load);
    char *path = directory ? ddp_path_bare(options->load) : strdup(options->load);
    if (!path)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (!directory && (!ddp_gguf_is(path) || ddp_gguf_is_gpt2(path))) {
        load->file = path;
        return DDP_OK;
    }
    if (directory)
        ddp_staged_directory_recover(path);
    if (ddp_peft_is(path) && options->adapters)
        status =
            ddp_fail(DDP_ERR_INVALID,
                     "--adapters %s: --load %s has adapters already: give the base with --load",
                     options->adapters, path);
    else if (ddp_peft_is(path))
        status = find_base(load, &path);
    else if (options->adapters && !(load->adapters = strdup(options->adapters)))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK && (ddp_gguf_is(path) || ddp_hf_llama_is(path)))
        return take_model(load, path);
    if (status == DDP_OK)
        status = find_in_directory(&load->file, path, tell);
    free(path);
    return status;
}

/* Can the model be built that a file describes? It may say anything. */
static enum ddp_status check_description(const struct ddp_load *load)
{
    struct ddp_model_config config = load->config;
    ddp_graph *graph = NULL;
    char unsaid[512];
    config.batch = 1;
    ddp_log_hold(unsaid, sizeof unsaid);
    enum ddp_status status = ddp_model_configure(load->model, &config);
    if (status == DDP_OK)
        status = ddp_model_build(&graph, load->model, &config);
    ddp_log_hold(NULL, 0);
    ddp_graph_destroy(graph);
    if (status == DDP_OK)
        return DDP_OK;
    return ddp_fail(status == DDP_ERR_INVALID ? DDP_ERR_FORMAT : status,
                    "%s: the %s that it describes cannot be built: %s", load->file,
                    load->model->name, unsaid);
}

/* What --adapters names: a directory of PEFT, a GGUF file, else weights of ours that are adapters
 * alone. */
static enum ddp_status read_adapters(struct ddp_load *load, bool tell)
{
    struct ddp_model_config config = {.classes = 0};
    const struct ddp_model *model = NULL;
    enum ddp_status status = DDP_OK;
    if (ddp_gguf_is(load->adapters))
        return ddp_gguf_read_adapters(&load->peft.lora, load->adapters, &load->hf.shape);
    if (ddp_data_file_exists(load->adapters) && !(load->saved = strdup(load->adapters)))
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (!load->saved && !ddp_peft_is(load->adapters))
        status = ddp_checkpoint_find_weights(&load->saved, load->adapters, tell);
    if (status == DDP_OK && !load->saved)
        return ddp_peft_read(&load->peft, load->adapters, load->hf.shape.layers, NULL);
    if (status == DDP_OK)
        status = ddp_train_weights_model(load->saved, &model, &config);
    if (status == DDP_OK && (!model || ddp_model_adapters(model, &config) == 0))
        status = ddp_fail(DDP_ERR_INVALID,
                          "--adapters: %s does not say that it holds adapters: name a PEFT "
                          "directory, or a checkpoint or file that a run with --lora wrote",
                          load->saved);
    if (status == DDP_OK)
        load->peft.lora = *model->lora(&config.own);
    return status;
}

/* An encoder's adapters, and the shape of the classifier that was trained with them. */
static enum ddp_status read_bert_adapters(struct ddp_load *load)
{
    static const struct ddp_peft_base of = {.linears = ddp_bert_linear_names,
                                            .linear_count = DDP_BERT_LINEARS,
                                            .layers = "encoder.layer.",
                                            .classifier = true};
    struct ddp_bert *bert = ddp_bert_of(&load->config.own);
    int64_t outputs = 0;
    if (!ddp_peft_is(load->adapters))
        return ddp_fail(DDP_ERR_INVALID,
                        "--adapters %s: adapters of an encoder are a directory of PEFT, with an "
                        "adapter_config.json",
                        load->adapters);
    enum ddp_status status = ddp_peft_read(&load->peft, load->adapters, bert->layers, &of);
    if (status == DDP_OK)
        status = ddp_peft_outputs(load->adapters, &outputs);
    bert->lora = load->peft.lora;
    if (outputs > 0)
        ddp_hf_bert_set_outputs(&load->config, outputs);
    return status;
}

/* Whether the device that will compute reads blocks. */
static bool reads_blocks(const struct ddp_train_options *options)
{
    struct ddp_device_kind kind;
    return !options->device || strcmp(options->device, "cpu") == 0 ||
           (strcmp(options->device, "auto") == 0 && ddp_device_find(&kind, "auto") == DDP_OK &&
            kind.kernels->reads_bf16_weights);
}

/* Blocks of a GGUF file or a directory stay as they are, where they can be read. */
static enum ddp_status keep_blocks(struct ddp_load *load, const struct ddp_train_options *options)
{
    const size_t count = (size_t)load->hf.shape.layers * DDP_LLAMA_LINEARS;
    const bool as_loaded = options->frozen_dtype == DDP_TRAIN_AS_LOADED && reads_blocks(options);
    if (!as_loaded && options->frozen_dtype != DDP_TRAIN_FROZEN_Q4_K)
        return DDP_OK;
    load->blocks = calloc(count, 1);
    if (!load->blocks)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    return load->gguf ? ddp_gguf_linear_types(load->directory, &load->hf, load->blocks)
           : load->hf.nf4 && load->directory
               ? ddp_hf_llama_linear_types(load->directory, &load->hf, load->blocks)
               : DDP_OK;
}

/* The model of a config.json with or without weights beside it.
 *   file  NULL: the directory's */
static enum ddp_status open_llama(struct ddp_load *load, const struct ddp_train_options *options,
                                  const char *file, bool tell)
{
    enum ddp_status status = load->gguf
                                 ? ddp_gguf_read(&load->hf, load->directory)
                                 : ddp_hf_llama_read(&load->hf, file ? file : load->directory);
    struct ddp_llama *llama = ddp_llama_of(&load->config.own);
    if (status == DDP_OK && load->adapters)
        status = read_adapters(load, tell);
    if (status != DDP_OK)
        return status;
    if (load->adapters || ddp_train_given(options, "lora"))
        status = keep_blocks(load, options);
    ddp_llama_describe(&load->hf.shape, load->hf.vocabulary, &load->model, &load->config);
    llama->lora = load->peft.lora;
    return status;
}

enum ddp_status ddp_load_open(struct ddp_load *load, const struct ddp_train_options *options,
                              bool tell)
{
    enum ddp_status status = ddp_load_find(load, options, tell);
    if (status == DDP_OK && load->directory && !options->custom)
        status = open_llama(load, options, NULL, tell);
    else if (status == DDP_OK && options->config && !load->file && ddp_hf_llama_is(options->config))
        status = open_llama(load, options, options->config, tell);
    else if (status == DDP_OK && load->file && !options->custom)
        status = ddp_train_weights_model(load->file, &load->model, &load->config);
    const bool encoder = load->adapters && load->model == &ddp_model_bert;
    if (status == DDP_OK && options->adapters && !load->directory && !encoder)
        return ddp_fail(DDP_ERR_INVALID,
                        "--adapters %s: name the model that they belong to, a Hugging Face "
                        "directory or a GGUF file, with --load",
                        options->adapters);
    if (status == DDP_OK && encoder)
        status = read_bert_adapters(load);
    if (status == DDP_OK && tell && load->adapters && !load->saved)
        ddp_peft_check_base(load->adapters, load->directory ? load->directory : load->file);
    if (status == DDP_OK && load->file && !load->directory)
        status = ddp_train_weights_data(load->file, &load->data);
    if (status == DDP_OK && load->file && !load->directory && load->model && !encoder &&
        ddp_model_adapters(load->model, &load->config) > 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: adapters without their base: name it, with --load BASE --adapters %s",
                        load->file, load->file);
    if (status == DDP_OK && load->model && load->config.described)
        status = check_description(load);
    return status;
}

void ddp_load_close(struct ddp_load *load)
{
    free(load->data);
    free(load->file);
    free(load->directory);
    free(load->adapters);
    free(load->saved);
    free(load->blocks);
    ddp_peft_free(&load->peft);
    *load = (struct ddp_load){0};
}

/* --- what contradicts it ---------------------------------------------------------------------- */

static void print_field(const struct ddp_model_field *field, const void *own, char text[256])
{
    const int64_t *numbers = (const void *)((const char *)own + field->offset);
    const int count = field->kind != DDP_FIELD_LIST
                          ? 1
                          : *(const int *)(const void *)((const char *)own + field->count_offset);
    size_t used = (size_t)snprintf(text, 256, "%s", count ? "" : "none");
    for (int i = 0; i < count && used < 256; i++)
        used += (size_t)snprintf(text + used, 256 - used, "%s%" PRId64, i ? "," : "", numbers[i]);
}

/* Options of the model, such as --layers, that were given. */
static enum ddp_status check_fields(const struct ddp_load *load,
                                    const struct ddp_train_options *options)
{
    const union ddp_model_own *given = ddp_train_model_own(options);
    char wanted[256], has[256];
    for (const struct ddp_option *row = load->model->options; row && row->name; row++) {
        const struct ddp_model_field *field = load->model->fields;
        while (field->name && strcmp(field->name, row->name) != 0)
            field++;
        const bool guess = !load->config.described && strcmp(row->name, "heads") == 0;
        if (!field->name || guess || !ddp_train_given(options, row->name))
            continue;
        print_field(field, given, wanted);
        print_field(field, &load->config.own, has);
        if (strcmp(wanted, has) != 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s %s contradicts --load %s, whose %s has %s %s: leave --%s out",
                            row->name, wanted, options->load, load->model->name, row->name, has,
                            row->name);
    }
    return DDP_OK;
}

static bool is_option(const struct ddp_model *model, const char *name)
{
    const struct ddp_option *row = model->options;
    while (row && row->name && strcmp(row->name, name) != 0)
        row++;
    return row && row->name;
}

/* Does --size name the model that is there? */
static enum ddp_status check_size(const struct ddp_load *load,
                                  const struct ddp_train_options *options)
{
    struct ddp_model_config named = load->config;
    char wanted[256], has[256];
    memset(&named.own, 0, sizeof named.own);
    named.described = false;
    named.size = options->size;
    if (load->model->leave_open)
        load->model->leave_open(&named, &load->config, false);
    enum ddp_status status = ddp_model_configure(load->model, &named);
    if (load->model->leave_open)
        load->model->leave_open(&named, &load->config, true);
    for (const struct ddp_model_field *field = load->model->fields;
         status == DDP_OK && field && field->name; field++) {
        const bool guess = !load->config.described && strcmp(field->name, "heads") == 0;
        const bool own = is_option(load->model, field->name);
        if (field->kind != DDP_FIELD_INT || guess || (own && ddp_train_given(options, field->name)))
            continue;
        print_field(field, &named.own, wanted);
        print_field(field, &load->config.own, has);
        if (strcmp(wanted, has) != 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "--size %s, with %s %s, contradicts --load %s, whose %s has %s: leave "
                            "--size out",
                            options->size, field->name, wanted, options->load, load->model->name,
                            has);
    }
    return status;
}

static enum ddp_model_data kind_of_data(const struct ddp_train_options *options)
{
    return ddp_dataset_holds_tokens(options->dataset, options->data)   ? DDP_ON_TOKENS
           : ddp_dataset_holds_table(options->dataset, options->data)  ? DDP_ON_TABLE
           : ddp_dataset_holds_images(options->dataset, options->data) ? DDP_ON_IMAGES
                                                                       : DDP_ON_NUMBERS;
}

enum ddp_status ddp_load_choose_model(const struct ddp_load *load,
                                      struct ddp_train_options *options)
{
    const int64_t classes = load->config.classes;
    const enum ddp_model_data data = kind_of_data(options);
    options->adapted = load->adapters != NULL;
    if (options->custom)
        return DDP_OK;
    if (load->adapters && ddp_train_given(options, "lora"))
        return ddp_fail(DDP_ERR_INVALID,
                        "--lora contradicts the adapters %s, which are of a shape of their own: "
                        "leave --lora out",
                        load->adapters);
    if (ddp_train_given(options, "lora") && load->model && load->model->lora && load->file &&
        !load->directory && !load->model->sentence)
        return ddp_fail(
            DDP_ERR_INVALID,
            "--lora: %s is a file of weights, and adapters need a Hugging Face "
            "directory or a GGUF file: write one with --export DIR at the end of its training",
            load->file);
    if (ddp_train_given(options, "frozen-dtype") && !load->adapters &&
        !ddp_train_given(options, "lora"))
        return ddp_fail(DDP_ERR_INVALID, "--frozen-dtype: nothing is frozen: it goes with --lora "
                                         "or --adapters");
    if (options->frozen_dtype == DDP_TRAIN_FROZEN_Q4_K &&
        !(load->blocks &&
          memchr(load->blocks, DDP_Q4_K, (size_t)load->hf.shape.layers * DDP_LLAMA_LINEARS)))
        return ddp_fail(DDP_ERR_INVALID,
                        "--frozen-dtype q4_k: blocks of q4_k are read, not made: load a GGUF file "
                        "that llama-quantize has made with Q4_K_M, or choose nf4 or q4_0");
    if (!ddp_train_given(options, "model"))
        options->model =
            load->model ? load->model : ddp_model_default(options->config ? DDP_ON_TOKENS : data);
    options->model = ddp_model_on(options->model, data);
    if (options->model->epochs && !ddp_train_given(options, "epochs"))
        options->epochs = options->model->epochs;
    if (!load->model)
        return DDP_OK;
    if (!ddp_model_same(options->model, load->model))
        return ddp_fail(DDP_ERR_INVALID,
                        "--model %s contradicts --load %s, which holds the model %s: leave --model "
                        "out, or load other weights",
                        options->model->name, options->load, load->model->name);
    if (load->model->context && options->vocab_size && options->vocab_size != classes)
        return ddp_fail(DDP_ERR_INVALID,
                        "--vocab-size %" PRId64 " contradicts --load %s, whose vocabulary is of "
                        "%" PRId64 " tokens: leave --vocab-size out",
                        options->vocab_size, options->load, classes);
    enum ddp_status status = check_fields(load, options);
    return status == DDP_OK && options->size ? check_size(load, options) : status;
}

/* --- what follows from it --------------------------------------------------------------------- */

/* "3 x 32 x 32, in 10 classes" */
static void print_samples(const struct ddp_model_config *config, char text[160])
{
    size_t used = 0;
    for (int i = 0; i < config->dim_count && used < 160; i++)
        used += (size_t)snprintf(text + used, 160 - used, "%s%" PRId64, i ? " x " : "",
                                 config->dims[i]);
    if (config->classes && used < 160)
        snprintf(text + used, 160 - used, ", in %" PRId64 " classes", config->classes);
}

/* Has the model the same parameters for both samples? */
static enum ddp_status compare(const struct ddp_model *model, struct ddp_model_config one,
                               struct ddp_model_config other, bool *same)
{
    ddp_graph *graphs[2] = {NULL, NULL};
    one.batch = other.batch = 1;
    enum ddp_status status = ddp_model_build(&graphs[0], model, &one);
    if (status == DDP_OK)
        status = ddp_model_build(&graphs[1], model, &other);
    if (status == DDP_OK) {
        const int count = ddp_graph_parameter_count(graphs[0]);
        *same = count == ddp_graph_parameter_count(graphs[1]);
        for (int i = 0; *same && i < count; i++) {
            const struct ddp_parameter *a = ddp_graph_parameter_at(graphs[0], i);
            const struct ddp_parameter *b = ddp_graph_parameter_at(graphs[1], i);
            *same = a->dim_count == b->dim_count &&
                    memcmp(a->dims, b->dims, (size_t)a->dim_count * sizeof a->dims[0]) == 0;
        }
    }
    ddp_graph_destroy(graphs[0]);
    ddp_graph_destroy(graphs[1]);
    return status;
}

/* What is frozen: the matrices of linear layers may be quantised, the others keep the type of the
 * file, or are bf16 without one beside those. NF4 has values of the file's type, as bitsandbytes
 * has them. */
static void freeze(struct ddp_lora *lora, const struct ddp_load *load, int dtype)
{
    const char *loaded = load->hf.dtype;
    const bool bf16 = loaded && strcmp(loaded, "BF16") == 0,
               quantised = dtype > DDP_TRAIN_FILE_BF16;
    lora->frozen_bf16 = dtype == DDP_TRAIN_FILE_BF16 || (dtype != DDP_TRAIN_FILE_FP32 && bf16) ||
                        (quantised && !loaded);
    lora->blocks = dtype == DDP_TRAIN_FROZEN_NF4    ? (lora->frozen_bf16 ? DDP_NF4_BF16 : DDP_NF4)
                   : dtype == DDP_TRAIN_FROZEN_Q8_0 ? DDP_Q8_0
                   : dtype == DDP_TRAIN_FROZEN_Q4_0 ? DDP_Q4_0
                                                    : 0;
    lora->each = load->blocks;
}

enum ddp_status ddp_load_apply(const struct ddp_load *load, const struct ddp_train_options *options,
                               struct ddp_model_config *config, const char *where)
{
    char wanted[160], has[160];
    bool same = true;
    const struct ddp_model *model = load->model ? load->model : options->model;
    config->described = load->model && !options->size;
    const bool taken =
        load->model && ddp_model_take(model, config, &load->config,
                                      options->config || ddp_train_given(options, "dropout"),
                                      ddp_train_given(options, "lora"));
    if (model->lora && (!load->model || load->hf.vocabulary > 0))
        freeze(model->lora(&config->own), load, options->frozen_dtype);
    if (!load->model || taken)
        return DDP_OK;
    config->own = load->config.own;
    struct ddp_model_config filled = *config, loaded = load->config;
    enum ddp_status status = ddp_model_configure(model, &filled);
    if (loaded.open_head && !ddp_train_evaluates_only(options))
        loaded.classes = filled.classes;
    if (status == DDP_OK)
        status = compare(model, loaded, filled, &same);
    if (status != DDP_OK || same)
        return status;
    print_samples(config, has);
    print_samples(&load->config, wanted);
    return ddp_fail(DDP_ERR_INVALID,
                    "%s has samples of %s, and the %s that --load %s holds is for samples of %s",
                    where, has, load->model->name, options->load, wanted);
}

void ddp_load_print(const struct ddp_load *load, const struct ddp_train_options *options,
                    int64_t classes, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    if (load->file && strcmp(load->file, options->load) != 0)
        fprintf(out, "weights  from %s\n", ddp_text_show(shown, load->file));
    if (load->config.open_head && !ddp_train_evaluates_only(options) &&
        classes != load->config.classes)
        fprintf(out, "weights  with a new head, of %" PRId64 " classes\n", classes);
}
