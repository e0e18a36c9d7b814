/* SPDX-License-Identifier: MIT
 *
 * Modes and replicas through their own interfaces, with a tiny data set: all modes end in the same
 * bits, and every allocation, device and batch that fails half-way ends in an error with nothing
 * left behind. The linker wraps the calls that are made to fail (engine.am). */
#include "config.h"

#include "core/memory.h"
#include "tests/mode/mode_test.h"

/* --- calls that fail when told to --- */

/* Stages of a pipeline have threads. */
static _Atomic int64_t calls_until_failure = -1; /* -1: none fails */
static _Atomic int64_t memory_blocks, devices, batches;

static _Atomic size_t memory_bytes; /* that were ever allocated on devices */

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
    memory_bytes += status == DDP_OK ? bytes : 0;
    return status;
}

WRAP(void, ddp_device_free, ddp_device *device, void *memory, size_t bytes)
{
    memory_blocks -= memory != NULL;
    __real_ddp_device_free(device, memory, bytes);
}

WRAP(enum ddp_status, ddp_device_aside_alloc, ddp_device *device, size_t bytes, void **memory)
{
    enum ddp_status status =
        fails() ? DDP_ERR_MEMORY : __real_ddp_device_aside_alloc(device, bytes, memory);
    memory_blocks += status == DDP_OK;
    memory_bytes += status == DDP_OK ? bytes : 0;
    return status;
}

WRAP(void, ddp_device_aside_free, ddp_device *device, void *memory, size_t bytes)
{
    memory_blocks -= memory != NULL;
    __real_ddp_device_aside_free(device, memory, bytes);
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

static void close_all(void)
{
    close_job();
    ck_assert_int_eq(memory_blocks, 0);
    ck_assert_int_eq(devices, 0);
}

/* --- tests --- */

static void nothing_left(const char *what, int64_t n)
{
    ck_assert_msg(memory_blocks == 0 && devices == 0 && batches == 0,
                  "%s %lld failed: %lld blocks, %lld devices, %lld batches are left", what,
                  (long long)n, (long long)memory_blocks, (long long)devices, (long long)batches);
}

/* Every mode, and every split over replicas in aligned blocks of a power of two. */
static void compare_modes(int shards)
{
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
    other = train(DDP_MODE_PIPELINE, 1, shards);
    same(&accum, &other, "pipeline", shards);
}

START_TEST(modes_end_in_the_same_bits)
{
    update = _i % 3;
    bf16 = _i % 2; /* the copy that an update leaves */
    compare_modes(_i);
}
END_TEST

/* Labels that do not count, few or many of them in a shard, or all of a step; and a loss that the
 * network part has. */
START_TEST(labels_that_do_not_count)
{
    static const enum masking all[] = {MASK_UNEVEN, MASK_NONE, MASK_EPOCH, MASK_ALL};
    for (int i = 0; i < 8; i++) {
        masking = all[i / 2];
        head = i % 2;
        update = (_i + i) % 3;
        bf16 = update == 1;
        compare_modes(_i);
    }
}
END_TEST

/* The samples of the first step in the order of its shards, and the loss and gradients of each. */
struct plain {
    double loss, gradients[192];
    int64_t counted;
};

static void add_shard(struct plain *plain, ddp_exec *exec, float *gradients,
                      const struct ddp_batch *batch)
{
    ddp_exec_bind_input(exec, 0, batch->x);
    ddp_exec_bind_input(exec, 1, batch->labels);
    ddp_exec_set_gradients(exec, gradients);
    ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss_backward(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(exec, NULL, NULL), DDP_OK);
    int64_t counted = 0;
    for (int i = 0; i < BATCH; i++)
        counted += batch->labels[i] != DDP_LABEL_NONE;
    ck_assert_float_eq(gradients[1], (float)(BATCH - counted));
    plain->counted += counted;
    plain->loss += (double)gradients[0] * BATCH;
    for (int64_t i = 0; i < ddp_graph_flat_count(graph); i++)
        plain->gradients[i] += (double)gradients[i] * BATCH;
}

/* Of all shards' samples, one after another. */
static void sum_plainly(struct plain *plain)
{
    float *gradients = calloc((size_t)ddp_graph_flat_count(graph), sizeof *gradients);
    ddp_loader *loader = open_loader();
    ddp_device *device;
    ddp_exec *exec;
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device, ALL_PARTS, weights), DDP_OK);
    for (int64_t i = 0; i < setup.global_shards; i++) {
        const struct ddp_batch *batch;
        ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
        add_shard(plain, exec, gradients, batch);
        ddp_loader_release(loader, batch);
    }
    ddp_exec_destroy(exec);
    ddp_device_close(device);
    ddp_loader_destroy(loader);
    free(gradients);
}

