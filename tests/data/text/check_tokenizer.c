/* SPDX-License-Identifier: MIT
 *
 * data/text: the ids and texts of the `tokenizers` library, for small tokenizers of both styles;
 * threads, long pieces, streams, files of directories, bad files. */
#include "config.h"

#include "core/json.h"
#include "data/text/bpe.h"
#include "data/text/nfc.h"
#include "tests/lib/messages.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "tests/data/text/tokenizer_test.h"

#include <sys/resource.h>

/* --- golden --- */

static const char *encoded(const ddp_tokenizer *t, const struct ddp_text_part *part, unsigned flags)
{
    struct ddp_tokens tokens = {0};
    ck_assert_int_eq(ddp_tokenizer_encode(t, part, flags, &tokens), DDP_OK);
    const char *shown = ids_shown(tokens.ids, tokens.count);
    free(tokens.ids);
    return shown;
}

/* The text of the ids of a text, `step` ids at a time. */
static const char *decoded(const ddp_tokenizer *t, const struct ddp_text_part *part, size_t step,
                           size_t *bytes)
{
    static char all[1 << 13];
    struct ddp_tokens tokens = {0};
    ddp_decoder *decoder = NULL;
    const char *text;
    size_t used = 0, length;
    ck_assert_int_eq(ddp_tokenizer_encode(t, part, 0, &tokens), DDP_OK);
    ck_assert_int_eq(ddp_decoder_create(&decoder, t, false), DDP_OK);
    for (size_t i = 0; i < tokens.count; i += step) {
        const size_t count = tokens.count - i < step ? tokens.count - i : step;
        ck_assert_int_eq(ddp_decoder_next(decoder, tokens.ids + i, count, &text, &length), DDP_OK);
        ck_assert_uint_eq(ddp_utf8_check(text, length), length);
        ck_assert_int_eq(text[length], 0);
        memcpy(all + used, text, length);
        used += length;
    }
    ck_assert_int_eq(ddp_decoder_end(decoder, &text, &length), DDP_OK);
    memcpy(all + used, text, length);
    *bytes = used + length;
    ddp_decoder_destroy(decoder);
    free(tokens.ids);
    return all;
}

static void check_decoded(const struct golden *g, const ddp_tokenizer *t,
                          const struct ddp_text_part *part)
{
    const struct ddp_text_part expected = from_hex(g->answer_count > 0 ? g->answer[0] : "-");
    for (size_t step = 1; step < 100; step += 98) {
        size_t bytes;
        const char *text = decoded(t, part, step, &bytes);
        ck_assert_msg(bytes == expected.bytes && memcmp(text, expected.at, bytes) == 0,
                      "%s: \"%.*s\", not \"%s\"", g->name, (int)bytes, text, expected.at);
    }
}

START_TEST(test_golden)
{
    FILE *file = golden_open("data/text/golden/tokenizers.txt");
    struct golden g;
    int count = 0;
    for (; golden_next(file, &g); golden_free(&g), count++) {
        const ddp_tokenizer *t = tokenizer_named(g.words[1]);
        const struct ddp_text_part part = from_hex(g.words[2]);
        const char *kind = g.words[0];
        if (strcmp(kind, "decoded") == 0) {
            check_decoded(&g, t, &part);
            continue;
        }
        const unsigned flags = kind[0] == 'p'   ? DDP_ENCODE_AS_TEXT
                               : kind[0] == 'b' ? DDP_ENCODE_BOS
                                                : 0;
        for (int twice = 0; twice < 2; twice++) /* the second time words are known */
            ck_assert_msg(strcmp(encoded(t, &part, flags), answer_shown(&g, 0)) == 0,
                          "%s (\"%s\"): %s, not %s", g.name, part.at, encoded(t, &part, flags),
                          answer_shown(&g, 0));
    }
    fclose(file);
    ck_assert_int_gt(count, 500);
    tokenizer_named("");
}
END_TEST

/* --- many texts, long texts, threads --- */

static const char *const names[] = {"gpt2",   "qwen",   "llama3",    "splits", "digits",
                                    "prefix", "legacy", "metaspace", "words",  "unknown"};
#define NAMES (sizeof names / sizeof *names)

