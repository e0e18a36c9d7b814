/* SPDX-License-Identifier: MIT
 *
 * The weights of a GGUF file, checked against its own config and read row by row into the memory of
 * parameters. */
#include "config.h"

#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"
#include "weights/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct loading {
    struct ddp_gguf gguf;
    struct ddp_hf_llama_tensor *kinds;
    size_t count;
};

static enum ddp_status check_tensor(const struct ddp_gguf *gguf,
                                    const struct ddp_hf_llama_tensor *kind, bool *known)
{
    char name[DDP_GGUF_NAME];
    ddp_gguf_name(name, kind->name);
    const struct ddp_gguf_tensor *tensor = ddp_gguf_find(gguf, name);
    if (!tensor)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is missing", gguf->file.path, name);
    const int64_t columns = kind->dim_count == 2 ? kind->dims[1] : kind->dims[0];
    const int64_t rows = kind->dim_count == 2 ? kind->dims[0] : 1;
    if (tensor->dim_count != kind->dim_count || tensor->dims[0] != columns ||
        (kind->dim_count == 2 && tensor->dims[1] != rows))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s has rows of %" PRId64 " values, %" PRId64
                        " of them: by the keys it has %" PRId64 " of %" PRId64,
                        gguf->file.path, name, tensor->dims[0],
                        tensor->dim_count > 1 ? tensor->dims[1] : 1, rows, columns);
    if (kind->dim_count == 1 && ddp_gguf_block(tensor->type)->values > 1)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is a vector of %s: floats are needed",
                        gguf->file.path, name, ddp_gguf_block(tensor->type)->name);
    known[tensor - gguf->tensors] = true;
    return DDP_OK;
}

/* A head may be there although it is the embedding. Others have no place. */
static enum ddp_status check_extra(const struct ddp_gguf *gguf,
                                   const struct ddp_gguf_tensor *tensor)
{
    const struct ddp_gguf_tensor *tokens = ddp_gguf_find(gguf, "token_embd.weight");
    char pieces[2][4096];
    enum ddp_status status = DDP_OK;
    if (strcmp(tensor->name, DDP_GGUF_ROPE_FACTORS) == 0)
        return DDP_OK;
    if (strcmp(tensor->name, "output.weight") != 0 || !tokens)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the model has no parameter for tensor %s",
                        gguf->file.path, tensor->name);
    bool same = tokens->type == tensor->type && tokens->bytes == tensor->bytes;
    for (uint64_t at = 0; same && at < tensor->bytes; at += sizeof pieces[0]) {
        const uint64_t left = tensor->bytes - at;
        const size_t some = left < sizeof pieces[0] ? (size_t)left : sizeof pieces[0];
        status = ddp_gguf_read_bytes(gguf, tensor, at, pieces[0], some);
        if (status == DDP_OK)
            status = ddp_gguf_read_bytes(gguf, tokens, at, pieces[1], some);
        if (status != DDP_OK)
            return status;
        same = memcmp(pieces[0], pieces[1], some) == 0;
    }
    return same ? DDP_OK
                : ddp_fail(DDP_ERR_FORMAT,
                           "%s: tensor output.weight differs from token_embd.weight, which is the "
                           "head of this model",
                           gguf->file.path);
}

static enum ddp_status check_tensors(const struct loading *loading)
{
    const struct ddp_gguf *gguf = &loading->gguf;
    bool *known = ddp_array_alloc(gguf->count, sizeof *known);
    enum ddp_status status = known ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < loading->count; i++)
        status = check_tensor(gguf, &loading->kinds[i], known);
    for (size_t i = 0; status == DDP_OK && i < gguf->count; i++)
        if (!known[i])
            status = check_extra(gguf, &gguf->tensors[i]);
    free(known);
    return status;
}

static void close_file(struct loading *loading)
{
    ddp_gguf_close(&loading->gguf);
    free(loading->kinds);
}

/* *loading is for close_file() in any case. */
static enum ddp_status open_file(struct loading *loading, const char *path,
                                 const struct ddp_hf_llama *config)
{
    *loading = (struct loading){.kinds = NULL};
    enum ddp_status status = ddp_gguf_open(&loading->gguf, path);
    if (status == DDP_OK)
        status = ddp_hf_llama_tensors(config, &loading->kinds, &loading->count);
    return status == DDP_OK ? check_tensors(loading) : status;
}

