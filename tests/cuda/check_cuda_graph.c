/* SPDX-License-Identifier: MIT
 *
 * Whole models on a CUDA device: activations in bf16 beside the CPU's in float32, sums and norms in
 * one pass beside one after another, text generated with a cache beside full passes. */
#include "config.h"

#include "core/memory.h"
#include "graph/exec.h"
#include "graph/internal.h"
#include "kernels/bf16.h"
#include "model/model.h"
#include "tests/cuda/cuda_test.h"
#include "tests/lib/gaps.h"
#include "tests/generate/generate_test.h"
#include "tests/lib/model_option.h"

#include <math.h>
#include <string.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define SAMPLES   4

struct subject {
    const struct ddp_model *model;
    const char *options[6]; /* names and values */
    struct ddp_model_config config;
};

/* Tokens, one table for them and the head, and the loss in the head. */
static enum ddp_status build_headed(ddp_graph *graph, const struct ddp_model_config *config)
{
    const int64_t dims[] = {config->batch, config->dims[0]};
    const struct ddp_init init = {.kind = DDP_INIT_NORMAL, .std = 0.2};
    ddp_tensor *x = ddp_graph_input(graph, "tokens", DDP_I32, 2, dims);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 2, dims);
    ddp_tensor *table =
        ddp_graph_parameter(graph, "table", 2, (int64_t[]){config->classes, 16}, init);
    x = ddp_graph_embedding(graph, x, table, NULL);
    x = ddp_graph_linear_layer(graph, "fc", x, 32, true, DDP_ACTIVATION_GELU);
    x = ddp_graph_linear_layer(graph, "out", x, 16, true, DDP_ACTIVATION_NONE);
    ddp_tensor *loss = ddp_graph_head_cross_entropy(graph, x, table, labels);
    return ddp_graph_finish(graph, loss, loss);
}

static const struct ddp_model headed = {
    .name = "headed", .x_dtype = DDP_I32, .build = build_headed};

static const struct subject subjects[] = {
    {&ddp_model_gpt2,
     {"layers", "2", "heads", "2", "channels", "16"},
     {.dim_count = 1, .dims = {12}, .classes = 19, .label_count = 12}},
    {&ddp_model_gpt2, /* a vocabulary that is padded to whole tiles */
     {"layers", "1", "heads", "2", "channels", "16"},
     {.dim_count = 1, .dims = {12}, .classes = 1029, .label_count = 12}},
    {&ddp_model_mlp, {"hidden", "33,17"}, {.features = 24, .classes = 5}},
    {&ddp_model_cnn, {NULL}, {.features = 768, .dim_count = 3, .dims = {3, 16, 16}, .classes = 5}},
    {&ddp_model_resnet,
     {NULL},
     {.features = 768, .dim_count = 3, .dims = {3, 16, 16}, .classes = 5, .size = "20"}},
    {&headed, {NULL}, {.dim_count = 1, .dims = {12}, .classes = 1029, .label_count = 12}},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, GPT2 = 0 };

/* One pass over one batch; results on the host. */
struct result {
    float loss;
    float *gradients;
    size_t count;
    int fused;
};

static void *on_device(ddp_device *device, const void *host, size_t bytes)
{
    void *memory;
    ck_assert_int_eq(ddp_device_alloc(device, bytes, &memory), DDP_OK);
    if (host)
        ck_assert_int_eq(ddp_device_copy_in(device, memory, host, bytes), DDP_OK);
    return memory;
}

struct pass {
    ddp_graph *graph;
    ddp_device *device;
    ddp_exec *exec;
    float *weights, *gradients; /* device */
    uint16_t *rounded;
    void *inputs[2];
    size_t bytes, input_bytes[2];
};

static void give_weights(struct pass *p)
{
    const size_t count = (size_t)ddp_graph_flat_count(p->graph);
    float *host = ddp_array_alloc(count, sizeof *host);
    struct ddp_rng rng;
    ddp_rng_seed(&rng, 5);
    ddp_graph_init_parameters(p->graph, &rng, host, NULL);
    p->bytes = count * sizeof *host;
    p->weights = on_device(p->device, host, p->bytes);
    p->gradients = on_device(p->device, NULL, p->bytes);
    p->rounded = on_device(p->device, NULL, p->bytes / 2);
    const struct ddp_to_bf16 args = {(int64_t)count, p->weights, p->rounded};
    ck_assert_int_eq(ddp_device_kernels(p->device)->to_bf16(&args, ddp_device_stream(p->device)),
                     DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(p->device), DDP_OK);
    free(host);
}

