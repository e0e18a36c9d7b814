/* SPDX-License-Identifier: MIT
 *
 * llm.c's model files: a header of 256 little-endian int32, then the 16 kinds of tensors, each for
 * all layers together. Read and written piece by piece: no copy of the model is made. */
#include "config.h"

#include "weights/interchange.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/bf16.h"
#include "model/gpt2.h"
#include "weights/format.h"
#include "weights/llmc_words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PADDING      128
#define PIECE_VALUES ((int64_t)1 << 18)

/* --- reading ---------------------------------------------------------------------------------- */

/* A file, and how far it has been read. */
struct source {
    struct ddp_input_file file;
    uint64_t at;
    bool bf16;
    uint16_t *piece; /* PIECE_VALUES */
};

static enum ddp_status read_next(struct source *source, void *bytes, size_t count)
{
    enum ddp_status status = ddp_input_file_read(&source->file, source->at, bytes, count);
    source->at += count;
    return status;
}

static enum ddp_status read_values(struct source *source, float *values, int64_t count)
{
    enum ddp_status status = DDP_OK;
    if (!source->bf16)
        return read_next(source, values, (size_t)count * sizeof *values);
    for (int64_t done = 0; status == DDP_OK && done < count;) {
        const int64_t n = count - done < PIECE_VALUES ? count - done : PIECE_VALUES;
        status = read_next(source, source->piece, (size_t)n * sizeof *source->piece);
        for (int64_t i = 0; status == DDP_OK && i < n; i++)
            values[done + i] = ddp_bf16_to_f32(source->piece[i]);
        done += n;
    }
    return status;
}

static enum ddp_status check_fit(const char *path, const struct ddp_gpt2_shape *file,
                                 const struct ddp_gpt2_shape *model)
{
    const struct {
        const char *name;
        int64_t file, model;
    } rows[] = {
        {"layers", file->layers, model->layers},
        {"channels", file->channels, model->channels},
        {"tokens in its vocabulary", file->vocabulary, model->vocabulary},
        {"tokens of context", file->context, model->context},
        {"heads", file->heads, model->heads ? model->heads : file->heads},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].file != rows[i].model)
            return ddp_fail(DDP_ERR_FORMAT, "%s: it has %" PRId64 " %s, and the model has %" PRId64,
                            path, rows[i].file, rows[i].name, rows[i].model);
    return DDP_OK;
}

static enum ddp_status read_tensors(struct source *source, const struct ddp_llmc_model *model,
                                    const ddp_graph *graph, float *flat)
{
    const int64_t width = model->bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    const int64_t padding =
        (model->padded - model->shape.vocabulary) * model->shape.channels * width;
    for (int i = 0; i < DDP_GPT2_TENSORS; i++) {
        const struct ddp_gpt2_tensor *tensor = &ddp_gpt2_tensors[i];
        for (int64_t l = 0; l < (tensor->of_layer ? model->shape.layers : 1); l++) {
            char name[DDP_GPT2_NAME];
            const struct ddp_parameter *parameter =
                ddp_gpt2_parameter(graph, ddp_gpt2_tensor_name(name, tensor, l));
            enum ddp_status status =
                read_values(source, flat + parameter->offset, parameter->count);
            if (status != DDP_OK)
                return status;
        }
        if (tensor->rows == DDP_GPT2_V)
            source->at += (uint64_t)padding;
    }
    return DDP_OK;
}

static bool open_model(struct ddp_input_file *file, const char *path)
{
    unsigned char start[4];
    char unsaid[256];
    ddp_log_hold(unsaid, sizeof unsaid);
    const bool found = ddp_input_file_open(file, path, true) == DDP_OK &&
                       file->bytes >= sizeof start &&
                       ddp_input_file_read(file, 0, start, sizeof start) == DDP_OK &&
                       ddp_llmc_model_is(start, sizeof start);
    ddp_log_hold(NULL, 0);
    if (!found)
        ddp_input_file_close(file);
    return found;
}

static enum ddp_status read_header(const struct ddp_input_file *file, struct ddp_llmc_model *model)
{
    unsigned char header[DDP_LLMC_HEADER_BYTES];
    const size_t size = file->bytes < sizeof header ? (size_t)file->bytes : sizeof header;
    enum ddp_status status = ddp_input_file_read(file, 0, header, size);
    return status == DDP_OK ? ddp_llmc_model_parse(model, file->path, header, size, file->bytes)
                            : status;
}

static enum ddp_status load(const struct ddp_input_file *file, const ddp_graph *graph,
                            int64_t heads, float *flat)
{
    struct source source = {.file = *file, .at = DDP_LLMC_HEADER_BYTES};
    struct ddp_gpt2_shape shape = {.heads = heads};
    struct ddp_llmc_model model;
    if (!ddp_gpt2_shape_of(&shape, graph))
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has the weights of a GPT-2, which the model is not",
                        file->path);
    enum ddp_status status = read_header(file, &model);
    if (status == DDP_OK)
        status = check_fit(file->path, &model.shape, &shape);
    if (status != DDP_OK)
        return status;
    source.bf16 = model.bf16;
    source.piece = ddp_array_alloc((size_t)PIECE_VALUES, sizeof *source.piece);
    status = source.piece ? read_tensors(&source, &model, graph, flat) : DDP_ERR_MEMORY;
    free(source.piece);
    return status;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Appends values, or zeros for NULL.
 *   piece  PIECE_VALUES floats */
