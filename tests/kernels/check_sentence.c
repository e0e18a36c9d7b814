/* SPDX-License-Identifier: MIT
 *
 * Encoders of sentences: attention that sees a whole text, against the reference in double; the
 * mean of tokens, tanh and the contrastive loss, against formulas, and all gradients. */
#include "config.h"

#include "kernels/attention/attention.h"
#include "kernels/sentence.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

#define MOST 400 /* tokens of a row */

/* --- attention -------------------------------------------------------------------------------- */

static const struct {
    int64_t length, heads, size;
    int32_t lengths[2];
} shapes[] = {
    {1, 1, 4, {1, 1}},       {9, 2, 8, {1, 9}},        {64, 2, 16, {63, 64}},
    {65, 1, 24, {65, 2}},    {130, 2, 8, {64, 65}},    {300, 1, 32, {257, 3}},
    {300, 2, 8, {256, 300}}, {MOST, 1, 8, {129, 321}},
};

enum { Q, K, V, Y, LSE, DY, DQ, DK, DV, ARRAYS };

struct run {
    struct ddp_attention_shape shape;
    int64_t count; /* of an array */
    int32_t there; /* elements of the two texts */
    int32_t bounds[3];
    float *arrays[ARRAYS];
};

static void begin(struct run *run, int i)
{
    const int64_t stride = shapes[i].heads * shapes[i].size;
    run->bounds[0] = 0;
    run->bounds[1] = shapes[i].lengths[0];
    run->bounds[2] = run->bounds[1] + shapes[i].lengths[1];
    run->shape = (struct ddp_attention_shape){.batch = 2,
                                              .length = shapes[i].length,
                                              .heads = shapes[i].heads,
                                              .kv_heads = shapes[i].heads,
                                              .head_size = shapes[i].size,
                                              .q_stride = stride,
                                              .k_stride = stride,
                                              .v_stride = stride,
                                              .bounds = run->bounds,
                                              .dtype = DDP_F32};
    run->count = 2 * shapes[i].length * stride;
    run->there = run->bounds[2] * (int32_t)stride;
    random_seed((uint64_t)i);
    for (int a = 0; a < ARRAYS; a++)
        run->arrays[a] = array_of(run->count);
}

static void both(struct run *run, bool reference, void *pool)
{
    float *const *a = run->arrays;
    const struct ddp_attention_forward forward = {
        .shape = run->shape, .q = a[Q], .k = a[K], .v = a[V], .y = a[Y], .lse = a[LSE]};
    const struct ddp_attention_backward backward = {.shape = run->shape,
                                                    .q = a[Q],
                                                    .k = a[K],
                                                    .v = a[V],
                                                    .y = a[Y],
                                                    .lse = a[LSE],
                                                    .dy = a[DY],
                                                    .dq = a[DQ],
                                                    .dk = a[DK],
                                                    .dv = a[DV]};
    ck_assert_int_eq(reference ? ddp_attention_forward_reference(&forward, NULL)
                               : ddp_attention_forward(&forward, pool),
                     DDP_OK);
    ck_assert_int_eq(reference ? ddp_attention_backward_reference(&backward, NULL)
                               : ddp_attention_backward(&backward, pool),
                     DDP_OK);
}

/* What lies behind the last text, whatever it is, changes nothing and is left alone. */
START_TEST(test_attention)
{
    struct run wanted, run;
    begin(&wanted, _i);
    both(&wanted, true, NULL);
    for (int pool = 0; pool < POOLS; pool++) {
        begin(&run, _i);
        for (int a = 0; a < ARRAYS; a++)
            for (int64_t at = run.there; a != LSE && at < run.count; at++)
                run.arrays[a][at] = 1e6f;
        both(&run, false, pools[pool]);
        ck_assert(largest_difference(run.arrays[Y], wanted.arrays[Y], run.there) < 2e-6);
        for (int a = DQ; a <= DV; a++)
            ck_assert(largest_difference(run.arrays[a], wanted.arrays[a], run.there) < 1e-5);
        for (int a = 0; a < ARRAYS; a++)
            for (int64_t at = run.there; a != LSE && at < run.count; at++)
                ck_assert(run.arrays[a][at] == 1e6f);
        for (int a = 0; a < ARRAYS; a++)
            array_free(run.arrays[a], run.count);
    }
    for (int a = 0; a < ARRAYS; a++)
        array_free(wanted.arrays[a], wanted.count);
}
END_TEST

