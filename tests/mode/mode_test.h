/* SPDX-License-Identifier: MIT
 *
 * What the tests of modes train: a tiny data set, a model, a job of one process. */
#ifndef DDP_TESTS_MODE_TEST_H
#define DDP_TESTS_MODE_TEST_H

#include "kernels/reduce.h"
#include "kernels/softmax_cross_entropy.h"
#include "mode/lanes.h"
#include "mode/stages.h"
#include "mode/updater.h"
#include "model/model.h"
#include "tests/lib/gaps.h"
#include "tests/kernels/reference/reference.h"
#include "tests/lib/model_option.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_PARTS    (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define SAMPLES      250
#define FEATURES     5
#define CLASSES      3
#define BATCH        4
#define STEPS        20 /* of several whole epochs: short last batches are among them */
#define SHARDS       33
#define RESULT_COUNT 8192

/* Which labels do not count. */
static enum masking { MASK_NONE, MASK_UNEVEN, MASK_EPOCH, MASK_ALL } masking;

static bool is_masked(int64_t sample)
{
    switch (masking) {
    case MASK_NONE:
        break;
    case MASK_UNEVEN:
        return sample * sample % 11 < 5 || sample % 50 > 40;
    case MASK_EPOCH: /* of most samples: some steps have none that counts */
        return sample % 97 != 0;
    case MASK_ALL:
        return true;
    }
    return false;
}

