/* SPDX-License-Identifier: MIT
 *
 * Operations of a program's own: that of examples/own_op.c against finite differences, where its
 * input has other readers and where gradients are added up; what is refused. */
#include "config.h"

#define main example_main
int example_main(int argc, char **argv);
#include "examples/own_op.c"
#undef main

#include "core/memory.h"
#include "graph/exec.h"
#include "graph/internal.h"
#include "model/model.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>
#include <string.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

enum { BATCH = 5, FEATURES = 4, CLASSES = 3 };

/* a b, which may be one tensor; forward keeps b for backward. */
static enum ddp_status product_forward(void *arg, const struct ddp_custom_pass *pass)
{
    const float *a = pass->inputs[0].values, *b = pass->inputs[1].values;
    int *calls = arg;
    calls[0]++;
    ck_assert_ptr_null(pass->inputs[0].gradients);
    ck_assert_ptr_null(pass->output_gradients);
    ck_assert_int_eq(pass->saved != NULL, pass->trains);
    memset(pass->scratch, 0xff, 100);
    for (int64_t i = 0; i < pass->output_count; i++)
        pass->output[i] = a[i] * b[i];
    if (pass->saved)
        memcpy(pass->saved, b, (size_t)pass->output_count * sizeof *b);
    return (enum ddp_status)calls[2];
}

static enum ddp_status product_backward(void *arg, const struct ddp_custom_pass *pass)
{
    const float *a = pass->inputs[0].values, *b = pass->saved, *dy = pass->output_gradients;
    int *calls = arg;
    calls[1]++;
    ck_assert_ptr_null(pass->output);
    ck_assert_int_eq(pass->inputs[1].dims[1], FEATURES);
    memset(pass->scratch, 0xff, 100);
    for (int64_t i = 0; i < pass->output_count; i++) {
        ck_assert(pass->inputs[0].gradients[i] == 0 && pass->inputs[1].gradients[i] == 0);
        pass->inputs[0].gradients[i] += dy[i] * b[i];
        pass->inputs[1].gradients[i] += dy[i] * a[i];
    }
    return (enum ddp_status)calls[3];
}

static struct ddp_custom_op product_of(ddp_tensor *a, ddp_tensor *b, int *calls)
{
    struct ddp_custom_op op = DDP_CUSTOM_OP_INIT;
    op.name = "product";
    op.arg = calls;
    op.input_count = 2;
    op.inputs[0] = a;
    op.inputs[1] = b;
    op.dim_count = 2;
    op.dims[0] = BATCH;
    op.dims[1] = FEATURES;
    op.saved_bytes = BATCH * FEATURES * sizeof(float);
    op.scratch_bytes = 100;
    op.forward = product_forward;
    op.backward = product_backward;
    return op;
}

/* Readers of one tensor: the operations once, twice and beside others; a sum that shares memory. */
static enum ddp_status build_sharing(ddp_graph *graph, int *calls)
{
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){BATCH, FEATURES});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){BATCH});
    x = ddp_graph_linear_layer(graph, "first", x, FEATURES, true, DDP_ACTIVATION_NONE);
    ddp_tensor *y = swish(graph, "slope.a", x);
    struct ddp_custom_op op = product_of(x, y, calls);
    y = ddp_graph_add(graph, x, ddp_graph_custom(graph, &op));
    op = product_of(y, y, calls);
    y = ddp_graph_add(graph, ddp_graph_custom(graph, &op), y);
    y = ddp_graph_add(graph, swish(graph, "slope.b", y), x);
    y = ddp_graph_linear_layer(graph, "last", y, CLASSES, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, y, ddp_graph_softmax_cross_entropy(graph, y, labels));
}

struct fixture {
    ddp_graph *graph;
    ddp_device *device;
    ddp_exec *exec;
    float *weights, *gradients, x[BATCH * FEATURES];
    int32_t labels[BATCH];
    int calls[4]; /* forward, backward; what they return */
};