START_TEST(test_attention_bounds)
{
    static const int32_t bad[][3] = {{0, 0, 2}, {0, 3, 4}, {0, 2, 1}, {1, 2, 3}};
    float x[24] = {0}, y[24], lse[4];
    struct ddp_attention_forward args = {
        .shape = ddp_attention_packed(2, 2, 1, 2, DDP_F32), .q = x, .k = x, .v = x, .y = y};
    args.lse = lse;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        args.shape.bounds = bad[i];
        ck_assert_int_eq(ddp_attention_forward(&args, NULL), DDP_ERR_INVALID);
    }
    args.shape.bounds = (const int32_t[]){0, 1, 3};
    ck_assert_int_eq(ddp_attention_forward(&args, NULL), DDP_OK);
}
END_TEST

/* --- mean of tokens, tanh --------------------------------------------------------------------- */

START_TEST(test_mean)
{
    enum { B = 3, N = 9, C = 17 };
    const int32_t bounds[B + 1] = {0, 1, 4, N};
    float x[N * C], y[B * C], dx[N * C], dy[B * C];
    random_seed(3);
    for (int i = 0; i < N * C; i++)
        x[i] = random_number();
    for (int i = 0; i < B * C; i++)
        dy[i] = random_number();
    struct ddp_token_mean_forward forward = {B, C, false, DDP_F32, bounds, x, y};
    struct ddp_token_mean_backward backward = {B, C, false, DDP_F32, bounds, dy, dx, false};
    for (int first = 0; first < 2; first++) {
        forward.first = backward.first = first;
        ck_assert_int_eq(ddp_token_mean_forward(&forward, NULL), DDP_OK);
        for (int round = 0; round < 2; round++) {
            backward.accumulate = round;
            ck_assert_int_eq(ddp_token_mean_backward(&backward, NULL), DDP_OK);
        }
        for (int b = 0; b < B; b++)
            for (int c = 0; c < C; c++) {
                const int there = (int)(bounds[b + 1] - bounds[b]), length = first ? 1 : there;
                double sum = 0;
                for (int t = 0; t < length; t++)
                    sum += (double)x[(bounds[b] + t) * C + c];
                ck_assert_float_eq_tol(y[b * C + c], (float)(sum / length), 1e-6f);
                for (int t = 0; t < there; t++)
                    ck_assert_float_eq_tol(dx[(bounds[b] + t) * C + c],
                                           t < length ? 2 * dy[b * C + c] / (float)length : 0,
                                           1e-6f);
            }
    }
    forward.bounds = (const int32_t[]){0, 2, 1, 2};
    ck_assert_int_eq(ddp_token_mean_forward(&forward, NULL), DDP_ERR_INVALID);
}
END_TEST

