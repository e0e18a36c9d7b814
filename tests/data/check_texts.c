/* SPDX-License-Identifier: MIT
 *
 * data/tokens of texts: directories, what their names say, files joined by newlines, .gz and JSON
 * lines, and the part that is cut off. */
#include "config.h"

#include "data/dataset.h"
#include "data/text_file.h"
#include "data/token_file.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <zlib.h>

/* --- making files --- */

static void put(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

static void put_gz(const char *name, const char *text)
{
    gzFile file = gzopen(scratch_path(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, text, (unsigned)strlen(text)), (int)strlen(text));
    ck_assert_int_eq(gzclose(file), Z_OK);
}

static void make_directory(const char *name)
{
    ck_assert_int_eq(mkdir(scratch_path(name), 0700), 0);
}

/* scratch_clear() removes files and empty directories: those in the directories go first. */
static void clear_below(const char *name)
{
    DIR *directory = opendir(scratch_path(name));
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlink(scratch_path(path)) < 0) {
            clear_below(path);
            rmdir(scratch_path(path));
        }
    }
    closedir(directory);
}

static void clear(void)
{
    clear_below(".");
}

/* --- what a dataset has --- */

static struct ddp_dataset_options options_of(const char *path)
{
    return (struct ddp_dataset_options){.path = path, .seq_len = 4};
}

/* The tokens that the samples show, one after another: their first T, and the last one's label. */
static const char *text_of(const ddp_dataset *dataset)
{
    static char texts[2][1 << 16];
    static int turn;
    char *text = texts[turn++ % 2];
    const struct ddp_dataset_info *info = ddp_dataset_info(dataset);
    const size_t seq = (size_t)info->label_count;
    int32_t x[16], labels[16];
    size_t used = 0;
    ck_assert_int_le(info->label_count, 16);
    for (int64_t i = 0; i < info->sample_count; i++) {
        ck_assert_int_eq(ddp_dataset_read(dataset, &i, 1, x, labels), DDP_OK);
        for (size_t k = 0; k < seq; k++) {
            text[used++] = (char)x[k];
            ck_assert(k == 0 || x[k] == labels[k - 1]);
        }
    }
    text[used++] = (char)labels[seq - 1];
    text[used] = '\0';
    return text;
}

/* Opens and compares with the beginnings of what is in the sets: a rest too short for a sample is
 * not there. test NULL: the data have none of their own. */
static void shows(struct ddp_dataset_options options, const char *train, const char *test)
{
    ddp_dataset *of_train = NULL, *of_test = NULL;
    options.val_split = test ? 0 : 1; /* not the last tenth */
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &of_train, &of_test), DDP_OK);
    const char *shown = text_of(of_train);
    const size_t seq = (size_t)options.seq_len;
    size_t length = strlen(train) - (test ? 0 : seq + 1); /* a sample was cut off */
    length = (length - 1) / seq * seq + 1;
    ck_assert_msg(strlen(shown) == length && strncmp(shown, train, length) == 0,
                  "'%s' instead of '%s'", shown, train);
    if (test) {
        shown = text_of(of_test);
        length = (strlen(test) - 1) / seq * seq + 1;
        ck_assert_msg(strlen(shown) == length && strncmp(shown, test, length) == 0,
                      "test: '%s' instead of '%s'", shown, test);
    }
    ddp_dataset_close(of_train);
    ddp_dataset_close(of_test);
}

static void must_fail(struct ddp_dataset_options options, enum ddp_status wanted, const char *this,
                      const char *that)
{
    ddp_dataset *train = NULL, *test = NULL;
    capture_start();
    enum ddp_status status = ddp_dataset_open(NULL, &options, &train, &test);
    const char *text = capture_stop();
    ck_assert_msg(status == wanted, "status %d, not %d: %s", status, wanted, text);
    ck_assert(!train && !test);
    one_message(text, this, that);
}

/* --- directories --- */

START_TEST(a_directory_is_searched)
{
    make_directory("a");
    make_directory("a/deep");
    make_directory("empty");
    put("b.txt", "second text");
    put("a/z.txt", "first");
    put("a/deep/y.txt", "of all");
    put("c.md", "no text by its name");
    put(".hidden.txt", "nor this");
    put_gz("d.txt.gz", "packed");
    put("e.jsonl", "{\"text\": \"a line\"}\n{\"text\": \"and another one, the last of all\"}\n");
    ck_assert_int_eq(symlink("b.txt", scratch_path("f.txt")), 0);
    ck_assert_int_eq(symlink(".", scratch_path("loop")), 0);
    shows(options_of(scratch),
          "of all\nfirst\nsecond text\npacked\na line\nand another one, the last of "
          "all\nsecond text",
          NULL);
    struct ddp_dataset_options options = options_of(scratch);
    ddp_dataset *train;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_ptr_nonnull(strstr(ddp_dataset_info(train)->notice, ": 6 texts, 83 bytes"));
    ddp_dataset_close(train);
}
END_TEST

