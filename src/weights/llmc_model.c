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
#include "weights/llmc_words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PADDING      128
#define PIECE_VALUES ((int64_t)1 << 18)

/* --- reading ---------------------------------------------------------------------------------- */

static enum ddp_status read_all(int fd, const char *path, void *bytes, size_t count)
{
    char *next = bytes;
    while (count > 0) {
        const ssize_t n = read(fd, next, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot read: %s", path,
                            strerror(errno));
        if (n == 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: truncated while it was read", path);
        next += n;
        count -= (size_t)n;
    }
    return DDP_OK;
}

/* Reads the next values of the file. */
static enum ddp_status read_values(int fd, const char *path, bool bf16, float *values,
                                   int64_t count, uint16_t *piece)
{
    enum ddp_status status = DDP_OK;
    if (!bf16)
        return read_all(fd, path, values, (size_t)count * sizeof *values);
    for (int64_t done = 0; status == DDP_OK && done < count;) {
        const int64_t n = count - done < PIECE_VALUES ? count - done : PIECE_VALUES;
        status = read_all(fd, path, piece, (size_t)n * sizeof *piece);
        for (int64_t i = 0; status == DDP_OK && i < n; i++)
            values[done + i] = ddp_bf16_to_f32(piece[i]);
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

static enum ddp_status read_tensors(int fd, const char *path, const struct ddp_llmc_model *model,
                                    const ddp_graph *graph, float *flat, uint16_t *piece)
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
            enum ddp_status status = read_values(fd, path, model->bf16, flat + parameter->offset,
                                                 parameter->count, piece);
            if (status != DDP_OK)
                return status;
        }
        if (tensor->rows == DDP_GPT2_V && lseek(fd, padding, SEEK_CUR) < 0)
            return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot seek: %s", path,
                            strerror(errno));
    }
    return DDP_OK;
}

static enum ddp_status load(int fd, const char *path, const ddp_graph *graph, int64_t heads,
                            float *flat)
{
    unsigned char header[DDP_LLMC_HEADER_BYTES];
    struct ddp_gpt2_shape shape = {.heads = heads};
    struct ddp_llmc_model model;
    struct stat info;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot read: not a regular file", path);
    if (!ddp_gpt2_shape_of(&shape, graph))
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has the weights of a GPT-2, which the model is not",
                        path);
    const size_t size = info.st_size < DDP_LLMC_HEADER_BYTES ? (size_t)info.st_size : sizeof header;
    enum ddp_status status = read_all(fd, path, header, size);
    if (status == DDP_OK)
        status = ddp_llmc_model_parse(&model, path, header, size, (uint64_t)info.st_size);
    if (status == DDP_OK)
        status = check_fit(path, &model.shape, &shape);
    if (status != DDP_OK)
        return status;
    uint16_t *piece = ddp_array_alloc((size_t)PIECE_VALUES, sizeof *piece);
    status = piece ? read_tensors(fd, path, &model, graph, flat, piece) : DDP_ERR_MEMORY;
    free(piece);
    return status;
}

enum ddp_status ddp_llmc_model_load(const char *path, const ddp_graph *graph, int64_t heads,
                                    float *flat)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not make it wait */
    if (fd < 0)
        return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot read: %s", path,
                        strerror(errno));
    enum ddp_status status = load(fd, path, graph, heads, flat);
    close(fd);
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

enum ddp_status ddp_llmc_model_save(const char *path, bool bf16, const ddp_graph *graph,
                                    int64_t heads, const float *flat)
{
    struct ddp_llmc_model model = {.shape = {.heads = heads}, .bf16 = bf16};
    ddp_atomic_file *file;
    if (!ddp_gpt2_shape_of(&model.shape, graph) || heads < 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: llm.c's model files have the weights of a GPT-2, and the model is "
                        "none",
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
