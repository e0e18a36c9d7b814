/* SPDX-License-Identifier: MIT
 *
 * Models of the Llama kind beside transformers and PEFT: losses, masks, packed documents, logits,
 * norms of gradients and steps of AdamW of eight families, in every split of the batch and in every
 * mode that one process has. The golden values are tests/model/golden/llama.py's. */
#include "config.h"

#include "core/json.h"
#include "core/memory.h"
#include "core/write.h"
#include "data/data_names.h"
#include "graph/exec.h"
#include "kernels/softmax_cross_entropy.h"
#include "mode/mode.h"
#include "mode/stages.h"
#include "model/llama.h"
#include "tests/model/llama_formula.h"
#include "tests/lib/runner.h"
#include "weights/hf_llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS   2
#define LENGTH 24
#define STEPS  5

static json_t *golden;

/* --- data ------------------------------------------------------------------------------------- */

static enum what { PLAIN, MASKED, PACKED } what;

/* PLAIN: the next token is each one's label. MASKED: some do not count. PACKED: row 0 alone, as
 * documents of 10 and 14 tokens. */
static enum ddp_status read_samples(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *data, int32_t *labels)
{
    int32_t *x = data;
    (void)dataset;
    for (size_t i = 0; i < count; i++)
        for (int64_t part = 0; part < (what == PACKED ? 2 : 1); part++)
            for (int64_t t = 0; t < LENGTH; t++) {
                const int64_t b = indices[i], next = t + 1;
                *x++ = part ? (t < 10 ? 0 : 10) : (int32_t)((31 * b + 17 * t + 5 * t * t) % 96);
                if (part || !labels)
                    continue;
                const bool hidden = next == LENGTH || (what == PACKED && next == 10) ||
                                    (what == MASKED && (b == 0 ? next < 7 : next == LENGTH - 1));
                *labels++ = hidden ? DDP_LABEL_NONE
                                   : (int32_t)((31 * b + 17 * next + 5 * next * next) % 96);
            }
    return DDP_OK;
}

static const struct ddp_dataset_ops dataset_ops = {.read = read_samples};

static ddp_dataset dataset_of(void)
{
    const bool packed = what == PACKED;
    return (ddp_dataset){.ops = &dataset_ops,
                         .info = {.source = "test",
                                  .path = "",
                                  .sample_count = packed ? 1 : ROWS,
                                  .class_count = 96,
                                  .dim_count = packed ? 2 : 1,
                                  .dims = {packed ? 2 : LENGTH, packed ? LENGTH : 0},
                                  .label_count = LENGTH,
                                  .x_dtype = DDP_I32,
                                  .sample_values = packed ? 2 * LENGTH : LENGTH,
                                  .sample_bytes = (packed ? 2 : 1) * LENGTH * sizeof(int32_t),
                                  .channel_count = 1,
                                  .std = {1}}};
}

/* --- a model ---------------------------------------------------------------------------------- */

struct tiny {
    ddp_job *job;
    ddp_comm *comm;
    struct ddp_hf_llama hf;
    struct ddp_model_config config;
    ddp_graph *graph;
    float *weights;
    struct ddp_frozen_host frozen;
    ddp_mode *mode;
};

/* How a global batch of two rows is cut. */
static const struct split {
    const char *name;
    enum ddp_mode_kind kind;
    int64_t rows, shards, lanes;
    int replicas, stages;
    bool recompute;
} splits[] = {
    {"one shard", DDP_MODE_ACCUM, 2, 1, 1, 1, 1, false},
    {"two shards in a lane", DDP_MODE_ACCUM, 1, 2, 1, 1, 1, false},
    {"two shards in two lanes", DDP_MODE_ACCUM, 1, 2, 2, 1, 1, false},
    {"recomputed", DDP_MODE_ACCUM, 1, 2, 2, 1, 1, true},
    {"DDP", DDP_MODE_DDP, 1, 2, 2, 1, 1, false},
    {"DataParallel", DDP_MODE_DP, 1, 2, 2, 2, 1, false},
    {"pipeline", DDP_MODE_PIPELINE, 1, 2, 2, 1, 2, false},
};
#define SPLITS (int)(sizeof splits / sizeof splits[0])

