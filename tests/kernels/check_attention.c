/* SPDX-License-Identifier: MIT
 *
 * Causal attention: against the reference in double, gradients by differences, the future has no
 * say, bits over thread counts, large scores; with a cache, against the attention without one. */
#include "config.h"

#include "kernels/attention/attention.h"
#include "kernels/attention/cached.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

struct layer {
    int64_t batch, length, heads, size, count; /* count: B T H D */
    bool accumulate;
    float *qkv, *y, *lse, *dy, *dqkv;
};

/* B, T, H, D */
static const int64_t shapes[][4] = {
    {0, 4, 2, 8},    {2, 0, 2, 8},   {2, 3, 0, 8},     {2, 3, 2, 0},   {1, 1, 1, 1},
    {3, 1, 2, 5},    {2, 2, 3, 8},   {1, 15, 2, 16},   {2, 16, 1, 17}, {1, 63, 2, 64},
    {2, 64, 2, 64},  {1, 65, 3, 31}, {1, 127, 1, 128}, {1, 128, 2, 9}, {1, 255, 1, 33},
    {1, 256, 2, 16}, {1, 257, 1, 8}, {1, 321, 2, 24},  {1, 600, 1, 3}, {5, 33, 3, 12},
};

static struct layer layer_of(const int64_t *shape, bool accumulate)
{
    struct layer layer = {.batch = shape[0],
                          .length = shape[1],
                          .heads = shape[2],
                          .size = shape[3],
                          .accumulate = accumulate};
    layer.count = shape[0] * shape[1] * shape[2] * shape[3];
    layer.qkv = array_of(3 * layer.count);
    for (int64_t i = 0; i < 3 * layer.count; i++) /* sharp enough to be no mere mean */
        layer.qkv[i] *= 2;
    layer.y = array_of(layer.count);
    layer.lse = array_of(shape[0] * shape[1] * shape[2]);
    layer.dy = array_of(layer.count);
    layer.dqkv = array_of(3 * layer.count);
    return layer;
}

static struct layer layer_copy(const struct layer *from)
{
    struct layer layer = *from;
    layer.qkv = array_copy(from->qkv, 3 * from->count);
    layer.y = array_of(from->count);
    layer.lse = array_of(from->batch * from->length * from->heads);
    layer.dy = array_copy(from->dy, from->count);
    layer.dqkv =
        from->accumulate ? array_copy(from->dqkv, 3 * from->count) : array_of(3 * from->count);
    return layer;
}

static void layer_free(struct layer *layer)
{
    array_free(layer->qkv, 3 * layer->count);
    array_free(layer->y, layer->count);
    array_free(layer->lse, layer->batch * layer->length * layer->heads);
    array_free(layer->dy, layer->count);
    array_free(layer->dqkv, 3 * layer->count);
}

static struct ddp_attention_shape shape_of(const struct layer *layer)
{
    return ddp_attention_packed(layer->batch, layer->length, layer->heads, layer->size, DDP_F32);
}

static void run_forward(const struct layer *layer, ddp_pool *pool, bool reference)
{
    const int64_t c = layer->heads * layer->size;
    const struct ddp_attention_forward args = {.shape = shape_of(layer),
                                               .q = layer->qkv,
                                               .k = layer->qkv + c,
                                               .v = layer->qkv + 2 * c,
                                               .y = layer->y,
                                               .lse = layer->lse};
    ck_assert_int_eq(
        (reference ? ddp_attention_forward_reference : ddp_attention_forward)(&args, pool), DDP_OK);
}

static void run_backward(const struct layer *layer, ddp_pool *pool, bool reference)
{
    const int64_t c = layer->heads * layer->size;
    const struct ddp_attention_backward args = {.shape = shape_of(layer),
                                                .q = layer->qkv,
                                                .k = layer->qkv + c,
                                                .v = layer->qkv + 2 * c,
                                                .y = layer->y,
                                                .lse = layer->lse,
                                                .dy = layer->dy,
                                                .dq = layer->dqkv,
                                                .dk = layer->dqkv + c,
                                                .dv = layer->dqkv + 2 * c,
                                                .accumulate_dq = layer->accumulate,
                                                .accumulate_dk = layer->accumulate,
                                                .accumulate_dv = layer->accumulate};
    ck_assert_int_eq(
        (reference ? ddp_attention_backward_reference : ddp_attention_backward)(&args, pool),
        DDP_OK);
}

