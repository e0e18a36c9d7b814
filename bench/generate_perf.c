/* SPDX-License-Identifier: MIT
 *
 * Speed of generating text with the GPT-2 of 124M: a token of each sample with the cache, beside
 * the bound (all threads read the weights once and do nothing else), beside a pass over all tokens,
 * as it is without the cache. The three take turns; times are the processor's, of all threads,
 * which other jobs on the machine disturb less. bench/generate_torch.py sets PyTorch beside it. */
#include "config.h"

#include "bench/bench.h"
#include "bench/median.h"
#include "graph/exec.h"
#include "kernels/cpu/vmath.h"
#include "model/gpt2.h"
#include "generate/generate.h"

#include <stdio.h>

#define STEPS  8 /* of a round */
#define ROUNDS 9
#define ROOM   (STEPS * (ROUNDS + 2))

struct subject {
    struct ddp_model_config config;
    ddp_device *device;
    float *weights;
    int64_t count; /* of them */
    int32_t *prompt;
    ddp_generator *generator;
    ddp_graph *graph;
    ddp_exec *full;
};

/* --- reading the weights --- */

struct reading {
    const float *from;
    struct ddp_blocks blocks;
    float sums[DDP_BLOCKS_MAX];
};

DDP_INLINE float add_up(const float *from, int64_t begin, int64_t end)
{
    ddp_f32x16 sums[4] = {{0}};
    for (int64_t i = begin; i + 64 <= end; i += 64)
        for (int j = 0; j < 4; j++)
            sums[j] += ddp_load16(from + i + 16 * j);
    return ddp_sum16(sums[0] + sums[1] + sums[2] + sums[3]);
}

DDP_MULTIVERSION
static float sum_of(const float *from, int64_t begin, int64_t end)
{
    return add_up(from, begin, end);
}

static void read_task(void *arg, size_t index)
{
    struct reading *reading = arg;
    reading->sums[index] = sum_of(reading->from, ddp_block_begin(&reading->blocks, index),
                                  ddp_block_end(&reading->blocks, index));
}

static void read_weights(const struct subject *s)
{
    struct reading reading = {.from = s->weights, .blocks = ddp_blocks_cut(s->count, 65536, 64)};
    ddp_pool_run(ddp_stream_pool(ddp_device_stream(s->device)), reading.blocks.count, read_task,
                 &reading);
}

/* --- generating --- */

static struct subject open_subject(int threads, int64_t samples, int64_t position)
{
    struct subject s = {
        .config = {.batch = 1, .dim_count = 1, .dims = {position}, .classes = 50257}};
    struct ddp_rng rng;
    *ddp_gpt2_of(&s.config.own) = (struct ddp_gpt2){
        .layers = 12, .heads = 12, .channels = 768, .context = 1024, .norm_eps = 1e-5};
    bench_must(ddp_device_open(&s.device, "cpu", 0, threads));
    bench_must(ddp_model_build(&s.graph, &ddp_model_gpt2, &s.config));
    s.count = ddp_graph_flat_count(s.graph);
    s.weights = bench_memory((size_t)s.count * sizeof *s.weights);
    ddp_rng_seed(&rng, 1);
    ddp_graph_init_parameters(s.graph, &rng, s.weights, NULL);
    s.prompt = bench_memory((size_t)position * sizeof *s.prompt);
    for (int64_t i = 0; i < position; i++)
        s.prompt[i] = (int32_t)(7 * i);
    const struct ddp_generator_config config = {
        .model = &ddp_model_gpt2,
        .model_config = &s.config,
        .device = s.device,
        .weights = s.weights,
        .samples = samples,
        .prompt_count = position,
        .length = ROOM,
        .temperature = 0.8,
        .top_k = 200,
    };
    bench_must(ddp_generator_create(&s.generator, &config));
    bench_must(ddp_exec_create(&s.full, s.graph, s.device, DDP_EXEC_NETWORK, s.weights));
    ddp_exec_bind_input(s.full, 0, s.prompt);
    return s;
}

/* Milliseconds of all threads since `begin`. */
static double since(double begin)
{
    return (bench_cpu_seconds() - begin) * 1e3;
}

/* Of a step: a token of each sample. A round begins with the prompt again when there is no room. */
static double measure_steps(const struct subject *s, int64_t position)
{
    if (ddp_generator_count(s->generator) == 0 ||
        ddp_generator_count(s->generator) + STEPS > position + ROOM) {
        ddp_generator_begin(s->generator, s->prompt);
        bench_must(ddp_generator_next(s->generator));
    }
    const double begin = bench_cpu_seconds();
    for (int i = 0; i < STEPS; i++)
        bench_must(ddp_generator_next(s->generator));
    return since(begin) / STEPS;
}

static double measure_reading(const struct subject *s)
{
    const double begin = bench_cpu_seconds();
    for (int i = 0; i < STEPS; i++)
        read_weights(s);
    return since(begin) / STEPS;
}

static double measure_full(const struct subject *s)
{
    const double begin = bench_cpu_seconds();
    bench_must(ddp_exec_forward(s->full));
    return since(begin);
}

static void compare(const struct subject *s, int64_t samples, int64_t position)
{
    double step[ROUNDS], bound[ROUNDS], full[ROUNDS], share[ROUNDS], gain[ROUNDS];
    measure_steps(s, position);
    for (int i = 0; i < ROUNDS; i++) {
        step[i] = measure_steps(s, position);
        bound[i] = measure_reading(s);
        full[i] = i < 3 ? measure_full(s) : full[i % 3]; /* takes its time */
        share[i] = bound[i] / step[i];
        gain[i] = full[i] * (double)samples / step[i];
    }
    const double ms = median(step, ROUNDS), bytes = (double)s->count * sizeof(float);
    printf("a token of %d samples at position %d: %.2f ms, %.1f tokens/s\n", (int)samples,
           (int)position, ms, 1e3 * (double)samples / ms);
    printf("reading the weights, %.0f MB: %.2f ms, %.1f GB/s; a token takes %.2f times as long\n",
           bytes * 1e-6, median(bound, ROUNDS), bytes * 1e-6 / median(bound, ROUNDS),
           1 / median(share, ROUNDS));
    printf("without the cache: %.1f ms a sample; %.1f times as long\n", median(full, ROUNDS),
           median(gain, ROUNDS));
}

/* generate_perf [THREADS [SAMPLES [POSITION [turns]]]]. With turns, a line of milliseconds a step
 * for each line of input, for those who take turns with it. */
int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const int64_t samples = argc > 2 ? atoi(argv[2]) : 1, position = argc > 3 ? atoi(argv[3]) : 128;
    char line[16];
    if (threads < 1 || samples < 1 || position < 1 || position > 1024 - ROOM) {
        fprintf(stderr, "usage: generate_perf [THREADS [SAMPLES [POSITION [turns]]]]\n");
        return 2;
    }
    struct subject s = open_subject(threads, samples, position);
    if (argc > 4)
        while (fgets(line, sizeof line, stdin)) {
            printf("%.6f\n", measure_steps(&s, position));
            fflush(stdout);
        }
    else
        compare(&s, samples, position);
    ddp_exec_destroy(s.full);
    ddp_graph_destroy(s.graph);
    ddp_generator_destroy(s.generator);
    ddp_device_close(s.device);
    bench_release(0);
    return 0;
}
