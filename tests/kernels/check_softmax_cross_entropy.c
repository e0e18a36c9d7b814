/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy: against the reference in double, gradient, extreme logits, bad labels. */
#include "config.h"

#include "kernels/softmax_cross_entropy.h"
#include "data/augment.h"
#include "tests/kernels/kernels_golden.h"
#include "tests/kernels/kernels_test.h"
#include "tests/lib/scratch.h"
#include "tests/kernels/reference/reference.h"

static const int64_t shapes[][2] = {
    {0, 10},  {1, 1},   {1, 2},    {15, 10},  {16, 15},   {17, 16},
    {33, 17}, {64, 31}, {100, 33}, {5, 1000}, {3, 50257}, {5003, 10},
};

START_TEST(test_shapes)
{
    const int64_t rows = shapes[_i][0], classes = shapes[_i][1], n = rows * classes;
    random_seed((uint64_t)_i);
    float *logits = array_of(n), *expected = array_of(n), *first = NULL;
    for (int64_t i = 0; i < n; i++)
        logits[i] *= i % 7 == 0 ? 60 : 8;
    int32_t *labels = malloc(sizeof *labels * (size_t)(rows + 1));
    int32_t *best = malloc(sizeof *labels * (size_t)(rows + 1));
    int32_t *found = malloc(sizeof *labels * (size_t)(rows + 1));
    for (int64_t i = 0; i < rows; i++) /* in every other shape, some rows do not count */
        labels[i] = _i % 2 && i % 3 == 2 ? DDP_LABEL_NONE : (int32_t)random_below(classes);
    float loss, expected_loss, first_loss = 0;
    struct ddp_softmax_cross_entropy args = {.rows = rows, .classes = classes, .logits = logits};
    args.labels = labels;
    args.loss = &expected_loss;
    args.dlogits = expected;
    args.predictions = best;
    ck_assert_int_eq(ddp_softmax_cross_entropy_reference(&args, NULL), DDP_OK);
    for (int pool = 0; pool < POOLS; pool++) {
        float *in_place = array_copy(logits, n);
        args.loss = &loss;
        args.logits = args.dlogits = in_place;
        args.predictions = found;
        ck_assert_int_eq(ddp_softmax_cross_entropy(&args, pools[pool]), DDP_OK);
        ck_assert_float_eq_tol(loss, expected_loss, 5e-7f * (1 + expected_loss));
        ck_assert(largest_difference(in_place, expected, n) <=
                  (_i % 2 ? 8e-7 : 4e-7) / (double)(rows + 1));
        ck_assert(memcmp(found, best, sizeof *best * (size_t)rows) == 0);
        if (!first) {
            first = in_place;
            first_loss = loss;
            args.logits = logits; /* nothing but the loss: the same loss */
            args.dlogits = NULL;
            args.predictions = NULL;
            ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
            ck_assert(same_bits(&loss, &first_loss, 1));
            continue;
        }
        ck_assert_msg(same_bits(in_place, first, n) && same_bits(&loss, &first_loss, 1),
                      "other bits on %d threads", pool_threads[pool]);
        array_free(in_place, n);
    }
    array_free(first, n);
    array_free(logits, n);
    array_free(expected, n);
    free(labels);
    free(best);
    free(found);
}
END_TEST

/* Rows that lie apart have the bits of packed ones. What is between logits is not read; between
 * gradients it becomes zero. */
START_TEST(test_stride)
{
    enum { ROWS = 7, CLASSES = 33, STRIDE = 40 };
    float *packed = array_of(ROWS * CLASSES), *apart = array_of(ROWS * STRIDE), loss[2];
    int32_t labels[ROWS];
    for (int64_t i = 0; i < ROWS; i++) /* one row does not count */
        labels[i] = i == 3 ? DDP_LABEL_NONE : (int32_t)random_below(CLASSES);
    for (int64_t i = 0; i < ROWS * STRIDE; i++)
        apart[i] = i % STRIDE < CLASSES ? packed[i / STRIDE * CLASSES + i % STRIDE] : NAN;
    struct ddp_softmax_cross_entropy args = {.rows = ROWS, .classes = CLASSES, .labels = labels};
    args.logits = args.dlogits = packed;
    args.loss = &loss[0];
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    args.stride = STRIDE;
    args.logits = args.dlogits = apart;
    args.loss = &loss[1];
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    ck_assert(same_bits(&loss[0], &loss[1], 1));
    for (int64_t i = 0; i < ROWS; i++) {
        ck_assert(same_bits(apart + i * STRIDE, packed + i * CLASSES, CLASSES));
        for (int64_t k = CLASSES; k < STRIDE; k++)
            ck_assert(apart[i * STRIDE + k] == 0);
    }
    args.stride = CLASSES - 1;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_ERR_INVALID);
    array_free(packed, ROWS * CLASSES);
    array_free(apart, ROWS * STRIDE);
}
END_TEST

