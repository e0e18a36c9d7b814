/* SPDX-License-Identifier: MIT
 *
 * Opening of tokenizers: tokenizer.json, GPT-2's vocab.json and merges.txt, and the files beside
 * them. */
#include "config.h"

#include "core/gguf.h"
#include "core/hash.h"
#include "core/input_file.h"
#include "core/memory.h"
#include "data/text/encoder.h"
#include "data/text/gguf_tokens.h"
#include "data/text/nfc.h"
#include "data/text/read_steps.h"

#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST  ((size_t)256 << 20)
#define JSON_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)
#define CONFIG     JSON_DECODE_INT_AS_REAL /* 10^30 is a usual model_max_length */

/* --- a tokenizer without anything ------------------------------------------------------------- */

static enum ddp_status create(ddp_tokenizer **tokenizer, const char *path)
{
    ddp_tokenizer *t = ddp_array_alloc(1, sizeof *t);
    if (!t)
        return DDP_ERR_MEMORY;
    t->bos = t->eos = t->unknown = -1;
    memset(t->byte_ids, 0xff, sizeof t->byte_ids);
    t->path = strdup(path);
    t->idle = calloc(1, sizeof(struct ddp_encoder *));
    t->lock = malloc(sizeof *t->lock);
    if (!t->lock || pthread_mutex_init(t->lock, NULL) != 0) {
        free(t->lock);
        t->lock = NULL;
    }
    if (!t->path || !t->idle || !t->lock) {
        ddp_tokenizer_close(t);
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a tokenizer");
    }
    *tokenizer = t;
    return DDP_OK;
}

/* --- vocabulary ------------------------------------------------------------------------------- */

static enum ddp_status read_vocabulary(ddp_tokenizer *t, const char *file, const json_t *vocab)
{
    const char *text;
    json_t *id;
    enum ddp_status status = DDP_OK;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has no vocabulary", file);
    json_object_foreach((json_t *)vocab, text, id)
    {
        if (!json_is_integer(id))
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: the vocabulary: the id of \"%s\" is not an integer", file, text);
        status =
            ddp_vocabulary_add(&t->vocabulary, file, text, strlen(text), json_integer_value(id));
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

static void find_byte_ids(ddp_tokenizer *t)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        size_t bytes = t->byte_level
                           ? ddp_utf8_encode(ddp_byte_character((unsigned char)byte), text)
                           : (size_t)snprintf(text, sizeof text, "<0x%02X>", byte);
        if (t->byte_level || t->byte_fallback)
            t->byte_ids[byte] = ddp_vocabulary_find(&t->vocabulary, text, bytes);
    }
}

/* --- merges ----------------------------------------------------------------------------------- */

static bool is_lone_symbol(const ddp_tokenizer *t, int32_t id)
{
    if (id == t->unknown)
        return true;
    for (int byte = 0; t->byte_fallback && byte < 256; byte++)
        if (t->byte_ids[byte] == id)
            return true;
    return false;
}

/* Notes which characters a merge joins. A byte that is spelled out, or an unknown character, has
 * none: where merges take those, pieces are not cut. */
static void note_junction(ddp_tokenizer *t, int32_t left, int32_t right)
{
    if (!t->junctions)
        return;
    if (is_lone_symbol(t, left) || is_lone_symbol(t, right)) {
        free(t->junctions);
        t->junctions = NULL;
        return;
    }
    const char *text = ddp_vocabulary_text(&t->vocabulary, left);
    size_t at = t->vocabulary.tokens[left].bytes - 1, length;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    const size_t bit =
        ddp_junction(ddp_utf8_decode(text + at, &length),
                     ddp_utf8_decode(ddp_vocabulary_text(&t->vocabulary, right), &length));
    t->junctions[bit / 8] |= (uint8_t)(1u << bit % 8);
}

