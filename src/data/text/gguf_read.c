/* SPDX-License-Identifier: MIT
 *
 * The keys of a tokenizer in a GGUF file, turned into a tokenizer.json. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/text/gguf_tokens.h"

#include <stdlib.h>
#include <string.h>

#define KEY     "tokenizer.ggml."
#define LONGEST 512 /* bytes of a token that merges make */

struct reading {
    const char *path;
    const json_t *keys, *tokens, *types, *scores, *merges;
    json_t *vocabulary; /* text to id */
    json_t *added;
};

static enum ddp_status damaged(const struct reading *reading, const char *key, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: %s %s", reading->path, key, what);
}

static enum ddp_status no_memory(const struct reading *reading)
{
    return ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", reading->path);
}

/* The text of the token that a key names; NULL: there is none. */
static const char *token_at(const struct reading *reading, const char *key)
{
    const json_t *id = json_object_get(reading->keys, key);
    const json_int_t value = json_integer_value(id);
    return id && value >= 0 ? json_string_value(json_array_get(reading->tokens, (size_t)value))
                            : NULL;
}

/* A list whose values are all of a kind. */
static enum ddp_status find_list(const struct reading *reading, const char *key, json_type kind,
                                 size_t count, const json_t **list)
{
    *list = json_object_get(reading->keys, key);
    if (!json_is_array(*list))
        return damaged(reading, key, "is missing, or not a list");
    if (count > 0 && json_array_size(*list) != count)
        return damaged(reading, key, "is not as long as the list of tokens");
    if (json_array_size(*list) > 0 && json_typeof(json_array_get(*list, 0)) != kind)
        return damaged(reading, key, "is a list of values of another type");
    return DDP_OK;
}

static enum ddp_status read_tokens(struct reading *reading, bool bytes)
{
    int failed = 0;
    for (size_t id = 0; id < json_array_size(reading->tokens); id++) {
        const char *text = json_string_value(json_array_get(reading->tokens, id));
        const json_int_t type = json_integer_value(json_array_get(reading->types, id));
        const bool added = type == DDP_GGUF_CONTROL || type == DDP_GGUF_USER ||
                           (type == DDP_GGUF_UNKNOWN && bytes);
        if (type == DDP_GGUF_UNUSED)
            continue;
        if (added && *text)
            failed |= json_array_append_new(
                reading->added, json_pack("{s:i, s:s, s:b, s:b}", "id", (int)id, "content", text,
                                          "special", type != DDP_GGUF_USER, "normalized", 0));
        if (json_object_get(reading->vocabulary, text))
            return ddp_fail(DDP_ERR_FORMAT, "%s: " KEY "tokens has \"%s\" twice", reading->path,
                            text);
        if (!added || bytes) /* SentencePiece has them in its vocabulary too */
            failed |= json_object_set_new(reading->vocabulary, text, json_integer((json_int_t)id));
    }
    return failed ? no_memory(reading) : DDP_OK;
}

/* --- merges of SentencePiece ------------------------------------------------------------------ */

struct join {
    double score;
    json_int_t left, right; /* ids */
    size_t left_bytes, right_bytes;
    const char *text;
};

/* The best score first; then as transformers sorts them. */
static int compare_joins(const void *left, const void *right)
{
    const struct join *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->left_bytes != b->left_bytes)
        return a->left_bytes > b->left_bytes ? -1 : 1;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    return a->right < b->right ? -1 : a->right > b->right;
}