/* The exponential itself, seen through rows of two: p = e^-x / (1 + e^-x) over its whole range. */
START_TEST(test_exponential)
{
    double worst = 0;
    for (int i = 0; i < 87 * 512; i++) {
        float logits[2] = {0, -(float)i / 512}, d[2], loss;
        int32_t label = 0;
        struct ddp_softmax_cross_entropy args = {
            .rows = 1, .classes = 2, .logits = logits, .labels = &label};
        args.loss = &loss;
        args.dlogits = d;
        ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
        double e = exp((double)logits[1]);
        worst = larger(worst, fabs((double)d[1] / (e / (1 + e)) - 1));
    }
    ck_assert_msg(worst < 2.6e-7, "relative error %g",
                  worst); /* e, sum, quotient, product: 4 roundings */
}
END_TEST

static double loss_of(void *arg)
{
    struct ddp_softmax_cross_entropy *args = arg;
    ck_assert_int_eq(ddp_softmax_cross_entropy(args, NULL), DDP_OK);
    return (double)*args->loss;
}

START_TEST(test_gradient)
{
    const int64_t rows = 3, classes = 18, n = rows * classes;
    random_seed(3);
    float *logits = array_of(n), *dlogits = array_of(n), loss;
    int32_t labels[3] = {0, 17, 5};
    struct ddp_softmax_cross_entropy args = {
        .rows = rows, .classes = classes, .logits = logits, .labels = labels, .loss = &loss};
    args.dlogits = dlogits;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    args.dlogits = NULL;
    check_gradient("logits", logits, dlogits, n, loss_of, &args, 5e-5);
    args.dlogits = logits;
    args.dloss = (const float[]){1024};
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    for (int64_t i = 0; i < n; i++)
        ck_assert_float_eq(logits[i], 1024 * dlogits[i]);
    array_free(logits, n);
    array_free(dlogits, n);
}
END_TEST

static float loss_of_row(const float *logits, int64_t classes, int32_t label, float *dlogits,
                         int32_t *prediction)
{
    float loss = -1;
    struct ddp_softmax_cross_entropy args = {
        .rows = 1, .classes = classes, .logits = logits, .labels = &label, .loss = &loss};
    args.dlogits = dlogits;
    args.predictions = prediction;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    return loss;
}

START_TEST(test_extremes)
{
    float d[20];
    int32_t best;
    const float huge[4] = {1e30f, -1e30f, 1e30f, 0};
    ck_assert_float_eq_tol(loss_of_row(huge, 4, 0, d, &best), logf(2), 1e-6f);
    ck_assert_int_eq(best, 0); /* the first of two */
    ck_assert(d[0] == -0.5f && d[1] == 0 && d[2] == 0.5f && d[3] == 0);
    ck_assert_float_eq(loss_of_row(huge, 4, 1, d, &best), 2e30f);

    const float masked[3] = {-INFINITY, 1, 1};
    ck_assert_float_eq_tol(loss_of_row(masked, 3, 2, d, &best), logf(2), 1e-6f);
    ck_assert_int_eq(best, 1);
    ck_assert(d[0] == 0);
    ck_assert(isinf(loss_of_row(masked, 3, 0, d, &best)));

    float poisoned[20] = {0};
    for (int i = 0; i < 20; i++) {
        poisoned[i] = NAN;
        ck_assert(isnan(loss_of_row(poisoned, 20, (i + 1) % 20, d, &best)));
        ck_assert(isnan(d[(i + 2) % 20]));
        poisoned[i] = 0;
    }
    const float nothing[2] = {NAN, NAN};
    loss_of_row(nothing, 2, 0, d, &best);
    ck_assert_int_eq(best, 0);
}
END_TEST

/* Rows without a label: as if they were not there, and zeros in the gradient. */
START_TEST(test_rows_that_do_not_count)
{
    float x[4] = {1, 2, NAN, 3}, d[4], loss, alone, d_alone[2];
    int32_t labels[2] = {1, DDP_LABEL_NONE}, predictions[2];
    struct ddp_softmax_cross_entropy args = {
        .rows = 1, .classes = 2, .logits = x, .labels = labels, .loss = &alone, .dlogits = d_alone};
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    args.rows = 2;
    args.loss = &loss;
    args.dlogits = d;
    args.predictions = predictions;
    for (int reference = 0; reference < 2; reference++) {
        ck_assert_int_eq((reference ? ddp_softmax_cross_entropy_reference
                                    : ddp_softmax_cross_entropy)(&args, NULL),
                         DDP_OK);
        ck_assert_float_eq_tol(loss, alone, 1e-7f);
        ck_assert_float_eq_tol(d[0], d_alone[0], 1e-7f);
        ck_assert(d[2] == 0 && d[3] == 0);
        ck_assert(predictions[0] == 1 && predictions[1] == 1);
    }
    labels[0] = DDP_LABEL_NONE;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    ck_assert(loss == 0 && d[0] == 0 && d[1] == 0);
}
END_TEST

