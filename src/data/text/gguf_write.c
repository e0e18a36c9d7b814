/* SPDX-License-Identifier: MIT
 *
 * The keys of a tokenizer in a GGUF file that is written. */
#include "config.h"

#include "core/gguf.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/text/gguf_tokens.h"
#include "data/text/tokenizer_parts.h"

#define KEY "tokenizer.ggml."

struct writing {
    const ddp_tokenizer *tokenizer;
    const json_t *root; /* of its tokenizer.json */
    json_t *keys;
    int failed; /* no memory */
};

static void put(struct writing *writing, const char *key, json_t *value)
{
    writing->failed |= json_object_set_new(writing->keys, key, value);
}

static int type_of(const ddp_tokenizer *t, int32_t id)
{
    const struct ddp_token *token = &t->vocabulary.tokens[id];
    const char *text = ddp_vocabulary_text(&t->vocabulary, id);
    if (!t->byte_level && id == t->unknown)
        return DDP_GGUF_UNKNOWN;
    for (int byte = 0; t->byte_fallback && byte < 256; byte++)
        if (t->byte_ids[byte] == id)
            return DDP_GGUF_BYTE;
    if (!token->added)
        return DDP_GGUF_NORMAL;
    return token->special || (strncmp(text, "<|", 2) == 0 && ddp_text_ends_with(text, "|>"))
               ? DDP_GGUF_CONTROL
               : DDP_GGUF_USER;
}

static void put_tokens(struct writing *writing, int64_t vocabulary)
{
    const struct ddp_vocabulary *v = &writing->tokenizer->vocabulary;
    json_t *tokens = json_array(), *types = json_array();
    for (int64_t id = 0; id < vocabulary; id++) {
        char unused[32];
        const bool present = (size_t)id < v->ids && v->tokens[id].present;
        snprintf(unused, sizeof unused, "[PAD%lld]", (long long)id);
        const char *text = present ? ddp_vocabulary_text(v, (int32_t)id) : unused;
        const int type = present ? type_of(writing->tokenizer, (int32_t)id) : DDP_GGUF_UNUSED;
        writing->failed |= json_array_append_new(tokens, json_string(text));
        writing->failed |= json_array_append_new(types, json_integer(type));
    }
    put(writing, KEY "tokens", tokens);
    put(writing, KEY "token_type", types);
}

/* "a b" of a merge in either form. */
static json_t *merge_text(const json_t *merge)
{
    return json_is_string(merge)
               ? json_deep_copy(merge)
               : json_sprintf("%s %s", json_string_value(json_array_get(merge, 0)),
                              json_string_value(json_array_get(merge, 1)));
}

static void put_merges(struct writing *writing, const json_t *merges)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(merges); i++)
        writing->failed |= json_array_append_new(list, merge_text(json_array_get(merges, i)));
    put(writing, KEY "merges", list);
}

/* SentencePiece joins what has the best score. By minus the first merge that makes a token it joins
 * in the order of the merges. */
static enum ddp_status put_scores(struct writing *writing, const json_t *merges, int64_t vocabulary)
{
    const struct ddp_vocabulary *v = &writing->tokenizer->vocabulary;
    const double least = -(double)json_array_size(merges) - 1;
    json_t *list = json_array();
    double *scores = ddp_array_alloc((size_t)vocabulary, sizeof *scores);
    if (!scores)
        return DDP_ERR_MEMORY;
    for (int64_t id = 0; id < vocabulary; id++)
        scores[id] = least;
    for (size_t i = json_array_size(merges); i-- > 0;) {
        char *text;
        json_t *merge = merge_text(json_array_get(merges, i));
        const char *both = json_string_value(merge);
        const char *space = both ? strchr(both, ' ') : NULL;
        if (space && asprintf(&text, "%.*s%s", (int)(space - both), both, space + 1) >= 0) {
            const int32_t id = ddp_vocabulary_find(v, text, strlen(text));
            if (id >= 0 && id < vocabulary)
                scores[id] = -(double)i;
            free(text);
        }
        json_decref(merge);
    }
    for (int64_t id = 0; id < vocabulary; id++) {
        const bool plain = (size_t)id < v->ids && v->tokens[id].present &&
                           type_of(writing->tokenizer, (int32_t)id) == DDP_GGUF_NORMAL;
        writing->failed |= json_array_append_new(list, json_real(plain ? scores[id] : 0));
    }
    free(scores);
    put(writing, KEY "scores", list);
    return DDP_OK;
}

static void put_id(struct writing *writing, const char *key, int32_t id)
{
    if (id >= 0)
        put(writing, key, json_integer(id));
}

