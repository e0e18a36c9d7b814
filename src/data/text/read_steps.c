/* SPDX-License-Identifier: MIT
 *
 * See read_steps.h. */
#include "config.h"

#include "data/text/read_steps.h"

#include "core/memory.h"

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef enum ddp_status read_step(ddp_tokenizer *tokenizer, const char *type, const json_t *json);

static enum ddp_status unsupported(const ddp_tokenizer *t, const char *key, const char *type)
{
    return ddp_fail(DDP_ERR_UNSUPPORTED,
                    "%s: the %s \"%s\" is not supported: byte-level and SentencePiece-style BPE "
                    "are",
                    t->path, key, type);
}

static enum ddp_status damaged(const ddp_tokenizer *t, const char *key, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: %s: %s", t->path, key, what);
}

/* Calls read() for a step, or for all of a Sequence. */
static enum ddp_status for_each(ddp_tokenizer *t, const json_t *json, const char *key,
                                const char *list, read_step *read)
{
    enum ddp_status status = DDP_OK;
    if (!json || json_is_null(json))
        return DDP_OK;
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type)
        return damaged(t, key, "it has no \"type\"");
    if (strcmp(type, "Sequence") != 0)
        return read(t, type, json);
    const json_t *steps = json_object_get(json, list);
    if (!json_is_array(steps))
        return damaged(t, key, "a Sequence without a list of steps");
    for (size_t i = 0; status == DDP_OK && i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        type = json_string_value(json_object_get(step, "type"));
        status = type ? read(t, type, step) : damaged(t, key, "a step has no \"type\"");
    }
    return status;
}

/* Copies the string at a key. */
static enum ddp_status get_string(const ddp_tokenizer *t, const json_t *json, const char *key,
                                  struct ddp_buffer *out)
{
    const json_t *string = json_object_get(json, key);
    if (!json_is_string(string))
        return damaged(t, key, "a string is missing");
    return ddp_buffer_append(out, json_string_value(string), json_string_length(string));
}

static bool is_true(const json_t *json, const char *key)
{
    return json_is_true(json_object_get(json, key));
}

/* --- normalizer ------------------------------------------------------------------------------- */

static enum ddp_status read_normalizer(ddp_tokenizer *t, const char *type, const json_t *json)
{
    if (t->step_count == DDP_STEPS_MOST)
        return damaged(t, "normalizer", "it has too many steps");
    struct ddp_normalize_step *step = &t->steps[t->step_count++];
    enum ddp_status status = DDP_OK;
    if (strcmp(type, "NFC") == 0) {
        step->kind = DDP_NORMALIZE_NFC;
        return DDP_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = DDP_NORMALIZE_PREPEND;
        return get_string(t, json, "prepend", &step->to);
    }
    if (strcmp(type, "Replace") != 0)
        return unsupported(t, "normalizer", type);
    step->kind = DDP_NORMALIZE_REPLACE;
    const json_t *pattern = json_object_get(json, "pattern");
    if (!json_object_get(pattern, "String"))
        return unsupported(t, "normalizer", "Replace with a regular expression");
    status = get_string(t, pattern, "String", &step->from);
    if (status == DDP_OK && step->from.bytes == 0)
        status = damaged(t, "normalizer", "it replaces nothing (an empty pattern)");
    return status == DDP_OK ? get_string(t, json, "content", &step->to) : status;
}

enum ddp_status ddp_read_normalizer(ddp_tokenizer *tokenizer, const json_t *json)
{
    return for_each(tokenizer, json, "normalizer", "normalizers", read_normalizer);
}

/* --- pre_tokenizer ---------------------------------------------------------------------------- */

static enum ddp_status add_regex(ddp_tokenizer *t, const char *pattern, size_t bytes, bool literal)
{
    if (t->regex_count == DDP_STEPS_MOST)
        return damaged(t, "pre_tokenizer", "it has too many steps");
    enum ddp_status status =
        ddp_regex_create(&t->regexes[t->regex_count], t->path, pattern, bytes, literal);
    t->regex_count += status == DDP_OK;
    return status;
}

