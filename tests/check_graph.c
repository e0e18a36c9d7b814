/* SPDX-License-Identifier: MIT
 *
 * Graphs: building, the memory plan, and backward against finite differences through a whole model.
 */
#include "config.h"

#include "core/memory.h"
#include "graph/exec.h"
#include "graph/internal.h"
#include "model/model.h"
#include "tests/runner.h"
#include "tests/model_option.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

static const struct ddp_model_config small = {.batch = 5, .features = 7, .classes = 4};

/* A model on the CPU with random inputs and weights. */
struct fixture {
    ddp_graph *graph;
    ddp_device *device;
    ddp_exec *exec;
    float *weights, *gradients, *x;
    int32_t labels[32], tokens[32];
    float targets[32];
};

static void open_fixture(struct fixture *f, const struct ddp_model *model, unsigned parts)
{
    struct ddp_rng rng;
    memset(f, 0, sizeof *f);
    struct ddp_model_config config = small;
    if (model == &ddp_model_mlp)
        set_model_option(&config, model, "hidden", "6,5");
    ck_assert_int_eq(ddp_model_build(&f->graph, model, &config), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&f->device, "cpu", 0, 1), DDP_OK);
    size_t count = (size_t)ddp_graph_flat_count(f->graph);
    f->weights = ddp_array_alloc(count, sizeof(float));
    f->gradients = ddp_array_alloc(count, sizeof(float));
    f->x = ddp_array_alloc((size_t)(small.batch * small.features), sizeof(float));
    ddp_rng_seed(&rng, 3);
    ddp_graph_init_parameters(f->graph, &rng, f->weights);
    ddp_rng_fill_normal(&rng, f->x, (size_t)(small.batch * small.features), 0, 1);
    for (int i = 0; i < 32; i++) {
        f->labels[i] = i % (int)small.classes;
        f->tokens[i] = i * i % 5;
        f->targets[i] = (float)(i % 7) / 3 - 1;
    }
    ck_assert_int_eq(ddp_exec_create(&f->exec, f->graph, f->device, parts, f->weights), DDP_OK);
    ddp_exec_bind_input(f->exec, 0, strcmp(model->name, "sharing") == 0 ? (void *)f->tokens : f->x);
    ddp_exec_bind_input(f->exec, 1,
                        strcmp(model->name, "numbers") == 0 ? (void *)f->targets : f->labels);
    ddp_exec_set_gradients(f->exec, f->gradients);
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

static double loss_of(struct fixture *f)
{
    ck_assert_int_eq(ddp_exec_forward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(f->exec), DDP_OK);
    return (double)*ddp_exec_loss_value(f->exec);
}