static const json_t *model_of(int number, const char **name)
{
    const json_t *models = json_object_get(golden, "models");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)models, key, value) if (number-- == 0)
    {
        *name = key;
        return value;
    }
    ck_abort_msg("no such model");
}
#define MODELS 8

/* Weights of the formula, by the names of the files: phi3's are fused there. */
static void fill_weights(struct tiny *tiny, float *weights, void *frozen, bool adapters_b)
{
    struct ddp_hf_llama_tensor *tensors;
    size_t count;
    ck_assert_int_eq(ddp_hf_llama_tensors(&tiny->hf, &tensors, &count), DDP_OK);
    for (int p = 0; p < ddp_graph_place_count(tiny->graph); p++) {
        const struct ddp_parameter_place place =
            ddp_graph_place_at(tiny->graph, p, weights, frozen);
        char name[128];
        int64_t first = 0;
        float *at = place.memory;
        snprintf(name, sizeof name, "%s", place.parameter->name);
        if (strstr(name, ".lora_"))
            snprintf(name, sizeof name, "base_model.model.%s", place.parameter->name);
        for (size_t t = 0; t < count; t++)
            for (int64_t part = 0, row = 0; part < tensors[t].part_count; part++) {
                if (strcmp(tensors[t].parts[part].name, place.parameter->name) == 0) {
                    snprintf(name, sizeof name, "%s", tensors[t].name);
                    first = row * (tensors[t].dim_count > 1 ? tensors[t].dims[1] : 1);
                }
                row += tensors[t].parts[part].rows;
            }
        ck_assert_int_eq(place.parameter->dtype, DDP_F32);
        for (int64_t i = 0; i < place.parameter->count; i++)
            at[i] = strstr(name, "lora_B") && !adapters_b ? 0 : llama_formula(name, first + i);
    }
    free(tensors);
}

static struct ddp_mode_setup setup_of(struct tiny *tiny, const struct split *split, int *cuts)
{
    struct ddp_mode_setup setup = {
        .graph = tiny->graph,
        .batch_rows = split->rows,
        .tail_rows = split->rows,
        .job = tiny->job,
        .comm = tiny->comm,
        .device = "cpu",
        .threads = 1,
        .replicas = split->replicas,
        .local_shards = split->shards / split->replicas,
        .run = ddp_lanes_run_of(split->shards, split->lanes, split->replicas, 0),
        .global_shards = split->shards,
        .weights = tiny->weights,
        .frozen = &tiny->frozen,
        .optimizer =
            {.name = "adamw", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
        .decay_matrices_only = true,
        .gradient_norm = true,
        .bucket_bytes = 1 << 16,
    };
    if (split->stages > 1) {
        ck_assert_int_eq(ddp_stages_estimate(tiny->graph, split->stages, cuts), DDP_OK);
        setup.stages = split->stages;
        setup.cuts = cuts;
    }
    return setup;
}

/* A model with the golden's config and the formula's weights, in a mode. */
static void open_tiny(struct tiny *tiny, const json_t *model, const struct split *split,
                      const struct ddp_lora *lora, bool adapters_b, double clip)
{
    static int cuts[DDP_STAGES_MAX];
    char *text = ddp_json_text(json_object_get(model, "config"), 0);
    *tiny = (struct tiny){.job = NULL};
    ck_assert_int_eq(ddp_hf_llama_parse(&tiny->hf, "golden", text, strlen(text)), DDP_OK);
    free(text);
    tiny->config = (struct ddp_model_config){.batch = split->rows,
                                             .dim_count = what == PACKED ? 2 : 1,
                                             .dims = {what == PACKED ? 2 : LENGTH, LENGTH},
                                             .classes = tiny->hf.vocabulary,
                                             .x_dtype = DDP_I32,
                                             .label_count = LENGTH,
                                             .label_dtype = DDP_I32,
                                             .recompute = split->recompute,
                                             .described = true};
    *ddp_llama_of(&tiny->config.own) = tiny->hf.shape;
    if (lora)
        ddp_llama_of(&tiny->config.own)->lora = *lora;
    ck_assert_int_eq(ddp_model_configure(&ddp_model_llama, &tiny->config), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&tiny->graph, &ddp_model_llama, &tiny->config), DDP_OK);
    tiny->weights = calloc((size_t)ddp_graph_flat_count(tiny->graph), sizeof *tiny->weights);
    ck_assert_ptr_nonnull(tiny->weights);
    ck_assert_int_eq(ddp_job_open(&tiny->job), DDP_OK);
    ck_assert_int_eq(ddp_comm_create(&tiny->comm, tiny->job, "self"), DDP_OK);
    ck_assert_int_eq(ddp_frozen_host_alloc(&tiny->frozen, tiny->graph, tiny->comm, true, DDP_F32),
                     DDP_OK);
    fill_weights(tiny, tiny->weights, tiny->frozen.values, adapters_b);
    ck_assert_int_eq(ddp_frozen_host_complete(&tiny->frozen, tiny->graph, 1), DDP_OK);
    struct ddp_mode_setup setup = setup_of(tiny, split, cuts);
    setup.clip_norm = clip;
    ck_assert_int_eq(ddp_mode_create(&tiny->mode, split->kind, &setup), DDP_OK);
}

