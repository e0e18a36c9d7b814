/* SPDX-License-Identifier: MIT
 *
 * Which model a file of weights holds: as our own files say, or by the shapes of a GPT-2 from
 * another program. */
#include "config.h"

#include "weights/weights.h"

#include "core/log.h"
#include "model/gpt2.h"
#include "weights/interchange.h"

#include <string.h>
#include <unistd.h>

#define HEAD_SIZE 64 /* of every GPT-2 that was published */

static void set_gpt2(const struct ddp_gpt2_shape *shape, const struct ddp_model **model,
                     struct ddp_model_config *config)
{
    *model = &ddp_model_gpt2;
    *config = (struct ddp_model_config){
        .features = shape->context,
        .dim_count = 1,
        .dims = {shape->context},
        .classes = shape->vocabulary,
    };
    *ddp_gpt2_of(&config->own) = (struct ddp_gpt2){.layers = shape->layers,
                                                   .heads = shape->heads,
                                                   .channels = shape->channels,
                                                   .context = shape->context,
                                                   .norm_eps = 1e-5};
}

/* config.json beside a file, where there is one, knows the heads. */
static enum ddp_status read_heads(const char *path, struct ddp_gpt2_shape *shape)
{
    char beside[4096];
    struct ddp_hf_config config;
    const char *slash = strrchr(path, '/');
    const int directory = slash ? (int)(slash - path) + 1 : 0;
    snprintf(beside, sizeof beside, "%.*sconfig.json", directory, path);
    shape->heads = shape->channels >= HEAD_SIZE ? shape->channels / HEAD_SIZE : 1;
    if (access(beside, R_OK) != 0)
        return DDP_OK;
    enum ddp_status status = ddp_hf_config_read(&config, beside);
    if (status == DDP_OK)
        shape->heads = config.shape.heads;
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
    status = ddp_safetensors_open(&file, path);
    if (status != DDP_OK)
        return status;
    const char *text = ddp_safetensors_metadata(file, DDP_WEIGHTS_MODEL_KEY);
    if (text && *text) {
        status = ddp_model_read_description(model, config, text, ddp_model_find, path);
    } else if (ddp_hf_gpt2_shape(&shape, file)) {
        status = read_heads(path, &shape);
        set_gpt2(&shape, model, config);
    }
    ddp_safetensors_close(file);
    return status;
}
