/* SPDX-License-Identifier: MIT
 *
 * data/npy: arrays and archives that NumPy wrote (golden/npy.txt), and bad ones. */
#include "config.h"

#include "data/dataset.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>

/* --- what NumPy wrote --- */

/* "a.npy,b.npy" in the directory of the golden files. */
static void full_path(char *path, size_t size, const char *names)
{
    const char *base = golden_path("data/golden/npy"), *comma = strchr(names, ',');
    if (comma)
        snprintf(path, size, "%s/%.*s,%s/%s", base, (int)(comma - names), names, base, comma + 1);
    else
        snprintf(path, size, "%s/%s", base, names);
}

static void check_shape(const struct golden *g, const struct ddp_dataset_info *info)
{
    char dims[128] = "";
    for (int i = 0; i < info->dim_count; i++)
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%" PRId64, i ? "x" : "",
                 info->dims[i]);
    ck_assert_msg(strcmp(dims, g->words[4]) == 0, "%s: samples of %s", g->name, dims);
    ck_assert_int_eq(info->sample_count, strtol(g->words[2], NULL, 10));
    ck_assert_int_eq(info->class_count, strtol(g->words[3], NULL, 10));
    ck_assert_int_eq(info->label_count, info->class_count > 0);
    ck_assert_int_eq(info->x_dtype, DDP_F32);
    ck_assert_uint_eq(info->sample_bytes, 4 * info->sample_values);
}

static void check_case(const struct golden *g)
{
    char path[5000];
    float x[256];
    ddp_dataset *train, *test;
    full_path(path, sizeof path, g->words[1]);
    const struct ddp_dataset_options options = {.path = path};
    ck_assert_msg(ddp_dataset_open(NULL, &options, &train, &test) == DDP_OK, "%s", g->name);
    const ddp_dataset *set = strcmp(g->words[0], "test") == 0 ? test : train;
    ck_assert_msg(set != NULL, "%s: there is no such set", g->name);
    const struct ddp_dataset_info *info = ddp_dataset_info(set);
    check_shape(g, info);
    ck_assert_uint_le(info->sample_values, sizeof x / sizeof x[0]);
    const int width = 1 + (int)info->sample_values;
    ck_assert_int_eq(g->answer_count, info->sample_count * width);
    for (int64_t i = info->sample_count - 1; i >= 0; i--) {
        int32_t label = -1;
        char **answer = g->answer + i * width;
        ck_assert_int_eq(ddp_dataset_read(set, &i, 1, x, &label), DDP_OK);
        ck_assert_msg(*answer[0] == '-' ? label == -1 : label == strtol(answer[0], NULL, 10),
                      "%s: sample %" PRId64 ": label %d", g->name, i, label);
        for (int k = 1; k < width; k++) {
            uint32_t bits;
            memcpy(&bits, &x[k - 1], 4);
            ck_assert_msg(bits == strtoul(answer[k], NULL, 16),
                          "%s: sample %" PRId64 ", value %d: %08x, NumPy has %s", g->name, i, k - 1,
                          bits, answer[k]);
        }
    }
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}

START_TEST(numpy_has_the_same_values)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("data/golden/npy.txt");
    for (; golden_next(file, &g); golden_free(&g), cases++)
        check_case(&g);
    fclose(file);
    ck_assert_int_ge(cases, 40);
}
END_TEST

START_TEST(a_test_set_of_its_own)
{
    char path[5000], val[5000];
    ddp_dataset *train, *test;
    full_path(path, sizeof path, "keras-stored.npz");
    full_path(val, sizeof val, "keras-deflated.npz");
    const struct ddp_dataset_options options = {.path = path, .val = val};
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 4); /* its x_train */
    ck_assert_double_eq(ddp_dataset_info(test)->mean[0], ddp_dataset_info(train)->mean[0]);
    ck_assert_uint_ge(ddp_dataset_info(test)->memory_bytes, 60); /* it is in memory */
    ck_assert_uint_lt(ddp_dataset_info(train)->memory_bytes, 60);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

/* --- bad arrays --- */

/* A file of version 1 with this dictionary and zeros after it. */
static void put_npy(const char *name, const char *dictionary, size_t zeros)
{
    static unsigned char bytes[4096];
    const size_t length = strlen(dictionary) + 1;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, "\x93NUMPY\1", 8);
    bytes[8] = (unsigned char)length;
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, dictionary, length - 1);
    bytes[9 + length] = '\n';
    scratch_write(name, bytes, 10 + length + zeros);
}

