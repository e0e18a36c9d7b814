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
    int64_t count;
    float *arrays[ARRAYS];
};

static void begin(struct run *run, int i, const int32_t *lengths)
{
    const int64_t stride = shapes[i].heads * shapes[i].size;
    run->shape = (struct ddp_attention_shape){.batch = 2,
                                              .length = shapes[i].length,
                                              .heads = shapes[i].heads,
                                              .kv_heads = shapes[i].heads,
                                              .head_size = shapes[i].size,
                                              .q_stride = stride,
                                              .k_stride = stride,
                                              .v_stride = stride,
                                              .lengths = lengths,
                                              .dtype = DDP_F32};
    run->count = 2 * shapes[i].length * stride;
    random_seed((uint64_t)i);
    for (int a = 0; a < ARRAYS; a++)
        run->arrays[a] = array_of(run->count);
    for (int64_t at = 0; at < run->count; at++) { /* padding is no text's: its gradients are zero */
        const int64_t row = at / stride;
        const int64_t b = row / shapes[i].length, t = row % shapes[i].length;
        run->arrays[DY][at] = t < shapes[i].lengths[b] ? random_number() : 0;
    }
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

/* What lies behind a text's tokens, whatever it is, changes nothing. */
START_TEST(test_attention)
{
    int32_t lengths[2 * MOST] = {0};
    const int64_t length = shapes[_i].length, width = shapes[_i].heads * shapes[_i].size;
    struct run wanted, run;
    for (int b = 0; b < 2; b++)
        lengths[b * length] = shapes[_i].lengths[b];
    begin(&wanted, _i, lengths);
    both(&wanted, true, NULL);
    for (int pool = 0; pool < POOLS; pool++) {
        begin(&run, _i, lengths);
        for (int b = 0; b < 2; b++)
            for (int64_t at = (b * length + shapes[_i].lengths[b]) * width;
                 at < (b + 1) * length * width; at++)
                run.arrays[K][at] = run.arrays[V][at] = 1e6f * (float)pool;
        both(&run, false, pools[pool]);
        for (int b = 0; b < 2; b++) {
            const int64_t at = b * length * width, count = shapes[_i].lengths[b] * width;
            ck_assert(largest_difference(run.arrays[Y] + at, wanted.arrays[Y] + at, count) < 2e-6);
            for (int a = DQ; a <= DV; a++)
                ck_assert(largest_difference(run.arrays[a] + at, wanted.arrays[a] + at, count) <
                          1e-5);
            for (int64_t i = at + count; i < (b + 1) * length * width; i++)
                ck_assert(run.arrays[DK][i] == 0 && run.arrays[DV][i] == 0 &&
                          run.arrays[DQ][i] == 0);
        }
        for (int a = 0; a < ARRAYS; a++)
            array_free(run.arrays[a], run.count);
    }
    for (int a = 0; a < ARRAYS; a++)
        array_free(wanted.arrays[a], wanted.count);
}
END_TEST

START_TEST(test_attention_lengths)
{
    float x[16] = {0}, y[16], lse[4];
    struct ddp_attention_forward args = {
        .shape = ddp_attention_packed(1, 2, 1, 2, DDP_F32), .q = x, .k = x, .v = x, .y = y};
    args.lse = lse;
    args.shape.lengths = (const int32_t[]){3, 0};
    ck_assert_int_eq(ddp_attention_forward(&args, NULL), DDP_ERR_INVALID);
    args.shape.lengths = (const int32_t[]){-1, 2};
    ck_assert_int_eq(ddp_attention_forward(&args, NULL), DDP_ERR_INVALID);
    args.shape.lengths = (const int32_t[]){0, 2}; /* as 1 */
    ck_assert_int_eq(ddp_attention_forward(&args, NULL), DDP_OK);
    args.shape.lengths = (const int32_t[]){2, 0};
    ck_assert_int_eq(ddp_attention_forward(&args, NULL), DDP_OK);
}
END_TEST

/* --- mean of tokens, tanh --------------------------------------------------------------------- */

START_TEST(test_mean)
{
    enum { B = 3, T = 5, C = 17 };
    const int32_t lengths[B * T] = {[0] = 1, [T] = 3, [2 * T] = 5};
    float x[B * T * C], y[B * C], dx[B * T * C], dy[B * C];
    random_seed(3);
    for (int i = 0; i < B * T * C; i++)
        x[i] = random_number();
    for (int i = 0; i < B * C; i++)
        dy[i] = random_number();
    struct ddp_token_mean_forward forward = {B, T, C, DDP_F32, lengths, x, y};
    struct ddp_token_mean_backward backward = {B, T, C, DDP_F32, lengths, dy, dx, false};
    for (int first = 0; first < 2; first++) {
        forward.lengths = backward.lengths = first ? NULL : lengths;
        ck_assert_int_eq(ddp_token_mean_forward(&forward, NULL), DDP_OK);
        for (int round = 0; round < 2; round++) {
            backward.accumulate = round;
            ck_assert_int_eq(ddp_token_mean_backward(&backward, NULL), DDP_OK);
        }
        for (int b = 0; b < B; b++)
            for (int c = 0; c < C; c++) {
                const int length = first ? 1 : (int)lengths[b * T];
                double sum = 0;
                for (int t = 0; t < length; t++)
                    sum += (double)x[(b * T + t) * C + c];
                ck_assert_float_eq_tol(y[b * C + c], (float)(sum / length), 1e-6f);
                for (int t = 0; t < T; t++)
                    ck_assert_float_eq_tol(dx[(b * T + t) * C + c],
                                           t < length ? 2 * dy[b * C + c] / (float)length : 0,
                                           1e-6f);
            }
    }
    forward.lengths = (const int32_t[B * T]){[0] = 6, [T] = 1, [2 * T] = 1};
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
    tcase_add_test(tcase, test_attention_lengths);
    tcase_add_test(tcase, test_mean);
    tcase_add_test(tcase, test_tanh);
    tcase_add_loop_test(tcase, test_contrastive, 0, 5);
    return suite;
}
