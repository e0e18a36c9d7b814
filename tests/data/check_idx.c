/* SPDX-License-Identifier: MIT
 *
 * data/dataset: IDX files good and bad, plain and compressed; Fashion-MNIST where it is installed;
 * the article's data. */
#include "config.h"

#include "data/dataset.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <math.h>
#include <sys/resource.h>
#include <zlib.h>

/* The shadow memory of these sanitizers would not fit a limit on address space. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NO_MEMORY_LIMIT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NO_MEMORY_LIMIT 1
#endif
#endif

/* --- making files ----------------------------------------------------------------------------- */

struct bytes {
    unsigned char data[1024];
    size_t count;
};

static void put(struct bytes *b, const void *data, size_t count)
{
    ck_assert_uint_le(b->count + count, sizeof b->data);
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static struct bytes idx_bytes(int dim_count, const uint32_t *dims, int first_value)
{
    struct bytes b = {.data = {0, 0, 8, (unsigned char)dim_count}, .count = 4};
    size_t values = 1;
    for (int i = 0; i < dim_count; i++) {
        unsigned char size[4] = {(unsigned char)(dims[i] >> 24), (unsigned char)(dims[i] >> 16),
                                 (unsigned char)(dims[i] >> 8), (unsigned char)dims[i]};
        put(&b, size, 4);
        values *= dims[i];
    }
    for (size_t i = 0; i < values && b.count < sizeof b.data; i++)
        b.data[b.count++] = (unsigned char)((size_t)first_value + i);
    return b;
}

static struct bytes gzip(const struct bytes *plain)
{
    struct bytes b;
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)plain->data,
                       .avail_in = (uInt)plain->count,
                       .next_out = b.data,
                       .avail_out = sizeof b.data};
    ck_assert_int_eq(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    b.count = stream.total_out;
    deflateEnd(&stream);
    return b;
}

#define TRAIN_IMAGES "train-images-idx3-ubyte"
#define TRAIN_LABELS "train-labels-idx1-ubyte"
#define TEST_IMAGES  "t10k-images-idx3-ubyte"
#define TEST_LABELS  "t10k-labels-idx1-ubyte"

static void put_file(const char *name, struct bytes b)
{
    scratch_write(name, b.data, b.count);
}

/* Four training images of 2x3 with labels 0..3 and two test images with labels 1, 2. */
static void put_good_files(void)
{
    put_file(TRAIN_IMAGES, idx_bytes(3, (uint32_t[]){4, 2, 3}, 0));
    put_file(TRAIN_LABELS, idx_bytes(1, (uint32_t[]){4}, 0));
    put_file(TEST_IMAGES, idx_bytes(3, (uint32_t[]){2, 2, 3}, 100));
    put_file(TEST_LABELS, idx_bytes(1, (uint32_t[]){2}, 1));
}

static enum ddp_status open_scratch(ddp_dataset **train, ddp_dataset **test)
{
    const struct ddp_dataset_options options = {.path = scratch};
    return ddp_dataset_open("idx", &options, train, test);
}

/* --- good files ------------------------------------------------------------------------------- */

static void check_good_files(void)
{
    ddp_dataset *train, *test;
    ck_assert_int_eq(open_scratch(&train, &test), DDP_OK);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_int_eq(info->sample_count, 4);
    ck_assert_int_eq(info->class_count, 4);
    ck_assert_int_eq(info->dim_count, 3);
    ck_assert(info->dims[0] == 1 && info->dims[1] == 2 && info->dims[2] == 3);
    ck_assert_uint_eq(info->sample_values, 6);
    ck_assert(info->shuffled);
    double std = sqrt((24.0 * 24 - 1) / 12) / 255; /* of 0 .. 23 */
    ck_assert_double_eq_tol(info->mean[0], 11.5 / 255, 1e-12);
    ck_assert_double_eq_tol(info->std[0], std, 1e-12);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 2);
    ck_assert_double_eq(ddp_dataset_info(test)->mean[0], info->mean[0]);
    ck_assert_double_eq(ddp_dataset_info(test)->std[0], info->std[0]);

    float x[12];
    int32_t labels[2];
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){3, 1}, 2, x, labels), DDP_OK);
    ck_assert(labels[0] == 3 && labels[1] == 1);
    for (int i = 0; i < 12; i++) {
        int pixel = (i < 6 ? 18 : 0) + i;
        ck_assert_float_eq(x[i], (float)((pixel / 255.0 - info->mean[0]) / info->std[0]));
    }
    ck_assert_int_eq(ddp_dataset_read(test, (int64_t[]){1}, 1, x, NULL), DDP_OK);
    ck_assert_float_eq(x[0], (float)((106 / 255.0 - info->mean[0]) / info->std[0]));
    capture_start();
    int beyond = ddp_dataset_read(test, (int64_t[]){2}, 1, x, NULL);
    int below = ddp_dataset_read(test, (int64_t[]){-1}, 1, x, NULL);
    capture_stop();
    ck_assert_int_eq(beyond, DDP_ERR_INVALID);
    ck_assert_int_eq(below, DDP_ERR_INVALID);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    ddp_dataset_close(NULL);
}

