/* SPDX-License-Identifier: MIT
 *
 * See jinja.h: filters, tests, functions, and methods of dicts. */
#include "config.h"

#include "data/text/jinja_parts.h"

#include <inttypes.h>
#include <stdio.h>

#define RANGE_MOST   100000 /* as in Jinja's sandbox */
#define COUNT(table) (sizeof(table) / sizeof *(table))

static const struct jinja_value undefined = {.type = JINJA_UNDEFINED};

/* --- of lists and dicts ----------------------------------------------------------------------- */

/* A copy in order, of equals the first first.
 *   by  sorts by this member of them; undefined: by themselves */
static struct jinja_value sorted(struct jinja_run *run, const struct jinja_list *list,
                                 struct jinja_value by, bool folded, bool down)
{
    const struct jinja_value out = ddp_jinja_list(run, list->count);
    const struct jinja_value sorts = ddp_jinja_list(run, list->count);
    for (size_t i = 0; run->status == DDP_OK && i < list->count; i++) {
        struct jinja_value key =
            ddp_jinja_given(by) ? ddp_jinja_item(run, list->at[i], by) : list->at[i];
        size_t at = i;
        if (folded && key.type == JINJA_STRING)
            key = ddp_jinja_lower(run, key);
        for (; at > 0 && run->status == DDP_OK; at--) {
            const int order = ddp_jinja_compare(run, sorts.list->at[at - 1], key);
            if (down ? order >= 0 : order <= 0)
                break;
            sorts.list->at[at] = sorts.list->at[at - 1];
            out.list->at[at] = out.list->at[at - 1];
        }
        sorts.list->at[at] = key;
        out.list->at[at] = list->at[i];
    }
    return out;
}

static struct jinja_value dictsort(struct jinja_run *run, struct jinja_value of,
                                   struct jinja_args *args)
{
    const struct jinja_value by = ddp_jinja_arg(args, 1, "by");
    const bool value = by.type == JINJA_STRING && ddp_jinja_is(by.text, "value");
    const struct jinja_value all = ddp_jinja_items(run, of, args);
    return run->status == DDP_OK ? sorted(run, all.list, ddp_jinja_int(value),
                                          !ddp_jinja_true(ddp_jinja_arg(args, 0, "case_sensitive")),
                                          ddp_jinja_true(ddp_jinja_arg(args, 2, "reverse")))
                                 : undefined;
}

static struct jinja_value sort(struct jinja_run *run, struct jinja_value of,
                               struct jinja_args *args)
{
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    return sorted(run, list, ddp_jinja_arg(args, 2, "attribute"),
                  !ddp_jinja_true(ddp_jinja_arg(args, 1, "case_sensitive")),
                  ddp_jinja_true(ddp_jinja_arg(args, 0, "reverse")));
}

static struct jinja_value first(struct jinja_run *run, struct jinja_value of,
                                struct jinja_args *args)
{
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    (void)args;
    return list->count > 0 ? list->at[0] : undefined;
}

static struct jinja_value last(struct jinja_run *run, struct jinja_value of,
                               struct jinja_args *args)
{
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    (void)args;
    return list->count > 0 ? list->at[list->count - 1] : undefined;
}

static struct jinja_value reverse(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args)
{
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    const struct jinja_value out = ddp_jinja_list(run, list->count);
    (void)args;
    for (size_t i = 0; run->status == DDP_OK && i < list->count; i++)
        out.list->at[i] = list->at[list->count - 1 - i];
    if (of.type == JINJA_STRING && run->status == DDP_OK) {
        struct jinja_args none = {.count = 0};
        return ddp_jinja_join(run, out, &none);
    }
    return out;
}

/* What map and select go through: nothing of none. */
static const struct jinja_list *each(struct jinja_run *run, struct jinja_value of)
{
    return ddp_jinja_iterate(run, of.type == JINJA_NONE ? undefined : of);
}

/* The least or the largest. */
static struct jinja_value extreme(struct jinja_run *run, struct jinja_value of, int sign)
{
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    struct jinja_value found = undefined;
    for (size_t i = 0; i < list->count && run->status == DDP_OK; i++)
        if (i == 0 || sign * ddp_jinja_compare(run, list->at[i], found) > 0)
            found = list->at[i];
    return found;
}

static struct jinja_value min(struct jinja_run *run, struct jinja_value of, struct jinja_args *args)
{
    (void)args;
    return extreme(run, of, -1);
}

