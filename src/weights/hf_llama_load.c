/* SPDX-License-Identifier: MIT
 *
 * The weights of a Hugging Face directory: checked against the config, and read piece by piece
 * into the memory of parameters. */
#include "config.h"

#include "core/bf16.h"
#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"
#include "weights/bnb.h"
#include "weights/hf_llama.h"
#include "weights/safetensors_index.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "model."
#define PIECE  65536 /* values that are converted at a time: whole blocks of any kind */
#define SUMS   1024  /* of an adapter at a time */
#define MERGED 256   /* rows that are made at a time: whole heads */
#define HEAD   "lm_head.weight"
#define TOKENS "model.embed_tokens.weight"

struct files {
    ddp_safetensors *weights;
    char *path; /* of the file, or of the index */
    bool bare;  /* names lack the prefix */
    const struct ddp_hf_llama *config;
    struct ddp_hf_llama_tensor *tensors; /* that must be there */
    size_t count;
};

/* --- which files ------------------------------------------------------------------------------ */

enum ddp_status ddp_hf_find_weights(char **path, const char *directory)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    *path = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *found = ddp_path_in(directory, names[i]);
        if (!found)
            return DDP_ERR_MEMORY;
        if (access(found, F_OK) == 0) {
            *path = found;
            return DDP_OK;
        }
        free(found);
    }
    return DDP_OK;
}

static enum ddp_status fail_no_weights(const char *directory)
{
    if (ddp_path_is_in(directory, "pytorch_model.bin"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: pytorch_model.bin cannot be read, because it may contain programs: "
                        "save the model again as model.safetensors, with save_pretrained(..., "
                        "safe_serialization=True)",
                        directory);
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: no weights: neither model.safetensors nor model.safetensors.index.json",
                    directory);
}

/* Of a tensor, or where one should be. */
static const char *path_of(const struct files *files, const struct ddp_safetensor *tensor)
{
    const char *path = tensor ? ddp_safetensors_path(tensor) : NULL;
    return path ? path : files->path;
}

/* --- checks ----------------------------------------------------------------------------------- */

static const struct ddp_safetensor *find(const struct files *files, const char *name)
{
    const bool prefixed = strncmp(name, PREFIX, sizeof PREFIX - 1) == 0;
    return ddp_safetensors_find(files->weights,
                                name + (files->bare && prefixed ? sizeof PREFIX - 1 : 0));
}

static const char *shape_text(char text[128], int dim_count, const int64_t *dims)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < dim_count && used < 96; d++)
        used += (size_t)snprintf(text + used, 128 - used, "%s%" PRId64, d ? "," : "", dims[d]);
    return text;
}

static enum ddp_status check_dtype(const struct files *files, const struct ddp_safetensor *tensor)
{
    if (strcmp(tensor->dtype, "F32") == 0 || strcmp(tensor->dtype, "F16") == 0 ||
        strcmp(tensor->dtype, "BF16") == 0)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is %s; F32, F16 and BF16 can be read",
                    path_of(files, tensor), tensor->name, tensor->dtype);
}

static bool is_quantised(const struct files *files, const struct ddp_hf_llama_tensor *kind,
                         const struct ddp_safetensor *tensor)
{
    return files->config->nf4 && kind->linear && kind->dim_count == 2 && ddp_bnb_is(tensor);
}

static enum ddp_status check_tensor(const struct files *files,
                                    const struct ddp_hf_llama_tensor *wanted)
{
    char have[128], want[128];
    struct ddp_bnb bnb;
    const struct ddp_safetensor *tensor = find(files, wanted->name);
    if (!tensor && strcmp(wanted->name, HEAD) == 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s is missing, and config.json does not tie it to the "
                        "embedding (tie_word_embeddings): a model without a head cannot be used",
                        files->path, HEAD);
    if (!tensor)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is missing", files->path, wanted->name);
    if (is_quantised(files, wanted, tensor))
        return ddp_bnb_find(&bnb, files->weights, path_of(files, tensor), tensor, wanted->dims[0],
                            wanted->dims[1]);
    enum ddp_status status = check_dtype(files, tensor);
    bool same = tensor->dim_count == wanted->dim_count;
    for (int d = 0; same && d < wanted->dim_count; d++)
        same = tensor->dims[d] == wanted->dims[d];
    if (status == DDP_OK && !same)
        status = ddp_fail(
            DDP_ERR_FORMAT, "%s: tensor %s has the shape (%s), by config.json it has (%s)",
            path_of(files, tensor), tensor->name, shape_text(have, tensor->dim_count, tensor->dims),
            shape_text(want, wanted->dim_count, wanted->dims));
    return status;
}

