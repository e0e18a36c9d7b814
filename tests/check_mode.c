/* SPDX-License-Identifier: MIT
 *
 * Modes and replicas through their own interfaces, with a tiny data set: the sum over shards is the
 * tree of reduce.h for any number of shards, all modes end in the same bits, and every allocation,
 * device and batch that fails half-way ends in an error with nothing left behind. The linker wraps
 * the calls that are made to fail (engine.am). */
#include "config.h"

#include "core/memory.h"
#include "kernels/reduce.h"
#include "mode/updater.h"
#include "model/model.h"
#include "tests/runner.h"
#include "tests/reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define SAMPLES   250
#define FEATURES  5
#define CLASSES   3
#define BATCH     4
#define STEPS     7 /* of up to 3 whole epochs: short last batches are among them */
#define SHARDS    33

/* --- calls that fail when told to --- */

static int64_t calls_until_failure = -1; /* -1: none fails */
static int64_t memory_blocks, devices, batches;

static bool fails(void)
{
    return calls_until_failure >= 0 && calls_until_failure-- == 0;
}

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAP(void *, ddp_array_alloc, size_t count, size_t size)
{
    return fails() ? NULL : __real_ddp_array_alloc(count, size);
}

WRAP(enum ddp_status, ddp_device_alloc, ddp_device *device, size_t bytes, void **memory)
{
    enum ddp_status status =
        fails() ? DDP_ERR_MEMORY : __real_ddp_device_alloc(device, bytes, memory);
    memory_blocks += status == DDP_OK;
    return status;
}

WRAP(void, ddp_device_free, ddp_device *device, void *memory, size_t bytes)
{
    memory_blocks -= memory != NULL;
    __real_ddp_device_free(device, memory, bytes);
}

WRAP(enum ddp_status, ddp_device_open, ddp_device **device, const char *kind, int index,
     int threads)
{
    enum ddp_status status =
        fails() ? DDP_ERR_UNSUPPORTED : __real_ddp_device_open(device, kind, index, threads);
    devices += status == DDP_OK;
    return status;
}

WRAP(void, ddp_device_close, ddp_device *device)
{
    devices -= device != NULL;
    __real_ddp_device_close(device);
}

WRAP(enum ddp_status, ddp_device_copy_in, ddp_device *device, void *to, const void *host,
     size_t bytes)
{
    return fails() ? DDP_ERR_SYSTEM : __real_ddp_device_copy_in(device, to, host, bytes);
}

WRAP(enum ddp_status, ddp_device_copy, ddp_device *device, void *to, const void *from, size_t bytes)
{
    return fails() ? DDP_ERR_SYSTEM : __real_ddp_device_copy(device, to, from, bytes);
}

WRAP(enum ddp_status, ddp_device_synchronize, ddp_device *device)
{
    return fails() ? DDP_ERR_SYSTEM : __real_ddp_device_synchronize(device);
}

WRAP(enum ddp_status, ddp_loader_next, ddp_loader *loader, const struct ddp_batch **batch)
{
    enum ddp_status status = fails() ? DDP_ERR_IO : __real_ddp_loader_next(loader, batch);
    batches += status == DDP_OK;
    return status;
}

WRAP(void, ddp_loader_release, ddp_loader *loader, const struct ddp_batch *batch)
{
    batches -= batch != NULL;
    __real_ddp_loader_release(loader, batch);
}

/* --- a data set, a model, a job --- */

