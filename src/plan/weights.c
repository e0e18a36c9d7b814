/* SPDX-License-Identifier: MIT
 *
 * The weights that a run begins with, and what it exports; see weights.h. */
#include "config.h"

#include "plan/weights.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/text.h"
#include "data/data_names.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "weights/format.h"
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

/* --- parameters by name ----------------------------------------------------------------------- */

struct values {
    struct ddp_hf_values *all; /* those of the base, then those of adapters */
    size_t base, count;
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
            const struct ddp_parameter *parameter = place.parameter;
            if (ddp_peft_owns(parameter->name) != (adapters > 0))
                continue;
            values->all[values->count++] =
                (struct ddp_hf_values){.name = parameter->name,
                                       .dim_count = parameter->dim_count,
                                       .dims = {parameter->dims[0], parameter->dims[1]},
                                       .dtype = parameter->dtype,
                                       .memory = place.memory};
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
        status = ddp_hf_llama_load(load->directory, &load->hf, values.all, values.base);
    if (status == DDP_OK && load->saved)
        status = ddp_train_weights_load(load->saved, graph, 0, weights, frozen);
    else if (status == DDP_OK && load->adapters)
        status =
            ddp_peft_load(load->adapters, values.all + values.base, values.count - values.base);
    free(values.all);
    return status;
}

enum ddp_status ddp_load_weights(const struct ddp_load *load, const struct ddp_model *model,
                                 const struct ddp_model_config *config, const ddp_graph *graph,
                                 float *weights, void *frozen)
{
    const int64_t heads = model == &ddp_model_gpt2 ? ddp_gpt2_in(config)->heads : 0;
    return load->directory ? load_directory(load, graph, weights, frozen)
                           : ddp_train_weights_load(load->file, graph, heads, weights, frozen);
}

