/* SPDX-License-Identifier: MIT
 *
 * Which model a file of weights holds: as our own files say, or by the shapes of a GPT-2 from
 * another program. */
#include "config.h"

#include "weights/weights.h"

#include "core/log.h"
#include "weights/interchange.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
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
        .layers = shape->layers,
        .heads = shape->heads,
        .channels = shape->channels,
        .context = shape->context,
        .norm_eps = 1e-5,
    };
}

/* *found [out]  the file begins as one of llm.c does */
static enum ddp_status read_llmc(const char *path, struct ddp_llmc_model *header, bool *found)
{
    unsigned char bytes[DDP_LLMC_HEADER_BYTES];
    struct stat about;
    *found = false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return DDP_OK; /* the next reader says why */
    const ssize_t got = fstat(fd, &about) == 0 ? pread(fd, bytes, sizeof bytes, 0) : -1;
    close(fd);
    *found = got > 0 && ddp_llmc_model_is(bytes, (size_t)got);
    return *found ? ddp_llmc_model_parse(header, path, bytes, (size_t)got, (uint64_t)about.st_size)
                  : DDP_OK;
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
    struct ddp_llmc_model header;
    struct ddp_gpt2_shape shape;
    ddp_safetensors *file;
    char name[DDP_MODEL_TEXT];
    bool found;
    *model = NULL;
    enum ddp_status status = read_llmc(path, &header, &found);
    if (found && status == DDP_OK)
        set_gpt2(&header.shape, model, config);
    if (found || status != DDP_OK)
        return status;
    status = ddp_safetensors_open(&file, path);
    if (status != DDP_OK)
        return status;
    const char *text = ddp_safetensors_metadata(file, DDP_WEIGHTS_MODEL_KEY);
    if (text && *text) {
        status = ddp_model_read_description(name, config, text, path);
        if (status == DDP_OK)
            *model = ddp_model_find(name);
    } else if (ddp_hf_gpt2_shape(&shape, file)) {
        status = read_heads(path, &shape);
        set_gpt2(&shape, model, config);
    }
    ddp_safetensors_close(file);
    return status;
}
