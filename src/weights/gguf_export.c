/* SPDX-License-Identifier: MIT
 *
 * Writes GGUF files: the header, then tensor after tensor, row by row. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "weights/format.h"
#include "weights/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_F16  65504.0f
#define QUANTISATION 2       /* general.quantization_version */
#define HEADER_BYTES 4194304 /* keys and a tokenizer, about */

/* A tensor of the file, and where its values come from. */
struct source {
    const char *name; /* of ours, for permutations */
    const struct ddp_hf_values *parts[3];
    int part_count;
};

struct writing {
    const char *path;
    const struct ddp_llama *shape;
    struct ddp_gguf_tensor *tensors;
    struct source *sources;
    size_t count;
    ddp_atomic_file *file;
};

/* general.file_type of llama.cpp */
static int file_type(int type)
{
    return type == DDP_GGUF_Q8_0 ? 7 : type == DDP_GGUF_BF16 ? 32 : type;
}

/* What a matrix with such rows gets. */
static int type_for(int type, int dim_count, int64_t columns)
{
    return dim_count == 1                                ? DDP_GGUF_F32
           : columns % ddp_gguf_block(type)->values != 0 ? DDP_GGUF_F16
                                                         : type;
}

static bool open_writing(struct writing *writing, size_t room)
{
    writing->tensors = ddp_array_alloc(room, sizeof *writing->tensors);
    writing->sources = ddp_array_alloc(room, sizeof *writing->sources);
    return writing->tensors && writing->sources;
}

static void add_tensor(struct writing *writing, const char *name, int type, int dim_count,
                       const int64_t dims[2], const struct source *source)
{
    struct ddp_gguf_tensor *tensor = &writing->tensors[writing->count];
    ddp_gguf_name(tensor->name, name);
    tensor->dim_count = dim_count;
    tensor->dims[0] = dims[dim_count - 1];
    tensor->dims[1] = dim_count == 2 ? dims[0] : 0;
    tensor->type = type_for(type, dim_count, tensor->dims[0]);
    writing->sources[writing->count++] = *source;
}

static enum ddp_status put_row(const struct writing *writing, const struct ddp_gguf_tensor *tensor,
                               const float *values, int64_t columns, void *raw)
{
    const struct ddp_gguf_block *block = ddp_gguf_block(tensor->type);
    const bool wide = tensor->type == DDP_GGUF_F32 || tensor->type == DDP_GGUF_BF16;
    for (int64_t i = 0; i < columns && !wide; i++)
        if (!(fabsf(values[i]) <= LARGEST_F16))
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: tensor %s has the value %g, which %s cannot hold: add type=bf16 "
                            "or type=f32",
                            writing->path, tensor->name, (double)values[i], block->name);
    ddp_gguf_encode(tensor->type, values, columns, raw);
    return ddp_atomic_file_write(writing->file, raw,
                                 (size_t)(columns / block->values * block->bytes));
}

static enum ddp_status put_tensor(const struct writing *writing,
                                  const struct ddp_gguf_tensor *tensor, const struct source *source)
{
    static const char zeros[DDP_GGUF_ALIGN];
    const int64_t columns = tensor->dim_count == 2 ? tensor->dims[0] : 1;
    const int64_t head_size = ddp_gguf_permuted(writing->shape, source->name);
    const uint64_t bytes = ddp_gguf_bytes(tensor);
    float *row = ddp_array_alloc(2 * (size_t)columns, sizeof *row);
    enum ddp_status status = row ? DDP_OK : DDP_ERR_MEMORY;
    for (int p = 0; status == DDP_OK && p < source->part_count; p++)
        for (int64_t r = 0; status == DDP_OK && r < source->parts[p]->dims[0]; r++) {
            ddp_hf_values_row(source->parts[p], ddp_gguf_row(r, head_size), row);
            status = put_row(writing, tensor, row, columns, row + columns);
        }
    free(row);
    return status == DDP_OK
               ? ddp_atomic_file_write(writing->file, zeros,
                                       (size_t)(ddp_align_up(bytes, DDP_GGUF_ALIGN) - bytes))
               : status;
}

static enum ddp_status write_file(struct writing *writing, const json_t *keys)
{
    enum ddp_status status = ddp_atomic_file_open(&writing->file, writing->path);
    if (status != DDP_OK)
        return status;
    status = ddp_gguf_write_header(writing->file, keys, writing->tensors, writing->count);
    for (size_t i = 0; status == DDP_OK && i < writing->count; i++)
        status = put_tensor(writing, &writing->tensors[i], &writing->sources[i]);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(writing->file);
    ddp_atomic_file_close(writing->file);
    return status;
}

static void close_writing(struct writing *writing)
{
    free(writing->tensors);
    free(writing->sources);
}

/* --- a model ---------------------------------------------------------------------------------- */

static enum ddp_status add_kind(struct writing *writing, const struct ddp_hf_llama_tensor *kind,
                                int type, const struct ddp_hf_values *values, size_t count)
{
    struct source source = {.name = kind->name, .part_count = kind->part_count};
    for (int p = 0; p < kind->part_count; p++) {
        const struct ddp_hf_values *part = ddp_hf_values_find(values, count, kind->parts[p].name);
        if (!part || part->dim_count != kind->dim_count || part->dims[0] != kind->parts[p].rows ||
            (part->dim_count == 2 && part->dims[1] != kind->dims[1]))
            return ddp_fail(DDP_ERR_INVALID, "%s: parameter %s is missing, or has another shape",
                            writing->path, kind->parts[p].name);
        source.parts[p] = part;
    }
    add_tensor(writing, kind->name, type, kind->dim_count, kind->dims, &source);
    return DDP_OK;
}

