/* SPDX-License-Identifier: MIT
 *
 * See gguf.h. */
#include "config.h"

#include "core/gguf.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC        "GGUF"
#define GGUF_VERSION 3
#define PIECE        65536
#define HEADER_MOST  ((uint64_t)256 << 20) /* bytes in front of the tensors */
#define VALUES_MOST  (1 << 24)             /* in all arrays: each takes memory of its own */
#define TENSORS_MOST 65536
#define SHARDS_MOST  500                /* each stays open */
#define LARGEST      ((int64_t)1 << 40) /* of a dimension */

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, KINDS };
static const size_t widths[KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}; /* at least */

/* --- types of tensors ------------------------------------------------------------------------- */

static const struct ddp_gguf_block blocks[] = {
    [DDP_GGUF_F32] = {"f32", 1, 4},       [DDP_GGUF_F16] = {"f16", 1, 2},
    [DDP_GGUF_Q4_0] = {"q4_0", 32, 18},   [DDP_GGUF_Q5_0] = {"q5_0", 32, 22},
    [DDP_GGUF_Q8_0] = {"q8_0", 32, 34},   [DDP_GGUF_Q4_K] = {"q4_k", 256, 144},
    [DDP_GGUF_Q6_K] = {"q6_k", 256, 210}, [DDP_GGUF_BF16] = {"bf16", 1, 2},
};
#define BLOCKS (int)(sizeof blocks / sizeof blocks[0])

/* Of those that cannot be read. */
static const char *const other_names[] = {
    [3] = "Q4_1",   [7] = "Q5_1",    [9] = "Q8_1",     [10] = "Q2_K",   [11] = "Q3_K",
    [13] = "Q5_K",  [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
    [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",  [23] = "IQ4_XS",
    [24] = "I8",    [25] = "I16",    [26] = "I32",     [27] = "I64",    [28] = "F64",
    [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",
};

const struct ddp_gguf_block *ddp_gguf_block(int type)
{
    return type >= 0 && type < BLOCKS && blocks[type].name ? &blocks[type] : NULL;
}

uint64_t ddp_gguf_bytes(const struct ddp_gguf_tensor *tensor)
{
    const struct ddp_gguf_block *block = ddp_gguf_block(tensor->type);
    uint64_t bytes = (uint64_t)(tensor->dims[0] / block->values * block->bytes);
    for (int d = 1; d < tensor->dim_count; d++)
        bytes *= (uint64_t)tensor->dims[d];
    return bytes;
}

/* --- reading bytes ---------------------------------------------------------------------------- */

struct cursor {
    const struct ddp_input_file *file;
    uint64_t at;
    size_t values; /* of arrays so far */
    uint64_t begin;
    size_t filled; /* bytes of the file from `begin` that are in the piece */
    char piece[PIECE];
};

static enum ddp_status fail_cut(const struct cursor *cursor)
{
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: the file is cut, or damaged: its header says more than its %" PRIu64
                    " bytes can hold",
                    cursor->file->path, cursor->file->bytes);
}

static enum ddp_status take(struct cursor *cursor, void *to, size_t bytes)
{
    char *out = to;
    if (bytes > cursor->file->bytes - cursor->at)
        return fail_cut(cursor);
    if (cursor->at + bytes > HEADER_MOST)
        return ddp_fail(DDP_ERR_FORMAT, "%s: more than %" PRIu64 " bytes of header",
                        cursor->file->path, HEADER_MOST);
    while (bytes > 0) {
        if (cursor->at >= cursor->begin + cursor->filled) {
            const uint64_t left = cursor->file->bytes - cursor->at;
            cursor->begin = cursor->at;
            cursor->filled = left < PIECE ? (size_t)left : PIECE;
            enum ddp_status status =
                ddp_input_file_read(cursor->file, cursor->begin, cursor->piece, cursor->filled);
            if (status != DDP_OK)
                return status;
        }
        const size_t from = (size_t)(cursor->at - cursor->begin);
        const size_t some = bytes < cursor->filled - from ? bytes : cursor->filled - from;
        memcpy(out, cursor->piece + from, some);
        out += some;
        cursor->at += some;
        bytes -= some;
    }
    return DDP_OK;
}

static enum ddp_status take_u32(struct cursor *cursor, uint32_t *value)
{
    return take(cursor, value, sizeof *value);
}

/* A count of things that take at least `width` bytes each. */
static enum ddp_status take_count(struct cursor *cursor, size_t width, uint64_t *value)
{
    enum ddp_status status = take(cursor, value, sizeof *value);
    if (status == DDP_OK && *value > (cursor->file->bytes - cursor->at) / width)
        status = fail_cut(cursor);
    return status;
}

/*   text [out]  freed with free() */
static enum ddp_status take_text(struct cursor *cursor, char **text, size_t *bytes)
{
    uint64_t count = 0;
    enum ddp_status status = take_count(cursor, 1, &count);
    if (status != DDP_OK)
        return status;
    *bytes = (size_t)count;
    if (count > HEADER_MOST) /* take() says so */
        return take(cursor, NULL, *bytes);
    *text = ddp_array_alloc(*bytes + 1, 1);
    status = *text ? take(cursor, *text, *bytes) : DDP_ERR_MEMORY;
    if (status == DDP_OK && (strlen(*text) != *bytes || !ddp_text_is_utf8(*text)))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: a text at byte %" PRIu64 " is not UTF-8",
                          cursor->file->path, cursor->at - *bytes);
    if (status != DDP_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

static enum ddp_status take_string(struct cursor *cursor, json_t **value)
{
    char *text;
    size_t bytes;
    enum ddp_status status = take_text(cursor, &text, &bytes);
    if (status != DDP_OK)
        return status;
    *value = json_stringn_nocheck(text, bytes);
    free(text);
    return DDP_OK;
}

/* A number that is not finite becomes null. */
static json_t *real_of(double value)
{
    json_t *real = json_real(value);
    return real ? real : json_null();
}

/* Any but an array. */
static enum ddp_status take_scalar(struct cursor *cursor, uint32_t kind, json_t **value)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } raw = {.u64 = 0};
    if (kind == STRING)
        return take_string(cursor, value);
    enum ddp_status status = take(cursor, &raw, widths[kind]);
    if (status != DDP_OK)
        return status;
    switch (kind) {
    case I8:
        *value = json_integer(raw.i8);
        break;
    case I16:
        *value = json_integer(raw.i16);
        break;
    case I32:
        *value = json_integer(raw.i32);
        break;
    case F32:
        *value = real_of((double)raw.f32);
        break;
    case F64:
        *value = real_of(raw.f64);
        break;
    case BOOL:
        *value = json_boolean(raw.u8);
        break;
    case U64:
        *value = raw.u64 > INT64_MAX ? json_null() : json_integer(raw.i64);
        break;
    default: /* those without a sign; the bytes above are 0 */
        *value = json_integer(raw.i64);
        break;
    }
    return DDP_OK;
}

static enum ddp_status fail_kind(const struct cursor *cursor, const char *key, uint32_t kind)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: %s has a value of the unknown type %" PRIu32,
                    cursor->file->path, key, kind);
}