/* Do both have the same bytes? */
static enum ddp_status compare(const struct ddp_safetensor *a, const struct ddp_safetensor *b,
                               bool *same)
{
    const size_t most = PIECE * sizeof(float);
    enum ddp_status status = DDP_OK;
    *same = a->bytes == b->bytes && strcmp(a->dtype, b->dtype) == 0;
    if (!*same)
        return DDP_OK;
    char *pieces = ddp_array_alloc(2, most);
    if (!pieces)
        return DDP_ERR_MEMORY;
    for (size_t done = 0; status == DDP_OK && *same && done < a->bytes; done += most) {
        const size_t bytes = a->bytes - done < most ? a->bytes - done : most;
        status = ddp_safetensors_read(a, done, pieces, bytes);
        if (status == DDP_OK)
            status = ddp_safetensors_read(b, done, pieces + most, bytes);
        *same = status == DDP_OK && memcmp(pieces, pieces + most, bytes) == 0;
    }
    free(pieces);
    return status;
}

/* A tensor that the model does not have must be of no consequence. */
static enum ddp_status check_extra(const struct files *files, const struct ddp_safetensor *tensor)
{
    bool same = false;
    if (ddp_text_ends_with(tensor->name, "rotary_emb.inv_freq"))
        return DDP_OK;
    if (strcmp(tensor->name, HEAD) != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: the model of config.json has no parameter for tensor %s",
                        path_of(files, tensor), tensor->name);
    enum ddp_status status = compare(tensor, find(files, TOKENS), &same);
    if (status == DDP_OK && !same)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: tensor %s differs from the embedding, to which config.json ties it: "
                          "set tie_word_embeddings to false if the head is one of its own, or "
                          "remove the tensor",
                          path_of(files, tensor), HEAD);
    return status;
}

static int compare_names(const void *left, const void *right)
{
    const char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

/* A tensor of the model, or what belongs to one that is quantised. */
static bool is_known(const struct files *files, const char **known, const char *name)
{
    char stem[DDP_HF_LLAMA_NAME];
    const char *key = stem;
    size_t bytes = 0;
    if (bsearch(&name, known, files->count, sizeof *known, compare_names))
        return true;
    if (!files->config->nf4 || !ddp_bnb_belongs(name, &bytes) || bytes >= sizeof stem)
        return false;
    snprintf(stem, sizeof stem, "%.*s", (int)bytes, name);
    const struct ddp_safetensor *tensor = ddp_safetensors_find(files->weights, stem);
    return tensor && ddp_bnb_is(tensor) &&
           bsearch(&key, known, files->count, sizeof *known, compare_names);
}

static enum ddp_status check_names(const struct files *files)
{
    const char **known = ddp_array_alloc(files->count, sizeof *known);
    enum ddp_status status = known ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; known && i < files->count; i++) {
        const struct ddp_safetensor *tensor = find(files, files->tensors[i].name);
        known[i] = tensor ? tensor->name : "";
    }
    if (known)
        qsort(known, files->count, sizeof *known, compare_names);
    for (size_t i = 0; status == DDP_OK && i < ddp_safetensors_count(files->weights); i++) {
        const struct ddp_safetensor *tensor = ddp_safetensors_at(files->weights, i);
        if (!is_known(files, known, tensor->name))
            status = check_extra(files, tensor);
    }
    free(known);
    return status;
}

static void close_files(struct files *files)
{
    ddp_safetensors_close(files->weights);
    free(files->tensors);
    free(files->path);
}

