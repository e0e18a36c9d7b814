/* SPDX-License-Identifier: MIT
 *
 * See jinja_parts.h: memory, strings that know where they are from, values and their order. */
#include "config.h"

#include "data/text/jinja_parts.h"

#include "core/memory.h"
#include "data/text/nfc.h"

#include <math.h>
#include <stdarg.h>

#define BLOCK_BYTES ((size_t)16 << 10)

/* --- memory ----------------------------------------------------------------------------------- */

struct ddp_jinja_block {
    struct ddp_jinja_block *before;
    size_t used, bytes;
    max_align_t memory[];
};

void *ddp_jinja_alloc(struct ddp_jinja_arena *arena, size_t bytes)
{
    struct ddp_jinja_block *block = arena->last;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!block || block->bytes - block->used < bytes) {
        const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        arena->full = arena->full || room > arena->most - arena->bytes;
        if (arena->full)
            return NULL;
        block = ddp_array_alloc(1, sizeof *block + room);
        if (!block)
            return NULL;
        arena->bytes += room;
        *block = (struct ddp_jinja_block){.before = arena->last, .bytes = room};
        arena->last = block;
    }
    void *memory = (char *)block->memory + block->used;
    block->used += bytes;
    return memory;
}

void ddp_jinja_arena_free(struct ddp_jinja_arena *arena)
{
    while (arena->last) {
        struct ddp_jinja_block *before = arena->last->before;
        free(arena->last);
        arena->last = before;
    }
}

/* --- a run ------------------------------------------------------------------------------------ */

struct jinja_value ddp_jinja_fail(struct jinja_run *run, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (run->status == DDP_OK)
        run->status = ddp_fail(DDP_ERR_FORMAT, "%s: the chat template (%s, line %d): %s",
                               run->where, run->jinja->name, run->line, what);
    return (struct jinja_value){.type = JINJA_UNDEFINED};
}

bool ddp_jinja_work(struct jinja_run *run, size_t bytes)
{
    const uint64_t steps = 1 + bytes / 16;
    if (run->status != DDP_OK)
        return false;
    if (run->steps < steps) {
        (void)ddp_jinja_fail(run, "it does not end: stopped after millions of steps");
        return false;
    }
    run->steps -= steps;
    return true;
}

void *ddp_jinja_take(struct jinja_run *run, size_t count, size_t size)
{
    if (!ddp_jinja_work(run, count < SIZE_MAX / size ? count * size : SIZE_MAX))
        return NULL;
    void *memory = ddp_jinja_alloc(&run->arena, count * size);
    if (!memory && run->arena.full)
        (void)ddp_jinja_fail(run, "it does not end: stopped at %zu MiB", run->arena.most >> 20);
    else if (!memory)
        run->status = DDP_ERR_MEMORY;
    return memory;
}

/* --- strings ---------------------------------------------------------------------------------- */

void ddp_jinja_put(struct jinja_run *run, struct jinja_builder *builder, struct jinja_string text)
{
    if (!ddp_jinja_work(run, text.bytes))
        return;
    if (builder->room - builder->bytes <= text.bytes) {
        const size_t room = 2 * builder->bytes + text.bytes + 64;
        char *at = ddp_jinja_take(run, room, 1);
        uint16_t *owners = ddp_jinja_take(run, room, sizeof *owners);
        if (!at || !owners)
            return;
        if (builder->bytes > 0) {
            memcpy(at, builder->at, builder->bytes);
            memcpy(owners, builder->owners, builder->bytes * sizeof *owners);
        }
        *builder = (struct jinja_builder){at, owners, builder->bytes, room};
    }
    uint16_t *owners = builder->owners + builder->bytes;
    memcpy(builder->at + builder->bytes, text.at, text.bytes);
    for (size_t i = 0; i < text.bytes; i++)
        owners[i] = (uint16_t)((text.owners ? text.owners[i] : 0) |
                               (run->generating ? DDP_JINJA_GENERATED : 0));
    builder->bytes += text.bytes;
    builder->at[builder->bytes] = '\0';
}

void ddp_jinja_puts(struct jinja_run *run, struct jinja_builder *builder, const char *text)
{
    ddp_jinja_put(run, builder, (struct jinja_string){text, NULL, strlen(text)});
}

struct jinja_value ddp_jinja_built(const struct jinja_builder *builder)
{
    return ddp_jinja_string((struct jinja_string){builder->bytes > 0 ? builder->at : "",
                                                  builder->owners, builder->bytes});
}

struct jinja_string ddp_jinja_part(struct jinja_string text, size_t from, size_t to)
{
    return (struct jinja_string){text.at + from, text.owners ? text.owners + from : NULL,
                                 to > from ? to - from : 0};
}

