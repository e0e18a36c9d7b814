/* SPDX-License-Identifier: MIT
 *
 * Batch norm and its running statistics: against the reference on shapes that meet every edge of
 * the lines, gradients by differences, accumulation, a synchronised norm over two halves, a large
 * mean, bits over thread counts, PyTorch's numbers, bad arguments. */
#include "config.h"

#include "kernels/batch_norm.h"
#include "kernels/ema.h"
#include "tests/kernels/kernels_golden.h"
#include "tests/kernels/reference/reference.h"

struct norm {
    int64_t rows, channels;
    bool relu, has_residual, accumulate, accumulate_stat;
    float *x, *residual, *gamma, *beta, *y, *dy, *dx, *dresidual, *dgamma, *dbeta;
    float *saved, *stat_mean, *stat_var;
    double *sums, *backward_sums;
};

static struct norm norm_of(int64_t rows, int64_t channels, int flags)
{
    const int64_t n = rows * channels;
    struct norm norm = {
        .rows = rows,
        .channels = channels,
        .relu = flags & 1,
        .has_residual = flags & 2,
        .accumulate = flags & 4,
        .x = array_of(n),
        .residual = array_of(n),
        .gamma = array_of(channels),
        .beta = array_of(channels),
        .y = array_of(n),
        .dy = array_of(n),
        .dx = array_of(n),
        .dresidual = array_of(n),
        .dgamma = array_of(channels),
        .dbeta = array_of(channels),
        .saved = array_of(2 * channels),
        .stat_mean = array_of(channels),
        .stat_var = array_of(channels),
        .sums = calloc((size_t)channels * 2, sizeof(double)),
        .backward_sums = calloc((size_t)channels * 2, sizeof(double)),
    };
    return norm;
}

static struct norm norm_copy(const struct norm *from)
{
    const int64_t n = from->rows * from->channels;
    struct norm norm = norm_of(from->rows, from->channels, 0);
    norm.relu = from->relu;
    norm.has_residual = from->has_residual;
    norm.accumulate = from->accumulate;
    memcpy(norm.x, from->x, (size_t)n * sizeof(float));
    memcpy(norm.residual, from->residual, (size_t)n * sizeof(float));
    memcpy(norm.y, from->y, (size_t)n * sizeof(float));
    memcpy(norm.dy, from->dy, (size_t)n * sizeof(float));
    memcpy(norm.dx, from->dx, (size_t)n * sizeof(float));
    memcpy(norm.dresidual, from->dresidual, (size_t)n * sizeof(float));
    memcpy(norm.gamma, from->gamma, (size_t)from->channels * sizeof(float));
    memcpy(norm.beta, from->beta, (size_t)from->channels * sizeof(float));
    memcpy(norm.dgamma, from->dgamma, (size_t)from->channels * sizeof(float));
    memcpy(norm.dbeta, from->dbeta, (size_t)from->channels * sizeof(float));
    return norm;
}

static void norm_free(struct norm *norm)
{
    const int64_t n = norm->rows * norm->channels;
    float *of_rows[] = {norm->x, norm->residual, norm->y, norm->dy, norm->dx, norm->dresidual};
    float *of_channels[] = {norm->gamma, norm->beta,      norm->dgamma,
                            norm->dbeta, norm->stat_mean, norm->stat_var};
    for (int i = 0; i < 6; i++) {
        array_free(of_rows[i], n);
        array_free(of_channels[i], norm->channels);
    }
    array_free(norm->saved, 2 * norm->channels);
    free(norm->sums);
    free(norm->backward_sums);
}

static enum ddp_activation activation_of(const struct norm *norm)
{
    return norm->relu ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE;
}

/* With a guard behind it, and full of NaN. */
static char *scratch_of(size_t bytes)
{
    const size_t room = (bytes + 127) / 64 * 64;
    char *scratch = aligned_alloc(64, room);
    ck_assert_ptr_nonnull(scratch);
    memset(scratch, 0xff, room);
    scratch[bytes] = 77;
    return scratch;
}