START_TEST(names_say_what_a_text_is_for)
{
    put("a.txt", "one of two texts");
    put("b.txt", "the other");
    put("test.txt", "to be tested with");
    put("stories-test.txt", "a text as others");
    const char *others = "one of two texts\nthe other\na text as others";
    shows(options_of(scratch), others, "to be tested with");
    put("validation.txt", "preferred to test");
    shows(options_of(scratch), others, "preferred to test");
    put("stories-train.txt", "what is learned");
    put("train.jsonl", "{\"text\": \"and this, too\"}");
    shows(options_of(scratch), "what is learned\nand this, too", "preferred to test");
    struct ddp_dataset_options options = options_of(scratch);
    options.val = scratch_path("b.txt"); /* what is for the test is not learned all the same */
    shows(options, "what is learned\nand this, too", "the other");
    options.val_split = 0.5;
    options.val = NULL;
    must_fail(options, DDP_ERR_INVALID, "--val-split", "has a test part of its own");
    /* All of a directory that --val names. */
    make_directory("v");
    put("v/train.txt", "more for");
    put("v/test.txt", "the test");
    options = options_of(scratch_path("a.txt"));
    options.val = scratch_path("v");
    shows(options, "one of two texts", "the test\nmore for");
}
END_TEST

START_TEST(directories_in_a_directory)
{
    make_directory("train");
    make_directory("train/test"); /* below the top the names say nothing */
    make_directory("valid");
    put("train/test/b.txt", "learned too");
    put("train/val.txt", "learned");
    put("valid/a.txt", "not learned");
    put("README.txt", "nor this");
    shows(options_of(scratch), "learned too\nlearned", "not learned");
    unlink(scratch_path("train/test/b.txt"));
    unlink(scratch_path("train/val.txt"));
    unlink(scratch_path("README.txt"));
    must_fail(options_of(scratch), DDP_ERR_IO, scratch, "no text for training");
    struct ddp_dataset_options options = options_of(scratch_path("valid/a.txt"));
    options.val = scratch_path("train");
    must_fail(options, DDP_ERR_IO, options.val, "there is no text in this directory");
    unlink(scratch_path("valid/a.txt"));
    must_fail(options_of(scratch), DDP_ERR_IO, scratch, "no data found");
}
END_TEST

/* --- unpacked ones --- */

START_TEST(json_lines)
{
    const char *lines = "\xef\xbb\xbf{\"text\": \"caf\\u00e9 \\ud83d\\ude00\"}\r\n"
                        "\n  \t\r\n"
                        "{\"id\": 123456789012345678901234567890, \"text\": \"two\\nlines\", "
                        "\"meta\": {\"text\": 1}, \"meta\": []}\n"
                        "{\"text\": \"\"}\n"
                        "{\"text\": \"the last line has no end\"}";
    const char *text = "caf\xc3\xa9 \xf0\x9f\x98\x80\ntwo\nlines\n\nthe last line has no end";
    put("a.jsonl", lines);
    put_gz("b.jsonl.gz", lines);
    put_gz("c.txt.gz", lines + 3);
    shows(options_of(scratch_path("a.jsonl")), text, NULL);
    shows(options_of(scratch_path("b.jsonl.gz")), text, NULL);
    shows(options_of(scratch_path("c.txt.gz")), lines + 3, NULL);
    struct ddp_dataset_options options = options_of(scratch_path("a.jsonl"));
    options.tokens = DDP_TOKENS_BYTES; /* the JSON itself */
    shows(options, lines, NULL);
    ddp_dataset *train;
    options.tokens = DDP_TOKENS_AUTO;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_uint_ge(ddp_dataset_info(train)->memory_bytes, strlen(text));
    ddp_dataset_close(train);
}
END_TEST

