/* SPDX-License-Identifier: MIT
 *
 * The files of a WordPiece tokenizer: vocab.txt, a token a line, with tokenizer_config.json; or
 * tokenizer.json. */
#include "config.h"

#include "data/text/wordpiece_open.h"

#include "core/input_file.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"
#include "data/text/nfc.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES 200000000 /* at most */
#define PREFIX     "##"
#define CHARACTERS 100

const char *const ddp_wordpiece_special_names[DDP_WORDPIECE_SPECIALS] = {"[PAD]", "[UNK]", "[CLS]",
                                                                         "[SEP]", "[MASK]"};

void ddp_wordpiece_close(ddp_wordpiece *w)
{
    if (!w)
        return;
    ddp_vocabulary_clear(&w->vocabulary);
    free(w->prefix);
    free(w->path);
    free(w);
}

/* --- the vocabulary --------------------------------------------------------------------------- */

static enum ddp_status add_token(ddp_wordpiece *w, const char *text, size_t bytes, int64_t id)
{
    if (ddp_utf8_check(text, bytes) < bytes)
        return ddp_fail(DDP_ERR_FORMAT, "%s: token %lld is not UTF-8", w->path, (long long)id);
    w->longest = bytes > w->longest ? bytes : w->longest;
    return ddp_vocabulary_add(&w->vocabulary, w->path, text, bytes, id);
}

/* Two lines of the same would give a token two ids. */
static enum ddp_status check_new(const ddp_wordpiece *w, const char *token, int64_t line)
{
    const int32_t known = ddp_vocabulary_find(&w->vocabulary, token, strlen(token));
    if (known < 0)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s:%" PRId64
                    ": the token \"%s\" is in line %d already: tokens are numbered by "
                    "their lines, so take the vocabulary that the model came with",
                    w->path, line, token, known + 1);
}

/* A token a line. Spaces at a line's end do not count, as in Python's version. */
static enum ddp_status read_lines(ddp_wordpiece *w, const char *text, size_t bytes)
{
    enum ddp_status status = DDP_OK;
    int64_t id = 0;
    for (size_t at = 0; status == DDP_OK && at < bytes; id++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t line = end ? (size_t)(end - text) - at : bytes - at;
        size_t length = line;
        while (length > 0 && strchr(" \t\r", text[at + length - 1]))
            length--;
        char *token = strndup(text + at, length); /* with a 0 behind it, for messages */
        status = token ? check_new(w, token, id + 1)
                       : ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", w->path);
        if (status == DDP_OK)
            status = add_token(w, token, strlen(token), id);
        free(token);
        at += line + 1;
    }
    return status;
}

/* What a text needs must be there. */
static enum ddp_status find_specials(ddp_wordpiece *w)
{
    for (int i = 0; i < DDP_WORDPIECE_SPECIALS; i++) {
        const char *name = ddp_wordpiece_special_names[i];
        w->specials[i] = ddp_vocabulary_find(&w->vocabulary, name, strlen(name));
        if (w->specials[i] < 0 && i != DDP_WORDPIECE_MASK)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: the vocabulary of %zu tokens has no %s: it is not one of "
                            "WordPiece, or is incomplete",
                            w->path, w->vocabulary.token_count, name);
    }
    return DDP_OK;
}

static ddp_wordpiece *begin(const char *path)
{
    ddp_wordpiece *w = ddp_array_alloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->path = strdup(path);
    w->prefix = strdup(PREFIX);
    w->word_characters = CHARACTERS;
    w->cleans = w->cuts_ideographs = w->strips = w->lowers = true;
    if (w->path && w->prefix)
        return w;
    ddp_wordpiece_close(w);
    (void)ddp_fail(DDP_ERR_MEMORY, "out of memory");
    return NULL;
}

enum ddp_status ddp_wordpiece_parse(ddp_wordpiece **wordpiece, const char *name, const char *text,
                                    size_t bytes, bool lowers)
{
    ddp_wordpiece *w = begin(name);
    if (!w)
        return DDP_ERR_MEMORY;
    w->plain = true;
    w->lowers = w->strips = lowers;
    enum ddp_status status = read_lines(w, text, bytes);
    if (status == DDP_OK)
        status = find_specials(w);
    if (status != DDP_OK) {
        ddp_wordpiece_close(w);
        return status;
    }
    *wordpiece = w;
    return DDP_OK;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* A flag that may be null or missing. */
static bool flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static bool is_kind(const json_t *object, const char *kind)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type && strcmp(type, kind) == 0;
}