static enum ddp_status read_samples(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *data, int32_t *labels)
{
    float *x = data;
    (void)dataset;
    for (size_t i = 0; i < count; i++) {
        for (int f = 0; f < FEATURES; f++)
            *x++ = sinf((float)(indices[i] * FEATURES + f));
        if (labels)
            labels[i] =
                is_masked(indices[i]) ? DDP_LABEL_NONE : (int32_t)(indices[i] * 7 % CLASSES);
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
static struct ddp_frozen_host frozen;
static const struct ddp_model *subject = &ddp_model_mlp;

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
static int64_t lanes;                   /* of all units, 0: one a shard */
static int update;                      /* the one of `updates` that setups have */
static int stages = 2;                  /* of a pipeline */
static int cuts[DDP_STAGES_MAX];

static bool head; /* the model ends in a head and its loss in one */

static enum ddp_status build_head(ddp_graph *built, const struct ddp_model_config *config)
{
    const int64_t rows = config->batch;
    const struct ddp_init init = {.kind = DDP_INIT_LINEAR, .fan_in = 7};
    ddp_tensor *x = ddp_graph_input(built, "x", DDP_F32, 2, (int64_t[]){rows, FEATURES});
    ddp_tensor *labels = ddp_graph_input(built, "labels", DDP_I32, 1, (int64_t[]){rows});
    ddp_tensor *weight =
        ddp_graph_parameter(built, "head.weight", 2, (int64_t[]){CLASSES, 7}, init);
    x = ddp_graph_linear_layer(built, "fc1", x, 6, true, DDP_ACTIVATION_RELU);
    x = ddp_graph_linear_layer(built, "fc2", x, 7, true, DDP_ACTIVATION_RELU);
    ddp_tensor *loss = ddp_graph_head_cross_entropy(built, x, weight, labels);
    return ddp_graph_finish(built, loss, loss);
}

static ddp_graph *build(int64_t rows)
{
    static const struct ddp_model headed = {.name = "headed", .build = build_head};
    ddp_graph *built;
    struct ddp_model_config config = {.batch = rows,
                                      .features = FEATURES,
                                      .classes = CLASSES,
                                      .offers.pads_classes = update == 1};
    if (head) {
        ck_assert_int_eq(ddp_model_build(&built, &headed, &config), DDP_OK);
        return built;
    }
    if (subject == &ddp_model_mlp)
        set_model_option(&config, subject, "hidden", "7");
    config.compute = subject != &ddp_model_mlp && bf16 ? DDP_BF16 : DDP_F32;
    ck_assert_int_eq(ddp_model_build(&built, subject, &config), DDP_OK);
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
    ck_assert_int_eq(ddp_frozen_host_alloc(&frozen, graph, NULL, true, bf16 ? DDP_BF16 : DDP_F32),
                     DDP_OK);
    ck_assert_int_eq(ddp_graph_init_parameters(graph, &rng, weights, frozen.values), DDP_OK);
    ck_assert_int_eq(ddp_frozen_host_complete(&frozen, graph, 1), DDP_OK);
    const int64_t shards = units * local_shards;
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
        .run = ddp_lanes_run_of(shards, lanes ? lanes : shards, units, 0),
        .global_shards = shards,
        .weights = weights,
        .frozen = &frozen,
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

/* For a pipeline of so many stages in this process. */
static void cut_setup(void)
{
    ck_assert_int_eq(ddp_stages_estimate(graph, stages, cuts), DDP_OK);
    setup.stages = stages;
    setup.cuts = cuts;
}

static void close_setup(void)
{
    ddp_graph_destroy(graph);
    ddp_graph_destroy(tail_graph);
    free(weights);
    ddp_frozen_host_free(&frozen);
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
    float weights[RESULT_COUNT], losses[STEPS];
    double norms[STEPS];
    int64_t counted[STEPS];
    bool has_noise[STEPS]; /* not with local steps, in a pipeline, or of one lane */
    struct ddp_mode_noise noise[STEPS];
    size_t count;
};

static struct result train(enum ddp_mode_kind kind, int units, int64_t local_shards)
{
    struct result result = {0};
    ddp_mode *mode;
    open_setup(units, local_shards);
    if (kind == DDP_MODE_PIPELINE)
        cut_setup();
    ddp_loader *loader = open_loader();
    ck_assert_int_eq(ddp_mode_create(&mode, kind, &setup), DDP_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        ck_assert_int_eq(ddp_mode_step(mode, loader, 0.1, step, &result.losses[step]), DDP_OK);
        result.norms[step] = ddp_mode_gradient_norm(mode);
        result.counted[step] = ddp_mode_counted(mode);
        result.has_noise[step] = ddp_mode_noise(mode, &result.noise[step]);
    }
    result.count = (size_t)ddp_graph_flat_count(graph);
    ck_assert_uint_le(result.count, RESULT_COUNT);
    ck_assert_int_eq(ddp_mode_get_weights(mode, 0, (int64_t)result.count, result.weights), DDP_OK);
    ck_assert((memcmp(result.weights, weights, result.count * sizeof(float)) != 0) ==
              (masking != MASK_ALL));
    check_gaps(graph, result.weights);
    for (size_t i = 0; ddp_mode_weights_bf16(mode) && i < result.count; i++)
        ck_assert_uint_eq(ddp_mode_weights_bf16(mode)[i], ddp_bf16_of(result.weights[i]));
    ddp_loader_destroy(loader);
    ddp_mode_destroy(mode);
    close_setup();
    return result;
}

static void same(const struct result *a, const struct result *b, const char *name, int64_t shards)
{
    ck_assert_msg(memcmp(a->weights, b->weights, a->count * sizeof(float)) == 0,
                  "%lld shards: %s ends in other weights", (long long)shards, name);
    ck_assert_msg(memcmp(a->losses, b->losses, sizeof a->losses) == 0,
                  "%lld shards: %s has other losses", (long long)shards, name);
    ck_assert_msg(memcmp(a->counted, b->counted, sizeof a->counted) == 0,
                  "%lld shards: %s counts other labels", (long long)shards, name);
    ck_assert_msg(memcmp(a->norms, b->norms, sizeof a->norms) == 0,
                  "%lld shards: %s has other norms", (long long)shards, name);
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(!a->has_noise[i] || !b->has_noise[i] ||
                          memcmp(&a->noise[i], &b->noise[i], sizeof a->noise[i]) == 0,
                      "%lld shards: %s has other noise", (long long)shards, name);
}

#endif
