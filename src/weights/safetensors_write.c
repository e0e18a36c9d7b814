/* SPDX-License-Identifier: MIT
 *
 * The writer of safetensors files: the same bytes for the same tensors, and those of the format's
 * own library. */
#include "config.h"

#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_ALIGNMENT 8

static int compare_tensors(const void *left, const void *right)
{
    const struct ddp_safetensor *const *a = left, *const *b = right;
    int order = ddp_safetensors_dtype_order((*b)->dtype) - ddp_safetensors_dtype_order((*a)->dtype);
    return order ? order : strcmp((*a)->name, (*b)->name);
}

static int compare_names(const void *left, const void *right)
{
    const struct ddp_safetensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_pairs(const void *left, const void *right)
{
    const struct ddp_safetensors_pair *const *a = left, *const *b = right;
    return strcmp((*a)->key, (*b)->key);
}

/* A sorted list of pointers to the elements of an array; NULL (logged): no memory. */
static void *sorted(const void *array, size_t count, size_t size,
                    int (*compare)(const void *, const void *))
{
    const void **list = ddp_array_alloc(count, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        list[i] = (const char *)array + i * size;
    if (list)
        qsort(list, count, sizeof *list, compare);
    return list;
}

static enum ddp_status check_tensor(const char *path, const struct ddp_safetensor *tensor)
{
    size_t bytes;
    if (strcmp(tensor->name, "__metadata__") == 0)
        return ddp_fail(DDP_ERR_INVALID, "%s: a tensor cannot have the name __metadata__", path);
    if (tensor->dim_count < 0 || tensor->dim_count > DDP_SAFETENSORS_MAX_DIMS ||
        !ddp_safetensors_bytes(tensor->dtype, tensor->dim_count, tensor->dims, &bytes) ||
        bytes != tensor->bytes)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: tensor '%s': %zu bytes do not fit its dtype %s and shape", path,
                        tensor->name, tensor->bytes, tensor->dtype);
    return DDP_OK;
}

static enum ddp_status check_tensors(const char *path, const struct ddp_safetensor *tensors,
                                     size_t count)
{
    const struct ddp_safetensor **list = sorted(tensors, count, sizeof *tensors, compare_names);
    enum ddp_status status = list ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        status = check_tensor(path, list[i]);
        if (status == DDP_OK && i > 0 && strcmp(list[i]->name, list[i - 1]->name) == 0)
            status = ddp_fail(DDP_ERR_INVALID, "%s: two tensors have the name '%s'", path,
                              list[i]->name);
    }
    free(list);
    return status;
}

/* Appends a JSON string. */
static enum ddp_status put_text(FILE *out, const char *path, const char *text)
{
    if (!ddp_text_is_utf8(text))
        return ddp_fail(DDP_ERR_INVALID, "%s: cannot store the name or text '%s': not UTF-8", path,
                        text);
    json_t *string = json_string(text);
    char *quoted = string ? ddp_json_text(string, JSON_ENCODE_ANY) : NULL;
    json_decref(string);
    if (!quoted)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    fputs(quoted, out);
    free(quoted);
    return DDP_OK;
}

static enum ddp_status put_metadata(FILE *out, const char *path,
                                    const struct ddp_safetensors_pair *metadata, size_t count)
{
    const struct ddp_safetensors_pair **list =
        sorted(metadata, count, sizeof *metadata, compare_pairs);
    enum ddp_status status = list ? DDP_OK : DDP_ERR_MEMORY;
    fputs("\"__metadata__\":{", out);
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        if (i > 0 && strcmp(list[i]->key, list[i - 1]->key) == 0) {
            status =
                ddp_fail(DDP_ERR_INVALID, "%s: the metadata has '%s' twice", path, list[i]->key);
            break;
        }
        fputs(i > 0 ? "," : "", out);
        status = put_text(out, path, list[i]->key);
        fputc(':', out);
        if (status == DDP_OK)
            status = put_text(out, path, list[i]->value);
    }
    fputc('}', out);
    free(list);
    return status;
}

static enum ddp_status put_tensor(FILE *out, const char *path, const struct ddp_safetensor *tensor,
                                  size_t *offset)
{
    enum ddp_status status = put_text(out, path, tensor->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype);
    for (int i = 0; i < tensor->dim_count; i++)
        fprintf(out, "%s%lld", i > 0 ? "," : "", (long long)tensor->dims[i]);
    size_t begin = *offset;
    if (status == DDP_OK && !ddp_size_add(begin, tensor->bytes, offset))
        status = ddp_fail(DDP_ERR_INVALID, "%s: the tensors are too large together", path);
    fprintf(out, "],\"data_offsets\":[%zu,%zu]}", begin, *offset);
    return status;
}