START_TEST(plain_files)
{
    put_good_files();
    check_good_files();
}
END_TEST

START_TEST(compressed_files_in_one_and_two_members)
{
    struct bytes images = idx_bytes(3, (uint32_t[]){4, 2, 3}, 0), both = {.count = 0};
    struct bytes halves[2] = {{.count = 0}, {.count = 0}};
    put_good_files();
    put(&halves[0], images.data, 11);
    put(&halves[1], images.data + 11, images.count - 11);
    for (int i = 0; i < 2; i++) {
        struct bytes member = gzip(&halves[i]);
        put(&both, member.data, member.count);
    }
    unlink(scratch_path(TRAIN_IMAGES));
    put_file(TRAIN_IMAGES ".gz", gzip(&images));
    check_good_files();
    put_file(TRAIN_IMAGES ".gz", both);
    check_good_files();
}
END_TEST

START_TEST(images_with_channels)
{
    ddp_dataset *train;
    put_file(TRAIN_IMAGES, idx_bytes(4, (uint32_t[]){2, 3, 2, 2}, 0));
    put_file(TRAIN_LABELS, idx_bytes(1, (uint32_t[]){2}, 0));
    ck_assert_int_eq(open_scratch(&train, NULL), DDP_OK);
    const int64_t *dims = ddp_dataset_info(train)->dims;
    ck_assert(dims[0] == 3 && dims[1] == 2 && dims[2] == 2);
    ddp_dataset_close(train);
}
END_TEST

START_TEST(images_of_one_colour)
{
    struct bytes images = {.data = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9},
                           .count = 18};
    ddp_dataset *train;
    float x[2];
    put_file(TRAIN_IMAGES, images);
    put_file(TRAIN_LABELS, idx_bytes(1, (uint32_t[]){1}, 0));
    ck_assert_int_eq(open_scratch(&train, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0}, 1, x, NULL), DDP_OK);
    ck_assert(x[0] == 0 && x[1] == 0);
    ddp_dataset_close(train);
}
END_TEST

/* --- bad files -------------------------------------------------------------------------------- */

static void must_fail(enum ddp_status wanted, const char *name, const char *says)
{
    ddp_dataset *train = NULL, *test = NULL;
    capture_start();
    enum ddp_status status = open_scratch(&train, &test);
    const char *text = capture_stop();
    ck_assert_msg(status == wanted, "%s: status %d, not %d: %s", says, status, wanted, text);
    ck_assert(train == NULL && test == NULL);
    one_message(text, *name ? scratch_path(name) : scratch, says);
}

static void bad(const char *name, struct bytes b, const char *says)
{
    put_good_files();
    put_file(name, b);
    must_fail(DDP_ERR_FORMAT, name, says);
}

START_TEST(missing_files_and_directories)
{
    static const char *const names[] = {TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS};
    ddp_dataset *train;
    for (int i = 0; i < 4; i++) {
        put_good_files();
        unlink(scratch_path(names[i]));
        must_fail(DDP_ERR_IO, names[i], "--data");
    }
    ck_assert_int_eq(mkdir(scratch_path(TEST_LABELS), 0777), 0);
    must_fail(DDP_ERR_IO, TEST_LABELS, "not a regular file");
    struct ddp_dataset_options options = {.path = scratch_path("nowhere")};
    capture_start();
    enum ddp_status status = ddp_dataset_open("idx", &options, &train, NULL);
    one_message(capture_stop(), options.path, "No such file");
    ck_assert_int_eq(status, DDP_ERR_IO);
    options.path = scratch_path(TRAIN_IMAGES);
    capture_start();
    status = ddp_dataset_open("idx", &options, &train, NULL);
    one_message(capture_stop(), options.path, "not a directory");
    ck_assert_int_eq(status, DDP_ERR_IO);
    capture_start();
    status = ddp_dataset_open("idy", &options, &train, NULL);
    one_message(capture_stop(), "idy", "no data source");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
}
END_TEST