static char *long_text(size_t bytes)
{
    static const char *const pieces[] = {"the loss ",    "is\n", "  ",   "e\xcc\x81 ", "12345",
                                         "\xe6\x97\xa5", "x",    "\n\n", "I'll ",      "\xd0\x96",
                                         "<|im_end|>",   ", ",   "over"};
    char *text = malloc(bytes + 16);
    size_t used = 0;
    uint32_t state = 1;
    while (used < bytes) {
        state = state * 1664525u + 1013904223u;
        const char *piece = pieces[(state >> 16) % (sizeof pieces / sizeof *pieces)];
        memcpy(text + used, piece, strlen(piece));
        used += strlen(piece);
    }
    text[used] = '\0';
    return text;
}

START_TEST(test_threads)
{
    enum { TEXTS = 300 };
    char *text = long_text(3 << 20);
    struct ddp_text_part parts[TEXTS];
    size_t ends[2][TEXTS], at = 0;
    for (size_t i = 0; i < TEXTS - 2; i++) {
        size_t end = at + i * 7;
        while (((unsigned char)text[end] & 0xc0) == 0x80)
            end++;
        parts[i] = (struct ddp_text_part){text + at, end - at, "a text", at};
        at = end;
    }
    parts[TEXTS - 2] = (struct ddp_text_part){text + at, strlen(text) - at, "a text", at};
    parts[TEXTS - 1] = text_part("the end");
    for (size_t n = 0; n < NAMES; n++) {
        const ddp_tokenizer *t = tokenizer_named(names[n]);
        struct ddp_tokens one = {0}, many = {0};
        for (size_t i = 0; i < TEXTS; i++) {
            ck_assert_int_eq(ddp_tokenizer_encode(t, &parts[i], 0, &one), DDP_OK);
            ends[0][i] = one.count;
        }
        ck_assert_int_eq(ddp_tokenizer_encode_many(t, parts, TEXTS, 0, 3, &many, ends[1]), DDP_OK);
        ck_assert_uint_eq(one.count, many.count);
        ck_assert_int_eq(memcmp(one.ids, many.ids, one.count * sizeof *one.ids), 0);
        ck_assert_int_eq(memcmp(ends[0], ends[1], sizeof ends[0]), 0);
        free(one.ids);
        free(many.ids);
    }
    free(text);
    tokenizer_named("");
}
END_TEST

static void same_by_threads(const ddp_tokenizer *t, const char *text, size_t bytes)
{
    const struct ddp_text_part part = {text, bytes, "a text", 0};
    struct ddp_tokens one = {0}, many = {0};
    ck_assert_int_eq(ddp_tokenizer_encode(t, &part, 0, &one), DDP_OK);
    ck_assert_int_eq(ddp_tokenizer_encode_many(t, &part, 1, 0, 3, &many, NULL), DDP_OK);
    ck_assert_uint_eq(one.count, many.count);
    ck_assert_int_eq(memcmp(one.ids, many.ids, one.count * sizeof *one.ids), 0);
    free(one.ids);
    free(many.ids);
}

/* Threads begin at borders that are none, in groups of three digits, and between two unknown
 * characters, which are one token. */
START_TEST(test_borders)
{
    enum { LENGTH = 3 << 19 };
    char *text = malloc(LENGTH);
    ddp_tokenizer *fuses = NULL;
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = (char)('0' + i % 10);
    same_by_threads(tokenizer_named("llama3"), text, LENGTH);
    tokenizer_named("");
    json_t *root = json_load_file(tokenizer_path("unknown"), 0, NULL);
    json_object_set_new(json_object_get(root, "model"), "fuse_unk", json_true());
    ck_assert_int_eq(json_dump_file(root, scratch_path("tokenizer.json"), 0), 0);
    json_decref(root);
    ck_assert_int_eq(ddp_tokenizer_open(&fuses, scratch), DDP_OK);
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = "\xd0\x96"[i % 2];
    same_by_threads(fuses, text, LENGTH);
    ddp_tokenizer_close(fuses);
    free(text);
}
END_TEST