static enum ddp_status read_samples(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *data, int32_t *labels)
{
    float *x = data;
    (void)dataset;
    for (size_t i = 0; i < count; i++) {
        for (int f = 0; f < FEATURES; f++)
            *x++ = sinf((float)(indices[i] * FEATURES + f));
        if (labels)
            labels[i] = (int32_t)(indices[i] * 7 % CLASSES);
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
static ddp_graph *graph, *tail_graph;
static float *weights;
static struct ddp_mode_setup setup;

/* How the weights are updated. */
static const struct {
    struct ddp_optimizer_config optimizer;
    bool decay_matrices_only, gradient_norm;
    double clip_norm;
} updates[] = {
    {.optimizer = {.name = "sgd", .momentum = 0.9}},
    {.optimizer = {.name = "adamw", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.5},
     .decay_matrices_only = true,
     .clip_norm = 0.125},
    {.optimizer = {.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
     .gradient_norm = true},
};
static bool zero, shared_weights, bf16; /* of setups */
static int update;                      /* the one of `updates` that setups have */

static ddp_graph *build(int64_t rows)
{
    ddp_graph *built;
    struct ddp_model_config config = {
        .batch = rows, .features = FEATURES, .classes = CLASSES, .hidden_count = 1, .hidden = {7}};
    ck_assert_int_eq(ddp_model_build(&built, &ddp_model_mlp, &config), DDP_OK);
    return built;
}

static struct ddp_sampler_config sampler_of(int64_t shards)
{
    return (struct ddp_sampler_config){
        .sample_count = SAMPLES, .shard_count = shards, .shuffle = true, .seed = 5};
}

/* A setup for so many units (replicas or one worker) of so many shards each. */
static void open_setup(int units, int64_t local_shards)
{
    struct ddp_rng rng;
    struct ddp_sampler_config sampler = sampler_of(units * local_shards);
    const int64_t samples = ddp_sampler_shard_samples(&sampler), tail = samples % BATCH;
    graph = build(BATCH);
    tail_graph = tail ? build(tail) : NULL;
    weights = calloc((size_t)ddp_graph_flat_count(graph), sizeof *weights);
    ck_assert_ptr_nonnull(weights);
    ddp_rng_seed(&rng, 1);
    ddp_graph_init_parameters(graph, &rng, weights);
    setup = (struct ddp_mode_setup){
        .graph = graph,
        .tail_graph = tail_graph,
        .batch_rows = BATCH,
        .tail_rows = tail ? tail : BATCH,
        .job = job,
        .comm = comm,
        .device = "cpu",
        .threads = 1,
        .replicas = units,
        .local_shards = local_shards,
        .global_shards = units * local_shards,
        .weights = weights,
        .optimizer = updates[update].optimizer,
        .decay_matrices_only = updates[update].decay_matrices_only,
        .clip_norm = updates[update].clip_norm,
        .gradient_norm = updates[update].gradient_norm,
        .zero = zero,
        .shared_weights = shared_weights,
        .compute = bf16 ? DDP_BF16 : DDP_F32,
        .bucket_bytes = 64,
    };
}

static void close_setup(void)
{
    ddp_graph_destroy(graph);
    ddp_graph_destroy(tail_graph);
    free(weights);
}

/* A job has few communicators, and a test many setups. */
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

static ddp_loader *open_loader(void)
{
    ddp_loader *loader;
    struct ddp_loader_config config = {.dataset = &dataset,
                                       .sampler = sampler_of(setup.global_shards),
                                       .batch_size = BATCH,
                                       .shard_count = setup.global_shards,
                                       .end_epoch = -1};
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    return loader;
}

/* What a training ends in. */
struct result {
    float weights[128], losses[STEPS];
    double norms[STEPS];
    size_t count;
};

static struct result train(enum ddp_mode_kind kind, int units, int64_t local_shards)
{
    struct result result = {0};
    ddp_mode *mode;
    open_setup(units, local_shards);
    ddp_loader *loader = open_loader();
    ck_assert_int_eq(ddp_mode_create(&mode, kind, &setup), DDP_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        ck_assert_int_eq(ddp_mode_step(mode, loader, 0.1, step, &result.losses[step]), DDP_OK);
        result.norms[step] = ddp_mode_gradient_norm(mode);
    }
    result.count = (size_t)ddp_graph_flat_count(graph);
    ck_assert_uint_le(result.count, 128);
    memcpy(result.weights, ddp_mode_weights(mode), result.count * sizeof(float));
    ck_assert(memcmp(result.weights, weights, result.count * sizeof(float)) != 0);
    ck_assert_int_eq(ddp_mode_weights_bf16(mode) != NULL, bf16);
    for (size_t i = 0; bf16 && i < result.count; i++)
        ck_assert_uint_eq(ddp_mode_weights_bf16(mode)[i], ddp_bf16_of(result.weights[i]));
    ddp_loader_destroy(loader);
    ddp_mode_destroy(mode);
    close_setup();
    ck_assert_int_eq(memory_blocks, 0);
    ck_assert_int_eq(devices, 0);
    return result;
}

/* --- tests --- */

/* The gradients of the shards, each alone. */
static void run_shards_alone(float *const *alone, ddp_loader *loader, int64_t shards)
{
    ddp_device *device;
    ddp_exec *exec;
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device, ALL_PARTS, weights), DDP_OK);
    for (int64_t s = 0; s < shards; s++) {
        const struct ddp_batch *batch;
        ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
        ddp_exec_bind_input(exec, 0, batch->x);
        ddp_exec_bind_input(exec, 1, batch->labels);
        ddp_exec_set_gradients(exec, alone[s]);
        ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
        ck_assert_int_eq(ddp_exec_loss(exec), DDP_OK);
        ck_assert_int_eq(ddp_exec_loss_backward(exec), DDP_OK);
        ck_assert_int_eq(ddp_exec_backward(exec, NULL, NULL), DDP_OK);
        ddp_loader_release(loader, batch);
    }
    ddp_exec_destroy(exec);
    ddp_device_close(device);
}

/* The binary counter of a replica gives the tree over its shards, loss included, twice in a row. */
START_TEST(local_sum_is_the_tree)
{
    const int64_t shards = _i;
    float *alone[SHARDS], *tree;
    struct ddp_replica replica;
    open_setup(1, shards);
    const size_t count = (size_t)ddp_graph_flat_count(graph);
    for (int64_t s = 0; s < shards; s++)
        ck_assert_ptr_nonnull(alone[s] = calloc(count, sizeof(float)));
    ck_assert_ptr_nonnull(tree = calloc(count, sizeof(float)));
    ddp_loader *loader = open_loader();
    run_shards_alone(alone, loader, shards);
    ddp_loader_destroy(loader);
    struct ddp_reduce reduce = {.source_count = (int)shards,
                                .destination_count = 1,
                                .sources = (const void *const *)alone,
                                .destinations = (void *const[]){tree},
                                .count = (int64_t)count,
                                .dtype = DDP_F32,
                                .op = DDP_SUM};
    ck_assert_int_eq(ddp_reduce_reference(&reduce), DDP_OK);

    ck_assert_int_eq(ddp_replica_open(&replica, &setup, 0, ALL_PARTS, NULL), DDP_OK);
    for (int round = 0; round < 2; round++) {
        loader = open_loader();
        for (int64_t s = 0; s < shards; s++) {
            const struct ddp_batch *batch;
            ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
            ck_assert_int_eq(ddp_replica_bind(&replica, s, batch), DDP_OK);
            ck_assert_int_eq(ddp_replica_run(&replica, NULL, NULL), DDP_OK);
            ddp_loader_release(loader, batch);
        }
        ddp_loader_destroy(loader);
        ck_assert_msg(memcmp(replica.gradients, tree, count * sizeof(float)) == 0,
                      "%lld shards, round %d: not the tree", (long long)shards, round);
    }
    ddp_replica_close(&replica);
    for (int64_t s = 0; s < shards; s++)
        free(alone[s]);
    free(tree);
    close_setup();
    ck_assert_int_eq(memory_blocks, 0);
}
END_TEST

static void same(const struct result *a, const struct result *b, const char *name, int64_t shards)
{
    ck_assert_msg(memcmp(a->weights, b->weights, a->count * sizeof(float)) == 0,
                  "%lld shards: %s ends in other weights", (long long)shards, name);
    ck_assert_msg(memcmp(a->losses, b->losses, sizeof a->losses) == 0,
                  "%lld shards: %s has other losses", (long long)shards, name);
    ck_assert_msg(memcmp(a->norms, b->norms, sizeof a->norms) == 0,
                  "%lld shards: %s has other norms", (long long)shards, name);
}

/* Every mode, and every split over replicas in aligned blocks of a power of two. */
START_TEST(modes_end_in_the_same_bits)
{
    const int shards = _i;
    update = shards % 3;
    bf16 = shards % 2; /* the copy that an update leaves */
    struct result accum = train(DDP_MODE_ACCUM, 1, shards), other;
    for (int kind = 0; kind < 3; kind++) {
        zero = kind > 0;
        shared_weights = kind > 1;
        other = train(DDP_MODE_DDP, 1, shards);
        same(&accum, &other, "ddp", shards);
    }
    for (int block = 1; block <= shards; block *= 2) {
        if (shards % block)
            continue;
        other = train(DDP_MODE_DP, shards / block, block);
        same(&accum, &other, "dp", shards);
    }
}
END_TEST

/* Blocks that are no subtree: the same within rounding. */
START_TEST(odd_blocks_agree_within_rounding)
{
    struct result accum = train(DDP_MODE_ACCUM, 1, 6), dp = train(DDP_MODE_DP, 2, 3);
    for (size_t i = 0; i < accum.count; i++)
        ck_assert_float_eq_tol(accum.weights[i], dp.weights[i], 1e-5f);
}
END_TEST

/* Clipping scales the gradient to the given norm, and weight decay leaves biases alone, also of
 * SGD; what clips nothing changes nothing. */
START_TEST(clipping_and_decay)
{
    struct ddp_mode *mode;
    struct ddp_parameter parameter;
    float loss, moved[3][128];
    double norm = 0;
    for (int run = 0; run < 3; run++) { /* plain, clipped, decayed */
        update = 0;
        open_setup(1, 2);
        setup.optimizer = (struct ddp_optimizer_config){.name = "sgd"};
        setup.gradient_norm = true;
        setup.clip_norm = run == 1 ? norm / 2 : run == 2 ? norm * 2 : 0;
        setup.optimizer.weight_decay = run == 2 ? 0.5 : 0;
        setup.decay_matrices_only = run == 2;
        ddp_loader *loader = open_loader();
        ck_assert_int_eq(ddp_mode_create(&mode, DDP_MODE_ACCUM, &setup), DDP_OK);
        ck_assert_int_eq(ddp_mode_step(mode, loader, 0.25, 0, &loss), DDP_OK);
        if (run == 0)
            norm = ddp_mode_gradient_norm(mode);
        ck_assert_double_eq(ddp_mode_gradient_norm(mode), norm);
        double squares = 0;
        for (int p = 0; p < ddp_graph_parameter_count(graph); p++) {
            parameter = *ddp_graph_parameter_at(graph, p);
            for (int64_t i = parameter.offset; i < parameter.offset + parameter.count; i++) {
                moved[run][i] = (weights[i] - ddp_mode_weights(mode)[i]) / 0.25f;
                squares += (double)moved[run][i] * (double)moved[run][i];
                if (run == 1)
                    ck_assert_float_eq_tol(moved[1][i], moved[0][i] / 2, 1e-5f);
                if (run == 2)
                    ck_assert_float_eq_tol(
                        moved[2][i], moved[0][i] + (parameter.dim_count > 1 ? weights[i] / 2 : 0),
                        1e-5f);
            }
        }
        if (run < 2)
            ck_assert_double_eq_tol(sqrt(squares), run == 1 ? norm / 2 : norm, 1e-5);
        ddp_loader_destroy(loader);
        ddp_mode_destroy(mode);
        close_setup();
    }
    ck_assert_double_gt(norm, 0.01);
}
END_TEST

static void nothing_left(const char *what, int64_t n)
{
    ck_assert_msg(memory_blocks == 0 && devices == 0 && batches == 0,
                  "%s %lld failed: %lld blocks, %lld devices, %lld batches are left", what,
                  (long long)n, (long long)memory_blocks, (long long)devices, (long long)batches);
}

/* Statistics follow the mean over the shards, are no part of the norm, and no optimizer moves them.
 */
START_TEST(statistics_follow)
{
    struct ddp_replica replica;
    struct ddp_updater updater;
    float loss;
    update = 0;
    open_setup(1, 1);
    ddp_graph_destroy(graph);
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){BATCH, FEATURES});
    ddp_tensor *running = ddp_graph_statistic(graph, "running", 21, DDP_INIT_ONES);
    ddp_tensor *weight = ddp_graph_parameter(graph, "weight", 2, (int64_t[]){21, FEATURES},
                                             (struct ddp_init){DDP_INIT_LINEAR, FEATURES, 0});
    x = ddp_graph_linear(graph, x, weight, running, DDP_ACTIVATION_NONE); /* it needs a reader */
    ck_assert_int_eq(ddp_graph_finish(graph, x, ddp_graph_sum(graph, x)), DDP_OK);
    setup.tail_graph = NULL;
    setup.graph = graph;
    setup.global_shards = 4;
    setup.gradient_norm = true;
    setup.optimizer.weight_decay = 0.5;
    ck_assert_int_eq(ddp_graph_statistics_count(graph), 32);
    float *initial = calloc((size_t)ddp_graph_flat_count(graph), sizeof *initial);
    struct ddp_rng rng;
    ddp_rng_seed(&rng, 1);
    ddp_graph_init_parameters(graph, &rng, initial);
    setup.weights = initial;
    ck_assert_int_eq(ddp_replica_open(&replica, &setup, 0, ALL_PARTS, NULL), DDP_OK);
    ck_assert_int_eq(ddp_updater_open(&updater, &replica, &setup, replica.flat_count, NULL),
                     DDP_OK);
    replica.gradients[0] = 8;
    for (int i = 0; i < 21; i++)
        replica.gradients[DDP_FLAT_ALIGN + i] = 4 * (float)i;
    ck_assert_int_eq(ddp_updater_run(&updater, 0.5, 0, &loss), DDP_OK);
    ck_assert_float_eq(loss, 2);
    ck_assert_double_eq(updater.norm, 0);
    for (int i = 0; i < 21; i++)
        ck_assert_float_eq_tol(replica.weights[DDP_FLAT_ALIGN + i], 0.9f + 0.1f * (float)i, 1e-6f);
    for (int64_t i = DDP_FLAT_ALIGN + 32; i < replica.flat_count; i++)
        ck_assert_float_eq(replica.weights[i], initial[i] * 0.75f);
    ddp_updater_close(&updater);
    ddp_replica_close(&replica);
    free(initial);
    close_setup();
    nothing_left("statistics", 0);
}
END_TEST