static enum ddp_status take_array(struct cursor *cursor, const char *key, json_t *array)
{
    uint32_t kind = 0;
    uint64_t count = 0;
    enum ddp_status status = take_u32(cursor, &kind);
    if (status == DDP_OK && (kind >= KINDS || kind == ARRAY))
        status = fail_kind(cursor, key, kind);
    if (status == DDP_OK)
        status = take_count(cursor, widths[kind], &count);
    if (status == DDP_OK && count > VALUES_MOST - cursor->values)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %s brings the values in arrays to more than %d",
                          cursor->file->path, key, VALUES_MOST);
    cursor->values += status == DDP_OK ? (size_t)count : 0;
    for (uint64_t i = 0; status == DDP_OK && i < count; i++) {
        json_t *value = NULL;
        status = take_scalar(cursor, kind, &value);
        if (status == DDP_OK && json_array_append_new(array, value) != 0)
            status = ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", key);
    }
    return status;
}

static enum ddp_status take_pair(struct cursor *cursor, json_t *keys)
{
    char *key = NULL;
    size_t bytes;
    uint32_t kind = 0;
    json_t *value = NULL;
    enum ddp_status status = take_text(cursor, &key, &bytes);
    if (status == DDP_OK)
        status = take_u32(cursor, &kind);
    if (status == DDP_OK && json_object_get(keys, key))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the key %s is there twice", cursor->file->path, key);
    if (status == DDP_OK && kind >= KINDS)
        status = fail_kind(cursor, key, kind);
    if (status == DDP_OK && kind == ARRAY)
        status = (value = json_array()) ? take_array(cursor, key, value)
                                        : ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", key);
    else if (status == DDP_OK)
        status = take_scalar(cursor, kind, &value);
    if (status == DDP_OK && json_object_set(keys, key, value) != 0)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", key);
    json_decref(value);
    free(key);
    return status;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static enum ddp_status check_shape(const struct cursor *cursor,
                                   const struct ddp_gguf_tensor *tensor)
{
    const struct ddp_gguf_block *block = ddp_gguf_block(tensor->type);
    int64_t values = 1;
    for (int d = 0; d < tensor->dim_count; d++) {
        if (tensor->dims[d] < 1 || tensor->dims[d] > LARGEST / values)
            return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s has a dimension of %" PRId64,
                            cursor->file->path, tensor->name, tensor->dims[d]);
        values *= tensor->dims[d];
    }
    if (!block)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s is of the type %s (%d), which cannot be read: F32, F16, "
                        "BF16, Q8_0, Q5_0, Q4_0, Q4_K and Q6_K can",
                        cursor->file->path, tensor->name,
                        tensor->type >= 0 &&
                                tensor->type < (int)(sizeof other_names / sizeof *other_names) &&
                                other_names[tensor->type]
                            ? other_names[tensor->type]
                            : "unknown",
                        tensor->type);
    if (tensor->dims[0] % block->values != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s has rows of %" PRId64 " values, which %s cannot have",
                        cursor->file->path, tensor->name, tensor->dims[0], block->name);
    return DDP_OK;
}

