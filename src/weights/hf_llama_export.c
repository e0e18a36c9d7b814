/* SPDX-License-Identifier: MIT
 *
 * Writes a Hugging Face directory: the config, the files that are copied, and the weights,
 * which are converted piece by piece while they are written. */
#include "config.h"

#include "core/bf16.h"
#include "core/blocks.h"
#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/staged_directory.h"
#include "core/text.h"
#include "core/write.h"
#include "weights/hf_keys.h"
#include "weights/hf_llama.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG "config.json"
#define PIECE  65536 /* values that are converted at a time */

/* Of this program or others, and what belongs to them: such a file would be that of other weights
 * than those beside it. GGUF files stand for themselves: they are kept, but not copied. */
static bool is_weights(const char *name)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json",
                                          ".bin",         ".bin.index.json",
                                          ".pt",          ".pth",
                                          ".h5",          ".ot",
                                          ".msgpack",     ".onnx"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ddp_text_ends_with(name, endings[i]))
            return true;
    return strcmp(name, "adapter_config.json") == 0;
}

/* --- config and other files ------------------------------------------------------------------- */

static enum ddp_status make_config(char **text, const struct ddp_hf_export *to,
                                   const struct ddp_hf_llama *config)
{
    const char *dtype = to->dtype == DDP_BF16 ? "BF16" : "F32";
    char *source;
    size_t bytes;
    if (!to->source)
        return ddp_hf_llama_config_text(text, config, NULL, NULL, 0, dtype);
    char *path = ddp_path_in(to->source, CONFIG);
    if (!path)
        return DDP_ERR_MEMORY;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "not a config.json", DDP_HF_CONFIG_BYTES, &source, &bytes);
    if (status == DDP_OK) {
        status = ddp_hf_llama_config_text(text, config, path, source, bytes, dtype);
        free(source);
    }
    free(path);
    return status;
}

static enum ddp_status copy_file(const ddp_staged_directory *directory, const char *source,
                                 const char *name)
{
    struct stat info;
    struct ddp_input_file file;
    char *path = ddp_path_in(source, name);
    enum ddp_status status = path ? DDP_OK : DDP_ERR_MEMORY;
    const bool copied = path && !(stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    if (copied && directory)
        status = ddp_staged_directory_copy(directory, path, name);
    else if (copied && (status = ddp_input_file_open(&file, path, true)) == DDP_OK)
        ddp_input_file_close(&file);
    free(path);
    return status;
}

/*   directory  NULL: only look whether each can be copied */
static enum ddp_status copy_others(const ddp_staged_directory *directory, const char *source)
{
    enum ddp_status status = DDP_OK;
    DIR *open = opendir(source);
    if (!open)
        return ddp_fail_path(source, "list");
    for (struct dirent *entry; status == DDP_OK && (entry = readdir(open));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, CONFIG) != 0 &&
            !is_weights(name) && !ddp_text_ends_with(name, ".gguf"))
            status = copy_file(directory, source, name);
    }
    closedir(open);
    return status;
}

/* --- weights ---------------------------------------------------------------------------------- */

struct writing {
    const struct ddp_hf_export *to;
    const ddp_staged_directory *directory;
    const struct ddp_hf_llama_tensor *kinds;
    size_t count;
    const struct ddp_hf_values *values;
    size_t value_count;
    struct ddp_safetensor *tensors;
    int *shards; /* of each tensor */
    int shard_count;
    size_t first; /* tensor of the shard that is being written */
    float *piece; /* room for PIECE values, and for two rows */
};

static enum ddp_status check_part(const struct writing *writing,
                                  const struct ddp_hf_llama_tensor *kind, int part)
{
    const struct ddp_hf_values *values =
        ddp_hf_values_find(writing->values, writing->value_count, kind->parts[part].name);
    if (!values)
        return ddp_fail(DDP_ERR_INVALID, "%s: the model has no parameter %s to be written",
                        writing->to->directory, kind->parts[part].name);
    if (values->dim_count != kind->dim_count || values->dims[0] != kind->parts[part].rows ||
        (kind->dim_count == 2 && values->dims[1] != kind->dims[1]))
        return ddp_fail(DDP_ERR_INVALID, "%s: parameter %s has another shape than the config says",
                        writing->to->directory, values->name);
    return DDP_OK;
}