/* Each call in turn fails while a mode is made. */
START_TEST(create_fails_cleanly)
{
    const enum ddp_mode_kind kind = (enum ddp_mode_kind)_i;
    enum ddp_status status = DDP_ERR_MEMORY;
    int64_t n = 0;
    update = 1;
    for (; status != DDP_OK; n++) {
        ddp_mode *mode = NULL;
        open_setup(kind == DDP_MODE_DP ? 3 : 1, 3);
        calls_until_failure = n;
        status = ddp_mode_create(&mode, kind, &setup);
        bool reached = calls_until_failure < 0;
        calls_until_failure = -1;
        ck_assert_msg(reached == (status != DDP_OK), "call %lld: its failure was not noticed",
                      (long long)n);
        if (status == DDP_OK)
            ddp_mode_destroy(mode);
        else
            ck_assert_ptr_null(mode);
        close_setup();
        nothing_left("call", n);
    }
    ck_assert_int_gt(n, 10);
}
END_TEST

/* Each call in turn fails during a step: the error comes out, all batches go back. */
START_TEST(step_fails_cleanly)
{
    const enum ddp_mode_kind kind = (enum ddp_mode_kind)_i;
    enum ddp_status status = DDP_ERR_MEMORY;
    int64_t n = 0;
    update = 1;
    for (; status != DDP_OK; n++) {
        ddp_mode *mode;
        float loss;
        open_setup(kind == DDP_MODE_DP ? 3 : 1, 3);
        ddp_loader *loader = open_loader();
        ck_assert_int_eq(ddp_mode_create(&mode, kind, &setup), DDP_OK);
        calls_until_failure = n;
        status = ddp_mode_step(mode, loader, 0.1f, 0, &loss);
        bool reached = calls_until_failure < 0;
        calls_until_failure = -1;
        ck_assert_msg(reached == (status != DDP_OK), "call %lld: its failure was not noticed",
                      (long long)n);
        ck_assert_int_eq(batches, 0);
        ddp_loader_destroy(loader);
        ddp_mode_destroy(mode);
        close_setup();
        nothing_left("call", n);
    }
    ck_assert_int_gt(n, 3);
}
END_TEST