static enum ddp_status write_values(ddp_atomic_file *file, bool bf16, const float *values,
                                    int64_t count, void *piece)
{
    const size_t width = bf16 ? sizeof(uint16_t) : sizeof(float);
    enum ddp_status status = DDP_OK;
    for (int64_t done = 0; status == DDP_OK && done < count;) {
        const int64_t n = count - done < PIECE_VALUES ? count - done : PIECE_VALUES;
        if (!values)
            memset(piece, 0, (size_t)n * width);
        else if (!bf16)
            memcpy(piece, values + done, (size_t)n * width);
        else
            for (int64_t i = 0; i < n; i++)
                ((uint16_t *)piece)[i] = ddp_bf16_of(values[done + i]);
        status = ddp_atomic_file_write(file, piece, (size_t)n * width);
        done += n;
    }
    return status;
}

static enum ddp_status write_header(ddp_atomic_file *file, const struct ddp_llmc_model *model)
{
    int32_t words[DDP_LLMC_WORDS] = {
        [DDP_LLMC_MAGIC] = DDP_LLMC_MODEL_MAGIC,
        [DDP_LLMC_VERSION] = model->bf16 ? DDP_LLMC_BF16 : DDP_LLMC_F32,
        [DDP_LLMC_CONTEXT] = (int32_t)model->shape.context,
        [DDP_LLMC_VOCABULARY] = (int32_t)model->shape.vocabulary,
        [DDP_LLMC_LAYERS] = (int32_t)model->shape.layers,
        [DDP_LLMC_HEADS] = (int32_t)model->shape.heads,
        [DDP_LLMC_CHANNELS] = (int32_t)model->shape.channels,
        [DDP_LLMC_PADDED] = (int32_t)model->padded,
    };
    return ddp_atomic_file_write(file, words, sizeof words);
}

static enum ddp_status write_tensors(ddp_atomic_file *file, const struct ddp_llmc_model *model,
                                     const ddp_graph *graph, const float *flat, void *piece)
{
    const int64_t padding = (model->padded - model->shape.vocabulary) * model->shape.channels;
    enum ddp_status status = write_header(file, model);
    for (int i = 0; status == DDP_OK && i < DDP_GPT2_TENSORS; i++) {
        const struct ddp_gpt2_tensor *tensor = &ddp_gpt2_tensors[i];
        for (int64_t l = 0; status == DDP_OK && l < (tensor->of_layer ? model->shape.layers : 1);
             l++) {
            char name[DDP_GPT2_NAME];
            const struct ddp_parameter *parameter =
                ddp_gpt2_parameter(graph, ddp_gpt2_tensor_name(name, tensor, l));
            status =
                write_values(file, model->bf16, flat + parameter->offset, parameter->count, piece);
        }
        if (status == DDP_OK && tensor->rows == DDP_GPT2_V)
            status = write_values(file, model->bf16, NULL, padding, piece);
    }
    return status;
}

static enum ddp_status save(const char *path, bool bf16, const ddp_graph *graph, int64_t heads,
                            const float *flat)
{
    struct ddp_llmc_model model = {.shape = {.heads = heads}, .bf16 = bf16};
    ddp_atomic_file *file;
    if (!ddp_gpt2_shape_of(&model.shape, graph) || heads < 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: llm.c's model files have the weights of a GPT-2, and the model is "
                        "not one",
                        path);
    model.padded = (int64_t)ddp_align_up((size_t)model.shape.vocabulary, PADDING);
    void *piece = ddp_array_alloc((size_t)PIECE_VALUES, sizeof(float));
    enum ddp_status status = piece ? ddp_atomic_file_open(&file, path) : DDP_ERR_MEMORY;
    if (status == DDP_OK) {
        status = write_tensors(file, &model, graph, flat, piece);
        if (status == DDP_OK)
            status = ddp_atomic_file_commit(file);
        ddp_atomic_file_close(file);
    }
    free(piece);
    return status;
}

/* --- the format ------------------------------------------------------------------------------- */

static bool is_model(const char *path)
{
    struct ddp_input_file file;
    const bool is = open_model(&file, path);
    if (is)
        ddp_input_file_close(&file);
    return is;
}

static enum ddp_status describe(const char *path, const struct ddp_model **model,
                                struct ddp_model_config *config)
{
    struct ddp_input_file file;
    struct ddp_llmc_model header;
    enum ddp_status status = ddp_input_file_open(&file, path, true);
    if (status == DDP_OK)
        status = read_header(&file, &header);
    if (status == DDP_OK)
        ddp_gpt2_describe(&header.shape, model, config);
    ddp_input_file_close(&file);
    return status;
}

static enum ddp_status read_model(const char *path, const ddp_graph *graph, int64_t heads,
                                  float *flat, void *frozen)
{
    struct ddp_input_file file;
    (void)frozen;
    enum ddp_status status = ddp_input_file_open(&file, path, true);
    if (status == DDP_OK)
        status = load(&file, graph, heads, flat);
    ddp_input_file_close(&file);
    return status;
}

static enum ddp_status write_f32(const char *path, const ddp_graph *graph,
                                 const struct ddp_gpt2 *gpt2, const float *flat)
{
    return save(path, false, graph, gpt2->heads, flat);
}

static enum ddp_status write_bf16(const char *path, const ddp_graph *graph,
                                  const struct ddp_gpt2 *gpt2, const float *flat)
{
    return save(path, true, graph, gpt2->heads, flat);
}

const struct ddp_weight_format ddp_format_llmc = {
    .name = "llmc",
    .suffix = ".bin",
    .value_bytes = sizeof(float),
    .is = is_model,
    .describe = describe,
    .read = read_model,
    .write = write_f32,
};

const struct ddp_weight_format ddp_format_llmc_bf16 = {
    .name = "llmc-bf16",
    .value_bytes = sizeof(uint16_t),
    .write = write_bf16,
};
