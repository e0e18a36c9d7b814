/* SPDX-License-Identifier: MIT
 *
 * The memory-bound operations that kernels_perf measures; see kernels_perf.h. */
#include "config.h"

#include "bench/bench.h"
#include "bench/kernels_perf.h"
#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/batch_norm.h"
#include "kernels/bf16.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/pool2d.h"
#include "kernels/relu.h"
#include "kernels/sgd.h"
#include "kernels/softmax_cross_entropy.h"
#include "kernels/transpose.h"

#define FEATURES   768   /* of GPT-2's rows */
#define WIDE       3072  /* between the layers of its MLP */
#define LENGTH     1024  /* of its samples */
#define VOCABULARY 50257 /* and its classes */
#define CHANNELS   64    /* of images */
#define SIDE       32

/* An array of the row's type. */
static void *numbers(const struct device_bench *b, int i)
{
    return b->dtype == DDP_BF16 ? (void *)b->halves[i] : (void *)b->memory[i];
}

/* Whole rows of a width that the arrays hold. */
static int64_t rows_of(const struct device_bench *b, int64_t width)
{
    return b->count / width;
}

static enum ddp_status add(struct device_bench *b)
{
    const struct ddp_add args = {.count = b->count,
                                 .dtype = b->dtype,
                                 .a = numbers(b, 0),
                                 .b = numbers(b, 1),
                                 .y = numbers(b, 2)};
    return b->kernels->add(&args, b->stream);
}

static enum ddp_status relu_forward(struct device_bench *b)
{
    const struct ddp_relu_forward args = {b->count, DDP_F32, b->memory[0], b->memory[1]};
    return b->kernels->relu_forward(&args, b->stream);
}

static enum ddp_status relu_backward(struct device_bench *b)
{
    const struct ddp_relu_backward args = {b->count,     DDP_F32,      b->memory[0],
                                           b->memory[1], b->memory[2], false};
    return b->kernels->relu_backward(&args, b->stream);
}

static enum ddp_status dropout(struct device_bench *b)
{
    const struct ddp_dropout args = {
        .count = b->count, .probability = 0.1f, .seed = 1, .x = b->memory[0], .y = b->memory[1]};
    return b->kernels->dropout(&args, b->stream);
}

static enum ddp_status to_bf16(struct device_bench *b)
{
    const struct ddp_to_bf16 args = {b->count, b->memory[0], (uint16_t *)b->memory[1]};
    return b->kernels->to_bf16(&args, b->stream);
}

static enum ddp_status layer_norm_forward(struct device_bench *b)
{
    const struct ddp_layer_norm_forward args = {.rows = rows_of(b, FEATURES),
                                                .features = FEATURES,
                                                .eps = 1e-5f,
                                                .dtype = b->dtype,
                                                .x = numbers(b, 0),
                                                .gamma = b->channels,
                                                .beta = b->channels,
                                                .y = numbers(b, 1),
                                                .statistics = b->statistics};
    return b->kernels->layer_norm_forward(&args, b->stream);
}

static enum ddp_status layer_norm_backward(struct device_bench *b)
{
    const struct ddp_layer_norm_backward args = {.rows = rows_of(b, FEATURES),
                                                 .features = FEATURES,
                                                 .dtype = b->dtype,
                                                 .x = numbers(b, 0),
                                                 .gamma = b->channels,
                                                 .statistics = b->statistics,
                                                 .dy = numbers(b, 1),
                                                 .dx = numbers(b, 2),
                                                 .dgamma = b->channels + FEATURES,
                                                 .dbeta = b->channels + 2 * FEATURES,
                                                 .scratch = b->scratch};
    return b->kernels->layer_norm_backward(&args, b->stream);
}

/* Samples of LENGTH tokens; fewer tokens where the arrays are small. */
static int64_t length_of(const struct device_bench *b)
{
    const int64_t tokens = rows_of(b, FEATURES);
    return tokens < LENGTH ? tokens : LENGTH;
}

static int64_t vocabulary_of(const struct device_bench *b)
{
    const int64_t tokens = rows_of(b, FEATURES);
    return tokens < VOCABULARY ? tokens : VOCABULARY;
}