static void close_tiny(struct tiny *tiny)
{
    ddp_mode_destroy(tiny->mode);
    ddp_frozen_host_free(&tiny->frozen);
    ddp_comm_destroy(tiny->comm);
    ddp_job_close(tiny->job);
    ddp_graph_destroy(tiny->graph);
    free(tiny->weights);
}

/* A step over the rows; its loss. */
static double step(struct tiny *tiny, const struct split *split, double rate, int64_t number)
{
    const ddp_dataset dataset = dataset_of();
    ddp_loader *loader;
    float loss;
    struct ddp_loader_config config = {
        .dataset = &dataset,
        .sampler = {.sample_count = dataset.info.sample_count, .shard_count = split->shards},
        .batch_size = split->rows,
        .shard_count = split->shards,
        .end_epoch = 1,
    };
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    ck_assert_int_eq(ddp_mode_step(tiny->mode, loader, rate, number, &loss), DDP_OK);
    ddp_loader_destroy(loader);
    return (double)loss;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no %s", key);
    return json_number_value(value);
}

static void expect(double value, double golden_value, double tolerance, const char *name,
                   const char *what_is)
{
    ck_assert_msg(fabs(value - golden_value) <= tolerance, "%s: %s: %.9g, expected %.9g", name,
                  what_is, value, golden_value);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Losses over 5 steps, and the norms of the gradients. */
static void follow(struct tiny *tiny, const struct split *split, const json_t *run,
                   const char *name)
{
    const json_t *losses = json_object_get(run, "losses"), *norms = json_object_get(run, "norms");
    for (int64_t s = 0; s <= STEPS; s++) {
        const double norm = json_number_value(json_array_get(norms, (size_t)s));
        expect(step(tiny, split, 1e-2, s), json_number_value(json_array_get(losses, (size_t)s)),
               s == 0 ? 2e-6 : 2e-5, name, split->name);
        expect(ddp_mode_gradient_norm(tiny->mode), norm, (s == 0 ? 1e-5 : 2e-4) * norm, name,
               "norm");
    }
}

START_TEST(families_train_as_transformers_does)
{
    const char *name;
    const json_t *model = model_of(_i / SPLITS, &name);
    const struct split *split = &splits[_i % SPLITS];
    struct tiny tiny;
    what = PLAIN;
    open_tiny(&tiny, model, split, NULL, false, 0);
    ck_assert_int_eq(ddp_graph_element_count(tiny.graph), (int64_t)number_of(model, "parameters"));
    follow(&tiny, split, json_object_get(model, "adamw"), name);
    close_tiny(&tiny);
    open_tiny(&tiny, model, split, NULL, false, 1);
    follow(&tiny, split, json_object_get(model, "clipped"), name);
    close_tiny(&tiny);
}
END_TEST

/* The mean over what counts in the whole batch, however it is cut: row 0 has fewer targets. */
START_TEST(masked_targets_do_not_count)
{
    const char *name;
    const json_t *model = model_of(_i / SPLITS, &name);
    const struct split *split = &splits[_i % SPLITS];
    struct tiny tiny;
    what = MASKED;
    open_tiny(&tiny, model, split, NULL, false, 0);
    expect(step(&tiny, split, 0, 0), number_of(model, "masked"), 2e-6, name, split->name);
    close_tiny(&tiny);
}
END_TEST

START_TEST(documents_do_not_see_each_other)
{
    static const struct split row = {"one row", DDP_MODE_ACCUM, 1, 1, 1, 1, 1, false};
    const char *name;
    const json_t *model = model_of(_i, &name);
    struct tiny tiny;
    what = PACKED;
    open_tiny(&tiny, model, &row, NULL, false, 0);
    expect(step(&tiny, &row, 0, 0), number_of(model, "packed"), 4e-6, name, "packed");
    close_tiny(&tiny);
}
END_TEST

/* The graph that texts are generated with. */
START_TEST(logits_are_those_of_transformers)
{
    const char *name;
    const json_t *model = model_of(_i, &name), *golden_logits = json_object_get(model, "logits");
    struct tiny tiny;
    ddp_graph *graph;
    ddp_exec *exec;
    ddp_device *device;
    int32_t x[ROWS * LENGTH];
    what = PLAIN;
    open_tiny(&tiny, model, &splits[0], NULL, false, 0);
    struct ddp_model_config config = tiny.config;
    config.last_only = true;
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_llama, &config), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device, DDP_EXEC_NETWORK, tiny.weights), DDP_OK);
    ck_assert_int_eq(read_samples(NULL, (int64_t[]){0, 1}, 2, x, NULL), DDP_OK);
    ddp_exec_bind_input(exec, 0, x);
    ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
    const float *logits = (const float *)ddp_exec_output(exec) + 96;
    for (size_t i = 0; i < 96; i++)
        expect((double)logits[i], json_number_value(json_array_get(golden_logits, i)), 1e-5, name,
               "logit");
    ddp_exec_destroy(exec);
    ddp_graph_destroy(graph);
    ddp_device_close(device);
    close_tiny(&tiny);
}
END_TEST

