/* SPDX-License-Identifier: MIT
 *
 * See hf_edit.h. The text was parsed before, so it is walked here without further checks, but never
 * beyond its end. */
#include "config.h"

#include "weights/hf_edit.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    const char *at, *end;
};

/* The first of these characters from here on, outside of strings and brackets of its own. */
static void skip_to(struct walk *walk, const char *stops)
{
    int depth = 0;
    bool in_string = false;
    for (; walk->at < walk->end; walk->at++) {
        const char c = *walk->at;
        if (in_string && c == '\\' && walk->at + 1 < walk->end) {
            walk->at++;
        } else if (c == '"') {
            if (!in_string && depth == 0 && strchr(stops, c))
                return;
            in_string = !in_string;
        } else if (!in_string) {
            if (depth == 0 && c && strchr(stops, c))
                return;
            depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        }
    }
}

static const char *skip_spaces(const char *at, const char *end)
{
    while (at < end && strchr(" \t\r\n", *at))
        at++;
    return at;
}

static const char *without_spaces(const char *begin, const char *end)
{
    while (end > begin && strchr(" \t\r\n", end[-1]))
        end--;
    return end;
}

static bool put_value(FILE *out, const json_t *value)
{
    char *text = ddp_json_text(value, JSON_ENCODE_ANY);
    if (text)
        fputs(text, out);
    free(text);
    return text;
}

/* Copies the members, with the new values of those that change; what is left of `changes` was not
 * among them. Returns what follows the last value; NULL without memory. */
static const char *put_members(FILE *out, const char *text, const char *end, json_t *changes)
{
    struct walk walk = {text, end};
    const char *copied = text;
    skip_to(&walk, "{");
    walk.at++;
    for (bool more = true; more && walk.at < end;) {
        skip_to(&walk, "\"}");
        if (walk.at >= end || *walk.at == '}')
            break;
        const char *key = walk.at + 1;
        const char *close = key;
        while (close < end && *close != '"')
            close += *close == '\\' ? 2 : 1;
        walk.at = close < end ? close + 1 : end;
        skip_to(&walk, ":");
        const char *value = skip_spaces(walk.at + 1, end);
        walk.at = value;
        skip_to(&walk, ",}");
        const char *value_end = without_spaces(value, walk.at);
        more = walk.at < end && *walk.at == ',';
        walk.at += more;
        char *name = strndup(key, (size_t)(close - key));
        const json_t *changed = name ? json_object_get(changes, name) : NULL;
        fwrite(copied, 1, (size_t)((changed ? value : value_end) - copied), out);
        const bool done = name && (!changed || put_value(out, changed));
        if (changed)
            json_object_del(changes, name);
        free(name);
        if (!done)
            return NULL;
        copied = value_end;
    }
    return copied;
}

static bool put_all(FILE *out, const char *text, size_t bytes, json_t *changes, bool empty)
{
    const char *key, *end = text + bytes;
    const char *rest = put_members(out, text, end, changes);
    json_t *value;
    bool comma = !empty;
    if (!rest)
        return false;
    if (empty) { /* copy up to the bracket */
        const char *bracket = memchr(text, '{', bytes);
        rest = bracket ? bracket + 1 : end;
        fwrite(text, 1, (size_t)(rest - text), out);
    }
    const bool lines = memchr(text, '\n', bytes) || empty;
    json_object_foreach(changes, key, value)
    {
        fprintf(out, "%s%s\"%s\": ", comma ? "," : "", lines ? "\n  " : " ", key);
        if (!put_value(out, value))
            return false;
        comma = true;
    }
    fwrite(rest, 1, (size_t)(end - rest), out);
    return true;
}

enum ddp_status ddp_hf_edit(char **edited, const char *name, const char *text, size_t bytes,
                            const json_t *changes)
{
    json_t *root = NULL, *left = json_deep_copy(changes);
    enum ddp_status status =
        ddp_json_parse_object(&root, name, text, bytes, JSON_REJECT_DUPLICATES);
    const bool empty = json_object_size(root) == 0;
    char *made = NULL;
    size_t size = 0;
    json_decref(root);
    root = NULL;
    FILE *out = status == DDP_OK && left ? open_memstream(&made, &size) : NULL;
    bool done = out && put_all(out, text, bytes, left, empty);
    done = (!out || fclose(out) == 0) && done && made;
    json_decref(left);
    if (status == DDP_OK && !done)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK) /* a key that was spelled with escapes would be there twice */
        status = ddp_json_parse_object(&root, name, made, size, JSON_REJECT_DUPLICATES);
    json_decref(root);
    if (status != DDP_OK) {
        free(made);
        return status;
    }
    *edited = made;
    return DDP_OK;
}