/* What is reported is what is allocated, to the page that an arena may be short of. */
START_TEST(memory_is_counted)
{
    struct ddp_mode_memory memory = {0};
    ddp_mode *mode;
    open_setup(1, 5);
    ck_assert_int_eq(ddp_mode_create(&mode, DDP_MODE_ACCUM, &setup), DDP_OK);
    ddp_mode_memory(mode, &memory);
    const size_t flat = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
    ck_assert_uint_eq(memory.weights, flat);
    ck_assert_uint_eq(memory.gradients, flat * 4); /* the sum, and a counter of three digits */
    ck_assert_uint_eq(memory.optimizer, flat);
    ck_assert_uint_gt(memory.activations, 0);
    ddp_mode_destroy(mode);
    close_setup();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mode");
    TCase *tc = test_case(suite, "bits", 60);
    tcase_add_checked_fixture(tc, open_job, close_job);
    tcase_add_loop_test(tc, local_sum_is_the_tree, 1, SHARDS + 1);
    tcase_add_loop_test(tc, modes_end_in_the_same_bits, 1, 13);
    tcase_add_test(tc, odd_blocks_agree_within_rounding);
    tcase_add_test(tc, clipping_and_decay);
    tcase_add_test(tc, statistics_follow);
    tcase_add_test(tc, memory_is_counted);
    tc = test_case(suite, "failures", 60);
    tcase_add_checked_fixture(tc, open_job, close_job);
    tcase_add_loop_test(tc, create_fails_cleanly, DDP_MODE_ACCUM, DDP_MODE_DP + 1);
    tcase_add_loop_test(tc, step_fails_cleanly, DDP_MODE_ACCUM, DDP_MODE_DP + 1);
    return suite;
}
