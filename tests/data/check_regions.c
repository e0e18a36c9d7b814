/* SPDX-License-Identifier: MIT
 *
 * Regions of images, drawn anew in each epoch: data/image_resize, image_folder and split. */
#include "config.h"

#include "data/augment.h"
#include "data/dataset.h"
#include "data/image_resize.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <png.h>

enum { IMAGES = 6, HEIGHT = 30, WIDTH = 40 };

static void paint(int image, unsigned char *pixels)
{
    for (int i = 0; i < 3 * HEIGHT * WIDTH; i++)
        pixels[i] = (unsigned char)((image * 37 + i * 11 + i / 100 * 3) % 251);
}

static void put_image(int image, unsigned char *pixels)
{
    char name[32];
    png_image png = {
        .version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = PNG_FORMAT_RGB};
    paint(image, pixels);
    snprintf(name, sizeof name, "c/%d.png", image);
    ck_assert(png_image_write_to_file(&png, scratch_path(name), 0, pixels, 0, NULL));
}

/* A region that is drawn is what an image of that region alone becomes; a split draws the same. */
START_TEST(regions)
{
    enum { SIDE = 12, VALUES = 3 * SIDE * SIDE };
    const struct ddp_augment augment = {.resized = 0.3, .seed = 7};
    struct ddp_dataset_options sized = {.path = scratch, .image_height = SIDE, .image_width = SIDE};
    static float x[VALUES], wanted[VALUES];
    unsigned char whole[3 * HEIGHT * WIDTH], pixels[VALUES];
    ddp_dataset *train = NULL, *test = NULL;
    int32_t label;
    ck_assert_int_eq(mkdir(scratch_path("c"), 0777), 0);
    for (int i = 0; i < IMAGES; i++)
        put_image(i, whole);
    ck_assert_int_eq(ddp_dataset_open("images", &sized, &train, &test), DDP_OK);
    const struct ddp_dataset_info *info = ddp_dataset_info(train);
    for (int64_t i = 0; i < IMAGES; i++) {
        const struct ddp_augment_box box = ddp_augment_box(&augment, HEIGHT, WIDTH, 4, i);
        struct ddp_resize resize;
        paint((int)i, whole);
        /* The region's rows alone, given as an image of their own. */
        ck_assert_int_eq(
            ddp_resize_init_region(&resize, 3, 0, 0, box.width, box.height, SIDE, SIDE), DDP_OK);
        for (int row = 0; row < box.height; row++)
            ddp_resize_row(&resize, row, whole + ((box.top + row) * WIDTH + box.left) * 3);
        ddp_resize_finish(&resize, pixels);
        ddp_resize_free(&resize);
        for (int k = 0; k < VALUES; k++)
            wanted[k] = (float)((pixels[k] / 255.0 - info->mean[k / (SIDE * SIDE)]) /
                                info->std[k / (SIDE * SIDE)]);
        ck_assert_int_eq(ddp_dataset_read_resized(train, &augment, 4, &i, 1, x, &label), DDP_OK);
        ck_assert_mem_eq(x, wanted, sizeof x);
    }
    ddp_dataset_close(train);
    train = test = NULL;
    sized.val_split = 2;
    ck_assert_int_eq(ddp_dataset_open("images", &sized, &train, &test), DDP_OK);
    const int64_t first = 0;
    const float before = x[5];
    ck_assert_int_eq(ddp_dataset_read_resized(train, &augment, 4, &first, 1, x, &label), DDP_OK);
    ck_assert(x[5] != before && label == 0);
    ddp_dataset_close(train);
    ddp_dataset_close(test);
}
END_TEST

/* crop() and resize() of Pillow: a region of the shape of the result is scaled as an image is. */
START_TEST(regions_as_images)
{
    unsigned char whole[3 * 9 * 11], one[3 * 6 * 10], other[3 * 6 * 10];
    for (size_t i = 0; i < sizeof whole; i++)
        whole[i] = (unsigned char)(i * 73 % 251);
    for (int scale = 1; scale <= 2; scale++) {
        const int height = 3 * scale, width = 5 * scale;
        struct ddp_resize region, image;
        ck_assert_int_eq(ddp_resize_init_region(&region, 3, 4, 2, 5, 3, width, height), DDP_OK);
        ck_assert_int_eq(ddp_resize_init(&image, 3, 5, 3, width, height), DDP_OK);
        for (int row = 0; row < 9; row++)
            ddp_resize_row(&region, row, whole + row * 33);
        for (int row = 0; row < 3; row++)
            ddp_resize_row(&image, row, whole + (2 + row) * 33 + 12);
        ddp_resize_finish(&region, one);
        ddp_resize_finish(&image, other);
        ck_assert_mem_eq(one, other, (size_t)(3 * height * width));
        ddp_resize_free(&region);
        ddp_resize_free(&image);
    }
}
END_TEST

static void remove_all(void)
{
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    ck_assert_int_eq(system(command), 0);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("regions");
    TCase *tc = test_case(suite, "regions", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, remove_all);
    tcase_add_test(tc, regions);
    tcase_add_test(tc, regions_as_images);
    return suite;
}