/* A byte 0 in a text is a token as any other. */
START_TEST(a_zero_byte)
{
    struct ddp_text text = {0};
    put("a.jsonl", "{\"text\": \"a\\u0000b\"}\n{\"text\": \"c\"}");
    FILE *file = fopen(scratch_path("a.jsonl"), "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(ddp_text_read(&text, file, "a.jsonl", true, 1000), DDP_OK);
    fclose(file);
    ck_assert_uint_eq(text.bytes, 5);
    ck_assert_mem_eq(text.at, "a\0b\nc", 5);
    free(text.at);
}
END_TEST

START_TEST(bad_lines)
{
    static const char *const bad[][2] = {
        {"{\"text\": \"a\"}\n\n{\"text\": \"b\"\n", "line 3, column"},
        {"{\"text\": \"a\"}\n{\"txt\": \"b\"}\n", "line 2: no text in it"},
        {"{\"text\": \"a\"}\n{\"text\": 5}\n", "line 2: no text in it"},
        {"[{\"text\": \"a\"}]\n", "line 1: no text in it"},
        {"{\"text\": \"a\"} x\n", "line 1, column"},
        {"{\"text\": \"\\ud800\"}\n", "line 1, column"},
        {"{\"text\": \"\xff\"}\n", "line 1, column"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("a.jsonl", bad[i][0]);
        must_fail(options_of(scratch_path("a.jsonl")), DDP_ERR_FORMAT, "a.jsonl", bad[i][1]);
    }
}
END_TEST

START_TEST(bad_compression)
{
    size_t bytes;
    char cut[4096];
    put_gz("a.txt.gz", "a text that is compressed and then cut");
    const char *whole = scratch_read("a.txt.gz", &bytes);
    memcpy(cut, whole, bytes);
    scratch_write("b.txt.gz", cut, bytes - 3);
    must_fail(options_of(scratch_path("b.txt.gz")), DDP_ERR_FORMAT, "b.txt.gz", "truncated");
    scratch_write("c.txt", cut, bytes);
    must_fail(options_of(scratch_path("c.txt")), DDP_ERR_FORMAT, "c.txt", "ends in .gz");
    gzFile twice = gzopen(scratch_path("t.txt.gz"), "wb");
    ck_assert_int_eq(gzwrite(twice, cut, (unsigned)bytes), (int)bytes);
    ck_assert_int_eq(gzclose(twice), Z_OK);
    must_fail(options_of(scratch_path("t.txt.gz")), DDP_ERR_FORMAT, "t.txt.gz", "gzip twice");
    put_gz("d.txt.gz", "");
    must_fail(options_of(scratch_path("d.txt.gz")), DDP_ERR_FORMAT, "d.txt.gz", "too few");
    ck_assert_int_eq(mkfifo(scratch_path("e.txt.gz"), 0600), 0);
    must_fail(options_of(scratch_path("e.txt.gz")), DDP_ERR_IO, "e.txt.gz", "not a regular file");
}
END_TEST

START_TEST(more_than_memory_may_take)
{
    char text[10000];
    struct ddp_token_file tokens;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    put_gz("a.txt.gz", text);
    const char *path = scratch_path("a.txt.gz");
    capture_start();
    int status = ddp_token_file_open(&tokens, path, DDP_TOKENS_AUTO, true, sizeof text - 2);
    one_message(capture_stop(), "a.txt.gz", "unpacked it has more than 9998 bytes");
    ck_assert_int_eq(status, DDP_ERR_MEMORY);
    ck_assert_int_eq(ddp_token_file_open(&tokens, path, DDP_TOKENS_AUTO, true, sizeof text - 1),
                     DDP_OK);
    ck_assert_int_eq(tokens.count, sizeof text - 1);
    ddp_token_file_close(&tokens);
}
END_TEST

/* --- the part that is cut off --- */

/* The tokens are 10, 11, ...: the largest that is learned is below the least of the test. */
static void check_cut(const char *path, double amount, int64_t wanted_train, int64_t wanted_test)
{
    ddp_dataset *train, *test;
    int32_t x[4], labels[4], last = 0;
    struct ddp_dataset_options options = options_of(path);
    options.val_split = amount;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    const int64_t train_count = ddp_dataset_info(train)->sample_count;
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, wanted_test);
    ck_assert_int_eq(train_count, wanted_train);
    for (int64_t i = 0; i < train_count; i++) {
        ck_assert_int_eq(ddp_dataset_read(train, &i, 1, x, labels), DDP_OK);
        ck_assert_int_gt(x[0], i ? last - 1 : -1);
        last = labels[3];
    }
    ck_assert_int_eq(ddp_dataset_read(test, (int64_t[]){0}, 1, x, labels), DDP_OK);
    ck_assert_msg(x[0] > last, "%g: token %d in both parts", amount, x[0]);
    ddp_dataset_close(test);
    ddp_dataset_close(train);
    options.val_split = 0;
}

START_TEST(no_token_in_both_parts)
{
    unsigned char bytes[100], pairs[2][80];
    for (int i = 0; i < 100; i++)
        bytes[i] = (unsigned char)(10 + i);
    for (int i = 0; i < 80; i++)
        pairs[i / 40][i % 40 * 2] = (unsigned char)(10 + i), pairs[i / 40][i % 40 * 2 + 1] = 0;
    scratch_write("text", bytes, 100); /* tokens 10 .. 109 */
    scratch_write("s0.bin", pairs[0], 80);
    scratch_write("s1.bin", pairs[1], 80);        /* 10 .. 49 and 50 .. 89 */
    check_cut(scratch_path("text"), 0.1, 22, 2);  /* 90 and 10 tokens */
    check_cut(scratch_path("text"), 0.25, 18, 6); /* 75, 25 */
    check_cut(scratch_path("text"), 0.101, 22, 2);
    check_cut(scratch_path("text"), 1, 23, 1); /* 5 tokens */
    check_cut(scratch_path("text"), 23, 1, 23);
    check_cut(scratch_path("s?.bin"), 0.25, 9 + 4, 4); /* 20 tokens: half of the second file */
    check_cut(scratch_path("s?.bin"), 0.5, 9, 9);
    check_cut(scratch_path("s?.bin"), 0.75, 4, 4 + 9);
    check_cut(scratch_path("s?.bin"), 9, 9, 9);
    check_cut(scratch_path("s?.bin"), 10, 8, 10);
    struct ddp_dataset_options options = options_of(scratch_path("text"));
    options.val_split = 24;
    must_fail(options, DDP_ERR_FORMAT, "--val-split: the training part of ",
              "3 tokens are too few");
    options.val_split = 25;
    must_fail(options, DDP_ERR_INVALID, "--val-split 25: ", "has 24 samples");
    options.val_split = 0.01;
    must_fail(options, DDP_ERR_FORMAT, "--val-split: the test part of ", "1 tokens are too few");
}
END_TEST

/* Several texts have their last tenth, as one has; the files of tokens have none. */
START_TEST(the_last_tenth)
{
    ddp_dataset *train, *test;
    put("a.txt", "0123456789012345678901234567890123456789");
    put("b.txt", "012345678901234567890123456789012345678901234567890123456789");
    struct ddp_dataset_options options = options_of(scratch_path("?.txt"));
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 22); /* 90 of 101 tokens */
    ck_assert_str_eq(text_of(test), "901234567");                /* from 90 on */
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    put("c.txt", "012345678901234567");
    options.path = scratch_path("c.txt");
    must_fail(options, DDP_ERR_FORMAT, "the last tenth, for evaluation, of ", "2 tokens are too");
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 3); /* 16 tokens */
    ddp_dataset_close(train);
}
END_TEST