/* One piece that nothing cuts takes time in proportion to its length, nearly. */
START_TEST(test_long_piece)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH);
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = "the"[i % 3];
    for (size_t n = 0; n < NAMES; n++) {
        const struct ddp_text_part part = {text, LENGTH, "a text", 0};
        struct ddp_tokens tokens = {0};
        ck_assert_int_eq(ddp_tokenizer_encode(tokenizer_named(names[n]), &part, 0, &tokens),
                         DDP_OK);
        ck_assert_uint_gt(tokens.count, LENGTH / 100);
        free(tokens.ids);
    }
    free(text);
    tokenizer_named("");
}
END_TEST

/* The heap of long pieces merges as the plain search of short ones does. */
START_TEST(test_heap)
{
    struct ddp_vocabulary v = {0};
    struct ddp_bpe bpe = {0};
    const char *const texts[] = {"a", "b", "aa", "ab", "ba", "aab", "aaaa", "abab", "baa"};
    for (int i = 0; i < 9; i++)
        ck_assert_int_eq(ddp_vocabulary_add(&v, "test", texts[i], strlen(texts[i]), i), DDP_OK);
    ck_assert_int_eq(ddp_vocabulary_reserve_merges(&v, 8), DDP_OK);
    ck_assert(ddp_vocabulary_add_merge(&v, 0, 0, 0, 2) && ddp_vocabulary_add_merge(&v, 0, 1, 1, 3));
    ck_assert(ddp_vocabulary_add_merge(&v, 1, 0, 2, 4) && ddp_vocabulary_add_merge(&v, 2, 1, 3, 5));
    ck_assert(ddp_vocabulary_add_merge(&v, 2, 2, 4, 6) && ddp_vocabulary_add_merge(&v, 3, 3, 5, 7));
    ck_assert(!ddp_vocabulary_add_merge(&v, 3, 3, 6, 7));
    ck_assert(ddp_vocabulary_add_merge(&v, 1, 2, 6, 8)); /* "b" "a" was of a lower rank */
    uint32_t state = 5;
    for (size_t count = 1; count < 400; count++) {
        int32_t ids[400], plain[400];
        size_t merged = count, left = count;
        for (size_t i = 0; i < count; i++)
            ids[i] = plain[i] = (int32_t)((state = state * 1664525u + 1013904223u) >> 31);
        ck_assert_int_eq(ddp_bpe_merge(&bpe, &v, ids, &merged), DDP_OK);
        for (;;) {
            const struct ddp_merge *best = NULL;
            size_t where = 0;
            for (size_t i = 0; i + 1 < left; i++) {
                const struct ddp_merge *m = ddp_vocabulary_merge(&v, plain[i], plain[i + 1]);
                if (m && (!best || m->rank < best->rank)) {
                    best = m;
                    where = i;
                }
            }
            if (!best)
                break;
            plain[where] = best->id;
            memmove(&plain[where + 1], &plain[where + 2], (left - where - 2) * sizeof *plain);
            left--;
        }
        ck_assert_uint_eq(merged, left);
        ck_assert_int_eq(memcmp(ids, plain, left * sizeof *ids), 0);
    }
    ddp_bpe_clear(&bpe);
    ddp_vocabulary_clear(&v);
}
END_TEST

/* --- tokens, streams --- */

START_TEST(test_tokens)
{
    const ddp_tokenizer *t = tokenizer_named("qwen");
    size_t bytes = 0;
    const int32_t id = ddp_tokenizer_find(t, "<|im_end|>", 10);
    ck_assert_int_gt(id, 0);
    ck_assert_str_eq(ddp_tokenizer_token(t, id, &bytes), "<|im_end|>");
    ck_assert_uint_eq(bytes, 10);
    ck_assert(ddp_tokenizer_is_special(t, id));
    ck_assert(!ddp_tokenizer_is_special(t, ddp_tokenizer_find(t, "<think>", 7)));
    ck_assert_int_eq(ddp_tokenizer_find(t, "<|im_end|", 9), -1);
    ck_assert_ptr_null(ddp_tokenizer_token(t, -1, NULL));
    ck_assert_ptr_null(ddp_tokenizer_token(t, ddp_tokenizer_ids(t), NULL));
    ck_assert_ptr_nonnull(ddp_tokenizer_token(t, ddp_tokenizer_ids(t) - 1, NULL));
    ck_assert(!ddp_tokenizer_is_special(t, -1));
    ck_assert_int_eq(ddp_tokenizer_bos(t), -1);
    const uint64_t hash = ddp_tokenizer_hash(t);
    ck_assert_uint_eq(hash, ddp_tokenizer_hash(tokenizer_named("qwen")));
    ck_assert_uint_ne(hash, ddp_tokenizer_hash(tokenizer_named("gpt2")));
    tokenizer_named("");
}
END_TEST

