/* SPDX-License-Identifier: MIT
 *
 * A head and its loss in chunks beside the linear layer and the loss that it stands for: of one
 * chunk the same bits, of several nearly; for any number of threads, added to other shards' sums,
 * and in bf16. */
#include "config.h"

#include "core/log.h"
#include "graph/exec.h"
#include "graph/stage.h"
#include "kernels/bf16.h"
#include "kernels/softmax_cross_entropy.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRAINS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

/* (rows, channels) samples through a linear layer, then the classes. */
struct shape {
    int64_t rows, channels, classes;
    bool head, bf16, pads;
    int threads;
};

struct made {
    ddp_graph *graph;
    ddp_device *device;
    ddp_exec *exec;
    float *weights, *gradients, *x;
    uint16_t *weights_bf16;
    int32_t *labels, *predictions;
};

static ddp_graph *build(const struct shape *s)
{
    const struct ddp_init init = {.kind = DDP_INIT_NORMAL, .std = 1};
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_graph_set_compute(graph, s->bf16 ? DDP_BF16 : DDP_F32);
    ddp_graph_set_offers(graph, &(struct ddp_graph_offers){.pads_classes = s->pads});
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){s->rows, s->channels});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){s->rows});
    x = ddp_graph_linear_layer(graph, "fc", x, s->channels, true, DDP_ACTIVATION_NONE);
    ddp_tensor *weight =
        ddp_graph_parameter(graph, "head", 2, (int64_t[]){s->classes, s->channels}, init);
    ddp_tensor *output = s->head ? ddp_graph_head_cross_entropy(graph, x, weight, labels)
                                 : ddp_graph_linear(graph, x, weight, NULL, DDP_ACTIVATION_NONE);
    ddp_tensor *loss = s->head ? output : ddp_graph_softmax_cross_entropy(graph, output, labels);
    ck_assert_int_eq(ddp_graph_finish(graph, output, loss), DDP_OK);
    return graph;
}

static void open_exec(struct made *m, unsigned parts)
{
    ddp_exec_destroy(m->exec);
    ck_assert_int_eq(ddp_exec_create(&m->exec, m->graph, m->device, parts, m->weights), DDP_OK);
    ddp_exec_set_weights_bf16(m->exec, m->weights_bf16);
    ddp_exec_bind_input(m->exec, 0, m->x);
    ddp_exec_bind_input(m->exec, 1, m->labels);
    ddp_exec_set_gradients(m->exec, m->gradients);
    ddp_exec_set_predictions(m->exec, m->predictions);
}

static void open_made(struct made *m, const struct shape *s)
{
    struct ddp_rng rng;
    *m = (struct made){.graph = build(s)};
    const size_t count = (size_t)ddp_graph_flat_count(m->graph), rows = (size_t)s->rows;
    m->weights = calloc(count, sizeof(float));
    m->gradients = calloc(count, sizeof(float));
    m->weights_bf16 = calloc(count, sizeof(uint16_t));
    m->x = calloc(rows * (size_t)s->channels, sizeof(float));
    m->labels = calloc(rows, sizeof(int32_t));
    m->predictions = calloc(rows, sizeof(int32_t));
    ck_assert(m->weights && m->gradients && m->weights_bf16 && m->x && m->labels);
    ck_assert_ptr_nonnull(m->predictions);
    ddp_rng_seed(&rng, 3);
    ck_assert_int_eq(ddp_graph_init_parameters(m->graph, &rng, m->weights, NULL), DDP_OK);
    ddp_rng_fill_normal(&rng, m->x, rows * (size_t)s->channels, 0, 1);
    for (int64_t i = 0; i < s->rows; i++)
        m->labels[i] = i % 5 == 3 ? DDP_LABEL_NONE : (int32_t)(i * i * 7919 % s->classes);
    ck_assert_int_eq(ddp_device_open(&m->device, "cpu", 0, s->threads), DDP_OK);
    if (s->bf16) {
        const struct ddp_to_bf16 args = {
            .count = (int64_t)count, .x = m->weights, .y = m->weights_bf16};
        ck_assert_int_eq(ddp_to_bf16(&args, NULL), DDP_OK);
    } else {
        free(m->weights_bf16);
        m->weights_bf16 = NULL;
    }
    open_exec(m, TRAINS);
}

static void close_made(struct made *m)
{
    ddp_exec_destroy(m->exec);
    ddp_device_close(m->device);
    ddp_graph_destroy(m->graph);
    free(m->weights);
    free(m->gradients);
    free(m->weights_bf16);
    free(m->x);
    free(m->labels);
    free(m->predictions);
}

