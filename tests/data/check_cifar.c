/* SPDX-License-Identifier: MIT
 *
 * data/cifar: both kinds, their scale, where they are looked for, and bad files. */
#include "config.h"

#include "data/dataset.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <math.h>

#define PLANE  1024
#define PIXELS (3 * PLANE)

/* Pixel p of channel c of image i. */
static int pixel_of(int i, int c, int p)
{
    return (i * 37 + p * (c + 1)) % (100 + 50 * c);
}

/* Images first .. first+count-1; label i % classes, after a coarse one of 7 for CIFAR-100. */
static void put_images(const char *name, int first, int count, int classes)
{
    static unsigned char bytes[64 * (2 + PIXELS)];
    size_t at = 0;
    for (int i = first; i < first + count; i++) {
        if (classes == 100)
            bytes[at++] = 7;
        bytes[at++] = (unsigned char)(i % classes);
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < PLANE; p++)
                bytes[at++] = (unsigned char)pixel_of(i, c, p);
    }
    scratch_write(name, bytes, at);
}

static void moments(int images, int c, double *mean, double *std)
{
    double sum = 0, squares = 0, n = images * PLANE;
    for (int i = 0; i < images; i++)
        for (int p = 0; p < PLANE; p++) {
            sum += pixel_of(i, c, p) / 255.0;
            squares += pixel_of(i, c, p) / 255.0 * pixel_of(i, c, p) / 255.0;
        }
    *mean = sum / n;
    *std = sqrt(squares / n - sum / n * sum / n);
}

static void check_image(const ddp_dataset *dataset, int64_t index, int image, int classes)
{
    static float x[PIXELS];
    int32_t label;
    const struct ddp_dataset_info *info = ddp_dataset_info(dataset);
    ck_assert_int_eq(ddp_dataset_read(dataset, &index, 1, x, &label), DDP_OK);
    ck_assert_int_eq(label, image % classes);
    for (int c = 0; c < 3; c++)
        for (int p = 0; p < PLANE; p++)
            ck_assert_float_eq(
                x[c * PLANE + p],
                (float)((pixel_of(image, c, p) / 255.0 - info->mean[c]) / info->std[c]));
}

static void check_set(const char *path, int classes)
{
    ddp_dataset *train, *test;
    const struct ddp_dataset_options options = {.path = path};
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_str_eq(info->source, "cifar");
    ck_assert_int_eq(info->sample_count, 23);
    ck_assert_int_eq(info->class_count, classes);
    ck_assert_int_eq(info->label_count, 1);
    ck_assert(info->dim_count == 3 && info->dims[0] == 3 && info->dims[1] == 32 &&
              info->dims[2] == 32);
    ck_assert_uint_eq(info->sample_bytes, PIXELS * sizeof(float));
    ck_assert_int_eq(info->channel_count, 3);
    for (int c = 0; c < 3; c++) {
        double mean, std;
        moments(23, c, &mean, &std);
        ck_assert_double_eq_tol(info->mean[c], mean, 1e-9);
        ck_assert_double_eq_tol(info->std[c], std, 1e-9);
        ck_assert_double_eq(ddp_dataset_info(test)->mean[c], info->mean[c]);
    }
    for (int i = 0; i < 23; i++)
        check_image(train, i, i, classes);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 3);
    check_image(test, 2, 42, classes);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}

static void put_cifar10(const char *prefix)
{
    char name[64];
    static const int counts[] = {10, 6, 7};
    for (int i = 0, first = 0; i < 3; first += counts[i++]) {
        snprintf(name, sizeof name, "%sdata_batch_%d.bin", prefix, i + 1);
        put_images(name, first, counts[i], 10);
    }
    snprintf(name, sizeof name, "%stest_batch.bin", prefix);
    put_images(name, 40, 3, 10);
}

START_TEST(cifar_10)
{
    put_cifar10("");
    check_set(scratch, 10);
}
END_TEST

