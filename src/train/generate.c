/* SPDX-License-Identifier: MIT
 *
 * See generate.h. The whole sequence runs through the network for each token: nothing is kept
 * between tokens. To save work the graph is as long as the sequence, rounded up to a power of two:
 * the last token does not see the positions behind it. */
#include "config.h"

#include "train/generate.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/philox.h"
#include "graph/exec.h"
#include "model/gpt2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHORTEST 16

struct ddp_generator {
    struct ddp_generator_config config;
    struct ddp_model_config model_config; /* with the length of `graph` */
    int64_t context;                      /* tokens that it sees at most */
    ddp_device *device;
    ddp_graph *graph;
    ddp_exec *exec;
    size_t weights_bytes;
    float *weights;  /* device */
    int32_t *tokens; /* device, the longest graph's */
    int32_t *window; /* host, likewise */
    float *logits;   /* host, one row */
    int32_t *order;  /* host, for sorting a row */
};

static int64_t vocabulary(const ddp_generator *generator)
{
    return generator->model_config.classes;
}

static size_t window_bytes(const ddp_generator *generator)
{
    return (size_t)generator->context * sizeof(int32_t);
}

/* Makes the graph for sequences of `length` tokens. */
static enum ddp_status build(ddp_generator *generator, int64_t length)
{
    ddp_exec_destroy(generator->exec);
    ddp_graph_destroy(generator->graph);
    generator->exec = NULL;
    generator->graph = NULL;
    generator->model_config.dims[0] = length;
    enum ddp_status status =
        ddp_model_build(&generator->graph, generator->config.model, &generator->model_config);
    if (status == DDP_OK && !generator->weights) {
        generator->weights_bytes = (size_t)ddp_graph_flat_count(generator->graph) * sizeof(float);
        status = ddp_device_alloc(generator->device, generator->weights_bytes,
                                  (void **)&generator->weights);
        if (status == DDP_OK)
            status = ddp_device_copy_in(generator->device, generator->weights,
                                        generator->config.weights, generator->weights_bytes);
    }
    if (status == DDP_OK)
        status = ddp_exec_create(&generator->exec, generator->graph, generator->device,
                                 DDP_EXEC_NETWORK, generator->weights);
    if (status == DDP_OK)
        ddp_exec_bind_input(generator->exec, 0, generator->tokens);
    return status;
}

enum ddp_status ddp_generator_create(ddp_generator **generator,
                                     const struct ddp_generator_config *config)
{
    ddp_generator *g = ddp_array_alloc(1, sizeof *g);
    if (!g)
        return DDP_ERR_MEMORY;
    g->config = *config;
    g->model_config = *config->model_config;
    g->context = ddp_gpt2_in(config->model_config)->context;
    g->model_config.batch = 1;
    g->model_config.dim_count = 1;
    g->model_config.compute = g->model_config.activations = DDP_F32;
    g->window = ddp_array_alloc((size_t)g->context, sizeof *g->window);
    g->logits = ddp_array_alloc((size_t)vocabulary(g), sizeof *g->logits);
    g->order = ddp_array_alloc((size_t)vocabulary(g), sizeof *g->order);
    enum ddp_status status = g->window && g->logits && g->order ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_device_open(&g->device, config->device, config->index, config->threads);
    if (status == DDP_OK)
        status = ddp_device_alloc(g->device, window_bytes(g), (void **)&g->tokens);
    if (status == DDP_OK)
        status = build(g, g->context < SHORTEST ? g->context : SHORTEST);
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
    ddp_exec_destroy(generator->exec);
    ddp_graph_destroy(generator->graph);
    if (generator->device) {
        ddp_device_free(generator->device, generator->weights, generator->weights_bytes);
        ddp_device_free(generator->device, generator->tokens, window_bytes(generator));
    }
    ddp_device_close(generator->device);
    free(generator->window);
    free(generator->logits);
    free(generator->order);
    free(generator);
}

/* qsort() has no argument for the row. */
static _Thread_local const float *sorted_row;

static int larger_first(const void *a, const void *b)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sorted_row[i] != sorted_row[j])
        return sorted_row[i] < sorted_row[j] ? 1 : -1;
    return i < j ? -1 : i > j;
}

int32_t ddp_generator_draw(const float *logits, int64_t count, double temperature, int64_t top_k,
                           double uniform, int32_t *order)
{
    int64_t kept = top_k > 0 && top_k < count ? top_k : count;
    double sum = 0, passed = 0;
    for (int64_t i = 0; i < count; i++)
        order[i] = (int32_t)i;
    sorted_row = logits;
    qsort(order, (size_t)count, sizeof *order, larger_first);
    if (temperature <= 0)
        return order[0];
    const double largest = (double)logits[order[0]];
    for (int64_t i = 0; i < kept; i++)
        sum += exp(((double)logits[order[i]] - largest) / temperature);
    for (int64_t i = 0; i < kept - 1; i++) {
        passed += exp(((double)logits[order[i]] - largest) / temperature);
        if (uniform * sum < passed)
            return order[i];
    }
    return order[kept - 1];
}

static enum ddp_status run(ddp_generator *generator, int64_t count)
{
    enum ddp_status status = ddp_device_copy_in(generator->device, generator->tokens,
                                                generator->window, window_bytes(generator));
    if (status == DDP_OK)
        status = ddp_exec_forward(generator->exec);
    if (status == DDP_OK)
        status = ddp_device_copy_out(generator->device, generator->logits,
                                     (const float *)ddp_exec_output(generator->exec) +
                                         (count - 1) * vocabulary(generator),
                                     (size_t)vocabulary(generator) * sizeof(float));
    if (status == DDP_OK)
        status = ddp_device_synchronize(generator->device);
    return status;
}

enum ddp_status ddp_generator_next(ddp_generator *generator, const int32_t *tokens, int64_t count,
                                   int32_t *next)
{
    const int64_t context = generator->context;
    const int64_t seen = count < context ? count : context;
    int64_t length = generator->model_config.dims[0];
    enum ddp_status status = DDP_OK;
    while (length < seen)
        length = 2 * length < context ? 2 * length : context;
    if (length != generator->model_config.dims[0])
        status = build(generator, length);
    if (status != DDP_OK)
        return status;
    memset(generator->window, 0, window_bytes(generator));
    memcpy(generator->window, tokens + count - seen, (size_t)seen * sizeof *tokens);
    status = run(generator, seen);
    if (status != DDP_OK)
        return status;
    for (int64_t i = 0; i < vocabulary(generator); i++)
        if (!isfinite(generator->logits[i]))
            return ddp_fail(
                DDP_ERR_FORMAT,
                "the model's weights give no finite number for token %lld: they are damaged, "
                "or the training diverged",
                (long long)i);
    uint32_t numbers[4];
    const uint64_t position = (uint64_t)count;
    ddp_philox(numbers, (const uint32_t[]){(uint32_t)position, (uint32_t)(position >> 32), 0, 0},
               (const uint32_t[]){(uint32_t)generator->config.seed,
                                  (uint32_t)(generator->config.seed >> 32)});
    *next = ddp_generator_draw(generator->logits, vocabulary(generator),
                               generator->config.temperature, generator->config.top_k,
                               (double)ddp_philox_uniform(numbers[0]), generator->order);
    return DDP_OK;
}
