/* SPDX-License-Identifier: MIT
 *
 * The reader of safetensors files, and the dtypes; the writer is safetensors_write.c. */
#include "config.h"

#include "weights/safetensors.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/json.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH_BYTES     8
#define MAX_HEADER_BYTES 100000000 /* the format's limit */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are written as they lie in memory, and the format is little-endian"
#endif

/* A tensor, and where its values are. */
struct entry {
    struct ddp_safetensor tensor; /* first: callers know an entry by it */
    size_t begin;                 /* byte behind the header */
    const ddp_safetensors *in;    /* the file itself, or the one that was joined */
};

struct ddp_safetensors {
    const char *name; /* for messages, while the file is parsed */
    void *pages;      /* NULL: the bytes are the caller's, or not in memory */
    size_t page_bytes;
    struct ddp_input_file input; /* from which values are read that are not in memory */
    json_t *header;              /* owns names and metadata */
    const unsigned char *buffer; /* the values; NULL: they are not in memory */
    size_t buffer_at;            /* where they begin in the file */
    size_t buffer_bytes;
    size_t count;
    struct entry *tensors; /* in the order of their data */
    const struct ddp_safetensor **by_name;
    ddp_safetensors **shards; /* files that were joined, to which the tensors belong */
    size_t shard_count;
};

/* In the order of the format's own library, by which its writer sorts. */
static const struct {
    const char *name;
    int bits;
} dtypes[] = {
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
    {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

int ddp_safetensors_dtype_order(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            return (int)i;
    return -1;
}

bool ddp_safetensors_bytes(const char *dtype, int dim_count, const int64_t *dims, size_t *bytes)
{
    int order = ddp_safetensors_dtype_order(dtype);
    if (order < 0)
        return false;
    size_t bits = (size_t)dtypes[order].bits;
    for (int i = 0; i < dim_count; i++)
        if (dims[i] < 0 || !ddp_size_multiply(bits, (size_t)dims[i], &bits))
            return false;
    if (bits % CHAR_BIT != 0)
        return false;
    *bytes = bits / CHAR_BIT;
    return true;
}

/* --- one tensor of the header ----------------------------------------------------------------- */

static bool read_shape(struct ddp_safetensor *tensor, const json_t *shape)
{
    if (!json_is_array(shape) || json_array_size(shape) > DDP_SAFETENSORS_MAX_DIMS)
        return false;
    tensor->dim_count = (int)json_array_size(shape);
    for (int i = 0; i < tensor->dim_count; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return false;
        tensor->dims[i] = json_integer_value(dim);
    }
    return true;
}

static bool read_offsets(const json_t *offsets, size_t *begin, size_t *end)
{
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return false;
    if (json_integer_value(b) < 0 || json_integer_value(e) < json_integer_value(b))
        return false;
    *begin = (size_t)json_integer_value(b);
    *end = (size_t)json_integer_value(e);
    return true;
}

/* Returns what is wrong, or NULL. */
static const char *read_tensor(const struct ddp_safetensors *file, struct entry *read,
                               const json_t *entry)
{
    struct ddp_safetensor *tensor = &read->tensor;
    size_t begin, end, bytes;
    if (!json_is_object(entry))
        return "its entry is not a JSON object";
    tensor->dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!tensor->dtype)
        return "it has no dtype";
    if (ddp_safetensors_dtype_order(tensor->dtype) < 0)
        return "its dtype is unknown";
    if (!read_shape(tensor, json_object_get(entry, "shape")))
        return "its shape is not a list of at most 8 sizes";
    if (!read_offsets(json_object_get(entry, "data_offsets"), &begin, &end))
        return "its data_offsets are not two ascending numbers";
    if (end > file->buffer_bytes)
        return "its data_offsets are beyond the end of the file: truncated?";
    if (!ddp_safetensors_bytes(tensor->dtype, tensor->dim_count, tensor->dims, &bytes))
        return "its shape is too large, or does not fill whole bytes";
    if (bytes != end - begin)
        return "its data_offsets do not agree with its dtype and shape";
    tensor->data = file->buffer ? file->buffer + begin : NULL;
    tensor->bytes = bytes;
    read->begin = begin;
    read->in = file;
    return NULL;
}

/* --- the header ------------------------------------------------------------------------------- */

static int compare_data(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->tensor.bytes != b->tensor.bytes) /* empty ones come before what starts there too */
        return a->tensor.bytes < b->tensor.bytes ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

static int compare_names(const void *left, const void *right)
{
    const struct ddp_safetensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* The data must follow one another without holes and fill the file. */
static enum ddp_status check_cover(const struct ddp_safetensors *file)
{
    size_t used = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct entry *entry = &file->tensors[i];
        if (entry->begin != used)
            return ddp_fail(DDP_ERR_FORMAT, "%s: tensor '%s': its data %s", file->name,
                            entry->tensor.name,
                            entry->begin < used ? "overlaps that of another"
                                                : "leaves a hole behind that of another");
        used += entry->tensor.bytes;
    }
    if (used != file->buffer_bytes)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %zu bytes follow the data of the last tensor",
                        file->name, file->buffer_bytes - used);
    return DDP_OK;
}