START_TEST(wrong_headers)
{
    struct bytes good = idx_bytes(3, (uint32_t[]){4, 2, 3}, 0), b = good;
    b.data[0] = 0x80;
    bad(TRAIN_IMAGES, b, "begins with 80 00");
    b = good;
    b.data[2] = 0x0d;
    bad(TRAIN_IMAGES, b, "type 0x0d");
    b = good;
    b.data[3] = 2;
    bad(TRAIN_IMAGES, b, "2 dimensions");
    b.data[3] = 5;
    bad(TRAIN_IMAGES, b, "5 dimensions");
    bad(TRAIN_LABELS, good, "3 dimensions");
    b = (struct bytes){.count = 0};
    bad(TRAIN_IMAGES, b, "truncated: 0 bytes");
    for (size_t n = 1; n < 16; n++) {
        b = good;
        b.count = n;
        bad(TRAIN_IMAGES, b, "truncated");
    }
    bad(TRAIN_IMAGES, idx_bytes(3, (uint32_t[]){0, 2, 3}, 0), "0 items");
    bad(TRAIN_IMAGES, idx_bytes(3, (uint32_t[]){4, 0, 3}, 0), "size 0");
    bad(TRAIN_IMAGES, idx_bytes(3, (uint32_t[]){~0u, ~0u, ~0u}, 0), "too large");
}
END_TEST

START_TEST(wrong_lengths)
{
    struct bytes b = idx_bytes(3, (uint32_t[]){4, 2, 3}, 0);
    b.count--;
    bad(TRAIN_IMAGES, b, "truncated: 23 bytes of data, its header announces 24");
    b.count += 2;
    bad(TRAIN_IMAGES, b, "more data than the 24 bytes");
    bad(TRAIN_LABELS, idx_bytes(1, (uint32_t[]){3}, 0), "4 images, but");
    bad(TEST_LABELS, idx_bytes(1, (uint32_t[]){3}, 0), "2 images, but");
    bad(TEST_LABELS, idx_bytes(1, (uint32_t[]){2}, 3), "label 1 is 4");
    put_good_files();
    put_file(TEST_IMAGES, idx_bytes(3, (uint32_t[]){2, 3, 2}, 0));
    must_fail(DDP_ERR_FORMAT, "", "test images of 1x3x2");
}
END_TEST

/* "4 images, but" names the images' file; look for the labels' in the same line. */
START_TEST(different_counts_name_both_files)
{
    put_good_files();
    put_file(TRAIN_LABELS, idx_bytes(1, (uint32_t[]){3}, 0));
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES, scratch_path(TRAIN_LABELS));
}
END_TEST

START_TEST(damaged_gzip)
{
    struct bytes plain = idx_bytes(3, (uint32_t[]){4, 2, 3}, 0), good = gzip(&plain), b;
    put_good_files();
    unlink(scratch_path(TRAIN_IMAGES));
    for (size_t n = 2; n < good.count; n++) { /* cut anywhere */
        b = good;
        b.count = n;
        put_file(TRAIN_IMAGES ".gz", b);
        must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES ".gz", "truncated");
    }
    b = good;
    b.data[b.count - 7] ^= 1; /* the checksum */
    put_file(TRAIN_IMAGES ".gz", b);
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES ".gz", "corrupt gzip stream");
    b = good;
    b.data[b.count - 2] ^= 1; /* the length */
    put_file(TRAIN_IMAGES ".gz", b);
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES ".gz", "corrupt gzip stream");
    b = good;
    b.data[2] = 7; /* the method */
    put_file(TRAIN_IMAGES ".gz", b);
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES ".gz", "corrupt gzip stream");
    b = good;
    put(&b, "x", 1);
    put_file(TRAIN_IMAGES ".gz", b);
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES ".gz", "after the end of the gzip stream");
    put(&plain, "x", 1);
    put_file(TRAIN_IMAGES ".gz", gzip(&plain));
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES ".gz", "more data than");
}
END_TEST

