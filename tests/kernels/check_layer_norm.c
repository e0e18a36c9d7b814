/* SPDX-License-Identifier: MIT
 *
 * Layer norm and RMS norm: against the reference in double, gradients by differences, sums added
 * and overwritten, bits over thread counts. */
#include "config.h"

#include "kernels/layer_norm.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

struct layer {
    int64_t rows, features;
    bool affine, rms;
    float *x, *gamma, *beta, *y, *statistics, *dy, *dx, *dgamma, *dbeta;
};

static const int64_t shapes[][2] = {
    {0, 5},    {3, 0},   {1, 1},    {2, 15},    {15, 16},  {16, 17},  {17, 31},    {33, 33},
    {100, 64}, {7, 768}, {40, 257}, {1025, 48}, {2050, 3}, {128, 96}, {1100, 128},
};

static struct layer layer_of(const int64_t *shape, bool affine, bool rms)
{
    const int64_t rows = shape[0], features = shape[1];
    struct layer layer = {.rows = rows, .features = features, .affine = affine, .rms = rms};
    layer.x = array_of(rows * features);
    for (int64_t i = 0; i < rows * features; i++)
        layer.x[i] = layer.x[i] * 3 + 2;
    layer.gamma = array_of(features);
    layer.beta = array_of(features);
    layer.y = array_of(rows * features);
    layer.statistics = array_of(2 * rows);
    layer.dy = array_of(rows * features);
    layer.dx = array_of(rows * features);
    layer.dgamma = array_of(features);
    layer.dbeta = array_of(features);
    return layer;
}

static struct layer layer_copy(const struct layer *from)
{
    struct layer layer = *from;
    const int64_t n = from->rows * from->features;
    layer.x = array_copy(from->x, n);
    layer.gamma = array_copy(from->gamma, from->features);
    layer.beta = array_copy(from->beta, from->features);
    layer.y = array_of(n);
    layer.statistics = array_copy(from->statistics, 2 * from->rows);
    layer.dy = array_copy(from->dy, n);
    layer.dx = array_copy(from->dx, n);
    layer.dgamma = array_copy(from->dgamma, from->features);
    layer.dbeta = array_copy(from->dbeta, from->features);
    return layer;
}

static void layer_free(struct layer *layer)
{
    const int64_t n = layer->rows * layer->features;
    array_free(layer->x, n);
    array_free(layer->gamma, layer->features);
    array_free(layer->beta, layer->features);
    array_free(layer->y, n);
    array_free(layer->statistics, 2 * layer->rows);
    array_free(layer->dy, n);
    array_free(layer->dx, n);
    array_free(layer->dgamma, layer->features);
    array_free(layer->dbeta, layer->features);
}

static void run_forward(const struct layer *layer, ddp_pool *pool, bool reference)
{
    const struct ddp_layer_norm_forward args = {
        .rows = layer->rows,
        .features = layer->features,
        .eps = 1e-5f,
        .rms = layer->rms,
        .x = layer->x,
        .gamma = layer->affine ? layer->gamma : NULL,
        .beta = layer->affine && !layer->rms ? layer->beta : NULL,
        .y = layer->y,
        .statistics = layer->statistics,
    };
    ck_assert_int_eq(
        (reference ? ddp_layer_norm_forward_reference : ddp_layer_norm_forward)(&args, pool),
        DDP_OK);
}

static void run_backward(const struct layer *layer, ddp_pool *pool, bool accumulate, bool reference)
{
    void *scratch = NULL;
    const size_t bytes = ddp_layer_norm_scratch_bytes(layer->rows, layer->features);
    if (bytes > 0)
        ck_assert_ptr_nonnull(scratch = aligned_alloc(64, bytes));
    const struct ddp_layer_norm_backward args = {
        .rows = layer->rows,
        .features = layer->features,
        .rms = layer->rms,
        .x = layer->x,
        .gamma = layer->affine ? layer->gamma : NULL,
        .statistics = layer->statistics,
        .dy = layer->dy,
        .dx = layer->dx,
        .dgamma = layer->dgamma,
        .dbeta = layer->rms ? NULL : layer->dbeta,
        .accumulate_dx = accumulate,
        .accumulate = accumulate,
        .scratch = scratch,
    };
    ck_assert_int_eq(
        (reference ? ddp_layer_norm_backward_reference : ddp_layer_norm_backward)(&args, pool),
        DDP_OK);
    free(scratch);
}

static bool layers_same(const struct layer *a, const struct layer *b)
{
    const int64_t n = a->rows * a->features;
    return same_bits(a->y, b->y, n) && same_bits(a->statistics, b->statistics, 2 * a->rows) &&
           same_bits(a->dx, b->dx, n) && same_bits(a->dgamma, b->dgamma, a->features) &&
           same_bits(a->dbeta, b->dbeta, a->features);
}