START_TEST(cifar_10_in_its_own_directory)
{
    ck_assert_int_eq(mkdir(scratch_path("cifar-10-batches-bin"), 0777), 0);
    put_cifar10("cifar-10-batches-bin/");
    check_set(scratch, 10);
    check_set(scratch_path("cifar-10-batches-bin"), 10);
    ck_assert_int_eq(unlink(scratch_path("cifar-10-batches-bin/test_batch.bin")), 0);
    for (int i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "cifar-10-batches-bin/data_batch_%d.bin", i);
        ck_assert_int_eq(unlink(scratch_path(name)), 0);
    }
}
END_TEST

START_TEST(cifar_100)
{
    put_images("train.bin", 0, 23, 100);
    put_images("test.bin", 40, 3, 100);
    check_set(scratch, 100);
}
END_TEST

static void must_fail(enum ddp_status wanted, const char *this, const char *that)
{
    ddp_dataset *train = NULL, *test = NULL;
    const struct ddp_dataset_options options = {.path = scratch};
    capture_start();
    enum ddp_status status = ddp_dataset_open("cifar", &options, &train, &test);
    const char *text = capture_stop();
    ck_assert_msg(status == wanted, "status %d, not %d: %s", status, wanted, text);
    ck_assert(!train && !test);
    one_message(text, this, that);
}

START_TEST(bad_files)
{
    must_fail(DDP_ERR_IO, scratch, "neither data_batch_*.bin");
    put_cifar10("");
    unlink(scratch_path("test_batch.bin"));
    must_fail(DDP_ERR_IO, "test_batch.bin", "No such file");
    put_images("test_batch.bin", 40, 3, 100);
    must_fail(DDP_ERR_FORMAT, "test_batch.bin", "whole number of images of 3073");
    put_cifar10("");
    ck_assert_int_eq(truncate(scratch_path("data_batch_2.bin"), 3 * 3073 - 1), 0);
    must_fail(DDP_ERR_FORMAT, "data_batch_2.bin", "truncated");
    ck_assert_int_eq(truncate(scratch_path("data_batch_2.bin"), 0), 0);
    must_fail(DDP_ERR_FORMAT, "data_batch_2.bin", "truncated: 0 bytes");
    put_images("data_batch_2.bin", 5, 9, 11); /* image 10, the sixth, has label 10 */
    must_fail(DDP_ERR_FORMAT, "data_batch_2.bin", "image 5 has the label 10");
}
END_TEST

START_TEST(files_that_change)
{
    ddp_dataset *train, *test;
    static float x[PIXELS];
    int32_t label;
    const struct ddp_dataset_options options = {.path = scratch};
    put_cifar10("");
    ck_assert_int_eq(ddp_dataset_open(NULL, &options, &train, &test), DDP_OK);
    ck_assert_int_eq(truncate(scratch_path("data_batch_3.bin"), 3073), 0);
    check_image(train, 16, 16, 10);
    capture_start();
    int status = ddp_dataset_read(train, (int64_t[]){17}, 1, x, &label);
    one_message(capture_stop(), "data_batch_3.bin", "it had 21511 bytes and now has 3073");
    ck_assert_int_eq(status, DDP_ERR_IO);
    put_images("test_batch.bin", 10, 3, 11);
    capture_start();
    status = ddp_dataset_read(test, (int64_t[]){0}, 1, x, &label);
    one_message(capture_stop(), "test_batch.bin", "image 0 has the label 10");
    ck_assert_int_eq(status, DDP_ERR_FORMAT);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cifar");
    TCase *tc = test_case(suite, "cifar", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, NULL);
    tcase_add_test(tc, cifar_10);
    tcase_add_test(tc, cifar_10_in_its_own_directory);
    tcase_add_test(tc, cifar_100);
    tcase_add_test(tc, bad_files);
    tcase_add_test(tc, files_that_change);
    return suite;
}
