/* SPDX-License-Identifier: MIT
 *
 * data/tokens: every kind of token file, patterns and directories, the split of a text, files over
 * 2 GiB, and what is wrong with bad ones, also while they are in use. */
#include "config.h"

#include "data/dataset.h"
#include "data/loader.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <locale.h>

/* --- making files --- */

#define HEADER 256

/* An llm.c file whose token i is first + i. */
static void put_header_file(const char *name, uint32_t magic, uint32_t version, uint32_t announced,
                            uint32_t count, int width, uint32_t first)
{
    unsigned char bytes[4 * HEADER + 4 * 2000] = {0};
    const uint32_t head[3] = {magic, version, announced};
    for (int i = 0; i < 3; i++)
        for (int b = 0; b < 4; b++)
            bytes[4 * i + b] = (unsigned char)(head[i] >> 8 * b);
    for (uint32_t i = 0; i < count; i++)
        for (int b = 0; b < width; b++)
            bytes[4 * HEADER + (uint32_t)width * i + (uint32_t)b] =
                (unsigned char)((first + i) >> 8 * b);
    scratch_write(name, bytes, 4 * HEADER + (size_t)width * count);
}

static void put_gpt2(const char *name, uint32_t count, uint32_t first)
{
    put_header_file(name, 20240520, 1, count, count, 2, first);
}

static void put_bare(const char *name, uint32_t count, uint32_t first)
{
    unsigned char bytes[4000];
    for (uint32_t i = 0; i < count; i++) {
        bytes[2 * i] = (unsigned char)(first + i);
        bytes[2 * i + 1] = (unsigned char)((first + i) >> 8);
    }
    scratch_write(name, bytes, 2 * (size_t)count);
}

static struct ddp_dataset_options options_of(const char *path, int64_t seq_len)
{
    return (struct ddp_dataset_options){.path = path, .seq_len = seq_len};
}

/* Sample `index` of a dataset whose tokens are consecutive numbers begins with `first`. */
static void check_sample(const ddp_dataset *dataset, int64_t index, int32_t first)
{
    const int64_t seq = ddp_dataset_info(dataset)->label_count;
    int32_t x[64], labels[64];
    ck_assert_int_le(seq, 64);
    ck_assert_int_eq(ddp_dataset_read(dataset, &index, 1, x, labels), DDP_OK);
    for (int64_t i = 0; i < seq; i++) {
        ck_assert_int_eq(x[i], first + i);
        ck_assert_int_eq(labels[i], first + i + 1);
    }
}

/* --- good files --- */

START_TEST(headers_of_both_kinds)
{
    static const struct {
        uint32_t magic, version;
        int width;
        int64_t vocabulary;
    } kinds[] = {{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}};
    for (int k = 0; k < 2; k++) {
        ddp_dataset *train, *test;
        put_header_file("f.bin", kinds[k].magic, kinds[k].version, 41, 41, kinds[k].width, 50000);
        const struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 8);
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
        ck_assert_ptr_null(test);
        const struct ddp_dataset_info *info = ddp_dataset_info(train);
        ck_assert_str_eq(info->source, "tokens");
        ck_assert_int_eq(info->sample_count, 5); /* (41-1) / 8 */
        ck_assert_int_eq(info->class_count, kinds[k].vocabulary);
        ck_assert_int_eq(info->label_count, 8);
        ck_assert_int_eq(info->x_dtype, DDP_I32);
        ck_assert(info->dim_count == 1 && info->dims[0] == 8 && info->sample_values == 8);
        ck_assert_uint_eq(info->sample_bytes, 32);
        ck_assert(info->shuffled);
        for (int i = 0; i < 5; i++)
            check_sample(train, i, 50000 + 8 * i);
        ddp_dataset_close(train);
    }
}
END_TEST

