/* SPDX-License-Identifier: MIT
 *
 * Texts, prompts and chats through a tokenizer: which tokens a sample has, what is trained, where
 * documents end, what is too long, and the cache. The tokenizer is that of
 * tests/data/golden/texts: its ids were compared with the library `tokenizers`. */
#include "config.h"

#include "data/dataset.h"
#include "data/encode.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>

enum { END = 263, TURN = 264, TURN_END = 265, HELLO = 261 }; /* tokens */

static ddp_tokenizer *tokenizer;

static void put(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

static void set_up(void)
{
    char path[4096];
    const char *source = getenv("srcdir");
    scratch_clear();
    snprintf(path, sizeof path, "%s/tests/data/golden/texts", source ? source : ".");
    ck_assert_int_eq(ddp_tokenizer_open(&tokenizer, path), DDP_OK);
    ck_assert_int_eq(ddp_tokenizer_ids(tokenizer), 266);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", scratch_path("cache"), 1), 0);
}

static void clear_cache(void)
{
    DIR *directory = opendir(scratch_path("cache/ddprun"));
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char path[600];
        snprintf(path, sizeof path, "cache/ddprun/%s", entry->d_name);
        unlink(scratch_path(path));
    }
    if (directory)
        closedir(directory);
    rmdir(scratch_path("cache/ddprun"));
    rmdir(scratch_path("cache"));
}

static void clear(void)
{
    ddp_tokenizer_close(tokenizer);
    tokenizer = NULL;
    clear_cache();
    scratch_clear();
}

static struct ddp_dataset_options options_of(const char *name, int64_t seq_len)
{
    return (struct ddp_dataset_options){
        .path = scratch_path(name), .seq_len = seq_len, .tokenizer = tokenizer, .chat = "chatml"};
}

static ddp_dataset *open_set(const struct ddp_dataset_options *options)
{
    ddp_dataset *train = NULL;
    ck_assert_int_eq(ddp_dataset_open(NULL, options, &train, NULL), DDP_OK);
    return train;
}

static void must_fail(const struct ddp_dataset_options *options, enum ddp_status expected,
                      const char *this, const char *that)
{
    ddp_dataset *train = NULL;
    capture_start();
    const enum ddp_status status = ddp_dataset_open(NULL, options, &train, NULL);
    one_message(capture_stop(), this, that);
    ck_assert_int_eq(status, expected);
    ck_assert_ptr_null(train);
}

/* Sample `index` is these rows of T numbers. */
static void check_sample(const ddp_dataset *dataset, int64_t index, const int32_t *tokens,
                         const int32_t *documents, const int32_t *labels)
{
    int32_t x[128], y[64];
    const struct ddp_dataset_info *info = ddp_dataset_info(dataset);
    const int64_t seq = info->label_count;
    ck_assert_int_le(seq, 64);
    ck_assert(info->dim_count == 2 && info->dims[0] == 2 && info->dims[1] == seq);
    ck_assert_int_eq(ddp_dataset_read(dataset, &index, 1, x, y), DDP_OK);
    for (int64_t i = 0; i < seq; i++) {
        ck_assert_msg(x[i] == tokens[i], "token %d at %d", x[i], (int)i);
        ck_assert_msg(x[seq + i] == documents[i], "document %d at %d", x[seq + i], (int)i);
        ck_assert_msg(y[i] == labels[i], "label %d at %d", y[i], (int)i);
    }
    memset(x, 0, sizeof x);
    ck_assert_int_eq(ddp_dataset_read(dataset, &index, 1, x, NULL), DDP_OK); /* unwanted labels */
    ck_assert_int_eq(x[0], tokens[0]);
}

#define CHAT                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "                                  \
    "{\"role\": \"assistant\", \"content\": \"hello\"}]}\n"
#define PROMPT "{\"prompt\": \"Q:\", \"completion\": \" A\"}\n"

/* --- samples --- */