/* A header that promises 200 GB costs next to nothing: under a limit on memory it is still called
 * truncated. */
START_TEST(false_sizes_cost_no_memory)
{
#ifdef NO_MEMORY_LIMIT
    return;
#else
    struct rlimit limit = {.rlim_cur = 256u << 20, .rlim_max = 256u << 20};
    put_good_files();
    put_file(TRAIN_IMAGES, idx_bytes(3, (uint32_t[]){4000000000u, 7, 7}, 0));
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    must_fail(DDP_ERR_FORMAT, TRAIN_IMAGES, "truncated");
#endif
}
END_TEST

START_TEST(no_rights_to_read)
{
    put_good_files();
    ck_assert_int_eq(chmod(scratch, 0755), 0);
    ck_assert_int_eq(chmod(scratch_path(TRAIN_LABELS), 0), 0);
    if (!scratch_give_up_root())
        return;
    must_fail(DDP_ERR_IO, TRAIN_LABELS, "Permission denied");
    ck_assert_int_eq(seteuid(getuid()), 0);
}
END_TEST

/* --- real data, the article's data ------------------------------------------------------------ */

START_TEST(fashion_mnist)
{
    const struct ddp_dataset_options options = {.path = NULL};
    ddp_dataset *train, *test;
    int64_t histogram[10] = {0};
    static float x[784];
    if (access(DDP_DATASET_DEFAULT_DIR, R_OK) != 0) {
        fputs("skipped: the package dataset-fashion-mnist is not installed\n", stderr);
        return;
    }
    ck_assert_int_eq(ddp_dataset_open("idx", &options, &train, &test), DDP_OK);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_int_eq(info->sample_count, 60000);
    ck_assert_int_eq(info->class_count, 10);
    ck_assert_uint_eq(info->sample_values, 784);
    ck_assert_double_eq_tol(info->mean[0], 0.2860406, 1e-6); /* the published figures */
    ck_assert_double_eq_tol(info->std[0], 0.3530242, 1e-6);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 10000);
    for (int64_t i = 0; i < 10000; i++) {
        int32_t label;
        ck_assert_int_eq(ddp_dataset_read(test, &i, 1, x, &label), DDP_OK);
        histogram[label]++;
    }
    for (int c = 0; c < 10; c++)
        ck_assert_int_eq(histogram[c], 1000);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

START_TEST(article)
{
    struct ddp_dataset_options options = {.data_size = 8, .seed = 0};
    ddp_dataset *train, *test;
    float x[16];
    ck_assert_int_eq(ddp_dataset_open("article", &options, &train, &test), DDP_OK);
    ck_assert_ptr_null(test);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_int_eq(info->sample_count, 8);
    ck_assert_int_eq(info->class_count, 0);
    ck_assert(info->dim_count == 1 && info->dims[0] == 8 && info->sample_values == 8);
    ck_assert(!info->shuffled);
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){0, 7}, 2, x, NULL), DDP_OK);
    ck_assert_float_eq(x[0], 0.49625658988952637f); /* torch.manual_seed(0); torch.rand(8, 8) */
    ck_assert_float_eq(x[1], 0.76822179555892944f);
    ck_assert_float_eq(x[8], 0.59317201375961304f);
    ddp_dataset_close(train);
    options.data_size = 0;
    capture_start();
    enum ddp_status status = ddp_dataset_open("article", &options, &train, &test);
    one_message(capture_stop(), "0 samples", "possible");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("idx");
    TCase *tc = test_case(suite, "idx", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, NULL);
    tcase_add_test(tc, plain_files);
    tcase_add_test(tc, compressed_files_in_one_and_two_members);
    tcase_add_test(tc, images_with_channels);
    tcase_add_test(tc, images_of_one_colour);
    tcase_add_test(tc, missing_files_and_directories);
    tcase_add_test(tc, wrong_headers);
    tcase_add_test(tc, wrong_lengths);
    tcase_add_test(tc, different_counts_name_both_files);
    tcase_add_test(tc, damaged_gzip);
    tcase_add_test(tc, false_sizes_cost_no_memory);
    tcase_add_test(tc, no_rights_to_read);
    tcase_add_test(tc, fashion_mnist);
    tcase_add_test(tc, article);
    return suite;
}