static void open_fixture(struct fixture *f, unsigned parts)
{
    struct ddp_rng rng;
    memset(f, 0, sizeof *f);
    ck_assert_int_eq(ddp_graph_create(&f->graph), DDP_OK);
    ck_assert_int_eq(build_sharing(f->graph, f->calls), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&f->device, "cpu", 0, 1), DDP_OK);
    const size_t count = (size_t)ddp_graph_flat_count(f->graph);
    f->weights = ddp_array_alloc(count, sizeof(float));
    f->gradients = ddp_array_alloc(count, sizeof(float));
    ddp_rng_seed(&rng, 5);
    ddp_graph_init_parameters(f->graph, &rng, f->weights, NULL);
    ddp_rng_fill_normal(&rng, f->x, BATCH * FEATURES, 0, 1);
    for (int i = 0; i < BATCH; i++)
        f->labels[i] = i % CLASSES;
    ck_assert_int_eq(ddp_exec_create(&f->exec, f->graph, f->device, parts, f->weights), DDP_OK);
    ddp_exec_bind_input(f->exec, 0, f->x);
    ddp_exec_bind_input(f->exec, 1, f->labels);
    if (parts & DDP_EXEC_BACKWARD)
        ddp_exec_set_gradients(f->exec, f->gradients);
}

static void close_fixture(struct fixture *f)
{
    ddp_exec_destroy(f->exec);
    ddp_device_close(f->device);
    ddp_graph_destroy(f->graph);
    free(f->weights);
    free(f->gradients);
}

static double loss_of(struct fixture *f)
{
    ck_assert_int_eq(ddp_exec_forward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(f->exec), DDP_OK);
    return (double)*ddp_exec_loss_value(f->exec);
}

static void run_backward(struct fixture *f)
{
    ck_assert_int_eq(ddp_exec_loss_backward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(f->exec, NULL, NULL), DDP_OK);
}

START_TEST(finite_differences)
{
    struct fixture f;
    open_fixture(&f, ALL_PARTS);
    loss_of(&f);
    run_backward(&f);
    ck_assert_int_eq(f.calls[0], 2);
    ck_assert_int_eq(f.calls[1], 2);
    for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(f.graph, p);
        for (int64_t i = 0; i < parameter->count; i++) {
            float *w = &f.weights[parameter->offset + i], saved = *w;
            const double analytic = (double)f.gradients[parameter->offset + i];
            const float h = 1e-3f;
            *w = saved + h;
            const double up = loss_of(&f);
            *w = saved - h;
            const double numeric = (up - loss_of(&f)) / (2 * (double)h);
            *w = saved;
            ck_assert_msg(fabs(numeric - analytic) < 1e-3 * (1 + fabs(numeric)),
                          "%s[%d]: backward %g, slope %g", parameter->name, (int)i, analytic,
                          numeric);
        }
    }
    close_fixture(&f);
}
END_TEST

/* The second shard of a lane adds to the first one's gradients: of equal shards exactly twice. */
START_TEST(shards_are_added)
{
    struct fixture f;
    open_fixture(&f, ALL_PARTS);
    loss_of(&f);
    run_backward(&f);
    const int64_t count = ddp_graph_flat_count(f.graph);
    float *once = ddp_array_alloc((size_t)count, sizeof *once);
    memcpy(once, f.gradients, (size_t)count * sizeof *once);
    ddp_exec_set_adding(f.exec, true);
    loss_of(&f);
    run_backward(&f);
    int changed = 0;
    for (int64_t i = 0; i < count; i++) {
        ck_assert_msg(f.gradients[i] == 2 * once[i], "element %d: %g, once %g", (int)i,
                      (double)f.gradients[i], (double)once[i]);
        changed += once[i] != 0;
    }
    ck_assert_int_gt(changed, 30);
    free(once);
    close_fixture(&f);
}
END_TEST

START_TEST(evaluation_keeps_nothing)
{
    struct fixture f;
    double trained, evaluated;
    open_fixture(&f, ALL_PARTS);
    trained = loss_of(&f);
    close_fixture(&f);
    open_fixture(&f, DDP_EXEC_NETWORK | DDP_EXEC_LOSS);
    evaluated = loss_of(&f);
    close_fixture(&f);
    ck_assert(trained == evaluated);
}
END_TEST

