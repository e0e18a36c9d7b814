/* SPDX-License-Identifier: MIT
 *
 * See generate.h. Two execs share a cache of keys and values: one runs several positions of one
 * sample and fills its cache, the other one position of all samples. All samples have the same
 * number of tokens, hence one `past`. */
#include "config.h"

#include "generate/generate.h"

#include "core/memory.h"
#include "core/philox.h"
#include "core/portable_math.h"
#include "graph/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A graph and its memory for inputs of one shape. */
struct sized {
    int64_t batch, length;
    ddp_graph *graph;
    ddp_exec *exec;
};

struct ddp_generator {
    struct ddp_generator_config config;
    struct ddp_model_config model_config;
    int64_t context;          /* positions that the model distinguishes */
    int64_t room;             /* tokens of a sample */
    struct sized whole, step; /* positions of one sample; one of all samples */
    struct ddp_exec_cache cache;
    int32_t *device_tokens; /* max(context, samples) */
    int32_t *tokens;        /* (samples, room) */
    bool *ended;            /* (samples) */
    float *logits;          /* (samples, vocabulary) of the newest token */
    int32_t *newest;        /* (samples) */
    int32_t *order;         /* for sorting a row of logits */
    int64_t count;          /* tokens of each sample so far */
};

static int64_t vocabulary(const ddp_generator *generator)
{
    return generator->model_config.classes;
}

static size_t tokens_bytes(const ddp_generator *generator)
{
    const int64_t samples = generator->config.samples, context = generator->context;
    return (size_t)(samples > context ? samples : context) * sizeof(int32_t);
}

static size_t cache_bytes(const ddp_generator *generator)
{
    return (size_t)(generator->cache.stride * generator->config.samples) * sizeof(float);
}

