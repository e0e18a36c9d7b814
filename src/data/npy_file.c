/* SPDX-License-Identifier: MIT
 *
 * See npy_file.h. The header is a Python dictionary of three entries, written as text. */
#include "config.h"

#include "data/npy_file.h"

#include "core/bf16.h"
#include "core/log.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC        "\x93NUMPY"
#define MAGIC_BYTES  6
#define HEADER_LIMIT (1u << 20) /* NumPy's are 118 bytes long */

/* --- the dictionary --------------------------------------------------------------------------- */

struct text {
    const char *at, *end;
    const char *name; /* of the file */
};

enum field { DESCR, FORTRAN_ORDER, SHAPE, FIELDS };

static const char *const field_names[FIELDS] = {"descr", "fortran_order", "shape"};

static enum ddp_status bad(const struct text *t, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: its NumPy header is damaged: %s", t->name, what);
}

static void skip_space(struct text *t)
{
    while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at)
        t->at++;
}

/* Takes the character, after space; false: another one is there. */
static bool take(struct text *t, char c)
{
    skip_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

/* A string in quotes, without escapes. */
static bool take_string(struct text *t, const char **string, size_t *length)
{
    skip_space(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    const char quote = *t->at++;
    *string = t->at;
    while (t->at < t->end && *t->at != quote && *t->at != '\\')
        t->at++;
    if (t->at == t->end || *t->at != quote)
        return false;
    *length = (size_t)(t->at++ - *string);
    return true;
}

static bool take_word(struct text *t, const char *word)
{
    const size_t length = strlen(word);
    skip_space(t);
    if ((size_t)(t->end - t->at) < length || memcmp(t->at, word, length) != 0)
        return false;
    t->at += length;
    return true;
}

/* "<f4": byte order, kind, width. */
static enum ddp_status read_descr(struct text *t, struct ddp_npy *npy)
{
    static const char *const known[] = {"f2", "f4", "f8", "u1", "u2", "u4",
                                        "u8", "i1", "i2", "i4", "i8", "b1"};
    const char *string;
    size_t length;
    skip_space(t);
    if (t->at < t->end && *t->at == '[')
        return ddp_fail(DDP_ERR_FORMAT, "%s: records of several fields cannot be read", t->name);
    if (!take_string(t, &string, &length))
        return bad(t, "descr is not a string");
    if (length != 3)
        return ddp_fail(DDP_ERR_FORMAT, "%s: values of type '%.*s' cannot be read", t->name,
                        length < 40 ? (int)length : 40, string);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (memcmp(string + 1, known[i], 2) == 0) {
            npy->kind = string[1];
            npy->width = string[2] - '0';
        }
    if (!npy->kind || !strchr("<>|=", *string))
        return ddp_fail(DDP_ERR_FORMAT, "%s: values of type '%.3s' cannot be read", t->name,
                        string);
    if (*string == '>' && npy->width > 1)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: big-endian values ('%.3s'): only little-endian ones can be read: save "
                        "it as a.astype('<%.2s')",
                        t->name, string, string + 1);
    return DDP_OK;
}

/* "(3, 4)", "(3,)" or "()" */
static enum ddp_status read_shape(struct text *t, struct ddp_npy *npy)
{
    if (!take(t, '('))
        return bad(t, "shape is not a tuple");
    while (!take(t, ')')) {
        int64_t size = 0;
        int digits = 0;
        skip_space(t);
        for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++, digits++)
            if (__builtin_mul_overflow(size, 10, &size) ||
                __builtin_add_overflow(size, *t->at - '0', &size))
                return bad(t, "a size in its shape is too large");
        if (digits > 0 && t->at < t->end && *t->at == 'L') /* Python 2's */
            t->at++;
        if (digits == 0)
            return bad(t, "a size in its shape is not a number");
        if (npy->dim_count == DDP_NPY_MAX_DIMS)
            return ddp_fail(DDP_ERR_FORMAT, "%s: an array of more than %d dimensions", t->name,
                            DDP_NPY_MAX_DIMS);
        npy->dims[npy->dim_count++] = size;
        if (take(t, ','))
            continue;
        if (npy->dim_count == 1 || !take(t, ')'))
            return bad(t, "its shape is not a tuple");
        break;
    }
    return DDP_OK;
}

