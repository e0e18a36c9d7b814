/* SPDX-License-Identifier: MIT
 *
 * A shard of texts without their padding: its loss and gradients are the mean of what each text has
 * alone, what stands in the padding changes no bit, and neither does recomputation; what is left of
 * longer texts is not looked at. */
#include "config.h"

#include "core/memory.h"
#include "core/rng.h"
#include "graph/exec.h"
#include "graph/scan.h"
#include "model/bert.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

enum { TEXTS = 3, LENGTH = 12, CLASSES = 3, WORDS = 11 };

static const int32_t lengths[TEXTS] = {5, 1, 9}, labels[TEXTS] = {2, 0, 1};

struct model {
    ddp_device *device;
    ddp_graph *graph;
    ddp_exec *exec;
    float *weights, *gradients;
    int64_t count;
    int32_t x[TEXTS][3][LENGTH];
};

static void open_model(struct model *m, int texts, bool recompute)
{
    struct ddp_model_config config = {.batch = texts,
                                      .classes = CLASSES,
                                      .dim_count = 2,
                                      .dims = {3, LENGTH},
                                      .x_dtype = DDP_I32,
                                      .label_dtype = DDP_I32,
                                      .recompute = recompute,
                                      .vocabulary = WORDS};
    struct ddp_bert *bert = ddp_bert_of(&config.own);
    struct ddp_rng rng;
    *bert = (struct ddp_bert){.layers = 2, .channels = 16, .heads = 2, .hidden = 24};
    ck_assert_int_eq(ddp_model_configure(&ddp_model_bert, &config), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&m->graph, &ddp_model_bert, &config), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&m->device, "cpu", 0, 1), DDP_OK);
    m->count = ddp_graph_flat_count(m->graph);
    m->weights = ddp_array_alloc((size_t)m->count, sizeof(float));
    m->gradients = ddp_array_alloc((size_t)m->count, sizeof(float));
    ck_assert(m->weights && m->gradients);
    ddp_rng_seed(&rng, 1);
    ddp_rng_fill_normal(&rng, m->weights + DDP_FLAT_ALIGN, (size_t)m->count - DDP_FLAT_ALIGN, 0,
                        0.3);
    ck_assert_int_eq(ddp_exec_create(&m->exec, m->graph, m->device, ALL_PARTS, m->weights), DDP_OK);
    ddp_exec_bind_input(m->exec, 0, m->x);
    ddp_exec_set_gradients(m->exec, m->gradients);
}

static void close_model(struct model *m)
{
    ddp_exec_destroy(m->exec);
    ddp_graph_destroy(m->graph);
    ddp_device_close(m->device);
    free(m->weights);
    free(m->gradients);
}

/* Text `from` as the one in place `to`, with this behind its end. */
static void put(struct model *m, int to, int from, int32_t length, int32_t padding)
{
    for (int32_t t = 0; t < LENGTH; t++) {
        m->x[to][0][t] = t < length ? (from * 5 + t * 3 + 1) % WORDS : padding;
        m->x[to][1][t] = t < length ? t > 2 : padding % 2;
        m->x[to][2][t] = t == 0 ? length : padding;
    }
}

static void pass(struct model *m, const int32_t *classes)
{
    ddp_exec_bind_input(m->exec, 1, classes);
    ck_assert_int_eq(ddp_exec_forward(m->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(m->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss_backward(m->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(m->exec, NULL, NULL), DDP_OK);
}

START_TEST(texts_together)
{
    struct model alone, all, again;
    open_model(&alone, 1, false);
    open_model(&all, TEXTS, false);
    open_model(&again, TEXTS, true);
    double *sums = calloc((size_t)all.count, sizeof *sums);
    ck_assert(sums && alone.count == all.count);
    for (int i = 0; i < TEXTS; i++) {
        put(&alone, 0, i, lengths[i], 0);
        put(&all, i, i, lengths[i], 0);
        put(&again, i, i, lengths[i], 7);
        pass(&alone, &labels[i]);
        for (int64_t k = 0; k < all.count; k++)
            sums[k] += (double)alone.gradients[k] / TEXTS;
    }
    pass(&all, labels);
    pass(&again, labels);
    ck_assert(fabs((double)all.gradients[0] - sums[0]) < 1e-6);
    double largest = 0;
    for (int64_t k = DDP_FLAT_ALIGN; k < all.count; k++) {
        ck_assert(fabs((double)all.gradients[k] - sums[k]) < 2e-6);
        largest = fmax(largest, fabs(sums[k]));
    }
    ck_assert(largest > 0.1);
    ck_assert(memcmp(all.gradients, again.gradients, (size_t)all.count * sizeof(float)) == 0);
    free(sums);
    close_model(&alone);
    close_model(&all);
    close_model(&again);
}
END_TEST

START_TEST(what_longer_texts_left)
{
    struct model m;
    struct ddp_scan scan;
    open_model(&m, TEXTS, false);
    for (int i = 0; i < TEXTS; i++)
        put(&m, i, i, LENGTH, 0);
    for (int64_t k = DDP_FLAT_ALIGN; k < m.count; k++)
        m.weights[k] = NAN;
    pass(&m, labels);
    for (int64_t k = DDP_FLAT_ALIGN; k < m.count; k++)
        m.weights[k] = 0.1f;
    for (int i = 0; i < TEXTS; i++)
        put(&m, i, i, 2, 0);
    ck_assert_int_eq(ddp_exec_scan(m.exec, &scan), DDP_OK);
    ck_assert_int_eq(scan.kind, DDP_SCAN_NOTHING);
    pass(&m, labels);
    for (int64_t k = 0; k < m.count; k++)
        ck_assert(isfinite(m.gradients[k]));
    m.x[1][2][0] = LENGTH + 1;
    ck_assert_int_eq(ddp_exec_forward(m.exec), DDP_ERR_INVALID);
    close_model(&m);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("bert");
    TCase *tcase = tcase_create("packed");
    tcase_add_test(tcase, texts_together);
    tcase_add_test(tcase, what_longer_texts_left);
    suite_add_tcase(suite, tcase);
    return suite;
}
