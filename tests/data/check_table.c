/* SPDX-License-Identifier: MIT
 *
 * data/table: what becomes of fields, what scaling is measured on, and what is kept with weights.
 * Damaged tables: tests/lib/corpus.py; messages: tables.sh. */
#include "config.h"

#include "core/label.h"
#include "data/dataset.h"
#include "data/describe.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <math.h>

static ddp_dataset *train, *test;

static const char *table(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
    return scratch_path(name);
}

static void open_table(const struct ddp_dataset_options *options)
{
    ck_assert_int_eq(ddp_dataset_open(NULL, options, &train, &test), DDP_OK);
}

static void close_table(void)
{
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    train = test = NULL;
}

/* Sample i of a set is so many numbers, to six digits. */
static void check_sample(const ddp_dataset *set, int64_t i, const double *wanted)
{
    float x[16];
    const size_t count = ddp_dataset_info(set)->sample_values;
    ck_assert_uint_le(count, 16);
    ck_assert_int_eq(ddp_dataset_read(set, &i, 1, x, NULL), DDP_OK);
    for (size_t k = 0; k < count; k++)
        ck_assert_msg(fabs((double)x[k] - wanted[k]) < 1e-6, "sample %d, number %zu: %g, not %g",
                      (int)i, k, (double)x[k], wanted[k]);
}

static double number_label(const ddp_dataset *set, int64_t i)
{
    float x[16], label;
    int32_t bits;
    ck_assert_int_eq(ddp_dataset_read(set, &i, 1, x, &bits), DDP_OK);
    memcpy(&label, &bits, sizeof label);
    return (double)label;
}

static int32_t class_label(const ddp_dataset *set, int64_t i)
{
    float x[16];
    int32_t label = -7;
    ck_assert_int_eq(ddp_dataset_read(set, &i, 1, x, &label), DDP_OK);
    return label;
}

#define MIXED                                                                                      \
    "size,colour,note,price\n"                                                                     \
    "1,red,a,10.5\n"                                                                               \
    ",blue,b,20.5\n"                                                                               \
    "3,,c,30.5\n"                                                                                  \
    "5,red,d,40.5\n"

/* Sizes 1, 3 (the median), 3, 5: mean 3, deviation sqrt(2). Words: missing, blue, red. */
START_TEST(fields_become_numbers)
{
    const double step = sqrt(2);
    open_table(&(struct ddp_dataset_options){
        .path = table("t.csv", MIXED), .target = "price", .ignore = "note"});
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_int_eq(info->sample_count, 4);
    ck_assert_uint_eq(info->sample_values, 4);
    ck_assert(info->float_labels && info->class_count == 0);
    check_sample(train, 0, (double[]){-step, 0, 0, 1});
    check_sample(train, 1, (double[]){0, 0, 1, 0});
    check_sample(train, 2, (double[]){0, 1, 0, 0});
    check_sample(train, 3, (double[]){step, 0, 0, 1});
    ck_assert(fabs(info->label_mean - 25.5) < 1e-12 && fabs(info->label_std - sqrt(125)) < 1e-12);
    ck_assert(fabs(number_label(train, 0) + 15 / sqrt(125)) < 1e-6);
    ck_assert_str_eq(info->notice, "1 missing values of 'size' become the median, 3, 1 missing "
                                   "values of 'colour' are a word of their own");
    close_table();
}
END_TEST

START_TEST(classes_have_names)
{
    open_table(&(struct ddp_dataset_options){.path = table("t.tsv", "a\tb\n1\t10\n2\t9.0\n3\t09\n"),
                                             .target = "b"});
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_int_eq(info->class_count, 2);
    ck_assert_str_eq(info->class_names[0], "9"); /* as numbers, not as texts */
    ck_assert_str_eq(info->class_names[1], "10");
    ck_assert_int_eq(class_label(train, 0), 1);
    ck_assert_int_eq(class_label(train, 1), 0);
    ck_assert_int_eq(class_label(train, 2), 0);
    close_table();
}
END_TEST

/* A header is a first line without numbers; else columns have numbers for names. */
START_TEST(headers)
{
    const struct {
        const char *text, *target;
        bool given, header;
        int64_t rows;
    } cases[] = {
        {"a,b\n1,2.5\n3,4\n", "b", false, false, 2},
        {"1,2.5\n3,4\n", "2", false, false, 2},
        {"1,2.5\n3,4\n5,6\n", "2.5", true, true, 2},
        {"u,x\nv,y\nu,y\n", "2", true, false, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_table(&(struct ddp_dataset_options){.path = table("t.csv", cases[i].text),
                                                 .target = cases[i].target,
                                                 .header_given = cases[i].given,
                                                 .header = cases[i].header});
        ck_assert_int_eq(ddp_dataset_info(train)->sample_count, cases[i].rows);
        close_table();
    }
}
END_TEST

/* Scaling is that of the training part: numbers of the test part do not move it. */
START_TEST(training_part_decides)
{
    char text[4096] = "a,y\n";
    double mean = 0, squares = 0;
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d,%d.5\n", i * i, i);
    open_table(&(struct ddp_dataset_options){
        .path = table("t.csv", text), .target = "y", .val_split = 10});
    const int64_t count = ddp_dataset_info(train)->sample_count;
    ck_assert_int_eq(count, 30);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 10);
    for (int64_t i = 0; i < count; i++) {
        float x;
        ck_assert_int_eq(ddp_dataset_read(train, &i, 1, &x, NULL), DDP_OK);
        mean += (double)x / 30 + number_label(train, i) / 30;
        squares += (double)x * (double)x / 30;
    }
    ck_assert_msg(fabs(mean) < 1e-5 && fabs(squares - 1) < 1e-5, "mean %g, squares %g", mean,
                  squares);
    ck_assert(ddp_dataset_info(test)->label_std == ddp_dataset_info(train)->label_std);
    ck_assert_str_eq(ddp_dataset_info(test)->description, ddp_dataset_info(train)->description);
    close_table();
}
END_TEST

