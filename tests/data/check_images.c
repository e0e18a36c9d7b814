/* SPDX-License-Identifier: MIT
 *
 * data/image_*: images that Pillow wrote (golden/image_files.txt), and directories of images, good
 * and bad. */
#include "config.h"

#include "data/dataset.h"
#include "data/image_file.h"
#include "data/image_list.h"
#include "data/image_resize.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <math.h>
#include <png.h>
#include <pthread.h>

/* --- what Pillow wrote --- */

static const char *golden_image(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "data/golden/image_files/%s", name);
    return golden_path(path);
}

/* An image as a set reads it: (channels, height, width). */
static void decode(const char *path, int channels, int height, int width, bool reduced,
                   unsigned char *out)
{
    struct ddp_input_file file;
    struct ddp_resize resize;
    ddp_image_reader *reader;
    ck_assert_int_eq(ddp_input_file_open(&file, path, true), DDP_OK);
    const struct ddp_blob blob = {.name = path, .file = &file, .bytes = file.bytes};
    ck_assert_msg(ddp_image_open(&reader, &blob) == DDP_OK, "%s", path);
    const struct ddp_image *image = ddp_image_info(reader);
    const int x = image->width / width, y = image->height / height;
    if (reduced)
        ck_assert_int_le(ddp_image_reduce(reader, x < y ? x : y), 8);
    ck_assert_int_eq(ddp_resize_init(&resize, channels, image->width, image->height, width, height),
                     DDP_OK);
    ck_assert_int_eq(ddp_image_read(reader, channels, ddp_resize_row, &resize), DDP_OK);
    ddp_resize_finish(&resize, out);
    ddp_resize_free(&resize);
    ddp_image_close(reader);
    ddp_input_file_close(&file);
}

/* Whether this build has the library that reads such a file. */
static bool is_readable(const char *name)
{
    const char *end = strrchr(name, '.');
#ifndef HAVE_WEBP
    if (strcmp(end, ".webp") == 0)
        return false;
#endif
#ifndef HAVE_GIF
    if (strcmp(end, ".gif") == 0)
        return false;
#endif
#ifndef HAVE_TIFF
    if (strncmp(end, ".tif", 4) == 0)
        return false;
#endif
    return *end == '.';
}

static void check_case(const struct golden *g)
{
    unsigned char pixels[4096];
    const int height = atoi(g->words[1]), width = atoi(g->words[2]), channels = atoi(g->words[3]);
    const size_t bytes = (size_t)(height * width * channels);
    ck_assert_uint_le(bytes, sizeof pixels);
    ck_assert_int_eq(g->answer_count, 1);
    ck_assert_uint_eq(strlen(g->answer[0]), 2 * bytes);
    decode(golden_image(g->words[0]), channels, height, width, g->word_count > 4, pixels);
    for (size_t i = 0; i < bytes; i++) {
        unsigned expected;
        ck_assert_int_eq(sscanf(g->answer[0] + 2 * i, "%2x", &expected), 1);
        ck_assert_msg(pixels[i] == expected, "%s: value %zu: %u, Pillow has %u", g->name, i,
                      pixels[i], expected);
    }
}

START_TEST(pillow_has_the_same_pixels)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("data/golden/image_files.txt");
    for (; golden_next(file, &g); golden_free(&g), cases++)
        if (is_readable(g.words[0]))
            check_case(&g);
    fclose(file);
    ck_assert_int_ge(cases, 130);
}
END_TEST

/* --- directories ------------------------------------------------------------------------------ */

/* Value of an image's pixel, in a channel. */
static unsigned char value_of(int image, int channel, int pixel)
{
    return (unsigned char)((image * 37 + pixel * (channel + 3)) % (101 + 50 * channel));
}

