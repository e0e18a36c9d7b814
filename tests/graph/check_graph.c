/* SPDX-License-Identifier: MIT
 *
 * Graphs: building, and backward against finite differences through a whole model. */
#include "config.h"

#include "core/memory.h"
#include "tests/lib/gaps.h"
#include "tests/graph/graph_random.h"
#include "tests/graph/graph_test.h"
#include "tests/lib/model_option.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A model on the CPU with random inputs and weights. */
struct fixture {
    ddp_graph *graph;
    ddp_device *device;
    ddp_exec *exec;
    float *weights, *gradients, *x;
    int32_t labels[32], tokens[64];
    float targets[32];
    bool takes_tokens, takes_targets, trains;
};

static bool pads; /* classes are padded */

static void open_exec(struct fixture *f, unsigned parts)
{
    ck_assert_int_eq(ddp_exec_create(&f->exec, f->graph, f->device, parts, f->weights), DDP_OK);
    ddp_exec_bind_input(f->exec, 0, f->takes_tokens ? (void *)f->tokens : f->x);
    ddp_exec_bind_input(f->exec, 1, f->takes_targets ? (void *)f->targets : f->labels);
    ddp_exec_set_gradients(f->exec, f->gradients);
    f->trains = parts & DDP_EXEC_BACKWARD;
}

static void open_fixture(struct fixture *f, const struct ddp_model *model, unsigned parts)
{
    struct ddp_rng rng;
    memset(f, 0, sizeof *f);
    struct ddp_model_config config = small;
    config.offers.pads_classes = pads;
    if (model == &ddp_model_mlp)
        set_model_option(&config, model, "hidden", "6,5");
    ck_assert_int_eq(ddp_model_build(&f->graph, model, &config), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&f->device, "cpu", 0, 1), DDP_OK);
    size_t count = (size_t)ddp_graph_flat_count(f->graph);
    f->weights = ddp_array_alloc(count, sizeof(float));
    f->gradients = ddp_array_alloc(count, sizeof(float));
    f->x = ddp_array_alloc((size_t)(small.batch * small.features), sizeof(float));
    ddp_rng_seed(&rng, 3);
    ddp_graph_init_parameters(f->graph, &rng, f->weights, NULL);
    ddp_rng_fill_normal(&rng, f->x, (size_t)(small.batch * small.features), 0, 1);
    for (int i = 0; i < 32; i++) {
        f->labels[i] = i % (int)small.classes;
        f->tokens[i] = i * i % 5;
        f->targets[i] = (float)(i % 7) / 3 - 1;
    }
    for (size_t i = 0; model == &packed && i < 64; i++)
        f->tokens[i] = i / DOCUMENTS_LENGTH % 2 ? document_of(i) : (int32_t)(i * i % 7);
    f->takes_tokens = strcmp(model->name, "sharing") == 0 || model == &packed;
    f->takes_targets = strcmp(model->name, "numbers") == 0;
    open_exec(f, parts);
}

static void close_fixture(struct fixture *f)
{
    ddp_exec_destroy(f->exec);
    ddp_device_close(f->device);
    ddp_graph_destroy(f->graph);
    free(f->weights);
    free(f->gradients);
    free(f->x);
}

static void run_forward(struct fixture *f)
{
    ck_assert_int_eq(ddp_exec_forward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(f->exec), DDP_OK);
}

static double loss_of(struct fixture *f)
{
    run_forward(f);
    if (ddp_graph_outputs_loss(f->graph) && f->trains) /* it is there after backward */
        ck_assert_int_eq(ddp_exec_backward(f->exec, NULL, NULL), DDP_OK);
    return (double)*ddp_exec_loss_value(f->exec);
}

/* Every parameter's gradient against the slope of the loss. What backward writes, it does not read:
 * of gradients that were NaN nothing is left, also where they are padded. */