START_TEST(how_many_samples_a_file_has)
{
    static const struct {
        uint32_t tokens;
        int64_t samples;
    } cases[] = {{9, 1}, {16, 1}, {17, 2}, {24, 2}, {25, 3}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ddp_dataset *train;
        put_bare("f.bin", cases[c].tokens, 7);
        const struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 8);
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
        ck_assert_int_eq(ddp_dataset_info(train)->sample_count, cases[c].samples);
        check_sample(train, cases[c].samples - 1, 7 + 8 * (int32_t)(cases[c].samples - 1));
        ddp_dataset_close(train);
    }
}
END_TEST

START_TEST(bare_files_of_16_and_32_bits)
{
    ddp_dataset *train;
    put_bare("f.bin", 40, 300);
    struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 4);
    ck_assert_int_eq(ddp_dataset_open("tokens", &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->class_count, 50257);
    check_sample(train, 3, 312);
    ddp_dataset_close(train);
    options.tokens = DDP_TOKENS_UINT32; /* pairs: 300 + 301 * 65536, ... */
    options.class_count = INT32_MAX;
    ck_assert_int_eq(ddp_dataset_open("tokens", &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 4); /* (20-1) / 4 */
    int32_t x[4], labels[4];
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){1}, 1, x, labels), DDP_OK);
    ck_assert_int_eq(x[0], 308 + 309 * 65536);
    ck_assert_int_eq(labels[3], 316 + 317 * 65536);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(a_text_is_split)
{
    char text[205];
    ddp_dataset *train, *test;
    for (int i = 0; i < 205; i++)
        text[i] = (char)(' ' + i % 90);
    scratch_write("play.txt", text, sizeof text);
    struct ddp_dataset_options options = options_of(scratch_path("play.txt"), 4);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->class_count, 256);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 45); /* 184 tokens */
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 5);   /* 21 */
    check_sample(train, 1, ' ' + 4);
    check_sample(test, 0, ' ' + 184 - 180);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    /* The same training set when there is no evaluation; all of it with a --val. */
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 45);
    ddp_dataset_close(train);
    options.val = options.path;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 51);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 51);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

START_TEST(any_file_as_bytes)
{
    ddp_dataset *train;
    put_gpt2("f.bin", 10, 0);
    struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 3);
    options.tokens = DDP_TOKENS_BYTES;
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    int32_t x[3];
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0}, 1, x, NULL), DDP_OK);
    ck_assert(x[0] == (20240520 & 255) && x[1] == (20240520 >> 8 & 255) &&
              x[2] == (20240520 >> 16 & 255));
    ddp_dataset_close(train);
}
END_TEST

