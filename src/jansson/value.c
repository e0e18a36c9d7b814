/* SPDX-License-Identifier: MIT
 *
 * See jansson.h: values, made and asked. */
#include "config.h"

#include "jansson/value.h"

#include "core/hash.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

json_t *json_value(enum json_kind kind)
{
    json_t *value = calloc(1, sizeof *value);
    if (value)
        value->kind = kind;
    return value;
}

void json_decref(json_t *value)
{
    if (!value)
        return;
    for (size_t i = 0; i < value->count; i++) {
        free(value->members[i].key);
        json_decref(value->members[i].value);
    }
    free(value->members);
    free(value->slots);
    free(value->text);
    free(value);
}

size_t json_utf8(const unsigned char *text, size_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (bytes == 0)
        return 0;
    if (text[0] < 0x80)
        return 1;
    const size_t count = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4 || bytes < count)
        return 0;
    uint32_t code = text[0] & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if (code < least[count] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return count;
}

json_t *json_text(const char *text, size_t length)
{
    json_t *value = json_value(JSON_STRING);
    if (!value)
        return NULL;
    value->text = malloc(length + 1);
    if (!value->text) {
        json_decref(value);
        return NULL;
    }
    memcpy(value->text, text, length);
    value->text[length] = '\0';
    value->length = length;
    return value;
}

json_t *json_string(const char *text)
{
    if (!text)
        return NULL;
    const size_t length = strlen(text);
    size_t step;
    for (size_t at = 0; at < length; at += step) {
        step = json_utf8((const unsigned char *)text + at, length - at);
        if (step == 0)
            return NULL;
    }
    return json_text(text, length);
}

json_t *json_object(void)
{
    return json_value(JSON_OBJECT);
}

json_t *json_array(void)
{
    return json_value(JSON_ARRAY);
}

json_t *json_null(void)
{
    return json_value(JSON_NULL);
}

json_t *json_integer(json_int_t integer)
{
    json_t *value = json_value(JSON_INTEGER);
    if (value)
        value->integer = integer;
    return value;
}

json_t *json_real(double real)
{
    json_t *value = isfinite(real) ? json_value(JSON_REAL) : NULL;
    if (value)
        value->real = real;
    return value;
}

/* --- members ---------------------------------------------------------------------------------- */

/* The slot of a key, or the empty one that it would have. */
static uint32_t *slot_of(const json_t *object, const char *key)
{
    const size_t mask = object->slot_count - 1;
    size_t at = (size_t)ddp_hash(key, strlen(key)) & mask;
    while (object->slots[at] && strcmp(object->members[object->slots[at] - 1].key, key) != 0)
        at = (at + 1) & mask;
    return &object->slots[at];
}

/* At least half of the slots stay empty. */
static bool make_slots(json_t *object)
{
    if (object->slot_count > 2 * object->count)
        return true;
    const size_t count = object->slot_count ? 2 * object->slot_count : 8;
    uint32_t *slots = count <= UINT32_MAX / 2 ? calloc(count, sizeof *slots) : NULL;
    if (!slots)
        return false;
    free(object->slots);
    object->slots = slots;
    object->slot_count = count;
    for (size_t i = 0; i < object->count; i++)
        *slot_of(object, object->members[i].key) = (uint32_t)i + 1;
    return true;
}

static bool make_room(json_t *parent)
{
    if (parent->count < parent->room)
        return true;
    const size_t room = parent->room ? 2 * parent->room : 8;
    struct json_member *members = room <= SIZE_MAX / sizeof *members
                                      ? realloc(parent->members, room * sizeof *members)
                                      : NULL;
    if (!members)
        return false;
    parent->members = members;
    parent->room = room;
    return true;
}

int json_object_set_new(json_t *object, const char *key, json_t *value)
{
    char *copy = NULL;
    if (!json_is_object(object) || !key || !value || !make_slots(object))
        goto failed;
    uint32_t *slot = slot_of(object, key);
    if (*slot) {
        json_decref(object->members[*slot - 1].value);
        object->members[*slot - 1].value = value;
        return 0;
    }
    copy = strdup(key);
    if (!copy || !make_room(object))
        goto failed;
    object->members[object->count] = (struct json_member){copy, value};
    *slot = (uint32_t)++object->count;
    return 0;
failed:
    free(copy);
    json_decref(value);
    return -1;
}

int json_array_append_new(json_t *array, json_t *value)
{
    if (!json_is_array(array) || !value || !make_room(array)) {
        json_decref(value);
        return -1;
    }
    array->members[array->count++] = (struct json_member){NULL, value};
    return 0;
}

json_t *json_object_get(const json_t *object, const char *key)
{
    if (!json_is_object(object) || !key || object->count == 0)
        return NULL;
    const uint32_t slot = *slot_of(object, key);
    return slot ? object->members[slot - 1].value : NULL;
}

bool json_standin_member(const json_t *object, size_t index, const char **key, json_t **value)
{
    if (!json_is_object(object) || index >= object->count)
        return false;
    *key = object->members[index].key;
    *value = object->members[index].value;
    return true;
}

size_t json_object_size(const json_t *object)
{
    return json_is_object(object) ? object->count : 0;
}

size_t json_array_size(const json_t *array)
{
    return json_is_array(array) ? array->count : 0;
}

json_t *json_array_get(const json_t *array, size_t index)
{
    return index < json_array_size(array) ? array->members[index].value : NULL;
}

/* --- what a value is -------------------------------------------------------------------------- */

static bool is(const json_t *value, enum json_kind kind)
{
    return value && value->kind == kind;
}

bool json_is_object(const json_t *value)
{
    return is(value, JSON_OBJECT);
}

bool json_is_array(const json_t *value)
{
    return is(value, JSON_ARRAY);
}

bool json_is_string(const json_t *value)
{
    return is(value, JSON_STRING);
}

bool json_is_integer(const json_t *value)
{
    return is(value, JSON_INTEGER);
}

bool json_is_number(const json_t *value)
{
    return is(value, JSON_INTEGER) || is(value, JSON_REAL);
}

bool json_is_boolean(const json_t *value)
{
    return is(value, JSON_TRUE) || is(value, JSON_FALSE);
}

bool json_is_true(const json_t *value)
{
    return is(value, JSON_TRUE);
}

bool json_is_null(const json_t *value)
{
    return is(value, JSON_NULL);
}

const char *json_string_value(const json_t *value)
{
    return json_is_string(value) ? value->text : NULL;
}

size_t json_string_length(const json_t *value)
{
    return json_is_string(value) ? value->length : 0;
}

json_int_t json_integer_value(const json_t *value)
{
    return json_is_integer(value) ? value->integer : 0;
}

double json_real_value(const json_t *value)
{
    return is(value, JSON_REAL) ? value->real : 0;
}

double json_number_value(const json_t *value)
{
    return json_is_integer(value) ? (double)value->integer : json_real_value(value);
}