static struct jinja_value max(struct jinja_run *run, struct jinja_value of, struct jinja_args *args)
{
    (void)args;
    return extreme(run, of, 1);
}

/* The arguments behind the first `count`. */
static struct jinja_args rest(const struct jinja_args *args, size_t count)
{
    struct jinja_args out = {.count = args->count > count ? args->count - count : 0};
    for (size_t i = 0; i < out.count; i++)
        out.at[i] = args->at[count + i];
    return out;
}

static struct jinja_value map(struct jinja_run *run, struct jinja_value of, struct jinja_args *args)
{
    const struct jinja_value member = ddp_jinja_arg(args, 8, "attribute");
    const struct jinja_value instead = ddp_jinja_arg(args, 8, "default");
    const struct jinja_list *list = each(run, of);
    const struct jinja_value out = ddp_jinja_list(run, list->count);
    struct jinja_args more = rest(args, 1);
    if (!ddp_jinja_given(member) && (args->count == 0 || args->at[0].type != JINJA_STRING))
        return ddp_jinja_fail(run, "map needs a filter, or attribute=NAME");
    for (size_t i = 0; run->status == DDP_OK && i < list->count; i++) {
        struct jinja_value value =
            ddp_jinja_given(member) ? ddp_jinja_item(run, list->at[i], member)
                                    : ddp_jinja_filter(run, args->at[0].text, list->at[i], &more);
        out.list->at[i] =
            value.type == JINJA_UNDEFINED && ddp_jinja_given(member) ? instead : value;
    }
    return out;
}

/* Those that pass a test, or do not.
 *   member  the test is of a member, which the first argument names */
static struct jinja_value chosen(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args, bool member, bool passes)
{
    const struct jinja_list *list = each(run, of);
    const struct jinja_value out = ddp_jinja_list(run, list->count);
    const size_t at = member;
    struct jinja_args more = rest(args, at + 1);
    size_t count = 0;
    for (size_t i = 0; run->status == DDP_OK && i < list->count; i++) {
        const struct jinja_value value =
            member && args->count > 0 ? ddp_jinja_item(run, list->at[i], args->at[0]) : list->at[i];
        const bool named = args->count > at && args->at[at].type == JINJA_STRING;
        const bool is =
            named ? ddp_jinja_test(run, args->at[at].text, value, &more) : ddp_jinja_true(value);
        if (is == passes)
            out.list->at[count++] = list->at[i];
    }
    if (run->status == DDP_OK)
        out.list->count = count;
    return out;
}

static struct jinja_value select_all(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    return chosen(run, of, args, false, true);
}

static struct jinja_value reject(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    return chosen(run, of, args, false, false);
}

static struct jinja_value selectattr(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    return chosen(run, of, args, true, true);
}

static struct jinja_value rejectattr(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    return chosen(run, of, args, true, false);
}

/* --- of all ----------------------------------------------------------------------------------- */

static struct jinja_value default_of(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    const struct jinja_value instead = ddp_jinja_arg(args, 0, "default_value");
    const bool wide = ddp_jinja_true(ddp_jinja_arg(args, 1, "boolean"));
    (void)run;
    if (of.type != JINJA_UNDEFINED && (!wide || ddp_jinja_true(of)))
        return of;
    return instead.type == JINJA_UNDEFINED && args->count + args->named_count == 0
               ? ddp_jinja_text("")
               : instead;
}

static struct jinja_value length(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    (void)args;
    return ddp_jinja_int((int64_t)ddp_jinja_length(run, of));
}

static struct jinja_value string(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    (void)args;
    return ddp_jinja_str(run, of);
}

static struct jinja_value tojson(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    struct jinja_builder builder = {0};
    ddp_jinja_put_json(run, &builder, of, args);
    return ddp_jinja_built(&builder);
}

static struct jinja_value int_of(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    const struct jinja_value instead = ddp_jinja_arg(args, 0, "default");
    char text[24], *end;
    (void)run;
    if (of.type == JINJA_INT || of.type == JINJA_BOOL)
        return ddp_jinja_int(of.number);
    if (of.type == JINJA_FLOAT && of.real > -9e18 && of.real < 9e18)
        return ddp_jinja_int((int64_t)of.real);
    if (of.type == JINJA_STRING && of.text.bytes > 0 && of.text.bytes < 19) {
        const struct jinja_string plain = ddp_jinja_strip(of.text, undefined, true, true);
        snprintf(text, sizeof text, "%.*s", (int)plain.bytes, plain.at);
        const long long number = strtoll(text, &end, 10);
        if (*text && !*end)
            return ddp_jinja_int(number);
    }
    return ddp_jinja_given(instead) ? instead : ddp_jinja_int(0);
}