/* Each tensor has its parameters, and each parameter its tensor. */
static enum ddp_status check_values(const struct writing *writing)
{
    enum ddp_status status = DDP_OK;
    size_t parts = 0;
    for (size_t i = 0; i < writing->count; i++)
        for (int p = 0; status == DDP_OK && p < writing->kinds[i].part_count; p++, parts++)
            status = check_part(writing, &writing->kinds[i], p);
    if (status == DDP_OK && parts != writing->value_count)
        status = ddp_fail(DDP_ERR_INVALID,
                          "%s: the model has %zu parameters, and by its config it has %zu",
                          writing->to->directory, writing->value_count, parts);
    return status;
}

/* Fills the tensors in, except their values, and deals them out to shards. */
static void set_tensors(struct writing *writing)
{
    const bool bf16 = writing->to->dtype == DDP_BF16;
    uint64_t used = 0;
    int shard = 0;
    for (size_t i = 0; i < writing->count; i++) {
        const struct ddp_hf_llama_tensor *kind = &writing->kinds[i];
        const size_t elements =
            (size_t)kind->dims[0] * (size_t)(kind->dim_count == 2 ? kind->dims[1] : 1);
        struct ddp_safetensor *tensor = &writing->tensors[i];
        *tensor = (struct ddp_safetensor){.name = kind->name,
                                          .dtype = bf16 ? "BF16" : "F32",
                                          .dim_count = kind->dim_count,
                                          .dims = {kind->dims[0], kind->dims[1]},
                                          .bytes = elements * (bf16 ? 2 : 4)};
        if (used > 0 && writing->to->shard_bytes > 0 &&
            used + tensor->bytes > writing->to->shard_bytes) {
            shard++;
            used = 0;
        }
        used += tensor->bytes;
        writing->shards[i] = shard;
    }
    writing->shard_count = shard + 1;
}

/* `count` values from `first` on as the file has them; they lie in memory or in the piece. With an
 * adapter, or in blocks, they are made there; with an adapter they are one row. */
static const void *convert(struct writing *writing, const struct ddp_hf_values *values,
                           int64_t first, int64_t count)
{
    const float *floats = (const float *)values->memory + first;
    const uint16_t *halves = (const uint16_t *)values->memory + first;
    uint16_t *narrow = (uint16_t *)(void *)writing->piece;
    if (values->up || ddp_block_of(values->dtype)) {
        floats = writing->piece;
        narrow = (uint16_t *)(void *)(writing->piece + count);
        if (values->up)
            ddp_hf_values_row(values, first / count, writing->piece);
        else
            ddp_values_unpack(values->dtype, values->memory, first, count, writing->piece);
        for (int64_t i = 0; i < count && writing->to->dtype == DDP_BF16; i++)
            narrow[i] = ddp_bf16_of(floats[i]);
        return writing->to->dtype == DDP_BF16 ? (const void *)narrow : (const void *)floats;
    }
    if (values->dtype == writing->to->dtype)
        return values->dtype == DDP_F32 ? (const void *)floats : (const void *)halves;
    for (int64_t i = 0; i < count; i++)
        if (values->dtype == DDP_F32)
            narrow[i] = ddp_bf16_of(floats[i]);
        else
            writing->piece[i] = ddp_bf16_to_f32(halves[i]);
    return writing->piece;
}

static enum ddp_status put_tensor(void *arg, size_t tensor, ddp_safetensors_sink *sink,
                                  void *sink_arg)
{
    struct writing *writing = arg;
    const struct ddp_hf_llama_tensor *kind = &writing->kinds[writing->first + tensor];
    const size_t width = writing->to->dtype == DDP_BF16 ? 2 : 4;
    enum ddp_status status = DDP_OK;
    for (int p = 0; p < kind->part_count; p++) {
        const struct ddp_hf_values *values =
            ddp_hf_values_find(writing->values, writing->value_count, kind->parts[p].name);
        const int64_t count = kind->parts[p].rows * (kind->dim_count == 2 ? kind->dims[1] : 1);
        const int64_t step = values->up ? kind->dims[1] : PIECE;
        for (int64_t done = 0; status == DDP_OK && done < count; done += step) {
            const int64_t some = count - done < step ? count - done : step;
            status = sink(sink_arg, convert(writing, values, done, some), (size_t)some * width);
        }
    }
    return status;
}

static void shard_name(char name[64], int shard, int count)
{
    if (count == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, count);
}

static enum ddp_status write_shard(struct writing *writing, int shard)
{
    const struct ddp_safetensors_pair metadata = {"format", "pt"}; /* transformers asks for it */
    ddp_atomic_file *file = NULL;
    char name[64], *path;
    size_t count = 0;
    while (writing->first + count < writing->count &&
           writing->shards[writing->first + count] == shard)
        count++;
    shard_name(name, shard, writing->shard_count);
    enum ddp_status status = ddp_staged_directory_file(writing->directory, name, &file, &path);
    if (status == DDP_OK)
        status = ddp_safetensors_write_file(file, path, put_tensor, writing,
                                            writing->tensors + writing->first, count, &metadata, 1);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    writing->first += count;
    free(path);
    return status;
}