/* A status of the program's goes through, with a message; what is none becomes one. */
START_TEST(failures_are_reported)
{
    static const int returned[] = {DDP_ERR_IO, 1, DDP_ERR_PREEMPTED};
    static const int seen[] = {DDP_ERR_IO, DDP_ERR_INVALID, DDP_ERR_INVALID};
    struct fixture f;
    open_fixture(&f, ALL_PARTS);
    for (int i = 0; i < 3; i++) {
        f.calls[2] = returned[i];
        capture_start();
        ck_assert_int_eq(ddp_exec_forward(f.exec), seen[i]);
        ck_assert_ptr_nonnull(strstr(capture_stop(), "the program's operation product "));
        f.calls[2] = DDP_OK;
        loss_of(&f);
        ck_assert_int_eq(ddp_exec_loss_backward(f.exec), DDP_OK);
        f.calls[3] = returned[i];
        capture_start();
        ck_assert_int_eq(ddp_exec_backward(f.exec, NULL, NULL), seen[i]);
        ck_assert_ptr_nonnull(strstr(capture_stop(), "backward"));
        f.calls[3] = DDP_OK;
    }
    close_fixture(&f);
}
END_TEST

/* 0: as it should be; the others are refused. */
static enum ddp_status build_bad(int which)
{
    struct old_op { /* of a ddp.h that had no more */
        char bytes[offsetof(struct ddp_custom_op, backward)];
    } *old = NULL;
    int calls[4] = {0};
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    if (which == 9)
        ddp_graph_set_activations(graph, DDP_BF16);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){BATCH, FEATURES});
    ddp_tensor *w = ddp_graph_parameter(graph, "w", 2, (int64_t[]){FEATURES, BATCH},
                                        (struct ddp_init){.kind = DDP_INIT_ONES});
    if (which == 8)
        w = ddp_graph_reshape(graph, w, 2, (int64_t[]){BATCH, FEATURES});
    struct ddp_custom_op op = product_of(x, w, calls);
    op.struct_bytes = which == 1 ? 0 : sizeof op;
    op.name = which == 2 ? "" : "product";
    op.forward = which == 3 ? NULL : product_forward;
    op.input_count = which == 4 ? 0 : which == 5 ? DDP_CUSTOM_INPUTS + 1 : 2;
    op.dim_count = which == 6 ? DDP_TENSOR_DIMS + 1 : 2;
    op.backward = which == 7 ? NULL : product_backward;
    if (which == 10) { /* without backward, on the heap, where a sanitizer sees its end */
        op.struct_bytes = sizeof *old;
        old = malloc(sizeof *old);
        memcpy(old, &op, sizeof *old);
    }
    ddp_tensor *y = ddp_graph_custom(graph, old ? (const void *)old : &op);
    enum ddp_status status = ddp_graph_finish(graph, y, ddp_graph_sum(graph, y));
    free(old);
    ddp_graph_destroy(graph);
    return status;
}

START_TEST(bad_operations_are_refused)
{
    ck_assert_int_eq(build_bad(0), DDP_OK);
    for (int i = 1; i <= 10; i++) {
        capture_start();
        const enum ddp_status status = build_bad(i);
        const char *text = capture_stop();
        ck_assert_msg(status == (i == 8 || i == 9 ? DDP_ERR_UNSUPPORTED : DDP_ERR_INVALID),
                      "%d: %d", i, status);
        ck_assert_msg(strchr(text, '\n') == strrchr(text, '\n') && *text, "%d: %s", i, text);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("custom");
    TCase *tc = tcase_create("custom");
    tcase_add_test(tc, finite_differences);
    tcase_add_test(tc, shards_are_added);
    tcase_add_test(tc, evaluation_keeps_nothing);
    tcase_add_test(tc, failures_are_reported);
    tcase_add_test(tc, bad_operations_are_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
