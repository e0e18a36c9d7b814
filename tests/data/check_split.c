/* SPDX-License-Identifier: MIT
 *
 * data/split and data/normalize: which samples are cut off (golden/split.txt: PyTorch's), samples,
 * labels and names of both parts, and numbers of mean 0 and deviation 1. */
#include "config.h"

#include "data/dataset.h"
#include "data/normalize.h"
#include "data/split.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <math.h>

/* --- a dataset whose values follow from the index --- */

struct made {
    struct ddp_dataset base;
    float (*value)(int64_t sample, size_t i);
};

static int64_t reads, last_read;
static int closed;

static enum ddp_status made_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                 void *x, int32_t *labels)
{
    const struct made *made = (const struct made *)dataset;
    float *to = x;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < dataset->info.sample_values; k++)
            *to++ = made->value(indices[i], k);
        if (labels)
            labels[i] = (int32_t)(indices[i] % 7);
        ck_assert_int_gt(indices[i], reads ? last_read : -1);
        last_read = indices[i];
        reads++;
    }
    return DDP_OK;
}

static const char *made_name(const ddp_dataset *dataset, int64_t index)
{
    static char name[32];
    (void)dataset;
    snprintf(name, sizeof name, "%" PRId64 ".png", index);
    return name;
}

static void made_close(ddp_dataset *dataset)
{
    (void)dataset;
    closed++;
}

static const struct ddp_dataset_ops made_ops = {
    .read = made_read, .sample_name = made_name, .close = made_close};

static ddp_dataset *make(int64_t samples, int64_t channels, int64_t height, int64_t width,
                         float (*value)(int64_t, size_t))
{
    struct made *made = ddp_dataset_alloc(sizeof *made, &made_ops, "made");
    ck_assert_ptr_nonnull(made);
    made->value = value;
    made->base.info = (struct ddp_dataset_info){
        .source = "made",
        .path = made->base.path,
        .sample_count = samples,
        .class_count = 7,
        .label_count = 1,
        .x_dtype = DDP_F32,
        .dim_count = height ? 3 : 1,
        .dims = {channels, height, width},
        .sample_values = (size_t)(channels * (height ? height * width : 1)),
        .channel_count = height && channels <= DDP_DATASET_MAX_CHANNELS ? (int)channels : 1,
        .std = {1, 1, 1, 1},
    };
    made->base.info.sample_bytes = made->base.info.sample_values * sizeof(float);
    reads = closed = 0;
    return &made->base;
}

static float index_value(int64_t sample, size_t i)
{
    return (float)(sample * 10 + (int64_t)i);
}

static float read_first(const ddp_dataset *dataset, int64_t index, int32_t *label)
{
    float x[64];
    ck_assert_uint_le(ddp_dataset_info(dataset)->sample_values, 64);
    reads = 0;
    ck_assert_int_eq(ddp_dataset_read(dataset, &index, 1, x, label), DDP_OK);
    return x[0];
}

/* --- the split --- */

static void check_case(const struct golden *g)
{
    const int64_t count = strtol(g->words[1], NULL, 10), cut = strtol(g->words[2], NULL, 10);
    ddp_dataset *train = make(count, 2, 0, 0, index_value), *test = NULL;
    ck_assert_int_eq(ddp_split(&train, &test, (double)cut), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(train)->sample_count, count - cut);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, cut);
    ck_assert_int_eq(g->answer_count, cut);
    ck_assert_str_eq(ddp_dataset_info(test)->path, "made");
    int64_t of_train = 0, of_test = 0;
    for (int64_t i = 0; i < count; i++) { /* both parts in their order make the whole */
        const bool cut_off = of_test < cut && strtol(g->answer[of_test], NULL, 10) == i;
        const int64_t at = cut_off ? of_test++ : of_train++;
        const ddp_dataset *part = cut_off ? test : train;
        char name[32];
        int32_t label = -1;
        snprintf(name, sizeof name, "%" PRId64 ".png", i);
        ck_assert_msg(read_first(part, at, &label) == (float)(i * 10), "%s: sample %" PRId64,
                      g->name, i);
        ck_assert_int_eq(label, i % 7);
        ck_assert_str_eq(ddp_dataset_sample_name(part, at), name);
    }
    ddp_dataset_close(cut % 2 ? train : test);
    ck_assert_int_eq(closed, 0);
    (void)read_first(cut % 2 ? test : train, 0, NULL); /* what is left can still be read */
    ddp_dataset_close(cut % 2 ? test : train);
    ck_assert_int_eq(closed, 1);
}