static void step(struct made *m)
{
    ck_assert_int_eq(ddp_exec_forward(m->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(m->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss_backward(m->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(m->exec, NULL, NULL), DDP_OK);
}

static const struct ddp_parameter *parameter_of(const struct made *m, int i)
{
    return ddp_graph_parameter_at(m->graph, i);
}

/* Every gradient: the same bits, or near.
 *   near  relative to the largest one; 0: the same bits */
static void compare(const struct made *a, const struct made *b, double near, const char *what)
{
    for (int p = 0; p < ddp_graph_parameter_count(a->graph); p++) {
        const float *x = a->gradients + parameter_of(a, p)->offset;
        const float *y = b->gradients + parameter_of(b, p)->offset;
        double most = 0, error = 0;
        for (int64_t i = 0; i < parameter_of(a, p)->count; i++) {
            most = fmax(most, fabs((double)y[i]));
            error = fmax(error, !isfinite(x[i]) ? INFINITY : fabs((double)x[i] - (double)y[i]));
        }
        ck_assert_msg(error <= near * most, "%s: gradients of %s differ by %g of %g", what,
                      parameter_of(a, p)->name, error, most);
    }
    ck_assert_float_eq(a->gradients[1], b->gradients[1]);
    ck_assert_msg(fabsf(a->gradients[0] - b->gradients[0]) <=
                      (near > 0 ? 1e-6f : 0) * b->gradients[0],
                  "%s: losses %g and %g", what, (double)a->gradients[0], (double)b->gradients[0]);
}

static const struct shape shapes[] = {
    {.rows = 1, .channels = 5, .classes = 3},
    {.rows = 2, .channels = 1, .classes = 1},
    {.rows = 63, .channels = 8, .classes = 17},
    {.rows = 64, .channels = 8, .classes = 17},
    {.rows = 65, .channels = 8, .classes = 17},
    {.rows = 200, .channels = 33, .classes = 70},
    {.rows = 447, .channels = 3, .classes = 70001},
    {.rows = 448, .channels = 3, .classes = 70001},
    {.rows = 449, .channels = 3, .classes = 70001},
    {.rows = 127, .channels = 3, .classes = 400000},
    {.rows = 64, .channels = 16, .classes = 130, .bf16 = true},
    {.rows = 130, .channels = 16, .classes = 1300, .bf16 = true, .pads = true},
    {.rows = 65, .channels = 8, .classes = 17, .pads = true},
    {.rows = 500, .channels = 4, .classes = 66000, .pads = true},
};

/* Training, and then evaluation with its predictions, beside the ordinary operations. */
START_TEST(as_the_ordinary_operations)
{
    struct shape s = shapes[_i];
    struct made chunked, plain;
    s.threads = 2;
    open_made(&plain, &s);
    s.head = true;
    open_made(&chunked, &s);
    /* One chunk is the same products; bf16 rounds the logits' gradient in the same way too. */
    const bool one = s.rows <= 64 || s.classes < 70000;
    memset(chunked.gradients, 0xff, (size_t)ddp_graph_flat_count(chunked.graph) * sizeof(float));
    step(&plain);
    step(&chunked);
    compare(&chunked, &plain, one && s.classes != 66000 ? 0 : 2e-6, "training");
    ck_assert_int_eq(
        memcmp(chunked.predictions, plain.predictions, (size_t)s.rows * sizeof(int32_t)), 0);
    for (int i = 0; i < 2; i++) { /* added to another shard's */
        struct made *m = i ? &plain : &chunked;
        ddp_exec_set_adding(m->exec, true);
        step(m);
    }
    compare(&chunked, &plain, 3e-6, "adding");
    const float loss = chunked.gradients[0] / 2;
    open_exec(&chunked, DDP_EXEC_NETWORK | DDP_EXEC_LOSS);
    memset(chunked.predictions, 0xff, (size_t)s.rows * sizeof(int32_t));
    ck_assert_int_eq(ddp_exec_forward(chunked.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(chunked.exec), DDP_OK);
    ck_assert_float_eq_tol(*ddp_exec_loss_value(chunked.exec), loss, 2e-6f * loss + 1e-12f);
    ck_assert_int_eq(
        memcmp(chunked.predictions, plain.predictions, (size_t)s.rows * sizeof(int32_t)), 0);
    close_made(&chunked);
    close_made(&plain);
}
END_TEST

START_TEST(the_same_bits_with_any_threads)
{
    struct shape s = {
        .rows = 449, .channels = 3, .classes = 70001, .head = true, .bf16 = _i, .threads = 1};
    struct made one, other;
    open_made(&one, &s);
    step(&one);
    for (s.threads = _i ? 3 : 2; s.threads < (_i ? 4 : 5); s.threads++) {
        open_made(&other, &s);
        step(&other);
        compare(&other, &one, 0, "threads");
        close_made(&other);
    }
    close_made(&one);
}
END_TEST

/* A shard's loss and gradients are divided by all its labels, and it says how many do not count. */
START_TEST(shards_add_up)
{
    struct shape s = {.rows = 40, .channels = 6, .classes = 11, .head = _i, .threads = 1};
    struct made all, none;
    open_made(&all, &s);
    open_made(&none, &s);
    step(&all);
    ck_assert_int_eq(ddp_graph_target_count(all.graph), s.rows);
    ck_assert_float_eq(all.gradients[1], 8);
    for (int64_t i = 0; i < s.rows; i++)
        none.labels[i] = DDP_LABEL_NONE;
    step(&none);
    ck_assert_float_eq(none.gradients[0], 0);
    ck_assert_float_eq(none.gradients[1], 40);
    for (int64_t i = DDP_FLAT_ALIGN; i < ddp_graph_flat_count(none.graph); i++)
        ck_assert_float_eq(none.gradients[i], 0);
    ddp_exec_set_adding(all.exec, true);
    memcpy(all.labels, none.labels, (size_t)s.rows * sizeof(int32_t));
    const float loss = all.gradients[0];
    step(&all);
    ck_assert_float_eq(all.gradients[0], loss);
    ck_assert_float_eq(all.gradients[1], 48);
    close_made(&all);
    close_made(&none);
}
END_TEST

/* The arena holds chunks of logits, not all of them. */
START_TEST(logits_are_never_whole)
{
    struct shape s = {.rows = 2048, .channels = 64, .classes = 152000, .head = true};
    size_t bytes;
    ddp_graph *graph = build(&s);
    ck_assert_int_eq(ddp_exec_arena_bytes(graph, TRAINS, &bytes), DDP_OK);
    ck_assert_uint_le(bytes, ((size_t)128 << 20) + 8 * 2048 * 64 * sizeof(float));
    ck_assert_double_eq(ddp_graph_operation_flops(graph, 1), 3 * 2.0 * 2048 * 64 * 152000);
    ddp_graph_destroy(graph);
    s.head = false;
    graph = build(&s);
    ck_assert_int_eq(ddp_exec_arena_bytes(graph, TRAINS, &bytes), DDP_OK);
    ck_assert_uint_ge(bytes, (size_t)2048 * 152000 * sizeof(float));
    ddp_graph_destroy(graph);
}
END_TEST

/* The row of a bad label is that of the shard, not of its chunk. */
START_TEST(bad_labels_are_named)
{
    struct shape s = {.rows = 449, .channels = 3, .classes = 70001, .head = true, .threads = 1};
    struct made m;
    char said[256] = "";
    open_made(&m, &s);
    m.labels[448] = 70001;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    ck_assert_int_eq(ddp_exec_forward(m.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(m.exec, NULL, NULL), DDP_ERR_INVALID);
    ddp_log_exchange(before);
    ck_assert_msg(strstr(said, "label 70001 in row 448, but there are 70001 classes") != NULL, "%s",
                  said);
    close_made(&m);
}
END_TEST

START_TEST(bad_graphs_are_refused)
{
    ddp_graph *graph;
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
        const struct ddp_init init = {.kind = DDP_INIT_ZEROS};
        ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){4, 3});
        ddp_tensor *labels =
            ddp_graph_input(graph, "y", i == 0 ? DDP_F32 : DDP_I32, 1, (int64_t[]){i == 1 ? 3 : 4});
        ddp_tensor *weight =
            ddp_graph_parameter(graph, "w", 2, (int64_t[]){7, i == 2 ? 4 : 3}, init);
        ddp_tensor *y = ddp_graph_linear_layer(graph, "fc", x, 3, false, DDP_ACTIVATION_NONE);
        ddp_tensor *loss = ddp_graph_head_cross_entropy(graph, i == 3 ? x : y, weight, labels);
        ck_assert(i == 4 ? loss != NULL : loss == NULL);
        /* Parameters may not lie between an output and the loss. */
        ck_assert_int_eq(ddp_graph_finish(graph, y, loss),
                         i == 4 ? DDP_ERR_UNSUPPORTED : DDP_ERR_INVALID);
        ddp_graph_destroy(graph);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("head_cross_entropy");
    TCase *tc = tcase_create("head");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, as_the_ordinary_operations, 0, (int)(sizeof shapes / sizeof *shapes));
    tcase_add_loop_test(tc, the_same_bits_with_any_threads, 0, 2);
    tcase_add_loop_test(tc, shards_add_up, 0, 2);
    tcase_add_test(tc, logits_are_never_whole);
    tcase_add_test(tc, bad_labels_are_named);
    tcase_add_test(tc, bad_graphs_are_refused);
    return suite;
}