static enum ddp_status take_tensor(struct cursor *cursor, struct ddp_gguf_tensor *tensor)
{
    char *name = NULL;
    size_t bytes;
    uint32_t number = 0;
    enum ddp_status status = take_text(cursor, &name, &bytes);
    if (status != DDP_OK)
        return status;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    if (bytes == 0 || bytes >= sizeof tensor->name)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: a tensor has a name of %zu bytes: %s",
                          cursor->file->path, bytes, tensor->name);
    free(name);
    if (status == DDP_OK)
        status = take_u32(cursor, &number);
    if (status == DDP_OK && (number < 1 || number > DDP_GGUF_DIMS))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s has %" PRIu32 " dimensions",
                          cursor->file->path, tensor->name, number);
    tensor->dim_count = (int)number;
    if (status == DDP_OK)
        status = take(cursor, tensor->dims, number * sizeof tensor->dims[0]);
    if (status == DDP_OK)
        status = take_u32(cursor, &number);
    tensor->type = number > INT32_MAX ? -1 : (int)number;
    if (status == DDP_OK)
        status = take(cursor, &tensor->offset, sizeof tensor->offset);
    return status == DDP_OK ? check_shape(cursor, tensor) : status;
}

static int compare_names(const void *left, const void *right)
{
    const struct ddp_gguf_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static enum ddp_status check_names(const struct ddp_gguf *gguf)
{
    enum ddp_status status = DDP_OK;
    const struct ddp_gguf_tensor **sorted = ddp_array_alloc(gguf->count, sizeof *sorted);
    if (!sorted)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < gguf->count; i++)
        sorted[i] = &gguf->tensors[i];
    qsort(sorted, gguf->count, sizeof *sorted, compare_names);
    for (size_t i = 1; status == DDP_OK && i < gguf->count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is there twice", gguf->file.path,
                              sorted[i]->name);
    free(sorted);
    return status;
}

/* Each tensor follows the one before it: none overlaps another, and all lie in the file. */
static enum ddp_status place_tensors(struct ddp_gguf *gguf, uint64_t end)
{
    const json_t *given = json_object_get(gguf->keys, "general.alignment");
    const json_int_t align = given ? json_integer_value(given) : DDP_GGUF_ALIGN;
    if (align < 1 || align > 1 << 20 || (align & (align - 1)) != 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: general.alignment is not a power of two up to 2^20",
                        gguf->file.path);
    const uint64_t begin = ddp_align_up(end, (size_t)align);
    uint64_t next = 0;
    for (size_t i = 0; i < gguf->count; i++) {
        struct ddp_gguf_tensor *tensor = &gguf->tensors[i];
        tensor->bytes = ddp_gguf_bytes(tensor);
        if (tensor->offset != next)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: tensor %s begins at byte %" PRIu64 " of the data, and the one "
                            "before it ends at %" PRIu64,
                            gguf->file.path, tensor->name, tensor->offset, next);
        tensor->offset += begin;
        if (tensor->offset + tensor->bytes > gguf->file.bytes)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: the file is cut: tensor %s ends at byte %" PRIu64 " of %" PRIu64,
                            gguf->file.path, tensor->name, tensor->offset + tensor->bytes,
                            gguf->file.bytes);
        next = ddp_align_up(next + tensor->bytes, (size_t)align);
    }
    return DDP_OK;
}

