/* SPDX-License-Identifier: MIT
 *
 * See jinja.h: members, elements and parts of values, and methods of dicts. */
#include "config.h"

#include "data/text/jinja_parts.h"

static const struct jinja_value undefined = {.type = JINJA_UNDEFINED};

static struct jinja_value get(struct jinja_run *run, struct jinja_value of, struct jinja_args *args)
{
    const struct jinja_value key = ddp_jinja_arg(args, 0, "key");
    const struct jinja_value *found =
        key.type == JINJA_STRING && ddp_jinja_work(run, 16 * of.dict->count)
            ? ddp_jinja_find(of.dict, key.text)
            : NULL;
    if (found)
        return *found;
    return args->count > 1 ? args->at[1] : (struct jinja_value){.type = JINJA_NONE};
}

static struct jinja_value pair(struct jinja_run *run, const struct jinja_pair *from)
{
    struct jinja_value made = ddp_jinja_list(run, 2);
    if (run->status != DDP_OK)
        return made;
    made.tuple = true;
    made.list->at[0] = ddp_jinja_string(from->key);
    made.list->at[1] = from->value;
    return made;
}

struct jinja_value ddp_jinja_items(struct jinja_run *run, struct jinja_value of,
                                   struct jinja_args *args)
{
    (void)args;
    if (of.type == JINJA_UNDEFINED)
        return ddp_jinja_list(run, 0);
    if (of.type != JINJA_DICT)
        return ddp_jinja_fail(run, "items of %s", ddp_jinja_type_name(of));
    const struct jinja_value out = ddp_jinja_list(run, of.dict->count);
    for (size_t i = 0; run->status == DDP_OK && i < of.dict->count; i++)
        out.list->at[i] = pair(run, &of.dict->at[i]);
    return out;
}

struct jinja_value ddp_jinja_keys(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args)
{
    (void)args;
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    return (struct jinja_value){.type = JINJA_LIST, .list = (struct jinja_list *)list};
}

static struct jinja_value values(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    (void)args;
    const struct jinja_value out = ddp_jinja_list(run, of.dict->count);
    for (size_t i = 0; run->status == DDP_OK && i < of.dict->count; i++)
        out.list->at[i] = of.dict->at[i].value;
    return out;
}

static const struct jinja_named of_dicts[] = {
    {"get", get},
    {"items", ddp_jinja_items},
    {"keys", ddp_jinja_keys},
    {"values", values},
};

static jinja_function *named_method(struct jinja_value of, struct jinja_string name)
{
    return of.type == JINJA_STRING ? ddp_jinja_of_strings(name, false)
           : of.type == JINJA_DICT
               ? ddp_jinja_named(of_dicts, sizeof of_dicts / sizeof *of_dicts, name)
               : NULL;
}

bool ddp_jinja_has_method(struct jinja_value of, struct jinja_string name)
{
    return named_method(of, name) != NULL;
}

struct jinja_value ddp_jinja_method(struct jinja_run *run, struct jinja_string name,
                                    struct jinja_value of, struct jinja_args *args)
{
    return named_method(of, name)(run, of, args);
}

static struct jinja_value loop_member(const struct jinja_loop *loop, struct jinja_string name)
{
    const size_t count = loop->list->count, index = loop->index;
    if (ddp_jinja_is(name, "index0") || ddp_jinja_is(name, "index"))
        return ddp_jinja_int((int64_t)index + (name.bytes == strlen("index")));
    if (ddp_jinja_is(name, "revindex0") || ddp_jinja_is(name, "revindex"))
        return ddp_jinja_int((int64_t)(count - index) - (name.bytes == strlen("revindex0")));
    if (ddp_jinja_is(name, "first"))
        return ddp_jinja_bool(index == 0);
    if (ddp_jinja_is(name, "last"))
        return ddp_jinja_bool(index + 1 == count);
    if (ddp_jinja_is(name, "length"))
        return ddp_jinja_int((int64_t)count);
    if (ddp_jinja_is(name, "depth") || ddp_jinja_is(name, "depth0"))
        return ddp_jinja_int(name.bytes == strlen("depth"));
    if (ddp_jinja_is(name, "previtem") && index > 0)
        return loop->list->at[index - 1];
    if (ddp_jinja_is(name, "nextitem") && index + 1 < count)
        return loop->list->at[index + 1];
    return (struct jinja_value){.type = JINJA_UNDEFINED, .text = name};
}

static struct jinja_value method_of(struct jinja_run *run, struct jinja_value of,
                                    struct jinja_string name)
{
    struct jinja_value method = ddp_jinja_list(run, 1);
    if (run->status != DDP_OK)
        return undefined;
    method.type = JINJA_METHOD;
    method.text = name;
    method.list->at[0] = of;
    return method;
}