/* Every parameter's gradient against the slope of the loss. */
static void check_gradients(const struct ddp_model *model)
{
    struct fixture f;
    open_fixture(&f, model, ALL_PARTS);
    loss_of(&f);
    ck_assert_int_eq(ddp_exec_loss_backward(f.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(f.exec, NULL, NULL), DDP_OK);
    for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(f.graph, p);
        for (int64_t i = 0; i < parameter->count; i++) {
            float *w = &f.weights[parameter->offset + i], saved = *w;
            double analytic = (double)f.gradients[parameter->offset + i];
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
    close_fixture(&f);
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

START_TEST(article_gradients)
{
    check_gradients(&ddp_model_article);
}
END_TEST

/* A model with every way in which tensors share: residual connections, a tied weight, a tensor
 * with three readers, a join of a join, views, dropout, attention. Its samples are tokens. */
static enum ddp_status build_sharing(ddp_graph *graph, const struct ddp_model_config *config)
{
    enum { LENGTH = 4, CHANNELS = 6, VOCABULARY = 5 };
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *tokens =
        ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *labels =
        ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *wte =
        ddp_graph_parameter(graph, "wte", 2, (int64_t[]){VOCABULARY, CHANNELS}, normal);
    ddp_tensor *wpe = ddp_graph_parameter(graph, "wpe", 2, (int64_t[]){LENGTH, CHANNELS}, normal);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, wpe);
    x = ddp_graph_dropout(graph, x, 0.25);
    ddp_tensor *y = ddp_graph_layer_norm_layer(graph, "ln1", x, 1e-5f);
    y = ddp_graph_linear_layer(graph, "qkv", y, 3 * CHANNELS, true, DDP_ACTIVATION_NONE);
    y = ddp_graph_attention(graph, y, 2);
    y = ddp_graph_linear_layer(graph, "proj", y, CHANNELS, true, DDP_ACTIVATION_NONE);
    x = ddp_graph_add(graph, x, y);
    y = ddp_graph_layer_norm_layer(graph, "ln2", x, 1e-5f);
    y = ddp_graph_linear_layer(graph, "fc", y, 2 * CHANNELS, true, DDP_ACTIVATION_GELU_TANH);
    y = ddp_graph_linear_layer(graph, "out", y, CHANNELS, true, DDP_ACTIVATION_NONE);
    ddp_tensor *joined = ddp_graph_add(graph, ddp_graph_add(graph, y, x), x);
    ddp_tensor *side =
        ddp_graph_linear_layer(graph, "side", joined, CHANNELS, true, DDP_ACTIVATION_GELU);
    joined = ddp_graph_add(graph, side, joined);
    joined = ddp_graph_add(graph, joined, joined);
    joined = ddp_graph_reshape(graph, joined, 2, (int64_t[]){-1, CHANNELS});
    ddp_tensor *logits = ddp_graph_linear(graph, joined, wte, NULL, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, logits, ddp_graph_softmax_cross_entropy(graph, logits, labels));
}

static const struct ddp_model sharing = {.name = "sharing", .build = build_sharing};

START_TEST(shared_tensors_gradients)
{
    check_gradients(&sharing);
}
END_TEST

static uint64_t chance; /* what the next random graph is */

static int below(int limit)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (int)((chance >> 33) % (uint64_t)limit);
}

/* One more operation over two tensors that are there. */
static ddp_tensor *random_operation(ddp_graph *graph, ddp_tensor *a, ddp_tensor *b, int number)
{
    const int64_t channels = ddp_graph_dims(a)[2];
    char name[16];
    snprintf(name, sizeof name, "n%d", number);
    switch (below(8)) {
    case 0:
        return ddp_graph_layer_norm_layer(graph, name, a, 1e-5f);
    case 1:
        return ddp_graph_linear_layer(graph, name, a, channels, true, DDP_ACTIVATION_GELU);
    case 2:
        return ddp_graph_dropout(graph, a, 0.25);
    case 3:
        a = ddp_graph_linear_layer(graph, name, a, 3 * channels, true, DDP_ACTIVATION_NONE);
        return ddp_graph_attention(graph, a, 2);
    default:
        return ddp_graph_add(graph, a, b);
    }
}

/* Joins of whatever is there, with other operations between them; what nobody reads is joined to
 * the end. */
static enum ddp_status build_random(ddp_graph *graph, const struct ddp_model_config *config)
{
    enum { LENGTH = 4, CHANNELS = 6, VOCABULARY = 5, MOST = 14 };
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *made[MOST];
    bool read[MOST] = {false};
    ddp_tensor *tokens =
        ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *labels =
        ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){config->batch, LENGTH});
    ddp_tensor *wte =
        ddp_graph_parameter(graph, "wte", 2, (int64_t[]){VOCABULARY, CHANNELS}, normal);
    ddp_tensor *wpe = ddp_graph_parameter(graph, "wpe", 2, (int64_t[]){LENGTH, CHANNELS}, normal);
    const int count = 4 + below(MOST - 3);
    made[0] = ddp_graph_embedding(graph, tokens, wte, wpe);
    for (int n = 1; n < count; n++) {
        const int a = below(2) ? n - 1 : below(n), b = below(n);
        made[n] = random_operation(graph, made[a], made[b], n);
        read[a] = true;
        read[b] = read[b] || graph->nodes[graph->node_count - 1].op->joins;
    }
    ddp_tensor *y = made[count - 1];
    for (int n = count - 2; n >= 0; n--)
        if (!read[n])
            y = below(2) ? ddp_graph_add(graph, y, made[n]) : ddp_graph_add(graph, made[n], y);
    y = ddp_graph_layer_norm_layer(graph, "ln", y, 1e-5f);
    y = ddp_graph_linear_layer(graph, "head", y, config->classes, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, y, ddp_graph_softmax_cross_entropy(graph, y, labels));
}

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
    const double step = 0x1p-7;
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

START_TEST(random_graphs_gradients)
{
    static const struct ddp_model model = {.name = "sharing", .build = build_random};
    for (int number = _i * 100; number < _i * 100 + 100; number++) {
        struct fixture f;
        chance = (uint64_t)number * 2654435761u + 1;
        open_fixture(&f, &model, ALL_PARTS);
        loss_of(&f);
        ck_assert_int_eq(ddp_exec_loss_backward(f.exec), DDP_OK);
        ck_assert_int_eq(ddp_exec_backward(f.exec, NULL, NULL), DDP_OK);
        for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++)
            for (int way = 0; way < 3; way++)
                check_slope(&f, ddp_graph_parameter_at(f.graph, p), number);
        close_fixture(&f);
    }
}
END_TEST