static void run_sums(struct norm *norm, ddp_pool *pool, bool reference)
{
    const size_t bytes = ddp_batch_norm_scratch_bytes(norm->rows, norm->channels);
    char *scratch = scratch_of(bytes);
    struct ddp_batch_norm_sums args = {.rows = norm->rows,
                                       .channels = norm->channels,
                                       .x = norm->x,
                                       .sums = norm->sums,
                                       .scratch = scratch};
    ck_assert_int_eq((reference ? ddp_batch_norm_sums_reference : ddp_batch_norm_sums)(&args, pool),
                     DDP_OK);
    ck_assert_int_eq(scratch[bytes], 77);
    free(scratch);
}

static void run_normalise(struct norm *norm, double count, ddp_pool *pool, bool reference)
{
    struct ddp_batch_norm_forward args = {
        .rows = norm->rows,
        .channels = norm->channels,
        .activation = activation_of(norm),
        .epsilon = 1e-5f,
        .x = norm->x,
        .gamma = norm->gamma,
        .beta = norm->beta,
        .residual = norm->has_residual ? norm->residual : NULL,
        .sums = norm->sums,
        .count = count,
        .y = norm->y,
        .saved = norm->saved,
        .stat_mean = norm->stat_mean,
        .stat_var = norm->stat_var,
        .accumulate_stat = norm->accumulate_stat,
    };
    ck_assert_int_eq(
        (reference ? ddp_batch_norm_forward_reference : ddp_batch_norm_forward)(&args, pool),
        DDP_OK);
}

static void run_forward(struct norm *norm, ddp_pool *pool, bool reference)
{
    run_sums(norm, pool, reference);
    run_normalise(norm, (double)norm->rows, pool, reference);
}

static void run_backward_sums(struct norm *norm, ddp_pool *pool, bool reference)
{
    const size_t bytes = ddp_batch_norm_scratch_bytes(norm->rows, norm->channels);
    char *scratch = scratch_of(bytes);
    struct ddp_batch_norm_backward_sums args = {
        .rows = norm->rows,
        .channels = norm->channels,
        .activation = activation_of(norm),
        .has_residual = norm->has_residual,
        .x = norm->x,
        .y = norm->relu && norm->has_residual ? norm->y : NULL,
        .dy = norm->dy,
        .gamma = norm->gamma,
        .beta = norm->beta,
        .saved = norm->saved,
        .sums = norm->backward_sums,
        .scratch = scratch,
    };
    ck_assert_int_eq((reference ? ddp_batch_norm_backward_sums_reference
                                : ddp_batch_norm_backward_sums)(&args, pool),
                     DDP_OK);
    ck_assert_int_eq(scratch[bytes], 77);
    free(scratch);
}

static void run_apply(struct norm *norm, const double *sums, double count, ddp_pool *pool,
                      bool reference)
{
    struct ddp_batch_norm_backward args = {
        .rows = norm->rows,
        .channels = norm->channels,
        .activation = activation_of(norm),
        .x = norm->x,
        .y = norm->relu && norm->has_residual ? norm->y : NULL,
        .dy = norm->dy,
        .gamma = norm->gamma,
        .beta = norm->beta,
        .saved = norm->saved,
        .sums = sums,
        .count = count,
        .local_sums = norm->backward_sums,
        .dx = norm->dx,
        .dresidual = norm->has_residual ? norm->dresidual : NULL,
        .has_residual = norm->has_residual,
        .dgamma = norm->dgamma,
        .dbeta = norm->dbeta,
        .accumulate_dx = norm->accumulate,
        .accumulate_dresidual = norm->accumulate,
        .accumulate = norm->accumulate,
    };
    ck_assert_int_eq(
        (reference ? ddp_batch_norm_backward_reference : ddp_batch_norm_backward)(&args, pool),
        DDP_OK);
}

static void run_backward(struct norm *norm, ddp_pool *pool, bool reference)
{
    run_backward_sums(norm, pool, reference);
    run_apply(norm, norm->backward_sums, (double)norm->rows, pool, reference);
}

static bool norms_same(const struct norm *a, const struct norm *b)
{
    const int64_t n = a->rows * a->channels, c = a->channels;
    return same_bits(a->y, b->y, n) && same_bits(a->dx, b->dx, n) &&
           same_bits(a->dresidual, b->dresidual, n) && same_bits(a->dgamma, b->dgamma, c) &&
           same_bits(a->dbeta, b->dbeta, c) && same_bits(a->saved, b->saved, 2 * c) &&
           same_bits(a->stat_mean, b->stat_mean, c) && same_bits(a->stat_var, b->stat_var, c);
}

