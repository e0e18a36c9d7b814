/* SPDX-License-Identifier: MIT
 *
 * data/augment: against the picture that is padded, cut and mirrored step by step; how the draws
 * are distributed; the same images for any split and number of threads. */
#include "config.h"

#include "data/augment.h"
#include "data/loader.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAD DDP_AUGMENT_PADDING

/* --- one image --- */

static struct ddp_dataset_info images(int64_t channels, int64_t height, int64_t width, int scales)
{
    return (struct ddp_dataset_info){
        .source = "images",
        .path = "",
        .sample_count = 60,
        .x_dtype = DDP_F32,
        .dim_count = 3,
        .dims = {channels, height, width},
        .sample_values = (size_t)(channels * height * width),
        .sample_bytes = (size_t)(channels * height * width) * sizeof(float),
        .channel_count = scales,
        .mean = {0.5, 0.25, 0.125},
        .std = {0.5, 2, 0.25},
    };
}

static void check_image(const struct ddp_dataset_info *info, struct ddp_augment_draw draw)
{
    static float x[3 * 12 * 12], scratch[3 * 12 * 12], padded[12 + 2 * PAD][12 + 2 * PAD];
    static const float blacks[3] = {-1, -0.125f, -0.5f};
    const int height = (int)info->dims[1], width = (int)info->dims[2];
    for (size_t i = 0; i < info->sample_values; i++)
        x[i] = (float)i + 1;
    ddp_augment_image(&draw, info, x, scratch);
    for (int c = 0; c < info->dims[0]; c++) {
        for (int i = 0; i < height + 2 * PAD; i++)
            for (int j = 0; j < width + 2 * PAD; j++) {
                const bool inside = i >= PAD && i < PAD + height && j >= PAD && j < PAD + width;
                padded[i][j] = inside ? (float)((c * height + i - PAD) * width + j - PAD + 1)
                                      : blacks[info->channel_count == 3 ? c : 0];
            }
        for (int i = 0; i < height; i++)
            for (int j = 0; j < width; j++) {
                const int column = draw.flip ? width - 1 - j : j;
                const float wanted = padded[draw.top + i][draw.left + column];
                const float got = x[(c * height + i) * width + j];
                ck_assert_msg(got == wanted,
                              "%dx%d, top %d, left %d, flip %d: (%d,%d,%d) is %g, not %g", height,
                              width, draw.top, draw.left, draw.flip, c, i, j, (double)got,
                              (double)wanted);
            }
    }
}

START_TEST(as_padded_cut_and_mirrored)
{
    static const int sizes[][2] = {{12, 12}, {7, 10}, {1, 9}, {9, 1}, {3, 2}, {4, 5}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int scales = 1; scales <= 3; scales += 2) {
            const struct ddp_dataset_info info = images(3, sizes[s][0], sizes[s][1], scales);
            for (int top = 0; top <= 2 * PAD; top++)
                for (int left = 0; left <= 2 * PAD; left++)
                    for (int flip = 0; flip <= 1; flip++)
                        check_image(&info, (struct ddp_augment_draw){top, left, flip});
        }
}
END_TEST

/* --- draws --- */

/* Chi-squared with 80 degrees of freedom: one in a thousand is above 124.8; with 1: 10.8. */
START_TEST(draws_are_evenly_distributed)
{
    enum { PLACES = 2 * PAD + 1, DRAWS = 81000 };
    const struct ddp_augment augment = {.crop = true, .flip = true, .seed = 42};
    for (int by_epoch = 0; by_epoch <= 1; by_epoch++) {
        int cells[PLACES * PLACES] = {0}, flips = 0;
        for (int i = 0; i < DRAWS; i++) {
            const struct ddp_augment_draw draw =
                ddp_augment_draw(&augment, by_epoch ? i : 3, by_epoch ? 3 : i);
            ck_assert(draw.top >= 0 && draw.top < PLACES && draw.left >= 0 && draw.left < PLACES);
            cells[draw.top * PLACES + draw.left]++;
            flips += draw.flip;
        }
        double chi = 0, expected = (double)DRAWS / (PLACES * PLACES);
        for (int i = 0; i < PLACES * PLACES; i++)
            chi += (cells[i] - expected) * (cells[i] - expected) / expected;
        ck_assert_msg(chi < 124.8, "places: chi-squared %g", chi);
        chi = 4 * (flips - DRAWS / 2.0) * (flips - DRAWS / 2.0) / DRAWS;
        ck_assert_msg(chi < 10.8, "flips: %d of %d", flips, DRAWS);
    }
}
END_TEST