static void check_slopes(const struct ddp_model *model)
{
    struct fixture f;
    open_fixture(&f, model, ALL_PARTS);
    for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(f.graph, p);
        for (int64_t i = 0; i < parameter->count + parameter->padding; i++)
            f.gradients[parameter->offset + i] = NAN;
    }
    run_forward(&f);
    ck_assert_int_eq(ddp_exec_loss_backward(f.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(f.exec, NULL, NULL), DDP_OK);
    check_gaps(f.graph, f.gradients);
    const size_t bytes = (size_t)ddp_graph_flat_count(f.graph) * sizeof(float);
    float *gradients = malloc(bytes);
    ck_assert_ptr_nonnull(gradients);
    memcpy(gradients, f.gradients, bytes);
    for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(f.graph, p);
        for (int64_t i = 0; i < parameter->count; i++) {
            float *w = &f.weights[parameter->offset + i], saved = *w;
            double analytic = (double)gradients[parameter->offset + i];
            const float h = 1e-3f; /* small: a ReLU may have its kink nearby */
            *w = saved + h;
            double up = loss_of(&f);
            *w = saved - h;
            double down = loss_of(&f);
            *w = saved;
            double numeric = (up - down) / (2 * (double)h);
            ck_assert_msg(fabs(numeric - analytic) < 2e-3 * (1 + fabs(numeric)),
                          "%s[%lld]: backward %g, slope %g", parameter->name, (long long)i,
                          analytic, numeric);
        }
    }
    free(gradients);
    close_fixture(&f);
}

static void check_gradients(const struct ddp_model *model)
{
    for (int padded = 0; padded < 2; padded++) {
        pads = padded;
        check_slopes(model);
    }
    pads = false;
}

START_TEST(mlp_gradients)
{
    check_gradients(&ddp_model_mlp);
}
END_TEST

static enum ddp_status build_relu_logits(ddp_graph *graph, const struct ddp_model_config *config)
{
    ddp_tensor *x =
        ddp_graph_input(graph, "samples", DDP_F32, 2, (int64_t[]){config->batch, config->features});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){config->batch});
    x = ddp_graph_linear_layer(graph, "fc1", x, 6, true, DDP_ACTIVATION_RELU);
    x = ddp_graph_linear_layer(graph, "fc2", x, config->classes, true, DDP_ACTIVATION_RELU);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

/* An activation before the loss: backward needs the logits, so their gradient may not overwrite
 * them. */
START_TEST(relu_logits_gradients)
{
    static const struct ddp_model model = {.name = "relu", .build = build_relu_logits};
    check_gradients(&model);
}
END_TEST

/* A loss of numbers; the targets come as (B,2), the output in another shape. */
static enum ddp_status build_numbers(ddp_graph *graph, const struct ddp_model_config *config)
{
    ddp_tensor *x =
        ddp_graph_input(graph, "samples", DDP_F32, 2, (int64_t[]){config->batch, config->features});
    ddp_tensor *targets =
        ddp_graph_input(graph, "targets", DDP_F32, 2, (int64_t[]){config->batch, 2});
    x = ddp_graph_linear_layer(graph, "fc1", x, 6, true, DDP_ACTIVATION_GELU);
    x = ddp_graph_linear_layer(graph, "fc2", x, 2, true, DDP_ACTIVATION_NONE);
    x = ddp_graph_reshape(graph, x, 3, (int64_t[]){config->batch, 1, 2});
    return ddp_graph_finish(graph, x, ddp_graph_mse(graph, x, targets));
}

START_TEST(mse_gradients)
{
    static const struct ddp_model model = {.name = "numbers", .build = build_numbers};
    check_gradients(&model);
}
END_TEST