/* As build-nanogpt prepares FineWeb-Edu: shards that numpy.save() wrote. */
START_TEST(arrays_of_numpy)
{
    static const char text[] = "{'descr': '<u2', 'fortran_order': False, 'shape': (20,), }\n";
    enum { HEAD = 10 + sizeof text - 1 };
    unsigned char bytes[HEAD + 40] = "\x93NUMPY\1";
    ddp_dataset *train, *test;
    for (int shard = 0; shard < 2; shard++) {
        bytes[8] = sizeof text - 1;
        memcpy(bytes + 10, text, sizeof text - 1);
        for (int i = 0; i < 20; i++)
            bytes[HEAD + 2 * i] = (unsigned char)(100 * shard + i);
        scratch_write(shard ? "s1.npy" : "s0.npy", bytes, sizeof bytes);
    }
    struct ddp_dataset_options options = options_of(scratch_path("s?.npy"), 4);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_ptr_null(test);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 8);
    ck_assert_int_eq(ddp_dataset_info(train)->class_count, 50257);
    check_sample(train, 1, 4);
    check_sample(train, 7, 112);
    ddp_dataset_close(train);
    options.path = scratch_path("s1.npy");
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    check_sample(train, 0, 100);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(a_pattern_in_the_order_of_its_bytes)
{
    ddp_dataset *train;
    setlocale(LC_ALL, "");
    put_gpt2("s_B.bin", 20, 100); /* 2 samples of 8 */
    put_gpt2("s_a.bin", 8, 500);  /* none */
    put_gpt2("s_b.bin", 35, 200); /* 4 */
    put_bare("x.bin", 30, 0);
    const struct ddp_dataset_options options = options_of(scratch_path("s_?.bin"), 8);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 6);
    static const int32_t firsts[6] = {100, 108, 200, 208, 216, 224};
    for (int i = 5; i >= 0; i--)
        check_sample(train, i, firsts[i]);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(a_name_that_looks_like_a_pattern)
{
    ddp_dataset *train;
    put_gpt2("a[b].bin", 10, 1);
    put_gpt2("ab.bin", 10, 2);
    const struct ddp_dataset_options options = options_of(scratch_path("a[b].bin"), 3);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    check_sample(train, 0, 1);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(more_files_than_may_be_open)
{
    ddp_dataset *train;
    char name[32];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof name, "s%03d.bin", i);
        put_bare(name, 5, (uint32_t)(10 * i));
    }
    const struct ddp_dataset_options options = options_of(scratch_path("s*.bin"), 4);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 600);
    for (int i = 0; i < 600; i += 7)
        check_sample(train, i, 10 * i);
    unlink(scratch_path("s123.bin"));
    int32_t x[4];
    capture_start();
    int status = ddp_dataset_read(train, (int64_t[]){123}, 1, x, NULL);
    one_message(capture_stop(), scratch_path("s123.bin"), "cannot open it again");
    ck_assert_int_eq(status, DDP_ERR_IO);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(directories)
{
    static const char *const names[3][2] = {{"train.bin", "val.bin"},
                                            {"tiny_train.bin", "tiny_val.bin"},
                                            {"fine_train_000001.bin", "fine_val_000000.bin"}};
    const struct ddp_dataset_options options = options_of(scratch, 4);
    for (int i = 0; i < 3; i++) {
        ddp_dataset *train, *test;
        put_bare(names[i][0], 9, 100);
        put_bare(names[i][1], 5, 200);
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
        ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 2);
        check_sample(test, 0, 200);
        ddp_dataset_close(train);
        ddp_dataset_close(test);
        unlink(scratch_path(names[i][1]));
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
        ck_assert_ptr_null(test);
        ddp_dataset_close(train);
        unlink(scratch_path(names[i][0]));
    }
}
END_TEST