size_t ddp_jinja_character(struct jinja_string text, size_t at)
{
    size_t bytes = 1;
    while (at + bytes < text.bytes && ((unsigned char)text.at[at + bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

size_t ddp_jinja_character_before(struct jinja_string text, size_t at)
{
    size_t bytes = 1;
    while (bytes < at && ((unsigned char)text.at[at - bytes] & 0xc0) == 0x80)
        bytes++;
    return bytes;
}

size_t ddp_jinja_search(struct jinja_run *run, struct jinja_string text, size_t from,
                        struct jinja_string what)
{
    const char *found =
        from <= text.bytes ? memmem(text.at + from, text.bytes - from, what.at, what.bytes) : NULL;
    const size_t at = found ? (size_t)(found - text.at) : SIZE_MAX;
    return ddp_jinja_work(run, (found ? at : text.bytes) - from) ? at : SIZE_MAX;
}

/* What Python strips. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Whether the character at `at` is to be dropped. */
static bool drops_character(struct jinja_string text, size_t at, size_t bytes,
                            const struct jinja_value *drops)
{
    if (drops->type == JINJA_STRING)
        return memmem(drops->text.at, drops->text.bytes, text.at + at, bytes) != NULL;
    size_t length;
    return is_space(ddp_utf8_decode(text.at + at, &length));
}

struct jinja_string ddp_jinja_strip(struct jinja_string text, struct jinja_value drops, bool left,
                                    bool right)
{
    size_t from = 0, to = text.bytes, bytes;
    while (left && from < to) {
        bytes = ddp_jinja_character(text, from);
        if (!drops_character(text, from, bytes, &drops))
            break;
        from += bytes;
    }
    while (right && to > from) {
        bytes = ddp_jinja_character_before(text, to);
        if (!drops_character(text, to - bytes, bytes, &drops))
            break;
        to -= bytes;
    }
    return ddp_jinja_part(text, from, to);
}

/* --- values ----------------------------------------------------------------------------------- */

struct jinja_value ddp_jinja_int(int64_t number)
{
    return (struct jinja_value){.type = JINJA_INT, .number = number};
}

struct jinja_value ddp_jinja_bool(bool is)
{
    return (struct jinja_value){.type = JINJA_BOOL, .number = is};
}

struct jinja_value ddp_jinja_string(struct jinja_string text)
{
    return (struct jinja_value){.type = JINJA_STRING, .text = text};
}

struct jinja_value ddp_jinja_text(const char *text)
{
    return ddp_jinja_string((struct jinja_string){text, NULL, strlen(text)});
}

struct jinja_value ddp_jinja_list(struct jinja_run *run, size_t count)
{
    struct jinja_value value = {.type = JINJA_LIST};
    value.list = ddp_jinja_take(run, 1, sizeof *value.list);
    struct jinja_value *at = ddp_jinja_take(run, count + 1, sizeof *at);
    if (!value.list || !at)
        return (struct jinja_value){.type = JINJA_UNDEFINED};
    *value.list = (struct jinja_list){at, count};
    return value;
}

const char *ddp_jinja_type_name(struct jinja_value value)
{
    static const char *const names[] = {
        "undefined", "none",        "a boolean", "a number", "a number",   "a string", "a list",
        "a dict",    "a namespace", "a loop",    "a macro",  "a function", "a method"};
    return names[value.type];
}

bool ddp_jinja_true(struct jinja_value value)
{
    switch (value.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
    case JINJA_INT:
        return value.number != 0;
    case JINJA_FLOAT:
        return value.real != 0;
    case JINJA_STRING:
        return value.text.bytes > 0;
    case JINJA_LIST:
        return value.list->count > 0;
    case JINJA_DICT:
        return value.dict->count > 0;
    default:
        return true;
    }
}

static bool is_number(struct jinja_value value)
{
    return value.type == JINJA_BOOL || value.type == JINJA_INT || value.type == JINJA_FLOAT;
}

static double as_real(struct jinja_value value)
{
    return value.type == JINJA_FLOAT ? value.real : (double)value.number;
}

static bool equal_parts(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    bool same;
    if (a.type == JINJA_LIST) {
        same = a.list->count == b.list->count && a.tuple == b.tuple;
        for (size_t i = 0; same && i < a.list->count; i++)
            same = ddp_jinja_equal(run, a.list->at[i], b.list->at[i]);
        return same;
    }
    same = a.dict->count == b.dict->count;
    for (size_t i = 0; same && i < a.dict->count; i++) {
        const struct jinja_value *other = ddp_jinja_find(b.dict, a.dict->at[i].key);
        same = other && ddp_jinja_equal(run, a.dict->at[i].value, *other);
    }
    return same;
}

bool ddp_jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (!ddp_jinja_work(run, 0))
        return false;
    if (is_number(a) && is_number(b))
        return a.type == JINJA_FLOAT || b.type == JINJA_FLOAT ? as_real(a) == as_real(b)
                                                              : a.number == b.number;
    if (a.type != b.type)
        return false;
    if (a.type == JINJA_STRING)
        return a.text.bytes == b.text.bytes && ddp_jinja_work(run, a.text.bytes) &&
               memcmp(a.text.at, b.text.at, a.text.bytes) == 0;
    if (a.type == JINJA_LIST || a.type == JINJA_DICT)
        return equal_parts(run, a, b);
    return a.type == JINJA_NONE || a.type == JINJA_UNDEFINED;
}

int ddp_jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (is_number(a) && is_number(b))
        return as_real(a) < as_real(b) ? -1 : as_real(a) > as_real(b);
    if (a.type != JINJA_STRING || b.type != JINJA_STRING) {
        (void)ddp_jinja_fail(run, "%s and %s have no order", ddp_jinja_type_name(a),
                             ddp_jinja_type_name(b));
        return 0;
    }
    const size_t least = a.text.bytes < b.text.bytes ? a.text.bytes : b.text.bytes;
    const int order = ddp_jinja_work(run, least) ? memcmp(a.text.at, b.text.at, least) : 0;
    return order ? order : a.text.bytes < b.text.bytes ? -1 : a.text.bytes > b.text.bytes;
}

bool ddp_jinja_contains(struct jinja_run *run, struct jinja_value in, struct jinja_value what)
{
    if (in.type == JINJA_UNDEFINED)
        return false;
    if (in.type == JINJA_STRING && what.type == JINJA_STRING)
        return ddp_jinja_search(run, in.text, 0, what.text) != SIZE_MAX;
    if (in.type == JINJA_DICT)
        return what.type == JINJA_STRING && ddp_jinja_work(run, 16 * in.dict->count) &&
               ddp_jinja_find(in.dict, what.text);
    if (in.type != JINJA_LIST)
        (void)ddp_jinja_fail(run, "%s is looked for in %s", ddp_jinja_type_name(what),
                             ddp_jinja_type_name(in));
    for (size_t i = 0; run->status == DDP_OK && i < in.list->count; i++)
        if (ddp_jinja_equal(run, in.list->at[i], what))
            return true;
    return false;
}

struct jinja_value *ddp_jinja_find(const struct jinja_dict *dict, struct jinja_string key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->at[i].key.bytes == key.bytes &&
            memcmp(dict->at[i].key.at, key.at, key.bytes) == 0)
            return &dict->at[i].value;
    return NULL;
}

void ddp_jinja_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_string key,
                   struct jinja_value value)
{
    struct jinja_value *there =
        ddp_jinja_work(run, 16 * dict->count) ? ddp_jinja_find(dict, key) : NULL;
    if (there) {
        *there = value;
        return;
    }
    if (dict->count == dict->room) {
        const size_t room = 2 * dict->room + 4;
        struct jinja_pair *at = ddp_jinja_take(run, room, sizeof *at);
        if (!at)
            return;
        if (dict->count > 0)
            memcpy(at, dict->at, dict->count * sizeof *at);
        dict->at = at;
        dict->room = room;
    }
    dict->at[dict->count++] = (struct jinja_pair){key, value};
}