static enum ddp_status add_joins(const struct reading *reading, size_t id, struct join **joins,
                                 size_t *count)
{
    const char *text = json_string_value(json_array_get(reading->tokens, id));
    const size_t bytes = strlen(text);
    enum ddp_status status = DDP_OK;
    if (json_integer_value(json_array_get(reading->types, id)) != DDP_GGUF_NORMAL ||
        bytes > LONGEST)
        return DDP_OK;
    for (size_t at = 1; status == DDP_OK && at < bytes; at++) {
        if (((unsigned char)text[at] & 0xc0) == 0x80)
            continue;
        char *head = strndup(text, at);
        if (!head)
            return no_memory(reading);
        const json_t *left = json_object_get(reading->vocabulary, head);
        free(head);
        const json_t *right = json_object_get(reading->vocabulary, text + at);
        const struct join join = {json_real_value(json_array_get(reading->scores, id)),
                                  json_integer_value(left),
                                  json_integer_value(right),
                                  at,
                                  bytes - at,
                                  text};
        if (left && right)
            status = ddp_array_append(joins, count, &join, sizeof join);
    }
    return status;
}

/* All pairs of tokens that make a token. */
static enum ddp_status merges_of_scores(const struct reading *reading, json_t *merges)
{
    struct join *joins = NULL;
    size_t count = 0;
    int failed = 0;
    enum ddp_status status = DDP_OK;
    for (size_t id = 0; status == DDP_OK && id < json_array_size(reading->tokens); id++)
        status = add_joins(reading, id, &joins, &count);
    if (count > 0)
        qsort(joins, count, sizeof *joins, compare_joins);
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        failed |= json_array_append_new(
            merges, json_pack("[s%, s%]", joins[i].text, joins[i].left_bytes,
                              joins[i].text + joins[i].left_bytes, joins[i].right_bytes));
    free(joins);
    return failed ? no_memory(reading) : status;
}

/* --- the parts of a tokenizer.json ------------------------------------------------------------ */

/* Around a text: bos. */
static json_t *template_of(const struct reading *reading, bool adds_bos)
{
    const json_t *given = json_object_get(reading->keys, KEY "add_bos_token");
    const char *bos = token_at(reading, KEY "bos_token_id");
    if (!bos || !(given ? json_is_true(given) : adds_bos))
        return json_null();
    return json_pack("{s:s, s:[{s:{s:s}}, {s:{s:s}}], s:{s:{s:[I]}}}", "type", "TemplateProcessing",
                     "single", "SpecialToken", "id", bos, "Sequence", "id", "A", "special_tokens",
                     bos, "ids",
                     json_integer_value(json_object_get(reading->keys, KEY "bos_token_id")));
}

static json_t *byte_level(const struct reading *reading, const struct ddp_gguf_cut *cut)
{
    json_t *steps = cut->pattern ? json_pack("[{s:s, s:{s:s}, s:s}]", "type", "Split", "pattern",
                                             "Regex", cut->pattern, "behavior", "Isolated")
                    : cut->digits
                        ? json_pack("[{s:s, s:b}]", "type", "Digits", "individual_digits", 1)
                        : json_array();
    json_array_append_new(steps, json_pack("{s:s, s:b, s:b}", "type", "ByteLevel",
                                           "add_prefix_space", 0, "use_regex", !cut->pattern));
    json_t *normalizer = cut->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
    return json_pack("{s:o, s:{s:s, s:o}, s:o, s:{s:s}, s:O, s:{s:s, s:b, s:O, s:O}}", "normalizer",
                     normalizer, "pre_tokenizer", "type", "Sequence", "pretokenizers", steps,
                     "post_processor", template_of(reading, cut->adds_bos), "decoder", "type",
                     "ByteLevel", "added_tokens", reading->added, "model", "type", "BPE",
                     "ignore_merges", cut->ignore_merges, "vocab", reading->vocabulary, "merges",
                     reading->merges);
}