static void plan_is_disjoint(const ddp_graph *graph, unsigned parts)
{
    struct ddp_graph_plan plan;
    size_t sum = 0;
    ck_assert_int_eq(ddp_graph_plan_make(graph, parts, &plan), DDP_OK);
    for (int i = 0; i < plan.item_count; i++) {
        const struct placement *a = &plan.items[i];
        sum += a->bytes;
        ck_assert_uint_le(a->offset + a->bytes, plan.bytes);
        ck_assert_int_le(a->first, a->last);
        for (int j = 0; j < i; j++) {
            const struct placement *b = &plan.items[j];
            bool time = a->first <= b->last && b->first <= a->last;
            bool place = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            ck_assert_msg(!(time && place), "parts %u: %d and %d overlap", parts, i, j);
        }
    }
    if (parts == (DDP_EXEC_NETWORK | DDP_EXEC_LOSS))
        ck_assert_uint_lt(plan.bytes, sum); /* without backward, memory is used again */
    ddp_graph_plan_free(&plan);
}

/* What overlaps in time must not overlap in memory, for every combination of parts. */
START_TEST(plan_never_overlaps)
{
    ddp_graph *graph;
    struct ddp_model_config deep = small;
    set_model_option(&deep, &ddp_model_mlp, "hidden", "3,14,25,3,14,25");
    for (int m = 0; m < 2; m++) {
        ck_assert_int_eq(ddp_model_build(&graph, m ? &sharing : &ddp_model_mlp, &deep), DDP_OK);
        for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
            plan_is_disjoint(graph, parts);
        ddp_graph_destroy(graph);
    }
}
END_TEST

/* A norm that is done together with the sum before it is written while that sum's inputs are read.
 */
START_TEST(fused_norms_begin_with_their_sums)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    int fused = 0;
    ck_assert_int_eq(ddp_model_build(&graph, &sharing, &small), DDP_OK);
    for (int n = 0; n < graph->node_count; n++)
        ck_assert(!ddp_graph_fuses(graph, n));
    ddp_graph_set_fuses_norms(graph, true);
    for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
        plan_is_disjoint(graph, parts);
    ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *sum = &graph->nodes[n], *norm = sum + 1;
        if (!ddp_graph_fuses(graph, n))
            continue;
        fused++;
        ck_assert_str_eq(norm->op->name, "layer_norm");
        ck_assert_int_eq(plan.items[plan.value[norm->output->id].forward].first, n);
        ck_assert_int_eq(plan.items[plan.saved[n + 1].forward].first, n);
        for (int i = 0; i < 2; i++)
            ck_assert_int_ge(plan.items[plan.value[sum->inputs[i]->id].forward].last, n);
    }
    ck_assert_int_eq(fused, 1);
    ddp_graph_plan_free(&plan);
    ddp_graph_destroy(graph);
}
END_TEST

/* GPT-2 124M of 4 x 1024 tokens: recomputed blocks take at most 0.35 of the memory. In every model
 * no two lives meet in one place. */
START_TEST(recomputation_shrinks_the_arena)
{
    struct ddp_model_config large = {
        .batch = 4, .dim_count = 1, .dims = {1024}, .classes = 50257, .size = "d12"};
    size_t bytes[2];
    ddp_graph *graph;
    ck_assert_int_eq(ddp_model_configure(&ddp_model_gpt2, &large), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_gpt2, &large), DDP_OK);
    ck_assert_int_eq(ddp_graph_block_count(graph), 12);
    for (int i = 0; i < 2; i++) {
        ddp_graph_set_recompute(graph, i);
        ck_assert_int_eq(ddp_exec_arena_bytes(graph, ALL_PARTS, &bytes[i]), DDP_OK);
    }
    for (int fuses = 0; fuses < 2; fuses++) {
        ddp_graph_set_fuses_norms(graph, fuses);
        for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
            plan_is_disjoint(graph, parts);
    }
    ck_assert_double_lt((double)bytes[1], 0.35 * (double)bytes[0]);
    ddp_graph_destroy(graph);
}
END_TEST

/* A block's sum is computed again from two values that backward itself does not read: they, and no
 * others, are kept; what it makes lives twice, and nothing lives again that is not needed. */
