/* SPDX-License-Identifier: MIT
 *
 * A value of JSON, for the three files of this folder. */
#ifndef DDP_JANSSON_VALUE_H
#define DDP_JANSSON_VALUE_H

#include "jansson/jansson.h"

#include <stdint.h>

enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_INTEGER,
    JSON_REAL,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json_t {
    enum json_kind kind;
    json_int_t integer;
    double real;
    char *text; /* of a string, with a zero behind */
    size_t length;
    struct json_member *members; /* of an array or object, in their order */
    size_t count, room;
    uint32_t *slots; /* of an object: where a key's member is, plus one; 0: nowhere */
    size_t slot_count;
};

struct json_member {
    char *key; /* NULL in an array */
    json_t *value;
};

json_t *json_value(enum json_kind kind);
json_t *json_text(const char *text, size_t length); /* which is not looked at */
/* The bytes of one character of UTF-8; 0: there is none. */
size_t json_utf8(const unsigned char *text, size_t bytes);

#endif
