/* SPDX-License-Identifier: MIT
 *
 * Text of a small model, made with a cache on some device, beside the network's full passes on the
 * CPU: for tests. */
#ifndef DDP_TESTS_GENERATE_TEST_H
#define DDP_TESTS_GENERATE_TEST_H

#include "core/memory.h"
#include "graph/exec.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "tests/lib/runner.h"
#include "generate/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GEN_CONTEXT = 24, GEN_VOCABULARY = 61, GEN_LENGTH = 44, GEN_SAMPLES = 6 };

struct generation {
    ddp_device *cpu, *device;
    const struct ddp_model *model;
    struct ddp_model_config config;
    float *weights;        /* host */
    float *device_weights; /* NULL: the host's */
    size_t bytes;
};

/* The device stays the caller's. Weights are larger than in training, so that logits differ. Of
 * gpt2 or llama, the other NULL. */
static inline struct generation gen_open_shape(ddp_device *device, const struct ddp_gpt2 *gpt2,
                                               const struct ddp_llama *llama)
{
    struct generation g = {.device = device,
                           .model = gpt2 ? &ddp_model_gpt2 : &ddp_model_llama,
                           .config = {.batch = 1,
                                      .dim_count = 1,
                                      .dims = {GEN_CONTEXT},
                                      .classes = GEN_VOCABULARY,
                                      .offers.pads_classes = true}};
    if (gpt2)
        *ddp_gpt2_of(&g.config.own) = *gpt2;
    else
        *ddp_llama_of(&g.config.own) = *llama;
    ddp_graph *graph;
    struct ddp_rng rng;
    ck_assert_int_eq(ddp_device_open(&g.cpu, "cpu", 0, 2), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&graph, g.model, &g.config), DDP_OK);
    const size_t count = (size_t)ddp_graph_flat_count(graph);
    g.bytes = count * sizeof(float);
    g.weights = ddp_array_alloc(count, sizeof(float));
    ck_assert_ptr_nonnull(g.weights);
    ddp_rng_seed(&rng, 7);
    ddp_graph_init_parameters(graph, &rng, g.weights, NULL);
    for (size_t i = 0; i < count; i++)
        g.weights[i] *= g.weights[i] == 1 ? 1 : 6;
    ddp_graph_destroy(graph);
    if (!ddp_device_host_memory(device)) {
        ck_assert_int_eq(ddp_device_alloc(device, g.bytes, (void **)&g.device_weights), DDP_OK);
        ck_assert_int_eq(ddp_device_copy_in(device, g.device_weights, g.weights, g.bytes), DDP_OK);
        ck_assert_int_eq(ddp_device_synchronize(device), DDP_OK);
    }
    return g;
}

static inline struct generation gen_open(ddp_device *device, int64_t heads, int64_t channels)
{
    const struct ddp_gpt2 gpt2 = {.layers = 2,
                                  .heads = heads,
                                  .channels = channels,
                                  .context = GEN_CONTEXT,
                                  .norm_eps = 1e-5};
    return gen_open_shape(device, &gpt2, NULL);
}

/* Shared keys, and a part of the features that turn; or heads that are normed, and a window. */
static inline struct ddp_llama gen_llama(bool windowed)
{
    return (struct ddp_llama){
        .layers = 2,
        .channels = 24,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 10,
        .hidden = 40,
        .context = GEN_CONTEXT,
        .norm_eps = 1e-5,
        .rope = {.size = windowed ? 10 : 6, .theta = 1e4, .attention_factor = 1},
        .qk_norm = windowed,
        .tied = windowed,
        .window = windowed ? 5 : 0,
        .windowed = {.words = {windowed ? 2 : 0}, .count = 1},
    };
}

static inline void gen_close(struct generation *g)
{
    ddp_device_free(g->device, g->device_weights, g->bytes);
    ddp_device_close(g->cpu);
    free(g->weights);
}

static const int32_t gen_prompt[] = {5, 0, 60, 17, 17, 3, 42, 8};
enum { GEN_PROMPT = sizeof gen_prompt / sizeof *gen_prompt };

static inline ddp_generator *gen_generator(const struct generation *g, int64_t samples)
{
    const struct ddp_generator_config config = {
        .model = g->model,
        .model_config = &g->config,
        .device = g->device,
        .weights = g->device_weights ? g->device_weights : g->weights,
        .samples = samples,
        .prompt_count = GEN_PROMPT,
        .length = GEN_LENGTH,
        .temperature = 1,
        .seed = 11,
    };
    ddp_generator *generator;
    ck_assert_int_eq(ddp_generator_create(&generator, &config), DDP_OK);
    ddp_generator_begin(generator, gen_prompt);
    return generator;
}