static enum ddp_status add_merge(ddp_tokenizer *t, const char *file, size_t rank, const char *left,
                                 size_t left_bytes, const char *right, size_t right_bytes)
{
    struct ddp_buffer both = {0};
    const struct ddp_vocabulary *v = &t->vocabulary;
    const int32_t l = ddp_vocabulary_find(v, left, left_bytes);
    const int32_t r = ddp_vocabulary_find(v, right, right_bytes);
    if (left_bytes == 0 || right_bytes == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: merge %zu has an empty side", file, rank);
    if (l < 0 || r < 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: merge %zu names \"%.*s\", which is not in the vocabulary", file, rank,
                        (int)(l < 0 ? left_bytes : right_bytes), l < 0 ? left : right);
    enum ddp_status status = ddp_buffer_append(&both, left, left_bytes);
    if (status == DDP_OK)
        status = ddp_buffer_append(&both, right, right_bytes);
    const int32_t id = status == DDP_OK ? ddp_vocabulary_find(v, both.at, both.bytes) : -1;
    if (status == DDP_OK && id < 0)
        status =
            ddp_fail(DDP_ERR_FORMAT, "%s: merge %zu makes \"%s\", which is not in the vocabulary",
                     file, rank, both.at);
    free(both.at);
    if (status == DDP_OK && !ddp_vocabulary_add_merge(&t->vocabulary, l, r, (int32_t)rank, id))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: merge %zu, \"%.*s %.*s\", is there twice", file,
                          rank, (int)left_bytes, left, (int)right_bytes, right);
    if (status == DDP_OK)
        note_junction(t, l, r);
    return status;
}

/* Of a merge in one text, "a b". */
static enum ddp_status add_merge_line(ddp_tokenizer *t, const char *file, size_t rank,
                                      const char *line, size_t bytes)
{
    const char *space = memchr(line, ' ', bytes);
    const size_t left = space ? (size_t)(space - line) : 0;
    if (!space || memchr(space + 1, ' ', bytes - left - 1))
        return ddp_fail(DDP_ERR_FORMAT, "%s: merge %zu is not two tokens with a space between",
                        file, rank);
    return add_merge(t, file, rank, line, left, space + 1, bytes - left - 1);
}

static enum ddp_status begin_merges(ddp_tokenizer *t, size_t count)
{
    if (count > INT32_MAX / 2)
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has %zu merges", t->path, count);
    if (!t->byte_level && !t->ignore_merges) {
        t->junctions = ddp_array_alloc(DDP_JUNCTION_CLASSES * DDP_JUNCTION_CLASSES / 8, 1);
        if (!t->junctions)
            return DDP_ERR_MEMORY;
    }
    return ddp_vocabulary_reserve_merges(&t->vocabulary, count);
}

static enum ddp_status read_merges(ddp_tokenizer *t, const json_t *merges)
{
    const size_t count = json_array_size(merges);
    if (!json_is_array(merges))
        return ddp_fail(DDP_ERR_FORMAT, "%s: the model has no list of merges", t->path);
    enum ddp_status status = begin_merges(t, count);
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const json_t *merge = json_array_get(merges, i);
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            status =
                add_merge_line(t, t->path, i, json_string_value(merge), json_string_length(merge));
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            status = add_merge(t, t->path, i, json_string_value(left), json_string_length(left),
                               json_string_value(right), json_string_length(right));
        else
            status = ddp_fail(DDP_ERR_FORMAT, "%s: merge %zu is not two tokens", t->path, i);
    }
    return status;
}

/* --- added tokens ----------------------------------------------------------------------------- */

/* Gives a token its place among those that are cut out of texts. */
static enum ddp_status add_added(ddp_tokenizer *t, const char *text, size_t bytes, int64_t id,
                                 bool special, bool normalized)
{
    struct ddp_buffer scratch[2] = {{0}, {0}};
    const int32_t known = ddp_vocabulary_find(&t->vocabulary, text, bytes);
    enum ddp_status status = DDP_OK;
    if (known >= 0 && known != id)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: the added token \"%s\" has the ids %d and %lld: the vocabulary has "
                        "another than added_tokens",
                        t->path, text, known, (long long)id);
    if (known < 0)
        status = ddp_vocabulary_add(&t->vocabulary, t->path, text, bytes, id);
    if (status != DDP_OK)
        return status;
    t->vocabulary.tokens[id].added = true;
    t->vocabulary.tokens[id].special = special;
    if (normalized)
        status = ddp_tokenizer_normalize(t, scratch, &text, &bytes);
    if (status == DDP_OK && (text == scratch[0].at || text == scratch[1].at))
        status = ddp_vocabulary_set_normal(&t->vocabulary, (int32_t)id, text, bytes);
    if (status == DDP_OK && bytes > DDP_ADDED_MOST)
        status =
            ddp_fail(DDP_ERR_UNSUPPORTED,
                     "%s: the added token \"%.20s...\" has %zu bytes: at most %d are supported",
                     t->path, text, bytes, DDP_ADDED_MOST);
    if (status == DDP_OK && bytes > 0)
        status = ddp_added_append(normalized ? &t->normal_added : &t->raw_added, text, bytes,
                                  (int32_t)id, special);
    free(scratch[0].at);
    free(scratch[1].at);
    return status;
}