static const struct jinja_named filters[] = {
    {"count", length},
    {"d", default_of},
    {"default", default_of},
    {"dictsort", dictsort},
    {"first", first},
    {"int", int_of},
    {"items", ddp_jinja_items},
    {"join", ddp_jinja_join},
    {"last", last},
    {"length", length},
    {"list", ddp_jinja_keys},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", reject},
    {"rejectattr", rejectattr},
    {"reverse", reverse},
    {"safe", string},
    {"select", select_all},
    {"selectattr", selectattr},
    {"sort", sort},
    {"string", string},
    {"tojson", tojson},
};

struct jinja_value ddp_jinja_filter(struct jinja_run *run, struct jinja_string name,
                                    struct jinja_value value, struct jinja_args *args)
{
    jinja_function *filter = ddp_jinja_named(filters, COUNT(filters), name);
    if (!filter)
        filter = ddp_jinja_of_strings(name, true);
    return filter
               ? filter(run, value, args)
               : ddp_jinja_fail(run, "the filter %.*s is not supported", (int)name.bytes, name.at);
}

/* --- tests ------------------------------------------------------------------------------------ */

static bool is_type(struct jinja_string name, struct jinja_value value, bool *is)
{
    const enum ddp_jinja_type type = value.type;
    const struct {
        const char *name;
        bool is;
    } tests[] = {
        {"defined", type != JINJA_UNDEFINED},
        {"undefined", type == JINJA_UNDEFINED},
        {"none", type == JINJA_NONE},
        {"boolean", type == JINJA_BOOL},
        {"true", type == JINJA_BOOL && value.number},
        {"false", type == JINJA_BOOL && !value.number},
        {"integer", type == JINJA_INT},
        {"float", type == JINJA_FLOAT},
        {"number", type == JINJA_BOOL || type == JINJA_INT || type == JINJA_FLOAT},
        {"string", type == JINJA_STRING},
        {"mapping", type == JINJA_DICT},
        {"sequence", type == JINJA_STRING || type == JINJA_LIST || type == JINJA_DICT ||
                         type == JINJA_UNDEFINED},
        {"iterable", type == JINJA_STRING || type == JINJA_LIST || type == JINJA_DICT ||
                         type == JINJA_UNDEFINED || type == JINJA_LOOP},
        {"callable", type >= JINJA_MACRO},
        {"even", type == JINJA_INT && value.number % 2 == 0},
        {"odd", type == JINJA_INT && value.number % 2 != 0},
    };
    for (size_t i = 0; i < COUNT(tests); i++)
        if (ddp_jinja_is(name, tests[i].name)) {
            *is = tests[i].is;
            return true;
        }
    return false;
}

bool ddp_jinja_test(struct jinja_run *run, struct jinja_string name, struct jinja_value value,
                    struct jinja_args *args)
{
    static const char *const equal[] = {"==", "eq", "equalto", "sameas"},
                             *const less[] = {"<", "lt", "lessthan"},
                             *const greater[] = {">", "gt", "greaterthan"};
    const struct jinja_value other = ddp_jinja_arg(args, 0, "other");
    bool is = false;
    if (is_type(name, value, &is))
        return is;
    if (args->count == 0)
        (void)ddp_jinja_fail(run, "the test %.*s is not supported", (int)name.bytes, name.at);
    for (size_t i = 0; i < COUNT(equal); i++)
        if (ddp_jinja_is(name, equal[i]))
            return ddp_jinja_equal(run, value, other);
    for (size_t i = 0; i < COUNT(less); i++)
        if (ddp_jinja_is(name, less[i]))
            return ddp_jinja_compare(run, value, other) < 0;
    for (size_t i = 0; i < COUNT(greater); i++)
        if (ddp_jinja_is(name, greater[i]))
            return ddp_jinja_compare(run, value, other) > 0;
    if (ddp_jinja_is(name, "ne") || ddp_jinja_is(name, "!="))
        return !ddp_jinja_equal(run, value, other);
    if (ddp_jinja_is(name, "in"))
        return ddp_jinja_contains(run, other, value);
    if (ddp_jinja_is(name, "divisibleby") && value.type == JINJA_INT && other.type == JINJA_INT &&
        other.number != 0 && other.number != -1)
        return value.number % other.number == 0;
    (void)ddp_jinja_fail(run, "the test %.*s is not supported", (int)name.bytes, name.at);
    return false;
}

