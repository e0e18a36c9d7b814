/* SPDX-License-Identifier: MIT
 *
 * data/mixture: which samples an epoch of several sets has, by their weights, and what cannot be
 * mixed. */
#include "config.h"

#include "data/dataset.h"
#include "data/mixture.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#define SEQ 4

/* A file of that many samples; all tokens of sample i but the last are first + i. */
static void put(const char *name, int samples, char first)
{
    unsigned char bytes[2048] = {0};
    for (int i = 0; i <= SEQ * samples; i++)
        bytes[2 * i] = (unsigned char)(first + i / SEQ);
    scratch_write(name, bytes, 2 * ((size_t)SEQ * (size_t)samples + 1));
}

/* The first token of each sample, or '!' where its labels are others. */
static const char *order_of(const ddp_dataset *dataset)
{
    static char text[1024];
    const int64_t count = ddp_dataset_info(dataset)->sample_count;
    ck_assert_int_lt(count, sizeof text);
    memset(text, 0, sizeof text);
    for (int64_t i = 0; i < count; i += 2) { /* in twos, in the other order */
        const int64_t two[2] = {i + 1 < count ? i + 1 : i, i};
        int32_t x[2 * SEQ], labels[2 * SEQ];
        ck_assert_int_eq(ddp_dataset_read(dataset, two, 2, x, labels), DDP_OK);
        for (int k = 0; k < 2; k++)
            text[two[k]] = labels[k * SEQ] == x[k * SEQ + 1] ? (char)x[k * SEQ] : '!';
    }
    return text;
}

/* Opens "DIR/a.bin:2,DIR/b.bin:1". */
static enum ddp_status open_sets(const char *weight_a, const char *weight_b, double val_split,
                                 ddp_dataset **train, ddp_dataset **test)
{
    char path[2 * PATH_MAX + 64];
    snprintf(path, sizeof path, "%s%s,%s%s", scratch_path("a.bin"), weight_a, scratch_path("b.bin"),
             weight_b);
    const struct ddp_dataset_options options = {
        .path = path, .seq_len = SEQ, .val_split = val_split};
    *train = NULL;
    return ddp_dataset_open(NULL, &options, train, test);
}

START_TEST(weights_are_shares_of_an_epoch)
{
    static const struct {
        const char *weight_a, *weight_b, *order;
    } rows[] =
        {
            {":1", ":1", "abcdexyzxy"},
            {":1.5", ":1.5", "abcdexyzxy"},
            {":5", ":3", "abcdexyz"},
            {"", ":2e0", "abcdexyzxyzxyzx"},
            {":2", ":1", "abcdeaxyz"}, /* 3 samples of weight 1 are more than 5 of weight 2 */
            {":1", ":2", "abcdexyzxyzxyzx"},
            {":2.5", ":1", "abcdeabcxyz"}, /* halves are rounded up */
        };
    put("a.bin", 5, 'a');
    put("b.bin", 3, 'x');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ddp_dataset *train;
        ck_assert_int_eq(open_sets(rows[i].weight_a, rows[i].weight_b, 0, &train, NULL), DDP_OK);
        ck_assert_str_eq(order_of(train), rows[i].order);
        ddp_dataset_close(train);
    }
}
END_TEST

/* Each set gives a part away, so that what is evaluated is never trained. */
START_TEST(a_test_part_of_each)
{
    ddp_dataset *train, *test = NULL;
    put("a.bin", 6, 'a');
    put("b.bin", 3, 'x');
    ck_assert_int_eq(open_sets(":1", ":1", 1, &train, &test), DDP_OK);
    ck_assert_str_eq(order_of(train), "abcdxxxx"); /* tokens of the test part are in no other */
    ck_assert_str_eq(order_of(test), "fz");
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

START_TEST(names_like_weights)
{
    struct ddp_mixture mixture;
    put("a.bin:2", 3, 'a');
    ck_assert(!ddp_mixture_read(&mixture, scratch_path("a.bin:2")));
    ck_assert(!ddp_mixture_read(&mixture, "x.npy,y.npy"));
    ck_assert(!ddp_mixture_read(&mixture, "a.bin"));
    ck_assert(!ddp_mixture_read(&mixture, "a:b"));
    ck_assert(!ddp_mixture_read(&mixture, "a:"));
    ck_assert(ddp_mixture_read(&mixture, "c:\\a:b:0.5,d"));
    ck_assert(mixture.count == 2 && mixture.weights[0] == 0.5 && mixture.weights[1] == 1);
    ck_assert_str_eq(mixture.paths[0], "c:\\a:b");
}
END_TEST

static void fails_with(const char *weight_a, const char *weight_b, const char *what)
{
    ddp_dataset *train;
    capture_start();
    const enum ddp_status status = open_sets(weight_a, weight_b, 0, &train, NULL);
    one_message(capture_stop(), what, "");
    ck_assert_int_ne(status, DDP_OK);
    ck_assert_ptr_null(train);
}

START_TEST(what_is_not_mixed)
{
    put("a.bin", 5, 'a');
    put("b.bin", 3, 'x');
    fails_with(":0", ":1", "weights are numbers");
    fails_with(":1", ":1e7", "weights are numbers");
    fails_with(":1", ":1e6e", "weights are numbers");
    fails_with(":1e-6", ":1e6", "differ less");
    fails_with(":1", ".gone:1", "b.bin.gone: cannot open");
    scratch_write("b.bin.npy", "", 0);
    fails_with(":1", ".npy:1", "b.bin.npy");
    scratch_write("b.bin.txt", "a text of some letters, and some more of them", 45);
    fails_with(":1", ".txt:1", "are of different kinds");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mixture");
    TCase *tc = test_case(suite, "mixture", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, NULL);
    tcase_add_test(tc, weights_are_shares_of_an_epoch);
    tcase_add_test(tc, a_test_part_of_each);
    tcase_add_test(tc, names_like_weights);
    tcase_add_test(tc, what_is_not_mixed);
    return suite;
}