START_TEST(what_is_not_asked_for_does_not_happen)
{
    for (int i = 0; i < 100; i++) {
        struct ddp_augment_draw draw = ddp_augment_draw(&(struct ddp_augment){.flip = true}, 0, i);
        ck_assert(draw.top == PAD && draw.left == PAD);
        draw = ddp_augment_draw(&(struct ddp_augment){.crop = true}, 0, i);
        ck_assert(!draw.flip);
    }
}
END_TEST

/* Crops are the same with and without flips, and other ones with another seed. */
START_TEST(draws_follow_from_seed_epoch_and_index)
{
    const struct ddp_augment one = {.crop = true, .flip = true, .seed = 1},
                             crop = {.crop = true, .seed = 1},
                             two = {.crop = true, .flip = true, .seed = 2};
    int same_seed = 0, same_epoch = 0;
    for (int i = 0; i < 1000; i++) {
        const struct ddp_augment_draw a = ddp_augment_draw(&one, 5, i);
        const struct ddp_augment_draw b = ddp_augment_draw(&crop, 5, i);
        const struct ddp_augment_draw c = ddp_augment_draw(&two, 5, i);
        const struct ddp_augment_draw d = ddp_augment_draw(&one, 6, i);
        ck_assert(a.top == b.top && a.left == b.left);
        same_seed += a.top == c.top && a.left == c.left && a.flip == c.flip;
        same_epoch += a.top == d.top && a.left == d.left && a.flip == d.flip;
    }
    ck_assert(same_seed < 30 && same_epoch < 30); /* 1000 / 162 */
}
END_TEST

/* --- regions and colours --- */

/* Shares of the area and ratios are in their ranges and fill them; all places are reached. */
START_TEST(regions_are_drawn_as_by_torchvision)
{
    enum { DRAWS = 4000, HEIGHT = 300, WIDTH = 400 };
    const struct ddp_augment augment = {.resized = 0.25, .seed = 3};
    double least = 1, most = 0, narrow = 9, wide = 0, mean = 0;
    int touching[4] = {0};
    for (int i = 0; i < DRAWS; i++) {
        const struct ddp_augment_box box = ddp_augment_box(&augment, HEIGHT, WIDTH, 2, i);
        const double share = (double)box.height * box.width / (HEIGHT * WIDTH);
        const double ratio = (double)box.width / box.height;
        ck_assert(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                  box.top + box.height <= HEIGHT && box.left + box.width <= WIDTH);
        least = share < least ? share : least;
        most = share > most ? share : most;
        narrow = ratio < narrow ? ratio : narrow;
        wide = ratio > wide ? ratio : wide;
        mean += share / DRAWS;
        touching[0] += box.top < 8;
        touching[1] += box.left < 8;
        touching[2] += box.top + box.height > HEIGHT - 8;
        touching[3] += box.left + box.width > WIDTH - 8;
    }
    ck_assert_msg(least > 0.24 && least < 0.27 && most > 0.93 && most <= 1, "shares %g to %g",
                  least, most);
    ck_assert_msg(narrow > 0.74 && narrow < 0.77 && wide > 1.31 && wide < 1.35, "ratios %g to %g",
                  narrow, wide);
    /* Large ones are drawn again where they do not fit. */
    ck_assert_msg(mean > 0.5 && mean < 0.625, "on average %g", mean);
    for (int i = 0; i < 4; i++)
        ck_assert_int_gt(touching[i], DRAWS / 50);
    /* Nothing fits: the middle. */
    const struct ddp_augment_box box =
        ddp_augment_box(&(struct ddp_augment){.resized = 1}, 10, 100, 0, 0);
    ck_assert(box.top == 0 && box.height == 10 && box.width == 13 && box.left == 43);
}
END_TEST

/* torchvision's adjust_contrast(), adjust_brightness() and adjust_saturation() on tensors. */
START_TEST(colours_as_by_torchvision)
{
    static const float pixels[12] = {0.1f,  0.5f, 0.9f, 0.3f, 0.2f,  0.6f,
                                     0.05f, 0.8f, 0.7f, 0.4f, 0.95f, 0};
    static const double colour[12] = {0, 0.3542859, 0.8232909, 0.0917858, 0.0640771, 0.4816859,
                                      0, 0.7287858, 0.701077,  0.2268859, 0.8232909, 0};
    static const double grey[4] = {0.3, 0.6, 0.9, 0.45};
    static const struct ddp_augment_jitter jitters[2] = {
        {{DDP_CONTRAST, DDP_BRIGHTNESS, DDP_SATURATION}, {0.7f, 1.4f, 1.3f}},
        {{DDP_SATURATION, DDP_CONTRAST, DDP_BRIGHTNESS}, {1.25f, 0.6f, 1.3f}}};
    for (int one = 0; one < 2; one++) {
        struct ddp_dataset_info info = images(one ? 1 : 3, 2, 2, one ? 1 : 3);
        float x[12];
        for (size_t i = 0; i < info.sample_values; i++)
            x[i] = (float)((pixels[i] - info.mean[i / 4]) / info.std[i / 4]);
        ddp_augment_colours(&jitters[one], &info, x);
        for (size_t i = 0; i < info.sample_values; i++)
            ck_assert_double_eq_tol(x[i] * info.std[i / 4] + info.mean[i / 4],
                                    (one ? grey : colour)[i], 2e-6);
    }
}
END_TEST

