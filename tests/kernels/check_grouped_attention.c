/* SPDX-License-Identifier: MIT
 *
 * Attention with shared heads of keys, windows and documents: against the reference in double,
 * gradients by differences, borders of documents at each place, bits over thread counts, wrong
 * documents; with a cache, against the attention without one. */
#include "config.h"

#include "kernels/attention/cached.h"
#include "tests/kernels/grouped_attention.h"
#include "tests/lib/messages.h"
#include "tests/kernels/reference/reference.h"

struct layer {
    struct ddp_attention_shape shape;
    float *at[GARRAYS], *scratch;
    bool accumulate;
};

static struct layer layer_of(const struct ddp_attention_shape *shape, bool accumulate)
{
    struct layer layer = {.shape = *shape, .accumulate = accumulate};
    for (int i = 0; i < GARRAYS; i++)
        layer.at[i] = array_of(grouped_count(shape, i));
    for (int64_t i = 0; i < grouped_count(shape, GQ); i++) /* a softmax that is not flat */
        layer.at[GQ][i] *= 3;
    layer.scratch = array_of(ddp_attention_scratch(shape));
    return layer;
}

static struct layer layer_copy(const struct layer *from)
{
    struct layer layer = *from;
    for (int i = 0; i < GARRAYS; i++)
        layer.at[i] = array_copy(from->at[i], grouped_count(&from->shape, i));
    layer.scratch = array_of(ddp_attention_scratch(&from->shape));
    return layer;
}

static void layer_free(struct layer *layer)
{
    for (int i = 0; i < GARRAYS; i++)
        array_free(layer->at[i], grouped_count(&layer->shape, i));
    array_free(layer->scratch, ddp_attention_scratch(&layer->shape));
}

static struct ddp_attention_forward forward_of(const struct layer *layer)
{
    return (struct ddp_attention_forward){.shape = layer->shape,
                                          .q = layer->at[GQ],
                                          .k = layer->at[GK],
                                          .v = layer->at[GV],
                                          .y = layer->at[GY],
                                          .lse = layer->at[GLSE]};
}

static struct ddp_attention_backward backward_of(const struct layer *layer)
{
    return (struct ddp_attention_backward){.shape = layer->shape,
                                           .q = layer->at[GQ],
                                           .k = layer->at[GK],
                                           .v = layer->at[GV],
                                           .y = layer->at[GY],
                                           .lse = layer->at[GLSE],
                                           .dy = layer->at[GDY],
                                           .dq = layer->at[GDQ],
                                           .dk = layer->at[GDK],
                                           .dv = layer->at[GDV],
                                           .accumulate_dq = layer->accumulate,
                                           .accumulate_dk = layer->accumulate,
                                           .accumulate_dv = layer->accumulate,
                                           .scratch = layer->scratch};
}

static void run(const struct layer *layer, ddp_pool *pool, bool reference)
{
    const struct ddp_attention_forward forward = forward_of(layer);
    const struct ddp_attention_backward backward = backward_of(layer);
    if (reference) {
        ck_assert_int_eq(ddp_attention_forward_reference(&forward, pool), DDP_OK);
        ck_assert_int_eq(ddp_attention_backward_reference(&backward, pool), DDP_OK);
    } else {
        ck_assert_int_eq(ddp_attention_forward(&forward, pool), DDP_OK);
        ck_assert_int_eq(ddp_attention_backward(&backward, pool), DDP_OK);
    }
}

static void expect_near(const struct layer *got, const struct layer *wanted)
{
    static const double tolerances[GARRAYS] = {
        [GY] = 4e-6, [GLSE] = 4e-6, [GDQ] = 4e-5, [GDK] = 4e-5, [GDV] = 4e-5};
    for (int i = 0; i < GARRAYS; i++) {
        const double worst =
            largest_difference(got->at[i], wanted->at[i], grouped_count(&got->shape, i));
        ck_assert_msg(worst <= tolerances[i], "array %d is off by %g", i, worst);
    }
}

START_TEST(test_grouped)
{
    random_seed((uint64_t)_i);
    int32_t *documents = grouped_documents(&grouped_cases[_i]);
    const struct ddp_attention_shape shape = grouped_shape(&grouped_cases[_i], documents);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct layer expected = layer_of(&shape, accumulate);
        struct layer first = layer_copy(&expected), before = layer_copy(&expected);
        run(&expected, NULL, true);
        run(&first, pools[0], false);
        expect_near(&first, &expected);
        for (int pool = 1; pool < POOLS; pool++) {
            struct layer other = layer_copy(&before);
            run(&other, pools[pool], false);
            for (int i = 0; i < GARRAYS; i++)
                ck_assert_msg(same_bits(first.at[i], other.at[i], grouped_count(&shape, i)),
                              "other bits of array %d on %d threads", i, pool_threads[pool]);
            layer_free(&other);
        }
        layer_free(&first);
        layer_free(&before);
        layer_free(&expected);
    }
    free(documents);
}
END_TEST