START_TEST(what_the_assistant_says)
{
    static const int32_t tokens[] = {TURN, 84,   82, 262, 198,   39,  72,  TURN_END,
                                     198,  TURN, 64, 82,  82,    72,  82,  83,
                                     64,   77,   83, 198, HELLO, END, END, END};
    static const int32_t documents[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,
                                        0, 0, 0, 0, 0, 0, 0, 0, 0, 21, 22, 23};
    int32_t labels[24];
    put("a.jsonl", CHAT);
    const struct ddp_dataset_options options = options_of("a.jsonl", 24);
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 1);
    ck_assert_int_eq(ddp_dataset_info(train)->class_count, 266);
    for (int i = 0; i < 24; i++)
        labels[i] = -1;
    labels[19] = HELLO;
    labels[20] = TURN_END;
    check_sample(train, 0, tokens, documents, labels);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(completions)
{
    static const int32_t tokens[] = {48, 25, 220, 32, END}, documents[] = {0, 0, 0, 0, 4};
    static const int32_t labels[] = {-1, 220, 32, END, -1};
    put("a.jsonl", PROMPT);
    const struct ddp_dataset_options options = options_of("a.jsonl", 5);
    ddp_dataset *train = open_set(&options);
    check_sample(train, 0, tokens, documents, labels);
    ddp_dataset_close(train);
}
END_TEST

/* "aX" has the tokens 64, and X with the end; the first is not trained. */
#define AB(letter) "{\"prompt\": \"a\", \"completion\": \"" letter "\"}\n"

START_TEST(documents_share_a_row)
{
    static const int32_t tokens[] = {64, 65, 64, 66, END}, documents[] = {0, 0, 2, 2, 4};
    static const int32_t labels[] = {65, END, 66, END, -1};
    static const int32_t last[] = {64, 67, END, END, END}, borders[] = {0, 0, 2, 3, 4};
    static const int32_t of_last[] = {67, END, -1, -1, -1};
    put("a.jsonl", AB("b") AB("c") AB("d"));
    struct ddp_dataset_options options = options_of("a.jsonl", 5);
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 2);
    ck_assert_ptr_nonnull(strstr(ddp_dataset_info(train)->notice,
                                 "3 examples in 2 rows of 5 tokens, 40.0 % of them padding"));
    check_sample(train, 0, tokens, documents, labels);
    check_sample(train, 1, last, borders, of_last);
    ddp_dataset_close(train);
    options.packing = DDP_PACKING_PAD;
    train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 3);
    check_sample(train, 2, last, borders, of_last);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(a_full_row_and_one_more)
{
    static const int32_t tokens[] = {48, 25, 220, 32}, documents[] = {0, 0, 0, 0};
    static const int32_t labels[] = {-1, 220, 32, END};
    put("a.jsonl", PROMPT);
    struct ddp_dataset_options options = options_of("a.jsonl", 4);
    options.long_samples = DDP_LONG_REFUSE;
    ddp_dataset *train = open_set(&options);
    check_sample(train, 0, tokens, documents, labels);
    ddp_dataset_close(train);
    options.seq_len = 3;
    must_fail(&options, DDP_ERR_INVALID, "a.jsonl: line 1", "5 tokens");
    options.long_samples = DDP_LONG_CUT;
    train = open_set(&options);
    ck_assert_ptr_nonnull(strstr(ddp_dataset_info(train)->notice, "1 longer than that are cut"));
    check_sample(train, 0, tokens, documents, labels);
    ddp_dataset_close(train);
    options.long_samples = DDP_LONG_DROP;
    must_fail(&options, DDP_ERR_FORMAT, "1 are too long", "no example");
}
END_TEST

/* What is cut off was all that is trained, or leaves a tail that is not. */
START_TEST(without_a_target)
{
    static const int32_t tokens[] = {64, 65, END, END, END, END, END, END, END, END};
    static const int32_t documents[] = {0, 0, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int32_t labels[] = {65, END, -1, -1, -1, -1, -1, -1, -1, -1};
    put("a.jsonl", CHAT);
    struct ddp_dataset_options options = options_of("a.jsonl", 10);
    must_fail(&options, DDP_ERR_FORMAT, "a.jsonl", "1 have no answer");
    put("b.jsonl", "{\"prompt\": \"0123456789\", \"completion\": \"c\"}\n\n" AB("b"));
    options = options_of("b.jsonl", 9);
    options.seq_len = 9;
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 1);
    ck_assert_ptr_nonnull(
        strstr(ddp_dataset_info(train)->notice, "1 without a token to learn are left out"));
    check_sample(train, 0, tokens, documents, labels);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(texts_are_a_stream)
{
    static const int32_t stream[] = {HELLO, 220, 257, 81, 68, END, 64, END, 65, END};
    int32_t x[3], labels[3];
    put("a.jsonl", "{\"text\": \"hello there\"}\n{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    put("b.txt", "hello there");
    struct ddp_dataset_options options = options_of("a.jsonl", 3);
    options.val_split = 1;
    ddp_dataset *train = open_set(&options);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert(info->dim_count == 1 && info->dims[0] == 3 && info->class_count == 266);
    ck_assert(!info->bytes && info->token_bytes == 1.3); /* 13 bytes, 10 tokens */
    ck_assert_int_eq(info->sample_count, 1);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0}, 1, x, labels), DDP_OK);
    ck_assert_mem_eq(x, stream, sizeof x);
    ck_assert_mem_eq(labels, stream + 1, sizeof labels);
    ddp_dataset_close(train);
    options = options_of("b.txt", 2);
    train = open_set(&options); /* a tenth, a token, is for the test */
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 2);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){1}, 1, x, labels), DDP_OK);
    ck_assert_mem_eq(x, stream + 2, 2 * sizeof *x);
    ddp_dataset_close(train);
}
END_TEST

