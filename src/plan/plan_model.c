/* SPDX-License-Identifier: MIT
 *
 * The model that a run trains: its shape from a config.json (--config), from weights and the data,
 * and its graphs. */
#include "config.h"

#include "plan/planned.h"

#include "core/log.h"
#include "data/describe.h"
#include "graph/exec.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "plan/weights.h"
#include "weights/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Is there a --config of a GPT-2? That of a Llama has been read with --load. */
static bool has_config(const struct ddp_planned *planned)
{
    return planned->options->config && planned->load.model != &ddp_model_llama;
}

/* --config must describe the weights that are loaded, as far as they tell. */
static enum ddp_status check_config(const struct ddp_planned *planned)
{
    const struct ddp_gpt2_shape *shape = &planned->hf_config.shape;
    const struct ddp_gpt2 *loaded = ddp_gpt2_in(&planned->load.config);
    const struct {
        const char *name;
        int64_t config, loaded;
    } rows[] = {
        {"layers", shape->layers, loaded->layers},
        {"heads", shape->heads, planned->load.config.described ? loaded->heads : shape->heads},
        {"channels", shape->channels, loaded->channels},
        {"positions", shape->context, loaded->context},
        {"tokens in its vocabulary", shape->vocabulary, planned->load.config.classes},
    };
    if (!planned->load.model)
        return DDP_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].config != rows[i].loaded)
            return ddp_fail(DDP_ERR_INVALID,
                            "--config %s contradicts --load %s, whose gpt2 has %" PRId64
                            " %s and not %" PRId64 ": leave --config out",
                            planned->options->config, planned->options->load, rows[i].loaded,
                            rows[i].name, rows[i].config);
    return DDP_OK;
}

enum ddp_status ddp_planned_read_config(struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const struct ddp_weight_format *format = options->export_format;
    const bool fed = options->data || options->own_data || options->dataset || options->plan;
    if (options->export_path && options->load && !fed && !ddp_train_evaluates_only(options) &&
        planned->plan.model->x_dtype == DDP_I32)
        return ddp_fail(
            DDP_ERR_INVALID,
            "--export without --data converts a Hugging Face directory or GGUF file "
            "of a Llama-family model, or a gpt2 to or from GGUF, and --load %s is neither: give "
            "--data too, to train",
            options->load);
    if (planned->plan.model == &ddp_model_llama)
        return ddp_planned_check_llama(planned);
    if (planned->plan.model == &ddp_model_bert)
        return ddp_planned_check_bert(planned);
    if ((options->config || options->export_path) && planned->plan.model != &ddp_model_gpt2)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s belongs to the models gpt2 and llama, and the model is %s",
                        options->config ? "--config" : "--export", planned->plan.model->name);
    enum ddp_status status = DDP_OK;
    if (options->config)
        status = ddp_hf_config_parse(&planned->hf_config, options->config, NULL, 0);
    if (status == DDP_OK)
        status = ddp_planned_check_gpt2(planned);
    if (status == DDP_OK && options->export_path)
        status = ddp_weight_format_choose(&format, options->export_path);
    return status == DDP_OK && options->config ? check_config(planned) : status;
}

int64_t ddp_planned_model_classes(const struct ddp_planned *planned)
{
    if (has_config(planned))
        return planned->hf_config.shape.vocabulary;
    if (planned->load.model)
        return planned->load.config.classes;
    return planned->plan.model->vocabulary ? planned->plan.model->vocabulary(planned->options->size)
                                           : 0;
}

int64_t ddp_planned_sequence_length(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    int64_t context = 0;
    if (has_config(planned))
        context = planned->hf_config.shape.context;
    else if (planned->load.model && planned->load.model->context)
        context = planned->load.model->context(&planned->load.config);
    else if (planned->load.model && planned->load.model->sentence)
        context = planned->load.model->sentence(&planned->load.config);
    if (ddp_planned_embeds(planned) && !ddp_train_given(options, "seq-len"))
        return context;
    const bool shorter = context > 0 && context < options->seq_len;
    return shorter && !ddp_train_given(options, "seq-len") ? context : options->seq_len;
}