/* New rows are encoded as those of the training were: columns by name, unknown words as none. */
START_TEST(description_encodes_new_rows)
{
    char *kept = NULL;
    open_table(&(struct ddp_dataset_options){
        .path = table("t.csv", MIXED), .target = "price", .columns = "size,colour"});
    ck_assert_int_eq(ddp_dataset_describe(ddp_dataset_info(train), &kept), DDP_OK);
    close_table();
    open_table(&(struct ddp_dataset_options){
        .path = table("new.csv", "colour,id,size\ngreen,7,5\nred,8,\n"),
        .description = kept,
        .unlabelled = true,
        .keep_rows = true});
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_int_eq(info->label_count, 0);
    ck_assert_str_eq(info->table_header, "colour,id,size");
    ck_assert_str_eq(ddp_dataset_sample_name(train, 1), "red,8,");
    check_sample(train, 0, (double[]){sqrt(2), 0, 0, 0});
    check_sample(train, 1, (double[]){0, 0, 0, 1});
    ck_assert(fabs(info->label_mean - 25.5) < 1e-12);
    ck_assert_str_eq(info->description, kept);
    free(kept);
    close_table();
}
END_TEST

/* A column of more than 64 words: places of an embedding behind the numbers, as bits of int32; the
 * first row of each column's is of words that are not known. */
START_TEST(many_words_are_places)
{
    static char text[8192], row[64];
    size_t used = (size_t)snprintf(text, sizeof text, "name,size,town,y\n");
    char *kept = NULL;
    for (int i = 0; i < 280; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "n%02d,%d,%s%02d,%d.5\n", i % 70,
                                 i % 2, i % 140 ? "t" : "NA", i % 140 ? i % 66 : 0, i);
    open_table(&(struct ddp_dataset_options){.path = table("t.csv", text), .target = "y"});
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_uint_eq(info->sample_values, 3);
    ck_assert_int_eq(info->word_count, 2);
    ck_assert_int_eq(info->word_most, 70);
    ck_assert_int_eq(info->word_rows, 71 + 67 + 1);
    ck_assert_int_eq(ddp_dataset_describe(info, &kept), DDP_OK);
    close_table();
    snprintf(row, sizeof row, "town,size,name\nt65,1,n03\nt66,0,nobody\nNA00,1,n69\n");
    open_table(&(struct ddp_dataset_options){
        .path = table("new.csv", row), .description = kept, .unlabelled = true});
    static const int32_t places[3][2] = {{1 + 3, 71 + 1 + 66}, {0, 71}, {1 + 69, 71 + 1}};
    for (int64_t i = 0; i < 3; i++) {
        int32_t x[3];
        ck_assert_int_eq(ddp_dataset_read(train, &i, 1, x, NULL), DDP_OK);
        ck_assert_int_eq(x[1], places[i][0]);
        ck_assert_int_eq(x[2], places[i][1]);
    }
    free(kept);
    close_table();
}
END_TEST

/* A class that is not known does not count where labels are not needed. */
START_TEST(unknown_class)
{
    char *kept = NULL;
    open_table(
        &(struct ddp_dataset_options){.path = table("t.csv", "a,y\n1,u\n2,v\n"), .target = "y"});
    ck_assert_int_eq(ddp_dataset_describe(ddp_dataset_info(train), &kept), DDP_OK);
    close_table();
    open_table(&(struct ddp_dataset_options){
        .path = table("new.csv", "a,y\n1,v\n2,w\n"), .description = kept, .unlabelled = true});
    ck_assert_int_eq(class_label(train, 0), 1);
    ck_assert_int_eq(class_label(train, 1), DDP_LABEL_NONE);
    free(kept);
    close_table();
}
END_TEST

static void make_scratch(void)
{
    scratch_make();
}

static void remove_scratch(void)
{
    scratch_entries(true);
    rmdir(scratch);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("table");
    TCase *tests = tcase_create("table");
    tcase_add_checked_fixture(tests, make_scratch, remove_scratch);
    tcase_add_test(tests, fields_become_numbers);
    tcase_add_test(tests, classes_have_names);
    tcase_add_test(tests, headers);
    tcase_add_test(tests, training_part_decides);
    tcase_add_test(tests, description_encodes_new_rows);
    tcase_add_test(tests, many_words_are_places);
    tcase_add_test(tests, unknown_class);
    suite_add_tcase(suite, tests);
    return suite;
}