static void make_directories(char *path)
{
    for (char *slash = path + strlen(scratch) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

static void put_image(const char *name, int image, int channels, int height, int width)
{
    static unsigned char pixels[3 * 256 * 256];
    char path[PATH_MAX];
    for (int p = 0; p < height * width; p++)
        for (int c = 0; c < channels; c++)
            pixels[p * channels + c] = value_of(image, c, p);
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    make_directories(path);
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    ck_assert(png_image_write_to_file(&png, path, 0, pixels, 0, NULL));
}

static void put_file(const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    make_directories(path);
    scratch_write(name, data, bytes);
}

static void clear(void)
{
    char command[2 * PATH_MAX];
    chmod(scratch, 0700);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", scratch, scratch);
    ck_assert_int_eq(system(command), 0);
}

static void remove_all(void)
{
    clear();
    rmdir(scratch);
}

static void open_set(const struct ddp_dataset_options *options, ddp_dataset **train,
                     ddp_dataset **test)
{
    struct ddp_dataset_options full = *options;
    if (!full.path)
        full.path = scratch;
    *train = *test = NULL;
    ck_assert_int_eq(ddp_dataset_open(NULL, &full, train, test), DDP_OK);
    ck_assert_str_eq(ddp_dataset_info(*train)->source, "images");
}

static void must_fail(const struct ddp_dataset_options *options, enum ddp_status wanted,
                      const char *this, const char *that)
{
    struct ddp_dataset_options full = *options;
    ddp_dataset *train = NULL, *test = NULL;
    if (!full.path)
        full.path = scratch;
    capture_start();
    enum ddp_status status = ddp_dataset_open("images", &full, &train, &test);
    const char *text = capture_stop();
    ck_assert_msg(status == wanted, "status %d, not %d: %s", status, wanted, text);
    ck_assert(!train && !test);
    one_message(text, this, that);
}

static const struct ddp_dataset_options plain;

/* Sample `index` is that image, as large as it was written. */
static void check_sample(const ddp_dataset *dataset, int64_t index, int image, int label)
{
    static float x[3 * 64 * 64];
    const struct ddp_dataset_info *info = ddp_dataset_info(dataset);
    const int channels = (int)info->dims[0], plane = (int)(info->dims[1] * info->dims[2]);
    int32_t got = -1;
    ck_assert_int_eq(ddp_dataset_read(dataset, &index, 1, x, &got), DDP_OK);
    ck_assert_int_eq(got, label);
    for (int c = 0; c < channels; c++)
        for (int p = 0; p < plane; p++)
            ck_assert_float_eq(
                x[c * plane + p],
                (float)((value_of(image, c, p) / 255.0 - info->mean[c]) / info->std[c]));
}

START_TEST(order_of_samples)
{
    /* As ImageFolder has them: classes, directories in them and files by their bytes. */
    static const char *const names[] = {
        "Zebra/a.png", "ant/B.PNG",     "ant/a.jpg",   "ant/a.png",     "ant/z.png",
        "ant/x/1.png", "ant/x-y/2.png", "ant/x/y.png", "ant/x/y/3.png", "bee/\xc3\xa9.png",
    };
    static const char *const expected[] = {
        "Zebra/a.png", "ant/B.PNG",   "ant/a.jpg",     "ant/a.png",     "ant/z.png",
        "ant/x/1.png", "ant/x/y.png", "ant/x-y/2.png", "ant/x/y/3.png", "bee/\xc3\xa9.png",
    };
    const int count = sizeof names / sizeof names[0];
    ddp_dataset *train, *test;
    for (int i = count - 1; i >= 0; i--)
        for (int k = 0; k < count; k++)
            if (strcmp(names[i], expected[k]) == 0)
                put_image(names[i], k, 3, 5, 4);
    put_image(".hidden/a.png", 1, 3, 9, 9);
    put_image("ant/.a.png", 1, 3, 9, 9);
    put_file("ant/notes.txt", "x", 1);
    put_file("ant/x/list.csv", "x", 1);
    put_file("README.txt", "x", 1);
    open_set(&plain, &train, &test);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_ptr_null(test);
    ck_assert_int_eq(info->sample_count, count);
    ck_assert_int_eq(info->class_count, 3);
    ck_assert_str_eq(info->class_names[0], "Zebra");
    ck_assert_str_eq(info->class_names[1], "ant");
    ck_assert_str_eq(info->class_names[2], "bee");
    ck_assert(info->dim_count == 3 && info->dims[0] == 3 && info->dims[1] == 5 &&
              info->dims[2] == 4);
    ck_assert_ptr_nonnull(strstr(info->notice, "ignored 2 files: not an image"));
    for (int i = 0; i < count; i++) {
        ck_assert_str_eq(ddp_dataset_sample_name(train, i), expected[i]);
        check_sample(train, i, i, i == 0 ? 0 : i < count - 1 ? 1 : 2);
        check_sample(train, i, i, i == 0 ? 0 : i < count - 1 ? 1 : 2); /* now it is in memory */
    }
    ddp_dataset_close(train);
}
END_TEST

/* Over the images that are looked at, of so many. */
static void check_moments(const struct ddp_dataset_info *info, int images, int measured)
{
    for (int c = 0; c < 3; c++) {
        double sum = 0, squares = 0;
        const double n = measured * 6;
        for (int i = 0; i < measured; i++)
            for (int p = 0; p < 6; p++) {
                const double value = value_of((images - 1) * i / (measured - 1), c, p) / 255.0;
                sum += value;
                squares += value * value;
            }
        ck_assert_double_eq_tol(info->mean[c], sum / n, 1e-9);
        ck_assert_double_eq_tol(info->std[c], sqrt(squares / n - sum / n * sum / n), 1e-9);
    }
}

START_TEST(mean_and_deviation)
{
    static const int counts[][2] = {{10, 10}, {1024, 1024}, {1500, 1024}};
    for (int k = 0; k < 3; k++) {
        ddp_dataset *train, *test;
        clear();
        for (int i = 0; i < counts[k][0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "train/c%d/%04d.png", i >= counts[k][0] / 2, i);
            put_image(name, i, 3, 2, 3);
        }
        put_image("test/c1/1.png", 77, 3, 2, 3);
        open_set(&plain, &train, &test);
        check_moments(ddp_dataset_info(train), counts[k][0], counts[k][1]);
        ck_assert_double_eq(ddp_dataset_info(test)->mean[1], ddp_dataset_info(train)->mean[1]);
        ck_assert_double_eq(ddp_dataset_info(test)->std[2], ddp_dataset_info(train)->std[2]);
        check_sample(test, 0, 77, 1);
        ddp_dataset_close(train);
        ddp_dataset_close(test);
    }
}
END_TEST

START_TEST(training_and_test_sets)
{
    static const char *const tests[] = {"test", "validation", "valid", "val"};
    ddp_dataset *train, *test;
    put_image("train/a/1.png", 1, 3, 4, 4);
    put_image("train/b/2.png", 2, 3, 4, 4);
    put_image("train/c/3.png", 3, 3, 4, 4);
    put_image("other/d/3.png", 3, 3, 4, 4);
    for (int i = 0; i < 4; i++) { /* the later ones come first */
        char name[64];
        snprintf(name, sizeof name, "%s/b/1.png", tests[i]);
        put_image(name, 10 + i, 3, 4, 4);
        open_set(&plain, &train, &test);
        ck_assert_int_eq(ddp_dataset_info(train)->sample_count, 3);
        ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 1);
        ck_assert_int_eq(ddp_dataset_info(test)->class_count, 3);
        ck_assert_str_eq(ddp_dataset_info(test)->class_names[2], "c");
        ck_assert_str_eq(ddp_dataset_sample_name(test, 0), "b/1.png");
        ddp_dataset_close(train); /* the test set needs nothing of it */
        check_sample(test, 0, 10 + i, 1);
        ddp_dataset_close(test);
    }
    char other[PATH_MAX];
    snprintf(other, sizeof other, "%s/train", scratch);
    const struct ddp_dataset_options given = {.val = other};
    open_set(&given, &train, &test);
    ck_assert_int_eq(ddp_dataset_info(test)->sample_count, 3);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    snprintf(other, sizeof other, "%s/other", scratch);
    must_fail(&given, DDP_ERR_FORMAT, "other/d", "the training set has no class of this name");
    /* "train" may be a class too. */
    clear();
    put_image("train/1.png", 1, 3, 4, 4);
    put_image("plane/1.png", 2, 3, 4, 4);
    open_set(&plain, &train, &test);
    ck_assert_str_eq(ddp_dataset_info(train)->class_names[1], "train");
    ddp_dataset_close(train);
}
END_TEST

START_TEST(grey_or_colours)
{
    ddp_dataset *train, *test;
    static unsigned char kept[2][48];
    put_image("train/a/1.png", 1, 1, 4, 4);
    put_image("train/b/2.png", 2, 1, 4, 4);
    put_image("val/b/2.png", 3, 3, 4, 4);
    open_set(&plain, &train, &test);
    ck_assert_int_eq(ddp_dataset_info(train)->dims[0], 1);
    ck_assert_int_eq(ddp_dataset_info(test)->dims[0], 1);
    check_sample(train, 1, 2, 1);
    ck_assert_ptr_null(ddp_dataset_info(train)->notice);
    float x[48];
    const struct ddp_dataset_info *info = ddp_dataset_info(test);
    ck_assert_ptr_nonnull(strstr(info->notice, "/val: 1 of 1 images have colours and become grey"));
    ck_assert_int_eq(ddp_dataset_read(test, (int64_t[]){0}, 1, x, NULL), DDP_OK);
    for (int p = 0; p < 16; p++) {
        const unsigned grey = (value_of(3, 0, p) * 19595u + value_of(3, 1, p) * 38470u +
                               value_of(3, 2, p) * 7471u + 32768u) >>
                              16;
        ck_assert_float_eq(x[p], (float)((grey / 255.0 - info->mean[0]) / info->std[0]));
    }
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    /* One image of colours, the last, and all have them. */
    put_image("train/b/9.png", 9, 3, 4, 4);
    open_set(&plain, &train, &test);
    ck_assert_int_eq(ddp_dataset_info(train)->dims[0], 3);
    ck_assert_int_eq(ddp_dataset_info(test)->dims[0], 3);
    const char *notice = ddp_dataset_info(train)->notice;
    ck_assert_ptr_nonnull(strstr(notice, "/train: 2 of 3 images are grey and get three equal"));
    ck_assert_ptr_null(ddp_dataset_info(test)->notice);
    decode(scratch_path("train/a/1.png"), 1, 4, 4, false, kept[0]);
    decode(scratch_path("train/a/1.png"), 3, 4, 4, false, kept[1]);
    for (int c = 0; c < 3; c++)
        ck_assert_mem_eq(kept[0], kept[1] + (ptrdiff_t)16 * c, 16);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

START_TEST(sizes)
{
    ddp_dataset *train, *test;
    const struct ddp_dataset_options sized = {.image_height = 6, .image_width = 4};
    put_image("train/a/1.png", 1, 3, 8, 8);
    put_image("train/b/2.png", 2, 3, 9, 8);
    must_fail(&plain, DDP_ERR_FORMAT, "/b/2.png is 8 pixels wide and 9 high",
              "/a/1.png is 8 wide and 8 high: set one size for all with --image-size");
    open_set(&(struct ddp_dataset_options){.image_height = 9, .image_width = 8}, &train, &test);
    ck_assert_ptr_nonnull(strstr(ddp_dataset_info(train)->notice,
                                 "/train: 1 of 2 images are smaller than 9 x 8 and enlarged"));
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    open_set(&sized, &train, &test);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert_ptr_null(info->notice);
    ck_assert(info->dims[0] == 3 && info->dims[1] == 6 && info->dims[2] == 4);
    unsigned char pixels[72];
    float x[72];
    ck_assert_int_eq(ddp_dataset_read(train, (int64_t[]){1}, 1, x, NULL), DDP_OK);
    decode(scratch_path("train/b/2.png"), 3, 6, 4, false, pixels);
    for (int i = 0; i < 72; i++)
        ck_assert_float_eq(x[i],
                           (float)((pixels[i] / 255.0 - info->mean[i / 24]) / info->std[i / 24]));
    ddp_dataset_close(train);
    put_image("train/b/2.png", 2, 3, 8, 8);
    put_image("val/b/2.png", 2, 3, 8, 7);
    must_fail(&plain, DDP_ERR_FORMAT, "/val: images are 7 pixels wide and 8 high", "--image-size");
    open_set(&sized, &train, &test);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
    const struct ddp_dataset_options elsewhere = {.image_height = 6, .image_width = 4, .path = "x"};
    capture_start();
    ck_assert_int_eq(ddp_dataset_open("idx", &elsewhere, &train, &test), DDP_ERR_INVALID);
    one_message(capture_stop(), "--image-size belongs to directories of images", "idx");
}
END_TEST

START_TEST(without_classes)
{
    ddp_dataset *train, *test;
    put_image("b.png", 2, 3, 4, 4);
    put_image("a.png", 1, 3, 4, 4);
    put_file("labels.csv", "x", 1);
    open_set(&plain, &train, &test);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    ck_assert(info->sample_count == 2 && info->class_count == 0 && info->label_count == 0);
    ck_assert_ptr_null(info->class_names);
    ck_assert_ptr_null(info->notice);
    ck_assert_str_eq(ddp_dataset_sample_name(train, 1), "b.png");
    check_sample(train, 1, 2, -1);
    ddp_dataset_close(train);
    /* Such a test set is scaled as the training set, whose classes may be predicted. */
    put_image("train/a/1.png", 1, 3, 4, 4);
    put_image("train/b/2.png", 2, 3, 4, 4);
    put_image("new/3.png", 3, 3, 4, 4);
    const struct ddp_dataset_options apart = {.val = scratch_path("new")};
    open_set(&apart, &train, &test);
    info = ddp_dataset_info(test);
    ck_assert(info->class_count == 2 && info->label_count == 0);
    ck_assert_str_eq(info->class_names[1], "b");
    ck_assert_double_eq(info->mean[0], ddp_dataset_info(train)->mean[0]);
    check_sample(test, 0, 3, -1);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

START_TEST(bad_directories)
{
    must_fail(&plain, DDP_ERR_FORMAT, scratch, "no images: a directory for each class");
    put_image("a/1.png", 1, 3, 4, 4);
    ck_assert_int_eq(mkdir(scratch_path("b"), 0777), 0);
    must_fail(&plain, DDP_ERR_FORMAT, "/b: this class has no images", "remove the directory");
    put_file("b/1.txt", "text", 4);
    must_fail(&plain, DDP_ERR_FORMAT, "/b: this class has no images", "though others are there");
    put_file("b/1.heic", "x", 1);
    put_file("b/2.HEIC", "x", 1);
    must_fail(&plain, DDP_ERR_FORMAT, "/b: this class has no images",
              "; 2 images of other kinds, such as ");
    put_image("b/1.png", 1, 3, 4, 4);
    ck_assert_int_eq(symlink("..", scratch_path("b/again")), 0);
    must_fail(&plain, DDP_ERR_IO, "b/again: this link leads back", "holds it");
    ck_assert_int_eq(unlink(scratch_path("b/again")), 0);
    ck_assert_int_eq(symlink("nowhere", scratch_path("b/2.png")), 0);
    must_fail(&plain, DDP_ERR_IO, "/b/2.png", "No such file");
    const struct ddp_dataset_options nowhere = {.path = scratch_path("nowhere")};
    must_fail(&nowhere, DDP_ERR_IO, "nowhere", "No such file");
    const struct ddp_dataset_options file = {.path = scratch_path("a/1.png")};
    must_fail(&file, DDP_ERR_IO, "a/1.png", "Not a directory");
}
END_TEST

/* Reads b/2.png of a set of that image only, which was fine when it was opened. */
static void must_fail_to_read(const ddp_dataset *dataset, enum ddp_status wanted, const char *this)
{
    float x[3 * 4 * 4];
    capture_start();
    enum ddp_status status = ddp_dataset_read(dataset, (int64_t[]){0}, 1, x, NULL);
    const char *text = capture_stop();
    ck_assert_int_eq(status, wanted);
    one_message(text, "/b/2.png", this);
}

START_TEST(damaged_images)
{
    ddp_dataset *train, *test;
    size_t bytes;
    char whole[4096];
    put_image("train/b/2.png", 2, 3, 4, 4);
    memcpy(whole, scratch_read("train/b/2.png", &bytes), sizeof whole);
    put_image("train/a/1.png", 1, 3, 4, 4);
    scratch_write("train/b/2.png", whole, 20);
    must_fail(&plain, DDP_ERR_FORMAT, "/b/2.png: cannot decode this PNG image", "truncated");
    scratch_write("train/b/2.png", whole, 0);
    must_fail(&plain, DDP_ERR_FORMAT, "/b/2.png", "the file is empty");
    scratch_write("train/b/2.png", "<html>", 6);
    must_fail(&plain, DDP_ERR_FORMAT, "/b/2.png", "not a PNG, JPEG, WebP, GIF");
    scratch_write("train/b/2.png", whole, bytes - 13);
    must_fail(&plain, DDP_ERR_FORMAT, "/b/2.png: cannot decode this PNG image", "truncated");
    /* Later than at the start: of a test set no image is decoded before it is wanted. */
    scratch_write("train/b/2.png", whole, bytes);
    put_image("val/b/2.png", 2, 3, 4, 4);
    open_set(&plain, &train, &test);
    scratch_write("val/b/2.png", whole, bytes - 13);
    must_fail_to_read(test, DDP_ERR_FORMAT, "cannot decode this PNG image: the file is truncated");
    ck_assert_int_eq(unlink(scratch_path("val/b/2.png")), 0);
    must_fail_to_read(test, DDP_ERR_IO, "No such file");
    put_image("val/b/2.png", 2, 3, 4, 5);
    must_fail_to_read(test, DDP_ERR_FORMAT, "/b/2.png is 5 pixels wide and 4 high");
    put_image("val/b/2.png", 2, 3, 4, 4);
    check_sample(test, 0, 2, 1);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

/* --- many threads ----------------------------------------------------------------------------- */

struct reader {
    const ddp_dataset *dataset;
    float *x; /* of all samples */
    pthread_barrier_t *together;
};

static void *read_all(void *arg)
{
    const struct reader *reader = arg;
    const struct ddp_dataset_info *info = ddp_dataset_info(reader->dataset);
    for (int64_t i = 0; i < info->sample_count; i++) {
        if (reader->together)
            pthread_barrier_wait(reader->together);
        if (ddp_dataset_read(reader->dataset, &i, 1, reader->x + (size_t)i * info->sample_values,
                             NULL) != DDP_OK)
            return arg;
    }
    return NULL;
}

/* They want the same image at the same moment. */
START_TEST(several_threads)
{
    enum { THREADS = 4, IMAGES = 60, VALUES = 3 * 8 * 8 };
    const struct ddp_dataset_options sized = {.image_height = 8, .image_width = 8};
    static float x[THREADS][IMAGES * VALUES];
    pthread_t threads[THREADS];
    ddp_dataset *train, *test;
    for (int i = 0; i < IMAGES; i++) {
        char name[64];
        snprintf(name, sizeof name, "train/c/%03d.png", i);
        put_image(name, i, 3, 240 + i % 7, 250 - i % 5);
    }
    symlink("train", scratch_path("val")); /* of which nothing was decoded yet */
    open_set(&sized, &train, &test);
    struct reader readers[THREADS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, THREADS);
    for (int t = 0; t < THREADS; t++) {
        readers[t] = (struct reader){test, x[t], &together};
        ck_assert_int_eq(pthread_create(&threads[t], NULL, read_all, &readers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        void *failed;
        pthread_join(threads[t], &failed);
        ck_assert_ptr_null(failed);
    }
    for (int t = 1; t < THREADS; t++)
        ck_assert_mem_eq(x[0], x[t], sizeof x[0]);
    read_all(&(struct reader){train, x[1], NULL});
    pthread_barrier_destroy(&together);
    ck_assert_mem_eq(x[0], x[1], sizeof x[0]);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("images");
    TCase *golden = test_case(suite, "golden", 60);
    tcase_add_test(golden, pillow_has_the_same_pixels);
    TCase *tc = test_case(suite, "directories", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, remove_all);
    tcase_add_checked_fixture(tc, clear, NULL);
    tcase_add_test(tc, order_of_samples);
    tcase_add_test(tc, mean_and_deviation);
    tcase_add_test(tc, training_and_test_sets);
    tcase_add_test(tc, grey_or_colours);
    tcase_add_test(tc, sizes);
    tcase_add_test(tc, without_classes);
    tcase_add_test(tc, bad_directories);
    tcase_add_test(tc, damaged_images);
    tcase_add_test(tc, several_threads);
    return suite;
}