enum ddp_status ddp_gguf_read(struct ddp_hf_llama *config, const char *path)
{
    struct ddp_gguf gguf;
    enum ddp_status status = ddp_gguf_open(&gguf, path);
    if (status == DDP_OK)
        status = ddp_gguf_config(config, &gguf);
    if (status == DDP_OK) {
        const int type = ddp_gguf_find(&gguf, "token_embd.weight")->type;
        config->dtype = type == DDP_GGUF_F32    ? "F32"
                        : type == DDP_GGUF_F16  ? "F16"
                        : type == DDP_GGUF_BF16 ? "BF16"
                                                : NULL;
    }
    ddp_gguf_close(&gguf);
    return status;
}

/* The type is that of most bytes. */
enum ddp_status ddp_gguf_check(const char *path, const struct ddp_hf_llama *config,
                               struct ddp_hf_llama_files *files)
{
    struct loading loading;
    uint64_t bytes[DDP_GGUF_BF16 + 1] = {0}, most = 0;
    *files = (struct ddp_hf_llama_files){.count = 0};
    enum ddp_status status = open_file(&loading, path, config);
    files->count = (size_t)loading.gguf.shard_count;
    for (size_t i = 0; status == DDP_OK && i < loading.gguf.count; i++) {
        const struct ddp_gguf_tensor *tensor = &loading.gguf.tensors[i];
        files->bytes += tensor->bytes;
        if ((bytes[tensor->type] += tensor->bytes) > most) {
            most = bytes[tensor->type];
            files->dtype = ddp_gguf_block(tensor->type)->name;
        }
    }
    close_file(&loading);
    return status;
}

enum ddp_status ddp_gguf_linear_types(const char *path, const struct ddp_hf_llama *config,
                                      uint8_t *types)
{
    struct loading loading;
    int64_t layer;
    enum ddp_status status = open_file(&loading, path, config);
    for (size_t i = 0; status == DDP_OK && i < loading.count; i++) {
        const struct ddp_hf_llama_tensor *kind = &loading.kinds[i];
        char name[DDP_GGUF_NAME];
        ddp_gguf_name(name, kind->name);
        const enum ddp_dtype type = ddp_gguf_dtype(ddp_gguf_find(&loading.gguf, name)->type);
        for (int p = 0; kind->linear && p < kind->part_count; p++) {
            const int which = ddp_hf_llama_linear(kind->parts[p].name, &layer);
            if (which >= 0 && ddp_block_of(type))
                types[layer * DDP_LLAMA_LINEARS + which] = (uint8_t)type;
        }
    }
    close_file(&loading);
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

static enum ddp_status put_row(const struct ddp_gguf *gguf, const struct ddp_gguf_tensor *tensor,
                               const struct ddp_hf_values *to, int64_t row, const void *raw,
                               const float *values, int64_t columns)
{
    for (int64_t i = 0; i < columns; i++)
        if (!isfinite(values[i]))
            return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s has a value that is not finite",
                            gguf->file.path, tensor->name);
    char *at = (char *)to->memory + ddp_values_bytes(to->dtype, row * columns);
    if (to->dtype == ddp_gguf_dtype(tensor->type) && ddp_block_of(to->dtype))
        memcpy(at, raw, ddp_values_bytes(to->dtype, columns));
    else
        ddp_values_pack(to->dtype, values, columns, at);
    return DDP_OK;
}

/* Rows of the file from `first` on, for one parameter.
 *   raw, row  room for one row in the file, and as floats */
static enum ddp_status read_part(const struct ddp_gguf *gguf, const struct ddp_gguf_tensor *tensor,
                                 int64_t first, int64_t head_size, const struct ddp_hf_values *to,
                                 void *raw, float *row)
{
    const struct ddp_gguf_block *block = ddp_gguf_block(tensor->type);
    const int64_t columns = to->dim_count == 2 ? to->dims[1] : 1;
    const uint64_t bytes = (uint64_t)(columns / block->values * block->bytes);
    const struct ddp_block *own = ddp_block_of(to->dtype);
    enum ddp_status status = DDP_OK;
    if (own && columns % own->values)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: tensor %s has rows of %" PRId64 " values, which are not whole blocks "
                        "of %s: choose another --frozen-dtype",
                        gguf->file.path, tensor->name, columns, own->name);
    for (int64_t r = 0; status == DDP_OK && r < to->dims[0]; r++) {
        status =
            ddp_gguf_read_bytes(gguf, tensor, (uint64_t)(first + r) * bytes, raw, (size_t)bytes);
        if (status != DDP_OK)
            return status;
        ddp_gguf_decode(tensor->type, raw, columns, row);
        status = put_row(gguf, tensor, to, ddp_gguf_row(r, head_size), raw, row, columns);
    }
    return status;
}