/* The header with its length before it and spaces behind it. */
static enum ddp_status make_header(char **header, size_t *header_bytes, const char *path,
                                   const struct ddp_safetensor *const *list, size_t count,
                                   const struct ddp_safetensors_pair *metadata,
                                   size_t metadata_count)
{
    char *text = NULL;
    size_t bytes = 0, offset = 0;
    enum ddp_status status = DDP_OK;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    fwrite("\0\0\0\0\0\0\0", 1, sizeof(uint64_t), out); /* becomes the length */
    fputc('{', out);
    if (metadata_count > 0)
        status = put_metadata(out, path, metadata, metadata_count);
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        fputs(i > 0 || metadata_count > 0 ? "," : "", out);
        status = put_tensor(out, path, list[i], &offset);
    }
    fputc('}', out);
    for (fflush(out); bytes % HEADER_ALIGNMENT != 0 && !ferror(out); fflush(out))
        fputc(' ', out);
    if (status == DDP_OK && ferror(out))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    /* glibc's fclose() loses the text and succeeds, where it has no memory for its last copy. */
    if ((fclose(out) != 0 || !text) && status == DDP_OK)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    if (status != DDP_OK) {
        free(text);
        return status;
    }
    uint64_t length = bytes - sizeof length;
    memcpy(text, &length, sizeof length);
    *header = text;
    *header_bytes = bytes;
    return DDP_OK;
}

/* Values by `source`, or those that the tensors have where it is NULL. */
static enum ddp_status write_values(ddp_safetensors_sink *sink, void *arg,
                                    ddp_safetensors_source *source, void *source_arg,
                                    const struct ddp_safetensor *tensors,
                                    const struct ddp_safetensor *const *list, size_t count)
{
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = source ? source(source_arg, (size_t)(list[i] - tensors), sink, arg)
                        : sink(arg, list[i]->data, list[i]->bytes);
    return status;
}

enum ddp_status ddp_safetensors_write_to(ddp_safetensors_sink *sink, void *arg, const char *name,
                                         ddp_safetensors_source *source, void *source_arg,
                                         const struct ddp_safetensor *tensors, size_t tensor_count,
                                         const struct ddp_safetensors_pair *metadata,
                                         size_t metadata_count)
{
    char *header = NULL;
    size_t header_bytes = 0;
    enum ddp_status status = check_tensors(name, tensors, tensor_count);
    if (status != DDP_OK)
        return status;
    const struct ddp_safetensor **list =
        sorted(tensors, tensor_count, sizeof *tensors, compare_tensors);
    if (!list)
        return DDP_ERR_MEMORY;
    status =
        make_header(&header, &header_bytes, name, list, tensor_count, metadata, metadata_count);
    if (status == DDP_OK)
        status = sink(arg, header, header_bytes);
    if (status == DDP_OK)
        status = write_values(sink, arg, source, source_arg, tensors, list, tensor_count);
    free(header);
    free(list);
    return status;
}

static enum ddp_status to_file(void *arg, const void *data, size_t bytes)
{
    return ddp_atomic_file_write(arg, data, bytes);
}

enum ddp_status ddp_safetensors_write_file(ddp_atomic_file *file, const char *path,
                                           ddp_safetensors_source *source, void *source_arg,
                                           const struct ddp_safetensor *tensors,
                                           size_t tensor_count,
                                           const struct ddp_safetensors_pair *metadata,
                                           size_t metadata_count)
{
    return ddp_safetensors_write_to(to_file, file, path, source, source_arg, tensors, tensor_count,
                                    metadata, metadata_count);
}

enum ddp_status ddp_safetensors_write(const char *path, ddp_safetensors_source *source,
                                      void *source_arg, const struct ddp_safetensor *tensors,
                                      size_t tensor_count,
                                      const struct ddp_safetensors_pair *metadata,
                                      size_t metadata_count)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status != DDP_OK)
        return status;
    status = ddp_safetensors_write_file(file, path, source, source_arg, tensors, tensor_count,
                                        metadata, metadata_count);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    return status;
}