/* --- whole ------------------------------------------------------------------------------------ */

bool ddp_gguf_is(const char *path)
{
    char magic[4];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && pread(fd, magic, sizeof magic, 0) == sizeof magic &&
                    memcmp(magic, MAGIC, sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* The counts of tensors and keys. */
static enum ddp_status take_begin(struct cursor *cursor, uint64_t *tensors, uint64_t *keys)
{
    char magic[4] = "";
    uint32_t version = 0;
    enum ddp_status status = take(cursor, magic, sizeof magic);
    if (status == DDP_OK && memcmp(magic, MAGIC, sizeof magic) != 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: not a GGUF file", cursor->file->path);
    if (status == DDP_OK)
        status = take_u32(cursor, &version);
    if (status == DDP_OK && __builtin_bswap32(version) <= 0xffff)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: its bytes are in big-endian order, and little-endian files are read",
                        cursor->file->path);
    if (status == DDP_OK && version != GGUF_VERSION)
        return ddp_fail(DDP_ERR_FORMAT, "%s: version %" PRIu32 " of GGUF: only 3 can be read",
                        cursor->file->path, version);
    if (status == DDP_OK)
        status = take_count(cursor, 8 + 1 + 4 + 8 + 4 + 8, tensors);
    if (status == DDP_OK && *tensors > TENSORS_MOST)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %" PRIu64 " tensors: at most %d can be read",
                          cursor->file->path, *tensors, TENSORS_MOST);
    return status == DDP_OK ? take_count(cursor, 8 + 4 + 1, keys) : status;
}

/* last: the key that reading ends with, or NULL */
static enum ddp_status read_keys(struct ddp_gguf *gguf, struct cursor *cursor, const char *path,
                                 const char *last, uint64_t *tensors)
{
    uint64_t keys = 0;
    enum ddp_status status = ddp_input_file_open(&gguf->file, path, true);
    cursor->file = &gguf->file;
    if (status == DDP_OK)
        status = take_begin(cursor, tensors, &keys);
    for (uint64_t i = 0; status == DDP_OK && i < keys; i++) {
        status = take_pair(cursor, gguf->keys);
        if (last && json_object_get(gguf->keys, last))
            break;
    }
    return status;
}

/* One file, with its shard of the tensors; with `last` its keys up to that one alone. */
static enum ddp_status open_file(struct ddp_gguf *gguf, const char *path, const char *last)
{
    uint64_t tensors = 0;
    *gguf = (struct ddp_gguf){.keys = json_object(), .shard_count = 1};
    struct cursor *cursor = ddp_array_alloc(1, sizeof *cursor);
    enum ddp_status status =
        gguf->keys && cursor ? read_keys(gguf, cursor, path, last, &tensors) : DDP_ERR_MEMORY;
    if (last) {
        free(cursor);
        return status;
    }
    if (status == DDP_OK && !(gguf->tensors = ddp_array_alloc(tensors, sizeof *gguf->tensors)))
        status = DDP_ERR_MEMORY;
    for (; status == DDP_OK && gguf->count < tensors; gguf->count++)
        status = take_tensor(cursor, &gguf->tensors[gguf->count]);
    if (status == DDP_OK)
        status = place_tensors(gguf, cursor->at);
    free(cursor);
    return status;
}

/* --- several files ---------------------------------------------------------------------------- */

static int64_t split_key(const struct ddp_gguf *gguf, const char *key)
{
    const json_t *value = json_object_get(gguf->keys, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Adds the tensors of a shard, whose file is taken over. */
static enum ddp_status add_shard(struct ddp_gguf *gguf, struct ddp_gguf *shard, int index)
{
    const int64_t number = split_key(shard, "split.no"), count = split_key(shard, "split.count");
    if (number != index || count != gguf->shard_count)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: by its name it is shard %d of %d, and by its keys shard %" PRId64
                        " of %" PRId64,
                        shard->file.path, index + 1, gguf->shard_count, number + 1, count);
    if (gguf->count + shard->count > TENSORS_MOST)
        return ddp_fail(DDP_ERR_FORMAT, "%s: more than %d tensors in all shards", shard->file.path,
                        TENSORS_MOST);
    struct ddp_gguf_tensor *all =
        reallocarray(gguf->tensors, gguf->count + shard->count + 1, sizeof *all);
    if (!all)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    gguf->tensors = all;
    for (size_t i = 0; i < shard->count; i++) {
        shard->tensors[i].shard = index;
        all[gguf->count++] = shard->tensors[i];
    }
    gguf->more[index - 1] = shard->file;
    shard->file = (struct ddp_input_file){.fd = -1};
    return DDP_OK;
}

static enum ddp_status open_shards(struct ddp_gguf *gguf, const char *path, int count)
{
    char end[64];
    const int64_t total = split_key(gguf, "split.tensors.count");
    enum ddp_status status = DDP_OK;
    if (split_key(gguf, "split.no") != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: it is shard %" PRId64 " of %d of a model: load the first one, whose "
                        "name ends in -00001-of-%05d.gguf",
                        path, split_key(gguf, "split.no") + 1, count, count);
    snprintf(end, sizeof end, "-00001-of-%05d.gguf", count);
    if (!ddp_text_ends_with(path, end))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: it is the first of %d shards, and the others are found by its name, "
                        "which must end in %s",
                        path, count, end);
    if (!(gguf->more = ddp_array_alloc((size_t)count - 1, sizeof *gguf->more)))
        return DDP_ERR_MEMORY;
    gguf->shard_count = count;
    for (int i = 1; status == DDP_OK && i < count; i++) {
        struct ddp_gguf shard = {.count = 0};
        char *name;
        if (asprintf(&name, "%.*s-%05d-of-%05d.gguf", (int)(strlen(path) - strlen(end)), path,
                     i + 1, count) < 0)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory");
        status = access(name, F_OK) == 0
                     ? open_file(&shard, name, NULL)
                     : ddp_fail(DDP_ERR_IO, "%s: shard %d of the %d of this model is missing: %s",
                                path, i + 1, count, name);
        if (status == DDP_OK)
            status = add_shard(gguf, &shard, i);
        ddp_gguf_close(&shard);
        free(name);
    }
    if (status == DDP_OK && total != (int64_t)gguf->count)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: its shards have %zu tensors, and split.tensors.count says %" PRId64,
                          path, gguf->count, total);
    return status;
}