static enum ddp_status write_index(const struct writing *writing)
{
    json_int_t bytes = 0, elements = 0;
    int failed = 0;
    json_t *map = json_object();
    for (size_t i = 0; i < writing->count; i++) {
        char name[64];
        shard_name(name, writing->shards[i], writing->shard_count);
        failed |= json_object_set_new(map, writing->tensors[i].name, json_string(name));
        bytes += (json_int_t)writing->tensors[i].bytes;
        elements +=
            (json_int_t)writing->tensors[i].bytes / (writing->to->dtype == DDP_BF16 ? 2 : 4);
    }
    json_t *root = json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", elements,
                             "total_size", bytes, "weight_map", map);
    char *text = root && !failed ? ddp_json_text(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    enum ddp_status status =
        text ? ddp_staged_directory_put(writing->directory, "model.safetensors.index.json", text)
             : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    free(text);
    json_decref(root);
    return status;
}

static enum ddp_status write_weights(struct writing *writing)
{
    writing->tensors = ddp_array_alloc(writing->count, sizeof *writing->tensors);
    writing->shards = ddp_array_alloc(writing->count, sizeof *writing->shards);
    int64_t widest = PIECE;
    for (size_t i = 0; i < writing->count; i++)
        widest = writing->kinds[i].dims[1] > widest ? writing->kinds[i].dims[1] : widest;
    writing->piece = ddp_array_alloc(2 * (size_t)widest, sizeof *writing->piece);
    enum ddp_status status = writing->tensors && writing->shards && writing->piece
                                 ? check_values(writing)
                                 : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        set_tensors(writing);
    for (int shard = 0; status == DDP_OK && shard < writing->shard_count; shard++)
        status = write_shard(writing, shard);
    if (status == DDP_OK && writing->shard_count > 1)
        status = write_index(writing);
    free(writing->piece);
    free(writing->shards);
    free(writing->tensors);
    return status;
}

/* --- whole ------------------------------------------------------------------------------------ */

static enum ddp_status open_target(ddp_staged_directory **directory, const char *path, int wait_ms)
{
    return ddp_staged_directory_open_of(
        directory, path, wait_ms, CONFIG,
        "it has files, but no config.json: it is not the directory of a model, so nothing is "
        "written there: name another, or empty it");
}

enum ddp_status ddp_hf_llama_export_check(const struct ddp_hf_export *to)
{
    ddp_staged_directory *directory;
    enum ddp_status status = open_target(&directory, to->directory, 0);
    if (status == DDP_OK)
        ddp_staged_directory_close(directory);
    if (status == DDP_OK && to->source)
        status = copy_others(NULL, to->source);
    return status;
}

enum ddp_status ddp_hf_llama_export(const struct ddp_hf_export *to,
                                    const struct ddp_hf_llama *config,
                                    const struct ddp_hf_values *values, size_t count)
{
    ddp_staged_directory *directory;
    struct ddp_hf_llama_tensor *kinds = NULL;
    struct writing writing = {.to = to, .values = values, .value_count = count};
    char *text = NULL;
    enum ddp_status status = make_config(&text, to, config);
    if (status != DDP_OK)
        return status;
    status = open_target(&directory, to->directory, DDP_STAGED_WAIT_MS);
    if (status != DDP_OK) {
        free(text);
        return status;
    }
    writing.directory = directory;
    if (to->source)
        status = copy_others(directory, to->source);
    if (status == DDP_OK)
        status = ddp_staged_directory_put(directory, CONFIG, text);
    if (status == DDP_OK && to->tokenizer)
        status = ddp_staged_directory_put(directory, "tokenizer.json", to->tokenizer);
    if (status == DDP_OK && to->tokenizer_config)
        status = ddp_staged_directory_put(directory, "tokenizer_config.json", to->tokenizer_config);
    if (status == DDP_OK)
        status = ddp_hf_llama_tensors(config, &kinds, &writing.count);
    writing.kinds = kinds;
    if (status == DDP_OK)
        status = write_weights(&writing);
    if (status == DDP_OK)
        status = ddp_staged_directory_commit(directory, is_weights);
    ddp_staged_directory_close(directory);
    free(kinds);
    free(text);
    return status;
}
