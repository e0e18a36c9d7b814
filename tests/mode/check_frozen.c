/* SPDX-License-Identifier: MIT
 *
 * Frozen parameters: what is learned beside them begins alike and gets the same gradients, to the
 * bit, as if they were learned too; bf16 has the bits of the same values in float32; all modes end
 * in the same bits, and nothing but the values is held of them. */
#include "config.h"

#include "core/bf16.h"
#include "core/memory.h"
#include "tests/mode/mode_test.h"

#define WIDTH 24
#define WORDS 37
#define ROWS  3
#define TIMES 4

/* Which layers are frozen, by bits. */
enum { EMBEDDING = 1, UP = 2, NORM = 4, DOWN = 8, HEAD = 16, LAYERS = 32 };

static int frozen_layers;
static enum ddp_dtype frozen_dtype;

static void begin(ddp_graph *g, int layer)
{
    if (frozen_layers & layer)
        ddp_graph_begin_frozen(g, frozen_dtype);
}

static ddp_tensor *layer(ddp_graph *g, int number, const char *name, ddp_tensor *x, int64_t out,
                         enum ddp_activation activation)
{
    begin(g, number);
    ddp_tensor *y = ddp_graph_linear_layer(g, name, x, out, true, activation);
    ddp_graph_end_frozen(g);
    return y;
}

/* Learned layers lie above the frozen ones, below them, and between. */
static enum ddp_status finish(ddp_graph *g, ddp_tensor *x, int64_t classes, ddp_tensor *labels)
{
    ddp_graph_begin_block(g);
    ddp_tensor *up = layer(g, UP, "up", x, 2 * WIDTH, DDP_ACTIVATION_GELU_TANH);
    begin(g, NORM);
    up = ddp_graph_layer_norm_layer(g, "norm", up, 1e-5f);
    ddp_graph_end_frozen(g);
    ddp_tensor *middle =
        ddp_graph_linear_layer(g, "middle", up, 2 * WIDTH, false, DDP_ACTIVATION_NONE);
    ddp_tensor *down =
        layer(g, DOWN, "down", ddp_graph_add(g, up, middle), WIDTH, DDP_ACTIVATION_RELU);
    x = ddp_graph_add(g, down, x);
    ddp_graph_end_block(g);
    ddp_tensor *logits = layer(g, HEAD, "head", x, classes, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(g, logits, ddp_graph_softmax_cross_entropy(g, logits, labels));
}

static enum ddp_status build_words(ddp_graph *g, const struct ddp_model_config *config)
{
    const int64_t dims[] = {config->batch, TIMES};
    const struct ddp_init init = {DDP_INIT_NORMAL, 0, 0.5};
    ddp_tensor *tokens = ddp_graph_input(g, "tokens", DDP_I32, 2, dims);
    ddp_tensor *labels = ddp_graph_input(g, "labels", DDP_I32, 2, dims);
    begin(g, EMBEDDING);
    ddp_tensor *wte = ddp_graph_parameter(g, "wte", 2, (int64_t[]){WORDS, WIDTH}, init);
    ddp_tensor *wpe = ddp_graph_parameter(g, "wpe", 2, (int64_t[]){TIMES, WIDTH}, init);
    ddp_graph_end_frozen(g);
    return finish(g, ddp_graph_embedding(g, tokens, wte, wpe), WORDS, labels);
}

static enum ddp_status build_numbers(ddp_graph *g, const struct ddp_model_config *config)
{
    ddp_tensor *x = ddp_graph_input(g, "x", DDP_F32, 2, (int64_t[]){config->batch, FEATURES});
    ddp_tensor *labels = ddp_graph_input(g, "labels", DDP_I32, 1, (int64_t[]){config->batch});
    x = layer(g, EMBEDDING, "first", x, WIDTH, DDP_ACTIVATION_NONE);
    return finish(g, x, CLASSES, labels);
}

static const struct ddp_model words = {.name = "words", .build = build_words},
                              numbers = {.name = "numbers", .build = build_numbers};

/* --- an exec ---------------------------------------------------------------------------------- */

struct fixture {
    ddp_graph *graph;
    ddp_device *device;
    ddp_exec *exec;
    struct ddp_frozen_host host;
    struct ddp_frozen frozen;
    float *weights, *gradients;
    uint16_t *weights_bf16;
    int32_t tokens[ROWS * TIMES], labels[ROWS * TIMES];
};

/* What options do to a graph. */
enum { COMPUTES_BF16 = 1, RECOMPUTES = 2, PADS = 4, WITHOUT_COPIES = 8 };

static void open_fixture(struct fixture *f, int layers, enum ddp_dtype dtype, int way)
{
    const enum ddp_dtype compute = way & COMPUTES_BF16 ? DDP_BF16 : DDP_F32;
    struct ddp_model_config config = {.batch = ROWS, .compute = compute};
    struct ddp_rng rng;
    memset(f, 0, sizeof *f);
    frozen_layers = layers;
    frozen_dtype = dtype;
    config.recompute = way & RECOMPUTES;
    config.offers.pads_classes = way & PADS;
    ck_assert_int_eq(ddp_model_build(&f->graph, &words, &config), DDP_OK);
    ck_assert_int_eq(ddp_device_open(&f->device, "cpu", 0, 1), DDP_OK);
    const size_t count = (size_t)ddp_graph_flat_count(f->graph);
    f->weights = ddp_array_alloc(count, sizeof(float));
    f->gradients = ddp_array_alloc(count, sizeof(float));
    f->weights_bf16 = ddp_array_alloc(count, sizeof(uint16_t));
    for (int i = 0; i < ROWS * TIMES; i++) {
        f->tokens[i] = i * i % WORDS;
        f->labels[i] = i * 5 % WORDS;
    }
    ddp_rng_seed(&rng, 3);
    ck_assert_int_eq(ddp_frozen_host_alloc(&f->host, f->graph, NULL, true, compute), DDP_OK);
    ck_assert_int_eq(ddp_graph_init_parameters(f->graph, &rng, f->weights, f->host.values), DDP_OK);
}

/* With the weights as they are by now. */
static void open_exec(struct fixture *f, int way)
{
    const enum ddp_dtype compute = way & COMPUTES_BF16 ? DDP_BF16 : DDP_F32;
    for (int64_t i = 0; i < ddp_graph_flat_count(f->graph); i++)
        f->weights_bf16[i] = ddp_bf16_of(f->weights[i]);
    ck_assert_int_eq(ddp_frozen_host_complete(&f->host, f->graph, 1), DDP_OK);
    ck_assert_int_eq(ddp_frozen_open(&f->frozen, f->device, &f->host, f->graph, NULL, compute),
                     DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&f->exec, f->graph, f->device, ALL_PARTS, f->weights), DDP_OK);
    ddp_exec_set_weights_bf16(f->exec, f->weights_bf16);
    ddp_exec_set_frozen(f->exec, f->frozen.values, way & WITHOUT_COPIES ? NULL : f->frozen.rounded);
    ddp_exec_bind_input(f->exec, 0, f->tokens);
    ddp_exec_bind_input(f->exec, 1, f->labels);
    ddp_exec_set_gradients(f->exec, f->gradients);
}

