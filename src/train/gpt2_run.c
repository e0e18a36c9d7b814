/* SPDX-License-Identifier: MIT
 *
 * A run's dealings with other programs' GPT-2: its shape from a config.json (--config), its weights
 * written for them at the end (--export). */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/text.h"
#include "core/trace.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "train/llama_run.h"
#include "train/outputs.h"
#include "weights/weights.h"

#include <inttypes.h>

/* Is there a --config of a GPT-2? That of a Llama has been read with --load. */
static bool has_config(const struct ddp_run *run)
{
    return run->options->config && run->load.model != &ddp_model_llama;
}

/* --config must describe the weights that are loaded, as far as they tell. */
static enum ddp_status check_config(const struct ddp_run *run)
{
    const struct ddp_gpt2_shape *shape = &run->hf_config.shape;
    const struct ddp_gpt2 *loaded = ddp_gpt2_in(&run->load.config);
    const struct {
        const char *name;
        int64_t config, loaded;
    } rows[] = {
        {"layers", shape->layers, loaded->layers},
        {"heads", shape->heads, run->load.config.described ? loaded->heads : shape->heads},
        {"channels", shape->channels, loaded->channels},
        {"positions", shape->context, loaded->context},
        {"tokens in its vocabulary", shape->vocabulary, run->load.config.classes},
    };
    if (!run->load.model)
        return DDP_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].config != rows[i].loaded)
            return ddp_fail(DDP_ERR_INVALID,
                            "--config %s contradicts --load %s, whose gpt2 has %" PRId64
                            " %s and not %" PRId64 ": leave --config out",
                            run->options->config, run->options->load, rows[i].loaded, rows[i].name,
                            rows[i].config);
    return DDP_OK;
}

enum ddp_status ddp_run_read_config(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const bool gpt2 = run->plan.model == &ddp_model_gpt2;
    enum ddp_export_format format = (enum ddp_export_format)options->export_format;
    const char *flag = options->config          ? "--config"
                       : options->export_path   ? "--export"
                       : options->export_format ? "--export-format"
                                                : NULL;
    static const char *const of_llama[] = {"merge", "export-dtype", "shard-size"};
    const bool fed = options->data || options->own_data || options->dataset || options->plan;
    if (options->export_path && options->load && !fed && !ddp_train_evaluates_only(options) &&
        run->plan.model->x_dtype == DDP_I32)
        return ddp_fail(DDP_ERR_INVALID,
                        "--export without --data converts a Hugging Face directory of a "
                        "Llama-family model, and --load %s is not one: give --data too, to train",
                        options->load);
    if (run->plan.model == &ddp_model_llama)
        return ddp_llama_check_export(run);
    for (size_t i = 0; i < sizeof of_llama / sizeof *of_llama; i++)
        if (ddp_train_given(options, of_llama[i]))
            return ddp_fail(DDP_ERR_INVALID, "--%s belongs to the model llama, and the model is %s",
                            of_llama[i], run->plan.model->name);
    if (flag && !gpt2)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s belongs to the models gpt2 and llama, and the model is %s", flag,
                        run->plan.model->name);
    enum ddp_status status = DDP_OK;
    if (options->export_path)
        status = ddp_train_export_format(&format, options->export_path);
    if (status == DDP_OK && options->config)
        status = ddp_hf_config_read(&run->hf_config, options->config);
    return status == DDP_OK && options->config ? check_config(run) : status;
}

int64_t ddp_run_model_classes(const struct ddp_run *run)
{
    if (has_config(run))
        return run->hf_config.shape.vocabulary;
    if (run->load.model)
        return run->load.config.classes;
    return run->plan.model == &ddp_model_llama ? ddp_llama_vocabulary(run->options->size) : 0;
}

int64_t ddp_run_sequence_length(const struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    int64_t context = 0;
    if (has_config(run))
        context = run->hf_config.shape.context;
    else if (run->load.model && run->load.model->context)
        context = run->load.model->context(&run->load.config);
    const bool shorter = context > 0 && context < options->seq_len;
    return shorter && !ddp_train_given(options, "seq-len") ? context : options->seq_len;
}

/* The command line overrides the file, and both the weights that are loaded. */
enum ddp_status ddp_run_apply_config(const struct ddp_run *run, struct ddp_model_config *config)
{
    const struct ddp_train_options *options = run->options;
    const struct ddp_dataset_info *info = ddp_dataset_info(run->data);
    const struct ddp_hf_config *file = &run->hf_config;
    const struct ddp_gpt2_shape *shape = &file->shape;
    if (has_config(run)) {
        struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&config->own);
        ddp_gpt2_fill(gpt2, &(struct ddp_gpt2){.layers = shape->layers,
                                               .heads = shape->heads,
                                               .channels = shape->channels,
                                               .context = shape->context,
                                               .norm_eps = file->norm_eps,
                                               .exact_gelu = file->exact_gelu});
        if (!ddp_train_given(options, "dropout"))
            gpt2->dropout = file->dropout;
    }
    return ddp_load_apply(&run->load, options, config, ddp_dataset_where(info));
}

static enum ddp_status write_gpt2(struct ddp_run *run, const char *path)
{
    const struct ddp_gpt2 *gpt2 = ddp_gpt2_in(&run->model_config);
    const struct ddp_hf_config config = {.shape = {.heads = gpt2->heads},
                                         .dropout = gpt2->dropout,
                                         .exact_gelu = gpt2->exact_gelu,
                                         .norm_eps = gpt2->norm_eps};
    return ddp_train_weights_export(path, (enum ddp_export_format)run->options->export_format,
                                    run->graph, &config, run->weights);
}

uint64_t ddp_run_export_bytes(const struct ddp_run *run)
{
    const bool halves = run->options->export_format == DDP_EXPORT_LLMC_BF16;
    if (run->plan.model == &ddp_model_llama)
        return ddp_llama_write_bytes(run);
    return (uint64_t)ddp_graph_element_count(run->graph) * (halves ? 2 : 4);
}

enum ddp_status ddp_run_export(struct ddp_run *run)
{
    const char *path = run->options->export_path;
    const bool llama = run->plan.model == &ddp_model_llama, writes = run->plan.rank == 0;
    if (!path)
        return DDP_OK;
    const int64_t begin = ddp_trace_begin();
    if (writes)
        ddp_job_report(run->job, "export", run->step > 0 ? run->step - 1 : 0);
    enum ddp_status status = ddp_run_fetch_weights(run, writes);
    if (status == DDP_OK && writes)
        status = ddp_run_write(run, path, llama ? ddp_llama_write : write_gpt2);
    ddp_trace_end("export", begin, NULL, 0);
    if (status == DDP_OK && writes && run->out)
        ddp_run_print_exported(run);
    return status;
}
