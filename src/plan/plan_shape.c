/* SPDX-License-Identifier: MIT
 *
 * A plan without data: samples of the shape that --shape names, or the model is usually trained on.
 */
#include "config.h"

#include "core/log.h"
#include "model/bert.h"
#include "plan/planned.h"

#include <string.h>
#include <unistd.h>

bool ddp_planned_lacks_data(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const bool shape = options->shape_count > 0;
    if (!options->plan || options->data || options->own_data ||
        planned->plan.model == &ddp_model_article)
        return false;
    const bool fashion = !options->dataset && !planned->load.model &&
                         strcmp(planned->plan.model->dataset, "idx") == 0 &&
                         access(DDP_DATASET_DEFAULT_DIR, R_OK) == 0;
    return shape || !fashion;
}

/* Whole batches only: how long the last ones are is not known. */
static enum ddp_status open_sets(struct ddp_planned *planned, struct ddp_dataset_info *info)
{
    info->sample_count = planned->plan.batch_size * planned->plan.global_shards;
    enum ddp_status status = ddp_dataset_open_shape(info, &planned->data);
    if (status == DDP_OK && planned->options->evaluate && info->label_count > 0)
        status = ddp_dataset_open_shape(info, &planned->test);
    return status;
}

enum ddp_status ddp_planned_open_shape(struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const struct ddp_model *model = planned->plan.model;
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
        return ddp_fail(DDP_ERR_INVALID, "--shape: the model %s has a --vocab-size, and no classes",
                        model->name);
    if (info.dim_count == 0 && !tokens && !planned->load.model)
        return ddp_fail(DDP_ERR_INVALID, "--plan: the model %s needs --data, or --shape",
                        model->name);
    memcpy(info.dims, options->shape_count ? options->shape : model->sample_dims, sizeof info.dims);
    if (planned->load.model && options->shape_count == 0) {
        info.dim_count = planned->load.config.dim_count;
        memcpy(info.dims, planned->load.config.dims, sizeof info.dims);
    }
    info.float_labels = model->numbers && planned->load.model && planned->load.config.classes == 0;
    if (info.float_labels)
        info.class_count = 0;
    else if (options->classes)
        info.class_count = options->classes;
    else if (ddp_planned_model_classes(planned))
        info.class_count = ddp_planned_model_classes(planned);
    if (model->sentence) {
        info.dims[1] =
            options->shape_count ? options->shape[0] : ddp_planned_sequence_length(planned);
        info.dims[0] = 3;
        info.dim_count = 2;
        info.vocabulary = 30522; /* of bert-base-uncased */
        if (planned->load.model)
            info.vocabulary = ddp_bert_in(&planned->load.config)->vocabulary;
    } else if (tokens) {
        info.dims[0] =
            options->shape_count ? options->shape[0] : ddp_planned_sequence_length(planned);
        info.dim_count = 1;
        info.label_count = info.dims[0];
        if (options->objective.kind) { /* a row of documents, with what is said of positions */
            info.dim_count = 2;
            info.dims[1] = info.dims[0];
            info.dims[0] = 2;
            info.label_count *= DDP_ROLE_PLANES;
        }
        const int64_t models =
            ddp_planned_model_classes(planned); /* of --config, --load or --size */
        if (options->vocab_size || models)
            info.class_count = options->vocab_size ? options->vocab_size : models;
    }
    return open_sets(planned, &info);
}