static enum ddp_status read_field(struct text *t, enum field field, struct ddp_npy *npy,
                                  bool *fortran)
{
    switch (field) {
    case DESCR:
        return read_descr(t, npy);
    case FORTRAN_ORDER:
        *fortran = take_word(t, "True");
        return *fortran || take_word(t, "False") ? DDP_OK
                                                 : bad(t, "fortran_order is not True or False");
    default:
        return read_shape(t, npy);
    }
}

static enum ddp_status read_dictionary(struct text *t, struct ddp_npy *npy)
{
    bool seen[FIELDS] = {false}, fortran = false;
    if (!take(t, '{'))
        return bad(t, "it is not a dictionary");
    while (!take(t, '}')) {
        const char *key;
        size_t length;
        int field = 0;
        if (!take_string(t, &key, &length) || !take(t, ':'))
            return bad(t, "it is not a dictionary");
        while (field < FIELDS && (strlen(field_names[field]) != length ||
                                  memcmp(field_names[field], key, length) != 0))
            field++;
        if (field == FIELDS)
            return bad(t, "an unknown field");
        if (seen[field])
            return bad(t, "a field is there twice");
        seen[field] = true;
        enum ddp_status status = read_field(t, (enum field)field, npy, &fortran);
        if (status != DDP_OK)
            return status;
        if (!take(t, ',') && (skip_space(t), t->at == t->end || *t->at != '}'))
            return bad(t, "it is not a dictionary");
    }
    skip_space(t);
    if (t->at != t->end)
        return bad(t, "something follows the dictionary");
    for (int i = 0; i < FIELDS; i++)
        if (!seen[i])
            return ddp_fail(DDP_ERR_FORMAT, "%s: its NumPy header is damaged: %s is missing",
                            t->name, field_names[i]);
    if (fortran && npy->dim_count > 1)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: an array in Fortran order: save numpy.ascontiguousarray(a)", t->name);
    return DDP_OK;
}

/* --- the file --------------------------------------------------------------------------------- */

static enum ddp_status check_sizes(struct ddp_npy *npy)
{
    const uint64_t rest = npy->blob.bytes - npy->offset;
    uint64_t bytes = (uint64_t)npy->width;
    for (int i = 0; i < npy->dim_count; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)npy->dims[i], &bytes) || bytes > INT64_MAX)
            return ddp_fail(DDP_ERR_FORMAT, "%s: the sizes in its header are too large",
                            npy->blob.name);
    if (bytes != rest)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s: its header announces %" PRIu64 " bytes of data, there are "
                        "%" PRIu64,
                        npy->blob.name, rest < bytes ? "truncated" : "too long", bytes, rest);
    npy->count = bytes / (uint64_t)npy->width;
    return DDP_OK;
}

/* The first bytes: where the dictionary begins and how long it is. */
static enum ddp_status read_start(const struct ddp_blob *blob, uint64_t *begin, uint32_t *length)
{
    unsigned char buffer[12];
    const unsigned char *start;
    const size_t wanted = blob->bytes < sizeof buffer ? (size_t)blob->bytes : sizeof buffer;
    enum ddp_status status = ddp_blob_at(blob, 0, wanted, buffer, &start);
    if (status != DDP_OK)
        return status;
    if (wanted < 10 || memcmp(start, MAGIC, MAGIC_BYTES) != 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s", blob->name,
                        wanted < 10 ? "truncated: shorter than a NumPy header"
                                    : "not a NumPy array: the magic string is missing");
    const unsigned version = start[6];
    if (version < 1 || version > 3)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: version %u.%u of NumPy's format: 1.0 to 3.0 can be read", blob->name,
                        version, start[7]);
    *begin = version == 1 ? 10 : 12;
    *length = start[8] | (uint32_t)start[9] << 8;
    if (version > 1 && wanted == sizeof buffer)
        *length |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
    if (*begin > blob->bytes || *length > blob->bytes - *begin)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: truncated: a NumPy header of %" PRIu32 " bytes does not fit in it",
                        blob->name, *length);
    if (*length > HEADER_LIMIT)
        return ddp_fail(DDP_ERR_FORMAT, "%s: a NumPy header of %" PRIu32 " bytes is too large",
                        blob->name, *length);
    return DDP_OK;
}