static enum ddp_status read_added(ddp_tokenizer *t, const json_t *list)
{
    static const char *const refused[] = {"lstrip", "rstrip", "single_word"};
    enum ddp_status status = DDP_OK;
    if (list && !json_is_null(list) && !json_is_array(list))
        return ddp_fail(DDP_ERR_FORMAT, "%s: added_tokens is not a list", t->path);
    for (size_t i = 0; status == DDP_OK && i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i);
        const json_t *text = json_object_get(token, "content"), *id = json_object_get(token, "id");
        if (!json_is_string(text) || json_string_length(text) == 0 || !json_is_integer(id) ||
            strlen(json_string_value(text)) != json_string_length(text))
            return ddp_fail(DDP_ERR_FORMAT, "%s: added token %zu has no content or no id", t->path,
                            i);
        for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
            if (json_is_true(json_object_get(token, refused[k])))
                return ddp_fail(DDP_ERR_UNSUPPORTED,
                                "%s: the added token \"%s\" has %s, which is not supported",
                                t->path, json_string_value(text), refused[k]);
        status = add_added(t, json_string_value(text), json_string_length(text),
                           json_integer_value(id), json_is_true(json_object_get(token, "special")),
                           json_is_true(json_object_get(token, "normalized")));
    }
    return status;
}

/* --- tokenizer.json --------------------------------------------------------------------------- */

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

static enum ddp_status read_model(ddp_tokenizer *t, const json_t *model)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const json_t *type = json_object_get(model, "type"),
                 *unknown = json_object_get(model, "unk_token");
    if (!json_is_object(model) || (type && !json_is_string(type)))
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has no model: is it a tokenizer.json?", t->path);
    if (type && strcmp(json_string_value(type), "BPE") != 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "%s: tokenizers of type \"%s\" are not supported: only BPE is", t->path,
                        json_string_value(type));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!is_empty(json_object_get(model, refused[i])))
            return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: %s in the model is not supported", t->path,
                            refused[i]);
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    t->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    t->byte_fallback = json_is_true(json_object_get(model, "byte_fallback")) && !t->byte_level;
    enum ddp_status status = read_vocabulary(t, t->path, json_object_get(model, "vocab"));
    if (status != DDP_OK)
        return status;
    find_byte_ids(t);
    if (!is_empty(unknown)) {
        t->unknown = json_is_string(unknown)
                         ? ddp_vocabulary_find(&t->vocabulary, json_string_value(unknown),
                                               json_string_length(unknown))
                         : -1;
        if (t->unknown < 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: unk_token is not in the vocabulary", t->path);
    }
    return read_merges(t, json_object_get(model, "merges"));
}

static enum ddp_status read_root(ddp_tokenizer *t, const json_t *root)
{
    enum ddp_status status = ddp_read_normalizer(t, json_object_get(root, "normalizer"));
    if (status == DDP_OK)
        status = ddp_read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"));
    if (status == DDP_OK)
        status = read_model(t, json_object_get(root, "model"));
    if (status == DDP_OK)
        status = ddp_read_decoder(t, json_object_get(root, "decoder"));
    if (status == DDP_OK)
        status = read_added(t, json_object_get(root, "added_tokens"));
    if (status == DDP_OK)
        status = ddp_read_post_processor(t, json_object_get(root, "post_processor"));
    ddp_added_sort(&t->raw_added);
    ddp_added_sort(&t->normal_added);
    return status;
}

/*   root  of a tokenizer.json, freed */
static enum ddp_status make(ddp_tokenizer **tokenizer, const char *name, json_t *root,
                            uint64_t hash)
{
    ddp_tokenizer *t = NULL;
    enum ddp_status status = create(&t, name);
    if (status == DDP_OK)
        status = read_root(t, root);
    json_decref(root);
    if (status != DDP_OK) {
        ddp_tokenizer_close(t);
        return status;
    }
    t->hash = hash;
    *tokenizer = t;
    return DDP_OK;
}