START_TEST(recomputation_keeps_what_it_reads)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *in = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 3});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){2});
    ddp_tensor *p = ddp_graph_linear_layer(graph, "p", in, 3, true, DDP_ACTIVATION_NONE);
    ddp_tensor *q = ddp_graph_linear_layer(graph, "q", in, 3, true, DDP_ACTIVATION_NONE);
    ddp_graph_begin_block(graph);
    ddp_tensor *sum = ddp_graph_add(graph, p, q);
    ddp_tensor *y = ddp_graph_linear_layer(graph, "y", sum, 3, true, DDP_ACTIVATION_NONE);
    ddp_graph_end_block(graph);
    ddp_tensor *z = ddp_graph_linear_layer(graph, "z", y, 3, true, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, z, ddp_graph_softmax_cross_entropy(graph, z, labels)),
                     DDP_OK);
    ddp_graph_set_recompute(graph, true);
    ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
    int again = -1;
    for (int i = 0; i < plan.backward_count; i++)
        if (plan.backward[i] < 0) {
            ck_assert_int_eq(again, -1);
            again = graph->node_count + i;
            ck_assert_ptr_eq(graph->nodes[~plan.backward[i]].output, sum);
        }
    ck_assert_int_ge(again, 0);
    ck_assert_int_ge(plan.value[sum->id].again, 0);
    ck_assert_int_lt(plan.items[plan.value[sum->id].forward].last, again);
    ck_assert_int_ge(plan.items[plan.value[p->id].forward].last, again);
    ck_assert_int_ge(plan.items[plan.value[q->id].forward].last, again);
    ck_assert_int_lt(plan.value[y->id].again, 0);
    ddp_graph_plan_free(&plan);
    ddp_graph_destroy(graph);
}
END_TEST

/* GPT-2 124M of 4 x 1024 tokens: with bf16 activations the arena is about half as large. */
START_TEST(bf16_activations_halve_the_arena)
{
    struct ddp_model_config config = {.batch = 4,
                                      .dim_count = 1,
                                      .dims = {1024},
                                      .classes = 50257,
                                      .size = "d12",
                                      .compute = DDP_BF16};
    size_t bytes[2];
    ck_assert_int_eq(ddp_model_configure(&ddp_model_gpt2, &config), DDP_OK);
    for (int i = 0; i < 2; i++) {
        ddp_graph *graph;
        config.activations = i ? DDP_BF16 : DDP_F32;
        ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_gpt2, &config), DDP_OK);
        ck_assert_int_eq(ddp_exec_arena_bytes(graph, ALL_PARTS, &bytes[i]), DDP_OK);
        for (int n = 0; n < graph->node_count; n++)
            ck_assert_int_eq(graph->nodes[n].output->dtype,
                             i && graph->nodes[n].output != graph->loss ? DDP_BF16 : DDP_F32);
        ddp_graph_destroy(graph);
    }
    ck_assert_uint_gt(bytes[1], bytes[0] * 2 / 5);
    ck_assert_uint_lt(bytes[1], bytes[0] * 52 / 100);
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

/* The residual connections of a transformer's block cost no memory for gradients: both inputs of a
 * join share its output's. A join of a join may not. */
START_TEST(joins_share_gradients)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    int shared = 0, joins = 0;
    ck_assert_int_eq(ddp_model_build(&graph, &sharing, &small), DDP_OK);
    ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        if (!node->op->joins)
            continue;
        joins++;
        shared += plan.gradient[node->inputs[0]->id] == plan.gradient[node->output->id];
        shared += plan.gradient[node->inputs[1]->id] == plan.gradient[node->output->id];
    }
    ck_assert_int_eq(joins, 5);
    ck_assert_int_ge(shared, 4);
    ddp_graph_plan_free(&plan);
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
    struct fixture f;
    open_fixture(&f, _i ? &sharing : &ddp_model_mlp, ALL_PARTS);
    const size_t count = (size_t)ddp_graph_flat_count(f.graph);
    struct readiness ready = {&f, 0, ddp_array_alloc(count, sizeof(float))};
    ck_assert_ptr_nonnull(ready.then);
    loss_of(&f);
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
    tcase_add_test(tc, shared_tensors_gradients);
    tcase_add_loop_test(tc, random_graphs_gradients, 0, 4);
    tcase_add_test(tc, plan_never_overlaps);
    tcase_add_test(tc, fused_norms_begin_with_their_sums);
    tcase_add_test(tc, recomputation_shrinks_the_arena);
    tcase_add_test(tc, recomputation_keeps_what_it_reads);
    tcase_add_test(tc, bf16_activations_halve_the_arena);
    tcase_add_test(tc, bf16_graphs_take_bf16);
    tcase_add_test(tc, joins_share_gradients);
    tcase_add_loop_test(tc, gradients_become_ready_in_flat_order, 0, 2);
    tcase_add_test(tc, flat_layout);
    tcase_add_test(tc, bad_graphs_are_refused);
    return suite;
}