/* A hole of 3 GB, with numbers before its end: what a 32-bit offset would read is zero. */
START_TEST(over_two_gigabytes)
{
    ddp_dataset *train;
    const int64_t count = 1500000001;
    unsigned char tail[2 * 9];
    for (int i = 0; i < 9; i++) {
        tail[2 * i] = (unsigned char)(40000 + i);
        tail[2 * i + 1] = (unsigned char)((40000 + i) >> 8);
    }
    put_header_file("big.bin", 20240520, 1, (uint32_t)count, 0, 2, 0);
    int fd = open(scratch_path("big.bin"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    if (pwrite(fd, tail, sizeof tail, 1024 + 2 * (count - 9)) != sizeof tail) {
        close(fd);
        fputs("skipped: no files over 2 GiB here\n", stderr);
        return;
    }
    close(fd);
    const struct ddp_dataset_options options = options_of(scratch_path("big.bin"), 8);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, count / 8);
    check_sample(train, count / 8 - 1, 40000);
    ddp_dataset_close(train);
}
END_TEST

/* --- bad files --- */

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

static void bad(const char *name, enum ddp_token_kind kind, const char *says)
{
    struct ddp_dataset_options options = options_of(scratch_path(name), 4);
    options.tokens = kind;
    must_fail(options, DDP_ERR_FORMAT, options.path, says);
}

START_TEST(bad_files)
{
    put_header_file("cut.bin", 20240520, 1, 41, 40, 2, 0);
    bad("cut.bin", DDP_TOKENS_AUTO, "truncated: its header announces 41 tokens");
    put_header_file("long.bin", 20240520, 1, 39, 40, 2, 0);
    bad("long.bin", DDP_TOKENS_AUTO, "too long");
    put_header_file("huge.bin", 20240801, 7, UINT32_MAX, 40, 4, 0);
    bad("huge.bin", DDP_TOKENS_AUTO, "17179870204 bytes"); /* 4 * 4294967295 + 1024 */
    put_header_file("version.bin", 20240520, 2, 40, 40, 2, 0);
    bad("version.bin", DDP_TOKENS_AUTO, "version 2: only version 1");
    put_header_file("eval.bin", 20240522, 1, 40, 40, 2, 0);
    bad("eval.bin", DDP_TOKENS_AUTO, "evaluation set");
    put_header_file("tok.bin", 20240328, 2, 40, 40, 2, 0);
    bad("tok.bin", DDP_TOKENS_AUTO, "tokenizer");
    put_header_file("model.bin", 20240326, 3, 40, 40, 2, 0);
    bad("model.bin", DDP_TOKENS_GPT2, "GPT-2 model");
    put_header_file("big-endian.bin", __builtin_bswap32(20240520), __builtin_bswap32(1), 40, 40, 2,
                    0);
    bad("big-endian.bin", DDP_TOKENS_AUTO, "little-endian");
    put_gpt2("good.bin", 40, 0);
    bad("good.bin", DDP_TOKENS_UINT16, "leave --tokens out");
    put_bare("bare.bin", 40, 0);
    bad("bare.bin", DDP_TOKENS_GPT2, "20240520");
    scratch_write("odd.bin", "123456789", 9);
    bad("odd.bin", DDP_TOKENS_AUTO, "whole number of tokens");
    scratch_write("binary", "12345\0006789", 10);
    bad("binary", DDP_TOKENS_AUTO, "--tokens");
    scratch_write("empty.bin", "", 0);
    bad("empty.bin", DDP_TOKENS_AUTO, "0 tokens are too few");
    scratch_write("short.txt", "abcd", 4);
    bad("short.txt", DDP_TOKENS_AUTO, "too few");
    put_header_file("head.bin", 20240520, 1, 0, 0, 2, 0);
    ck_assert_int_eq(truncate(scratch_path("head.bin"), 1023), 0);
    bad("head.bin", DDP_TOKENS_AUTO, "truncated: 1023 bytes");
}
END_TEST

START_TEST(what_is_not_there)
{
    must_fail(options_of(scratch_path("none"), 4), DDP_ERR_IO, scratch_path("none"),
              "No such file");
    must_fail(options_of(scratch_path("n*.bin"), 4), DDP_ERR_IO, scratch_path("n*.bin"),
              "matches this pattern");
    must_fail(options_of(scratch, 4), DDP_ERR_IO, scratch, "Looked for: train-images");
    ck_assert_int_eq(mkfifo(scratch_path("fifo"), 0600), 0);
    must_fail(options_of(scratch_path("fifo"), 4), DDP_ERR_IO, scratch_path("fifo"),
              "not a regular");
    put_gpt2("f.bin", 40, 0);
    struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 4);
    options.val = scratch_path("nowhere.bin");
    must_fail(options, DDP_ERR_IO, options.val, "cannot open");
    options = options_of(scratch_path("f.bin"), 0);
    must_fail(options, DDP_ERR_INVALID, "--seq-len 0", "");
    put_gpt2("secret.bin", 40, 0);
    chmod(scratch_path("secret.bin"), 0);
    chmod(scratch, 0711);
    if (scratch_give_up_root()) {
        must_fail(options_of(scratch_path("secret.bin"), 4), DDP_ERR_IO, scratch_path("secret.bin"),
                  "Permission denied");
        ck_assert_int_eq(seteuid(getuid()), 0);
    }
}
END_TEST

