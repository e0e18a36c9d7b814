/* SPDX-License-Identifier: MIT
 *
 * Stands in for the library jansson where that is not installed: what this project calls of it,
 * with the same names, meaning and output. A value has one owner, so there are no counts of
 * references. */
#ifndef DDP_JANSSON_H
#define DDP_JANSSON_H

#include <stdbool.h>
#include <stddef.h>

#define JANSSON_VERSION "none"

#define JSON_REJECT_DUPLICATES 0x1u
#define JSON_ALLOW_NUL         0x10u

#define JSON_INDENT(spaces)         ((unsigned)(spaces)&0x1fu)
#define JSON_COMPACT                0x20u
#define JSON_PRESERVE_ORDER         0x100u /* always so here */
#define JSON_ENCODE_ANY             0x200u /* any value may always be written */
#define JSON_REAL_PRECISION(digits) (((unsigned)(digits)&0x1fu) << 11)

#define JSON_INTEGER_FORMAT "lld"

typedef long long json_int_t;
typedef struct json_t json_t;

typedef struct {
    int line;
    int position; /* in bytes */
    char text[160];
} json_error_t;

json_t *json_loadb(const char *text, size_t bytes, unsigned flags, json_error_t *error);
json_t *json_loads(const char *text, unsigned flags, json_error_t *error);
char *json_dumps(const json_t *value, unsigned flags);
void json_decref(json_t *value);

/* {s:s, s:o} and so on: { } [ ] s (text) i (int) I (json_int_t) f (double) b (truth) o (a value,
 * which is taken), o? (null for NULL). */
json_t *json_pack(const char *format, ...);

json_t *json_object(void);
json_t *json_array(void);
json_t *json_string(const char *text); /* NULL: not UTF-8 */
json_t *json_integer(json_int_t value);
json_t *json_real(double value);
json_t *json_null(void);
/* These take the value, also when they fail (-1). */
int json_object_set_new(json_t *object, const char *key, json_t *value);
int json_array_append_new(json_t *array, json_t *value);

/* What is of another kind has no members, is "" or rather NULL, is 0. */
json_t *json_object_get(const json_t *object, const char *key);
size_t json_object_size(const json_t *object);
size_t json_array_size(const json_t *array);
json_t *json_array_get(const json_t *array, size_t index);
const char *json_string_value(const json_t *value);
size_t json_string_length(const json_t *value);
json_int_t json_integer_value(const json_t *value);
double json_real_value(const json_t *value);
double json_number_value(const json_t *value);
bool json_is_object(const json_t *value);
bool json_is_array(const json_t *value);
bool json_is_string(const json_t *value);
bool json_is_integer(const json_t *value);
bool json_is_number(const json_t *value);
bool json_is_boolean(const json_t *value);
bool json_is_true(const json_t *value);
bool json_is_null(const json_t *value);

bool json_standin_member(const json_t *object, size_t index, const char **key, json_t **value);
#define json_object_foreach(object, key, value)                                                    \
    for (size_t json_at = 0; json_standin_member(object, json_at, &(key), &(value)); json_at++)

#endif