static enum ddp_status embedding_forward(struct device_bench *b)
{
    const int64_t length = length_of(b);
    const struct ddp_embedding_forward args = {.batch = rows_of(b, FEATURES) / length,
                                               .length = length,
                                               .features = FEATURES,
                                               .vocabulary = vocabulary_of(b),
                                               .positions = length,
                                               .dtype = b->dtype,
                                               .tokens = b->tokens,
                                               .wte = b->memory[0],
                                               .wpe = b->memory[1],
                                               .y = numbers(b, 2)};
    return b->kernels->embedding_forward(&args, b->stream);
}

static enum ddp_status embedding_backward(struct device_bench *b)
{
    const int64_t length = length_of(b);
    const struct ddp_embedding_backward args = {.batch = rows_of(b, FEATURES) / length,
                                                .length = length,
                                                .features = FEATURES,
                                                .vocabulary = vocabulary_of(b),
                                                .positions = length,
                                                .dtype = b->dtype,
                                                .tokens = b->tokens,
                                                .dy = numbers(b, 2),
                                                .dwte = b->memory[4],
                                                .dwpe = b->positions,
                                                .accumulate_dwte = true};
    return b->kernels->embedding_backward(&args, b->stream);
}

static enum ddp_status softmax_cross_entropy(struct device_bench *b)
{
    void *const logits = b->dtype == DDP_BF16 ? (void *)b->halves[2] : (void *)b->memory[4];
    const struct ddp_softmax_cross_entropy args = {.rows = rows_of(b, VOCABULARY),
                                                   .classes = VOCABULARY,
                                                   .dtype = b->dtype,
                                                   .logits = logits,
                                                   .labels = b->labels,
                                                   .loss = b->statistics,
                                                   .dlogits = logits};
    return b->kernels->softmax_cross_entropy(&args, b->stream);
}

/* What a linear layer's backward pass does beside its products: the activation's gradient, in
 * place, and the sums for the bias. */
static enum ddp_status columns(struct device_bench *b, enum ddp_activation activation, bool bias)
{
    const struct ddp_linear_backward args = {.rows = rows_of(b, WIDE),
                                             .out = WIDE,
                                             .activation = activation,
                                             .compute = DDP_BF16,
                                             .dtype = DDP_BF16,
                                             .pre = b->halves[3],
                                             .dy = b->halves[1],
                                             .dbias = bias ? b->channels : NULL};
    return b->kernels->linear_backward(&args, b->stream);
}

static enum ddp_status bias_backward(struct device_bench *b)
{
    return columns(b, DDP_ACTIVATION_NONE, true);
}

static enum ddp_status gelu_backward(struct device_bench *b)
{
    return columns(b, DDP_ACTIVATION_GELU_TANH, false);
}

static enum ddp_status gelu_bias_backward(struct device_bench *b)
{
    return columns(b, DDP_ACTIVATION_GELU_TANH, true);
}

static enum ddp_status update(struct device_bench *b, uint16_t *half)
{
    const struct ddp_adamw args = {.count = b->count,
                                   .weight = b->memory[0],
                                   .weight_bf16 = half,
                                   .gradient = b->memory[1],
                                   .exp_avg = b->memory[2],
                                   .exp_avg_sq = b->memory[BENCH_SQUARES],
                                   .scale = 0.125f,
                                   .rate = 6e-4,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .decoupled = true,
                                   .step = 100};
    return b->kernels->adamw(&args, b->stream);
}

static enum ddp_status adamw(struct device_bench *b)
{
    return update(b, NULL);
}

static enum ddp_status adamw_bf16(struct device_bench *b)
{
    return update(b, (uint16_t *)b->memory[4]);
}

static enum ddp_status sgd(struct device_bench *b)
{
    const struct ddp_sgd args = {.count = b->count,
                                 .weight = b->memory[0],
                                 .gradient = b->memory[1],
                                 .velocity = b->memory[2],
                                 .scale = 0.125f,
                                 .rate = 1e-3f,
                                 .momentum = 0.9f};
    return b->kernels->sgd(&args, b->stream);
}

static enum ddp_status norm(struct device_bench *b)
{
    const struct ddp_norm args = {
        .begin = 0, .end = b->count, .x = b->memory[0], .sums = (double *)b->memory[4]};
    return b->kernels->norm(&args, b->stream);
}