START_TEST(tokens_beyond_the_vocabulary)
{
    static const enum ddp_token_kind kinds[] = {DDP_TOKENS_UINT16, DDP_TOKENS_UINT32,
                                                DDP_TOKENS_BYTES};
    for (int k = 0; k < 3; k++) {
        const int width = k == 0 ? 2 : k == 1 ? 4 : 1;
        unsigned char bytes[4 * 40] = {0};
        ddp_dataset *train;
        int32_t x[4];
        char says[64];
        bytes[width * 17] = 99;
        if (width == 4)
            bytes[width * 17 + 3] = 0x80; /* negative as a signed number */
        scratch_write("f", bytes, (size_t)width * 40);
        struct ddp_dataset_options options = options_of(scratch_path("f"), 4);
        options.tokens = kinds[k];
        options.val = options.path;
        options.class_count = 99;
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
        ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){3, 5}, 2, (int32_t[8]){0}, NULL),
                         DDP_OK);
        capture_start();
        int status = ddp_dataset_read(train, (int64_t[]){4}, 1, x, NULL);
        snprintf(says, sizeof says, "token 17 is %" PRIu32 ": the vocabulary has 99",
                 width == 4 ? 0x80000063u : 99);
        one_message(capture_stop(), options.path, says);
        ck_assert_int_eq(status, DDP_ERR_FORMAT);
        ddp_dataset_close(train);
    }
}
END_TEST

/* Shrunk under the loader: one message, when its turn comes, whatever the number of threads. */
START_TEST(a_file_that_shrinks)
{
    for (int threads = 1; threads <= 4; threads += 3) {
        ddp_dataset *train;
        ddp_loader *loader;
        const struct ddp_batch *batch;
        put_bare("f.bin", 1000, 0);
        const struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 4);
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
        ck_assert_int_eq(truncate(scratch_path("f.bin"), 1000), 0);
        struct ddp_loader_config config = {.dataset = train,
                                           .sampler = {.shard_count = 1},
                                           .batch_size = 10,
                                           .shard_count = 1,
                                           .end_epoch = 1,
                                           .threads = threads,
                                           .depth = 8};
        ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
        int good = 0, status;
        capture_start();
        while ((status = ddp_loader_next(loader, &batch)) == DDP_OK && batch) {
            ck_assert_int_eq(batch->labels[39], 40 * good + 40);
            ddp_loader_release(loader, batch);
            good++;
        }
        int again = ddp_loader_next(loader, &batch);
        ddp_loader_destroy(loader);
        one_message(capture_stop(), options.path, "it had 2000 bytes and now has 1000");
        ck_assert_int_eq(status, DDP_ERR_IO);
        ck_assert_int_eq(again, DDP_ERR_IO);
        ck_assert_int_eq(good, 12);
        ddp_dataset_close(train);
    }
}
END_TEST

START_TEST(a_file_that_vanishes_may)
{
    ddp_dataset *train;
    put_bare("f.bin", 100, 5);
    const struct ddp_dataset_options options = options_of(scratch_path("f.bin"), 4);
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    unlink(options.path);
    check_sample(train, 2, 13);
    ddp_dataset_close(train);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tokens");
    TCase *tc = test_case(suite, "tokens", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, NULL);
    tcase_add_test(tc, headers_of_both_kinds);
    tcase_add_test(tc, how_many_samples_a_file_has);
    tcase_add_test(tc, bare_files_of_16_and_32_bits);
    tcase_add_test(tc, a_text_is_split);
    tcase_add_test(tc, any_file_as_bytes);
    tcase_add_test(tc, arrays_of_numpy);
    tcase_add_test(tc, a_pattern_in_the_order_of_its_bytes);
    tcase_add_test(tc, a_name_that_looks_like_a_pattern);
    tcase_add_test(tc, more_files_than_may_be_open);
    tcase_add_test(tc, directories);
    tcase_add_test(tc, over_two_gigabytes);
    tcase_add_test(tc, bad_files);
    tcase_add_test(tc, what_is_not_there);
    tcase_add_test(tc, tokens_beyond_the_vocabulary);
    tcase_add_test(tc, a_file_that_shrinks);
    tcase_add_test(tc, a_file_that_vanishes_may);
    return suite;
}