/* A weight that is made in one shape and read in another. */
static enum ddp_status build_reshaped(ddp_graph *graph, const struct ddp_model_config *config)
{
    const int64_t features = config->features, classes = config->classes;
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *x =
        ddp_graph_input(graph, "samples", DDP_F32, 2, (int64_t[]){config->batch, features});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){config->batch});
    ddp_tensor *w = ddp_graph_parameter(graph, "w", 1, (int64_t[]){classes * features}, normal);
    w = ddp_graph_reshape(graph, w, 2, (int64_t[]){classes, features});
    x = ddp_graph_linear(graph, x, w, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

START_TEST(reshaped_weight_gradients)
{
    static const struct ddp_model model = {.name = "reshaped", .build = build_reshaped};
    check_gradients(&model);
}
END_TEST

START_TEST(article_gradients)
{
    check_gradients(&ddp_model_article);
}
END_TEST

START_TEST(shared_tensors_gradients)
{
    check_gradients(&sharing);
}
END_TEST

START_TEST(head_gradients)
{
    check_gradients(&sharing_head);
}
END_TEST

START_TEST(documents_gradients)
{
    check_gradients(&packed);
}
END_TEST

/* The loss where this parameter is moved by `step` along `direction`. */
static double loss_along(struct fixture *f, const struct ddp_parameter *p, const double *direction,
                         double step)
{
    float *w = f->weights + p->offset, kept[128];
    ck_assert_int_le(p->count, 128);
    memcpy(kept, w, (size_t)p->count * sizeof *w);
    for (int64_t i = 0; i < p->count; i++)
        w[i] = (float)((double)w[i] + step * direction[i]);
    const double loss = loss_of(f);
    memcpy(w, kept, (size_t)p->count * sizeof *w);
    return loss;
}

/* Along a random direction of one parameter the loss has the slope that its gradient says. */
static void check_slope(struct fixture *f, const struct ddp_parameter *p, int number)
{
    double direction[128], length = 0, slope = 0, size = 0;
    const double step = 0x1p-9;
    for (int64_t i = 0; i < p->count; i++) {
        direction[i] = below(2001) / 1000.0 - 1;
        length += direction[i] * direction[i];
    }
    for (int64_t i = 0; i < p->count; i++) {
        const double gradient = (double)f->gradients[p->offset + i];
        direction[i] /= sqrt(length);
        slope += gradient * direction[i];
        size += gradient * gradient;
    }
    const double up = loss_along(f, p, direction, step), down = loss_along(f, p, direction, -step);
    const double seen = (up - down) / (2 * step);
    ck_assert_msg(fabs(seen - slope) <= 1e-3 + 0.01 * sqrt(size),
                  "graph %d, %s: backward %g, slope %g", number, p->name, slope, seen);
}

/* What is computed again has the same bits. */
static void check_recomputed(struct fixture *f, int number)
{
    const size_t bytes = (size_t)ddp_graph_flat_count(f->graph) * sizeof *f->gradients;
    float *kept = malloc(bytes);
    ck_assert_ptr_nonnull(kept);
    memcpy(kept, f->gradients, bytes);
    memset(f->gradients, 0, bytes);
    ddp_graph_set_recompute(f->graph, true);
    ddp_exec_destroy(f->exec);
    open_exec(f, ALL_PARTS);
    loss_of(f);
    ck_assert_int_eq(ddp_exec_loss_backward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(f->exec, NULL, NULL), DDP_OK);
    ck_assert_msg(memcmp(kept, f->gradients, bytes) == 0, "graph %d: recomputed", number);
    free(kept);
}

START_TEST(random_graphs_gradients)
{
    static const struct ddp_model model = {.name = "sharing", .build = build_random};
    for (int number = _i * 100; number < _i * 100 + 100; number++) {
        struct fixture f;
        chance = (uint64_t)number * 2654435761u + 1;
        pads = number % 2;
        open_fixture(&f, &model, ALL_PARTS);
        loss_of(&f);
        ck_assert_int_eq(ddp_exec_loss_backward(f.exec), DDP_OK);
        ck_assert_int_eq(ddp_exec_backward(f.exec, NULL, NULL), DDP_OK);
        for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++)
            for (int way = 0; way < 3; way++)
                check_slope(&f, ddp_graph_parameter_at(f.graph, p), number);
        loss_of(&f);
        check_recomputed(&f, number);
        close_fixture(&f);
    }
}
END_TEST