static enum ddp_status read_split(ddp_tokenizer *t, const json_t *json)
{
    const char *behavior = json_string_value(json_object_get(json, "behavior"));
    const json_t *pattern = json_object_get(json, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *string = regex ? regex : json_object_get(pattern, "String");
    if (!behavior || !json_is_string(string))
        return damaged(t, "pre_tokenizer", "a Split without pattern or behavior");
    if (strcmp(behavior, "Isolated") != 0)
        return unsupported(t, "behavior of Split", behavior);
    if (is_true(json, "invert"))
        return unsupported(t, "pre_tokenizer", "Split with invert");
    return add_regex(t, json_string_value(string), json_string_length(string), !regex);
}

static enum ddp_status read_metaspace(ddp_tokenizer *t, const json_t *json)
{
    struct ddp_buffer pattern = {0};
    const char *scheme = json_string_value(json_object_get(json, "prepend_scheme"));
    if (t->regex_count > 0 || t->space.bytes > 0)
        return unsupported(t, "pre_tokenizer", "Metaspace behind others");
    enum ddp_status status = get_string(t, json, "replacement", &t->space);
    if (status == DDP_OK && t->space.bytes == 0)
        return damaged(t, "pre_tokenizer", "Metaspace without a replacement");
    if (!scheme) /* files of 2023 and before */
        scheme = json_is_false(json_object_get(json, "add_prefix_space")) ? "never" : "always";
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 &&
        strcmp(scheme, "never") != 0)
        return unsupported(t, "prepend_scheme", scheme);
    t->prefix = scheme[0] == 'a'   ? DDP_PREFIX_ALWAYS
                : scheme[0] == 'f' ? DDP_PREFIX_FIRST
                                   : DDP_PREFIX_NEVER;
    if (status != DDP_OK || json_is_false(json_object_get(json, "split")))
        return status;
    /* A word is what stands from one replacement to the next. */
    const char *const parts[] = {"\\Q", t->space.at, "\\E(?:(?!\\Q", t->space.at, "\\E)(?s:.))*"};
    for (size_t i = 0; status == DDP_OK && i < sizeof parts / sizeof *parts; i++)
        status = ddp_buffer_append(&pattern, parts[i], strlen(parts[i]));
    if (status == DDP_OK)
        status = add_regex(t, pattern.at, pattern.bytes, false);
    free(pattern.at);
    return status;
}

enum ddp_status ddp_read_byte_level(ddp_tokenizer *tokenizer)
{
    tokenizer->byte_level = true;
    return add_regex(tokenizer, gpt2_pattern, sizeof gpt2_pattern - 1, false);
}

static enum ddp_status read_pre_tokenizer(ddp_tokenizer *t, const char *type, const json_t *json)
{
    if (t->byte_level)
        return unsupported(t, "pre_tokenizer behind ByteLevel", type);
    if (strcmp(type, "Split") == 0)
        return read_split(t, json);
    if (strcmp(type, "Digits") == 0)
        return add_regex(t, "\\p{N}+", is_true(json, "individual_digits") ? 5 : 6, false);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, json);
    if (strcmp(type, "ByteLevel") != 0)
        return unsupported(t, "pre_tokenizer", type);
    if (t->space.bytes > 0)
        return unsupported(t, "pre_tokenizer behind Metaspace", type);
    if (is_true(json, "add_prefix_space")) {
        if (t->regex_count > 0)
            return unsupported(t, "pre_tokenizer", "ByteLevel with add_prefix_space behind others");
        t->prefix = DDP_PREFIX_ALWAYS;
    }
    if (!json_is_false(json_object_get(json, "use_regex")))
        return ddp_read_byte_level(t);
    t->byte_level = true;
    return DDP_OK;
}

enum ddp_status ddp_read_pre_tokenizer(ddp_tokenizer *tokenizer, const json_t *json)
{
    return for_each(tokenizer, json, "pre_tokenizer", "pretokenizers", read_pre_tokenizer);
}

/* --- decoder ---------------------------------------------------------------------------------- */