/* The command line overrides the file, and both the weights that are loaded. */
static enum ddp_status apply_config(const struct ddp_planned *planned,
                                    struct ddp_model_config *config)
{
    const struct ddp_train_options *options = planned->options;
    const struct ddp_dataset_info *info = ddp_dataset_info(planned->data);
    const struct ddp_hf_config *file = &planned->hf_config;
    const struct ddp_gpt2_shape *shape = &file->shape;
    if (has_config(planned)) {
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
    return ddp_load_apply(&planned->load, options, config, ddp_dataset_where(info));
}

/* For the weights that are saved; the same as in those that were loaded. */
static enum ddp_status describe_data(const struct ddp_planned *planned)
{
    char *text = NULL;
    enum ddp_status status = ddp_dataset_describe(ddp_dataset_info(planned->data), &text);
    if (status == DDP_OK)
        status = ddp_graph_set_data(planned->graph, text);
    free(text);
    return status;
}

enum ddp_status ddp_planned_build(struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const struct ddp_dataset_info *info = ddp_dataset_info(planned->data);
    struct ddp_model_config *config = &planned->model_config;
    *config = (struct ddp_model_config){
        .batch = planned->plan.batch_size,
        .features = (int64_t)info->sample_values,
        .classes = info->class_count,
        .dim_count = info->dim_count,
        .x_dtype = info->x_dtype,
        .label_count = info->label_count,
        .label_dtype = info->float_labels ? DDP_F32 : DDP_I32,
        .vocabulary = info->vocabulary,
        .table_rows = strcmp(info->source, "table") == 0 ? info->sample_count : 0,
        .words = info->word_count,
        .word_rows = info->word_rows,
        .word_most = info->word_most,
        .size = options->size,
        .objective = options->objective,
        .own = *ddp_train_model_own(options),
    };
    for (int i = 0; i < info->dim_count; i++)
        config->dims[i] = info->dims[i];
    ddp_train_config_dtype(config, &planned->plan, (enum ddp_train_dtype)options->dtype);
    config->recompute = options->recompute;
    config->head_only = options->load_frozen && !ddp_train_evaluates_only(options);
    if (config->head_only && !planned->plan.model->holds)
        return ddp_fail(DDP_ERR_INVALID,
                        "--load %s,frozen: this is for --model resnet, and the model is %s%s",
                        options->load, planned->plan.model->name,
                        planned->plan.model->lora ? ": --lora trains few weights of it" : "");
    if (ddp_train_evaluates_only(options) && config->classes < planned->load.config.classes)
        config->classes = planned->load.config.classes; /* of samples without labels */
    enum ddp_status status = apply_config(planned, config);
    if (status == DDP_OK)
        status = ddp_model_configure(planned->plan.model, config);
    if (status == DDP_OK && config->objective.kind && ddp_llama_of(&config->own)->lora.dropout > 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--objective: preferences are learned without dropout, as TRL does: set it "
                        "to 0");
    if (status == DDP_OK)
        status = ddp_model_build(&planned->graph, planned->plan.model, config);
    if (status == DDP_OK)
        status = describe_data(planned);
    if (status == DDP_OK)
        status = ddp_exec_check_device(planned->graph, planned->plan.device.name);
    if (status == DDP_OK && planned->options->wire_dtype &&
        strcmp(planned->plan.device.name, "cpu") != 0)
        status = ddp_fail(DDP_ERR_UNSUPPORTED,
                          "--dtype TYPE,wire=bf16: GPUs add gradients up in float32: use --device "
                          "cpu, or leave wire= out");
    if (status == DDP_OK && !ddp_train_evaluates_only(options) &&
        ddp_graph_frozen_count(planned->graph) > 0 && ddp_graph_element_count(planned->graph) == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model %s has nothing to learn: all of its parameters are frozen",
                        planned->plan.model->name);
    if (status == DDP_OK && info->label_count == 0 && !ddp_train_evaluates_only(options) &&
        ddp_exec_graph_input_bytes(planned->graph, 1) > 0)
        return ddp_fail(DDP_ERR_INVALID, "the model %s has an input of labels, and %s has none",
                        planned->plan.model->name, ddp_dataset_where(info));
    if (status == DDP_OK && options->sync_batch_norm &&
        ddp_graph_statistics_count(planned->graph) == 0)
        return ddp_fail(DDP_ERR_INVALID, "--sync-batch-norm: the model %s has no batch norm",
                        planned->plan.model->name);
    if (status == DDP_OK && options->recompute && ddp_graph_block_count(planned->graph) == 0)
        return ddp_fail(DDP_ERR_INVALID, "--recompute: the model %s has no blocks",
                        planned->plan.model->name);
    if (status == DDP_OK && ddp_train_plan_has_tail(&planned->plan)) {
        struct ddp_model_config tail = *config;
        tail.batch = planned->plan.tail_rows;
        status = ddp_model_build(&planned->tail_graph, planned->plan.model, &tail);
    }
    return status;
}