static enum ddp_status read_vocabulary(ddp_wordpiece *w, const json_t *vocabulary)
{
    const char *text;
    json_t *id;
    enum ddp_status status = DDP_OK;
    json_object_foreach((json_t *)(uintptr_t)vocabulary, text, id)
    {
        if (status == DDP_OK && !json_is_integer(id))
            status = ddp_fail(DDP_ERR_FORMAT, "%s: the vocabulary's ids must be integers", w->path);
        if (status == DDP_OK)
            status = add_token(w, text, strlen(text), json_integer_value(id));
    }
    return status;
}

/* tokenizer.json */
static enum ddp_status read_tokenizer(ddp_wordpiece *w, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *unknown = json_object_get(model, "unk_token");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    if (!is_kind(model, "WordPiece") || !is_kind(normalizer, "BertNormalizer") ||
        !is_kind(json_object_get(root, "pre_tokenizer"), "BertPreTokenizer"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: it is not a tokenizer of BERT's kind: a WordPiece model with a "
                        "BertNormalizer and a BertPreTokenizer",
                        w->path);
    if (unknown && (!json_is_string(unknown) || strcmp(json_string_value(unknown), "[UNK]") != 0))
        return ddp_fail(DDP_ERR_FORMAT, "%s: unk_token must be [UNK]", w->path);
    w->lowers = flag(normalizer, "lowercase", true);
    w->strips = flag(normalizer, "strip_accents", w->lowers);
    w->cleans = flag(normalizer, "clean_text", true);
    w->cuts_ideographs = flag(normalizer, "handle_chinese_chars", true);
    if (json_is_string(prefix)) {
        free(w->prefix);
        if (!(w->prefix = strdup(json_string_value(prefix))))
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", w->path);
    }
    if (json_is_integer(most) && json_integer_value(most) > 0)
        w->word_characters = json_integer_value(most);
    return read_vocabulary(w, json_object_get(model, "vocab"));
}

/* tokenizer_config.json beside a vocab.txt; nothing where there is none. */
static enum ddp_status read_config(ddp_wordpiece *w, const char *beside)
{
    char *text, *path;
    size_t bytes;
    json_t *root = NULL;
    const char *slash = strrchr(beside, '/');
    if (asprintf(&path, "%.*stokenizer_config.json", slash ? (int)(slash - beside) + 1 : 0,
                 beside) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = DDP_OK;
    if (access(path, F_OK) == 0) {
        status = ddp_input_file_read_whole(path, "not a tokenizer_config.json", FILE_BYTES, &text,
                                           &bytes);
        if (status == DDP_OK) {
            status = ddp_json_parse_object(&root, path, text, bytes, 0);
            free(text);
        }
    }
    w->lowers = flag(root, "do_lower_case", true);
    w->strips = flag(root, "strip_accents", w->lowers);
    w->cuts_ideographs = flag(root, "tokenize_chinese_chars", true);
    json_decref(root);
    free(path);
    return status;
}

/* --- whole ------------------------------------------------------------------------------------ */

static enum ddp_status read_file(ddp_wordpiece *w)
{
    char *text;
    size_t bytes;
    json_t *root = NULL;
    w->plain = !ddp_text_ends_with(w->path, ".json");
    enum ddp_status status =
        ddp_input_file_read_whole(w->path, "not a vocabulary", FILE_BYTES, &text, &bytes);
    if (status != DDP_OK)
        return status;
    if (w->plain) {
        status = read_lines(w, text, bytes);
        if (status == DDP_OK)
            status = read_config(w, w->path);
    } else {
        status = ddp_json_parse_object(&root, w->path, text, bytes, JSON_ALLOW_NUL);
        if (status == DDP_OK)
            status = read_tokenizer(w, root);
        json_decref(root);
    }
    free(text);
    return status == DDP_OK ? find_specials(w) : status;
}

/* The file in a directory, or the path itself. */
static char *file_of(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return strdup(path);
    return ddp_path_in(path,
                       ddp_path_is_in(path, "tokenizer.json") ? "tokenizer.json" : "vocab.txt");
}

enum ddp_status ddp_wordpiece_open(ddp_wordpiece **wordpiece, const char *path)
{
    char *file = file_of(path);
    ddp_wordpiece *w = file ? begin(file) : NULL;
    free(file);
    if (!w)
        return DDP_ERR_MEMORY;
    enum ddp_status status = read_file(w);
    if (status != DDP_OK) {
        ddp_wordpiece_close(w);
        return status;
    }
    *wordpiece = w;
    return DDP_OK;
}
