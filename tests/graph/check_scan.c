/* SPDX-License-Identifier: MIT
 *
 * The search for the first tensor that is not finite, in an MLP whose parts are spoilt one by one.
 */
#include "config.h"

#include "core/memory.h"
#include "graph/scan.h"
#include "model/model.h"
#include "tests/lib/runner.h"
#include "tests/lib/model_option.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define ROWS      3
#define FEATURES  4

static struct ddp_model_config config = {.batch = ROWS, .features = FEATURES, .classes = 2};

static ddp_graph *graph;
static ddp_device *device;
static ddp_exec *exec;
static float *weights, *gradients, x[ROWS * FEATURES];
static const int32_t labels[ROWS] = {0, 0, 0};

static float *parameter(const char *name)
{
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++)
        if (strcmp(ddp_graph_parameter_at(graph, i)->name, name) == 0)
            return weights + ddp_graph_parameter_at(graph, i)->offset;
    ck_abort_msg("no parameter %s", name);
}

static void open_model(void)
{
    set_model_option(&config, &ddp_model_mlp, "hidden", "5");
    ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_mlp, &config), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    weights = ddp_array_alloc((size_t)ddp_graph_flat_count(graph), sizeof(float));
    gradients = ddp_array_alloc((size_t)ddp_graph_flat_count(graph), sizeof(float));
    ck_assert(weights && gradients);
    for (int i = 0; i < ROWS * FEATURES; i++)
        x[i] = 1;
    for (int i = 0; i < 5 * FEATURES; i++)
        parameter("fc1.weight")[i] = 0.25f;
    for (int i = 0; i < 2 * 5; i++)
        parameter("fc2.weight")[i] = 0.5f;
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device, ALL_PARTS, weights), DDP_OK);
    ddp_exec_bind_input(exec, 0, x);
    ddp_exec_bind_input(exec, 1, labels);
    ddp_exec_set_gradients(exec, gradients);
}

static void close_model(void)
{
    ddp_exec_destroy(exec);
    ddp_device_close(device);
    ddp_graph_destroy(graph);
    free(weights);
    free(gradients);
}

static void check_found(enum ddp_scan_tensor kind, const char *tensor, const char *operation,
                        int64_t bad, int64_t first)
{
    struct ddp_scan scan;
    ck_assert_int_eq(ddp_exec_scan(exec, &scan), DDP_OK);
    ck_assert_int_eq(scan.kind, kind);
    ck_assert_str_eq(scan.tensor, tensor);
    ck_assert_pstr_eq(scan.operation, operation);
    ck_assert_int_eq(scan.bad_count, bad);
    ck_assert_int_eq(scan.first, first);
    ck_assert(!isfinite(scan.value));
}

START_TEST(all_is_finite)
{
    struct ddp_scan scan;
    ck_assert_int_eq(ddp_exec_scan(exec, &scan), DDP_OK);
    ck_assert_int_eq(scan.kind, DDP_SCAN_NOTHING);
}
END_TEST

START_TEST(an_input)
{
    x[6] = NAN;
    x[9] = INFINITY;
    check_found(DDP_SCAN_INPUT, "samples", NULL, 2, 6);
}
END_TEST

START_TEST(a_weight)
{
    parameter("fc2.bias")[1] = -INFINITY;
    check_found(DDP_SCAN_WEIGHT, "fc2.bias", NULL, 1, 1);
}
END_TEST

/* 4 x 3e38 is too large for a float, in one of five columns. */
START_TEST(an_output)
{
    for (int i = 0; i < FEATURES; i++)
        parameter("fc1.weight")[2 * FEATURES + i] = 3e38f;
    check_found(DDP_SCAN_OUTPUT, "fc1", "linear", ROWS, 2);
}
END_TEST

/* The logits are -3 and 3, for what the large weights are multiplied with is small. Label 0, so
 * their gradient is about -1/3 and 1/3, and times the weights 1e38: a float. */
START_TEST(a_gradient)
{
    for (int i = 0; i < 5 * FEATURES; i++)
        parameter("fc1.weight")[i] = 0.5e-38f;
    for (int i = 0; i < 5; i++) {
        parameter("fc2.weight")[i] = i ? 0 : -1.5e38f;
        parameter("fc2.weight")[5 + i] = i ? 0 : 1.5e38f;
    }
    struct ddp_scan scan;
    ck_assert_int_eq(ddp_exec_scan(exec, &scan), DDP_OK);
    ck_assert_int_eq(scan.kind, DDP_SCAN_NOTHING);
    /* The same logits from an input of a thousand; the weights' gradient is 1e38 times that. */
    for (int i = 0; i < ROWS * FEATURES; i++)
        x[i] = 1000;
    for (int i = 0; i < 5 * FEATURES; i++)
        parameter("fc1.weight")[i] = 0.5e-41f;
    check_found(DDP_SCAN_GRADIENT, "fc1.weight", "linear", FEATURES, 0);
}
END_TEST

START_TEST(descriptions)
{
    char text[200];
    ddp_scan_describe(&(struct ddp_scan){DDP_SCAN_OUTPUT, "fc1", "linear", 15, 3, 2, INFINITY},
                      text, sizeof text);
    ck_assert_str_eq(text, "the output of linear, tensor fc1 (3 of 15 values, value 2 is inf)");
    ddp_scan_describe(&(struct ddp_scan){DDP_SCAN_GRADIENT, "fc1.bias", "linear", 5, 1, 0, -NAN},
                      text, sizeof text);
    ck_assert_str_eq(text, "the gradient of fc1.bias, from linear (1 of 5 values, value 0 is nan)");
    ddp_scan_describe(&(struct ddp_scan){DDP_SCAN_WEIGHT, "w", NULL, 5, 5, 0, -INFINITY}, text,
                      sizeof text);
    ck_assert_str_eq(text, "the weights w (5 of 5 values, value 0 is -inf)");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("scan");
    TCase *tcase = tcase_create("scan");
    tcase_add_checked_fixture(tcase, open_model, close_model);
    tcase_add_test(tcase, all_is_finite);
    tcase_add_test(tcase, an_input);
    tcase_add_test(tcase, a_weight);
    tcase_add_test(tcase, an_output);
    tcase_add_test(tcase, a_gradient);
    tcase_add_test(tcase, descriptions);
    suite_add_tcase(suite, tcase);
    return suite;
}