enum ddp_status ddp_tokenizer_parse(ddp_tokenizer **tokenizer, const char *name, const char *text,
                                    size_t bytes)
{
    json_t *root = NULL;
    enum ddp_status status = ddp_json_parse_object(&root, name, text, bytes, JSON_FLAGS);
    return status == DDP_OK ? make(tokenizer, name, root, ddp_hash(text, bytes)) : status;
}

static enum ddp_status open_gguf(ddp_tokenizer **tokenizer, const char *path)
{
    struct ddp_gguf gguf;
    json_t *root = NULL, *config = NULL;
    char *text = NULL;
    ddp_tokenizer *t = NULL;
    enum ddp_status status = ddp_gguf_open(&gguf, path);
    if (status == DDP_OK)
        status = ddp_tokenizer_from_gguf(&root, &config, path, gguf.keys);
    if (status == DDP_OK && !(text = ddp_json_text(root, JSON_COMPACT)))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", path);
    if (status == DDP_OK)
        status = make(&t, path, json_incref(root), ddp_hash(text, strlen(text)));
    if (status == DDP_OK)
        status = ddp_tokenizer_configure(t, path, config);
    free(text);
    json_decref(root);
    json_decref(config);
    ddp_gguf_close(&gguf);
    if (status != DDP_OK) {
        ddp_tokenizer_close(t);
        return status;
    }
    *tokenizer = t;
    return DDP_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

/* DIR/NAME in `path`; whether it is there. */
static bool file_in(struct ddp_buffer *path, const char *directory, const char *name)
{
    path->bytes = 0;
    return ddp_buffer_append(path, directory, strlen(directory)) == DDP_OK &&
           ddp_buffer_append(path, "/", 1) == DDP_OK &&
           ddp_buffer_append(path, name, strlen(name)) == DDP_OK && access(path->at, F_OK) == 0;
}

static enum ddp_status read_json(json_t **root, const char *path, size_t flags)
{
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "not a JSON text", FILE_MOST, &text, &bytes);
    if (status == DDP_OK) {
        status = ddp_json_parse_object(root, path, text, bytes, flags | JSON_FLAGS);
        free(text);
    }
    return status;
}

static enum ddp_status open_json(ddp_tokenizer **tokenizer, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "not a tokenizer.json", FILE_MOST, &text, &bytes);
    if (status == DDP_OK) {
        status = ddp_tokenizer_parse(tokenizer, path, text, bytes);
        free(text);
    }
    return status;
}

static enum ddp_status read_merge_lines(ddp_tokenizer *t, const char *path, const char *text,
                                        size_t bytes)
{
    size_t lines = 0, rank = 0, number = 0;
    const size_t bad = ddp_utf8_check(text, bytes);
    if (bad < bytes)
        return ddp_fail(DDP_ERR_FORMAT, "%s: byte %zu is not UTF-8", path, bad);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    enum ddp_status status = begin_merges(t, lines + 1);
    for (size_t at = 0; status == DDP_OK && at < bytes; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t next = end ? (size_t)(end - text) + 1 : bytes;
        size_t length = next - at - (end != NULL);
        length -= length > 0 && text[at + length - 1] == '\r';
        const bool comment = number == 0 && length > 8 && memcmp(text + at, "#version", 8) == 0;
        if (length > 0 && !comment)
            status = add_merge_line(t, path, rank++, text + at, length);
        at = next;
    }
    return status;
}

/* GPT-2's two files. Other tokenizers have such files too, but split their text otherwise: those
 * say so in tokenizer_config.json. */
static enum ddp_status open_gpt2(ddp_tokenizer **tokenizer, const char *directory,
                                 struct ddp_buffer *path)
{
    static const char end_of_text[] = "<|endoftext|>";
    ddp_tokenizer *t = NULL;
    json_t *vocab = NULL;
    char *merges = NULL;
    size_t bytes = 0;
    file_in(path, directory, "vocab.json");
    enum ddp_status status = read_json(&vocab, path->at, 0);
    if (status == DDP_OK)
        status = create(&t, path->at);
    if (status == DDP_OK)
        status = ddp_read_byte_level(t);
    if (status == DDP_OK)
        status = read_vocabulary(t, t->path, vocab);
    json_decref(vocab);
    if (status == DDP_OK) {
        find_byte_ids(t);
        file_in(path, directory, "merges.txt");
        status =
            ddp_input_file_read_whole(path->at, "not a merges.txt", FILE_MOST, &merges, &bytes);
    }
    if (status == DDP_OK) {
        status = read_merge_lines(t, path->at, merges, bytes);
        /* The slots say which id each text has. */
        t->hash =
            ddp_hash(merges, bytes) ^ ddp_hash(t->vocabulary.texts.at, t->vocabulary.texts.bytes) ^
            ddp_hash(t->vocabulary.slots, t->vocabulary.slot_count * sizeof *t->vocabulary.slots);
        free(merges);
    }
    const int32_t end =
        status == DDP_OK ? ddp_tokenizer_find(t, end_of_text, strlen(end_of_text)) : -1;
    if (status == DDP_OK && end >= 0)
        status = add_added(t, end_of_text, strlen(end_of_text), end, true, true);
    if (status != DDP_OK) {
        ddp_tokenizer_close(t);
        return status;
    }
    ddp_added_sort(&t->normal_added);
    t->bos = t->eos = end;
    *tokenizer = t;
    return DDP_OK;
}

