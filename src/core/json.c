/* SPDX-License-Identifier: MIT
 *
 * See json.h. Where jansson gets no memory it says anything, such as "string expected": a text
 * counts as bad only when it is so again, with memory at hand. */
#include "config.h"

#include "core/json.h"

#include "core/log.h"
#include "core/parse.h"

#include <inttypes.h>
#include <stdlib.h>

#define ROOM_FACTOR 64 /* a value of a few bytes of text takes about that many in memory each */
#define ROOM_LEAST  65536

enum ddp_status ddp_json_parse(json_t **root, const char *text, size_t bytes, json_error_t *error)
{
    return ddp_json_parse_flags(root, text, bytes, JSON_REJECT_DUPLICATES, error);
}

enum ddp_status ddp_json_parse_flags(json_t **root, const char *text, size_t bytes, size_t flags,
                                     json_error_t *error)
{
    for (int tries = 0; tries < 2; tries++) {
        *root = json_loadb(text, bytes, flags, error);
        if (*root)
            return DDP_OK;
        void *room = malloc(bytes * ROOM_FACTOR + ROOM_LEAST);
        if (!room)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory: a JSON text of %zu bytes", bytes);
        free(room);
    }
    return DDP_ERR_FORMAT;
}

enum ddp_status ddp_json_parse_object(json_t **root, const char *name, const char *text,
                                      size_t bytes, size_t flags)
{
    json_error_t error;
    enum ddp_status status = ddp_json_parse_flags(root, text, bytes, flags, &error);
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(status, "%s: bad JSON in line %d, column %d: %s", name, error.line,
                        error.column, error.text);
    if (status != DDP_OK || json_is_object(*root))
        return status;
    json_decref(*root);
    *root = NULL;
    return ddp_fail(DDP_ERR_FORMAT, "%s: it is not a JSON object", name);
}

/* Into memory of the right size, which never has to grow. */
char *ddp_json_text(const json_t *json, size_t flags)
{
    const size_t bytes = json_dumpb(json, NULL, 0, flags);
    char *text = bytes > 0 ? malloc(bytes + 1) : NULL;
    if (!text)
        return NULL;
    if (json_dumpb(json, text, bytes, flags) != bytes) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    return text;
}

json_t *ddp_json_uint64(uint64_t value)
{
    char digits[24];
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    return json_string(digits);
}

bool ddp_json_read_uint64(const json_t *json, uint64_t *value)
{
    if (json_is_string(json)) /* no second form of what an integer can hold */
        return ddp_parse_uint64(json_string_value(json), value) && *value > INT64_MAX;
    *value = (uint64_t)json_integer_value(json);
    return json_is_integer(json) && json_integer_value(json) >= 0;
}
