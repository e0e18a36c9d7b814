/* SPDX-License-Identifier: MIT
 *
 * See safetensors_index.h. */
#include "config.h"

#include "weights/safetensors_index.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 100000000 /* as of a safetensors file's header */

/* Adds a file's name once. */
static enum ddp_status add_file(struct ddp_safetensors_index *index, const char *name,
                                const char *tensor, const char *file)
{
    if (!file)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the file name of tensor '%s' is not a string", name,
                        tensor);
    if (!*file || *file == '.' || strchr(file, '/'))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor '%s': '%s' is not the name of a file beside the index", name,
                        tensor, file);
    for (size_t i = 0; i < index->file_count; i++)
        if (strcmp(index->files[i], file) == 0)
            return DDP_OK;
    if (index->file_count == DDP_SAFETENSORS_INDEX_FILES)
        return ddp_fail(DDP_ERR_FORMAT, "%s: it lists more than %d files", name,
                        DDP_SAFETENSORS_INDEX_FILES);
    index->files[index->file_count++] = file;
    return DDP_OK;
}

static enum ddp_status read_map(struct ddp_safetensors_index *index, const char *name)
{
    enum ddp_status status = DDP_OK;
    const char *tensor;
    json_t *map = json_object_get(index->root, "weight_map"), *file;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: its weight_map is not an object with tensors", name);
    index->map = map;
    json_object_foreach(map, tensor, file)
    {
        status = add_file(index, name, tensor, json_string_value(file));
        if (status != DDP_OK)
            break;
    }
    return status;
}

enum ddp_status ddp_safetensors_index_parse(struct ddp_safetensors_index *index, const char *name,
                                            const char *text, size_t bytes)
{
    json_error_t error;
    *index = (struct ddp_safetensors_index){0};
    enum ddp_status status = ddp_json_parse(&index->root, text, bytes, &error);
    if (status == DDP_ERR_FORMAT)
        (void)ddp_fail(status, "%s: bad JSON in line %d: %s", name, error.line, error.text);
    if (status == DDP_OK)
        status = read_map(index, name);
    if (status != DDP_OK)
        ddp_safetensors_index_free(index);
    return status;
}

void ddp_safetensors_index_free(struct ddp_safetensors_index *index)
{
    json_decref(index->root);
    *index = (struct ddp_safetensors_index){0};
}

static enum ddp_status read_index(struct ddp_safetensors_index *index, const char *path)
{
    char *text;
    size_t bytes;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "not an index", MAX_BYTES, &text, &bytes);
    if (status != DDP_OK)
        return status;
    status = ddp_safetensors_index_parse(index, path, text, bytes);
    free(text);
    return status;
}

#define KEPT_OPEN 64 /* files at most: a process may have about a thousand */

static enum ddp_status open_shard(ddp_safetensors **shard, const char *path, const char *name,
                                  bool whole, bool keep)
{
    const char *slash = strrchr(path, '/');
    char *beside;
    if (asprintf(&beside, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = whole ? ddp_safetensors_open(shard, beside)
                                   : ddp_safetensors_open_header(shard, beside, keep);
    free(beside);
    return status;
}

/* Each tensor is where the index says, and there are no others. */
static enum ddp_status check_shards(const struct ddp_safetensors_index *index, const char *path,
                                    ddp_safetensors **shards)
{
    for (size_t i = 0; i < index->file_count; i++) {
        size_t listed = 0;
        const char *tensor;
        json_t *file;
        json_object_foreach((json_t *)(uintptr_t)index->map, tensor, file)
        {
            if (strcmp(json_string_value(file), index->files[i]) != 0)
                continue;
            listed++;
            if (!ddp_safetensors_find(shards[i], tensor))
                return ddp_fail(DDP_ERR_FORMAT, "%s: tensor '%s' is not in %s", path, tensor,
                                index->files[i]);
        }
        if (listed != ddp_safetensors_count(shards[i]))
            return ddp_fail(DDP_ERR_FORMAT, "%s: it lists %zu tensors of %s, which has %zu", path,
                            listed, index->files[i], ddp_safetensors_count(shards[i]));
    }
    return DDP_OK;
}

static enum ddp_status open_index(ddp_safetensors **file, const char *path, bool whole)
{
    struct ddp_safetensors_index index;
    size_t opened = 0;
    enum ddp_status status = read_index(&index, path);
    if (status != DDP_OK)
        return status;
    const size_t count = index.file_count;
    ddp_safetensors **shards = ddp_array_alloc(count, sizeof *shards);
    if (!shards)
        status = DDP_ERR_MEMORY;
    for (; status == DDP_OK && opened < count; opened += status == DDP_OK)
        status = open_shard(&shards[opened], path, index.files[opened], whole, count <= KEPT_OPEN);
    if (status == DDP_OK)
        status = check_shards(&index, path, shards);
    if (status == DDP_OK)
        status = ddp_safetensors_join(file, path, shards, count);
    if (status != DDP_OK) {
        for (size_t i = 0; i < opened; i++)
            ddp_safetensors_close(shards[i]);
        free(shards);
    }
    ddp_safetensors_index_free(&index);
    return status;
}

enum ddp_status ddp_safetensors_open_model(ddp_safetensors **file, const char *path)
{
    return ddp_text_ends_with(path, ".index.json") ? open_index(file, path, true)
                                                   : ddp_safetensors_open(file, path);
}

enum ddp_status ddp_safetensors_open_model_header(ddp_safetensors **file, const char *path)
{
    return ddp_text_ends_with(path, ".index.json") ? open_index(file, path, false)
                                                   : ddp_safetensors_open_header(file, path, true);
}
