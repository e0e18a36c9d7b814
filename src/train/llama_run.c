/* SPDX-License-Identifier: MIT
 *
 * See llama_run.h. */
#include "config.h"

#include "train/llama_run.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/text.h"
#include "core/trace.h"
#include "data/data_names.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "train/outputs.h"
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

enum ddp_status ddp_run_load_weights(const struct ddp_load *load, const struct ddp_model *model,
                                     const struct ddp_model_config *config, const ddp_graph *graph,
                                     float *weights, void *frozen)
{
    const int64_t heads = model == &ddp_model_gpt2 ? ddp_gpt2_in(config)->heads : 0;
    return load->directory ? load_directory(load, graph, weights, frozen)
                           : ddp_train_weights_load(load->file, graph, heads, weights, frozen);
}

enum ddp_status ddp_run_begin_weights(const struct ddp_run *run, float *weights, void *frozen)
{
    /* A file has all parameters, but for adapters that begin anew and a base beside them. */
    const bool drawn = !run->load.file || ddp_graph_frozen_count(run->graph) > 0;
    struct ddp_rng rng;
    ddp_rng_seed(&rng, run->options->seed);
    enum ddp_status status =
        drawn ? ddp_graph_init_parameters(run->graph, &rng, weights, frozen) : DDP_OK;
    if (status != DDP_OK || !run->load.file)
        return status;
    return ddp_run_load_weights(&run->load, run->plan.model, &run->model_config, run->graph,
                                weights, frozen);
}

/* --- export ----------------------------------------------------------------------------------- */

static bool writes_adapters(const struct ddp_run *run)
{
    return ddp_llama_in(&run->model_config)->lora.rank > 0 && !run->options->merge;
}

static struct ddp_hf_export export_of(const struct ddp_run *run, const char *path)
{
    const struct ddp_train_options *options = run->options;
    const bool bf16 = options->export_dtype == DDP_TRAIN_FILE_BF16 ||
                      (options->export_dtype == DDP_TRAIN_AS_LOADED && run->load.hf.dtype &&
                       strcmp(run->load.hf.dtype, "BF16") == 0);
    return (struct ddp_hf_export){
        .directory = path,
        .source = run->load.directory,
        .dtype = bf16 ? DDP_BF16 : DDP_F32,
        .shard_bytes = (uint64_t)options->shard_bytes,
    };
}