/* The base is frozen; the adapters' own gradients and steps are PEFT's. */
START_TEST(adapters_train_as_peft_does)
{
    const json_t *adapters =
        json_object_get(json_object_get(golden, "adapters"), _i % 2 ? "rslora" : "lora");
    const json_t *model = json_object_get(json_object_get(golden, "models"), "llama3");
    const struct split *split = &splits[_i / 2];
    struct ddp_lora lora = {.frozen_bf16 = false};
    struct tiny tiny;
    what = PLAIN;
    ck_assert_ptr_null(ddp_lora_read(&lora, _i % 2 ? "r=4,alpha=8,targets=all-linear,rslora"
                                                   : "r=4,alpha=8,targets=q_proj,v_proj"));
    open_tiny(&tiny, model, split, &lora, false, 0);
    follow(&tiny, split, json_object_get(adapters, "adamw"), "adapters");
    close_tiny(&tiny);
    open_tiny(&tiny, model, split, &lora, true, 0);
    expect(step(&tiny, split, 0, 0), number_of(adapters, "loss"), 2e-6, "adapters", split->name);
    close_tiny(&tiny);
}
END_TEST

/* Dropout is of what the adapters read: while they add nothing, the loss is the base's. */
START_TEST(dropout_is_before_the_adapters_alone)
{
    const json_t *adapters = json_object_get(json_object_get(golden, "adapters"), "lora");
    const json_t *model = json_object_get(json_object_get(golden, "models"), "llama3");
    const json_t *losses = json_object_get(json_object_get(adapters, "adamw"), "losses");
    const double loss[] = {json_number_value(json_array_get(losses, 0)),
                           number_of(adapters, "loss")};
    struct ddp_lora lora = {.frozen_bf16 = false};
    struct tiny tiny;
    what = PLAIN;
    ck_assert_ptr_null(ddp_lora_read(&lora, "r=4,alpha=8,targets=q_proj,v_proj,dropout=0.5"));
    for (int adds = 0; adds < 2; adds++) {
        open_tiny(&tiny, model, &splits[0], &lora, adds, 0);
        const double off = fabs(step(&tiny, &splits[0], 0, 0) - loss[adds]);
        ck_assert_msg(adds ? off > 1e-4 : off < 2e-6, "%d: off by %g", adds, off);
        close_tiny(&tiny);
    }
}
END_TEST