size_t ddp_jinja_length(struct jinja_run *run, struct jinja_value value)
{
    size_t count = 0;
    switch (value.type) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_STRING:
        if (ddp_jinja_work(run, value.text.bytes))
            for (size_t i = 0; i < value.text.bytes; i++)
                count += ((unsigned char)value.text.at[i] & 0xc0) != 0x80;
        return count;
    case JINJA_LIST:
        return value.list->count;
    case JINJA_DICT:
        return value.dict->count;
    default:
        (void)ddp_jinja_fail(run, "%s has no length", ddp_jinja_type_name(value));
        return 0;
    }
}

const struct jinja_list *ddp_jinja_iterate(struct jinja_run *run, struct jinja_value value)
{
    static const struct jinja_list none = {NULL, 0};
    if (value.type == JINJA_LIST)
        return value.list;
    if (value.type != JINJA_STRING && value.type != JINJA_DICT) {
        if (value.type != JINJA_UNDEFINED)
            (void)ddp_jinja_fail(run, "%s is no list", ddp_jinja_type_name(value));
        return &none;
    }
    const struct jinja_value list = ddp_jinja_list(run, ddp_jinja_length(run, value));
    if (run->status != DDP_OK)
        return &none;
    for (size_t i = 0, at = 0; i < list.list->count; i++) {
        if (value.type == JINJA_DICT) {
            list.list->at[i] = ddp_jinja_string(value.dict->at[i].key);
            continue;
        }
        const size_t bytes = ddp_jinja_character(value.text, at);
        list.list->at[i] = ddp_jinja_string(ddp_jinja_part(value.text, at, at + bytes));
        at += bytes;
    }
    return list.list;
}

struct jinja_value ddp_jinja_arg(const struct jinja_args *args, size_t index, const char *name)
{
    if (index < args->count)
        return args->at[index];
    for (size_t i = 0; i < args->named_count; i++)
        if (ddp_jinja_is(args->named[i].key, name))
            return args->named[i].value;
    return (struct jinja_value){.type = JINJA_UNDEFINED};
}