START_TEST(test_shapes)
{
    random_seed((uint64_t)_i);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct layer expected = layer_of(shapes[_i], accumulate);
        struct layer first = layer_copy(&expected), before = layer_copy(&expected);
        const int64_t n = expected.count, rows = expected.batch * expected.length * expected.heads;
        run_forward(&expected, NULL, true);
        run_backward(&expected, NULL, true);
        run_forward(&first, pools[0], false);
        run_backward(&first, pools[0], false);
        ck_assert(largest_difference(first.y, expected.y, n) <= 4e-6);
        ck_assert(first.size == 0 || largest_difference(first.lse, expected.lse, rows) <= 4e-6);
        double worst = largest_difference(first.dqkv, expected.dqkv, 3 * n);
        ck_assert_msg(worst <= 2e-5, "gradients differ by %g", worst);
        for (int pool = 1; pool < POOLS; pool++) {
            struct layer other = layer_copy(&before);
            run_forward(&other, pools[pool], false);
            run_backward(&other, pools[pool], false);
            ck_assert_msg(same_bits(first.y, other.y, n) &&
                              (first.size == 0 || same_bits(first.lse, other.lse, rows)) &&
                              same_bits(first.dqkv, other.dqkv, 3 * n),
                          "other bits on %d threads", pool_threads[pool]);
            layer_free(&other);
        }
        layer_free(&first);
        layer_free(&before);
        layer_free(&expected);
    }
}
END_TEST

static double loss_of(void *arg)
{
    struct layer *layer = arg;
    run_forward(layer, NULL, false);
    double loss = 0;
    for (int64_t i = 0; i < layer->count; i++)
        loss += (double)layer->dy[i] * (double)layer->y[i];
    return loss;
}

START_TEST(test_gradient)
{
    random_seed(3);
    struct layer layer = layer_of((const int64_t[]){2, 7, 2, 5}, false);
    for (int64_t i = 0; i < 3 * layer.count; i++)
        layer.qkv[i] /= 2;
    run_forward(&layer, NULL, false);
    run_backward(&layer, NULL, false);
    check_gradient("qkv", layer.qkv, layer.dqkv, 3 * layer.count, loss_of, &layer, 3e-4);
    layer_free(&layer);
}
END_TEST

/* A token that comes later changes nothing, whatever it is, and gets nothing back. */
START_TEST(test_causal)
{
    random_seed(4);
    for (int64_t at = 1; at < 300; at += 37) {
        struct layer layer = layer_of((const int64_t[]){1, 300, 1, 8}, false);
        struct layer other = layer_copy(&layer);
        for (int64_t i = at * 24; i < 300 * 24; i++)
            other.qkv[i] = -50 * other.qkv[i];
        for (int64_t i = at * 8; i < 300 * 8; i++)
            layer.dy[i] = other.dy[i] = 0;
        run_forward(&layer, NULL, false);
        run_forward(&other, NULL, false);
        ck_assert(same_bits(layer.y, other.y, at * 8));
        run_backward(&layer, NULL, false);
        run_backward(&other, NULL, false);
        ck_assert(same_bits(layer.dqkv, other.dqkv, at * 24));
        for (int64_t i = at * 24; i < 300 * 24; i++)
            ck_assert(layer.dqkv[i] == 0 && other.dqkv[i] == 0);
        layer_free(&layer);
        layer_free(&other);
    }
}
END_TEST

/* Scores of thousands: one key takes all; the first row of several blocks of keys moves the
 * maximum. */
START_TEST(test_large_scores)
{
    random_seed(5);
    for (int direction = 0; direction < 2; direction++) {
        struct layer layer = layer_of((const int64_t[]){1, 600, 1, 4}, false);
        for (int64_t t = 0; t < 600; t++) {
            const float up = (float)(direction ? t : 600 - t);
            for (int64_t j = 0; j < 4; j++) {
                layer.qkv[t * 12 + j] = 10;
                layer.qkv[t * 12 + 4 + j] = up;
            }
        }
        struct layer expected = layer_copy(&layer);
        run_forward(&layer, NULL, false);
        run_forward(&expected, NULL, true);
        ck_assert(largest_difference(layer.y, expected.y, layer.count) <= 1e-6);
        for (int64_t t = 1; t < 600; t++) /* the largest of the keys so far */
            for (int64_t j = 0; j < 4; j++)
                ck_assert_float_eq_tol(layer.y[t * 4 + j],
                                       layer.qkv[(direction ? t : 0) * 12 + 8 + j], 1e-5f);
        run_backward(&layer, NULL, false);
        for (int64_t i = 0; i < 3 * layer.count; i++)
            ck_assert(isfinite(layer.dqkv[i]));
        layer_free(&layer);
        layer_free(&expected);
    }
}
END_TEST