/* The logits behind `length` tokens, by the ordinary graph; a llama's ends in its loss. */
static inline void gen_full_pass(const struct generation *g, const int32_t *tokens, int64_t length,
                                 float logits[GEN_VOCABULARY])
{
    struct ddp_model_config config = g->config;
    ddp_graph *graph;
    ddp_exec *exec;
    config.dims[0] = length;
    config.last_only = g->model == &ddp_model_llama;
    ck_assert_int_eq(ddp_model_build(&graph, g->model, &config), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, g->cpu, DDP_EXEC_NETWORK, g->weights), DDP_OK);
    ddp_exec_bind_input(exec, 0, tokens);
    ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
    const size_t rows = config.last_only ? 1 : (size_t)length;
    const size_t row_bytes = ddp_exec_output_bytes(exec) / rows;
    memcpy(logits, (const char *)ddp_exec_output(exec) + (rows - 1) * row_bytes,
           GEN_VOCABULARY * sizeof *logits);
    ddp_exec_destroy(exec);
    ddp_graph_destroy(graph);
}

/* Each token's logits are those of a full pass over what it sees: from `begin` on, which moves when
 * the context is full. */
static inline void gen_check_logits(const struct generation *g, double tolerance)
{
    ddp_generator *generator = gen_generator(g, 2);
    int64_t begin = 0;
    double worst = 0, largest = 0;
    for (int64_t count = GEN_PROMPT; count < GEN_PROMPT + GEN_LENGTH; count++) {
        if (count - begin > GEN_CONTEXT)
            begin = count - GEN_CONTEXT / 2;
        ck_assert_int_eq(ddp_generator_count(generator), count);
        ck_assert_int_eq(ddp_generator_next(generator), DDP_OK);
        for (int64_t i = 0; i < 2; i++) {
            const float *got = ddp_generator_logits(generator, i);
            float expected[GEN_VOCABULARY];
            gen_full_pass(g, ddp_generator_tokens(generator, i) + begin, count - begin, expected);
            for (int v = 0; v < GEN_VOCABULARY; v++) {
                worst = fmax(worst, fabs((double)got[v] - (double)expected[v]));
                largest = fmax(largest, fabs((double)expected[v]));
                ck_assert(isfinite(got[v]));
            }
        }
    }
    ck_assert_msg(largest > 1, "flat logits, at most %g", largest);
    ck_assert_msg(worst <= tolerance * largest, "logits up to %g are off by %g", largest, worst);
    ddp_generator_destroy(generator);
}

/* A sample's tokens and the bits of its logits depend neither on how many others there are, nor on
 * whether they have ended; and are the same again after a new beginning. Others: from..to-1. */
static inline void gen_check_company(const struct generation *g, int64_t from, int64_t to)
{
    ddp_generator *all = gen_generator(g, GEN_SAMPLES);
    for (int64_t company = from; company < to; company++) {
        ddp_generator *few = gen_generator(g, company);
        ddp_generator_begin(all, gen_prompt);
        for (int step = 0; step < GEN_LENGTH; step++) {
            if (step == 9 && company < GEN_SAMPLES - 1)
                ddp_generator_end(all, company + 1);
            ck_assert_int_eq(ddp_generator_next(all), DDP_OK);
            ck_assert_int_eq(ddp_generator_next(few), DDP_OK);
            for (int64_t i = 0; i < company; i++)
                ck_assert_msg(memcmp(ddp_generator_logits(all, i), ddp_generator_logits(few, i),
                                     GEN_VOCABULARY * sizeof(float)) == 0,
                              "sample %d of %d: other logits at step %d", (int)i, (int)company,
                              step);
        }
        for (int64_t i = 0; i < company; i++)
            ck_assert(memcmp(ddp_generator_tokens(all, i), ddp_generator_tokens(few, i),
                             (GEN_PROMPT + GEN_LENGTH) * sizeof(int32_t)) == 0);
        ddp_generator_destroy(few);
    }
    ck_assert(memcmp(ddp_generator_tokens(all, 0), ddp_generator_tokens(all, 1),
                     (GEN_PROMPT + GEN_LENGTH) * sizeof(int32_t)) != 0);
    ddp_generator_destroy(all);
}

#endif