static enum ddp_status check_metadata(const struct ddp_safetensors *file)
{
    json_t *metadata = json_object_get(file->header, "__metadata__"), *value;
    const char *key;
    if (metadata && !json_is_object(metadata))
        return ddp_fail(DDP_ERR_FORMAT, "%s: __metadata__ is not a JSON object", file->name);
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return ddp_fail(
        DDP_ERR_FORMAT, "%s: __metadata__: the value of '%s' is not text", file->name, key);
    return DDP_OK;
}

static enum ddp_status read_tensors(struct ddp_safetensors *file)
{
    const char *name;
    json_t *entry;
    size_t most = json_object_size(file->header);
    file->tensors = ddp_array_alloc(most, sizeof *file->tensors);
    file->by_name = ddp_array_alloc(most, sizeof *file->by_name);
    if (!file->tensors || !file->by_name)
        return DDP_ERR_MEMORY;
    json_object_foreach(file->header, name, entry)
    {
        struct entry *tensor = &file->tensors[file->count];
        if (strcmp(name, "__metadata__") == 0)
            continue;
        tensor->tensor.name = name;
        const char *wrong = read_tensor(file, tensor, entry);
        if (wrong)
            return ddp_fail(DDP_ERR_FORMAT, "%s: tensor '%s': %s", file->name, name, wrong);
        file->count++;
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_data);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->tensors[i].tensor;
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_names);
    return check_cover(file);
}

/* Bytes of the header, behind its length. */
static enum ddp_status header_length(const struct ddp_safetensors *file, const void *bytes,
                                     size_t size, size_t *header_bytes)
{
    uint64_t length = 0;
    if (size < LENGTH_BYTES)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: not a safetensors file: %zu bytes are fewer than its header has",
                        file->name, size);
    memcpy(&length, bytes, LENGTH_BYTES);
    if (length > MAX_HEADER_BYTES)
        return ddp_fail(
            DDP_ERR_FORMAT,
            "%s: not a safetensors file: a header of %llu bytes is over the limit of %d",
            file->name, (unsigned long long)length, MAX_HEADER_BYTES);
    if (length > size - LENGTH_BYTES)
        return ddp_fail(DDP_ERR_FORMAT, "%s: truncated: a header of %llu bytes in a file of %zu",
                        file->name, (unsigned long long)length, size);
    *header_bytes = (size_t)length;
    return DDP_OK;
}