/* Opens the files and checks all but the values. *files is for close_files() in any case; its path
 * is NULL where there are no weights. */
static enum ddp_status open_files(struct files *files, const char *directory,
                                  const struct ddp_hf_llama *config)
{
    *files = (struct files){.config = config};
    enum ddp_status status = ddp_hf_find_weights(&files->path, directory);
    if (status != DDP_OK || !files->path)
        return status;
    status = ddp_safetensors_open_model_header(&files->weights, files->path);
    if (status == DDP_OK)
        status = ddp_hf_llama_tensors(config, &files->tensors, &files->count);
    if (status != DDP_OK)
        return status;
    files->bare = !find(files, TOKENS);
    if (files->bare && !find(files, TOKENS))
        files->bare = false; /* neither: the message names it with the prefix */
    for (size_t i = 0; status == DDP_OK && i < files->count; i++)
        status = check_tensor(files, &files->tensors[i]);
    return status == DDP_OK ? check_names(files) : status;
}

enum ddp_status ddp_hf_llama_check(const char *directory, const struct ddp_hf_llama *config,
                                   struct ddp_hf_llama_files *found)
{
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    struct files files;
    *found = (struct ddp_hf_llama_files){0};
    enum ddp_status status = open_files(&files, directory, config);
    if (status == DDP_OK && files.path) {
        const struct ddp_safetensor *tokens = find(&files, TOKENS);
        const char *last = NULL;
        for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
            if (strcmp(dtypes[i], tokens->dtype) == 0)
                found->dtype = dtypes[i];
        for (size_t i = 0; i < ddp_safetensors_count(files.weights); i++) {
            const struct ddp_safetensor *tensor = ddp_safetensors_at(files.weights, i);
            const char *path = ddp_safetensors_path(tensor);
            found->count +=
                !last || strcmp(last, path) != 0; /* those of a file follow each other */
            found->bytes += tensor->bytes;
            last = path;
        }
    }
    close_files(&files);
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

const struct ddp_hf_values *ddp_hf_values_find(const struct ddp_hf_values *values, size_t count,
                                               const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(values[i].name, name) == 0)
            return &values[i];
    return NULL;
}

struct ddp_hf_values ddp_hf_values_of(struct ddp_parameter_place place)
{
    const struct ddp_parameter *parameter = place.parameter;
    return (struct ddp_hf_values){.name = parameter->name,
                                  .dim_count = parameter->dim_count,
                                  .dims = {parameter->dims[0], parameter->dims[1]},
                                  .dtype = parameter->dtype,
                                  .memory = place.memory};
}

static void make_row(const struct ddp_hf_values *values, int64_t row, float *out)
{
    const int64_t columns = values->dim_count == 2 ? values->dims[1] : 1;
    ddp_values_unpack(values->dtype, values->memory, row * columns, columns, out);
    const int64_t rank = values->up ? values->up->dims[1] : 0;
    for (int64_t from = 0; rank > 0 && from < columns; from += SUMS) {
        const int64_t some = columns - from < SUMS ? columns - from : SUMS;
        const float *up = (const float *)values->up->memory + row * rank;
        const float *down = (const float *)values->down->memory + from;
        float sum[SUMS] = {0};
        for (int64_t r = 0; r < rank; r++)
            for (int64_t i = 0; i < some; i++)
                sum[i] += up[r] * down[r * columns + i];
        for (int64_t i = 0; i < some; i++)
            out[from + i] += values->scale * sum[i];
    }
}

static void merge_row(void *arg, size_t i)
{
    const struct ddp_hf_merged *merged = arg;
    make_row(merged->of, merged->first + (int64_t)i,
             merged->rows + (int64_t)i * merged->of->dims[1]);
}

/* So that the row is among them. */
static void merge_rows(struct ddp_hf_merged *merged, const struct ddp_hf_values *values,
                       int64_t row)
{
    const int64_t first = row / MERGED * MERGED, left = values->dims[0] - first;
    if (merged->of == values && merged->first == first)
        return;
    if (merged->of != values) {
        free(merged->rows);
        merged->rows = reallocarray(NULL, MERGED, (size_t)values->dims[1] * sizeof *merged->rows);
    }
    merged->of = values;
    merged->first = first;
    if (merged->rows)
        ddp_pool_run(merged->pool, (size_t)(left < MERGED ? left : MERGED), merge_row, merged);
}