/* Without a tokenizer nothing is new. */
START_TEST(bytes_stay_bytes)
{
    put("b.txt", "hello there, hello there");
    struct ddp_dataset_options options = options_of("b.txt", 2);
    options.tokens = DDP_TOKENS_BYTES;
    ddp_dataset *train = open_set(&options);
    ck_assert(ddp_dataset_info(train)->bytes && ddp_dataset_info(train)->class_count == 256);
    ddp_dataset_close(train);
    options.tokens = DDP_TOKENS_AUTO;
    options.tokenizer = NULL;
    train = open_set(&options);
    ck_assert(ddp_dataset_info(train)->bytes && ddp_dataset_info(train)->class_count == 256);
    ddp_dataset_close(train);
    put("a.jsonl", "\n" CHAT);
    options = options_of("a.jsonl", 2);
    options.tokenizer = NULL;
    must_fail(&options, DDP_ERR_FORMAT, "line 2", "--tokenizer");
}
END_TEST

/* --- what is wrong --- */

START_TEST(bad_lines)
{
    static const char *const bad[][2] = {
        {CHAT "\n{\"messages\": [", "a.jsonl: line 3, column"},
        {CHAT PROMPT, "a.jsonl: line 2: it has prompt and completion, and the first line messages"},
        {PROMPT "{\"text\": \"a\"}\n", "a.jsonl: line 2: it has text"},
        {CHAT CHAT "{\"messages\": []}", "a.jsonl: line 3"},
        {PROMPT "{\"prompt\": \"a\xff\", \"completion\": \"b\"}\n", "a.jsonl: line 2, column"},
        {CHAT "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}\n", "a.jsonl: line 2: no"},
        {CHAT "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}, "
              "{\"role\": \"robot\", \"content\": \"\"}]}\n",
         "a.jsonl: line 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("a.jsonl", bad[i][0]);
        const struct ddp_dataset_options options = options_of("a.jsonl", 24);
        must_fail(&options, DDP_ERR_FORMAT, bad[i][1], "");
    }
}
END_TEST

/* Of many lines that threads work on, the first bad one is named. */
START_TEST(the_first_bad_line)
{
    FILE *file = fopen(scratch_path("a.jsonl"), "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 1; i <= 3000; i++)
        fputs(i == 1234 || i == 1235 || i > 2000 ? "{}\n" : PROMPT, file);
    ck_assert_int_eq(fclose(file), 0);
    const struct ddp_dataset_options options = options_of("a.jsonl", 24);
    must_fail(&options, DDP_ERR_FORMAT, "a.jsonl: line 1234: no text", "");
}
END_TEST

START_TEST(a_text_that_is_not_utf8)
{
    put("a.txt", "hello \xff there");
    const struct ddp_dataset_options options = options_of("a.txt", 2);
    must_fail(&options, DDP_ERR_FORMAT, "a.txt", "6");
}
END_TEST

START_TEST(a_smaller_vocabulary)
{
    put("a.jsonl", CHAT);
    struct ddp_dataset_options options = options_of("a.jsonl", 24);
    options.class_count = 265;
    must_fail(&options, DDP_ERR_INVALID, "token 265", "vocabulary has 265");
    options.class_count = 300; /* a padded embedding */
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_info(train)->class_count, 300);
    ddp_dataset_close(train);
    put("b.jsonl", "{\"text\": \"hello there\"}\n");
    options = options_of("b.jsonl", 2);
    options.class_count = 262;
    must_fail(&options, DDP_ERR_INVALID, "token 263", "vocabulary has 262");
}
END_TEST

/* --- the cache --- */

static int looks; /* of the watch */

static bool count_looks(void *arg, double share)
{
    (void)arg;
    ck_assert(share <= 1);
    looks += share > 0;
    return true;
}

/* Opens a.jsonl; was it encoded? */
static bool encodes(struct ddp_dataset_options options)
{
    uint64_t fingerprint;
    static uint64_t first;
    looks = 0;
    options.watch = (struct ddp_dataset_watch){count_looks, NULL};
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_fingerprint(train, &fingerprint), DDP_OK);
    first = first ? first : fingerprint;
    ck_assert_uint_eq(fingerprint, first);
    ddp_dataset_close(train);
    return looks > 0;
}