/* The header of a file of that size. */
static enum ddp_status parse_header(struct ddp_safetensors *file, const char *header, size_t length,
                                    size_t size)
{
    json_error_t error;
    if (length == 0 || header[0] != '{')
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: not a safetensors file: its header does not begin with {", file->name);
    enum ddp_status status = ddp_json_parse(&file->header, header, length, &error);
    if (status == DDP_ERR_FORMAT)
        (void)ddp_fail(status, "%s: bad header at byte %d: %s", file->name,
                       LENGTH_BYTES + error.position, error.text);
    if (status != DDP_OK)
        return status;
    file->buffer_at = LENGTH_BYTES + length;
    file->buffer_bytes = size - LENGTH_BYTES - length;
    status = check_metadata(file);
    return status == DDP_OK ? read_tensors(file) : status;
}

static enum ddp_status parse(struct ddp_safetensors *file, const unsigned char *bytes, size_t size)
{
    size_t length;
    enum ddp_status status = header_length(file, bytes, size, &length);
    if (status != DDP_OK)
        return status;
    file->buffer = bytes + LENGTH_BYTES + length;
    return parse_header(file, (const char *)bytes + LENGTH_BYTES, length, size);
}

enum ddp_status ddp_safetensors_parse(ddp_safetensors **file, const char *name, const void *bytes,
                                      size_t size)
{
    struct ddp_safetensors *f = ddp_array_alloc(1, sizeof *f);
    if (!f)
        return DDP_ERR_MEMORY;
    f->name = name;
    enum ddp_status status = parse(f, bytes, size);
    f->name = NULL;
    if (status != DDP_OK) {
        ddp_safetensors_close(f);
        return status;
    }
    *file = f;
    return DDP_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Reads a file into pages. Mapping it would be less memory, but a file that is cut meanwhile would
 * end the process. */
static enum ddp_status read_file(void **pages, size_t *size, const char *path)
{
    struct ddp_input_file file;
    if (access(path, R_OK) < 0)
        return ddp_fail_path(path, "read");
    enum ddp_status status = ddp_input_file_open(&file, path, true);
    if (status != DDP_OK)
        return status;
    *size = (size_t)file.bytes;
    if (*size == 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: not a safetensors file: it is empty", path);
    else if (!(*pages = ddp_pages_alloc(*size)))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory: it has %zu bytes", path, *size);
    else if ((status = ddp_input_file_read(&file, 0, *pages, *size)) != DDP_OK)
        ddp_pages_free(*pages, *size);
    ddp_input_file_close(&file);
    return status;
}

enum ddp_status ddp_safetensors_join(ddp_safetensors **file, const char *name,
                                     ddp_safetensors **shards, size_t count)
{
    size_t total = 0;
    ddp_safetensors *f = ddp_array_alloc(1, sizeof *f);
    for (size_t i = 0; i < count; i++)
        total += shards[i]->count;
    if (f) {
        f->tensors = ddp_array_alloc(total, sizeof *f->tensors);
        f->by_name = ddp_array_alloc(total, sizeof *f->by_name);
    }
    if (!f || !f->tensors || !f->by_name) {
        ddp_safetensors_close(f);
        return DDP_ERR_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < shards[i]->count; k++) {
            f->by_name[f->count] = &f->tensors[f->count].tensor;
            f->tensors[f->count++] = shards[i]->tensors[k];
        }
    if (f->count > 0)
        qsort(f->by_name, f->count, sizeof *f->by_name, compare_names);
    for (size_t i = 1; i < f->count; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0) {
            enum ddp_status status =
                ddp_fail(DDP_ERR_FORMAT, "%s: tensor '%s' is in two of its files", name,
                         f->by_name[i]->name);
            ddp_safetensors_close(f);
            return status;
        }
    f->shards = shards;
    f->shard_count = count;
    *file = f;
    return DDP_OK;
}

enum ddp_status ddp_safetensors_open(ddp_safetensors **file, const char *path)
{
    void *pages = NULL;
    size_t size = 0;
    enum ddp_status status = read_file(&pages, &size, path);
    if (status != DDP_OK)
        return status;
    status = ddp_safetensors_parse(file, path, pages, size);
    if (status != DDP_OK) {
        ddp_pages_free(pages, size);
        return status;
    }
    (*file)->pages = pages;
    (*file)->page_bytes = size;
    return DDP_OK;
}

/* The header of an open file alone. */
static enum ddp_status read_header(ddp_safetensors *file)
{
    const size_t size = (size_t)file->input.bytes;
    unsigned char start[LENGTH_BYTES] = {0};
    size_t length = 0;
    if (size == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: not a safetensors file: it is empty", file->name);
    enum ddp_status status =
        ddp_input_file_read(&file->input, 0, start, size < LENGTH_BYTES ? size : LENGTH_BYTES);
    if (status == DDP_OK)
        status = header_length(file, start, size, &length);
    if (status != DDP_OK)
        return status;
    char *header = ddp_array_alloc(length + 1, 1);
    if (!header)
        return DDP_ERR_MEMORY;
    status = ddp_input_file_read(&file->input, LENGTH_BYTES, header, length);
    if (status == DDP_OK)
        status = parse_header(file, header, length, size);
    free(header);
    return status;
}

enum ddp_status ddp_safetensors_open_header(ddp_safetensors **file, const char *path, bool keep)
{
    ddp_safetensors *f = ddp_array_alloc(1, sizeof *f);
    if (!f)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_input_file_open(&f->input, path, keep);
    if (status != DDP_OK) {
        free(f);
        return status;
    }
    f->name = path;
    status = read_header(f);
    f->name = NULL;
    if (status != DDP_OK) {
        ddp_safetensors_close(f);
        return status;
    }
    *file = f;
    return DDP_OK;
}

enum ddp_status ddp_safetensors_read(const struct ddp_safetensor *tensor, size_t first, void *to,
                                     size_t bytes)
{
    const struct entry *entry = (const struct entry *)(const void *)tensor;
    const ddp_safetensors *file = entry->in;
    if (!tensor->data)
        return ddp_input_file_read(&file->input, file->buffer_at + entry->begin + first, to, bytes);
    if (bytes > 0)
        memcpy(to, (const char *)tensor->data + first, bytes);
    return DDP_OK;
}

const char *ddp_safetensors_path(const struct ddp_safetensor *tensor)
{
    return ((const struct entry *)(const void *)tensor)->in->input.path;
}

void ddp_safetensors_close(ddp_safetensors *file)
{
    if (!file)
        return;
    ddp_input_file_close(&file->input);
    json_decref(file->header);
    free(file->tensors);
    free(file->by_name);
    if (file->pages)
        ddp_pages_free(file->pages, file->page_bytes);
    for (size_t i = 0; i < file->shard_count; i++)
        ddp_safetensors_close(file->shards[i]);
    free(file->shards);
    free(file);
}

size_t ddp_safetensors_count(const ddp_safetensors *file)
{
    return file->count;
}

const struct ddp_safetensor *ddp_safetensors_at(const ddp_safetensors *file, size_t i)
{
    return i < file->count ? &file->tensors[i].tensor : NULL;
}

const struct ddp_safetensor *ddp_safetensors_find(const ddp_safetensors *file, const char *name)
{
    const struct ddp_safetensor key = {.name = name}, *wanted = &key;
    const struct ddp_safetensor **found =
        bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}

const char *ddp_safetensors_metadata(const ddp_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}
