/* SPDX-License-Identifier: MIT
 *
 * See jinja.h: filters and methods of strings, with the results of Python's. */
#include "config.h"

#include "data/text/jinja_parts.h"

static const struct jinja_value undefined = {.type = JINJA_UNDEFINED};

static struct jinja_value strip_sides(struct jinja_run *run, struct jinja_value of,
                                      struct jinja_args *args, bool left, bool right)
{
    const struct jinja_string text = ddp_jinja_str(run, of).text;
    if (!ddp_jinja_work(run, text.bytes))
        return undefined;
    return ddp_jinja_string(ddp_jinja_strip(text, ddp_jinja_arg(args, 0, "chars"), left, right));
}

static struct jinja_value strip(struct jinja_run *run, struct jinja_value of,
                                struct jinja_args *args)
{
    return strip_sides(run, of, args, true, true);
}

static struct jinja_value lstrip(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    return strip_sides(run, of, args, true, false);
}

static struct jinja_value rstrip(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    return strip_sides(run, of, args, false, true);
}

enum letters { LOWER, UPPER, CAPITAL, TITLE };

static struct jinja_value with_letters(struct jinja_run *run, struct jinja_value of,
                                       enum letters letters)
{
    const struct jinja_string text = ddp_jinja_str(run, of).text;
    char *at = ddp_jinja_take(run, text.bytes + 1, 1);
    bool begins = true; /* a word, or the whole */
    for (size_t i = 0; at && i < text.bytes; i++) {
        const char c = text.at[i];
        const bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        const bool upper = letters == UPPER || (letters != LOWER && begins);
        if ((unsigned char)c > 127)
            return ddp_jinja_fail(run, "letters beyond ASCII are made lower or upper case, which "
                                       "is not supported");
        at[i] = !letter ? c : (char)(upper ? c & ~32 : c | 32);
        begins = letters == TITLE && !letter;
    }
    return at ? ddp_jinja_string((struct jinja_string){at, text.owners, text.bytes}) : undefined;
}

static struct jinja_value lower(struct jinja_run *run, struct jinja_value of,
                                struct jinja_args *args)
{
    (void)args;
    return with_letters(run, of, LOWER);
}

static struct jinja_value upper(struct jinja_run *run, struct jinja_value of,
                                struct jinja_args *args)
{
    (void)args;
    return with_letters(run, of, UPPER);
}

static struct jinja_value capitalize(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    (void)args;
    return with_letters(run, of, CAPITAL);
}

static struct jinja_value title(struct jinja_run *run, struct jinja_value of,
                                struct jinja_args *args)
{
    (void)args;
    return with_letters(run, of, TITLE);
}

static struct jinja_value replace(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args)
{
    const struct jinja_string text = ddp_jinja_str(run, of).text;
    const struct jinja_string old = ddp_jinja_str(run, ddp_jinja_arg(args, 0, "old")).text;
    const struct jinja_string new = ddp_jinja_str(run, ddp_jinja_arg(args, 1, "new")).text;
    const struct jinja_value most = ddp_jinja_arg(args, 2, "count");
    int64_t left = most.type == JINJA_INT && most.number >= 0 ? most.number : INT64_MAX;
    struct jinja_builder builder = {0};
    size_t at = 0;
    if (old.bytes == 0)
        return ddp_jinja_fail(run, "an empty string is replaced");
    while (left-- > 0) {
        const size_t found = ddp_jinja_search(run, text, at, old);
        if (found == SIZE_MAX)
            break;
        ddp_jinja_put(run, &builder, ddp_jinja_part(text, at, found));
        ddp_jinja_put(run, &builder, new);
        at = found + old.bytes;
    }
    ddp_jinja_put(run, &builder, ddp_jinja_part(text, at, text.bytes));
    return ddp_jinja_built(&builder);
}

/* Parts into a list that is long enough: where each begins, and behind the last. */
struct parts {
    struct jinja_run *run;
    struct jinja_value list; /* its count is that of the room */
    size_t count;
};

static void add_part(struct parts *parts, struct jinja_string text)
{
    if (!parts->list.list || parts->count == parts->list.list->count) {
        const struct jinja_value more = ddp_jinja_list(parts->run, 2 * parts->count + 8);
        if (parts->run->status != DDP_OK)
            return;
        for (size_t i = 0; i < parts->count; i++)
            more.list->at[i] = parts->list.list->at[i];
        parts->list = more;
    }
    parts->list.list->at[parts->count++] = ddp_jinja_string(text);
}

static struct jinja_value all_parts(struct parts *parts)
{
    if (parts->run->status != DDP_OK)
        return undefined;
    if (!parts->list.list)
        return ddp_jinja_list(parts->run, 0);
    parts->list.list->count = parts->count;
    return parts->list;
}