/* Characters come when they are complete; a stream that ends inside of one says so. */
START_TEST(test_stream)
{
    const ddp_tokenizer *t = tokenizer_named("gpt2");
    ddp_decoder *decoder = NULL;
    struct ddp_tokens tokens = {0};
    const struct ddp_text_part part = text_part("\xf0\x9f\x98\x80<|endoftext|>");
    const char *text;
    size_t bytes;
    ck_assert_int_eq(ddp_tokenizer_encode(t, &part, 0, &tokens), DDP_OK);
    ck_assert_uint_eq(tokens.count, 5); /* no merges for these bytes */
    ck_assert_int_eq(ddp_decoder_create(&decoder, t, true), DDP_OK);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(ddp_decoder_next(decoder, &tokens.ids[i], 1, &text, &bytes), DDP_OK);
        ck_assert_uint_eq(bytes, 0);
    }
    ck_assert_int_eq(ddp_decoder_next(decoder, &tokens.ids[3], 2, &text, &bytes), DDP_OK);
    ck_assert_str_eq(text, "\xf0\x9f\x98\x80"); /* and nothing of the special token */
    ck_assert_int_eq(ddp_decoder_next(decoder, tokens.ids, 2, &text, &bytes), DDP_OK);
    ck_assert_str_eq(text, "");
    const int32_t strange[] = {-5, 1 << 20};
    ck_assert_int_eq(ddp_decoder_next(decoder, strange, 2, &text, &bytes), DDP_OK);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(ddp_decoder_end(decoder, &text, &bytes), DDP_OK);
    ck_assert_str_eq(text, "\xef\xbf\xbd");
    ck_assert_int_eq(ddp_decoder_end(decoder, &text, &bytes), DDP_OK);
    ck_assert_str_eq(text, "");
    ddp_decoder_destroy(decoder);
    free(tokens.ids);
    tokenizer_named("");
}
END_TEST

/* --- files --- */

/* Writes vocab.json and merges.txt of a small tokenizer. */
static void write_gpt2(const char *name)
{
    json_error_t error;
    json_t *root = json_load_file(tokenizer_path(name), 0, &error);
    const json_t *model = json_object_get(root, "model");
    json_t *vocab = json_deep_copy(json_object_get(model, "vocab"));
    json_object_set_new(vocab, "<|endoftext|>", json_integer((json_int_t)json_object_size(vocab)));
    ck_assert_int_eq(json_dump_file(vocab, scratch_path("vocab.json"), 0), 0);
    FILE *file = fopen(scratch_path("merges.txt"), "w");
    fputs("#version: 0.2\n", file);
    for (size_t i = 0; i < json_array_size(json_object_get(model, "merges")); i++) {
        const json_t *merge = json_array_get(json_object_get(model, "merges"), i);
        fprintf(file, "%s %s\r\n", json_string_value(json_array_get(merge, 0)),
                json_string_value(json_array_get(merge, 1)));
    }
    fclose(file);
    json_decref(vocab);
    json_decref(root);
}