enum ddp_status ddp_planned_begin_weights(const struct ddp_planned *planned, float *weights,
                                          void *frozen)
{
    /* A file has all parameters, or the frozen ones, and adapters begin anew. */
    const bool drawn = !planned->load.file || ddp_graph_frozen_count(planned->graph) > 0;
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

static struct ddp_hf_export export_of(const struct ddp_planned *planned, const char *path)
{
    const struct ddp_train_options *options = planned->options;
    const bool bf16 = options->export_dtype == DDP_TRAIN_FILE_BF16 ||
                      (options->export_dtype == DDP_TRAIN_AS_LOADED && planned->load.hf.dtype &&
                       strcmp(planned->load.hf.dtype, "BF16") == 0);
    return (struct ddp_hf_export){
        .directory = path,
        .source = planned->load.directory,
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
    if (lora && !options->merge && (options->export_dtype || options->shard_bytes > 0))
        return ddp_fail(DDP_ERR_INVALID,
                        "--export: %s: adapters are exported in one file of float32: add merge to "
                        "export the whole model",
                        options->export_dtype ? "dtype" : "shard");
    if (!options->export_path || options->plan || planned->plan.rank != 0)
        return DDP_OK;
    if (options->export_format && options->export_format != &ddp_format_hf_gpt2)
        return ddp_fail(DDP_ERR_INVALID, "--export: format: a llama is exported in the form of "
                                         "Hugging Face alone");
    const struct ddp_hf_export to = export_of(planned, options->export_path);
    return lora && !options->merge ? ddp_peft_save_check(to.directory)
                                   : ddp_hf_llama_export_check(&to);
}

/* W + s (B A) of one matrix (out,in), in float32.
 *   row  room for `in` numbers */
static void merge_one(float *weight, const float *up, const float *down, int64_t out, int64_t in,
                      int64_t rank, float scale, float *row)
{
    for (int64_t o = 0; o < out; o++) {
        memset(row, 0, (size_t)in * sizeof *row);
        for (int64_t r = 0; r < rank; r++)
            for (int64_t i = 0; i < in; i++)
                row[i] += up[o * rank + r] * down[r * in + i];
        for (int64_t i = 0; i < in; i++)
            weight[o * in + i] += scale * row[i];
    }
}

/* Replaces a matrix with an adapter by the sum of both, in memory of its own. */
static enum ddp_status merge_adapter(const struct values *values, struct ddp_hf_values *base,
                                     const struct ddp_lora *lora, void **made)
{
    char down[128], up[128];
    const int stem = (int)(strlen(base->name) - strlen(".weight"));
    if (!ddp_text_ends_with(base->name, ".weight"))
        return DDP_OK;
    snprintf(down, sizeof down, "%.*s.lora_A.weight", stem, base->name);
    snprintf(up, sizeof up, "%.*s.lora_B.weight", stem, base->name);
    const struct ddp_hf_values *a = ddp_hf_values_find(values->all, values->count, down);
    const struct ddp_hf_values *b = ddp_hf_values_find(values->all, values->count, up);
    if (!a || !b)
        return DDP_OK;
    const int64_t out = base->dims[0], in = base->dims[1];
    float *sum = ddp_array_alloc((size_t)((out + 1) * in), sizeof *sum); /* and a row at work */
    if (!sum)
        return DDP_ERR_MEMORY;
    ddp_hf_values_convert(sum, base->memory, base->dtype == DDP_BF16 ? "BF16" : "F32",
                          (size_t)(out * in));
    merge_one(sum, b->memory, a->memory, out, in, lora->rank, (float)ddp_lora_scale(lora),
              sum + out * in);
    *made = base->memory = sum;
    base->dtype = DDP_F32;
    return DDP_OK;
}

static enum ddp_status export_model(const struct ddp_planned *planned, const char *path,
                                    struct values *values, const ddp_tokenizer *tokenizer)
{
    const struct ddp_hf_export to = export_of(planned, path);
    const struct ddp_llama *llama = ddp_llama_in(&planned->model_config);
    const struct ddp_hf_llama config = {
        .shape = *llama,
        .vocabulary = planned->model_config.classes,
        .init_std = planned->load.hf.init_std > 0 ? planned->load.hf.init_std : DDP_LLAMA_INIT_STD,
        .bos = tokenizer ? ddp_tokenizer_bos(tokenizer) : -1,
        .eos = tokenizer ? ddp_tokenizer_eos(tokenizer) : -1};
    void **made = ddp_array_alloc(values->base, sizeof *made);
    enum ddp_status status = made ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && llama->lora.rank > 0 && i < values->base; i++)
        status = merge_adapter(values, &values->all[i], &llama->lora, &made[i]);
    if (status == DDP_OK)
        status = ddp_hf_llama_export(&to, &config, values->all, values->base);
    for (size_t i = 0; made && i < values->base; i++)
        free(made[i]);
    free(made);
    return status;
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

static enum ddp_status export_directory(const struct ddp_planned *planned, const char *path,
                                        float *weights, void *frozen,
                                        const ddp_tokenizer *tokenizer)
{
    struct values values = {NULL, 0, 0};
    void *made = NULL;
    enum ddp_status status =
        writes_adapters(planned) ? DDP_OK : frozen_values(planned, &frozen, &made);
    if (status == DDP_OK)
        status = list_values(&values, planned->graph, weights, frozen);
    if (status == DDP_OK && writes_adapters(planned))
        status = ddp_peft_save(path, &ddp_llama_in(&planned->model_config)->lora,
                               planned->load.directory, values.all + values.base,
                               values.count - values.base);
    else if (status == DDP_OK)
        status = export_model(planned, path, &values, tokenizer);
    free(values.all);
    free(made);
    return status;
}

enum ddp_status ddp_planned_export(const struct ddp_planned *planned, const char *path,
                                   float *weights, void *frozen, const ddp_tokenizer *tokenizer)
{
    const struct ddp_train_options *options = planned->options;
    if (planned->plan.model == &ddp_model_llama)
        return export_directory(planned, path, weights, frozen, tokenizer);
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
    int64_t count = merged ? 0 : ddp_graph_element_count(graph);
    for (int i = 0; merged && i < ddp_graph_frozen_count(graph); i++)
        count += ddp_graph_frozen_at(graph, i)->count;
    return (uint64_t)count * (halves ? 2 : 4);
}

/* --- without training ------------------------------------------------------------------------- */

bool ddp_planned_converts(const struct ddp_train_options *options)
{
    return options->load && options->export_path && !options->data && !options->own_data &&
           !options->plan && !ddp_data_file_exists(options->load) &&
           (ddp_hf_llama_is(options->load) || ddp_peft_is(options->load));
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
    return *weights ? load_directory(&planned->load, planned->graph, *weights, frozen->values)
                    : DDP_ERR_MEMORY;
}

enum ddp_status ddp_planned_convert(const struct ddp_train_options *options, FILE *out)
{
    struct ddp_train_options chosen = *options;
    struct ddp_planned planned = {.options = &chosen};
    struct ddp_frozen_host frozen = {.values = NULL};
    float *weights = NULL;
    char shown[DDP_TEXT_SHOWN];
    planned.plan.model = &ddp_model_llama;
    enum ddp_status status = ddp_train_check_conversion(options);
    if (status == DDP_OK)
        status = ddp_load_open(&planned.load, &chosen, true);
    if (status == DDP_OK)
        status = ddp_load_choose_model(&planned.load, &chosen);
    if (status == DDP_OK)
        status = ddp_planned_check_llama(&planned);
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
