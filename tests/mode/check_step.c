/* SPDX-License-Identifier: MIT
 *
 * What a single step of each mode does: it leaves an update out whose loss or gradient is not
 * finite, wherever that is found, scales losses of float16, and draws other random numbers than the
 * steps before. */
#include "config.h"

#include "mode/updater.h"
#include "model/model.h"
#include "tests/lib/runner.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEATURES 5
#define CLASSES  3
#define BATCH    4
#define SHARDS   8
#define SAMPLES  (SHARDS * BATCH * 3)

/* --- data, a model, a job --- */

static float first_value; /* of each sample; 0: that of ordinary ones */

static enum ddp_status read_samples(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *data, int32_t *labels)
{
    float *x = data;
    (void)dataset;
    for (size_t i = 0; i < count; i++, x += FEATURES) {
        for (int f = 0; f < FEATURES; f++)
            x[f] = sinf((float)(indices[i] * FEATURES + f));
        if (first_value != 0)
            x[0] = first_value;
        if (labels)
            labels[i] = first_value != 0 ? 0 : (int32_t)(indices[i] % CLASSES);
    }
    return DDP_OK;
}

static const struct ddp_dataset_ops dataset_ops = {.read = read_samples};
static const ddp_dataset dataset = {.ops = &dataset_ops,
                                    .info = {.source = "test",
                                             .path = "",
                                             .sample_count = SAMPLES,
                                             .class_count = CLASSES,
                                             .dim_count = 1,
                                             .dims = {FEATURES},
                                             .label_count = 1,
                                             .x_dtype = DDP_F32,
                                             .sample_values = FEATURES,
                                             .sample_bytes = FEATURES * sizeof(float),
                                             .channel_count = 1,
                                             .std = {1}}};

static ddp_job *job;
static ddp_comm *comm;
static ddp_graph *graph;
static float *weights;
static struct ddp_mode_setup setup;
static enum ddp_dtype compute; /* float32 */