START_TEST(the_parts_are_those_of_pytorch)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("data/golden/split.txt");
    for (; golden_next(file, &g); golden_free(&g), cases++)
        check_case(&g);
    fclose(file);
    ck_assert_int_ge(cases, 10);
}
END_TEST

START_TEST(how_many_are_cut_off)
{
    ck_assert_int_eq(ddp_split_count(0.07, 100), 7); /* 0.07 * 100 is more than 7 in binary */
    ck_assert_int_eq(ddp_split_count(0.1, 1), 1);
    ck_assert_int_eq(ddp_split_count(0.1, 11), 2);
    ck_assert_int_eq(ddp_split_count(0.999, 1000), 999);
    ck_assert_int_eq(ddp_split_count(1, 1000), 1);
    ck_assert_int_eq(ddp_split_count(123, 1000), 123);
    /* What is left of a text when a tenth is cut off: nine tenths, rounded down. */
    for (int64_t n = 1; n < INT64_C(1000000000000); n += 1 + n / 97)
        ck_assert_int_eq(n - ddp_split_count(0.1, n), n / 10 * 9 + n % 10 * 9 / 10);
}
END_TEST

/* More samples than are read at once, from threads' point of view: any order, any number. */
START_TEST(many_samples_at_once)
{
    enum { COUNT = 700 };
    ddp_dataset *train = make(1000, 2, 0, 0, index_value), *test = NULL;
    static int64_t indices[COUNT];
    static float x[COUNT][2], one[2];
    static int32_t labels[COUNT];
    ck_assert_int_eq(ddp_split(&train, &test, 0.2), DDP_OK);
    for (int i = 0; i < COUNT; i++)
        indices[i] = i + 100;
    ck_assert_int_eq(ddp_dataset_read(train, indices, COUNT, x, labels), DDP_OK);
    for (int i = 0; i < COUNT; i++) {
        int32_t label;
        reads = 0;
        ck_assert_int_eq(ddp_dataset_read(train, &indices[i], 1, one, &label), DDP_OK);
        ck_assert(x[i][0] == one[0] && x[i][1] == one[1] && labels[i] == label);
    }
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

START_TEST(nothing_left_for_training)
{
    static const double amounts[] = {0.9999, 3, 4000};
    for (int i = 0; i < 3; i++) {
        ddp_dataset *train = make(3, 2, 0, 0, index_value), *test = NULL;
        ddp_dataset *const before = train;
        capture_start();
        enum ddp_status status = ddp_split(&train, &test, amounts[i]);
        one_message(capture_stop(), "--val-split", "made has 3 samples, and at least one");
        ck_assert_int_eq(status, DDP_ERR_INVALID);
        ck_assert(train == before && !test);
        ddp_dataset_close(train);
    }
}
END_TEST

/* --- mean and deviation --- */

/* Of feature 0 constant, of others of various means and deviations. */
static float features(int64_t sample, size_t i)
{
    static const float scale[] = {0, 1, 1000, 1e-3f, 1e7f};
    const double wave = sin((double)(sample * 37 + (int64_t)i * 11));
    return i == 0 ? 3.3f : (float)(scale[i] * (wave + (i == 2 ? 1e5 : 5)));
}

/* Compares with sums over one channel in two passes, in long double. */
static void check_channel(const ddp_dataset *plain, const ddp_dataset *scaled, size_t channel,
                          size_t inner)
{
    const int64_t count = ddp_dataset_info(plain)->sample_count;
    float from[64], to[64];
    long double sum = 0, squares = 0;
    for (int pass = 0; pass < 3; pass++) {
        const long double n = (long double)count * inner, mean = sum / n;
        const long double std = squares > 0 ? sqrtl(squares / n) : 1;
        for (int64_t i = 0; i < count; i++) {
            reads = 0;
            ck_assert_int_eq(ddp_dataset_read(plain, &i, 1, from, NULL), DDP_OK);
            reads = 0;
            ck_assert_int_eq(ddp_dataset_read(scaled, &i, 1, to, NULL), DDP_OK);
            for (size_t k = channel * inner; k < (channel + 1) * inner; k++) {
                const long double x = (long double)from[k];
                if (pass == 0)
                    sum += x;
                else if (pass == 1)
                    squares += (x - mean) * (x - mean);
                else
                    ck_assert_msg(fabsl((long double)to[k] - (x - mean) / std) < 1e-6L,
                                  "channel %zu, sample %" PRId64 ": %g", channel, i, (double)to[k]);
            }
        }
    }
}

START_TEST(each_feature_is_scaled)
{
    ddp_dataset *train = make(300, 5, 0, 0, features), *plain = make(300, 5, 0, 0, features);
    ddp_dataset *test = make(40, 5, 0, 0, features), *none = NULL;
    ck_assert_int_eq(ddp_normalize(&train, &test), DDP_OK);
    for (size_t c = 0; c < 5; c++)
        check_channel(plain, train, c, 1);
    float a[5], b[5];
    for (int64_t i = 0; i < 300; i += 13) {
        ck_assert(read_first(train, i, NULL) == 0); /* the constant one, exactly */
        ck_assert(!i || read_first(train, i - 1, NULL) == 0);
    }
    for (int64_t i = 0; i < 40; i++) { /* the test set by the same mean and deviation */
        reads = 0;
        ck_assert_int_eq(ddp_dataset_read(train, &i, 1, a, NULL), DDP_OK);
        reads = 0;
        ck_assert_int_eq(ddp_dataset_read(test, &i, 1, b, NULL), DDP_OK);
        ck_assert_mem_eq(a, b, sizeof a);
    }
    ck_assert(ddp_dataset_info(train)->normalized && ddp_dataset_info(test)->normalized);
    ck_assert_str_eq(ddp_dataset_sample_name(test, 3), "3.png");
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    reads = 0;
    ck_assert_int_eq(ddp_normalize(&plain, &none), DDP_OK);
    ck_assert_ptr_null(none);
    ddp_dataset_close(plain);
    ck_assert_int_eq(closed, 3);
}
END_TEST

static float colours(int64_t sample, size_t i)
{
    return (float)(i / 12 * 50 + (size_t)(sample * 29 + (int64_t)i * 17) % 97);
}

START_TEST(each_channel_of_images_is_scaled)
{
    ddp_dataset *plain = make(100, 3, 3, 4, colours), *train = make(100, 3, 3, 4, colours);
    ddp_dataset *none = NULL;
    ck_assert_int_eq(ddp_normalize(&train, &none), DDP_OK);
    for (size_t c = 0; c < 3; c++) {
        check_channel(plain, train, c, 12);
        /* A border of black pixels gets what black has become. */
        ck_assert_double_gt(ddp_dataset_info(train)->mean[c], 40);
        ck_assert_double_gt(ddp_dataset_info(train)->std[c], 20);
    }
    ck_assert(ddp_dataset_is_scaled(ddp_dataset_info(train)));
    ck_assert(!ddp_dataset_is_scaled(ddp_dataset_info(plain)));
    ddp_dataset *const once = train; /* what is scaled stays as it is */
    ck_assert_int_eq(ddp_normalize(&train, &none), DDP_OK);
    ck_assert_ptr_eq(train, once);
    ddp_dataset_close(plain);
    ddp_dataset_close(train);
}
END_TEST

/* Of 2^27 numbers 2^26 are looked at, from the first sample to the last. */
START_TEST(of_a_large_set_a_part_is_looked_at)
{
    const int64_t samples = 1 << 12, values = 1 << 15;
    ddp_dataset *train = make(samples, values, 0, 0, index_value), *none = NULL;
    ck_assert_int_eq(ddp_normalize(&train, &none), DDP_OK);
    ck_assert_int_eq(reads, samples / 2);
    ck_assert_int_eq(last_read, samples - 1);
    ddp_dataset_close(train);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("split");
    tcase_add_test(test_case(suite, "golden", 60), the_parts_are_those_of_pytorch);
    TCase *tc = test_case(suite, "split", 60);
    tcase_add_test(tc, how_many_are_cut_off);
    tcase_add_test(tc, many_samples_at_once);
    tcase_add_test(tc, nothing_left_for_training);
    tc = test_case(suite, "normalize", 60);
    tcase_add_test(tc, each_feature_is_scaled);
    tcase_add_test(tc, each_channel_of_images_is_scaled);
    tcase_add_test(tc, of_a_large_set_a_part_is_looked_at);
    return suite;
}