START_TEST(test_tanh)
{
    const float x[] = {0, 1e-9f, -1e-4f, 0.3f, -1.5f, 4, -20, 100, -INFINITY};
    float y[9], dx[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const float dy[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    ck_assert_int_eq(ddp_tanh_forward(&(struct ddp_tanh_forward){.count = 9, .x = x, .y = y}, NULL),
                     DDP_OK);
    ck_assert_int_eq(
        ddp_tanh_backward(
            &(struct ddp_tanh_backward){.count = 9, .y = y, .dy = dy, .dx = dx, .accumulate = true},
            NULL),
        DDP_OK);
    for (int i = 0; i < 9; i++) {
        const double wanted = tanh((double)x[i]);
        ck_assert_float_eq_tol(y[i], (float)wanted, 1.3e-7f * fabsf((float)wanted) + 1e-30f);
        ck_assert_float_eq_tol(dx[i], (float)(1 + (double)dy[i] * (1 - wanted * wanted)), 1e-5f);
    }
    float nan = NAN;
    ck_assert_int_eq(
        ddp_tanh_forward(&(struct ddp_tanh_forward){.count = 1, .x = &nan, .y = y}, NULL), DDP_OK);
    ck_assert(isnan(y[0]));
}
END_TEST

/* --- the contrastive loss --------------------------------------------------------------------- */

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static double contrastive_formula(const struct ddp_contrastive *args)
{
    const float *x = args->x;
    const int64_t b = args->samples, p = args->texts, c = args->features;
    double loss = 0;
    for (int64_t i = 0; i < b; i++) {
        double sum = 0;
        for (int64_t j = 0; j < b; j++)
            for (int64_t k = 1; k < p; k++)
                sum += exp((double)args->scale * cosine(x + i * p * c, x + (j * p + k) * c, c));
        loss += log(sum) - (double)args->scale * cosine(x + i * p * c, x + (i * p + 1) * c, c);
    }
    return loss / (double)b;
}

static double contrastive_loss(void *arg)
{
    struct ddp_contrastive *args = arg;
    ck_assert_int_eq(ddp_contrastive(args, NULL), DDP_OK);
    return (double)*args->loss;
}

START_TEST(test_contrastive)
{
    static const int64_t sizes[][3] = {{1, 2, 3}, {1, 3, 5}, {4, 2, 7}, {5, 3, 16}, {33, 3, 40}};
    const int64_t b = sizes[_i][0], p = sizes[_i][1], c = sizes[_i][2], n = b * p * c;
    float *x = array_of(n), *dx = array_of(n), *first = array_of(n), loss = 0;
    float *scratch = array_of(ddp_contrastive_scratch(b, p, c));
    struct ddp_contrastive args = {.samples = b,
                                   .texts = p,
                                   .features = c,
                                   .scale = 5,
                                   .x = x,
                                   .loss = &loss,
                                   .dx = first,
                                   .scratch = scratch};
    ck_assert_int_eq(ddp_contrastive(&args, NULL), DDP_OK);
    ck_assert_float_eq_tol(loss, (float)contrastive_formula(&args), 3e-6f);
    args.dx = NULL;
    if (n <= 240)
        check_gradient("x", x, first, n, contrastive_loss, &args, 2e-3);
    for (int pool = 0; pool < POOLS; pool++) {
        args.dx = dx;
        ck_assert_int_eq(ddp_contrastive(&args, pools[pool]), DDP_OK);
        ck_assert_msg(same_bits(dx, first, n), "other bits on %d threads", pool_threads[pool]);
    }
    args.dloss = (const float[]){4};
    ck_assert_int_eq(ddp_contrastive(&args, NULL), DDP_OK);
    for (int64_t i = 0; i < n; i++)
        ck_assert_float_eq_tol(dx[i], 4 * first[i], 1e-5f);
    args.dloss = NULL;
    args.dx = x; /* in place */
    ck_assert_int_eq(ddp_contrastive(&args, NULL), DDP_OK);
    ck_assert(same_bits(x, first, n));
    args.texts = 1;
    ck_assert_int_eq(ddp_contrastive(&args, NULL), DDP_ERR_INVALID);
    array_free(x, n);
    array_free(dx, n);
    array_free(first, n);
    array_free(scratch, ddp_contrastive_scratch(b, p, c));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sentence");
    TCase *tcase = kernel_case(suite, "sentence");
    tcase_add_loop_test(tcase, test_attention, 0, (int)(sizeof shapes / sizeof shapes[0]));
    tcase_add_test(tcase, test_attention_bounds);
    tcase_add_test(tcase, test_mean);
    tcase_add_test(tcase, test_tanh);
    tcase_add_loop_test(tcase, test_contrastive, 0, 5);
    return suite;
}
