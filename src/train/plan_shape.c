/* SPDX-License-Identifier: MIT
 *
 * A plan without data: samples of the shape that --shape names, or the model is usually trained on.
 */
#include "config.h"

#include "core/log.h"
#include "train/plan_memory.h"
#include "train/run.h"

#include <string.h>
#include <unistd.h>

bool ddp_run_lacks_data(const struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const bool shape = options->shape_count > 0 || options->classes > 0;
    if (!options->plan || options->data || options->own_data ||
        run->plan.model == &ddp_model_article)
        return false;
    const bool fashion = !options->dataset && !run->load.model &&
                         strcmp(run->plan.model->dataset, "idx") == 0 &&
                         access(DDP_DATASET_DEFAULT_DIR, R_OK) == 0;
    return shape || !fashion;
}

/* Whole batches only: how long the last ones are is not known. */
static enum ddp_status open_sets(struct ddp_run *run, struct ddp_dataset_info *info)
{
    info->sample_count = run->plan.batch_size * run->plan.global_shards;
    enum ddp_status status = ddp_dataset_open_shape(info, &run->data);
    if (status == DDP_OK && run->options->evaluate && info->label_count > 0)
        status = ddp_dataset_open_shape(info, &run->test);
    return status;
}

enum ddp_status ddp_run_open_shape(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->options;
    const struct ddp_model *model = run->plan.model;
    const bool tokens = model->x_dtype == DDP_I32;
    struct ddp_dataset_info info = {
        .x_dtype = model->x_dtype,
        .label_count = model->labels || options->custom,
        .class_count = model->sample_classes ? model->sample_classes : 10,
        .dim_count = options->shape_count ? options->shape_count : model->sample_dim_count,
    };
    if (tokens && options->shape_count > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "--shape: the model %s learns from tokens: give one number, the "
                        "tokens of a sample",
                        model->name);
    if (tokens && options->classes)
        return ddp_fail(DDP_ERR_INVALID, "--classes: the model %s has a --vocab-size", model->name);
    if (info.dim_count == 0 && !tokens && !run->load.model)
        return ddp_fail(DDP_ERR_INVALID, "--plan: the model %s needs --data, or --shape",
                        model->name);
    memcpy(info.dims, options->shape_count ? options->shape : model->sample_dims, sizeof info.dims);
    if (run->load.model && options->shape_count == 0) {
        info.dim_count = run->load.config.dim_count;
        memcpy(info.dims, run->load.config.dims, sizeof info.dims);
    }
    if (options->classes)
        info.class_count = options->classes;
    else if (ddp_run_model_classes(run))
        info.class_count = ddp_run_model_classes(run);
    if (tokens) {
        info.dims[0] = options->shape_count ? options->shape[0] : ddp_run_sequence_length(run);
        info.dim_count = 1;
        info.label_count = info.dims[0];
        const int64_t models = ddp_run_model_classes(run); /* of --config, --load or --size */
        if (options->vocab_size || models)
            info.class_count = options->vocab_size ? options->vocab_size : models;
    }
    return open_sets(run, &info);
}