static enum ddp_status merge(struct device_bench *b)
{
    const float *const partials[] = {b->memory[0]};
    const struct ddp_merge args = {b->count, 1, partials, b->memory[1], b->memory[2], 0};
    return b->kernels->merge(&args, b->stream);
}

static enum ddp_status transpose(struct device_bench *b)
{
    const struct ddp_transpose args = {.batch = b->count / (CHANNELS * SIDE * SIDE),
                                       .rows = CHANNELS,
                                       .columns = SIDE * SIDE,
                                       .x = b->memory[0],
                                       .y = b->memory[1]};
    return b->kernels->transpose(&args, b->stream);
}

static enum ddp_status batch_norm_sums(struct device_bench *b)
{
    const struct ddp_batch_norm_sums args = {rows_of(b, CHANNELS), CHANNELS, DDP_F32,
                                             b->memory[0],         b->sums,  b->scratch};
    return b->kernels->batch_norm_sums(&args, b->stream);
}

static enum ddp_status batch_norm_forward(struct device_bench *b)
{
    const struct ddp_batch_norm_forward args = {.rows = rows_of(b, CHANNELS),
                                                .channels = CHANNELS,
                                                .activation = DDP_ACTIVATION_RELU,
                                                .epsilon = 1e-5f,
                                                .x = b->memory[0],
                                                .gamma = b->channels,
                                                .beta = b->channels,
                                                .sums = b->sums,
                                                .count = (double)rows_of(b, CHANNELS),
                                                .y = b->memory[1],
                                                .saved = b->statistics};
    return b->kernels->batch_norm_forward(&args, b->stream);
}

static enum ddp_status batch_norm_backward_sums(struct device_bench *b)
{
    const struct ddp_batch_norm_backward_sums args = {.rows = rows_of(b, CHANNELS),
                                                      .channels = CHANNELS,
                                                      .activation = DDP_ACTIVATION_RELU,
                                                      .x = b->memory[0],
                                                      .y = b->memory[1],
                                                      .dy = b->memory[2],
                                                      .gamma = b->channels,
                                                      .beta = b->channels,
                                                      .saved = b->statistics,
                                                      .sums = b->sums,
                                                      .scratch = b->scratch};
    return b->kernels->batch_norm_backward_sums(&args, b->stream);
}

static enum ddp_status batch_norm_backward(struct device_bench *b)
{
    const struct ddp_batch_norm_backward args = {.rows = rows_of(b, CHANNELS),
                                                 .channels = CHANNELS,
                                                 .activation = DDP_ACTIVATION_RELU,
                                                 .x = b->memory[0],
                                                 .y = b->memory[1],
                                                 .dy = b->memory[2],
                                                 .gamma = b->channels,
                                                 .beta = b->channels,
                                                 .saved = b->statistics,
                                                 .sums = b->sums,
                                                 .count = (double)rows_of(b, CHANNELS),
                                                 .local_sums = b->sums,
                                                 .dx = b->memory[4]};
    return b->kernels->batch_norm_backward(&args, b->stream);
}

static struct ddp_pool2d_shape pool_shape(const struct device_bench *b)
{
    return (struct ddp_pool2d_shape){.batch = b->count / (SIDE * SIDE * CHANNELS),
                                     .height = SIDE,
                                     .width = SIDE,
                                     .channels = CHANNELS,
                                     .kernel_height = 2,
                                     .kernel_width = 2,
                                     .stride = 2};
}

static enum ddp_status max_pool2d_forward(struct device_bench *b)
{
    const struct ddp_max_pool2d_forward args = {pool_shape(b), DDP_F32, b->memory[0], b->memory[1],
                                                b->chosen};
    return b->kernels->max_pool2d_forward(&args, b->stream);
}

static enum ddp_status max_pool2d_backward(struct device_bench *b)
{
    const struct ddp_max_pool2d_backward args = {pool_shape(b), DDP_F32,      b->memory[1],
                                                 b->chosen,     b->memory[2], false};
    return b->kernels->max_pool2d_backward(&args, b->stream);
}

static enum ddp_status avg_pool2d_forward(struct device_bench *b)
{
    const struct ddp_avg_pool2d_forward args = {pool_shape(b), DDP_F32, b->memory[0], b->memory[1]};
    return b->kernels->avg_pool2d_forward(&args, b->stream);
}