void ddp_hf_values_row(const struct ddp_hf_values *values, int64_t row, float *out)
{
    struct ddp_hf_merged *merged = values->up ? values->merged : NULL;
    if (merged)
        merge_rows(merged, values, row);
    if (merged && merged->rows)
        memcpy(out, merged->rows + (row - merged->first) * values->dims[1],
               (size_t)values->dims[1] * sizeof *out);
    else
        make_row(values, row, out);
}

/* They may begin at any byte. */
bool ddp_hf_values_convert(float *out, const void *raw, const char *dtype, size_t count)
{
    const bool bf16 = strcmp(dtype, "BF16") == 0;
    uint16_t half;
    if (strcmp(dtype, "F32") == 0)
        memcpy(out, raw, count * sizeof *out);
    else if (!bf16 && strcmp(dtype, "F16") != 0)
        return false;
    else
        for (size_t i = 0; i < count; i++) {
            memcpy(&half, (const char *)raw + i * sizeof half, sizeof half);
            out[i] = bf16 ? ddp_bf16_to_f32(half) : ddp_f16_to_f32(half);
        }
    return true;
}

struct piece {
    float values[PIECE];
    float raw[PIECE];
};

/* Reads values `first` ... of a tensor into a parameter. */
static enum ddp_status read_values(const struct files *files, const struct ddp_safetensor *tensor,
                                   int64_t first, const struct ddp_hf_values *to, int64_t count,
                                   struct piece *piece)
{
    const size_t width = strcmp(tensor->dtype, "F32") == 0 ? sizeof(float) : sizeof(uint16_t);
    for (int64_t done = 0; done < count; done += PIECE) {
        const size_t some = (size_t)(count - done < PIECE ? count - done : PIECE);
        enum ddp_status status =
            ddp_safetensors_read(tensor, (size_t)(first + done) * width, piece->raw, some * width);
        if (status != DDP_OK)
            return status;
        ddp_hf_values_convert(piece->values, piece->raw, tensor->dtype, some);
        for (size_t i = 0; i < some; i++)
            if (!isfinite(piece->values[i]))
                return ddp_fail(DDP_ERR_FORMAT,
                                "%s: tensor %s has a value that is not finite, at index %" PRId64,
                                path_of(files, tensor), tensor->name, first + done + (int64_t)i);
        ddp_values_pack(to->dtype, piece->values, (int64_t)some,
                        (char *)to->memory + ddp_values_bytes(to->dtype, done));
    }
    return DDP_OK;
}

/* The same of a matrix that is quantised. Blocks go as they are where memory has the same ones. */
static enum ddp_status read_blocks(const struct ddp_bnb *bnb, const float *scales, int64_t first,
                                   const struct ddp_hf_values *to, int64_t count,
                                   struct piece *piece)
{
    const struct ddp_block *block = ddp_block_of(bnb->dtype);
    const bool same = to->dtype == bnb->dtype && first % block->values == 0;
    uint8_t *const raw = (uint8_t *)piece->raw;
    enum ddp_status status = DDP_OK;
    for (int64_t done = 0; status == DDP_OK && done < count; done += PIECE) {
        const int64_t some = count - done < PIECE ? count - done : PIECE;
        const int64_t begin = (first + done) / block->values;
        const int64_t end = (first + done + some + block->values - 1) / block->values;
        char *at = (char *)to->memory + ddp_values_bytes(to->dtype, done);
        status = ddp_bnb_blocks(bnb, scales, begin, end - begin, same ? (uint8_t *)at : raw);
        if (status != DDP_OK || same)
            continue;
        ddp_blocks_unpack(block, raw, (first + done) % block->values, some, piece->values);
        ddp_values_pack(to->dtype, piece->values, some, at);
    }
    return status;
}