/* The only file of encoded texts. */
static const char *cached(void)
{
    static char name[600];
    DIR *directory = opendir(scratch_path("cache/ddprun"));
    int found = 0;
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strncmp(entry->d_name, "texts-", 6) == 0) {
            snprintf(name, sizeof name, "cache/ddprun/%s", entry->d_name);
            found++;
        }
    closedir(directory);
    ck_assert_int_eq(found, 1);
    return name;
}

START_TEST(texts_are_encoded_once)
{
    size_t bytes;
    put("a.jsonl", CHAT CHAT);
    struct ddp_dataset_options options = options_of("a.jsonl", 24);
    ck_assert(encodes(options));
    ck_assert(!encodes(options));
    char *content = scratch_read(cached(), &bytes);
    content[bytes / 2] ^= 1;
    scratch_write(cached(), content, bytes);
    capture_start();
    const bool again = encodes(options);
    one_message(capture_stop(), "damaged", "warning");
    ck_assert(again);
    ck_assert(!encodes(options));
    ck_assert_int_eq(truncate(scratch_path(cached()), (off_t)bytes - 1), 0);
    capture_start();
    const bool once_more = encodes(options);
    one_message(capture_stop(), "damaged", "warning");
    ck_assert(once_more);
    options.chat = NULL; /* which the tokenizer lacks: another key, and then an error */
    must_fail(&options, DDP_ERR_INVALID, "chat", "");
}
END_TEST

START_TEST(other_texts_are_encoded_anew)
{
    static char text[(1 << 20) + sizeof CHAT " " CHAT];
    put("a.jsonl", CHAT CHAT);
    struct ddp_dataset_options options = options_of("a.jsonl", 24);
    ck_assert(encodes(options));
    for (size_t at = 0; at <= 1 << 20; at += 1 << 20) { /* two as long, that differ from there on */
        memset(text, ' ', at);
        strcpy(text + at, CHAT " " CHAT);
        put("a.jsonl", text);
        ck_assert(encodes(options));
        strcpy(text + at, " " CHAT CHAT);
        put("a.jsonl", text);
        ck_assert(encodes(options));
    }
    options.packing = DDP_PACKING_PAD; /* not of what is encoded */
    options.seq_len = 24;
    ck_assert(!encodes(options));
}
END_TEST

#define CHATML_JINJA                                                                               \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] " \
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "                         \
    "'<|im_start|>assistant\n' }}{% endif %}"

/* The tokenizer with a file beside it. */
static void open_beside(const char *name, const char *text)
{
    char *source = realpath(ddp_tokenizer_path(tokenizer), NULL);
    (void)!symlink(source, scratch_path("tokenizer.json")); /* the second time it is there */
    free(source);
    put(name, text);
    ddp_tokenizer_close(tokenizer);
    ck_assert_int_eq(ddp_tokenizer_open(&tokenizer, scratch), DDP_OK);
}

START_TEST(another_template_is_not_overlooked)
{
    put("a.jsonl", CHAT CHAT);
    open_beside("chat_template.jinja", CHATML_JINJA);
    struct ddp_dataset_options options = options_of("a.jsonl", 24);
    options.chat = NULL;
    ck_assert(encodes(options));
    ck_assert(!encodes(options));
    open_beside("chat_template.jinja", "{{ other }}");
    options.tokenizer = tokenizer;
    must_fail(&options, DDP_ERR_INVALID, "chat_template.jinja",
              "does not write what the assistant says");
}
END_TEST

static void end_is(int32_t token)
{
    int32_t x[2], labels[2];
    put("a.jsonl", "{\"text\": \"hello\"}\n{\"text\": \"hello\"}\n");
    const struct ddp_dataset_options options = options_of("a.jsonl", 2);
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0}, 1, x, labels), DDP_OK);
    ck_assert(x[0] == HELLO && labels[0] == token);
    ddp_dataset_close(train);
}