START_TEST(test_gpt2_files)
{
    static const char text[] = "the loss, I'll see  it\n<|endoftext|>12";
    static const char config[] = "{\"tokenizer_class\": \"GPT2TokenizerFast\", "
                                 "\"model_max_length\": 1000000000000000019884624838656}";
    const struct ddp_text_part part = text_part(text);
    ddp_tokenizer *t = NULL;
    write_gpt2("gpt2");
    scratch_write("tokenizer_config.json", config, sizeof config - 1);
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_OK);
    ck_assert_str_eq(encoded(t, &part, 0), encoded(tokenizer_named("gpt2"), &part, 0));
    ck_assert_int_eq(ddp_tokenizer_eos(t), ddp_tokenizer_find(t, "<|endoftext|>", 13));
    ck_assert_int_eq(ddp_tokenizer_bos(t), ddp_tokenizer_eos(t));
    ddp_tokenizer_close(t);
    catch_messages();
    scratch_write("tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", 37);
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_ERR_UNSUPPORTED);
    expect_message("the tokenizer is a Qwen2Tokenizer");
    scratch_write("tokenizer_config.json", "[]", 2);
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_ERR_FORMAT);
    expect_message("tokenizer_config.json: it is not a JSON object");
    unlink(scratch_path("tokenizer_config.json"));
    scratch_write("merges.txt", "x\n", 2);
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_ERR_FORMAT);
    expect_message("merges.txt: merge 0 is not two tokens");
    unlink(scratch_path("merges.txt"));
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_ERR_IO);
    expect_message("there is no tokenizer in it");
    ck_assert_int_eq(ddp_tokenizer_open(&t, "/nowhere"), DDP_ERR_IO);
    expect_message("/nowhere: cannot open the tokenizer");
    tokenizer_named("");
}
END_TEST

/* The hash tells vocabularies apart that differ in their ids alone. */
START_TEST(test_gpt2_hash)
{
    static const char *const files[] = {"{\"a\":0,\"b\":1}", "{\"a\":1,\"b\":0}"};
    uint64_t hashes[2];
    scratch_write("merges.txt", "", 0);
    for (int i = 0; i < 2; i++) {
        ddp_tokenizer *t = NULL;
        scratch_write("vocab.json", files[i], strlen(files[i]));
        ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_OK);
        hashes[i] = ddp_tokenizer_hash(t);
        ddp_tokenizer_close(t);
    }
    ck_assert_uint_ne(hashes[0], hashes[1]);
}
END_TEST

START_TEST(test_configure)
{
    ddp_tokenizer *t = NULL;
    json_t *config = json_pack("{s:{s:s}, s:s, s:b}", "bos_token", "content", "<|im_start|>",
                               "eos_token", "<|im_end|>", "add_bos_token", 1);
    const struct ddp_text_part part = text_part("a");
    char expected[32];
    ck_assert_int_eq(ddp_tokenizer_open(&t, tokenizer_path("qwen")), DDP_OK);
    const uint64_t hash = ddp_tokenizer_hash(t);
    ck_assert_int_eq(ddp_tokenizer_configure(t, "f.json", config), DDP_OK);
    ck_assert_uint_ne(ddp_tokenizer_hash(t), hash);
    ck_assert_int_eq(ddp_tokenizer_eos(t), ddp_tokenizer_find(t, "<|im_end|>", 10));
    snprintf(expected, sizeof expected, "%d %s", ddp_tokenizer_bos(t), encoded(t, &part, 0));
    ck_assert_str_eq(encoded(t, &part, DDP_ENCODE_BOS), expected);
    json_object_set_new(config, "add_bos_token", json_false());
    ck_assert_int_eq(ddp_tokenizer_configure(t, "f.json", config), DDP_OK);
    ck_assert_str_eq(encoded(t, &part, DDP_ENCODE_BOS), encoded(t, &part, 0));
    catch_messages();
    json_object_set_new(config, "eos_token", json_string("</s>"));
    ck_assert_int_eq(ddp_tokenizer_configure(t, "f.json", config), DDP_ERR_FORMAT);
    expect_message("f.json: eos_token is \"</s>\", which is not a token of");
    json_object_set_new(config, "eos_token", json_integer(3));
    ck_assert_int_eq(ddp_tokenizer_configure(t, "f.json", config), DDP_ERR_FORMAT);
    expect_message("f.json: eos_token is not a string");
    json_decref(config);
    ddp_tokenizer_close(t);
}
END_TEST

/* --- bad input --- */

START_TEST(test_not_utf8)
{
    const ddp_tokenizer *t = tokenizer_named("qwen");
    struct ddp_tokens tokens = {0};
    const struct ddp_text_part parts[] = {
        text_part("fine"), {"0123456789\xc3(", 12, "f.txt", 100}, {"\xff", 1, "g.txt", 0}};
    catch_messages();
    ck_assert_int_eq(ddp_tokenizer_encode(t, &parts[1], 0, &tokens), DDP_ERR_FORMAT);
    expect_message("f.txt: byte 110 (0xc3) is not UTF-8");
    ck_assert_int_eq(ddp_tokenizer_encode_many(t, parts, 3, 0, 2, &tokens, NULL), DDP_ERR_FORMAT);
    expect_message("f.txt: byte 110 (0xc3) is not UTF-8");
    ck_assert_uint_eq(tokens.count, 0);
    free(tokens.ids);
    tokenizer_named("");
}
END_TEST