static void spoil(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = NAN;
}

/* rows, channels */
static const int64_t shapes[][2] = {
    {2, 1},    {3, 5},     {7, 16},    {64, 16}, {65, 16},   {4099, 16}, {1000, 32},
    {129, 64}, {20000, 8}, {300, 100}, {64, 3},  {63, 128},  {17, 79},   {70000, 2},
    {513, 66}, {12, 512},  {21, 1100}, {255, 4}, {40000, 3}, {8, 1},     {2, 64},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* Of two shards, the second added to the first. */
START_TEST(test_statistics_add)
{
    random_seed(3);
    struct norm once = norm_of(7, 16, 0), twice = norm_copy(&once);
    run_forward(&once, pools[0], false);
    run_forward(&twice, pools[0], false);
    twice.accumulate_stat = true;
    run_forward(&twice, pools[0], false);
    for (int64_t c = 0; c < once.channels; c++) {
        ck_assert_float_eq(twice.stat_mean[c], 2 * once.stat_mean[c]);
        ck_assert_float_eq(twice.stat_var[c], 2 * once.stat_var[c]);
    }
    norm_free(&once);
    norm_free(&twice);
}
END_TEST

START_TEST(test_shapes)
{
    random_seed((uint64_t)_i);
    const int64_t rows = shapes[_i][0], channels = shapes[_i][1], n = rows * channels;
    for (int flags = 0; flags < 8; flags++) {
        struct norm expected = norm_of(rows, channels, flags);
        struct norm fresh = norm_copy(&expected), first = norm_copy(&expected);
        if (!first.accumulate) {
            spoil(first.dx, n);
            spoil(first.dresidual, n);
            spoil(first.dgamma, channels);
            spoil(first.dbeta, channels);
        }
        spoil(first.y, n);
        run_forward(&expected, NULL, true);
        run_forward(&first, pools[0], false);
        ck_assert(largest_difference(first.saved, expected.saved, channels) <= 1e-6);
        for (int64_t c = 0; c < channels; c++) {
            const float rstd = expected.saved[channels + c];
            ck_assert(fabsf(first.saved[channels + c] - rstd) <= 1e-5f * rstd);
            ck_assert(fabsf(first.stat_var[c] - expected.stat_var[c]) <= 1e-6f);
        }
        ck_assert(largest_difference(first.stat_mean, expected.stat_mean, channels) <= 1e-6);
        ck_assert_msg(largest_difference(first.y, expected.y, n) <= 3e-5, "y differs by %g",
                      largest_difference(first.y, expected.y, n));
        /* from the same output: a sign that rounding decides would differ else */
        memcpy(expected.y, first.y, (size_t)n * sizeof(float));
        memcpy(expected.saved, first.saved, (size_t)channels * 2 * sizeof(float));
        run_backward(&expected, NULL, true);
        run_backward(&first, pools[0], false);
        const double most = largest_size(first.saved + channels, channels);
        ck_assert_msg(largest_difference(first.dx, expected.dx, n) <= 2e-5 * (1 + most),
                      "dx differs by %g", largest_difference(first.dx, expected.dx, n));
        ck_assert(same_bits(first.dresidual, expected.dresidual, n) || !first.has_residual);
        ck_assert(largest_difference(first.dbeta, expected.dbeta, channels) <=
                  product_tolerance(256) * (1 + sqrt((double)rows) / 16));
        ck_assert(largest_difference(first.dgamma, expected.dgamma, channels) <=
                  product_tolerance(256) * (1 + sqrt((double)rows) / 16) * 4);
        for (int pool = 1; pool < POOLS; pool++) {
            struct norm other = norm_copy(&fresh);
            run_forward(&other, pools[pool], false);
            run_backward(&other, pools[pool], false);
            if (!first.has_residual)
                memcpy(other.dresidual, first.dresidual, (size_t)n * sizeof(float));
            ck_assert_msg(norms_same(&first, &other), "other bits on %d threads",
                          pool_threads[pool]);
            norm_free(&other);
        }
        norm_free(&first);
        norm_free(&fresh);
        norm_free(&expected);
    }
}
END_TEST

static double loss_of(void *arg)
{
    struct norm *norm = arg;
    run_sums(norm, NULL, true);
    run_normalise(norm, (double)norm->rows, NULL, true);
    double loss = 0;
    for (int64_t i = 0; i < norm->rows * norm->channels; i++)
        loss += (double)norm->dy[i] * (double)norm->y[i];
    return loss;
}

START_TEST(test_gradient)
{
    random_seed((uint64_t)_i);
    struct norm norm = norm_of(12, 3, _i);
    if (norm.relu) /* far from the kink, on either side */
        for (int64_t c = 0; c < 3; c++)
            norm.beta[c] = c == 1 ? -9 : 9;
    run_forward(&norm, NULL, false);
    run_backward(&norm, NULL, false);
    check_gradient("x", norm.x, norm.dx, 36, loss_of, &norm, 2e-3);
    check_gradient("gamma", norm.gamma, norm.dgamma, 3, loss_of, &norm, 2e-3);
    check_gradient("beta", norm.beta, norm.dbeta, 3, loss_of, &norm, 2e-3);
    if (norm.has_residual)
        check_gradient("residual", norm.residual, norm.dresidual, 36, loss_of, &norm, 2e-3);
    norm_free(&norm);
}
END_TEST

/* Two halves of the rows, whose sums are added between the halves of each pass, are as the whole.
 */
START_TEST(test_synchronised)
{
    random_seed(3);
    const int64_t rows = 600, half = 250, channels = 24, n = rows * channels;
    struct norm whole = norm_of(rows, channels, 3), parts[2];
    run_forward(&whole, NULL, false);
    run_backward(&whole, NULL, false);
    const int64_t begin[3] = {0, half, rows};
    for (int i = 0; i < 2; i++) {
        const int64_t at = begin[i] * channels, count = (begin[i + 1] - begin[i]) * channels;
        parts[i] = norm_of(begin[i + 1] - begin[i], channels, 3);
        memcpy(parts[i].x, whole.x + at, (size_t)count * sizeof(float));
        memcpy(parts[i].residual, whole.residual + at, (size_t)count * sizeof(float));
        memcpy(parts[i].dy, whole.dy + at, (size_t)count * sizeof(float));
        memcpy(parts[i].gamma, whole.gamma, (size_t)channels * sizeof(float));
        memcpy(parts[i].beta, whole.beta, (size_t)channels * sizeof(float));
        run_sums(&parts[i], NULL, false);
    }
    for (int64_t c = 0; c < 2 * channels; c++)
        parts[0].sums[c] = parts[1].sums[c] = parts[0].sums[c] + parts[1].sums[c];
    double sums[48];
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < 2; i++) {
        run_normalise(&parts[i], (double)rows, NULL, false);
        run_backward_sums(&parts[i], NULL, false);
        for (int64_t c = 0; c < 2 * channels; c++)
            sums[c] += parts[i].backward_sums[c];
    }
    for (int i = 0; i < 2; i++) {
        const int64_t at = begin[i] * channels, count = (begin[i + 1] - begin[i]) * channels;
        run_apply(&parts[i], sums, (double)rows, NULL, false);
        ck_assert(largest_difference(parts[i].y, whole.y + at, count) <= 1e-5);
        ck_assert(largest_difference(parts[i].dx, whole.dx + at, count) <= 1e-5);
        ck_assert(largest_difference(parts[i].stat_var, whole.stat_var, channels) <= 1e-6);
    }
    for (int64_t c = 0; c < channels; c++)
        ck_assert(fabsf(parts[0].dgamma[c] + parts[1].dgamma[c] - whole.dgamma[c]) <= 1e-4f);
    ck_assert(n > 0);
    norm_free(&parts[0]);
    norm_free(&parts[1]);
    norm_free(&whole);
}
END_TEST