static void must_fail(const char *path, const char *val, enum ddp_status wanted, const char *this,
                      const char *that)
{
    ddp_dataset *train = NULL, *test = NULL;
    const struct ddp_dataset_options options = {.path = path, .val = val};
    capture_start();
    enum ddp_status status = ddp_dataset_open(NULL, &options, &train, &test);
    const char *text = capture_stop();
    ck_assert_msg(status == wanted, "status %d, not %d: %s", status, wanted, text);
    ck_assert(!train && !test);
    one_message(text, this, that);
}

static void bad(const char *dictionary, size_t zeros, const char *says)
{
    put_npy("x.npy", dictionary, zeros);
    must_fail(scratch_path("x.npy"), NULL, DDP_ERR_FORMAT, scratch_path("x.npy"), says);
}

#define ARRAY(descr, fortran, shape)                                                               \
    "{'descr': " descr ", 'fortran_order': " fortran ", 'shape': " shape ", }"

START_TEST(bad_headers)
{
    bad(ARRAY("'<f4'", "False", "(2, 3)"), 23, "truncated: its header announces 24 bytes");
    bad(ARRAY("'<f4'", "False", "(2, 3)"), 25, "too long");
    bad(ARRAY("'>f4'", "False", "(2, 3)"), 24, "big-endian");
    bad(ARRAY("'>u2'", "False", "(2, 3)"), 12, "big-endian");
    bad(ARRAY("'<f4'", "True", "(2, 3)"), 24, "ascontiguousarray");
    bad(ARRAY("'<f4'", "Maybe", "(2, 3)"), 24, "fortran_order");
    bad(ARRAY("'<c8'", "False", "(2, 3)"), 48, "type '<c8'");
    bad(ARRAY("'|O'", "False", "(2, 3)"), 48, "type '|O'");
    bad(ARRAY("'<U12'", "False", "(2, 3)"), 48, "type '<U12'");
    bad(ARRAY("[('a', '<f4')]", "False", "(2, 3)"), 24, "several fields");
    bad(ARRAY("'<f4'", "False", "(4611686018427387904, 4)"), 24, "too large");
    bad(ARRAY("'<f4'", "False", "(99999999999999999999, 4)"), 24, "too large");
    bad(ARRAY("'<f4'", "False", "(-2, 3)"), 24, "not a number");
    bad(ARRAY("'<f4'", "False", "(2)"), 8, "not a tuple");
    bad(ARRAY("'<f4'", "False", "(0, 3)"), 0, "empty");
    bad(ARRAY("'<f4'", "False", "()"), 4, "samples has one dimension");
    bad(ARRAY("'<f4'", "False", "(1, 1, 1, 1, 1, 1)"), 4, "and up to 4 more");
    bad(ARRAY("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 4, "more than 8");
    bad("{'descr': '<f4', 'shape': (2, 3)}", 24, "fortran_order is missing");
    bad("{'descr': '<f4', 'descr': '<f4'}", 24, "twice");
    bad("{'colour': 'red'}", 24, "unknown field");
    bad("[1, 2]", 24, "not a dictionary");
    bad("{'descr'", 0, "not a dictionary");
    bad(ARRAY("'<f4'", "False", "(2, 3)") "x", 24, "something follows");
    scratch_write("x.npy", "\x93NUMPY\4\0\1\0a", 11);
    must_fail(scratch_path("x.npy"), NULL, DDP_ERR_FORMAT, "x.npy", "version 4.0");
    scratch_write("x.npy", "\x93NUMPY\2\0\377\377\377\377", 12);
    must_fail(scratch_path("x.npy"), NULL, DDP_ERR_FORMAT, "x.npy",
              "4294967295 bytes does not fit");
    scratch_write("x.npy", "\x93NUMPX\1\0\1\0a", 11);
    must_fail(scratch_path("x.npy"), NULL, DDP_ERR_FORMAT, "x.npy", "magic");
    scratch_write("x.npy", "\x93NU", 3);
    must_fail(scratch_path("x.npy"), NULL, DDP_ERR_FORMAT, "x.npy", "truncated");
    must_fail(scratch_path("none.npy"), NULL, DDP_ERR_IO, "none.npy", "No such file");
}
END_TEST

/* data: NULL: zeros */
static void put_labels(const char *dictionary, size_t bytes, const void *data)
{
    put_npy("y.npy", dictionary, bytes);
    FILE *file = fopen(scratch_path("y.npy"), "r+b");
    ck_assert_ptr_nonnull(file);
    if (data) {
        fseek(file, -(long)bytes, SEEK_END);
        ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    }
    ck_assert_int_eq(fclose(file), 0);
}

static void labels_fail(const char *dictionary, size_t bytes, const void *data, const char *says)
{
    char path[2 * PATH_MAX];
    put_labels(dictionary, bytes, data);
    snprintf(path, sizeof path, "%s,%s", scratch_path("x.npy"), scratch_path("y.npy"));
    must_fail(path, NULL, DDP_ERR_FORMAT, scratch_path("y.npy"), says);
}

/* 1 and 4: mean 2.5, deviation 1.5; or as the weights say that are loaded. */
START_TEST(labels_that_are_numbers)
{
    ddp_dataset *train = NULL;
    char path[2 * PATH_MAX];
    float x[3], label;
    int32_t bits;
    put_npy("x.npy", ARRAY("'<f4'", "False", "(2, 3)"), 24);
    put_labels(ARRAY("'<f8'", "False", "(2,)"), 16, "\0\0\0\0\0\0\360\77\0\0\0\0\0\0\20\100");
    snprintf(path, sizeof path, "%s,%s", scratch_path("x.npy"), scratch_path("y.npy"));
    for (int given = 0; given < 2; given++) {
        const struct ddp_dataset_options options = {
            .path = path, .description = given ? "{\"target\":{\"mean\":2,\"std\":4}}" : NULL};
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
        const struct ddp_dataset_info *info = ddp_dataset_info(train);
        ck_assert(info->float_labels && info->class_count == 0 && info->label_count == 1);
        ck_assert(info->label_mean == (given ? 2 : 2.5) && info->label_std == (given ? 4 : 1.5));
        ck_assert_int_eq(ddp_dataset_read(train, &(int64_t){1}, 1, x, &bits), DDP_OK);
        memcpy(&label, &bits, sizeof label);
        ck_assert(label == (given ? 0.5f : 1.0f));
        ddp_dataset_close(train);
    }
}
END_TEST

START_TEST(bad_labels)
{
    put_npy("x.npy", ARRAY("'<f4'", "False", "(2, 3)"), 24);
    labels_fail(ARRAY("'<f4'", "False", "(2,)"), 8, NULL, "all labels have the same value, 0");
    labels_fail(ARRAY("'<f4'", "False", "(2,)"), 8, "\0\0\0\0\0\0\300\177",
                "label 1 is not a number (NaN)");
    labels_fail(ARRAY("'<f8'", "False", "(2, 2)"), 32, NULL, "(2, 2): labels are one number");
    labels_fail(ARRAY("'|u1'", "False", "(2, 2)"), 4, NULL,
                "uint8 of (2, 2): labels are one number");
    labels_fail(ARRAY("'|u1'", "False", "(3,)"), 3, NULL, "3 labels, but");
    labels_fail(ARRAY("'|i1'", "False", "(2,)"), 2, "\1\377", "label 1 is -1");
    labels_fail(ARRAY("'<u8'", "False", "(2,)"), 16,
                "\1\0\0\0\0\0\0\0\377\377\377\377\377\377\377\377",
                "label 1 is 9223372036854775807");
    char path[2 * PATH_MAX], val[2 * PATH_MAX];
    put_npy("y.npy", ARRAY("'|u1'", "False", "(2,)"), 2);
    put_npy("tx.npy", ARRAY("'<f4'", "False", "(2, 4)"), 32);
    snprintf(path, sizeof path, "%s,%s", scratch_path("x.npy"), scratch_path("y.npy"));
    snprintf(val, sizeof val, "%s,%s", scratch_path("tx.npy"), scratch_path("y.npy"));
    must_fail(path, val, DDP_ERR_FORMAT, "tx.npy", "test samples are float32 of (2, 4)");
    must_fail(path, scratch_path("x.npy"), DDP_ERR_FORMAT, "x.npy", "without labels");
}
END_TEST

/* NaN and infinities are refused when they are read, with their place. */
START_TEST(values_that_are_no_numbers)
{
    static const struct {
        const char *descr;
        size_t width;
        const char *value, *says;
    } cases[] = {
        {"<f4", 4, "\0\0\300\177", "sample 2: its value 1 is not a number (NaN)"},
        {"<f4", 4, "\0\0\200\377", "sample 2: its value 1 is infinite"},
        {"<f2", 2, "\0\174", "sample 2: its value 1 is infinite"},
        {"<f8", 8, "\0\0\0\0\0\0\0\110", "sample 2: its value 1 is infinite"}, /* 2^129 */
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char dictionary[128];
        ddp_dataset *train;
        float x[9];
        const size_t width = cases[c].width;
        snprintf(dictionary, sizeof dictionary, ARRAY("'%s'", "False", "(4, 3)"), cases[c].descr);
        put_npy("x.npy", dictionary, 12 * width);
        FILE *file = fopen(scratch_path("x.npy"), "r+b");
        fseek(file, -(long)(5 * width), SEEK_END);
        ck_assert_uint_eq(fwrite(cases[c].value, 1, width, file), width);
        ck_assert_int_eq(fclose(file), 0);
        const struct ddp_dataset_options options = {.path = scratch_path("x.npy")};
        ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
        ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0, 3, 1}, 3, x, NULL), DDP_OK);
        capture_start();
        int status = ddp_dataset_read(train, (int64_t[]){0, 2}, 2, x, NULL);
        one_message(capture_stop(), options.path, cases[c].says);
        ck_assert_int_eq(status, DDP_ERR_FORMAT);
        ddp_dataset_close(train);
    }
}
END_TEST