/* Two chunks of rows with the divisor of both are the whole. */
START_TEST(test_chunks)
{
    enum { ROWS = 7, CLASSES = 33, FIRST = 3 };
    random_seed(5);
    float *x = array_of(ROWS * CLASSES), *d = array_of(ROWS * CLASSES),
          *parts = array_of(ROWS * CLASSES), loss, sum = 100, uncounted = 100;
    int32_t labels[ROWS] = {5, DDP_LABEL_NONE, 0, 32, 8, DDP_LABEL_NONE, 9};
    struct ddp_softmax_cross_entropy args = {.rows = ROWS, .classes = CLASSES, .logits = x};
    args.labels = labels;
    args.loss = &loss;
    args.dlogits = d;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    args.divisor = 5;
    args.loss = &sum;
    args.uncounted = &uncounted;
    args.dlogits = parts;
    args.rows = FIRST;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK); /* overwrites the 100 */
    args.accumulate_loss = true;
    args.rows = ROWS - FIRST;
    args.logits = x + FIRST * CLASSES;
    args.labels = labels + FIRST;
    args.dlogits = parts + FIRST * CLASSES;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    ck_assert(same_bits(d, parts, ROWS * CLASSES));
    ck_assert_float_eq_tol(sum, loss, 1e-6f);
    ck_assert_float_eq(uncounted, 2);
    ck_assert_int_eq(ddp_softmax_cross_entropy_reference(&args, NULL), DDP_OK);
    ck_assert_float_eq(uncounted, 3); /* the second chunk's again */
    labels[FIRST + 1] = CLASSES;
    args.first_row = FIRST;
    capture_start();
    const enum ddp_status status = ddp_softmax_cross_entropy(&args, NULL);
    one_message(capture_stop(), "label 33 in row 4", "there are 33 classes");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    array_free(x, ROWS * CLASSES);
    array_free(d, ROWS * CLASSES);
    array_free(parts, ROWS * CLASSES);
}
END_TEST

START_TEST(test_arguments)
{
    float x[4] = {1, 2, 3, 4}, d[4] = {9, 9, 9, 9}, loss = 9;
    int32_t labels[2] = {0, 1};
    const struct ddp_softmax_cross_entropy good = {
        .rows = 2, .classes = 2, .logits = x, .labels = labels, .loss = &loss, .dlogits = d};
    struct ddp_softmax_cross_entropy bad[] = {good, good, good, good, good, good};
    bad[0].rows = -1;
    bad[1].classes = 0;
    bad[2].logits = NULL;
    bad[3].labels = NULL;
    bad[4].loss = NULL;
    bad[5].divisor = -1;
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(ddp_softmax_cross_entropy(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_softmax_cross_entropy_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    const int32_t wrong[] = {-2, 2, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        labels[1] = wrong[i];
        char label[40];
        snprintf(label, sizeof label, "label %d in row 1", (int)wrong[i]);
        capture_start();
        enum ddp_status status = ddp_softmax_cross_entropy(&good, NULL);
        one_message(capture_stop(), label, "there are 2 classes");
        ck_assert_int_eq(status, DDP_ERR_INVALID);
        ck_assert(loss == 9 && d[0] == 9); /* outputs on success only */
    }
}
END_TEST

/* Mixed samples and their soft labels, with the loss alone and in place. */
static void run_soft(struct golden_case *c)
{
    golden_seed(c);
    const int64_t rows = golden_number(c), classes = golden_number(c), n = rows * classes;
    const double share = strtod(c->line->words[c->word++], NULL);
    const struct ddp_soft_labels soft = {(float)share,
                                         (float)strtod(c->line->words[c->word++], NULL)};
    const struct ddp_dataset_info info = {.sample_values = (size_t)classes,
                                          .sample_bytes = (size_t)classes * sizeof(float)};
    float *x = array_of(n), loss, alone;
    int32_t *labels = malloc(sizeof *labels * (size_t)rows);
    for (int64_t i = 0; i < rows; i++)
        labels[i] = (int32_t)(i * 7 % classes);
    golden_draw(c, x, n);
    ck_assert_int_eq(ddp_augment_mix(share, &info, (size_t)rows, x), DDP_OK);
    golden_compare(c, "mixed", x, n, 0);
    struct ddp_softmax_cross_entropy args = {
        .rows = rows, .classes = classes, .logits = x, .labels = labels, .soft = &soft};
    args.loss = &alone;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
    args.loss = &loss;
    args.dlogits = x;
    ck_assert_int_eq(ddp_softmax_cross_entropy(&args, pools[POOLS - 1]), DDP_OK);
    ck_assert(same_bits(&loss, &alone, 1));
    golden_compare(c, "loss", &loss, 1, 5e-7);
    golden_compare(c, "dlogits", x, n, 2e-7);
    array_free(x, n);
    free(labels);
}

START_TEST(test_soft_labels)
{
    golden_run("kernels/golden/images.txt", "soft", run_soft);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("softmax_cross_entropy");
    TCase *tc = kernel_case(suite, "softmax_cross_entropy");
    tcase_add_loop_test(tc, test_shapes, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tc, test_stride);
    tcase_add_test(tc, test_exponential);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_extremes);
    tcase_add_test(tc, test_rows_that_do_not_count);
    tcase_add_test(tc, test_chunks);
    tcase_add_test(tc, test_soft_labels);
    tcase_add_test(tc, test_arguments);
    return suite;
}