static void destroy_sized(struct sized *sized)
{
    ddp_exec_destroy(sized->exec);
    ddp_graph_destroy(sized->graph);
    *sized = (struct sized){.exec = NULL};
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static enum ddp_status make_sized(ddp_generator *generator, struct sized *sized, int64_t batch,
                                  int64_t length)
{
    struct ddp_model_config config = generator->model_config;
    if (sized->exec && sized->batch == batch && sized->length == length)
        return DDP_OK;
    destroy_sized(sized);
    sized->batch = config.batch = batch;
    sized->length = config.dims[0] = length;
    config.last_only = true;
    config.positions = at_most(generator->room, generator->context);
    enum ddp_status status = ddp_model_build(&sized->graph, generator->config.model, &config);
    if (status == DDP_OK)
        status = ddp_exec_create(&sized->exec, sized->graph, generator->config.device,
                                 DDP_EXEC_NETWORK, generator->config.weights);
    if (status == DDP_OK && generator->config.frozen)
        ddp_exec_set_frozen(sized->exec, generator->config.frozen->values,
                            generator->config.frozen->rounded);
    if (status == DDP_OK)
        ddp_exec_bind_input(sized->exec, 0, generator->device_tokens);
    return status;
}

/* What a full window is cut down to. */
static int64_t kept_positions(const ddp_generator *generator)
{
    return generator->context > 1 ? generator->context / 2 : 1;
}

static enum ddp_status alloc_host(ddp_generator *g)
{
    const size_t samples = (size_t)g->config.samples, row = (size_t)vocabulary(g);
    g->tokens = ddp_array_alloc(samples * (size_t)g->room, sizeof *g->tokens);
    g->ended = ddp_array_alloc(samples, sizeof *g->ended);
    g->newest = ddp_array_alloc(samples, sizeof *g->newest);
    g->logits = ddp_array_alloc(samples * row, sizeof *g->logits);
    g->order = ddp_array_alloc(row, sizeof *g->order);
    return g->tokens && g->ended && g->newest && g->logits && g->order ? DDP_OK : DDP_ERR_MEMORY;
}

static enum ddp_status alloc_device(ddp_generator *g)
{
    ddp_device *device = g->config.device;
    enum ddp_status status = ddp_device_alloc(device, tokens_bytes(g), (void **)&g->device_tokens);
    if (status == DDP_OK)
        status = make_sized(g, &g->step, g->config.samples, 1);
    if (status == DDP_OK)
        status = make_sized(g, &g->whole, 1, at_most(g->config.prompt_count, g->context));
    if (status != DDP_OK)
        return status;
    g->cache.capacity = at_most(g->room, g->context);
    g->cache.stride = g->cache.capacity * ddp_graph_cache_width(g->step.graph);
    return ddp_device_alloc(device, cache_bytes(g), (void **)&g->cache.memory);
}

enum ddp_status ddp_generator_create(ddp_generator **generator,
                                     const struct ddp_generator_config *config)
{
    ddp_generator *g = ddp_array_alloc(1, sizeof *g);
    if (!g)
        return DDP_ERR_MEMORY;
    g->config = *config;
    g->model_config = *config->model_config;
    g->context = config->model->context(config->model_config);
    g->room = config->prompt_count + config->length;
    g->model_config.dim_count = 1;
    g->model_config.compute = g->model_config.activations = DDP_F32;
    enum ddp_status status = alloc_host(g);
    if (status == DDP_OK)
        status = alloc_device(g);
    if (status != DDP_OK) {
        ddp_generator_destroy(g);
        return status;
    }
    *generator = g;
    return DDP_OK;
}

void ddp_generator_destroy(ddp_generator *generator)
{
    if (!generator)
        return;
    ddp_device *device = generator->config.device;
    destroy_sized(&generator->whole);
    destroy_sized(&generator->step);
    ddp_device_free(device, generator->cache.memory, cache_bytes(generator));
    ddp_device_free(device, generator->device_tokens, tokens_bytes(generator));
    free(generator->tokens);
    free(generator->ended);
    free(generator->newest);
    free(generator->logits);
    free(generator->order);
    free(generator);
}

void ddp_generator_begin(ddp_generator *generator, const int32_t *prompt)
{
    const int64_t samples = generator->config.samples;
    generator->count = generator->config.prompt_count;
    generator->cache.past = 0;
    for (int64_t i = 0; i < samples; i++)
        memcpy(generator->tokens + i * generator->room, prompt,
               (size_t)generator->count * sizeof *prompt);
    memset(generator->ended, 0, (size_t)samples * sizeof *generator->ended);
}

const int32_t *ddp_generator_tokens(const ddp_generator *generator, int64_t sample)
{
    return generator->tokens + sample * generator->room;
}

int64_t ddp_generator_count(const ddp_generator *generator)
{
    return generator->count;
}

const float *ddp_generator_logits(const ddp_generator *generator, int64_t sample)
{
    return generator->logits + sample * vocabulary(generator);
}

void ddp_generator_end(ddp_generator *generator, int64_t sample)
{
    generator->ended[sample] = true;
}

/* --- drawing -----------------------------------------------------------------------------------*/

/* Is logits[i] before logits[j]? The largest is first; of equals the one with the lower number. */
static bool before(const float *logits, int32_t i, int32_t j)
{
    return logits[i] != logits[j] ? logits[i] > logits[j] : i < j;
}

/* A heap: nothing is before what is above it. */
static void sift_down(int32_t *heap, int64_t count, int64_t at, const float *logits)
{
    const int32_t moved = heap[at];
    for (int64_t below = 2 * at + 1; below < count; below = 2 * at + 1) {
        below += below + 1 < count && before(logits, heap[below + 1], heap[below]);
        if (!before(logits, heap[below], moved))
            break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = moved;
}

/* Takes the first of `count` off a heap, and puts it behind the others. */
static int32_t pop(int32_t *heap, int64_t count, const float *logits)
{
    const int32_t first = heap[0];
    heap[0] = heap[count - 1];
    heap[count - 1] = first;
    if (count > 1)
        sift_down(heap, count - 1, 0, logits);
    return first;
}

static int32_t likeliest(const float *logits, int64_t count)
{
    int32_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

int32_t ddp_generator_draw(const float *logits, int64_t count, double temperature, int64_t top_k,
                           double uniform, int32_t *order)
{
    const int64_t kept = top_k > 0 && top_k < count ? top_k : count;
    const int32_t first = likeliest(logits, count);
    double sum = 0, passed = 0;
    if (temperature <= 0 || kept == 1)
        return first;
    const double largest = (double)logits[first];
    for (int64_t i = 0; i < count; i++)
        order[i] = (int32_t)i;
    for (int64_t i = count / 2; i-- > 0;)
        sift_down(order, count, i, logits);
    if (kept == count) {
        for (int64_t i = 0; i < count; i++)
            sum += ddp_math_exp(((double)logits[i] - largest) / temperature);
    } else {
        for (int64_t i = 0; i < kept; i++)
            sum += ddp_math_exp(((double)logits[pop(order, count - i, logits)] - largest) /
                                temperature);
    }
    int32_t drawn = first;
    for (int64_t i = 0; i < kept; i++) {
        drawn = kept == count ? pop(order, count - i, logits) : order[count - 1 - i];
        passed += ddp_math_exp(((double)logits[drawn] - largest) / temperature);
        if (uniform * sum < passed)
            break;
    }
    return drawn;
}

/* --- the network -------------------------------------------------------------------------------*/

/* Runs the positions of `tokens` with the caches from sample `sample` on; their last logits go to
 * those of the same samples. */
static enum ddp_status run(ddp_generator *g, const struct sized *sized, int64_t sample,
                           const int32_t *tokens)
{
    ddp_device *device = g->config.device;
    struct ddp_exec_cache cache = g->cache;
    const size_t row_bytes = ddp_exec_output_bytes(sized->exec) / (size_t)sized->batch;
    cache.memory += sample * cache.stride;
    ddp_exec_set_cache(sized->exec, &cache);
    enum ddp_status status = ddp_device_copy_in(
        device, g->device_tokens, tokens, (size_t)(sized->batch * sized->length) * sizeof *tokens);
    if (status == DDP_OK)
        status = ddp_exec_forward(sized->exec);
    const char *row = ddp_exec_output(sized->exec);
    for (int64_t i = 0; status == DDP_OK && i < sized->batch; i++, row += row_bytes)
        status = ddp_device_copy_out(device, g->logits + (sample + i) * vocabulary(g), row,
                                     (size_t)vocabulary(g) * sizeof(float));
    return status == DDP_OK ? ddp_device_synchronize(device) : status;
}

/* All samples begin with the prompt: one is run, the others get its cache. */
static enum ddp_status run_prompt(ddp_generator *g)
{
    const int64_t length = at_most(g->count, g->context);
    enum ddp_status status = make_sized(g, &g->whole, 1, length);
    if (status == DDP_OK)
        status = run(g, &g->whole, 0, g->tokens + g->count - length);
    for (int64_t i = 1; status == DDP_OK && i < g->config.samples; i++) {
        status =
            ddp_device_copy(g->config.device, g->cache.memory + i * g->cache.stride,
                            g->cache.memory, (size_t)g->cache.stride * sizeof *g->cache.memory);
        memcpy(g->logits + i * vocabulary(g), g->logits, (size_t)vocabulary(g) * sizeof *g->logits);
    }
    g->cache.past = length;
    return status;
}

/* The window is full: positions count from its new beginning, and all keys and values with them. */
static enum ddp_status run_shifted(ddp_generator *g)
{
    const int64_t length = kept_positions(g);
    enum ddp_status status = make_sized(g, &g->whole, 1, length);
    g->cache.past = 0;
    for (int64_t i = 0; status == DDP_OK && i < g->config.samples; i++)
        if (!g->ended[i])
            status = run(g, &g->whole, i, g->tokens + i * g->room + g->count - length);
    g->cache.past = length;
    return status;
}

static enum ddp_status run_step(ddp_generator *g)
{
    for (int64_t i = 0; i < g->config.samples; i++)
        g->newest[i] = g->tokens[i * g->room + g->count - 1];
    const enum ddp_status status = run(g, &g->step, 0, g->newest);
    g->cache.past++;
    return status;
}

static bool are_finite(const float *logits, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(logits[i]))
            return false;
    return true;
}

static int32_t draw(ddp_generator *g, int64_t sample)
{
    const uint64_t position = (uint64_t)g->count, seed = g->config.seed;
    uint32_t numbers[4];
    ddp_philox(
        numbers,
        (const uint32_t[]){(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)sample, 0},
        (const uint32_t[]){(uint32_t)seed, (uint32_t)(seed >> 32)});
    return ddp_generator_draw(ddp_generator_logits(g, sample), vocabulary(g), g->config.temperature,
                              g->config.top_k, (double)ddp_philox_uniform(numbers[0]), g->order);
}

enum ddp_status ddp_generator_next(ddp_generator *generator)
{
    ddp_generator *g = generator;
    enum ddp_status status = g->cache.past == 0            ? run_prompt(g)
                             : g->cache.past == g->context ? run_shifted(g)
                                                           : run_step(g);
    for (int64_t i = 0; status == DDP_OK && i < g->config.samples; i++) {
        int32_t *next = g->tokens + i * g->room + g->count;
        *next = next[-1]; /* of one that has ended: any token that there is */
        if (g->ended[i])
            continue;
        if (are_finite(ddp_generator_logits(g, i), vocabulary(g)))
            *next = draw(g, i);
        else
            status = DDP_ERR_FORMAT;
    }
    g->count++;
    return status;
}