/* What is float32 comes in by a cast; a parameter is not an activation. */
START_TEST(bf16_graphs_take_bf16)
{
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_graph_set_compute(graph, DDP_BF16);
    ddp_graph_set_activations(graph, DDP_BF16);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 3});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){2});
    ck_assert_str_eq(x->name, "x");
    ck_assert_int_eq(x->dtype, DDP_BF16);
    ck_assert_int_eq(graph->nodes[x->producer].inputs[0]->dtype, DDP_F32);
    ck_assert_int_eq(labels->kind, TENSOR_INPUT);
    ddp_tensor *y = ddp_graph_linear_layer(graph, "fc", x, 3, true, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, y, ddp_graph_softmax_cross_entropy(graph, y, labels)),
                     DDP_OK);
    ck_assert_int_eq(graph->loss->dtype, DDP_F32);
    ddp_graph_destroy(graph);

    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_graph_set_activations(graph, DDP_BF16);
    x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){3, 3});
    ddp_tensor *w = ddp_graph_parameter(graph, "w", 2, (int64_t[]){3, 3}, (struct ddp_init){0});
    ck_assert_ptr_null(ddp_graph_add(graph, x, w));
    ddp_graph_destroy(graph);
}
END_TEST

struct readiness {
    const struct fixture *f;
    int64_t end;
    float *then; /* the gradients when they were said to be ready */
};

static enum ddp_status note_ready(void *arg, int64_t end)
{
    struct readiness *ready = arg;
    ck_assert_int_gt(end, ready->end);
    memcpy(ready->then + ready->end, ready->f->gradients + ready->end,
           (size_t)(end - ready->end) * sizeof(float));
    ready->end = end;
    return DDP_OK;
}