/* NaN in a value reaches the rows that see it, and none of blocks before; what is overwritten may
 * be NaN. */
START_TEST(test_nan)
{
    random_seed(6);
    struct layer layer = layer_of((const int64_t[]){1, 100, 1, 4}, false);
    layer.qkv[70 * 12 + 8] = NAN;
    for (int64_t i = 0; i < layer.count; i++)
        layer.y[i] = NAN;
    run_forward(&layer, NULL, false);
    for (int64_t t = 0; t < 100; t++)
        ck_assert(t < 64 ? !isnan(layer.y[t * 4]) : t < 70 || isnan(layer.y[t * 4]));
    layer_free(&layer);
    layer = layer_of((const int64_t[]){2, 70, 2, 4}, false);
    for (int64_t i = 0; i < 3 * layer.count; i++)
        layer.dqkv[i] = NAN;
    run_forward(&layer, NULL, false);
    run_backward(&layer, NULL, false);
    for (int64_t i = 0; i < 3 * layer.count; i++)
        ck_assert(!isnan(layer.dqkv[i]));
    layer_free(&layer);
}
END_TEST

/* --- with a cache --- */

/* Positions [first, first + count) of samples [sample, sample + samples) of the layer, after those
 * before them. */
static void run_cached(const struct layer *layer, int64_t sample, int64_t samples, int64_t first,
                       int64_t count, float *cache, float *y, ddp_pool *pool, bool reference)
{
    const int64_t c = layer->heads * layer->size, capacity = layer->length + 3;
    const int64_t stride = 2 * c * capacity + 5;
    float *qkv = array_of(samples * count * 3 * c), *out = array_of(samples * count * c);
    for (int64_t b = 0; b < samples; b++)
        memcpy(qkv + b * count * 3 * c, layer->qkv + ((sample + b) * layer->length + first) * 3 * c,
               (size_t)(count * 3 * c) * sizeof *qkv);
    const struct ddp_attention_cached args = {
        .shape = ddp_attention_packed(samples, count, layer->heads, layer->size, DDP_F32),
        .past = first,
        .capacity = capacity,
        .cache_stride = stride,
        .q = qkv,
        .k = qkv + c,
        .v = qkv + 2 * c,
        .cache = cache + sample * stride,
        .y = out};
    ck_assert_int_eq(
        (reference ? ddp_attention_cached_reference : ddp_attention_cached)(&args, pool), DDP_OK);
    for (int64_t b = 0; b < samples; b++)
        memcpy(y + ((sample + b) * layer->length + first) * c, out + b * count * c,
               (size_t)(count * c) * sizeof *y);
    array_free(qkv, samples * count * 3 * c);
    array_free(out, samples * count * c);
}

/* The first `prefix` positions at once, the others one by one, alone or all samples together. */
static void run_positions(const struct layer *layer, int64_t prefix, bool alone, float *cache,
                          float *y, ddp_pool *pool, bool reference)
{
    const int64_t samples = alone ? 1 : layer->batch;
    for (int64_t b = 0; b < layer->batch; b += samples)
        for (int64_t t = 0; t < layer->length; t += t == 0 ? prefix : 1)
            run_cached(layer, b, samples, t, t == 0 ? prefix : 1, cache, y, pool, reference);
}