/* Samples are numbers, or tokens with a class each for labels. */
static void give_inputs(struct pass *p, const struct ddp_model_config *config, bool tokens)
{
    for (int i = 0; i < 2; i++) {
        p->input_bytes[i] = ddp_exec_input_bytes(p->exec, i);
        const size_t count = p->input_bytes[i] / 4;
        void *host = ddp_array_alloc(count, 4);
        struct ddp_rng rng;
        ddp_rng_seed(&rng, 7);
        if (i == 0 && !tokens)
            ddp_rng_fill_normal(&rng, host, count, 0, 1);
        else
            for (size_t k = 0; k < count; k++)
                ((int32_t *)host)[k] = (int32_t)((k * k + (size_t)i) % (size_t)config->classes);
        p->inputs[i] = on_device(p->device, host, p->input_bytes[i]);
        ck_assert_int_eq(ddp_device_synchronize(p->device), DDP_OK);
        ddp_exec_bind_input(p->exec, i, p->inputs[i]);
        free(host);
    }
}

static void open_pass(struct pass *p, const struct subject *subject, const char *device,
                      enum ddp_dtype compute, enum ddp_dtype activations, bool fuses)
{
    struct ddp_model_config config = subject->config;
    memset(p, 0, sizeof *p);
    config.batch = SAMPLES;
    config.compute = compute;
    config.activations = activations;
    config.offers.fuses_norms = fuses;
    config.offers.pads_classes = true;
    for (int i = 0; i < 6 && subject->options[i]; i += 2)
        set_model_option(&config, subject->model, subject->options[i], subject->options[i + 1]);
    if (subject->model->dataset)
        ck_assert_int_eq(ddp_model_configure(subject->model, &config), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&p->graph, subject->model, &config), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&p->device, device, 0, 1), DDP_OK);
    give_weights(p);
    ck_assert_int_eq(ddp_exec_create(&p->exec, p->graph, p->device, ALL_PARTS, p->weights), DDP_OK);
    const size_t granule = config.classes > 1024 ? 128 : 8, bytes = ddp_exec_output_bytes(p->exec);
    if (!ddp_graph_outputs_loss(p->graph)) {
        const int64_t rows = ddp_graph_output_count(p->graph) / config.classes;
        ck_assert_uint_eq(bytes / (size_t)rows % (granule * ddp_dtype_bytes(activations)), 0);
    }
    if (compute == DDP_BF16)
        ddp_exec_set_weights_bf16(p->exec, p->rounded);
    ddp_exec_set_gradients(p->exec, p->gradients);
    give_inputs(p, &config, subject->model->x_dtype == DDP_I32);
}

static void close_pass(struct pass *p)
{
    ddp_exec_destroy(p->exec);
    for (int i = 0; i < 2; i++)
        ddp_device_free(p->device, p->inputs[i], p->input_bytes[i]);
    ddp_device_free(p->device, p->rounded, p->bytes / 2);
    ddp_device_free(p->device, p->gradients, p->bytes);
    ddp_device_free(p->device, p->weights, p->bytes);
    ddp_device_close(p->device);
    ddp_graph_destroy(p->graph);
}