/* The parameters of a tensor that the table has. */
static enum ddp_status read_tensor(const struct files *files,
                                   const struct ddp_hf_llama_tensor *kind,
                                   const struct ddp_hf_values *values, size_t count,
                                   struct piece *piece, size_t *taken)
{
    const int64_t columns = kind->dim_count == 2 ? kind->dims[1] : 1;
    const struct ddp_safetensor *tensor = find(files, kind->name);
    const bool quantised = is_quantised(files, kind, tensor);
    struct ddp_bnb bnb;
    float *scales = NULL;
    enum ddp_status status = quantised ? ddp_bnb_find(&bnb, files->weights, path_of(files, tensor),
                                                      tensor, kind->dims[0], columns)
                                       : DDP_OK;
    if (status == DDP_OK && quantised)
        status = ddp_bnb_scales(&scales, &bnb);
    int64_t row = 0;
    for (int p = 0; status == DDP_OK && p < kind->part_count; row += kind->parts[p++].rows) {
        const int64_t rows = kind->parts[p].rows;
        const struct ddp_hf_values *to = ddp_hf_values_find(values, count, kind->parts[p].name);
        if (!to)
            continue;
        if (to->dim_count != kind->dim_count || to->dims[0] != rows ||
            (to->dim_count == 2 && to->dims[1] != columns))
            status = ddp_fail(DDP_ERR_INVALID,
                              "%s: parameter %s has another shape than config.json gives it",
                              files->path, to->name);
        else
            status = quantised
                         ? read_blocks(&bnb, scales, row * columns, to, rows * columns, piece)
                         : read_values(files, tensor, row * columns, to, rows * columns, piece);
        ++*taken;
    }
    free(scales);
    return status;
}

static enum ddp_status fail_unknown(const struct files *files, const struct ddp_hf_values *values,
                                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t t = 0; t < files->count; t++)
            for (int p = 0; p < files->tensors[t].part_count; p++)
                known = known || strcmp(files->tensors[t].parts[p].name, values[i].name) == 0;
        if (!known)
            return ddp_fail(DDP_ERR_INVALID, "%s: nothing in it is for parameter %s", files->path,
                            values[i].name);
    }
    return ddp_fail(DDP_ERR_INVALID, "%s: two parameters have one name", files->path);
}

enum ddp_status ddp_hf_llama_load(const char *directory, const struct ddp_hf_llama *config,
                                  const struct ddp_hf_values *values, size_t count)
{
    struct files files;
    size_t taken = 0;
    struct piece *piece = NULL;
    enum ddp_status status = open_files(&files, directory, config);
    if (status == DDP_OK && !files.path)
        status = fail_no_weights(directory);
    if (status == DDP_OK && !(piece = ddp_array_alloc(1, sizeof *piece)))
        status = DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < files.count; i++)
        status = read_tensor(&files, &files.tensors[i], values, count, piece, &taken);
    if (status == DDP_OK && taken != count)
        status = fail_unknown(&files, values, count);
    free(piece);
    close_files(&files);
    return status;
}

enum ddp_status ddp_hf_llama_linear_types(const char *directory, const struct ddp_hf_llama *config,
                                          uint8_t *types)
{
    struct files files;
    struct ddp_bnb bnb;
    int64_t layer;
    enum ddp_status status = open_files(&files, directory, config);
    for (size_t i = 0; status == DDP_OK && files.path && i < files.count; i++) {
        const struct ddp_hf_llama_tensor *kind = &files.tensors[i];
        const struct ddp_safetensor *tensor = find(&files, kind->name);
        if (!is_quantised(&files, kind, tensor))
            continue;
        status =
            ddp_bnb_find(&bnb, files.weights, files.path, tensor, kind->dims[0], kind->dims[1]);
        for (int p = 0; status == DDP_OK && p < kind->part_count; p++) {
            const int which = ddp_hf_llama_linear(kind->parts[p].name, &layer);
            if (which >= 0)
                types[layer * DDP_LLAMA_LINEARS + which] = (uint8_t)bnb.dtype;
        }
    }
    close_files(&files);
    return status;
}