/* Two documents in one row are as the two alone, wherever the border is. */
START_TEST(test_border)
{
    const struct grouped c = {1, 70, 2, 1, 12, _i, HALVES};
    int32_t documents[70];
    random_seed(2);
    struct ddp_attention_shape shape = grouped_shape(&c, documents);
    for (int at = 1; at < 70; at++) {
        for (int t = 0; t < 70; t++)
            documents[t] = t < at ? 0 : at;
        struct layer both = layer_of(&shape, false);
        run(&both, NULL, false);
        for (int second = 0; second < 2; second++) {
            struct layer alone = {.shape = shape};
            alone.shape.documents = NULL;
            alone.shape.length = second ? 70 - at : at;
            const int64_t row = second ? at : 0;
            for (int i = 0; i < GARRAYS; i++) {
                const int64_t count = grouped_count(&alone.shape, i);
                alone.at[i] = array_of(count);
                if (i < GY || i == GDY)
                    memcpy(alone.at[i], both.at[i] + row * (grouped_count(&shape, i) / 70),
                           (size_t)count * sizeof **alone.at);
            }
            alone.scratch = array_of(ddp_attention_scratch(&alone.shape));
            run(&alone, NULL, false);
            const int64_t width = c.heads * c.size, kv = shape.k_stride;
            for (int64_t t = 0; t < alone.shape.length; t++) {
                ck_assert(largest_difference(alone.at[GY] + t * width,
                                             both.at[GY] + (row + t) * width, width) <= 2e-6);
                ck_assert(largest_difference(alone.at[GDK] + t * kv, both.at[GDK] + (row + t) * kv,
                                             c.kv_heads * c.size) <= 2e-5);
            }
            layer_free(&alone);
        }
        layer_free(&both);
    }
}
END_TEST

static double loss_of(void *arg)
{
    const struct layer *layer = arg;
    const struct ddp_attention_forward forward = forward_of(layer);
    ck_assert_int_eq(ddp_attention_forward(&forward, NULL), DDP_OK);
    double loss = 0;
    for (int64_t i = 0; i < grouped_count(&layer->shape, GY); i++)
        loss += (double)layer->at[GDY][i] * (double)layer->at[GY][i];
    return loss;
}

START_TEST(test_gradient)
{
    static const int32_t documents[] = {0, 0, 2, 2, 2, 2, 2, 0, 1, 1, 1, 1, 5, 5};
    const struct grouped c = {2, 7, 4, 2, 5, 3, SOME};
    random_seed(3);
    const struct ddp_attention_shape shape = grouped_shape(&c, documents);
    struct layer layer = layer_of(&shape, false);
    for (int64_t i = 0; i < grouped_count(&shape, GQ); i++)
        layer.at[GQ][i] /= 3;
    for (int i = GDQ; i <= GDV; i++) /* the gaps are not written, and have no gradient */
        memset(layer.at[i], 0, (size_t)grouped_count(&shape, i) * sizeof **layer.at);
    run(&layer, NULL, false);
    for (int i = 0; i < 3; i++)
        check_gradient("q, k or v", layer.at[GQ + i], layer.at[GDQ + i],
                       grouped_count(&shape, GQ + i), loss_of, &layer, 3e-4);
    layer_free(&layer);
}
END_TEST

/* A gradient that is not needed is not made, and the others are as with it. */
START_TEST(test_not_needed)
{
    const struct grouped c = {2, 40, 4, _i ? 2 : 4, 8, 9, WHOLE};
    const struct ddp_attention_shape shape = grouped_shape(&c, NULL);
    for (int missing = 0; missing < 8; missing++) {
        random_seed(4);
        struct layer all = layer_of(&shape, false), some = layer_copy(&all);
        run(&all, NULL, false);
        struct layer before = layer_copy(&some);
        const struct ddp_attention_forward forward = forward_of(&some);
        struct ddp_attention_backward backward = backward_of(&some);
        ck_assert_int_eq(ddp_attention_forward(&forward, NULL), DDP_OK);
        backward.dq = missing & 1 ? NULL : backward.dq;
        backward.dk = missing & 2 ? NULL : backward.dk;
        backward.dv = missing & 4 ? NULL : backward.dv;
        ck_assert_int_eq(ddp_attention_backward(&backward, NULL), DDP_OK);
        for (int i = 0; i < 3; i++)
            ck_assert(same_bits(some.at[GDQ + i], (missing >> i & 1 ? &before : &all)->at[GDQ + i],
                                grouped_count(&shape, GDQ + i)));
        layer_free(&all);
        layer_free(&some);
        layer_free(&before);
    }
}
END_TEST