static const struct {
    const char *text, *message;
    enum ddp_status status;
} bad_files[] = {
#define MODEL(model) "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{" model "}}"
#define A64          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A512         A64 A64 A64 A64 A64 A64 A64 A64
#define AROUND(key)  "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}," key "}"
    {"{\"model\":", "line 1, column", DDP_ERR_FORMAT},
    {"[]", "it is not a JSON object", DDP_ERR_FORMAT},
    {"{}", "it has no model", DDP_ERR_FORMAT},
    {MODEL("\"type\":\"WordPiece\""), "of type \"WordPiece\" are not supported",
     DDP_ERR_UNSUPPORTED},
    {MODEL("\"type\":\"Unigram\""), "\"Unigram\"", DDP_ERR_UNSUPPORTED},
    {MODEL("\"dropout\":0.1"), "dropout in the model", DDP_ERR_UNSUPPORTED},
    {MODEL("\"end_of_word_suffix\":\"</w>\""), "end_of_word_suffix", DDP_ERR_UNSUPPORTED},
    {MODEL("\"vocab\":{}"), "no vocabulary", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0}"), "no list of merges", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0.5}"), "the id of \"a\" is not an integer", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":-1}"), "\"a\" has id -1", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":16777216}"), "ids are 0 to 16777215", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":99999999999999999999}"), "too big integer", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":1,\"b\":1}"), "\"a\" and \"b\" both have id 1", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":1,\"a\":2}"), "duplicate object key", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a b\"]"), "merge 0 names \"b\"", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]"), "merge 0 makes \"ab\"",
     DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\",[\"a\",\"a\"]]"),
     "merge 1, \"a a\", is there twice", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0,\"\":1},\"merges\":[[\"\",\"a\"]]"), "merge 0 has an empty side",
     DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]"), "merge 0 is not two tokens",
     DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0},\"merges\":[7]"), "merge 0 is not two tokens", DDP_ERR_FORMAT},
    {MODEL("\"vocab\":{\"a\":0},\"unk_token\":\"u\",\"merges\":[]"), "unk_token is not",
     DDP_ERR_FORMAT},
    {AROUND("\"normalizer\":{\"type\":\"NFKC\"}"), "normalizer \"NFKC\"", DDP_ERR_UNSUPPORTED},
    {AROUND("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"),
     "empty pattern", DDP_ERR_FORMAT},
    {AROUND("\"pre_tokenizer\":{\"type\":\"Punctuation\"}"), "pre_tokenizer \"Punctuation\"",
     DDP_ERR_UNSUPPORTED},
    {AROUND("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
            "\"Removed\"}"),
     "\"Removed\"", DDP_ERR_UNSUPPORTED},
    {AROUND("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":"
            "\"Isolated\"}"),
     "the regular expression (a: ", DDP_ERR_UNSUPPORTED},
    {AROUND("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":"
            "\"Isolated\"}"),
     "\"\\w\" in the regular expression", DDP_ERR_UNSUPPORTED},
    {AROUND("\"decoder\":{\"type\":\"WordPiece\"}"), "decoder \"WordPiece\"", DDP_ERR_UNSUPPORTED},
    {AROUND("\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"post_processor\":{\"type\":"
            "\"RobertaProcessing\"}"),
     "post_processor \"RobertaProcessing\"", DDP_ERR_UNSUPPORTED},
    {AROUND("\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"post_processor\":{\"type\":"
            "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],"
            "\"special_tokens\":{\"s\":{\"ids\":[5]}}}"),
     "\"s\" has an id that is not a token's", DDP_ERR_FORMAT},
    {AROUND(
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"content\":\"a\",\"id\":"
         "4}]"),
     "\"a\" has the ids 0 and 4", DDP_ERR_FORMAT},
    {AROUND(
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"content\":\"b\",\"id\":"
         "0}]"),
     "\"a\" and \"b\" both have id 0", DDP_ERR_FORMAT},
    {AROUND(
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"content\":\"b\",\"id\":"
         "1,\"lstrip\":true}]"),
     "\"b\" has lstrip", DDP_ERR_UNSUPPORTED},
    /* A search compares as many bytes at each position: 50 kB of "a" and a token of 70 took 5 s. */
    {AROUND("\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"content\":\"" A512
            "a\",\"id\":1}]"),
     "\"aaaaaaaaaaaaaaaaaaaa...\" has 513 bytes: at most 512 are supported", DDP_ERR_UNSUPPORTED},
    {AROUND("\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"id\":1}]"),
     "added token 0 has no content", DDP_ERR_FORMAT},
};