struct jinja_value ddp_jinja_member(struct jinja_run *run, struct jinja_value of,
                                    struct jinja_string name)
{
    struct jinja_value *found = NULL;
    if (of.type == JINJA_UNDEFINED)
        return ddp_jinja_fail(run, "%.*s is undefined, so it has no %.*s", (int)of.text.bytes,
                              of.text.at ? of.text.at : "", (int)name.bytes, name.at);
    if (of.type == JINJA_LOOP)
        return loop_member(of.loop, name);
    if (ddp_jinja_has_method(of, name))
        return method_of(run, of, name);
    if (of.type == JINJA_DICT || of.type == JINJA_NAMESPACE)
        found = ddp_jinja_work(run, 16 * of.dict->count) ? ddp_jinja_find(of.dict, name) : NULL;
    return found ? *found : (struct jinja_value){.type = JINJA_UNDEFINED, .text = name};
}

struct jinja_value ddp_jinja_item(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_value key)
{
    if (key.type == JINJA_STRING) {
        struct jinja_value *found =
            of.type == JINJA_DICT && ddp_jinja_work(run, 16 * of.dict->count)
                ? ddp_jinja_find(of.dict, key.text)
                : NULL;
        return found ? *found : ddp_jinja_member(run, of, key.text);
    }
    if (of.type == JINJA_UNDEFINED)
        return ddp_jinja_member(run, of, ddp_jinja_text("element").text);
    if ((of.type != JINJA_LIST && of.type != JINJA_STRING) || key.type != JINJA_INT)
        return undefined;
    const int64_t count = (int64_t)ddp_jinja_length(run, of);
    const int64_t index = key.number < 0 ? key.number + count : key.number;
    if (index < 0 || index >= count)
        return (struct jinja_value){.type = JINJA_UNDEFINED,
                                    .text = ddp_jinja_text("element").text};
    if (of.type == JINJA_LIST)
        return of.list->at[index];
    size_t at = 0;
    for (int64_t i = 0; i < index; i++)
        at += ddp_jinja_character(of.text, at);
    return ddp_jinja_string(ddp_jinja_part(of.text, at, at + ddp_jinja_character(of.text, at)));
}

/* A bound of a slice, as Python's slice.indices() has it. */
static int64_t bound(struct jinja_run *run, struct jinja_value value, int64_t none, int64_t count,
                     bool down)
{
    if (value.type == JINJA_NONE)
        return none;
    if (value.type != JINJA_INT)
        (void)ddp_jinja_fail(run, "a slice by %s", ddp_jinja_type_name(value));
    int64_t at = value.number < 0 ? value.number + count : value.number;
    const int64_t least = down ? -1 : 0, most = down ? count - 1 : count;
    return at < least ? least : at > most ? most : at;
}

struct jinja_value ddp_jinja_slice(struct jinja_run *run, struct jinja_value of,
                                   struct jinja_value from, struct jinja_value to,
                                   struct jinja_value by)
{
    const int64_t step = by.type == JINJA_INT ? by.number : 1;
    if (of.type != JINJA_LIST && of.type != JINJA_STRING)
        return ddp_jinja_fail(run, "a slice of %s", ddp_jinja_type_name(of));
    if (step == 0 || step < -INT32_MAX || step > INT32_MAX)
        return ddp_jinja_fail(run, "a slice with a step of 0, or a large one");
    const int64_t count = (int64_t)ddp_jinja_length(run, of);
    const int64_t begin = bound(run, from, step < 0 ? count - 1 : 0, count, step < 0);
    const int64_t end = bound(run, to, step < 0 ? -1 : count, count, step < 0);
    if (of.type == JINJA_STRING && step == 1) {
        size_t first = 0, last;
        for (int64_t i = 0; i < begin; i++)
            first += ddp_jinja_character(of.text, first);
        last = first;
        for (int64_t i = begin; i < end; i++)
            last += ddp_jinja_character(of.text, last);
        return ddp_jinja_string(ddp_jinja_part(of.text, first, last));
    }
    const struct jinja_list *all = ddp_jinja_iterate(run, of);
    const int64_t taken =
        step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
    const struct jinja_value out = ddp_jinja_list(run, taken > 0 ? (size_t)taken : 0);
    for (int64_t i = 0; run->status == DDP_OK && i < taken; i++)
        out.list->at[i] = all->at[begin + i * step];
    if (of.type == JINJA_LIST || run->status != DDP_OK)
        return out;
    struct jinja_builder builder = {0};
    for (size_t i = 0; i < out.list->count; i++)
        ddp_jinja_put(run, &builder, out.list->at[i].text);
    return ddp_jinja_built(&builder);
}
