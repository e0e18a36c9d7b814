/* SPDX-License-Identifier: MIT
 *
 * Which model a file of weights holds: as our own files say, or by the shapes of a GPT-2 from
 * another program. */
#include "config.h"

#include "weights/weights.h"

#include "core/log.h"
#include "model/gpt2.h"
#include "weights/interchange.h"
#include "weights/safetensors_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_SIZE 64 /* of every GPT-2 that was published */

/* Heads that are not known are guessed. */
static void set_gpt2(const struct ddp_gpt2_shape *shape, const struct ddp_model **model,
                     struct ddp_model_config *config)
{
    *model = &ddp_model_gpt2;
    *config = (struct ddp_model_config){
        .features = shape->context,
        .dim_count = 1,
        .dims = {shape->context},
        .classes = shape->vocabulary,
        .described = shape->heads > 0,
    };
    *ddp_gpt2_of(&config->own) =
        (struct ddp_gpt2){.layers = shape->layers,
                          .heads = shape->heads                   ? shape->heads
                                   : shape->channels >= HEAD_SIZE ? shape->channels / HEAD_SIZE
                                                                  : 1,
                          .channels = shape->channels,
                          .context = shape->context,
                          .norm_eps = 1e-5};
}

/* What both name. */
static enum ddp_status check_config(const char *path, const struct ddp_gpt2_shape *file,
                                    const char *config_path, const struct ddp_gpt2_shape *config)
{
    const struct {
        const char *name;
        int64_t file, config;
    } rows[] = {
        {"layers", file->layers, config->layers},
        {"channels", file->channels, config->channels},
        {"tokens in its vocabulary", file->vocabulary, config->vocabulary},
        {"positions", file->context, config->context},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].file != rows[i].config)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s contradicts %s: it has %" PRId64 " %s, and the other says %" PRId64,
                            path, config_path, rows[i].file, rows[i].name, rows[i].config);
    return DDP_OK;
}

/* config.json beside a file, where there is one, has what tensors do not tell. */
static enum ddp_status take_config(const char *path, const struct ddp_gpt2_shape *shape,
                                   struct ddp_model_config *model)
{
    struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&model->own);
    struct ddp_hf_config config;
    char *beside;
    const char *slash = strrchr(path, '/');
    if (asprintf(&beside, "%.*sconfig.json", slash ? (int)(slash - path) + 1 : 0, path) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = DDP_OK;
    const bool there = access(beside, F_OK) == 0;
    if (there)
        status = ddp_hf_config_read(&config, beside);
    if (there && status == DDP_OK)
        status = check_config(path, shape, beside, &config.shape);
    if (there && status == DDP_OK) {
        gpt2->heads = config.shape.heads;
        gpt2->dropout = config.dropout;
        gpt2->exact_gelu = config.exact_gelu;
        gpt2->norm_eps = config.norm_eps;
        model->described = true;
    }
    free(beside);
    return status;
}

enum ddp_status ddp_train_weights_model(const char *path, const struct ddp_model **model,
                                        struct ddp_model_config *config)
{
    struct ddp_input_file llmc;
    struct ddp_llmc_model header;
    struct ddp_gpt2_shape shape;
    ddp_safetensors *file;
    enum ddp_status status;
    *model = NULL;
    if (ddp_llmc_model_open(&llmc, path)) {
        status = ddp_llmc_model_read(&llmc, &header);
        if (status == DDP_OK)
            set_gpt2(&header.shape, model, config);
        ddp_input_file_close(&llmc);
        return status;
    }
    status = ddp_safetensors_open_model(&file, path);
    if (status != DDP_OK)
        return status;
    const char *text = ddp_safetensors_metadata(file, DDP_WEIGHTS_MODEL_KEY);
    if (text && *text) {
        status = ddp_model_read_description(model, config, text, ddp_model_find, path);
        config->described = status == DDP_OK;
    } else if (ddp_hf_gpt2_shape(&shape, file)) {
        set_gpt2(&shape, model, config);
        status = take_config(path, &shape, config);
    }
    ddp_safetensors_close(file);
    return status;
}