START_TEST(test_cached)
{
    const int64_t *s = shapes[_i];
    random_seed((uint64_t)_i);
    struct layer layer = layer_of(s, false);
    const int64_t n = layer.count, prefix = s[1] > 40 ? s[1] - 20 : s[1] > 1 ? s[1] / 2 : 1;
    const int64_t room = s[0] * (2 * s[2] * s[3] * (s[1] + 3) + 5);
    float *caches[3], *ys[3];
    for (int i = 0; i < 3; i++) {
        caches[i] = array_of(room);
        memset(caches[i], 0xff, (size_t)room * sizeof **caches); /* NaN: what is read was written */
        ys[i] = array_of(n);
    }
    run_forward(&layer, NULL, true);
    run_positions(&layer, prefix, false, caches[0], ys[0], NULL, true);
    run_positions(&layer, prefix, false, caches[1], ys[1], pools[0], false);
    run_positions(&layer, prefix, true, caches[2], ys[2], pools[POOLS - 1], false);
    ck_assert(largest_difference(ys[0], layer.y, n) <= 1e-6);
    const double worst = largest_difference(ys[1], layer.y, n);
    ck_assert_msg(worst <= 4e-6, "with a cache off by %g", worst);
    ck_assert_msg(same_bits(ys[1], ys[2], n), "other bits alone, or on other threads");
    ck_assert_msg(same_bits(caches[0], caches[1], room), "other keys and values");
    for (int i = 0; i < 3; i++) {
        array_free(caches[i], room);
        array_free(ys[i], n);
    }
    layer_free(&layer);
}
END_TEST

START_TEST(test_cached_arguments)
{
    float v[6] = {1, 2, 3, 4, 5, 6}, y[4], cache[16] = {0};
    const struct ddp_attention_cached good = {.shape = ddp_attention_packed(1, 1, 1, 2, DDP_F32),
                                              .past = 1,
                                              .capacity = 2,
                                              .cache_stride = 8,
                                              .q = v,
                                              .k = v + 2,
                                              .v = v + 4,
                                              .cache = cache,
                                              .y = y};
    struct ddp_attention_cached bad[] = {good, good, good, good, good, good, good, good, good};
    bad[0].shape.batch = -1;
    bad[1].past = -1;
    bad[2].past = 2; /* full */
    bad[3].capacity = 4;
    bad[3].shape.length = 2; /* several after others */
    bad[4].shape.batch = 2;
    bad[4].cache_stride = 7; /* of 8 elements each */
    bad[5].k = NULL;
    bad[6].cache = NULL;
    bad[7].y = NULL;
    bad[8].shape.kv_heads = 0;
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(ddp_attention_cached(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_attention_cached_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    ck_assert_int_eq(ddp_attention_cached(&good, NULL), DDP_OK);
    v[2] = NAN; /* a key: as in the attention without a cache, it is not lost */
    ck_assert_int_eq(ddp_attention_cached(&good, NULL), DDP_OK);
    ck_assert(isnan(y[0]) && isnan(y[1]));
}
END_TEST

START_TEST(test_arguments)
{
    float v[6] = {1, 2, 3, 4, 5, 6}, y[2], lse[1], d[6];
    const struct ddp_attention_forward good = {
        .shape = ddp_attention_packed(1, 1, 1, 2, DDP_F32), .q = v, .k = v + 2, .v = v + 4, .y = y};
    struct ddp_attention_forward bad[] = {good, good, good, good, good, good,
                                          good, good, good, good, good};
    bad[0].shape.batch = -1;
    bad[1].shape.length = -1;
    bad[2].shape.heads = -1;
    bad[3].shape.head_size = -1;
    bad[4].q = NULL;
    bad[5].y = NULL;
    bad[6].shape.kv_heads = 2; /* more than of queries */
    bad[7].shape.window = -1;
    bad[8].v = NULL;
    bad[9].shape.q_stride = 1;
    bad[10].shape.kv_heads = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(ddp_attention_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_attention_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
        const struct ddp_attention_backward backward = {.shape = bad[i].shape,
                                                        .q = bad[i].q,
                                                        .k = bad[i].k,
                                                        .v = bad[i].v,
                                                        .y = bad[i].y,
                                                        .lse = lse,
                                                        .dy = y,
                                                        .dq = d,
                                                        .dk = d + 2,
                                                        .dv = d + 4};
        ck_assert_int_eq(ddp_attention_backward(&backward, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_attention_backward_reference(&backward, NULL), DDP_ERR_INVALID);
    }
    ck_assert_int_eq(ddp_attention_forward(&good, NULL), DDP_OK); /* lse may be left out */
    ck_assert(y[0] == 5 && y[1] == 6);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("attention");
    TCase *tc = kernel_case(suite, "attention");
    tcase_add_loop_test(tc, test_shapes, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_causal);
    tcase_add_test(tc, test_large_scores);
    tcase_add_test(tc, test_nan);
    tcase_add_test(tc, test_arguments);
    tcase_add_loop_test(tc, test_cached, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tc, test_cached_arguments);
    return suite;
}