/* A hole of 3 GB, with a text before and after it: nothing of it is read into memory. */
START_TEST(over_two_gigabytes)
{
    ddp_dataset *train, *test;
    const int64_t bytes = INT64_C(3000000001);
    char begin[4096];
    int32_t x[4], labels[4];
    memset(begin, 'a', sizeof begin);
    scratch_write("big.txt", begin, sizeof begin);
    int fd = open(scratch_path("big.txt"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    if (pwrite(fd, "12345", 5, bytes - 5) != 5) {
        close(fd);
        fputs("skipped: no files over 2 GiB here\n", stderr);
        return;
    }
    close(fd);
    struct ddp_dataset_options options = options_of(scratch_path("big.txt"));
    options.val_split = 500000000;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 249999999); /* 1000000000 tokens */
    ck_assert_uint_lt(ddp_dataset_info(train)->memory_bytes, 1000);
    ck_assert_int_eq(ddp_dataset_read(test, (int64_t[]){499999999}, 1, x, labels), DDP_OK);
    ck_assert(x[0] == '1' && x[3] == '4' && labels[3] == '5');
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("texts");
    TCase *tc = test_case(suite, "texts", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, clear, clear);
    tcase_add_test(tc, a_directory_is_searched);
    tcase_add_test(tc, names_say_what_a_text_is_for);
    tcase_add_test(tc, directories_in_a_directory);
    tcase_add_test(tc, json_lines);
    tcase_add_test(tc, a_zero_byte);
    tcase_add_test(tc, bad_lines);
    tcase_add_test(tc, bad_compression);
    tcase_add_test(tc, more_than_memory_may_take);
    tcase_add_test(tc, no_token_in_both_parts);
    tcase_add_test(tc, the_last_tenth);
    tcase_add_test(tc, over_two_gigabytes);
    return suite;
}