START_TEST(test_shapes)
{
    for (int flags = 0; flags < 8; flags++) {
        random_seed((uint64_t)_i);
        struct layer expected = layer_of(shapes[_i], flags & 1, flags & 4);
        const int64_t rows = expected.rows, features = expected.features, n = rows * features;
        struct layer first = layer_copy(&expected), before = layer_copy(&expected);
        run_forward(&expected, NULL, true);
        run_forward(&first, pools[0], false);
        /* a single feature is 0 after the norm, with an rstd of 1/sqrt(eps): 316 */
        ck_assert(largest_difference(first.y, expected.y, n) <= 3e-6);
        if (features > 1)
            for (int64_t i = 0; i < 2 * rows; i++)
                ck_assert_float_eq_tol(first.statistics[i], expected.statistics[i],
                                       2e-6f * fmaxf(1, fabsf(expected.statistics[i])));
        run_backward(&expected, NULL, flags & 2, true);
        memcpy(first.statistics, expected.statistics, sizeof(float) * (size_t)(2 * rows));
        run_backward(&first, pools[0], flags & 2, false);
        const double rstd = features == 1 ? 400 : features < 8 ? 20 : 1;
        ck_assert(largest_difference(first.dx, expected.dx, n) <= 4e-6 * rstd);
        ck_assert(largest_difference(first.dgamma, expected.dgamma, features) <=
                  4e-6 + 3e-7 * (double)rows);
        ck_assert(largest_difference(first.dbeta, expected.dbeta, features) <=
                  4e-6 + 2e-7 * (double)rows);
        for (int pool = 1; pool < POOLS; pool++) {
            struct layer other = layer_copy(&before);
            run_forward(&other, pools[pool], false);
            memcpy(other.statistics, expected.statistics, sizeof(float) * (size_t)(2 * rows));
            run_backward(&other, pools[pool], flags & 2, false);
            ck_assert_msg(layers_same(&first, &other), "other bits on %d threads",
                          pool_threads[pool]);
            layer_free(&other);
        }
        layer_free(&first);
        layer_free(&before);
        layer_free(&expected);
    }
}
END_TEST

static bool all_nan(const float *values, int64_t count)
{
    bool all = true;
    for (int64_t i = 0; i < count; i++)
        all = all && isnan(values[i]);
    return all;
}

/* A NaN anywhere in a row is in all that comes of the row, in nothing that comes of another, and in
 * every sum over rows that the row is in. */
static void check_nan(int64_t rows, int64_t features, int64_t at, int flags)
{
    const bool in_dy = flags & 1, reference = flags & 2, rms = flags & 4;
    struct layer layer = layer_of((const int64_t[]){rows, features}, true, rms), whole;
    const int64_t row = at / features, column = at % features, before = row * features;
    const int64_t after = (rows - row - 1) * features;
    whole = layer_copy(&layer);
    (in_dy ? layer.dy : layer.x)[at] = NAN;
    run_forward(&layer, pools[1], reference);
    run_forward(&whole, pools[1], reference);
    run_backward(&layer, pools[1], false, reference);
    run_backward(&whole, pools[1], false, reference);
    const bool lost = !in_dy && (!all_nan(layer.y + before, features) ||
                                 !all_nan(layer.statistics + 2 * row + rms, 2 - rms) ||
                                 !all_nan(layer.dgamma, features));
    ck_assert_msg(!lost && all_nan(layer.dx + before, features) && isnan(layer.dgamma[column]) &&
                      (rms || isnan(layer.dbeta[column]) == in_dy),
                  "rows of %lld: the NaN in column %lld of %s is lost", (long long)features,
                  (long long)column, in_dy ? "dy" : "x");
    ck_assert(same_bits(layer.y, whole.y, before) && same_bits(layer.dx, whole.dx, before));
    ck_assert(same_bits(layer.y + before + features, whole.y + before + features, after));
    ck_assert(same_bits(layer.dx + before + features, whole.dx + before + features, after));
    layer_free(&layer);
    layer_free(&whole);
}

START_TEST(test_nan)
{
    static const int64_t widths[] = {1, 15, 16, 17, 48, 257, 768, 1025, 4096, 5003};
    const int64_t n = widths[_i], columns[] = {0, n / 2, n - 1, n - n % 16 - 1};
    random_seed(13);
    for (int i = 0; i < 4; i++)
        for (int flags = 0; flags < 8; flags++)
            if (columns[i] >= 0)
                check_nan(3, n, n + columns[i], flags);
}
END_TEST