/* Loss and gradient are sums over the labels that count, divided by how many they are in the whole
 * global batch. */
START_TEST(loss_is_the_mean_over_labels)
{
    const int64_t shards = 9;
    struct plain plain = {0};
    ddp_mode *mode;
    float loss, gradients[192];
    masking = MASK_UNEVEN;
    head = _i % 2;
    update = 2;
    open_setup(1, shards);
    if (_i / 2)
        cut_setup();
    sum_plainly(&plain);
    ck_assert_int_gt(plain.counted, 0);
    ck_assert_int_lt(plain.counted, shards * BATCH);
    ddp_loader *loader = open_loader();
    ck_assert_int_eq(ddp_mode_create(&mode, _i / 2 ? DDP_MODE_PIPELINE : DDP_MODE_ACCUM, &setup),
                     DDP_OK);
    ck_assert_int_eq(ddp_mode_step(mode, loader, 0.1, 0, &loss), DDP_OK);
    ck_assert_int_eq(ddp_mode_counted(mode), plain.counted);
    ck_assert_float_eq_tol(loss, (float)(plain.loss / (double)plain.counted), 1e-6f);
    const int64_t count = ddp_graph_flat_count(graph) - DDP_FLAT_ALIGN;
    ck_assert_int_eq(ddp_mode_get_gradients(mode, DDP_FLAT_ALIGN, count, gradients), DDP_OK);
    double square = 0;
    for (int64_t i = 0; i < count; i++) {
        const double expected = plain.gradients[DDP_FLAT_ALIGN + i] / (double)plain.counted;
        ck_assert_double_eq_tol((double)gradients[i], expected, 1e-6);
        square += expected * expected;
    }
    ck_assert_double_eq_tol(ddp_mode_gradient_norm(mode), sqrt(square), 1e-6);
    ddp_loader_destroy(loader);
    ddp_mode_destroy(mode);
    close_setup();
    nothing_left("plain", 0);
}
END_TEST

/* Blocks that are not a subtree: the same within rounding. */
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

/* Statistics follow the mean over the shards and are not part of the norm; no optimizer moves them.
 */
START_TEST(statistics_follow)
{
    struct ddp_replica replica = {0};
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
    ddp_graph_init_parameters(graph, &rng, initial, NULL);
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
        if (kind == DDP_MODE_PIPELINE)
            cut_setup();
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
        if (kind == DDP_MODE_PIPELINE)
            cut_setup();
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
    ck_assert_int_eq(ddp_mode_memory(mode, &memory), DDP_OK);
    const size_t flat = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
    ck_assert_uint_eq(memory.weights, flat);
    ck_assert_uint_eq(memory.gradients, flat * 4); /* the sum, and a counter of three digits */
    ck_assert_uint_eq(memory.optimizer, flat);
    ck_assert_uint_gt(memory.activations, 0);
    ddp_mode_destroy(mode);
    close_setup();
}
END_TEST