/* Beside the keys, llama3's positions are a tensor. */
static void add_factors(struct writing *writing, const struct ddp_rope *rope,
                        struct ddp_hf_values *values, float *factors)
{
    if (rope->kind != DDP_ROPE_LLAMA3)
        return;
    ddp_gguf_rope_factors(rope, factors);
    *values = (struct ddp_hf_values){.name = DDP_GGUF_ROPE_FACTORS,
                                     .dim_count = 1,
                                     .dims = {rope->size / 2},
                                     .dtype = DDP_F32,
                                     .memory = factors};
    const struct source source = {.name = values->name, .parts = {values}, .part_count = 1};
    add_tensor(writing, values->name, DDP_GGUF_F32, 1, values->dims, &source);
    strcpy(writing->tensors[writing->count - 1].name, DDP_GGUF_ROPE_FACTORS);
}

/* What each file says of its types, and the keys of its tokenizer. */
static enum ddp_status add_keys(json_t *all, int type, const json_t *keys)
{
    const bool failed =
        json_object_set_new(all, "general.file_type", json_integer(file_type(type))) != 0 ||
        json_object_set_new(all, "general.quantization_version", json_integer(QUANTISATION)) != 0 ||
        (keys && json_object_update(all, (json_t *)(uintptr_t)keys) != 0);
    return failed ? ddp_fail(DDP_ERR_MEMORY, "out of memory") : DDP_OK;
}

enum ddp_status ddp_gguf_export(const char *path, int type, const struct ddp_hf_llama *config,
                                json_t *keys, const struct ddp_hf_values *values, size_t count)
{
    struct writing writing = {.path = path, .shape = &config->shape};
    struct ddp_hf_llama_tensor *kinds = NULL;
    struct ddp_hf_values factor_values;
    float factors[DDP_LLAMA_HEAD / 2];
    size_t kind_count = 0;
    json_t *all = json_object();
    enum ddp_status status = ddp_gguf_set_config(all, config);
    if (status == DDP_OK)
        status = add_keys(all, type, keys);
    if (status == DDP_OK)
        status = ddp_hf_llama_tensors(config, &kinds, &kind_count);
    if (status == DDP_OK && !open_writing(&writing, kind_count + 1))
        status = DDP_ERR_MEMORY;
    if (status == DDP_OK)
        add_factors(&writing, &config->shape.rope, &factor_values, factors);
    for (size_t i = 0; status == DDP_OK && i < kind_count; i++)
        status = add_kind(&writing, &kinds[i], type, values, count);
    if (status == DDP_OK)
        status = write_file(&writing, all);
    close_writing(&writing);
    json_decref(all);
    json_decref(keys);
    free(kinds);
    return status;
}

/* Positions stay F32, as llama.cpp's converter has them. */
enum ddp_status ddp_gguf_export_gpt2(const char *path, int type, const struct ddp_gguf_gpt2 *gpt2,
                                     json_t *keys, const struct ddp_hf_values *values, size_t count)
{
    static const struct ddp_llama none; /* no rows are permuted */
    struct writing writing = {.path = path, .shape = &none};
    json_t *all = json_object();
    enum ddp_status status = ddp_gguf_set_gpt2(all, gpt2);
    if (status == DDP_OK)
        status = add_keys(all, type, keys);
    if (status == DDP_OK && !open_writing(&writing, count))
        status = DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const struct source source = {
            .name = values[i].name, .parts = {&values[i]}, .part_count = 1};
        const bool positions = strcmp(values[i].name, "wpe.weight") == 0;
        add_tensor(&writing, values[i].name, positions ? DDP_GGUF_F32 : type, values[i].dim_count,
                   values[i].dims, &source);
    }
    if (status == DDP_OK)
        status = write_file(&writing, all);
    close_writing(&writing);
    json_decref(all);
    json_decref(keys);
    return status;
}

uint64_t ddp_gguf_export_bytes(const struct ddp_hf_llama *config, int type)
{
    struct ddp_hf_llama_tensor *kinds;
    size_t count;
    uint64_t bytes = HEADER_BYTES;
    if (ddp_hf_llama_tensors(config, &kinds, &count) != DDP_OK)
        return 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t columns = kinds[i].dims[kinds[i].dim_count - 1];
        const struct ddp_gguf_tensor tensor = {.type = type_for(type, kinds[i].dim_count, columns),
                                               .dim_count = kinds[i].dim_count,
                                               .dims = {columns, kinds[i].dims[0]}};
        bytes += ddp_align_up(ddp_gguf_bytes(&tensor), DDP_GGUF_ALIGN);
    }
    free(kinds);
    return bytes;
}

/* --- adapters --------------------------------------------------------------------------------- */

enum ddp_status ddp_gguf_export_adapters(const char *path, const struct ddp_llama *shape,
                                         const struct ddp_hf_values *values, size_t count)
{
    /* A reader divides by the rank. */
    const double alpha = ddp_lora_scale(&shape->lora) * (double)shape->lora.rank;
    struct writing writing = {.path = path, .shape = shape};
    json_t *keys =
        json_pack("{s:s, s:s, s:s, s:f, s:i}", "general.architecture",
                  ddp_gguf_architecture(shape->family), "general.type", "adapter", "adapter.type",
                  "lora", "adapter.lora.alpha", alpha, "general.file_type", DDP_GGUF_F32);
    enum ddp_status status =
        keys && open_writing(&writing, count) ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const struct source source = {
            .name = values[i].name, .parts = {&values[i]}, .part_count = 1};
        add_tensor(&writing, values[i].name, DDP_GGUF_F32, 2, values[i].dims, &source);
    }
    if (status == DDP_OK)
        status = write_file(&writing, keys);
    close_writing(&writing);
    json_decref(keys);
    return status;
}