static enum ddp_status read_tensor(const struct loading *loading, const struct ddp_llama *shape,
                                   const struct ddp_hf_llama_tensor *kind,
                                   const struct ddp_hf_values *values, size_t count, size_t *taken)
{
    char name[DDP_GGUF_NAME];
    ddp_gguf_name(name, kind->name);
    const struct ddp_gguf_tensor *tensor = ddp_gguf_find(&loading->gguf, name);
    const size_t columns = kind->dim_count == 2 ? (size_t)kind->dims[1] : 1;
    float *row = ddp_array_alloc(2 * columns, sizeof *row); /* no type is wider than float32 */
    enum ddp_status status = row ? DDP_OK : DDP_ERR_MEMORY;
    int64_t first = 0;
    for (int p = 0; status == DDP_OK && p < kind->part_count; first += kind->parts[p++].rows) {
        const struct ddp_hf_values *to = ddp_hf_values_find(values, count, kind->parts[p].name);
        if (!to)
            continue;
        if (to->dim_count != kind->dim_count || to->dims[0] != kind->parts[p].rows ||
            (to->dim_count == 2 && to->dims[1] != kind->dims[1]))
            status = ddp_fail(DDP_ERR_INVALID,
                              "%s: parameter %s has another shape than the file gives it",
                              loading->gguf.file.path, to->name);
        else
            status = read_part(&loading->gguf, tensor, first, ddp_gguf_permuted(shape, kind->name),
                               to, row + columns, row);
        ++*taken;
    }
    free(row);
    return status;
}

static enum ddp_status read_all(const struct loading *loading, const struct ddp_llama *shape,
                                const struct ddp_hf_values *values, size_t count)
{
    size_t taken = 0;
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < loading->count; i++)
        status = read_tensor(loading, shape, &loading->kinds[i], values, count, &taken);
    if (status == DDP_OK && taken != count)
        status = ddp_fail(DDP_ERR_INVALID, "%s: nothing in it is for %zu of %zu parameters",
                          loading->gguf.file.path, count - taken, count);
    return status;
}

enum ddp_status ddp_gguf_load(const char *path, const struct ddp_hf_llama *config,
                              const struct ddp_hf_values *values, size_t count)
{
    struct loading loading;
    enum ddp_status status = open_file(&loading, path, config);
    if (status == DDP_OK)
        status = read_all(&loading, &config->shape, values, count);
    close_file(&loading);
    return status;
}

/* Each parameter is a tensor. */
static enum ddp_status list_kinds(struct loading *loading, const struct ddp_hf_values *values,
                                  size_t count)
{
    loading->kinds = ddp_array_alloc(count, sizeof *loading->kinds);
    if (!loading->kinds)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        struct ddp_hf_llama_tensor *kind = &loading->kinds[i];
        *kind = (struct ddp_hf_llama_tensor){.dim_count = values[i].dim_count,
                                             .dims = {values[i].dims[0], values[i].dims[1]},
                                             .part_count = 1};
        snprintf(kind->name, sizeof kind->name, "%s", values[i].name);
        snprintf(kind->parts[0].name, sizeof kind->parts[0].name, "%s", values[i].name);
        kind->parts[0].rows = values[i].dims[0];
    }
    loading->count = count;
    return DDP_OK;
}

enum ddp_status ddp_gguf_load_each(const char *path, const struct ddp_llama *shape,
                                   const struct ddp_hf_values *values, size_t count)
{
    struct loading loading = {.kinds = NULL};
    enum ddp_status status = ddp_gguf_open(&loading.gguf, path);
    if (status == DDP_OK)
        status = list_kinds(&loading, values, count);
    if (status == DDP_OK)
        status = check_tensors(&loading);
    if (status == DDP_OK)
        status = read_all(&loading, shape, values, count);
    close_file(&loading);
    return status;
}