/* Between white space. */
static struct jinja_value split_words(struct jinja_run *run, struct jinja_string text, int64_t left)
{
    struct parts parts = {.run = run};
    text = ddp_jinja_strip(text, undefined, true, false);
    while (text.bytes > 0 && run->status == DDP_OK) {
        size_t end = 0;
        while (end < text.bytes &&
               ddp_jinja_strip(ddp_jinja_part(text, end, end + ddp_jinja_character(text, end)),
                               undefined, true, false)
                       .bytes > 0)
            end += ddp_jinja_character(text, end);
        if (left-- == 0)
            end = text.bytes;
        add_part(&parts, ddp_jinja_part(text, 0, end));
        text = ddp_jinja_strip(ddp_jinja_part(text, end, text.bytes), undefined, true, false);
        if (!ddp_jinja_work(run, end))
            break;
    }
    return all_parts(&parts);
}

static struct jinja_value split(struct jinja_run *run, struct jinja_value of,
                                struct jinja_args *args)
{
    const struct jinja_value by = ddp_jinja_arg(args, 0, "sep");
    const struct jinja_value most = ddp_jinja_arg(args, 1, "maxsplit");
    int64_t left = most.type == JINJA_INT && most.number >= 0 ? most.number : INT64_MAX;
    struct parts parts = {.run = run};
    size_t at = 0;
    if (!ddp_jinja_given(by))
        return split_words(run, of.text, left);
    if (by.type != JINJA_STRING || by.text.bytes == 0)
        return ddp_jinja_fail(run, "split by %s",
                              by.type == JINJA_STRING ? "an empty string"
                                                      : ddp_jinja_type_name(by));
    while (left-- > 0) {
        const size_t found = ddp_jinja_search(run, of.text, at, by.text);
        if (found == SIZE_MAX)
            break;
        add_part(&parts, ddp_jinja_part(of.text, at, found));
        at = found + by.text.bytes;
    }
    add_part(&parts, ddp_jinja_part(of.text, at, of.text.bytes));
    return all_parts(&parts);
}

/* The last place of a text before `end`; SIZE_MAX: none. */
static size_t search_last(struct jinja_run *run, struct jinja_string text, size_t end,
                          struct jinja_string what)
{
    if (!ddp_jinja_work(run, end * 4))
        return SIZE_MAX;
    for (size_t at = end < what.bytes ? 0 : end - what.bytes + 1; at-- > 0;)
        if (memcmp(text.at + at, what.at, what.bytes) == 0)
            return at;
    return SIZE_MAX;
}

static struct jinja_value rsplit(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    const struct jinja_value by = ddp_jinja_arg(args, 0, "sep");
    const struct jinja_value most = ddp_jinja_arg(args, 1, "maxsplit");
    struct parts parts = {.run = run};
    size_t end = of.text.bytes;
    if (most.type != JINJA_INT || most.number < 0)
        return split(run, of, args);
    if (by.type != JINJA_STRING || by.text.bytes == 0)
        return ddp_jinja_fail(run, "rsplit needs a string to split by");
    for (int64_t left = most.number; left > 0; left--) {
        const size_t found = search_last(run, of.text, end, by.text);
        if (found == SIZE_MAX)
            break;
        add_part(&parts, ddp_jinja_part(of.text, found + by.text.bytes, end));
        end = found;
    }
    add_part(&parts, ddp_jinja_part(of.text, 0, end));
    const struct jinja_value list = all_parts(&parts);
    for (size_t i = 0; run->status == DDP_OK && i < parts.count / 2; i++) {
        const struct jinja_value first = list.list->at[i];
        list.list->at[i] = list.list->at[parts.count - 1 - i];
        list.list->at[parts.count - 1 - i] = first;
    }
    return list;
}

static struct jinja_value splitlines(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    struct parts parts = {.run = run};
    (void)args;
    for (size_t at = 0; at < of.text.bytes && run->status == DDP_OK;) {
        const size_t found = ddp_jinja_search(run, of.text, at, ddp_jinja_text("\n").text);
        const size_t end = found == SIZE_MAX ? of.text.bytes : found;
        add_part(&parts, ddp_jinja_part(of.text, at, end));
        at = end + 1;
    }
    return all_parts(&parts);
}

/* Does the text begin or end with a string, or with one of a tuple? */
static struct jinja_value has_end(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args, bool begin)
{
    const struct jinja_value what = ddp_jinja_arg(args, 0, "prefix");
    const size_t count = what.type == JINJA_LIST ? what.list->count : 1;
    for (size_t i = 0; i < count && ddp_jinja_work(run, 0); i++) {
        const struct jinja_value one = what.type == JINJA_LIST ? what.list->at[i] : what;
        if (one.type != JINJA_STRING)
            return ddp_jinja_fail(run, "a string that begins or ends with %s",
                                  ddp_jinja_type_name(one));
        if (one.text.bytes <= of.text.bytes &&
            memcmp(of.text.at + (begin ? 0 : of.text.bytes - one.text.bytes), one.text.at,
                   one.text.bytes) == 0)
            return ddp_jinja_bool(true);
    }
    return ddp_jinja_bool(false);
}