static enum ddp_status build(ddp_graph *built, const struct ddp_model_config *config)
{
    ddp_tensor *x =
        ddp_graph_input(built, "samples", DDP_F32, 2, (int64_t[]){config->batch, FEATURES});
    ddp_tensor *labels = ddp_graph_input(built, "labels", DDP_I32, 1, (int64_t[]){config->batch});
    x = ddp_graph_linear_layer(built, "fc1", x, 7, true, DDP_ACTIVATION_NONE);
    x = ddp_graph_dropout(built, x, *(const double *)(const void *)&config->own);
    x = ddp_graph_linear_layer(built, "fc2", x, CLASSES, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(built, x, ddp_graph_softmax_cross_entropy(built, x, labels));
}

/* fc1.weight is zero, so that the loss of a huge sample is finite. */
static void open_setup(enum ddp_mode_kind kind, double dropout, bool gradient_norm)
{
    static const struct ddp_model model = {.name = "step", .build = build};
    struct ddp_model_config config = {.batch = BATCH, .compute = compute};
    const int units = kind == DDP_MODE_DP ? 2 : 1;
    struct ddp_rng rng;
    memcpy(&config.own, &dropout, sizeof dropout);
    ck_assert_int_eq(ddp_model_build(&graph, &model, &config), DDP_OK);
    weights = calloc((size_t)ddp_graph_flat_count(graph), sizeof *weights);
    ck_assert_ptr_nonnull(weights);
    ddp_rng_seed(&rng, 1);
    ddp_graph_init_parameters(graph, &rng, weights, NULL);
    const struct ddp_parameter *first = ddp_graph_parameter_at(graph, 0);
    ck_assert_str_eq(first->name, "fc1.weight");
    for (int64_t i = 0; i < first->count; i++)
        weights[first->offset + i] = 0;
    setup = (struct ddp_mode_setup){
        .graph = graph,
        .batch_rows = BATCH,
        .tail_rows = BATCH,
        .job = job,
        .comm = comm,
        .device = "cpu",
        .threads = 1,
        .replicas = units,
        .local_shards = SHARDS / units,
        .run = ddp_lanes_run_of(SHARDS, SHARDS, units, 0),
        .global_shards = SHARDS,
        .weights = weights,
        .compute = compute,
        .loss_scale = 0x1p22,
        .scale_every = 2,
        .seed = 3,
        .optimizer = {.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        .only_finite = true,
        .gradient_norm = gradient_norm,
        .zero = true,
        .bucket_bytes = 64,
    };
}

static void close_setup(void)
{
    ddp_graph_destroy(graph);
    free(weights);
}

static void open_job(void)
{
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    ck_assert_int_eq(ddp_comm_create(&comm, job, "self"), DDP_OK);
}

static void close_job(void)
{
    ddp_comm_destroy(comm);
    ddp_job_close(job);
}

/* A step over the first global batch. */
static float run_step(ddp_mode *mode, double rate, int64_t step, float value)
{
    ddp_loader *loader;
    float loss;
    struct ddp_loader_config config = {.dataset = &dataset,
                                       .sampler = {.sample_count = SAMPLES, .shard_count = SHARDS},
                                       .batch_size = BATCH,
                                       .shard_count = SHARDS,
                                       .end_epoch = 1};
    first_value = value;
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    ck_assert_int_eq(ddp_mode_step(mode, loader, rate, step, &loss), DDP_OK);
    ddp_loader_destroy(loader);
    return loss;
}

static bool weights_are(const ddp_mode *mode, const float *expected)
{
    const size_t bytes = (size_t)ddp_graph_flat_count(graph) * sizeof *expected;
    return memcmp(ddp_mode_weights(mode), expected, bytes) == 0;
}

/* --- tests --- */

/* Each shard's gradient is finite and their sum is not, or no loss is: the weights stay, and so
 * does the optimizer's state, which the step after that would show. */
START_TEST(what_is_not_finite_is_left_out)
{
    const enum ddp_mode_kind kind = (enum ddp_mode_kind)(_i / 3);
    const bool infinite_loss = _i % 3 > 0, without_norm = _i % 3 > 1;
    ddp_mode *skips, *plain;
    float loss;
    open_setup(kind, 0, !without_norm);
    ck_assert_int_eq(ddp_mode_create(&skips, kind, &setup), DDP_OK);
    ck_assert_int_eq(ddp_mode_create(&plain, kind, &setup), DDP_OK);
    loss = run_step(skips, 0.1, 0, infinite_loss ? INFINITY : FLT_MAX);
    ck_assert_int_eq(!isfinite(loss), infinite_loss);
    ck_assert_int_eq(isfinite(ddp_mode_gradient_norm(skips)) != 0, without_norm);
    ck_assert_msg(weights_are(skips, weights), "the update was not left out");
    loss = run_step(skips, 0.1, 1, 0);
    ck_assert_float_eq(loss, run_step(plain, 0.1, 1, 0));
    ck_assert_msg(weights_are(skips, ddp_mode_weights(plain)), "the optimizer's state has changed");
    ck_assert(!weights_are(skips, weights));
    ddp_mode_destroy(skips);
    ddp_mode_destroy(plain);
    close_setup();
}
END_TEST

/* In float16: a step whose scaled gradient is infinite changes nothing but the scale, and the one
 * after that is a first step to the optimizer. The gradient is that of the loss. */
START_TEST(overflow_halves_the_scale)
{
    const enum ddp_mode_kind kind = (enum ddp_mode_kind)_i;
    enum { COUNT = 7 };
    float gradient[COUNT], other[COUNT];
    ddp_mode *mode, *small;
    int steps = 0;
    compute = DDP_F16;
    open_setup(kind, 0, false);
    setup.only_finite = false;
    ck_assert_int_eq(ddp_mode_create(&mode, kind, &setup), DDP_OK);
    for (;; steps++) {
        const struct ddp_loss_scale before = ddp_mode_loss_scale(mode);
        ck_assert_float_eq(before.scale, ldexpf(0x1p22f, -steps));
        ck_assert(before.good == 0 && before.skipped == steps);
        ck_assert(isfinite(run_step(mode, 0.1, steps, 0)));
        if (isfinite(ddp_mode_gradient_norm(mode)))
            break;
        ck_assert_msg(weights_are(mode, weights), "the update was not left out");
    }
    ck_assert_int_ge(steps, 2);
    ck_assert_int_eq(ddp_mode_loss_scale(mode).good, 1);
    setup.loss_scale = ldexp(0x1p22, -steps);
    ck_assert_int_eq(ddp_mode_create(&small, kind, &setup), DDP_OK);
    run_step(small, 0.1, 0, 0);
    ck_assert_msg(weights_are(mode, ddp_mode_weights(small)), "another step");
    ck_assert_double_eq(ddp_mode_gradient_norm(mode), ddp_mode_gradient_norm(small));
    const int64_t bias = ddp_graph_parameter_at(graph, 1)->offset;
    ck_assert_int_eq(ddp_mode_get_gradients(mode, bias, COUNT, gradient), DDP_OK);
    const struct ddp_loss_scale one = {.scale = 16};
    ddp_mode_set_loss_scale(small, &one);
    ck_assert_int_eq(ddp_mode_put_weights(small, 0, ddp_graph_flat_count(graph), weights), DDP_OK);
    run_step(small, 0.1, 0, 0);
    ck_assert_int_eq(ddp_mode_get_gradients(small, bias, COUNT, other), DDP_OK);
    for (int i = 0; i < COUNT; i++)
        ck_assert_float_eq_tol(gradient[i], other[i], 1e-3f * fabsf(other[i]) + 1e-6f);
    run_step(mode, 0.1, steps + 1, 0);
    ck_assert_double_eq((double)ddp_mode_loss_scale(mode).scale, 2 * setup.loss_scale);
    ddp_mode_destroy(mode);
    ddp_mode_destroy(small);
    close_setup();
}
END_TEST

enum { STEPS = 6 };

/* Of steps over the same batch with the same weights; then once more, backwards. */
static void losses_of(enum ddp_mode_kind kind, float losses[STEPS])
{
    ddp_mode *mode;
    open_setup(kind, 0.5, false);
    ck_assert_int_eq(ddp_mode_create(&mode, kind, &setup), DDP_OK);
    for (int64_t step = 0; step < STEPS; step++)
        losses[step] = run_step(mode, 0, step, 0);
    for (int64_t step = STEPS - 1; step >= 0; step--)
        ck_assert_float_eq(run_step(mode, 0, step, 0), losses[step]);
    ddp_mode_destroy(mode);
    close_setup();
}

/* Another loss in each step is another mask; it is the same in every mode. */
START_TEST(each_step_has_its_own_mask)
{
    float losses[STEPS], others[STEPS];
    losses_of(DDP_MODE_ACCUM, losses);
    for (int step = 0; step < STEPS; step++)
        for (int before = 0; before < step; before++)
            ck_assert_msg(losses[step] != losses[before], "steps %d and %d have the same mask",
                          before, step);
    for (int kind = DDP_MODE_ACCUM + 1; kind <= DDP_MODE_DP; kind++) {
        losses_of((enum ddp_mode_kind)kind, others);
        ck_assert_msg(memcmp(losses, others, sizeof losses) == 0, "other masks in %s",
                      ddp_mode_names[kind]);
    }
}
END_TEST

/* Masks depend on step, shard, seed and layer, each by itself. */
START_TEST(masks_differ)
{
    static const struct ddp_exec_position positions[] = {{3, 0, 0}, {3, 1, 0}, {3, 2, 0}, {3, 0, 1},
                                                         {3, 0, 2}, {4, 0, 0}, {3, 1, 1}};
    enum { POSITIONS = sizeof positions / sizeof positions[0], ELEMENTS = 64 };
    float x[ELEMENTS], masks[POSITIONS][ELEMENTS], again[ELEMENTS];
    ddp_device *device;
    ddp_exec *exec;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *ones = ddp_graph_input(graph, "ones", DDP_F32, 2, (int64_t[]){8, 8});
    ddp_tensor *weight = ddp_graph_parameter(graph, "weight", 2, (int64_t[]){8, 8},
                                             (struct ddp_init){.kind = DDP_INIT_ZEROS});
    ddp_tensor *first = ddp_graph_dropout(graph, ones, 0.5);
    ddp_tensor *second = ddp_graph_dropout(graph, ones, 0.5);
    ddp_tensor *y = ddp_graph_add(graph, ddp_graph_add(graph, first, first), second);
    y = ddp_graph_add(graph, y, ddp_graph_linear(graph, ones, weight, NULL, DDP_ACTIVATION_NONE));
    ck_assert_int_eq(ddp_graph_finish(graph, y, ddp_graph_sum(graph, y)), DDP_OK);
    weights = calloc((size_t)ddp_graph_flat_count(graph), sizeof *weights);
    ck_assert_ptr_nonnull(weights);
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device,
                                     DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD, weights),
                     DDP_OK);
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = 1;
    ddp_exec_bind_input(exec, 0, x);
    for (int p = 0; p < POSITIONS; p++) {
        ddp_exec_set_position(exec, &positions[p]);
        ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
        memcpy(masks[p], ddp_exec_output(exec), sizeof x);
        for (int q = 0; q < p; q++)
            ck_assert_msg(memcmp(masks[p], masks[q], sizeof x) != 0, "masks %d and %d", q, p);
    }
    bool both = false, one = false; /* elements that one layer drops, and the other does not */
    for (int i = 0; i < ELEMENTS; i++) {
        both = both || masks[0][i] == 4;
        one = one || masks[0][i] == 2;
    }
    ck_assert_msg(both && one, "both layers have the same mask");
    ddp_exec_set_position(exec, &positions[0]);
    ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
    memcpy(again, ddp_exec_output(exec), sizeof x);
    ck_assert_int_eq(memcmp(again, masks[0], sizeof x), 0);
    ddp_exec_destroy(exec);
    ddp_device_close(device);
    close_setup();
}
END_TEST