/* In each mode the sum of the parts is what the devices were asked for, but for a few sums. */
START_TEST(memory_is_all)
{
    for (int kind = DDP_MODE_ACCUM; kind <= DDP_MODE_PIPELINE; kind++) {
        struct ddp_mode_memory memory = {0};
        ddp_mode *mode;
        open_setup(kind == DDP_MODE_DP ? 3 : 1, 5);
        if (kind == DDP_MODE_PIPELINE)
            cut_setup();
        setup.clip_norm = 1;
        const size_t before = memory_bytes;
        ck_assert_int_eq(ddp_mode_create(&mode, (enum ddp_mode_kind)kind, &setup), DDP_OK);
        /* Channels are not of a device: two shards are in flight, each way. */
        const size_t channels =
            kind == DDP_MODE_PIPELINE
                ? 2 * (ddp_graph_cut_values(graph, 1) + ddp_graph_cut_gradients(graph, 1))
                : 0;
        const size_t taken = memory_bytes - before + channels;
        ck_assert_int_eq(ddp_mode_memory(mode, &memory), DDP_OK);
        const size_t planned = memory.weights + memory.gradients + memory.optimizer +
                               memory.activations + memory.inputs;
        ck_assert_uint_eq(memory.locked, 0);
        ck_assert_msg(planned <= taken && taken <= planned + 256, "mode %d: %zu of %zu bytes", kind,
                      planned, taken);
        ddp_mode_destroy(mode);
        close_setup();
    }
}
END_TEST

/* From a setup alone: of what four workers share each its part, on a device of its own its copies;
 * what they send each other. */
START_TEST(memory_of_workers)
{
    struct ddp_mode_place place = {
        .kind = DDP_MODE_DDP, .workers = 4, .nodes = 1, .node_workers = 4, .host_memory = true};
    struct ddp_mode_memory shared = {0}, parts = {0}, all = {0}, gpu = {0};
    struct ddp_mode_traffic traffic;
    open_setup(1, 5);
    setup.run = ddp_lanes_run_of(32, 32, 4, 0);
    setup.zero = setup.shared_weights = true;
    const size_t flat = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
    ck_assert_int_eq(ddp_mode_plan_memory(&setup, &place, -1, &shared), DDP_OK);
    ck_assert_uint_eq(shared.weights, flat / 4);
    ck_assert_uint_eq(shared.gradients, flat * 4);
    ck_assert_uint_eq(shared.optimizer, flat / 4);
    /* One pass, whose buckets go: never more than all; accumulation keeps what it adds to. */
    struct ddp_mode_memory thin = {0}, adding = {0};
    setup.thin_gradients = true;
    ck_assert_int_eq(ddp_mode_plan_memory(&setup, &place, -1, &adding), DDP_OK);
    ck_assert_uint_eq(adding.gradients, flat * 4);
    setup.run = ddp_lanes_run_of(4, 4, 4, 0);
    ck_assert_int_eq(ddp_mode_plan_memory(&setup, &place, -1, &thin), DDP_OK);
    ck_assert_uint_le(thin.gradients, flat);
    setup.run = ddp_lanes_run_of(32, 32, 4, 0);
    setup.thin_gradients = false;
    ddp_mode_plan_traffic(&setup, &place, &traffic);
    ck_assert_double_eq(traffic.gradients, 0.75 * (double)flat);
    ck_assert_double_eq(traffic.weights, 0);
    /* Three of them on one machine, which sends two sums of a quarter, and three of the result. */
    place.nodes = 2;
    place.starts = (const int[]){0, 3, 4};
    ddp_mode_plan_traffic(&setup, &place, &traffic);
    ck_assert_double_eq(traffic.between, 1.25 * (double)flat);
    place.nodes = 1;
    place.starts = NULL;
    setup.shared_weights = false;
    ck_assert_int_eq(ddp_mode_plan_memory(&setup, &place, -1, &parts), DDP_OK);
    ck_assert_uint_eq(parts.weights, flat);
    ck_assert_uint_ge(parts.optimizer, flat / 4);
    ck_assert_uint_le(parts.optimizer, flat);
    ddp_mode_plan_traffic(&setup, &place, &traffic);
    ck_assert_double_eq(traffic.weights, 0.75 * (double)flat);
    setup.zero = false;
    ck_assert_int_eq(ddp_mode_plan_memory(&setup, &place, -1, &all), DDP_OK);
    ck_assert_uint_eq(all.optimizer, flat);
    ddp_mode_plan_traffic(&setup, &place, &traffic);
    ck_assert_double_eq(traffic.gradients, 1.5 * (double)flat);
    place.host_memory = false;
    ck_assert_int_eq(ddp_mode_plan_memory(&setup, &place, -1, &gpu), DDP_OK);
    ck_assert_uint_eq(gpu.gradients, flat);
    ck_assert_uint_eq(gpu.locked, flat * 3);
    ck_assert_uint_gt(gpu.inputs, 0);
    place.workers = place.node_workers = 1;
    ddp_mode_plan_traffic(&setup, &place, &traffic);
    ck_assert_double_eq(traffic.gradients, 0);
    close_setup();
}
END_TEST