/* --- functions -------------------------------------------------------------------------------- */

static struct jinja_value range(struct jinja_run *run, const struct jinja_args *args)
{
    int64_t bounds[3] = {0, 0, 1}, count;
    for (size_t i = 0; i < args->count && i < 3; i++) {
        if (args->at[i].type != JINJA_INT || args->at[i].number > INT32_MAX ||
            args->at[i].number < -INT32_MAX)
            return ddp_jinja_fail(run, "range() of %s", ddp_jinja_type_name(args->at[i]));
        bounds[args->count == 1 ? 1 : i] = args->at[i].number;
    }
    if (args->count == 0 || bounds[2] == 0)
        return ddp_jinja_fail(run, "range() needs an end, and a step that is not 0");
    const int64_t sign = bounds[2] > 0 ? 1 : -1;
    count = (bounds[1] - bounds[0] + bounds[2] - sign) / bounds[2];
    if (count > RANGE_MOST)
        return ddp_jinja_fail(run, "range() of more than %d numbers", RANGE_MOST);
    const struct jinja_value out = ddp_jinja_list(run, count > 0 ? (size_t)count : 0);
    for (int64_t i = 0; run->status == DDP_OK && i < count; i++)
        out.list->at[i] = ddp_jinja_int(bounds[0] + i * bounds[2]);
    return out;
}

/* Of 26 July 2024 on every day, as Llama 3.2's template has it where it does not know the date: a
 * text is the same whenever it is rendered. */
static struct jinja_value strftime_now(struct jinja_run *run, const struct jinja_args *args)
{
    static const char *const parts[] = {"d26",     "m07",  "Y2024", "y24", "bJul", "BJuly", "aFri",
                                        "AFriday", "j208", "H00",   "M00", "S00",  "%%"};
    const struct jinja_string format = ddp_jinja_str(run, ddp_jinja_arg(args, 0, "format")).text;
    struct jinja_builder builder = {0};
    for (size_t i = 0, k; i < format.bytes; i++) {
        if (format.at[i] != '%' || i + 1 == format.bytes) {
            ddp_jinja_put(run, &builder, ddp_jinja_part(format, i, i + 1));
            continue;
        }
        i += 1 + (format.at[i + 1] == '-' && i + 2 < format.bytes); /* no zeros before it */
        for (k = 0; k < sizeof parts / sizeof *parts && parts[k][0] != format.at[i]; k++)
            ;
        if (k == sizeof parts / sizeof *parts)
            return ddp_jinja_fail(run, "strftime_now() does not know %%%c", format.at[i]);
        const bool cut = format.at[i - 1] == '-' && parts[k][1] == '0';
        ddp_jinja_puts(run, &builder, parts[k] + 1 + cut);
    }
    return ddp_jinja_built(&builder);
}

static struct jinja_value dict(struct jinja_run *run, const struct jinja_args *args,
                               enum ddp_jinja_type type)
{
    struct jinja_value out = {.type = type};
    out.dict = ddp_jinja_take(run, 1, sizeof *out.dict);
    const bool copies = args->count == 1 && args->at[0].type == JINJA_DICT;
    if (!copies && args->count > 0)
        return ddp_jinja_fail(run, "dict() and namespace() take NAME=VALUE, or a dict");
    for (size_t i = 0; copies && run->status == DDP_OK && i < args->at[0].dict->count; i++)
        ddp_jinja_set(run, out.dict, args->at[0].dict->at[i].key, args->at[0].dict->at[i].value);
    for (size_t i = 0; run->status == DDP_OK && i < args->named_count; i++)
        ddp_jinja_set(run, out.dict, args->named[i].key, args->named[i].value);
    return run->status == DDP_OK ? out : undefined;
}

struct jinja_value ddp_jinja_function(struct jinja_run *run, struct jinja_string name,
                                      struct jinja_args *args)
{
    if (ddp_jinja_is(name, "range"))
        return range(run, args);
    if (ddp_jinja_is(name, "strftime_now"))
        return strftime_now(run, args);
    if (ddp_jinja_is(name, "namespace") || ddp_jinja_is(name, "dict"))
        return dict(run, args, ddp_jinja_is(name, "dict") ? JINJA_DICT : JINJA_NAMESPACE);
    const struct jinja_string said = ddp_jinja_str(run, ddp_jinja_arg(args, 0, "message")).text;
    return ddp_jinja_fail(run, "%.*s", said.bytes < 300 ? (int)said.bytes : 300, said.at);
}
