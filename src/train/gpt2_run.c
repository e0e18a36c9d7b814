/* SPDX-License-Identifier: MIT
 *
 * A run's dealings with other programs' GPT-2: its shape from a config.json (--config), its weights
 * written for them at the end (--export). */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/text.h"
#include "core/trace.h"
#include "job/job.h"
#include "model/gpt2.h"
#include "weights/weights.h"

enum ddp_status ddp_run_read_config(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const bool gpt2 = run->plan.model == &ddp_model_gpt2;
    enum ddp_export_format format = (enum ddp_export_format)options->export_format;
    const char *flag = options->config          ? "--config"
                       : options->export_path   ? "--export"
                       : options->export_format ? "--export-format"
                                                : NULL;
    if (flag && !gpt2)
        return ddp_fail(DDP_ERR_INVALID, "%s belongs to the model gpt2, and the model is %s", flag,
                        run->plan.model->name);
    enum ddp_status status = DDP_OK;
    if (options->export_path)
        status = ddp_train_export_format(&format, options->export_path);
    if (status == DDP_OK && options->export_path && !options->plan && run->plan.rank == 0)
        status = ddp_train_weights_check_path(options->export_path);
    if (status == DDP_OK && options->config)
        status = ddp_hf_config_read(&run->hf_config, options->config);
    return status;
}

/* The command line overrides the file. Without --size and --config, weights that are loaded say how
 * large the model is. */
enum ddp_status ddp_run_apply_config(const struct ddp_run *run, struct ddp_model_config *config)
{
    const struct ddp_train_options *options = run->options;
    const struct ddp_hf_config *file = &run->hf_config;
    const struct ddp_gpt2_shape *shape = &file->shape;
    const struct ddp_model *model;
    struct ddp_model_config loaded;
    if (run->plan.model != &ddp_model_gpt2)
        return DDP_OK;
    struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&config->own);
    if (options->config) {
        ddp_gpt2_fill(gpt2, &(struct ddp_gpt2){.layers = shape->layers,
                                               .heads = shape->heads,
                                               .channels = shape->channels,
                                               .context = shape->context,
                                               .norm_eps = file->norm_eps,
                                               .exact_gelu = file->exact_gelu});
        if (!ddp_train_given(options, "dropout"))
            gpt2->dropout = file->dropout;
        return DDP_OK;
    }
    if (!options->load || options->size)
        return DDP_OK;
    enum ddp_status status = ddp_train_weights_model(options->load, &model, &loaded);
    if (status == DDP_OK && model == &ddp_model_gpt2)
        ddp_gpt2_fill(gpt2, ddp_gpt2_in(&loaded));
    return status;
}

enum ddp_status ddp_run_export(struct ddp_run *run)
{
    const char *path = run->options->export_path;
    const struct ddp_gpt2 *gpt2 = ddp_gpt2_in(&run->model_config);
    const struct ddp_hf_config config = {
        .shape = {.heads = gpt2->heads},
        .dropout = gpt2->dropout,
        .exact_gelu = gpt2->exact_gelu,
        .norm_eps = gpt2->norm_eps,
    };
    char shown[DDP_TEXT_SHOWN];
    if (!path || run->plan.rank != 0)
        return DDP_OK;
    const int64_t begin = ddp_trace_begin();
    ddp_job_report(run->job, "export", run->plan.total_steps);
    enum ddp_status status = ddp_run_fetch_weights(run);
    if (status == DDP_OK)
        status = ddp_train_weights_export(path, (enum ddp_export_format)run->options->export_format,
                                          run->graph, &config, run->weights);
    ddp_trace_end("export", begin, NULL, 0);
    if (status == DDP_OK && run->out)
        fprintf(run->out, "exported %s\n", ddp_text_show(shown, path));
    return status;
}