enum ddp_status ddp_llama_check_export(const struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    static const char *const of_export[] = {"merge", "export-dtype", "shard-size"};
    const bool lora =
        ddp_llama_in(&run->load.config)->lora.rank > 0 || ddp_train_given(options, "lora");
    for (size_t i = 0; i < sizeof of_export / sizeof *of_export; i++)
        if (!options->export_path && ddp_train_given(options, of_export[i]))
            return ddp_fail(DDP_ERR_INVALID, "--%s belongs to --export DIR: give it too",
                            of_export[i]);
    if (options->merge && !lora)
        return ddp_fail(DDP_ERR_INVALID,
                        "--merge: there are no adapters: it goes with --lora or --adapters");
    if (lora && !options->merge)
        for (size_t i = 1; i < sizeof of_export / sizeof *of_export; i++)
            if (ddp_train_given(options, of_export[i]))
                return ddp_fail(DDP_ERR_INVALID,
                                "--%s: adapters are exported in one file of float32: give --merge "
                                "to export the whole model",
                                of_export[i]);
    if (!options->export_path || options->plan || run->plan.rank != 0)
        return DDP_OK;
    if (options->export_format > DDP_EXPORT_HF)
        return ddp_fail(DDP_ERR_INVALID, "--export-format: a llama can only be exported in "
                                         "Hugging Face's format");
    const struct ddp_hf_export to = export_of(run, options->export_path);
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

static enum ddp_status export_model(const struct ddp_run *run, const char *path,
                                    struct values *values)
{
    const struct ddp_hf_export to = export_of(run, path);
    const struct ddp_llama *llama = ddp_llama_in(&run->model_config);
    const struct ddp_hf_llama config = {
        .shape = *llama,
        .vocabulary = run->model_config.classes,
        .init_std = run->load.hf.init_std > 0 ? run->load.hf.init_std : DDP_LLAMA_INIT_STD,
        .bos = run->tokenizer ? ddp_tokenizer_bos(run->tokenizer) : -1,
        .eos = run->tokenizer ? ddp_tokenizer_eos(run->tokenizer) : -1};
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
static enum ddp_status frozen_values(const struct ddp_run *run, void **values, void **made)
{
    const size_t bytes = ddp_graph_frozen_bytes(run->graph);
    *made = NULL;
    *values = run->frozen.values;
    if (*values || bytes == 0)
        return DDP_OK;
    *values = *made = ddp_array_alloc(bytes, 1);
    float *learned = ddp_array_alloc((size_t)ddp_graph_flat_count(run->graph), sizeof *learned);
    enum ddp_status status =
        *made && learned ? ddp_run_begin_weights(run, learned, *made) : DDP_ERR_MEMORY;
    free(learned);
    return status;
}

enum ddp_status ddp_llama_write(struct ddp_run *run, const char *path)
{
    struct values values = {NULL, 0, 0};
    void *frozen = NULL, *made = NULL;
    enum ddp_status status = writes_adapters(run) ? DDP_OK : frozen_values(run, &frozen, &made);
    if (status == DDP_OK)
        status = list_values(&values, run->graph, run->weights, frozen);
    if (status == DDP_OK && writes_adapters(run))
        status = ddp_peft_save(path, &ddp_llama_in(&run->model_config)->lora, run->load.directory,
                               values.all + values.base, values.count - values.base);
    else if (status == DDP_OK)
        status = export_model(run, path, &values);
    free(values.all);
    free(made);
    return status;
}

uint64_t ddp_llama_write_bytes(const struct ddp_run *run)
{
    const bool lora = ddp_llama_in(&run->model_config)->lora.rank > 0;
    const bool halves = export_of(run, NULL).dtype == DDP_BF16 && !writes_adapters(run);
    int64_t count = lora && !writes_adapters(run) ? 0 : ddp_graph_element_count(run->graph);
    for (int i = 0; lora && !writes_adapters(run) && i < ddp_graph_frozen_count(run->graph); i++)
        count += ddp_graph_frozen_at(run->graph, i)->count;
    return (uint64_t)count * (halves ? 2 : 4);
}

/* --- without training ------------------------------------------------------------------------- */

bool ddp_llama_converts(const struct ddp_train_options *options)
{
    return options->load && options->export_path && !options->data && !options->own_data &&
           !options->plan && !ddp_data_file_exists(options->load) &&
           (ddp_hf_llama_is(options->load) || ddp_peft_is(options->load));
}

static enum ddp_status read_model(struct ddp_run *run)
{
    struct ddp_model_config *config = &run->model_config;
    *config = run->load.config;
    config->batch = 1;
    enum ddp_status status = ddp_load_apply(&run->load, run->options, config, "");
    if (status == DDP_OK)
        status = ddp_model_configure(run->plan.model, config);
    if (status == DDP_OK)
        status = ddp_model_build(&run->graph, run->plan.model, config);
    if (status == DDP_OK)
        status = ddp_frozen_host_alloc(&run->frozen, run->graph, NULL, false, DDP_F32);
    if (status != DDP_OK)
        return status;
    run->weights = ddp_array_alloc((size_t)ddp_graph_flat_count(run->graph), sizeof(float));
    return run->weights ? load_directory(&run->load, run->graph, run->weights, run->frozen.values)
                        : DDP_ERR_MEMORY;
}

enum ddp_status ddp_llama_convert(const struct ddp_train_options *options, FILE *out)
{
    struct ddp_train_options chosen = *options;
    struct ddp_run run = {.options = &chosen, .out = options->quiet ? NULL : out};
    run.plan.model = &ddp_model_llama;
    enum ddp_status status = ddp_train_check_conversion(options);
    if (status == DDP_OK)
        status = ddp_load_open(&run.load, &chosen, true);
    if (status == DDP_OK)
        status = ddp_load_choose_model(&run.load, &chosen);
    if (status == DDP_OK)
        status = ddp_llama_check_export(&run);
    if (status == DDP_OK)
        status = read_model(&run);
    if (status == DDP_OK)
        status = ddp_llama_write(&run, chosen.export_path);
    if (status == DDP_OK && run.out)
        ddp_run_print_exported(&run);
    ddp_frozen_host_free(&run.frozen);
    free(run.weights);
    ddp_graph_destroy(run.graph);
    ddp_load_close(&run.load);
    return status;
}