static double loss_of(void *arg)
{
    struct layer *layer = arg;
    run_forward(layer, NULL, false);
    double loss = 0;
    for (int64_t i = 0; i < layer->rows * layer->features; i++)
        loss += (double)layer->dy[i] * (double)layer->y[i];
    return loss;
}

START_TEST(test_gradient)
{
    random_seed(11);
    struct layer layer = layer_of((const int64_t[]){3, 19}, _i & 1, _i & 2);
    run_forward(&layer, NULL, false);
    run_backward(&layer, NULL, false, false);
    check_gradient("x", layer.x, layer.dx, 57, loss_of, &layer, 2e-4);
    if (layer.affine) {
        check_gradient("gamma", layer.gamma, layer.dgamma, 19, loss_of, &layer, 2e-4);
        if (!layer.rms)
            check_gradient("beta", layer.beta, layer.dbeta, 19, loss_of, &layer, 2e-4);
    }
    layer_free(&layer);
}
END_TEST

/* Overwriting does not read; dx may be dy, y may be x; outputs may be left out. */
START_TEST(test_in_place)
{
    random_seed(12);
    struct layer layer = layer_of((const int64_t[]){20, 37}, true, _i), other = layer_copy(&layer);
    for (int64_t i = 0; i < 20 * 37; i++)
        other.dx[i] = NAN;
    for (int64_t i = 0; i < 37; i++)
        other.dgamma[i] = NAN;
    for (int64_t i = 0; i < 37 && !_i; i++)
        other.dbeta[i] = NAN;
    run_forward(&layer, NULL, false);
    run_backward(&layer, NULL, false, false);
    run_forward(&other, NULL, false);
    run_backward(&other, NULL, false, false);
    ck_assert(layers_same(&layer, &other));
    struct ddp_layer_norm_backward backward = {.rows = 20,
                                               .features = 37,
                                               .rms = _i,
                                               .x = other.x,
                                               .gamma = other.gamma,
                                               .statistics = other.statistics,
                                               .dy = other.dy,
                                               .dx = other.dy};
    ck_assert_int_eq(ddp_layer_norm_backward(&backward, pools[2]), DDP_OK); /* without scratch */
    ck_assert(same_bits(other.dy, layer.dx, 20 * 37));
    struct ddp_layer_norm_forward forward = {.rows = 20,
                                             .features = 37,
                                             .eps = 1e-5f,
                                             .rms = _i,
                                             .x = other.x,
                                             .gamma = other.gamma,
                                             .beta = _i ? NULL : other.beta,
                                             .y = other.x};
    ck_assert_int_eq(ddp_layer_norm_forward(&forward, pools[1]), DDP_OK);
    ck_assert(same_bits(other.x, layer.y, 20 * 37));
    layer_free(&layer);
    layer_free(&other);
}
END_TEST

START_TEST(test_arguments)
{
    float v[4] = {1, 2, 3, 4}, y[4];
    const struct ddp_layer_norm_forward good = {.rows = 2, .features = 2, .x = v, .y = y};
    struct ddp_layer_norm_forward bad[] = {good, good, good, good, good, good, good};
    bad[0].rows = -1;
    bad[1].features = -1;
    bad[2].eps = -1;
    bad[3].eps = NAN;
    bad[4].x = NULL;
    bad[5].y = NULL;
    bad[6].rms = true;
    bad[6].beta = v;
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(ddp_layer_norm_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_layer_norm_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    const struct ddp_layer_norm_backward fine = {
        .rows = 2, .features = 2, .x = v, .statistics = v, .dy = v, .dgamma = y, .scratch = v};
    struct ddp_layer_norm_backward wrong[] = {fine, fine, fine, fine, fine, fine, fine};
    wrong[0].rows = -1;
    wrong[1].features = -1;
    wrong[2].x = NULL;
    wrong[3].statistics = NULL;
    wrong[4].dy = NULL;
    wrong[5].scratch = NULL;
    wrong[6].rms = true;
    wrong[6].dbeta = y;
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(ddp_layer_norm_backward(&wrong[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_layer_norm_backward_reference(&wrong[i], NULL), DDP_ERR_INVALID);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("layer_norm");
    TCase *tc = kernel_case(suite, "layer_norm");
    tcase_add_loop_test(tc, test_shapes, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_loop_test(tc, test_nan, 0, 10);
    tcase_add_loop_test(tc, test_gradient, 0, 4);
    tcase_add_loop_test(tc, test_in_place, 0, 2);
    tcase_add_test(tc, test_arguments);
    return suite;
}