static json_t *sentencepiece(const struct reading *reading, json_t *merges)
{
    const json_t *given = json_object_get(reading->keys, KEY "add_space_prefix");
    const bool prefix = !json_is_false(given);
    const char *unknown = token_at(reading, KEY "unknown_token_id");
    json_t *steps = json_pack("[{s:s, s:{s:s}, s:s}]", "type", "Replace", "pattern", "String", " ",
                              "content", DDP_GGUF_SPACE);
    json_t *decoders =
        json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern", "String",
                  DDP_GGUF_SPACE, "content", " ", "type", "ByteFallback", "type", "Fuse");
    if (prefix) {
        json_array_insert_new(
            steps, 0, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", DDP_GGUF_SPACE));
        json_array_append_new(decoders, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                  "content", " ", "start", 1, "stop", 0));
    }
    return json_pack("{s:{s:s, s:o}, s:n, s:o, s:{s:s, s:o}, s:O, s:{s:s, s:b, s:b, s:s*, s:O, "
                     "s:o}}",
                     "normalizer", "type", "Sequence", "normalizers", steps, "pre_tokenizer",
                     "post_processor", template_of(reading, true), "decoder", "type", "Sequence",
                     "decoders", decoders, "added_tokens", reading->added, "model", "type", "BPE",
                     "fuse_unk", 1, "byte_fallback", 1, "unk_token", unknown, "vocab",
                     reading->vocabulary, "merges", merges);
}

static enum ddp_status check_kind(const struct reading *reading, bool *pieces)
{
    const char *model = json_string_value(json_object_get(reading->keys, KEY "model"));
    if (!model || strcmp(model, "none") == 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: there is no tokenizer in it", reading->path);
    *pieces = strcmp(model, "llama") == 0;
    if (!*pieces && strcmp(model, "gpt2") != 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: its tokenizer is of the kind \"%s\": gpt2 and llama are supported",
                        reading->path, model);
    return DDP_OK;
}

static enum ddp_status read_kind(struct reading *reading, bool pieces, json_t **tokenizer)
{
    const size_t count = json_array_size(reading->tokens);
    const char *pre = json_string_value(json_object_get(reading->keys, KEY "pre"));
    const struct ddp_gguf_cut *cut = pre ? ddp_gguf_cut_named(pre) : NULL;
    json_t *merges = NULL;
    if (!pieces && !cut)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: how its tokenizer cuts texts, \"%s\", is not supported", reading->path,
                        pre ? pre : "");
    enum ddp_status status =
        pieces ? find_list(reading, KEY "scores", JSON_REAL, count, &reading->scores)
               : find_list(reading, KEY "merges", JSON_STRING, 0, &reading->merges);
    if (status == DDP_OK)
        status = read_tokens(reading, pieces);
    if (status == DDP_OK && pieces)
        status = (merges = json_array()) ? merges_of_scores(reading, merges) : no_memory(reading);
    if (status != DDP_OK) {
        json_decref(merges);
        return status;
    }
    *tokenizer = pieces ? sentencepiece(reading, merges) : byte_level(reading, cut);
    return *tokenizer ? DDP_OK : no_memory(reading);
}

enum ddp_status ddp_tokenizer_from_gguf(json_t **tokenizer, json_t **config, const char *path,
                                        const json_t *keys)
{
    struct reading reading = {
        .path = path, .keys = keys, .vocabulary = json_object(), .added = json_array()};
    *tokenizer = *config = NULL;
    bool pieces;
    enum ddp_status status = check_kind(&reading, &pieces);
    if (status == DDP_OK)
        status = find_list(&reading, KEY "tokens", JSON_STRING, 0, &reading.tokens);
    if (status == DDP_OK)
        status = find_list(&reading, KEY "token_type", JSON_INTEGER,
                           json_array_size(reading.tokens), &reading.types);
    if (status == DDP_OK)
        status = read_kind(&reading, pieces, tokenizer);
    if (status == DDP_OK &&
        !(*config =
              json_pack("{s:s, s:s*, s:s*, s:O*}", "tokenizer_class", "PreTrainedTokenizerFast",
                        "bos_token", token_at(&reading, KEY "bos_token_id"), "eos_token",
                        token_at(&reading, KEY "eos_token_id"), "chat_template",
                        json_object_get(keys, "tokenizer.chat_template"))))
        status = no_memory(&reading);
    json_decref(reading.vocabulary);
    json_decref(reading.added);
    return status;
}