START_TEST(files_that_shrink)
{
    ddp_dataset *train;
    float x[3];
    put_npy("x.npy", ARRAY("'<f4'", "False", "(100, 3)"), 1200);
    const struct ddp_dataset_options options = {.path = scratch_path("x.npy")};
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, NULL), DDP_OK);
    ck_assert_int_eq(truncate(options.path, 500), 0);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){9}, 1, x, NULL), DDP_OK);
    capture_start();
    int status = ddp_dataset_read(train, (int64_t[]){60}, 1, x, NULL);
    one_message(capture_stop(), options.path, "and now has 500");
    ck_assert_int_eq(status, DDP_ERR_IO);
    ddp_dataset_close(train);
}
END_TEST

/* --- bad archives --- */

/* A golden archive, cut or with one byte changed. */
static void damaged(const char *name, long cut, long at, int value, const char *says)
{
    static unsigned char bytes[1 << 16];
    char path[5000];
    full_path(path, sizeof path, name);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    long size = (long)fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    size -= cut;
    if (value >= 0)
        bytes[at < 0 ? size + at : at] = (unsigned char)value;
    scratch_write("x.npz", bytes, (size_t)size);
    must_fail(scratch_path("x.npz"), NULL, DDP_ERR_FORMAT, scratch_path("x.npz"), says);
}

