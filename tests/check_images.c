/* SPDX-License-Identifier: MIT
 *
 * data/image_*: images that Pillow wrote (golden/images.txt), and directories of images, good and
 * bad. */
#include "config.h"

#include "data/dataset.h"
#include "data/image_file.h"
#include "data/image_list.h"
#include "data/image_resize.h"
#include "tests/golden.h"
#include "tests/runner.h"
#include "tests/scratch.h"

#include <math.h>
#include <pthread.h>

/* --- what Pillow wrote --- */

static const char *golden_image(const char *name)
{
    static char path[4096];
    const char *directory = getenv("DDP_GOLDEN_DIR"), *source = getenv("srcdir");
    if (directory)
        snprintf(path, sizeof path, "%s/images/%s", directory, name);
    else
        snprintf(path, sizeof path, "%s/tests/golden/images/%s", source ? source : ".", name);
    return path;
}

/* An image as a set reads it: (channels, height, width). */
static void decode(const char *path, int channels, int height, int width, unsigned char *out)
{
    struct ddp_input_file file;
    struct ddp_resize resize;
    ddp_image_reader *reader;
    ck_assert_int_eq(ddp_input_file_open(&file, path, true), DDP_OK);
    const struct ddp_blob blob = {.name = path, .file = &file, .bytes = file.bytes};
    ck_assert_msg(ddp_image_open(&reader, &blob) == DDP_OK, "%s", path);
    const struct ddp_image *image = ddp_image_info(reader);
    ck_assert_int_eq(ddp_resize_init(&resize, channels, image->width, image->height, width, height),
                     DDP_OK);
    ck_assert_int_eq(ddp_image_read(reader, channels, ddp_resize_row, &resize), DDP_OK);
    ddp_resize_finish(&resize, out);
    ddp_resize_free(&resize);
    ddp_image_close(reader);
    ddp_input_file_close(&file);
}

static void check_case(const struct golden *g)
{
    unsigned char pixels[4096];
    const int height = atoi(g->words[1]), width = atoi(g->words[2]), channels = atoi(g->words[3]);
    const size_t bytes = (size_t)(height * width * channels);
    ck_assert_uint_le(bytes, sizeof pixels);
    ck_assert_int_eq(g->answer_count, 1);
    ck_assert_uint_eq(strlen(g->answer[0]), 2 * bytes);
    decode(golden_image(g->words[0]), channels, height, width, pixels);
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
    FILE *file = golden_open("images.txt");
    for (; golden_next(file, &g); golden_free(&g), cases++)
        check_case(&g);
    fclose(file);
    ck_assert_int_ge(cases, 80);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("images");
    TCase *golden = test_case(suite, "golden", 60);
    tcase_add_test(golden, pillow_has_the_same_pixels);
    return suite;
}