/* Norms are 1, biases and B 0, A uniform as of torch.nn.Linear, all else normal. */
START_TEST(new_weights_are_drawn_as_elsewhere)
{
    const char *name;
    const json_t *model = model_of(_i, &name);
    struct ddp_lora lora = {.frozen_bf16 = false};
    struct ddp_rng rng;
    struct tiny tiny;
    what = PLAIN;
    ck_assert_ptr_null(ddp_lora_read(&lora, "r=8,targets=all-linear"));
    open_tiny(&tiny, model, &splits[0], strcmp(name, "phi3") ? &lora : NULL, false, 0);
    ddp_rng_seed(&rng, 5);
    ck_assert_int_eq(ddp_graph_init_parameters(tiny.graph, &rng, tiny.weights, tiny.frozen.values),
                     DDP_OK);
    for (int p = 0; p < ddp_graph_place_count(tiny.graph); p++) {
        const struct ddp_parameter_place place =
            ddp_graph_place_at(tiny.graph, p, tiny.weights, tiny.frozen.values);
        const struct ddp_parameter *parameter = place.parameter;
        const double count = (double)parameter->count, mean = strstr(parameter->name, "norm") != 0;
        const double fan = 1 / sqrt((double)parameter->dims[1]); /* uniform in +- fan */
        const bool down = strstr(parameter->name, ".lora_A") != NULL;
        const bool constant = parameter->dim_count == 1 || strstr(parameter->name, ".lora_B");
        const double deviation = constant ? 0 : down ? fan / sqrt(3) : 0.02;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < parameter->count; i++) {
            const double off = (double)((const float *)place.memory)[i] - mean;
            ck_assert(fabs(off) <= (down ? fan : 6 * deviation));
            sum += off;
            squares += off * off;
        }
        expect(sum / count, 0, 5 * deviation / sqrt(count), name, parameter->name);
        expect(sqrt(squares / count), deviation, 5 * deviation / sqrt(2 * count), name,
               parameter->name);
    }
    close_tiny(&tiny);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("llama");
    TCase *tc = tcase_create("llama");
    char *path =
        ddp_path_in(getenv("srcdir") ? getenv("srcdir") : ".", "tests/model/golden/llama.json");
    golden = json_load_file(path, 0, NULL);
    free(path);
    if (!golden)
        ck_abort_msg("tests/model/golden/llama.json cannot be read");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, families_train_as_transformers_does, 0, MODELS * SPLITS);
    tcase_add_loop_test(tc, masked_targets_do_not_count, 0, MODELS * SPLITS);
    tcase_add_loop_test(tc, documents_do_not_see_each_other, 0, MODELS);
    tcase_add_loop_test(tc, logits_are_those_of_transformers, 0, MODELS);
    tcase_add_loop_test(tc, adapters_train_as_peft_does, 0, 2 * SPLITS);
    tcase_add_test(tc, dropout_is_before_the_adapters_alone);
    tcase_add_loop_test(tc, new_weights_are_drawn_as_elsewhere, 0, MODELS);
    suite_add_tcase(suite, tc);
    return suite;
}