/* The norm of the gradient of `shards` shards, the first of `all`, and how many of them count. */
static double norm_of(int64_t shards, int64_t all, struct ddp_mode_noise *noise, double *counted)
{
    float loss;
    ddp_mode *mode;
    ddp_loader *loader;
    open_setup(1, shards);
    const struct ddp_loader_config config = {.dataset = &dataset,
                                             .sampler = sampler_of(all),
                                             .batch_size = BATCH,
                                             .shard_count = shards,
                                             .end_epoch = -1};
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    ck_assert_int_eq(ddp_mode_create(&mode, DDP_MODE_ACCUM, &setup), DDP_OK);
    ck_assert_int_eq(ddp_mode_step(mode, loader, 0.1, 0, &loss), DDP_OK);
    ck_assert_int_eq(ddp_mode_noise(mode, noise), shards > 1);
    *counted = (double)ddp_mode_counted(mode) / BATCH;
    const double norm = ddp_mode_gradient_norm(mode);
    ddp_loader_destroy(loader);
    ddp_mode_destroy(mode);
    close_setup();
    return norm;
}

/* Appendix A.1 of the article, with the norm of the first lane alone as that of the small batch. */
START_TEST(noise_is_of_two_batches)
{
    struct ddp_mode_noise noise;
    double small, large;
    update = 2;
    masking = _i ? MASK_UNEVEN : MASK_NONE;
    const double of_small = norm_of(1, 5, &noise, &small), of_large = norm_of(5, 5, &noise, &large);
    const double a = of_small * of_small, b = of_large * of_large;
    ck_assert_double_eq_tol(noise.signal, (large * b - small * a) / (large - small), 1e-9);
    ck_assert_double_eq_tol(noise.noise, (a - b) / (1 / small - 1 / large) * BATCH, 1e-9);
    ck_assert_double_gt(fabs(noise.noise), 1e-3);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mode");
    TCase *tc = test_case(suite, "bits", 60);
    tcase_add_checked_fixture(tc, open_job, close_all);
    tcase_add_loop_test(tc, modes_end_in_the_same_bits, 1, 13);
    tcase_add_loop_test(tc, labels_that_do_not_count, 1, 9);
    tcase_add_loop_test(tc, loss_is_the_mean_over_labels, 0, 4);
    tcase_add_test(tc, odd_blocks_agree_within_rounding);
    tcase_add_test(tc, clipping_and_decay);
    tcase_add_test(tc, statistics_follow);
    tcase_add_loop_test(tc, noise_is_of_two_batches, 0, 2);
    tcase_add_test(tc, memory_is_counted);
    tcase_add_test(tc, memory_is_all);
    tcase_add_test(tc, memory_of_workers);
    tc = test_case(suite, "failures", 60);
    tcase_add_checked_fixture(tc, open_job, close_all);
    tcase_add_loop_test(tc, create_fails_cleanly, DDP_MODE_ACCUM, DDP_MODE_PIPELINE + 1);
    tcase_add_loop_test(tc, step_fails_cleanly, DDP_MODE_ACCUM, DDP_MODE_PIPELINE + 1);
    return suite;
}