/* The longest added token is found, also where it begins many times in vain. */
START_TEST(test_long_added)
{
    static const char text[] =
        AROUND("\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"content\":\"" A512
               "\",\"id\":1}]");
    static const int32_t expected[] = {1, 1, 0, 0, 0};
    ddp_tokenizer *t = NULL;
    struct ddp_tokens tokens = {0};
    const struct ddp_text_part part = {.at = "a" A512 A512 "aa", .bytes = 1027, .name = "text"};
    ck_assert_int_eq(ddp_tokenizer_parse(&t, "f.json", text, strlen(text)), DDP_OK);
    ck_assert_int_eq(ddp_tokenizer_encode(t, &part, 0, &tokens), DDP_OK);
    ck_assert_uint_eq(tokens.count, 5);
    ck_assert_int_eq(memcmp(tokens.ids, expected, sizeof expected), 0);
    free(tokens.ids);
    ddp_tokenizer_close(t);
}
END_TEST

/* An id far from the others takes room in a table and no memory: it took 800 MB. A sanitizer has
 * shadows of what is there, about 100 MB. */
START_TEST(test_far_id)
{
    static const char text[] = MODEL("\"vocab\":{\"a\":0,\"b\":16777000},\"merges\":[]");
    struct rusage before, after;
    ddp_tokenizer *t = NULL;
    getrusage(RUSAGE_SELF, &before);
    ck_assert_int_eq(ddp_tokenizer_parse(&t, "f.json", text, strlen(text)), DDP_OK);
    getrusage(RUSAGE_SELF, &after);
    ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 300000);
    ddp_tokenizer_close(t);
}
END_TEST

START_TEST(test_bad_files)
{
    const char *text = bad_files[_i].text;
    ddp_tokenizer *t = NULL;
    catch_messages();
    const enum ddp_status status = ddp_tokenizer_parse(&t, "f.json", text, strlen(text));
    ck_assert_msg(status == bad_files[_i].status, "%s: status %d", text, status);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(take_messages(), "error: f.json: ") != NULL, "%s: %s", text, messages);
    ck_assert_msg(strstr(messages, bad_files[_i].message) != NULL, "%s: %s", text, messages);
    ck_assert_msg(strchr(messages, '\n') == messages + strlen(messages) - 1, "%s: %s", text,
                  messages);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *golden = test_case(suite, "golden", 60);
    tcase_add_test(golden, test_golden);
    TCase *large = test_case(suite, "large", 120);
    tcase_add_test(large, test_threads);
    tcase_add_test(large, test_long_piece);
    tcase_add_test(large, test_heap);
    tcase_add_test(large, test_borders);
    tcase_add_unchecked_fixture(large, scratch_make, scratch_remove);
    TCase *small = test_case(suite, "small", 20);
    tcase_add_unchecked_fixture(small, scratch_make, scratch_remove);
    tcase_add_checked_fixture(small, scratch_clear, NULL);
    tcase_add_test(small, test_tokens);
    tcase_add_test(small, test_stream);
    tcase_add_test(small, test_gpt2_files);
    tcase_add_test(small, test_gpt2_hash);
    tcase_add_test(small, test_configure);
    tcase_add_test(small, test_not_utf8);
    tcase_add_test(small, test_long_added);
    tcase_add_test(small, test_far_id);
    tcase_add_loop_test(small, test_bad_files, 0, sizeof bad_files / sizeof *bad_files);
    return suite;
}