/* The variance of numbers about 1000 with a spread of 0.01 is lost in float sums of squares. */
START_TEST(test_large_mean)
{
    random_seed(4);
    const int64_t rows = 5000, channels = 16, n = rows * channels;
    struct norm norm = norm_of(rows, channels, 0);
    for (int64_t i = 0; i < n; i++)
        norm.x[i] = 1000 + 0.02f * norm.x[i];
    run_sums(&norm, NULL, false);
    run_normalise(&norm, (double)rows, NULL, false);
    for (int64_t c = 0; c < channels; c++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < rows; i++)
            mean += (double)norm.x[i * channels + c] / (double)rows;
        for (int64_t i = 0; i < rows; i++)
            square += ((double)norm.x[i * channels + c] - mean) *
                      ((double)norm.x[i * channels + c] - mean);
        const double variance = square / (double)(rows - 1);
        ck_assert(fabs((double)norm.stat_var[c] - variance) <= 1e-4 * variance);
    }
    norm_free(&norm);
}
END_TEST

START_TEST(test_evaluation)
{
    random_seed(5);
    for (int flags = 0; flags < 4; flags++) {
        struct norm norm = norm_of(37, 20, flags);
        for (int64_t c = 0; c < 20; c++)
            norm.stat_var[c] = 0.5f + fabsf(norm.stat_var[c]);
        struct ddp_batch_norm_forward args = {
            .rows = 37,
            .channels = 20,
            .activation = activation_of(&norm),
            .epsilon = 1e-3f,
            .x = norm.x,
            .gamma = norm.gamma,
            .beta = norm.beta,
            .residual = norm.has_residual ? norm.residual : NULL,
            .running_mean = norm.stat_mean,
            .running_var = norm.stat_var,
            .y = norm.y,
        };
        ck_assert_int_eq(ddp_batch_norm_forward(&args, pools[1]), DDP_OK);
        args.y = norm.dy;
        ck_assert_int_eq(ddp_batch_norm_forward_reference(&args, NULL), DDP_OK);
        ck_assert(largest_difference(norm.y, norm.dy, 37 * 20) <= 1e-5);
        args.y = norm.x; /* in place */
        ck_assert_int_eq(ddp_batch_norm_forward(&args, NULL), DDP_OK);
        ck_assert(same_bits(norm.x, norm.y, 37 * 20));
        norm_free(&norm);
    }
}
END_TEST