/* Backward ends pieces anywhere, and what is in front of them may be gone then. */
START_TEST(noise_is_measured_in_pieces)
{
    static const int64_t ends[] = {40, 4096, 4099, 9000, 9001, 13000, 16384, 20001};
    static float gradients[20001];
    double sums[2][5];
    struct ddp_device *device;
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    struct ddp_noise noise = {.device = device, .first = 32, .end = 20001};
    for (int pieces = 0; pieces < 2; pieces++) {
        int64_t begin = 0;
        for (int i = 0; i < 20001; i++)
            gradients[i] = sinf((float)i);
        noise.sums = sums[pieces];
        for (size_t i = pieces ? 0 : 7; i < 8; begin = ends[i++]) {
            ck_assert_int_eq(ddp_noise_measure(&noise, gradients, begin, ends[i]), DDP_OK);
            for (int64_t gone = 0; gone < ends[i] / DDP_NORM_BLOCK * DDP_NORM_BLOCK; gone++)
                gradients[gone] = NAN;
        }
        ck_assert_int_eq(noise.done, noise.end);
    }
    ck_assert_int_eq(memcmp(sums[0], sums[1], sizeof sums[0]), 0);
    ddp_device_close(device);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("step");
    TCase *tc = test_case(suite, "step", 60);
    tcase_add_checked_fixture(tc, open_job, close_job);
    tcase_add_loop_test(tc, what_is_not_finite_is_left_out, 0, 9);
    tcase_add_loop_test(tc, overflow_halves_the_scale, 0, 3);
    tcase_add_test(tc, each_step_has_its_own_mask);
    tcase_add_test(tc, masks_differ);
    tcase_add_test(tc, noise_is_measured_in_pieces);
    return suite;
}