static struct jinja_value startswith(struct jinja_run *run, struct jinja_value of,
                                     struct jinja_args *args)
{
    return has_end(run, of, args, true);
}

static struct jinja_value endswith(struct jinja_run *run, struct jinja_value of,
                                   struct jinja_args *args)
{
    return has_end(run, of, args, false);
}

static struct jinja_value find(struct jinja_run *run, struct jinja_value of,
                               struct jinja_args *args)
{
    const struct jinja_value what = ddp_jinja_arg(args, 0, "sub");
    if (what.type != JINJA_STRING)
        return ddp_jinja_fail(run, "find of %s", ddp_jinja_type_name(what));
    const size_t found = ddp_jinja_search(run, of.text, 0, what.text);
    return ddp_jinja_int(
        found == SIZE_MAX
            ? -1
            : (int64_t)ddp_jinja_length(run, ddp_jinja_string(ddp_jinja_part(of.text, 0, found))));
}

static struct jinja_value indent(struct jinja_run *run, struct jinja_value of,
                                 struct jinja_args *args)
{
    const struct jinja_string text = ddp_jinja_str(run, of).text;
    const struct jinja_value width = ddp_jinja_arg(args, 0, "width");
    const bool first = ddp_jinja_true(ddp_jinja_arg(args, 1, "first"));
    const bool blank = ddp_jinja_true(ddp_jinja_arg(args, 2, "blank"));
    const int64_t spaces = width.type == JINJA_INT ? width.number : 4;
    struct jinja_builder builder = {0};
    for (size_t at = 0; run->status == DDP_OK;) {
        const size_t found = ddp_jinja_search(run, text, at, ddp_jinja_text("\n").text);
        const size_t end = found == SIZE_MAX ? text.bytes : found;
        for (int64_t i = 0; i < spaces && (at > 0 || first) && (end > at || blank || at == 0) &&
                            run->status == DDP_OK;
             i++)
            ddp_jinja_puts(run, &builder, " ");
        ddp_jinja_put(run, &builder, ddp_jinja_part(text, at, found == SIZE_MAX ? end : end + 1));
        if (found == SIZE_MAX)
            break;
        at = end + 1;
    }
    return ddp_jinja_built(&builder);
}

struct jinja_value ddp_jinja_join(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args)
{
    const struct jinja_value between = ddp_jinja_arg(args, 0, "d");
    const struct jinja_list *list = ddp_jinja_iterate(run, of);
    struct jinja_builder builder = {0};
    for (size_t i = 0; i < list->count && run->status == DDP_OK; i++) {
        if (i > 0 && ddp_jinja_given(between))
            ddp_jinja_put_value(run, &builder, between);
        ddp_jinja_put_value(run, &builder, list->at[i]);
    }
    return ddp_jinja_built(&builder);
}

static struct jinja_value join(struct jinja_run *run, struct jinja_value of,
                               struct jinja_args *args)
{
    struct jinja_args between = {.at = {of}, .count = 1};
    return ddp_jinja_join(run, ddp_jinja_arg(args, 0, "iterable"), &between);
}

/* --- by their names --------------------------------------------------------------------------- */

static const struct jinja_named filters[] =
    {
        {"capitalize", capitalize}, {"indent", indent}, {"lower", lower},
        {"replace", replace},       {"trim", strip},    {"upper", upper},
},
                                methods[] = {
                                    {"capitalize", capitalize},
                                    {"endswith", endswith},
                                    {"find", find},
                                    {"join", join},
                                    {"lower", lower},
                                    {"lstrip", lstrip},
                                    {"replace", replace},
                                    {"rsplit", rsplit},
                                    {"rstrip", rstrip},
                                    {"split", split},
                                    {"splitlines", splitlines},
                                    {"startswith", startswith},
                                    {"strip", strip},
                                    {"title", title},
                                    {"upper", upper},
};

jinja_function *ddp_jinja_named(const struct jinja_named *table, size_t count,
                                struct jinja_string name)
{
    for (size_t i = 0; i < count; i++)
        if (ddp_jinja_is(name, table[i].name))
            return table[i].run;
    return NULL;
}

jinja_function *ddp_jinja_of_strings(struct jinja_string name, bool filter)
{
    return filter ? ddp_jinja_named(filters, sizeof filters / sizeof *filters, name)
                  : ddp_jinja_named(methods, sizeof methods / sizeof *methods, name);
}

struct jinja_value ddp_jinja_lower(struct jinja_run *run, struct jinja_value of)
{
    return with_letters(run, of, LOWER);
}