/* No row's result grows with the number of its calls. Batch norm's halves stand in order. */
const struct device_row device_rows[] = {
    {"add", 12, add, DDP_F32},
    {"relu forward", 8, relu_forward, DDP_F32},
    {"relu backward", 12, relu_backward, DDP_F32},
    {"dropout", 8, dropout, DDP_F32},
    {"to bf16", 6, to_bf16, DDP_F32},
    {"layer norm forward", 8, layer_norm_forward, DDP_F32},
    {"layer norm backward", 12, layer_norm_backward, DDP_F32},
    {"embedding forward", 8, embedding_forward, DDP_F32},
    {"embedding backward, tied", 20, embedding_backward, DDP_F32},
    {"softmax cross-entropy", 8, softmax_cross_entropy, DDP_F32},
    {"gradient norm", 4, norm, DDP_F32},
    {"merge", 12, merge, DDP_F32},
    {"transpose", 8, transpose, DDP_F32},
    {"batch norm sums", 4, batch_norm_sums, DDP_F32},
    {"batch norm forward", 8, batch_norm_forward, DDP_F32},
    {"batch norm backward sums", 8, batch_norm_backward_sums, DDP_F32},
    {"batch norm backward", 12, batch_norm_backward, DDP_F32},
    {"max pool forward", 5.25, max_pool2d_forward, DDP_F32},
    {"max pool backward", 5.25, max_pool2d_backward, DDP_F32},
    {"average pool forward", 5, avg_pool2d_forward, DDP_F32},
    {"sgd with momentum", 20, sgd, DDP_F32},
    {"adamw", 28, adamw, DDP_F32},
    {"adamw with bf16 weights", 30, adamw_bf16, DDP_F32},
    {"add, bf16", 6, add, DDP_BF16},
    {"layer norm forward, bf16", 4, layer_norm_forward, DDP_BF16},
    {"layer norm backward, bf16", 6, layer_norm_backward, DDP_BF16},
    {"embedding forward, bf16", 6, embedding_forward, DDP_BF16},
    {"embedding backward, tied, bf16", 18, embedding_backward, DDP_BF16},
    {"softmax cross-entropy, bf16", 4, softmax_cross_entropy, DDP_BF16},
    {"bias backward, bf16", 2, bias_backward, DDP_BF16},
    {"gelu backward, bf16", 6, gelu_backward, DDP_BF16},
    {"gelu and bias backward, bf16", 6, gelu_bias_backward, DDP_BF16},
};

int device_row_count(const struct device_bench *b)
{
    int count = (int)(sizeof device_rows / sizeof *device_rows);
    while (!b->kernels->bf16_activations && device_rows[count - 1].dtype == DDP_BF16)
        count--;
    return count;
}

/* Labels are zeros; tokens are spread, which makes rows of wte come from all over it. */
void device_rows_open(struct device_bench *b)
{
    const int64_t rows = rows_of(b, FEATURES), vocabulary = vocabulary_of(b);
    const size_t norm_bytes = ddp_layer_norm_scratch_bytes(rows, FEATURES);
    const size_t batch_bytes = ddp_batch_norm_scratch_bytes(rows_of(b, CHANNELS), CHANNELS);
    b->scratch = device_memory(b, norm_bytes > batch_bytes ? norm_bytes : batch_bytes);
    b->labels = device_memory(b, (size_t)(rows_of(b, VOCABULARY) + 1) * sizeof(int32_t));
    b->statistics = device_memory(b, (size_t)(2 * rows + 2 * CHANNELS) * sizeof(float));
    b->channels = device_memory(b, WIDE * sizeof(float));
    b->positions = device_memory(b, (size_t)length_of(b) * FEATURES * sizeof(float));
    b->sums = device_memory(b, 2 * CHANNELS * sizeof(double));
    b->chosen = device_memory(b, (size_t)b->count / 4 + 1);
    int32_t *tokens = bench_memory((size_t)rows * sizeof *tokens);
    for (int64_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)(i * 7919 % vocabulary);
    b->tokens = device_memory(b, (size_t)rows * sizeof *tokens);
    bench_must(ddp_device_copy_in(b->device, b->tokens, tokens, (size_t)rows * sizeof *tokens));
    bench_must(ddp_device_synchronize(b->device));
}