START_TEST(test_ema)
{
    random_seed(6);
    static const int64_t counts[] = {0, 1, 15, 16, 17, 40000};
    for (int i = 0; i < 6; i++) {
        float *sum = array_of(counts[i]), *running = array_of(counts[i]);
        float *expected = array_copy(running, counts[i]), *other = array_copy(running, counts[i]);
        struct ddp_ema args = {counts[i], 0.1f, 0.25f, NULL, sum, expected};
        ck_assert_int_eq(ddp_ema_reference(&args, NULL), DDP_OK);
        args.running = running;
        ck_assert_int_eq(ddp_ema(&args, NULL), DDP_OK);
        args.running = other;
        ck_assert_int_eq(ddp_ema(&args, pools[2]), DDP_OK);
        ck_assert(same_bits(running, expected, counts[i]));
        ck_assert(same_bits(running, other, counts[i]));
        array_free(sum, counts[i]);
        array_free(running, counts[i]);
        array_free(expected, counts[i]);
        array_free(other, counts[i]);
    }
    float running = 2;
    const float sum = 8;
    struct ddp_ema args = {1, 0.25f, 0.5f, NULL, &sum, &running};
    ck_assert_int_eq(ddp_ema(&args, NULL), DDP_OK);
    ck_assert(running == 0.75f * 2 + 0.25f * 4);
    args.sum = NULL;
    ck_assert_int_eq(ddp_ema(&args, NULL), DDP_ERR_INVALID);
    args.count = -1;
    ck_assert_int_eq(ddp_ema_reference(&args, NULL), DDP_ERR_INVALID);
}
END_TEST