static struct result run(const struct subject *subject, const char *device, enum ddp_dtype compute,
                         enum ddp_dtype activations, bool fuses)
{
    struct pass p;
    struct result result = {0};
    open_pass(&p, subject, device, compute, activations, fuses);
    for (int n = 0; n < p.graph->node_count; n++)
        result.fused += ddp_graph_fuses(p.graph, n);
    ck_assert(!ddp_device_kernels(p.device)->add_layer_norm_forward ==
              (strcmp(device, "cpu") == 0));
    ck_assert_int_eq(ddp_exec_forward(p.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(p.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss_backward(p.exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(p.exec, NULL, NULL), DDP_OK);
    result.count = p.bytes / sizeof(float);
    result.gradients = ddp_array_alloc(result.count, sizeof(float));
    ck_assert_int_eq(ddp_device_copy_out(p.device, result.gradients, p.gradients, p.bytes), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(p.device), DDP_OK);
    result.loss = result.gradients[0];
    check_gaps(p.graph, result.gradients);
    close_pass(&p);
    return result;
}

static double distance(const struct result *a, const struct result *b)
{
    double difference = 0, size = 0;
    ck_assert_uint_eq(a->count, b->count);
    for (size_t i = DDP_FLAT_ALIGN; i < a->count; i++) {
        const double off = (double)a->gradients[i] - (double)b->gradients[i];
        difference += off * off;
        size += (double)b->gradients[i] * (double)b->gradients[i];
    }
    ck_assert_double_gt(size, 0);
    return sqrt(difference / size);
}

/* How far is near, depends on the model: operands of products that are rounded, as on the CPU, take
 * the gradients some way from those of float32, and rounding all activations a few times that. */
START_TEST(bf16_activations_are_near_the_cpu)
{
    const struct subject *subject = &subjects[_i];
    struct result exact = run(subject, "cpu", DDP_F32, DDP_F32, false);
    struct result cpu = run(subject, "cpu", DDP_BF16, DDP_F32, false);
    struct result cuda = run(subject, "cuda", DDP_BF16, DDP_BF16, true);
    struct result again = run(subject, "cuda", DDP_BF16, DDP_BF16, true);
    const double rounding = distance(&cpu, &exact), off = distance(&cuda, &exact);
    ck_assert_msg(off < 2 * rounding && off > rounding / 2,
                  "%s: gradients are %g off, and the CPU's %g", subject->model->name, off,
                  rounding);
    ck_assert_double_lt(fabs((double)cuda.loss - (double)cpu.loss), 0.01 * fabs((double)cpu.loss));
    ck_assert_mem_eq(cuda.gradients, again.gradients, cuda.count * sizeof(float));
    free(exact.gradients);
    free(cpu.gradients);
    free(cuda.gradients);
    free(again.gradients);
}
END_TEST

/* The same bits, in both kinds of activations; a CPU, which cannot, does not either. */
START_TEST(fused_norms_give_the_same_bits)
{
    const enum ddp_dtype activations = _i == 1 ? DDP_BF16 : DDP_F32;
    const char *device = _i == 2 ? "cpu" : "cuda";
    struct result fused = run(&subjects[GPT2], device, activations, activations, true);
    struct result plain = run(&subjects[GPT2], device, activations, activations, false);
    ck_assert_int_eq(fused.fused, 4);
    ck_assert_int_eq(plain.fused, 0);
    ck_assert_mem_eq(fused.gradients, plain.gradients, plain.count * sizeof(float));
    free(fused.gradients);
    free(plain.gradients);
}
END_TEST

/* The CPU says which operation has been asked for too much. */
START_TEST(the_cpu_refuses_bf16)
{
    struct pass p;
    open_pass(&p, &subjects[GPT2], "cpu", DDP_BF16, DDP_BF16, false);
    ck_assert(!ddp_device_kernels(p.device)->bf16_activations);
    ck_assert_int_eq(ddp_exec_forward(p.exec), DDP_ERR_UNSUPPORTED);
    close_pass(&p);
}
END_TEST

START_TEST(float32_heads_are_near_the_cpu)
{
    struct result cpu = run(&subjects[SUBJECTS - 1], "cpu", DDP_F32, DDP_F32, false);
    struct result cuda = run(&subjects[SUBJECTS - 1], "cuda", DDP_F32, DDP_F32, false);
    ck_assert_double_lt(distance(&cuda, &cpu), 1e-5);
    ck_assert_float_eq_tol(cuda.loss, cpu.loss, 1e-5f);
    ck_assert(cuda.gradients[1] == 0 && cpu.gradients[1] == 0);
    free(cpu.gradients);
    free(cuda.gradients);
}
END_TEST

/* In parts: a simulated device takes long. */
START_TEST(generation_is_near_the_cpu)
{
    ddp_device *device;
    ck_assert_int_eq(ddp_device_open(&device, "cuda", 0, 1), DDP_OK);
    const struct ddp_llama llama = gen_llama(true);
    struct generation g = _i % 2 ? gen_open_shape(device, NULL, &llama) : gen_open(device, 2, 32);
    if (_i < 2)
        gen_check_logits(&g, 1e-5);
    else
        gen_check_company(&g, _i < 4 ? 1 : GEN_SAMPLES - 1, _i < 4 ? 2 : GEN_SAMPLES);
    gen_close(&g);
    ddp_device_close(device);
}
END_TEST

Suite *test_suite(void)
{
    cuda_test_begin();
    Suite *suite = suite_create("cuda_graph");
    TCase *tc = test_case(suite, "graph", 120);
    tcase_add_loop_test(tc, bf16_activations_are_near_the_cpu, 0, SUBJECTS);
    tcase_add_loop_test(tc, fused_norms_give_the_same_bits, 0, 3);
    tcase_add_test(tc, the_cpu_refuses_bf16);
    tcase_add_test(tc, float32_heads_are_near_the_cpu);
    tcase_add_loop_test(tc, generation_is_near_the_cpu, 0, 6);
    return suite;
}