/* The files beside tokenizer.json. Its own text decides which ids a text gets; these say which ids
 * begin and end a document, and how chats look. */
static enum ddp_status read_companions(ddp_tokenizer *t, const char *directory,
                                       struct ddp_buffer *path)
{
    static const char *const files[] = {"special_tokens_map.json", "tokenizer_config.json"};
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < sizeof files / sizeof *files; i++) {
        json_t *config = NULL;
        if (!file_in(path, directory, files[i]))
            continue;
        status = read_json(&config, path->at, CONFIG);
        if (status == DDP_OK)
            status = ddp_tokenizer_configure(t, path->at, config);
        json_decref(config);
    }
    if (status == DDP_OK && file_in(path, directory, "chat_template.jinja")) {
        char *text = NULL, *file = strdup(path->at);
        size_t bytes = 0;
        status = file ? ddp_input_file_read_whole(path->at, "not a chat template", FILE_MOST, &text,
                                                  &bytes)
                      : ddp_fail(DDP_ERR_MEMORY, "out of memory: a path");
        if (status != DDP_OK) {
            free(file);
            return status;
        }
        text[bytes] = '\0';
        free(t->chat_template);
        free(t->chat_file);
        t->chat_template = text;
        t->chat_file = file;
    }
    return status;
}

/* The class that tokenizer_config.json names is GPT-2's, or none. */
static enum ddp_status check_class(const char *directory, struct ddp_buffer *path)
{
    json_t *config = NULL;
    if (!file_in(path, directory, "tokenizer_config.json"))
        return DDP_OK;
    enum ddp_status status = read_json(&config, path->at, CONFIG);
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));
    if (status == DDP_OK && name && strncmp(name, "GPT2Tokenizer", 13) != 0)
        status = ddp_fail(DDP_ERR_UNSUPPORTED,
                          "%s: the tokenizer is a %s, whose vocab.json and merges.txt do not say "
                          "how it splits text: tokenizer.json is needed beside them",
                          path->at, name);
    json_decref(config);
    return status;
}

static enum ddp_status open_directory(ddp_tokenizer **tokenizer, const char *directory,
                                      struct ddp_buffer *path)
{
    ddp_tokenizer *t = NULL;
    enum ddp_status status;
    if (file_in(path, directory, "tokenizer.json"))
        status = open_json(&t, path->at);
    else if (file_in(path, directory, "vocab.json") && file_in(path, directory, "merges.txt"))
        status = (status = check_class(directory, path)) == DDP_OK ? open_gpt2(&t, directory, path)
                                                                   : status;
    else
        return ddp_fail(DDP_ERR_IO,
                        "%s: there is no tokenizer in it: a tokenizer.json, or vocab.json and "
                        "merges.txt",
                        directory);
    if (status == DDP_OK)
        status = read_companions(t, directory, path);
    if (status != DDP_OK) {
        ddp_tokenizer_close(t);
        return status;
    }
    *tokenizer = t;
    return DDP_OK;
}

enum ddp_status ddp_tokenizer_open(ddp_tokenizer **tokenizer, const char *path)
{
    struct stat info;
    struct ddp_buffer scratch = {0};
    if (stat(path, &info) != 0)
        return ddp_fail_path(path, "open the tokenizer");
    if (!S_ISDIR(info.st_mode))
        return ddp_gguf_is(path) ? open_gguf(tokenizer, path) : open_json(tokenizer, path);
    enum ddp_status status = open_directory(tokenizer, path, &scratch);
    free(scratch.at);
    return status;
}
