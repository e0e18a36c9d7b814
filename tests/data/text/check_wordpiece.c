/* SPDX-License-Identifier: MIT
 *
 * data/text/wordpiece: the ids that tokenizers gives the same texts (golden/small_wordpiece.py),
 * and vocabularies that are refused. */
#include "config.h"

#include "core/json.h"
#include "core/log.h"
#include "data/text/wordpiece.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER "data/text/golden/wordpiece/"

static const char plain[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nb\n";

static char *read_all(const char *name, size_t *bytes)
{
    char *path;
    const char *srcdir = getenv("srcdir");
    ck_assert_int_gt(asprintf(&path, "%s/tests/" FOLDER "%s", srcdir ? srcdir : "..", name), 0);
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    char *text = malloc(1 << 20);
    *bytes = fread(text, 1, (1 << 20) - 1, file);
    text[*bytes] = '\0';
    fclose(file);
    free(path);
    return text;
}

static void compare(const ddp_wordpiece *w, const json_t *root, const char *key, int line)
{
    const json_t *text = json_object_get(root, "text"), *wanted = json_object_get(root, key);
    int32_t *ids = NULL;
    size_t count = 0;
    ck_assert_int_eq(
        ddp_wordpiece_encode(w, json_string_value(text), json_string_length(text), &ids, &count),
        DDP_OK);
    ck_assert_msg(count == json_array_size(wanted), "line %d, %s: %zu tokens, not %zu", line, key,
                  count, json_array_size(wanted));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(ids[i] == json_integer_value(json_array_get(wanted, i)),
                      "line %d, %s, token %zu: %d, not %d", line, key, i, (int)ids[i],
                      (int)json_integer_value(json_array_get(wanted, i)));
    free(ids);
}

START_TEST(test_golden)
{
    size_t vocabulary_bytes, bytes;
    char *vocabulary = read_all("vocab.txt", &vocabulary_bytes);
    char *cases = read_all("cases.jsonl", &bytes), *at = cases, *text;
    ddp_wordpiece *small = NULL, *whole = NULL;
    int line = 0;
    ck_assert_int_eq(ddp_wordpiece_parse(&small, "v", vocabulary, vocabulary_bytes, true), DDP_OK);
    ck_assert_int_eq(ddp_wordpiece_parse(&whole, "v", vocabulary, vocabulary_bytes, false), DDP_OK);
    while ((text = strsep(&at, "\n")) && *text) {
        json_t *root = NULL;
        ck_assert_int_eq(ddp_json_parse_object(&root, "cases", text, strlen(text), JSON_ALLOW_NUL),
                         DDP_OK);
        compare(small, root, "small", ++line);
        compare(whole, root, "whole", line);
        json_decref(root);
    }
    ck_assert_int_gt(line, 400);
    ddp_wordpiece_close(small);
    ddp_wordpiece_close(whole);
    free(cases);
    free(vocabulary);
}
END_TEST

static void refuse(const char *text, const char *message)
{
    ddp_wordpiece *w = NULL;
    char said[512] = "";
    ddp_log_hold(said, sizeof said);
    ck_assert_int_eq(ddp_wordpiece_parse(&w, "vocab.txt", text, strlen(text), true),
                     DDP_ERR_FORMAT);
    ddp_log_hold(NULL, 0);
    ck_assert_msg(strstr(said, message) != NULL, "%s", said);
}

START_TEST(test_refused)
{
    refuse("[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n", "has no [UNK]");
    refuse("", "has no [PAD]");
    refuse("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\na\n", "a");
    refuse("[PAD]\n[UNK]\n[CLS]\n[SEP]\n\xff\n", "is not UTF-8");
}
END_TEST

/* Files: what stands beside a vocab.txt, and tokenizer.json. */
START_TEST(test_files)
{
    static const char config[] = "{\"do_lower_case\": false}";
    static const char json[] =
        "{\"normalizer\": {\"type\": \"BertNormalizer\", \"lowercase\": true, \"strip_accents\": "
        "null}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"model\": {\"type\": "
        "\"WordPiece\", \"unk_token\": \"[UNK]\", \"vocab\": {\"[PAD]\": 0, \"[UNK]\": 1, "
        "\"[CLS]\": 2, \"[SEP]\": 3, \"a\": 5, \"##b\": 4}}}";
    ddp_wordpiece *w = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    scratch_write("vocab.txt", plain, sizeof plain - 1);
    ck_assert_int_eq(ddp_wordpiece_open(&w, scratch_path("vocab.txt")), DDP_OK);
    ck_assert(ddp_wordpiece_lowers(w) && ddp_wordpiece_is_plain(w));
    ddp_wordpiece_close(w);
    scratch_write("tokenizer_config.json", config, sizeof config - 1);
    ck_assert_int_eq(ddp_wordpiece_open(&w, scratch_path("vocab.txt")), DDP_OK);
    ck_assert(!ddp_wordpiece_lowers(w));
    ck_assert_int_eq(ddp_wordpiece_special(w, DDP_WORDPIECE_MASK), 4);
    ddp_wordpiece_close(w);
    scratch_write("tokenizer.json", json, sizeof json - 1);
    ck_assert_int_eq(ddp_wordpiece_open(&w, scratch_path("tokenizer.json")), DDP_OK);
    ck_assert(ddp_wordpiece_lowers(w) && !ddp_wordpiece_is_plain(w));
    ck_assert_int_eq(ddp_wordpiece_special(w, DDP_WORDPIECE_MASK), -1);
    ck_assert_int_eq(ddp_wordpiece_encode(w,
                                          "\xc3\x84"
                                          "b",
                                          3, &ids, &count),
                     DDP_OK);
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(ids[0], 5);
    ck_assert_int_eq(ids[1], 4);
    free(ids);
    ddp_wordpiece_close(w);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("wordpiece");
    TCase *tcase = tcase_create("wordpiece");
    tcase_add_checked_fixture(tcase, scratch_make, scratch_remove);
    tcase_add_test(tcase, test_golden);
    tcase_add_test(tcase, test_refused);
    tcase_add_test(tcase, test_files);
    suite_add_tcase(suite, tcase);
    return suite;
}