/* What is wrong, with the document's begin, and what it may be. */
START_TEST(test_documents)
{
    static const struct {
        int32_t documents[8];
        const char *message;
    } bad[] = {
        {{-1, 0, 0, 0, 0, 0, 0, 0}, "row 0, position 0: its document begins at -1"},
        {{0, 0, 2, 2, 1, 1, 1, 1}, "row 1, position 0: its document begins at 1"},
        {{0, 0, 3, 3, 0, 0, 0, 0},
         "row 0, position 2: its document begins at 3, which is not from "
         "0 to 2"},
        {{0, 0, 0, 0, 0, 1, 2, 1},
         "row 1, position 3: its document begins at 1, which is not from "
         "2 to 3"},
    };
    const struct grouped c = {2, 4, 2, 1, 8, 0, SOME};
    const struct ddp_attention_shape shape = grouped_shape(&c, bad[_i].documents);
    struct layer layer = layer_of(&shape, false);
    const struct ddp_attention_forward forward = forward_of(&layer);
    const struct ddp_attention_backward backward = backward_of(&layer);
    catch_messages();
    ck_assert_int_eq(ddp_attention_forward(&forward, NULL), DDP_ERR_INVALID);
    expect_message(bad[_i].message);
    ck_assert_int_eq(ddp_attention_backward(&backward, NULL), DDP_ERR_INVALID);
    layer_free(&layer);
}
END_TEST

/* The first `prefix` positions at once, the others one by one, of all samples. */
static void run_cached(const struct layer *layer, int64_t prefix, float *cache, float *y,
                       ddp_pool *pool, bool reference)
{
    const struct ddp_attention_shape *s = &layer->shape;
    const int64_t length = s->length, width = s->heads * s->head_size;
    for (int64_t b = 0; b < s->batch; b++) {
        struct ddp_attention_cached args = {.shape = *s, .capacity = length + 2};
        const int64_t stride = 2 * s->kv_heads * s->head_size * args.capacity;
        args.shape.batch = 1;
        args.cache_stride = stride;
        args.cache = cache + b * stride;
        for (int64_t t = 0; t < length; t += args.shape.length) {
            args.past = t;
            args.shape.length = t == 0 ? prefix : 1;
            args.q = layer->at[GQ] + (b * length + t) * s->q_stride;
            args.k = layer->at[GK] + (b * length + t) * s->k_stride;
            args.v = layer->at[GV] + (b * length + t) * s->v_stride;
            args.y = y + (b * length + t) * width;
            ck_assert_int_eq(
                (reference ? ddp_attention_cached_reference : ddp_attention_cached)(&args, pool),
                DDP_OK);
        }
    }
}

START_TEST(test_cached)
{
    struct grouped c = grouped_cases[_i];
    random_seed((uint64_t)_i);
    c.documents = WHOLE;
    const struct ddp_attention_shape shape = grouped_shape(&c, NULL);
    struct layer layer = layer_of(&shape, false);
    const int64_t n = grouped_count(&shape, GY);
    const int64_t prefix = c.length > 40 ? c.length - 20 : c.length > 1 ? c.length / 2 : 1;
    const int64_t room = 2 * c.batch * c.kv_heads * c.size * (c.length + 2);
    float *caches[3], *ys[3];
    run(&layer, NULL, true);
    for (int i = 0; i < 3; i++) {
        caches[i] = array_of(room);
        memset(caches[i], 0xff, (size_t)room * sizeof **caches); /* NaN: what is read was written */
        ys[i] = array_of(n);
        run_cached(&layer, prefix, caches[i], ys[i], i == 2 ? pools[POOLS - 1] : NULL, i == 0);
    }
    ck_assert(largest_difference(ys[0], layer.at[GY], n) <= 1e-6);
    ck_assert(largest_difference(ys[1], layer.at[GY], n) <= 4e-6);
    ck_assert(same_bits(ys[1], ys[2], n));
    ck_assert(same_bits(caches[0], caches[1], room));
    for (int i = 0; i < 3; i++) {
        array_free(caches[i], room);
        array_free(ys[i], n);
    }
    layer_free(&layer);
}
END_TEST

START_TEST(test_cached_documents)
{
    static const int32_t documents[2];
    float some[16] = {0};
    struct ddp_attention_cached args = {
        .shape = ddp_attention_packed(1, 2, 1, 2, DDP_F32),
        .capacity = 2,
        .q = some,
        .k = some,
        .v = some,
        .cache = some,
        .y = some,
    };
    args.shape.documents = documents;
    ck_assert_int_eq(ddp_attention_cached(&args, NULL), DDP_ERR_UNSUPPORTED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("grouped attention");
    TCase *tc = kernel_case(suite, "grouped attention");
    tcase_add_loop_test(tc, test_grouped, 0, GROUPED);
    tcase_add_loop_test(tc, test_border, 0, 6);
    tcase_add_test(tc, test_gradient);
    tcase_add_loop_test(tc, test_not_needed, 0, 2);
    tcase_add_loop_test(tc, test_documents, 0, 4);
    tcase_add_loop_test(tc, test_cached, 0, GROUPED);
    tcase_add_test(tc, test_cached_documents);
    return suite;
}