/* In the flat order, and not before the last operation has added to them: weights are tied. */
START_TEST(gradients_become_ready_in_flat_order)
{
    static const struct ddp_model reshaped = {.name = "reshaped", .build = build_reshaped};
    static const struct ddp_model *const models[] = {&ddp_model_mlp, &sharing, &reshaped,
                                                     &sharing_head};
    struct fixture f;
    open_fixture(&f, models[_i], ALL_PARTS);
    const size_t count = (size_t)ddp_graph_flat_count(f.graph);
    struct readiness ready = {&f, 0, ddp_array_alloc(count, sizeof(float))};
    ck_assert_ptr_nonnull(ready.then);
    run_forward(&f);
    ck_assert_int_eq(ddp_exec_loss_backward(f.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(f.exec, note_ready, &ready), DDP_OK);
    ck_assert_uint_eq((size_t)ready.end, count);
    ck_assert(memcmp(ready.then, f.gradients, count * sizeof(float)) == 0);
    free(ready.then);
    close_fixture(&f);
}
END_TEST

START_TEST(flat_layout)
{
    struct fixture f;
    open_fixture(&f, &ddp_model_mlp, ALL_PARTS);
    ck_assert_int_eq(ddp_graph_element_count(f.graph), 7 * 6 + 6 + 6 * 5 + 5 + 5 * 4 + 4);
    ck_assert_str_eq(ddp_graph_parameter_at(f.graph, 0)->name, "fc1.weight");
    for (int i = 0; i < ddp_graph_parameter_count(f.graph); i++) {
        const struct ddp_parameter *p = ddp_graph_parameter_at(f.graph, i);
        ck_assert_int_eq(p->offset % DDP_FLAT_ALIGN, 0);
        ck_assert_int_ge(p->offset, DDP_FLAT_ALIGN);
    }
    /* the last layer's gradients are ready first */
    ck_assert_int_eq(ddp_graph_parameter_at(f.graph, 4)->offset, DDP_FLAT_ALIGN);
    close_fixture(&f);
}
END_TEST

/* A head of so many classes, with a bias or tied to an embedding. */
static enum ddp_status build_head(ddp_graph *graph, const struct ddp_model_config *config)
{
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *tokens = ddp_graph_input(graph, "x", DDP_I32, 2, (int64_t[]){config->batch, 1});
    ddp_tensor *labels = ddp_graph_input(graph, "y", DDP_I32, 2, (int64_t[]){config->batch, 1});
    ddp_tensor *wte = ddp_graph_parameter(graph, "wte", 2, (int64_t[]){config->classes, 3}, normal);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, NULL);
    x = config->features > 0 ? ddp_graph_linear_layer(graph, "head", x, config->classes, true,
                                                      (enum ddp_activation)config->dim_count)
                             : ddp_graph_linear(graph, x, wte, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

/* Zeros are counted where memory is, and nowhere else. */
START_TEST(padded_layout)
{
    static const struct ddp_model model = {.name = "head", .build = build_head};
    static const struct {
        int64_t classes, padded;
    } rows[] = {{3, 8}, {16, 16}, {1000, 1000}, {1023, 1024}, {1025, 1152}, {50257, 50304}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t n = rows[i].classes, padding = rows[i].padded - n;
        for (int kind = 0; kind < 4; kind++) { /* tied; a layer; with an activation; not asked */
            struct ddp_model_config config = {.batch = 2, .features = kind, .classes = n};
            config.dim_count = kind == 2 ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE;
            config.offers.pads_classes = kind < 3;
            ddp_graph *graph;
            ck_assert_int_eq(ddp_model_build(&graph, &model, &config), DDP_OK);
            const int64_t own = kind < 2 ? padding : 0;
            const struct ddp_parameter *last =
                ddp_graph_parameter_at(graph, ddp_graph_parameter_count(graph) - 1);
            const struct ddp_parameter *wte = ddp_graph_parameter_at(graph, 0);
            ck_assert_int_eq(wte->count, n * 3);
            ck_assert_int_eq(wte->padding, kind == 0 ? own * 3 : 0);
            ck_assert_int_eq(last->padding, kind == 0 ? own * 3 : own);
            ck_assert_int_eq(ddp_graph_element_count(graph), n * (kind == 0 ? 3 : 7));
            ck_assert_int_ge(ddp_graph_flat_count(graph),
                             (n + own) * (kind == 0 ? 3 : 4) + (kind == 0 ? 0 : n * 3));
            ck_assert_int_eq(ddp_graph_output_count(graph), 2 * n);
            ck_assert_uint_eq(ddp_exec_graph_output_bytes(graph),
                              (size_t)(2 * (n + own)) * sizeof(float));
            ddp_graph_destroy(graph);
        }
    }
}
END_TEST

START_TEST(bad_graphs_are_refused)
{
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 3});
    ddp_tensor *w = ddp_graph_parameter(graph, "w", 2, (int64_t[]){4, 5}, (struct ddp_init){0});
    ck_assert_ptr_null(ddp_graph_linear(graph, x, w, NULL, DDP_ACTIVATION_NONE));
    ck_assert_ptr_null(ddp_graph_input(graph, "y", DDP_F32, 2, (int64_t[]){2, 3}));
    ck_assert_int_eq(ddp_graph_finish(graph, x, x), DDP_ERR_INVALID);
    ddp_graph_destroy(graph);

    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ck_assert_ptr_null(ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){INT64_MAX / 2, 3}));
    ddp_graph_destroy(graph);

    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 3});
    w = ddp_graph_parameter(graph, "w", 2, (int64_t[]){3, 3}, (struct ddp_init){0});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){2});
    ddp_tensor *y = ddp_graph_linear(graph, x, w, NULL, DDP_ACTIVATION_NONE);
    ck_assert_ptr_nonnull(ddp_graph_add(graph, y, y));
    /* its gradient would be written while y is still read */
    ck_assert_ptr_null(ddp_graph_softmax_cross_entropy(graph, y, labels));
    ck_assert_int_eq(ddp_graph_finish(graph, y, y), DDP_ERR_UNSUPPORTED);
    ddp_graph_destroy(graph);

    /* mse: targets that are not input 1, in other rows, of another number */
    for (int bad = 0; bad < 3; bad++) {
        ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
        x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 3});
        ddp_tensor *targets = ddp_graph_input(graph, "targets", DDP_F32, 2,
                                              (int64_t[]){bad == 1 ? 6 : 2, bad == 1 ? 1 : 2});
        y = ddp_graph_linear_layer(graph, "fc", x, 3, true, DDP_ACTIVATION_NONE);
        ck_assert_ptr_null(ddp_graph_mse(graph, y, bad == 0 ? x : targets));
        ck_assert_int_eq(ddp_graph_finish(graph, y, y), DDP_ERR_INVALID);
        ddp_graph_destroy(graph);
    }

    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 6});
    ck_assert_int_eq(ddp_graph_dims(ddp_graph_reshape(graph, x, 3, (int64_t[]){2, -1, 2}))[1], 3);
    ck_assert_ptr_null(ddp_graph_reshape(graph, x, 2, (int64_t[]){5, -1}));
    ddp_graph_destroy(graph);

    for (int bad = 0; bad < 11; bad++) {
        ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
        ddp_tensor *sample = ddp_graph_input(graph, "sample", DDP_I32, 3, (int64_t[]){2, 2, 5});
        ddp_tensor *rows = ddp_graph_select(graph, sample, bad == 0 ? 2 : bad == 1 ? -1 : 1);
        x = ddp_graph_input(graph, "x", DDP_F32, 3, (int64_t[]){2, 5, 12});
        ddp_tensor *k = ddp_graph_input(graph, "k", DDP_F32, 3, (int64_t[]){2, 5, 6});
        ddp_tensor *v = ddp_graph_input(graph, "v", DDP_F32, 3, (int64_t[]){2, 4, 6});
        if (bad == 2)
            ck_assert_ptr_null(ddp_graph_select(graph, x, 0));
        else if (bad == 3)
            ck_assert_ptr_null(ddp_graph_grouped_attention(graph, x, k, v, rows, 4, 2, 0));
        else if (bad == 4)
            ck_assert_ptr_null(ddp_graph_grouped_attention(graph, x, k, k, sample, 4, 2, 0));
        else
            ck_assert_ptr_null(ddp_graph_grouped_attention(graph, x, k, k, bad == 5 ? k : rows,
                                                           bad == 6 ? 5 : 4,
                                                           bad == 7   ? 0
                                                           : bad == 8 ? 3
                                                                      : 1 + (bad != 9),
                                                           bad == 10 ? -1 : 0));
        ck_assert_int_eq(graph->status, DDP_ERR_INVALID);
        ddp_graph_destroy(graph);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("graph");
    TCase *tc = test_case(suite, "graph", 60);
    tcase_add_test(tc, mlp_gradients);
    tcase_add_test(tc, article_gradients);
    tcase_add_test(tc, mse_gradients);
    tcase_add_test(tc, relu_logits_gradients);
    tcase_add_test(tc, reshaped_weight_gradients);
    tcase_add_test(tc, shared_tensors_gradients);
    tcase_add_test(tc, head_gradients);
    tcase_add_test(tc, documents_gradients);
    tcase_add_loop_test(tc, random_graphs_gradients, 0, 4);
    tcase_add_test(tc, bf16_graphs_take_bf16);
    tcase_add_loop_test(tc, gradients_become_ready_in_flat_order, 0, 4);
    tcase_add_test(tc, flat_layout);
    tcase_add_test(tc, padded_layout);
    tcase_add_test(tc, bad_graphs_are_refused);
    return suite;
}