START_TEST(bad_archives)
{
    damaged("plain-stored.npz", 1, 0, -1, "its end is missing");
    damaged("plain-stored.npz", 0, 0, 'Q', "not where it should be");
    damaged("plain-stored.npz", 0, -22 + 16, 1, "damaged zip archive"); /* the directory's place */
    damaged("plain-stored.npz", 0, -22 + 12, 1, "its directory is truncated");
    damaged("plain-deflated.npz", 0, 100, 0x55, "damaged zip archive");
    scratch_write("x.npz", "PK", 2);
    must_fail(scratch_path("x.npz"), NULL, DDP_ERR_FORMAT, "x.npz", "truncated");
    scratch_write("x.npz", "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    must_fail(scratch_path("x.npz"), NULL, DDP_ERR_FORMAT, "x.npz",
              "no samples in this archive: it has no arrays; call the samples x");
    must_fail(scratch_path("none.npz"), NULL, DDP_ERR_IO, "none.npz", "No such file");
    char path[5000];
    full_path(path, sizeof path, "none-fits.npz");
    must_fail(
        path, NULL, DDP_ERR_FORMAT, path,
        "it has weights float32 of (4, 3); ids int64 of (4,); notes.npy: values of type '<U4' "
        "cannot be read; call the samples x or x_train");
    full_path(path, sizeof path, "none-fits-deflated.npz");
    must_fail(path, NULL, DDP_ERR_FORMAT, path, "it has weights float32 of (4, 3); call");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("npy");
    tcase_add_test(test_case(suite, "golden", 60), numpy_has_the_same_values);
    TCase *tc = test_case(suite, "npy", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, NULL);
    tcase_add_test(tc, a_test_set_of_its_own);
    tcase_add_test(tc, bad_headers);
    tcase_add_test(tc, bad_labels);
    tcase_add_test(tc, labels_that_are_numbers);
    tcase_add_test(tc, values_that_are_no_numbers);
    tcase_add_test(tc, files_that_shrink);
    tcase_add_test(tc, bad_archives);
    return suite;
}