static void close_fixture(struct fixture *f)
{
    ddp_exec_destroy(f->exec);
    ddp_frozen_close(&f->frozen);
    ddp_frozen_host_free(&f->host);
    ddp_device_close(f->device);
    ddp_graph_destroy(f->graph);
    free(f->weights);
    free(f->weights_bf16);
    free(f->gradients);
}

static double loss_of(struct fixture *f)
{
    ck_assert_int_eq(ddp_exec_forward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(f->exec), DDP_OK);
    return (double)*ddp_exec_loss_value(f->exec);
}

static double pass(struct fixture *f)
{
    const double loss = loss_of(f);
    ck_assert_int_eq(ddp_exec_loss_backward(f->exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(f->exec, NULL, NULL), DDP_OK);
    return loss;
}

/* Parameter i of `from`, which is learned there, where `f` has it. */
static struct ddp_parameter_place place_of(struct fixture *f, const char *name)
{
    for (int i = 0; i < ddp_graph_place_count(f->graph); i++) {
        const struct ddp_parameter_place place =
            ddp_graph_place_at(f->graph, i, f->weights, f->host.values);
        if (strcmp(place.parameter->name, name) == 0)
            return place;
    }
    ck_abort_msg("no parameter %s", name);
}

/* The fixture's values, in one where all is learned. */
static void copy_values(struct fixture *to, struct fixture *from, bool check)
{
    for (int i = 0; i < ddp_graph_parameter_count(to->graph); i++) {
        const struct ddp_parameter *p = ddp_graph_parameter_at(to->graph, i);
        const struct ddp_parameter_place place = place_of(from, p->name);
        float *values = to->weights + p->offset;
        if (place.parameter->dtype == DDP_F32 && check)
            ck_assert_msg(memcmp(values, place.memory, (size_t)p->count * sizeof *values) == 0,
                          "%s begins otherwise", p->name);
        for (int64_t k = 0; place.parameter->dtype == DDP_BF16 && k < p->count; k++) {
            const uint16_t value = ((const uint16_t *)place.memory)[k];
            ck_assert_uint_eq(value, ddp_bf16_of(values[k]));
            values[k] = ddp_bf16_to_f32(value);
        }
    }
}

/* Any layers frozen, in either dtype, in each way: gradients of the others are what they are where
 * all is learned. */
START_TEST(gradients_are_the_same)
{
    const int way = _i % 16;
    const enum ddp_dtype dtype = _i / 16 ? DDP_BF16 : DDP_F32;
    for (int layers = 0; layers < LAYERS; layers++) {
        struct fixture all, some;
        open_fixture(&all, 0, dtype, way);
        open_fixture(&some, layers, dtype, way);
        copy_values(&all, &some, true);
        open_exec(&all, way);
        open_exec(&some, way);
        ck_assert_double_eq(pass(&all), pass(&some));
        ck_assert_int_eq(ddp_graph_parameter_count(some.graph) + ddp_graph_frozen_count(some.graph),
                         ddp_graph_parameter_count(all.graph));
        for (int i = 0; i < ddp_graph_parameter_count(some.graph); i++) {
            const struct ddp_parameter *p = ddp_graph_parameter_at(some.graph, i);
            const int64_t other = place_of(&all, p->name).parameter->offset;
            ck_assert_msg(memcmp(some.gradients + p->offset, all.gradients + other,
                                 (size_t)p->count * sizeof(float)) == 0,
                          "layers %d: %s has another gradient", layers, p->name);
        }
        check_gaps(some.graph, some.gradients);
        close_fixture(&all);
        close_fixture(&some);
    }
}
END_TEST

START_TEST(gradients_are_slopes)
{
    struct fixture f;
    open_fixture(&f, EMBEDDING | UP | DOWN | HEAD, DDP_BF16, _i * PADS);
    open_exec(&f, 0);
    pass(&f);
    for (int p = 0; p < ddp_graph_parameter_count(f.graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(f.graph, p);
        for (int64_t i = 0; i < parameter->count; i += 7) {
            float *w = &f.weights[parameter->offset + i], saved = *w;
            const float h = 1e-3f;
            *w = saved + h;
            const double up = loss_of(&f);
            *w = saved - h;
            const double down = loss_of(&f), slope = (up - down) / (2 * (double)h);
            *w = saved;
            ck_assert_double_le(fabs(slope - (double)f.gradients[parameter->offset + i]),
                                2e-3 * (1 + fabs(slope)));
        }
    }
    close_fixture(&f);
}
END_TEST

/* Below the first learned layer nothing is kept, and a frozen layer does not keep its input. */
START_TEST(activations_are_not_kept)
{
    size_t bytes[3];
    const int layers[] = {0, EMBEDDING | UP | NORM, EMBEDDING | UP | NORM | DOWN | HEAD};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        open_fixture(&f, layers[i], DDP_F32, 0);
        ck_assert_int_eq(ddp_exec_arena_bytes(f.graph, ALL_PARTS, &bytes[i]), DDP_OK);
        close_fixture(&f);
    }
    ck_assert_uint_lt(bytes[1], bytes[0]);
    ck_assert_uint_lt(bytes[2], bytes[1]);
}
END_TEST

/* Where they lie: whole lines, those of float32 first; vectors are float32. */
START_TEST(places)
{
    struct fixture f;
    size_t end = 0;
    open_fixture(&f, LAYERS - 1, DDP_BF16, PADS);
    for (int dtype = 0; dtype < 2; dtype++) {
        for (int i = 0; i < ddp_graph_frozen_count(f.graph); i++) {
            const struct ddp_parameter *p = ddp_graph_frozen_at(f.graph, i);
            ck_assert(p->frozen && p->offset < 0 &&
                      p->dtype == (p->dim_count == 2 ? DDP_BF16 : DDP_F32));
            if ((p->dtype == DDP_BF16) != dtype)
                continue;
            ck_assert_uint_ge(p->place, end);
            ck_assert_uint_eq(p->place % DDP_CACHE_LINE, 0);
            end = p->place + ddp_frozen_bytes(p);
        }
        if (!dtype)
            ck_assert(ddp_graph_frozen_f32_bytes(f.graph) >= end);
    }
    ck_assert(ddp_graph_frozen_bytes(f.graph) >= end);
    ck_assert_int_eq(place_of(&f, "head.weight").parameter->padding, 3 * WIDTH);
    close_fixture(&f);
}
END_TEST

/* --- modes ------------------------------------------------------------------------------------ */

/* Every mode, with the base in either dtype, and layers of which whole stages are frozen. */
START_TEST(modes_end_in_the_same_bits)
{
    static const int layers[] = {EMBEDDING | UP | NORM | DOWN | HEAD, EMBEDDING | UP, DOWN | HEAD,
                                 NORM};
    const int64_t shards = 8;
    subject = &numbers;
    update = _i % 3;
    frozen_dtype = _i & 1 ? DDP_BF16 : DDP_F32;
    bf16 = _i & 2;
    frozen_layers = layers[_i / 4];
    struct result accum = train(DDP_MODE_ACCUM, 1, shards), other;
    for (int block = 1; block <= shards; block *= 2) {
        other = train(DDP_MODE_DP, (int)shards / block, block);
        same(&accum, &other, "dp", shards);
    }
    for (stages = 2; stages <= 5; stages++) {
        other = train(DDP_MODE_PIPELINE, 1, shards);
        same(&accum, &other, "pipeline", shards);
    }
}
END_TEST

/* One copy of the values, whatever the mode, and nothing else. */
START_TEST(memory_is_that_of_the_values)
{
    const enum ddp_mode_kind kinds[] = {DDP_MODE_ACCUM, DDP_MODE_DP, DDP_MODE_PIPELINE};
    subject = &numbers;
    update = 1;
    bf16 = _i & 1;
    frozen_dtype = _i & 2 ? DDP_BF16 : DDP_F32;
    frozen_layers = EMBEDDING | UP | NORM | DOWN;
    for (int i = 0; i < 3; i++) {
        struct ddp_mode_memory memory = {0};
        ddp_mode *mode;
        open_setup(kinds[i] == DDP_MODE_DP ? 4 : 1, 2);
        if (kinds[i] == DDP_MODE_PIPELINE)
            cut_setup();
        ck_assert_int_eq(ddp_mode_create(&mode, kinds[i], &setup), DDP_OK);
        ck_assert_int_eq(ddp_mode_memory(mode, &memory), DDP_OK);
        const size_t bytes = ddp_frozen_host_bytes(graph, bf16 ? DDP_BF16 : DDP_F32);
        ck_assert_uint_ge(memory.frozen, bytes);
        ck_assert_uint_le(memory.frozen, bytes + 8);
        const size_t flat = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
        if (kinds[i] == DDP_MODE_ACCUM) {
            ck_assert_uint_le(memory.weights, 2 * flat);
            ck_assert_uint_le(memory.optimizer, 2 * flat + 64);
        }
        ck_assert_ptr_eq(ddp_mode_frozen(mode)->values[0],
                         (char *)frozen.values + ddp_graph_frozen_at(graph, 0)->place);
        ddp_mode_destroy(mode);
        close_setup();
    }
}
END_TEST

/* The hash is that of the values, wherever they lie. */
START_TEST(the_hash_is_of_the_values)
{
    struct fixture f, padded;
    open_fixture(&f, UP | HEAD, DDP_BF16, 0);
    open_fixture(&padded, UP | HEAD, DDP_BF16, PADS);
    const uint64_t hash = ddp_frozen_hash(f.graph, f.host.values);
    ck_assert_uint_eq(hash, ddp_frozen_hash(padded.graph, padded.host.values));
    for (int i = 0; i < ddp_graph_frozen_count(f.graph); i++) {
        const struct ddp_parameter *p = ddp_graph_frozen_at(f.graph, i);
        char *last =
            (char *)f.host.values + p->place + (size_t)p->count * ddp_dtype_bytes(p->dtype) - 1;
        *last ^= 1;
        ck_assert_uint_ne(hash, ddp_frozen_hash(f.graph, f.host.values));
        *last ^= 1;
    }
    ck_assert_uint_eq(hash, ddp_frozen_hash(f.graph, f.host.values));
    close_fixture(&f);
    close_fixture(&padded);
}
END_TEST

START_TEST(bad_ones_are_refused)
{
    const struct ddp_init init = {.kind = DDP_INIT_ZEROS};
    for (int i = 0; i < 3; i++) {
        ddp_graph *g;
        ck_assert_int_eq(ddp_graph_create(&g), DDP_OK);
        ddp_graph_parameter(g, "a", 1, (int64_t[]){1}, init);
        ck_assert_ptr_null(ddp_graph_frozen(g,
                                            i == 0   ? "a"
                                            : i == 1 ? "b"
                                                     : NULL,
                                            1, (int64_t[]){1}, init, i == 1 ? DDP_I32 : DDP_F32));
        ddp_graph_destroy(g);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("frozen");
    TCase *tc = tcase_create("frozen");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, gradients_are_the_same, 0, 32);
    tcase_add_loop_test(tc, gradients_are_slopes, 0, 2);
    tcase_add_test(tc, activations_are_not_kept);
    tcase_add_test(tc, places);
    tcase_add_test(tc, the_hash_is_of_the_values);
    tcase_add_test(tc, bad_ones_are_refused);
    suite_add_tcase(suite, tc);
    TCase *modes = tcase_create("modes");
    tcase_set_timeout(modes, 120);
    tcase_add_checked_fixture(modes, open_job, close_job);
    tcase_add_loop_test(modes, modes_end_in_the_same_bits, 0, 16);
    tcase_add_loop_test(modes, memory_is_that_of_the_values, 0, 4);
    suite_add_tcase(suite, modes);
    return suite;
}