static bool has_prefix(const ddp_tokenizer *t)
{
    bool prepends = t->prefix != DDP_PREFIX_NEVER;
    for (int i = 0; i < t->step_count; i++)
        prepends = prepends || t->steps[i].kind == DDP_NORMALIZE_PREPEND;
    return prepends;
}

static enum ddp_status put_kind(struct writing *writing, int64_t vocabulary)
{
    const ddp_tokenizer *t = writing->tokenizer;
    const json_t *merges = json_object_get(json_object_get(writing->root, "model"), "merges");
    if (!t->byte_level) {
        put(writing, KEY "model", json_string("llama"));
        put(writing, KEY "pre", json_string("default"));
        put(writing, KEY "add_space_prefix", json_boolean(has_prefix(t)));
        return put_scores(writing, merges, vocabulary);
    }
    const struct ddp_gguf_cut *cut =
        ddp_gguf_cut_of(json_object_get(writing->root, "pre_tokenizer"));
    if (!cut)
        ddp_log(DDP_LOG_WARNING,
                "%s: llama.cpp has no name that we know for how this tokenizer cuts texts: the "
                "file says \"default\", and llama.cpp will cut some texts otherwise",
                t->path);
    if (t->step_count > 0)
        ddp_log(DDP_LOG_WARNING,
                "%s: this tokenizer normalises texts (NFC), which llama.cpp does not: texts that "
                "are not in that form get other tokens there",
                t->path);
    put(writing, KEY "model", json_string("gpt2"));
    put(writing, KEY "pre", json_string(cut ? cut->name : "default"));
    put_merges(writing, merges);
    return DDP_OK;
}

static enum ddp_status put_all(struct writing *writing, int64_t vocabulary)
{
    const ddp_tokenizer *t = writing->tokenizer;
    if ((int64_t)t->vocabulary.ids > vocabulary)
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has %zu ids, and the model %lld", t->path,
                        t->vocabulary.ids, (long long)vocabulary);
    enum ddp_status status = put_kind(writing, vocabulary);
    put_tokens(writing, vocabulary);
    put_id(writing, KEY "bos_token_id", t->bos < 0 && t->before_count > 0 ? t->before[0] : t->bos);
    put_id(writing, KEY "eos_token_id", t->eos);
    put_id(writing, KEY "unknown_token_id", t->unknown);
    put(writing, KEY "add_bos_token", json_boolean(t->before_count > 0));
    put(writing, KEY "add_eos_token", json_boolean(t->after_count > 0));
    if (t->chat_template)
        put(writing, "tokenizer.chat_template", json_string(t->chat_template));
    return status;
}

/* Those of a GGUF file. */
static enum ddp_status copy_keys(json_t *keys, const char *path)
{
    struct ddp_gguf gguf;
    const char *key;
    json_t *value;
    int failed = 0;
    enum ddp_status status = ddp_gguf_open(&gguf, path);
    if (status == DDP_OK)
        json_object_foreach(gguf.keys, key,
                            value) if (strncmp(key, "tokenizer.", 10) == 0 &&
                                       !(json_is_array(value) && json_array_size(value) == 0))
            failed |= json_object_set(keys, key, value);
    ddp_gguf_close(&gguf);
    return failed ? ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", path) : status;
}

/* Of a tokenizer.json, by the tokenizer that was read from it. */
static enum ddp_status make_keys(json_t *keys, const char *path, int64_t vocabulary)
{
    ddp_tokenizer *tokenizer = NULL;
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status = ddp_tokenizer_open(&tokenizer, path);
    if (status == DDP_OK)
        status = ddp_input_file_read_whole(tokenizer->path, "not a tokenizer.json",
                                           (size_t)256 << 20, &text, &bytes);
    if (status == DDP_OK) {
        status = ddp_json_parse_object(&root, tokenizer->path, text, bytes, JSON_ALLOW_NUL);
        free(text);
    }
    if (status == DDP_OK && !json_object_get(root, "model"))
        status = ddp_fail(DDP_ERR_UNSUPPORTED,
                          "%s: the tokenizer is not a tokenizer.json, which GGUF is written from",
                          tokenizer->path);
    struct writing writing = {.tokenizer = tokenizer, .root = root, .keys = keys};
    if (status == DDP_OK)
        status = put_all(&writing, vocabulary);
    if (status == DDP_OK && writing.failed)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", path);
    json_decref(root);
    ddp_tokenizer_close(tokenizer);
    return status;
}

enum ddp_status ddp_tokenizer_to_gguf(json_t **keys, const char *path, int64_t vocabulary)
{
    *keys = json_object();
    if (!*keys)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", path);
    enum ddp_status status =
        ddp_gguf_is(path) ? copy_keys(*keys, path) : make_keys(*keys, path, vocabulary);
    if (status != DDP_OK) {
        json_decref(*keys);
        *keys = NULL;
    }
    return status;
}