static enum ddp_status read_replace(ddp_tokenizer *t, const json_t *json)
{
    const json_t *pattern = json_object_get(json, "pattern");
    if (t->decode.from.bytes > 0 || !json_object_get(pattern, "String"))
        return unsupported(t, "decoder", "Replace with a regular expression, or twice");
    enum ddp_status status = get_string(t, pattern, "String", &t->decode.from);
    return status == DDP_OK ? get_string(t, json, "content", &t->decode.to) : status;
}

static enum ddp_status read_strip(ddp_tokenizer *t, const json_t *json)
{
    const char *content = json_string_value(json_object_get(json, "content"));
    const json_int_t start = json_integer_value(json_object_get(json, "start"));
    if (!content || strcmp(content, " ") != 0 || start < 0 || start > 1000 ||
        json_integer_value(json_object_get(json, "stop")) != 0)
        return unsupported(t, "decoder", "Strip of other than leading spaces");
    t->decode.strip = (int)start;
    return DDP_OK;
}

static enum ddp_status read_decoder(ddp_tokenizer *t, const char *type, const json_t *json)
{
    if (strcmp(type, "ByteLevel") == 0 && t->byte_level)
        return DDP_OK;
    if (t->byte_level)
        return unsupported(t, "decoder of a byte-level tokenizer", type);
    if (strcmp(type, "Replace") == 0)
        return read_replace(t, json);
    if (strcmp(type, "Strip") == 0)
        return read_strip(t, json);
    if (strcmp(type, "ByteFallback") == 0)
        t->decode.bytes = true;
    else if (strcmp(type, "Fuse") != 0)
        return unsupported(t, "decoder", type);
    return DDP_OK;
}

enum ddp_status ddp_read_decoder(ddp_tokenizer *tokenizer, const json_t *json)
{
    if (!tokenizer->byte_level && (!json || json_is_null(json)))
        return unsupported(tokenizer, "decoder", "null");
    return for_each(tokenizer, json, "decoder", "decoders", read_decoder);
}

/* --- post_processor --------------------------------------------------------------------------- */

/* Appends the ids of a special token that a template names. */
static enum ddp_status add_special(ddp_tokenizer *t, const json_t *tokens, const char *name,
                                   int32_t **ids, size_t *count)
{
    const json_t *list = json_object_get(json_object_get(tokens, name), "ids");
    enum ddp_status status = DDP_OK;
    if (!json_is_array(list))
        return ddp_fail(DDP_ERR_FORMAT, "%s: post_processor: \"%s\" has no ids", t->path, name);
    for (size_t i = 0; status == DDP_OK && i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= DDP_TOKEN_MOST ||
            !ddp_tokenizer_token(t, (int32_t)id, NULL))
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: post_processor: \"%s\" has an id that is not a token's", t->path,
                            name);
        const int32_t narrow = (int32_t)id;
        status = ddp_array_append(ids, count, &narrow, sizeof narrow);
    }
    return status;
}

static enum ddp_status read_post_processor(ddp_tokenizer *t, const char *type, const json_t *json)
{
    const json_t *single = json_object_get(json, "single");
    const json_t *tokens = json_object_get(json, "special_tokens");
    bool behind = false;
    enum ddp_status status = DDP_OK;
    if (strcmp(type, "ByteLevel") == 0) /* changes no ids */
        return DDP_OK;
    if (strcmp(type, "TemplateProcessing") != 0)
        return unsupported(t, "post_processor", type);
    if (!json_is_array(single))
        return damaged(t, "post_processor", "it has no list \"single\"");
    for (size_t i = 0; status == DDP_OK && i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const char *name =
            json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        if (name)
            status = behind ? add_special(t, tokens, name, &t->after, &t->after_count)
                            : add_special(t, tokens, name, &t->before, &t->before_count);
        else if (json_object_get(part, "Sequence") && !behind)
            behind = true;
        else
            status = damaged(t, "post_processor", "its template is not understood");
    }
    return status;
}

enum ddp_status ddp_read_post_processor(ddp_tokenizer *tokenizer, const json_t *json)
{
    return for_each(tokenizer, json, "post_processor", "processors", read_post_processor);
}