enum ddp_status ddp_npy_open(struct ddp_npy *npy, const struct ddp_blob *blob)
{
    uint64_t begin = 0;
    uint32_t length = 0;
    const unsigned char *header;
    struct ddp_npy result = {.blob = *blob};
    enum ddp_status status = read_start(blob, &begin, &length);
    if (status != DDP_OK)
        return status;
    char *buffer = malloc(length + 1);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", blob->name);
    status = ddp_blob_at(blob, begin, length, buffer, &header);
    if (status == DDP_OK) {
        struct text text = {(const char *)header, (const char *)header + length, blob->name};
        status = read_dictionary(&text, &result);
    }
    free(buffer);
    result.offset = begin + length;
    if (status == DDP_OK)
        status = check_sizes(&result);
    if (status == DDP_OK)
        *npy = result;
    return status;
}

const char *ddp_npy_describe(const struct ddp_npy *npy, char *text, size_t size)
{
    const char *kind = npy->kind == 'f' ? "float" : npy->kind == 'i' ? "int" : "uint";
    int used = npy->kind == 'b' ? snprintf(text, size, "bool of (")
                                : snprintf(text, size, "%s%d of (", kind, 8 * npy->width);
    for (int i = 0; i < npy->dim_count && used < (int)size; i++)
        used +=
            snprintf(text + used, size - (size_t)used, "%s%" PRId64, i ? ", " : "", npy->dims[i]);
    if (used < (int)size)
        snprintf(text + used, size - (size_t)used, npy->dim_count == 1 ? ",)" : ")");
    return text;
}

/* --- values ----------------------------------------------------------------------------------- */

static uint64_t load(const unsigned char *value, int width)
{
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (width) { /* constant sizes: one instruction each */
    case 1:
        return *value;
    case 2:
        memcpy(&two, value, sizeof two);
        return le16toh(two);
    case 4:
        memcpy(&four, value, sizeof four);
        return le32toh(four);
    default:
        memcpy(&eight, value, sizeof eight);
        return le64toh(eight);
    }
}

int64_t ddp_npy_to_integer(const struct ddp_npy *npy, const unsigned char *value)
{
    const uint64_t bits = load(value, npy->width);
    if (npy->kind == 'b')
        return bits != 0;
    if (npy->kind == 'u')
        return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    const int unused = 64 - 8 * npy->width;
    return (int64_t)(bits << unused) >> unused;
}

static void halves_to_floats(const unsigned char *values, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = ddp_f16_to_f32((uint16_t)load(values + 2 * i, 2));
}

static void doubles_to_floats(const unsigned char *values, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = load(values + 8 * i, 8);
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        out[i] = (float)wide;
    }
}

static void floats_to_floats(const unsigned char *values, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)load(values + 4 * i, 4);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

void ddp_npy_to_floats(const struct ddp_npy *npy, const unsigned char *values, size_t count,
                       float *out)
{
    if (npy->kind == 'f' && npy->width == 2)
        halves_to_floats(values, count, out);
    else if (npy->kind == 'f' && npy->width == 8)
        doubles_to_floats(values, count, out);
    else if (npy->kind == 'f')
        floats_to_floats(values, count, out);
    else if (npy->kind == 'u')
        for (size_t i = 0; i < count; i++)
            out[i] = (float)load(values + (size_t)npy->width * i, npy->width);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = (float)ddp_npy_to_integer(npy, values + (size_t)npy->width * i);
}