START_TEST(colours_are_drawn_evenly)
{
    enum { DRAWS = 6000 };
    const struct ddp_augment augment = {.jitter = 0.4, .seed = 5};
    int orders[27] = {0}, above[3] = {0}, together = 0;
    for (int i = 0; i < DRAWS; i++) {
        const struct ddp_augment_jitter jitter = ddp_augment_jitter(&augment, 1, i);
        orders[jitter.order[0] * 9 + jitter.order[1] * 3 + jitter.order[2]]++;
        for (int c = 0; c < 3; c++) {
            ck_assert(jitter.factors[c] >= 0.6f && jitter.factors[c] <= 1.4f);
            above[c] += jitter.factors[c] > 1.2f;
        }
        together += jitter.factors[0] > 1 && jitter.factors[1] > 1;
    }
    static const int all[] = {5, 7, 11, 15, 19, 21}; /* 012 021 102 120 201 210 in base 3 */
    for (int i = 0; i < 6; i++)
        ck_assert_int_lt(abs(orders[all[i]] - DRAWS / 6), 150);
    for (int c = 0; c < 3; c++)
        ck_assert_int_lt(abs(above[c] - DRAWS / 4), 170);
    ck_assert_int_lt(abs(together - DRAWS / 4), 170);
}
END_TEST

/* Mean and variance of the Beta distribution: 1/2, and 1 / (8 a + 4). */
START_TEST(shares_are_of_the_beta_distribution)
{
    enum { DRAWS = 20000 };
    static const double alphas[] = {0.001, 0.2, 0.5, 1};
    for (int a = 0; a < 4; a++) {
        const struct ddp_augment augment = {.mixup = alphas[a], .seed = 9};
        double sum = 0, squares = 0;
        int low = 0, same = 0;
        for (int i = 0; i < DRAWS; i++) {
            const double share = ddp_augment_share(&augment, 4, i);
            ck_assert(share >= 0 && share <= 1);
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
            low += share < 0.1;
            same += share == ddp_augment_share(&augment, 5, i);
        }
        const double variance = 1 / (8 * alphas[a] + 4), deviation = squares / DRAWS;
        ck_assert_msg(fabs(sum / DRAWS - 0.5) < 0.015, "mean %g", sum / DRAWS);
        ck_assert_msg(fabs(deviation / variance - 1) < 0.03, "alpha %g: variance %g, not %g",
                      alphas[a], deviation, variance);
        ck_assert(alphas[a] < 1 || abs(low - DRAWS / 10) < 200); /* even */
        ck_assert(alphas[a] < 0.2 || same < 20);
    }
}
END_TEST

START_TEST(lists_are_read)
{
    static const char *const bad[] = {
        "",          "crops",    "crop,",       "resized=0", "resized=1.5", "jitter=", "jitter=x",
        "none,flip", "resizeds", "jitter=0.4x", "mixup=0",   "mixup=2",     "smooth=", "smoothing"};
    struct ddp_augment augment;
    ck_assert_ptr_null(ddp_augment_parse(&augment, "resized,flip,jitter=0.25"));
    ck_assert(augment.flip && !augment.crop && augment.resized == DDP_AUGMENT_LEAST &&
              augment.jitter == 0.25);
    ck_assert(!ddp_augment_softens(&augment));
    ck_assert_ptr_null(ddp_augment_parse(&augment, "mixup=0.5,smooth"));
    ck_assert(augment.mixup == 0.5 && augment.smooth == DDP_AUGMENT_SMOOTH);
    ck_assert_ptr_null(ddp_augment_parse(&augment, "none"));
    ck_assert(!augment.flip && augment.resized == 0 && augment.jitter == 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(ddp_augment_parse(&augment, bad[i]) != NULL, "'%s' was taken", bad[i]);
}
END_TEST

/* --- in the loader --- */

static enum ddp_status read_images(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                   void *x, int32_t *labels)
{
    const size_t values = ddp_dataset_info(dataset)->sample_values;
    (void)labels;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < values; k++)
            ((float *)x)[i * values + k] = (float)((size_t)indices[i] * values + k);
    return DDP_OK;
}