START_TEST(another_end_is_not_overlooked)
{
    open_beside("tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    end_is(END);
    open_beside("tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    end_is(TURN_END);
}
END_TEST

/* Of texts and prompts, where the tokenizer puts one there. */
START_TEST(the_token_that_begins_a_text)
{
    static const char *const lines[] = {"{\"text\": \"hello there\"}\n", PROMPT};
    char path[4096];
    const char *directory = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/text/golden/tokenizers/legacy.json",
             directory ? directory : ".");
    char *source = realpath(path, NULL);
    ck_assert_int_eq(symlink(source, scratch_path("tokenizer.json")), 0);
    free(source);
    open_beside("tokenizer_config.json", "{\"eos_token\": \"</s>\"}");
    for (int i = 0; i < 2; i++) {
        int32_t x[16], labels[8];
        put("a.jsonl", lines[i]);
        const struct ddp_dataset_options options = options_of("a.jsonl", i ? 8 : 4);
        ddp_dataset *train = open_set(&options);
        ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0}, 1, x, labels), DDP_OK);
        ck_assert_int_eq(x[0], 1); /* <s> */
        ddp_dataset_close(train);
    }
}
END_TEST

/* A text may end with it. */
START_TEST(one_token_ends_a_text)
{
    put("a.jsonl",
        "{\"text\": \"hello<|endoftext|>\"}\n{\"text\": \"hello\"}\n{\"text\": \"a\"}\n");
    const struct ddp_dataset_options options = options_of("a.jsonl", 3);
    static const int32_t tokens[] = {HELLO, END, HELLO, END};
    int32_t x[3], labels[3];
    ddp_dataset *train = open_set(&options);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0}, 1, x, labels), DDP_OK);
    ck_assert_mem_eq(x, tokens, sizeof x);
    ck_assert_mem_eq(labels, tokens + 1, sizeof labels);
    ddp_dataset_close(train);
}
END_TEST

/* Not one that 16 bits hold. */
START_TEST(a_large_token)
{
    char all[8192] = "", text[sizeof all + 8];
    FILE *file = fopen(ddp_tokenizer_path(tokenizer), "rb");
    ck_assert(file && fread(all, 1, sizeof all - 1, file) > 0 && fclose(file) == 0);
    const char *id = strstr(all, "\"id\":263");
    ck_assert_ptr_nonnull(id);
    snprintf(text, sizeof text, "%.*s\"id\":70000%s", (int)(id - all), all, id + 8);
    put("tokenizer.json", text);
    open_beside("tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    end_is(70000);
}
END_TEST

START_TEST(without_a_cache)
{
    put("a.jsonl", CHAT CHAT);
    const struct ddp_dataset_options options = options_of("a.jsonl", 24);
    put("file", "");
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", scratch_path("file"), 1), 0);
    ck_assert(encodes(options));
    ck_assert(encodes(options));
}
END_TEST

static bool stop_at_once(void *arg, double share)
{
    (void)arg;
    (void)share;
    return false;
}

START_TEST(the_watch_ends_it)
{
    ddp_dataset *train = NULL;
    put("a.jsonl", CHAT CHAT);
    struct ddp_dataset_options options = options_of("a.jsonl", 24);
    options.watch.goes_on = stop_at_once;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_ERR_ABORTED);
    ck_assert_int_eq(access(scratch_path("cache/ddprun"), F_OK), -1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("chats");
    TCase *tc = test_case(suite, "chats", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, set_up, clear);
    tcase_add_test(tc, what_the_assistant_says);
    tcase_add_test(tc, completions);
    tcase_add_test(tc, documents_share_a_row);
    tcase_add_test(tc, a_full_row_and_one_more);
    tcase_add_test(tc, without_a_target);
    tcase_add_test(tc, texts_are_a_stream);
    tcase_add_test(tc, bytes_stay_bytes);
    tcase_add_test(tc, bad_lines);
    tcase_add_test(tc, the_first_bad_line);
    tcase_add_test(tc, a_text_that_is_not_utf8);
    tcase_add_test(tc, a_smaller_vocabulary);
    tcase_add_test(tc, texts_are_encoded_once);
    tcase_add_test(tc, other_texts_are_encoded_anew);
    tcase_add_test(tc, another_template_is_not_overlooked);
    tcase_add_test(tc, another_end_is_not_overlooked);
    tcase_add_test(tc, the_token_that_begins_a_text);
    tcase_add_test(tc, one_token_ends_a_text);
    tcase_add_test(tc, a_large_token);
    tcase_add_test(tc, without_a_cache);
    tcase_add_test(tc, the_watch_ends_it);
    return suite;
}