enum ddp_status ddp_gguf_open(struct ddp_gguf *gguf, const char *path)
{
    enum ddp_status status = open_file(gguf, path, NULL);
    const int64_t count = status == DDP_OK ? split_key(gguf, "split.count") : 0;
    if (count > SHARDS_MOST)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %" PRId64 " shards: at most %d can be read", path,
                          count, SHARDS_MOST);
    else if (count > 1)
        status = open_shards(gguf, path, (int)count);
    return status == DDP_OK ? check_names(gguf) : status;
}

void ddp_gguf_close(struct ddp_gguf *gguf)
{
    for (int i = 1; gguf->more && i < gguf->shard_count; i++)
        ddp_input_file_close(&gguf->more[i - 1]);
    free(gguf->more);
    ddp_input_file_close(&gguf->file);
    json_decref(gguf->keys);
    free(gguf->tensors);
    *gguf = (struct ddp_gguf){.count = 0};
}

enum ddp_status ddp_gguf_read_bytes(const struct ddp_gguf *gguf,
                                    const struct ddp_gguf_tensor *tensor, uint64_t from, void *to,
                                    size_t bytes)
{
    return ddp_input_file_read(tensor->shard ? &gguf->more[tensor->shard - 1] : &gguf->file,
                               tensor->offset + from, to, bytes);
}

const struct ddp_gguf_tensor *ddp_gguf_find(const struct ddp_gguf *gguf, const char *name)
{
    for (size_t i = 0; i < gguf->count; i++)
        if (strcmp(gguf->tensors[i].name, name) == 0)
            return &gguf->tensors[i];
    return NULL;
}

bool ddp_gguf_says(const struct ddp_gguf *gguf, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(gguf->keys, key));
    return value && strcmp(value, text) == 0;
}

bool ddp_gguf_is_of(const char *path, const char *key, const char *text)
{
    char unsaid[512];
    struct ddp_gguf gguf;
    if (!ddp_gguf_is(path))
        return false;
    const struct ddp_log_held before =
        ddp_log_exchange((struct ddp_log_held){unsaid, sizeof unsaid});
    const bool is = open_file(&gguf, path, key) == DDP_OK && ddp_gguf_says(&gguf, key, text);
    ddp_gguf_close(&gguf);
    ddp_log_exchange(before);
    return is;
}