static const struct ddp_dataset_ops ops = {.read = read_images};

#define EPOCHS 3
#define VALUES ((size_t)3 * 6 * 5)

/* All images of all epochs, as this split sees them. */
static void gather(float *all, int64_t shards, int threads, int workers)
{
    const ddp_dataset dataset = {.ops = &ops, .info = images(3, 6, 5, 3)};
    for (int w = 0; w < workers; w++) {
        ddp_loader *loader;
        const struct ddp_batch *batch;
        struct ddp_loader_config config = {
            .dataset = &dataset,
            .sampler = {.shard_count = shards, .shuffle = true, .seed = 9},
            .batch_size = 4,
            .first_shard = shards / workers * w,
            .shard_count = shards / workers,
            .end_epoch = EPOCHS,
            .augment = {.crop = true, .flip = true, .seed = 9},
            .threads = threads};
        ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
        while (ddp_loader_next(loader, &batch) == DDP_OK && batch) {
            for (int64_t i = 0; i < batch->rows; i++)
                memcpy(all + (size_t)(batch->epoch * 60 + batch->indices[i]) * VALUES,
                       (const float *)batch->x + (size_t)i * VALUES, VALUES * sizeof *all);
            ddp_loader_release(loader, batch);
        }
        ddp_loader_destroy(loader);
    }
}

START_TEST(any_split_sees_the_same_images)
{
    const size_t count = EPOCHS * 60 * VALUES;
    float *one = calloc(count, sizeof *one), *other = calloc(count, sizeof *other);
    gather(one, 1, 1, 1);
    ck_assert(memcmp(one, one + 60 * VALUES, 60 * VALUES * sizeof *one) != 0);
    static const struct {
        int shards, threads, workers;
    } splits[] = {{1, 4, 1}, {4, 1, 1}, {4, 3, 2}, {6, 2, 6}};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        memset(other, 0, count * sizeof *other);
        gather(other, splits[i].shards, splits[i].threads, splits[i].workers);
        ck_assert_int_eq(memcmp(one, other, count * sizeof *one), 0);
    }
    free(one);
    free(other);
}
END_TEST

/* A loader that begins in the middle, as after a checkpoint, goes on with the images of the run
 * that was not interrupted: those of its epoch, not of the first. */
START_TEST(from_the_middle_the_same_images)
{
    const ddp_dataset dataset = {.ops = &ops, .info = images(3, 6, 5, 3)};
    float *whole = calloc(EPOCHS * 60 * VALUES, sizeof *whole);
    gather(whole, 1, 1, 1);
    for (int64_t start = 0; start < EPOCHS * 15; start += 4) {
        ddp_loader *loader;
        const struct ddp_batch *batch;
        struct ddp_loader_config config = {
            .dataset = &dataset,
            .sampler = {.shard_count = 1, .shuffle = true, .seed = 9},
            .batch_size = 4,
            .shard_count = 1,
            .epoch = start / 15,
            .step = start % 15,
            .end_epoch = EPOCHS,
            .augment = {.crop = true, .flip = true, .seed = 9}};
        int64_t rows = 0;
        ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
        while (ddp_loader_next(loader, &batch) == DDP_OK && batch) {
            for (int64_t i = 0; i < batch->rows; i++, rows++)
                ck_assert_msg(
                    memcmp(whole + (size_t)(batch->epoch * 60 + batch->indices[i]) * VALUES,
                           (const float *)batch->x + (size_t)i * VALUES,
                           VALUES * sizeof *whole) == 0,
                    "from step %d: another image in epoch %d", (int)start, (int)batch->epoch);
            ddp_loader_release(loader, batch);
        }
        ddp_loader_destroy(loader);
        ck_assert_int_eq(rows, (EPOCHS * 15 - start) * 4);
    }
    free(whole);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("augment");
    TCase *tc = test_case(suite, "augment", 60);
    tcase_add_test(tc, as_padded_cut_and_mirrored);
    tcase_add_test(tc, draws_are_evenly_distributed);
    tcase_add_test(tc, what_is_not_asked_for_does_not_happen);
    tcase_add_test(tc, draws_follow_from_seed_epoch_and_index);
    tcase_add_test(tc, regions_are_drawn_as_by_torchvision);
    tcase_add_test(tc, colours_as_by_torchvision);
    tcase_add_test(tc, colours_are_drawn_evenly);
    tcase_add_test(tc, shares_are_of_the_beta_distribution);
    tcase_add_test(tc, lists_are_read);
    tcase_add_test(tc, any_split_sees_the_same_images);
    tcase_add_test(tc, from_the_middle_the_same_images);
    return suite;
}