START_TEST(test_arguments)
{
    float v[64] = {0};
    double d[64] = {0};
    const struct ddp_batch_norm_forward good = {.rows = 4,
                                                .channels = 2,
                                                .x = v,
                                                .gamma = v,
                                                .beta = v,
                                                .sums = d,
                                                .count = 4,
                                                .y = v,
                                                .saved = v};
    struct ddp_batch_norm_forward bad[9];
    for (int i = 0; i < 9; i++)
        bad[i] = good;
    bad[0].rows = -1;
    bad[1].channels = 0;
    bad[2].activation = (enum ddp_activation)99;
    bad[3].count = 1;
    bad[4].x = NULL;
    bad[5].gamma = NULL;
    bad[6].saved = NULL;
    bad[7].sums = NULL; /* evaluation without running statistics */
    bad[8].rows = INT64_MAX;
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(ddp_batch_norm_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_batch_norm_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    struct ddp_batch_norm_sums sums = {.rows = 4, .channels = 2, .x = v, .sums = d};
    ck_assert_int_eq(ddp_batch_norm_sums(&sums, NULL), DDP_ERR_INVALID); /* no scratch */
    sums.x = NULL;
    ck_assert_int_eq(ddp_batch_norm_sums_reference(&sums, NULL), DDP_ERR_INVALID);
    struct ddp_batch_norm_backward_sums backward_sums = {.rows = 4,
                                                         .channels = 2,
                                                         .x = v,
                                                         .dy = v,
                                                         .gamma = v,
                                                         .beta = v,
                                                         .saved = v,
                                                         .sums = d,
                                                         .scratch = d};
    ck_assert_int_eq(ddp_batch_norm_backward_sums(&backward_sums, NULL), DDP_OK);
    backward_sums.has_residual = true;
    backward_sums.activation = DDP_ACTIVATION_RELU; /* wants y now */
    ck_assert_int_eq(ddp_batch_norm_backward_sums(&backward_sums, NULL), DDP_ERR_INVALID);
    struct ddp_batch_norm_backward backward = {.rows = 4,
                                               .channels = 2,
                                               .x = v,
                                               .dy = v,
                                               .gamma = v,
                                               .beta = v,
                                               .saved = v,
                                               .sums = d,
                                               .count = 4,
                                               .dgamma = v};
    ck_assert_int_eq(ddp_batch_norm_backward(&backward, NULL), DDP_ERR_INVALID);
    backward.local_sums = d;
    backward.count = 0;
    ck_assert_int_eq(ddp_batch_norm_backward_reference(&backward, NULL), DDP_ERR_INVALID);
}
END_TEST

static void run_golden(struct golden_case *c)
{
    golden_seed(c);
    const int64_t rows = golden_number(c), channels = golden_number(c), n = rows * channels;
    struct norm norm = norm_of(rows, channels, 0);
    norm.relu = golden_number(c);
    norm.has_residual = golden_number(c);
    golden_draw(c, norm.x, n);
    golden_draw(c, norm.residual, n);
    golden_draw(c, norm.gamma, channels);
    golden_draw(c, norm.beta, channels);
    golden_draw(c, norm.dy, n);
    run_forward(&norm, NULL, false);
    run_backward(&norm, NULL, false);
    golden_compare(c, "y", norm.y, n, 2e-6);
    golden_compare(c, "dx", norm.dx, n, 1e-5);
    golden_compare(c, "dgamma", norm.dgamma, channels, 1e-5);
    golden_compare(c, "dbeta", norm.dbeta, channels, 5e-6);
    if (norm.has_residual)
        golden_compare(c, "dresidual", norm.dresidual, n, 0);
    float mean[64], var[64];
    ck_assert_int_lt(channels, 64);
    for (int64_t i = 0; i < channels; i++) {
        mean[i] = 0;
        var[i] = 1;
    }
    struct ddp_ema ema = {channels, 0.1f, 1, NULL, norm.stat_mean, mean};
    ck_assert_int_eq(ddp_ema(&ema, NULL), DDP_OK);
    ema.sum = norm.stat_var;
    ema.running = var;
    ck_assert_int_eq(ddp_ema(&ema, NULL), DDP_OK);
    golden_compare(c, "running mean", mean, channels, 1e-7);
    golden_compare(c, "running variance", var, channels, 1.5e-7);
    norm_free(&norm);
}

START_TEST(test_pytorch)
{
    golden_run("kernels/golden/images.txt", "batch_norm", run_golden);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("batch_norm");
    TCase *tc = kernel_case(suite, "batch_norm");
    tcase_add_loop_test(tc, test_shapes, 0, SHAPES);
    tcase_add_loop_test(tc, test_gradient, 0, 4);
    tcase_add_test(tc, test_statistics_add);
    tcase_add_test(tc, test_synchronised);
    tcase_add_test(tc, test_large_mean);
    tcase_add_test(tc, test_evaluation);
    tcase_add_test(tc, test_ema);
    tcase_add_test(tc, test_pytorch);
    tcase_add_test(tc, test_arguments);
    return suite;
}
