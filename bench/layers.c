/* SPDX-License-Identifier: MIT
 *
 * The layers that compute: products of GPT-2 124M, attention, and convolutions of ResNet-18 for
 * small images, each pass by itself, in bf16 and as in training; see kernels_perf.h. FLOP of causal
 * attention are those of the scores that count, half of T x T; its backward pass is 2.5 times
 * forward. */
#include "config.h"

#include "bench/kernels_perf.h"
#include "kernels/attention/attention.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/linear.h"

#include <stdio.h>
#include <string.h>

#define HEADS      12
#define HEAD_SIZE  64
#define VOCABULARY 50304 /* padded */

/* One layer with memory for all its passes. */
struct device_layer {
    struct device_sizes sizes;
    int64_t rows, in, out;
    enum ddp_activation activation;
    struct ddp_conv2d_shape conv;
    uint16_t *x, *weight, *y, *pre, *dx, *dy;
    float *dweight, *lse, *weight_f32;
    void *scratch;
};

static uint16_t *halves(struct device_bench *b, int64_t count)
{
    uint16_t *memory = device_memory(b, (size_t)count * sizeof *memory);
    device_fill_bf16(b, memory, (size_t)count, -1);
    return memory;
}

static void print_row(const char *name, const char *pass, double flop, double seconds, bool *first)
{
    printf("%s\n  {\"name\": \"%s %s\", \"seconds\": %.5g, \"flop\": %.5g, \"flop_per_s\": %.4g}",
           *first ? "" : ",", name, pass, seconds, flop, flop / seconds);
    *first = false;
    fflush(stdout);
}

/* Runs all passes of a layer, by turns, and frees its memory. */
static void measure(struct device_bench *b, struct device_layer *layer, const char *name,
                    const struct device_row *passes, int count, const double *flop, size_t left,
                    bool *first)
{
    double seconds[4];
    b->layer = layer;
    device_measure(b, passes, count, seconds);
    for (int i = 0; i < count; i++)
        print_row(name, passes[i].name, flop[i], seconds[i], first);
    device_release(b, left);
}

/* --- products ------------------------------------------------------------------------------- */

static enum ddp_status linear_forward(struct device_bench *b)
{
    const struct device_layer *l = b->layer;
    const struct ddp_linear_forward args = {.rows = l->rows,
                                            .in = l->in,
                                            .out = l->out,
                                            .activation = l->activation,
                                            .compute = DDP_BF16,
                                            .dtype = DDP_BF16,
                                            .x = l->x,
                                            .weight_bf16 = l->weight,
                                            .y = l->y,
                                            .pre = l->pre};
    return b->kernels->linear_forward(&args, b->stream);
}

static enum ddp_status linear_backward(struct device_bench *b, bool dx)
{
    const struct device_layer *l = b->layer;
    const struct ddp_linear_backward args = {.rows = l->rows,
                                             .in = l->in,
                                             .out = l->out,
                                             .compute = DDP_BF16,
                                             .dtype = DDP_BF16,
                                             .x = l->x,
                                             .weight_bf16 = l->weight,
                                             .dy = l->dy,
                                             .dx = dx ? l->dx : NULL,
                                             .dweight = dx ? NULL : l->dweight};
    return b->kernels->linear_backward(&args, b->stream);
}

static enum ddp_status linear_dx(struct device_bench *b)
{
    return linear_backward(b, true);
}

static enum ddp_status linear_dweight(struct device_bench *b)
{
    return linear_backward(b, false);
}

/* y and dy are one array: results of forward are not read. */
static void product(struct device_bench *b, const struct device_sizes *sizes, const char *name,
                    int64_t in, int64_t out, enum ddp_activation activation, bool *first)
{
    static const struct device_row passes[] = {
        {.name = "forward", .run = linear_forward},
        {.name = "dX", .run = linear_dx},
        {.name = "dW", .run = linear_dweight},
    };
    const int64_t rows = sizes->batch * sizes->length;
    const double flop = 2.0 * (double)rows * (double)in * (double)out;
    const size_t left = device_pieces();
    struct device_layer layer = {
        .rows = rows, .in = in, .out = out, .activation = activation, .x = halves(b, rows * in)};
    layer.weight = halves(b, out * in);
    layer.y = layer.dy = halves(b, rows * out);
    layer.pre = activation == DDP_ACTIVATION_NONE ? NULL : halves(b, rows * out);
    layer.dx = device_memory(b, (size_t)(rows * in) * sizeof *layer.dx);
    layer.dweight = device_memory(b, (size_t)(out * in) * sizeof *layer.dweight);
    measure(b, &layer, name, passes, activation == DDP_ACTIVATION_NONE ? 3 : 1,
            (const double[]){flop, flop, flop}, left, first);
}

static void products(struct device_bench *b, const struct device_sizes *sizes, bool *first)
{
    const int64_t channels = sizes->tiny ? 32 : HEADS * HEAD_SIZE;
    const enum ddp_activation none = DDP_ACTIVATION_NONE;
    product(b, sizes, "qkv", channels, 3 * channels, none, first);
    product(b, sizes, "attproj", channels, channels, none, first);
    product(b, sizes, "fc", channels, 4 * channels, none, first);
    product(b, sizes, "fc with gelu", channels, 4 * channels, DDP_ACTIVATION_GELU_TANH, first);
    product(b, sizes, "fcproj", 4 * channels, channels, none, first);
    product(b, sizes, "head", channels, sizes->tiny ? 256 : VOCABULARY, none, first);
}

/* --- attention ------------------------------------------------------------------------------ */

static enum ddp_status attention_forward(struct device_bench *b)
{
    const struct device_layer *l = b->layer;
    const int64_t c = l->in * HEAD_SIZE;
    const uint16_t *q = l->x;
    const struct ddp_attention_forward args = {
        .shape = ddp_attention_packed(l->sizes.batch, l->sizes.length, l->in, HEAD_SIZE, DDP_BF16),
        .q = q,
        .k = q + c,
        .v = q + 2 * c,
        .y = l->y,
        .lse = l->lse};
    return b->kernels->attention_forward(&args, b->stream);
}

static enum ddp_status attention_backward(struct device_bench *b)
{
    const struct device_layer *l = b->layer;
    const int64_t c = l->in * HEAD_SIZE;
    const uint16_t *q = l->x;
    uint16_t *dq = l->dx;
    const struct ddp_attention_backward args = {
        .shape = ddp_attention_packed(l->sizes.batch, l->sizes.length, l->in, HEAD_SIZE, DDP_BF16),
        .q = q,
        .k = q + c,
        .v = q + 2 * c,
        .y = l->y,
        .lse = l->lse,
        .dy = l->dy,
        .dq = dq,
        .dk = dq + c,
        .dv = dq + 2 * c};
    return b->kernels->attention_backward(&args, b->stream);
}

static void attention(struct device_bench *b, const struct device_sizes *sizes, bool *first)
{
    static const struct device_row passes[] = {
        {.name = "forward", .run = attention_forward},
        {.name = "backward", .run = attention_backward},
    };
    const int64_t heads = sizes->tiny ? 1 : HEADS, rows = sizes->batch * sizes->length;
    const int64_t channels = heads * HEAD_SIZE;
    const double forward = 2.0 * (double)rows * (double)sizes->length * (double)channels;
    const size_t left = device_pieces();
    struct device_layer layer = {.sizes = *sizes, .in = heads, .x = halves(b, rows * 3 * channels)};
    layer.y = halves(b, rows * channels);
    layer.dy = halves(b, rows * channels);
    layer.dx = halves(b, rows * 3 * channels);
    layer.lse = device_memory(b, (size_t)(rows * heads) * sizeof(float));
    measure(b, &layer, "attention", passes, 2, (const double[]){forward, 2.5 * forward}, left,
            first);
}

/* --- convolution ---------------------------------------------------------------------------- */

static enum ddp_status conv_forward(struct device_bench *b)
{
    const struct device_layer *l = b->layer;
    const struct ddp_conv2d_forward args = {.shape = l->conv,
                                            .dtype = DDP_BF16,
                                            .compute = DDP_BF16,
                                            .x = l->x,
                                            .weight = l->weight_f32,
                                            .y = l->y,
                                            .scratch = l->scratch};
    return b->kernels->conv2d_forward(&args, b->stream);
}

static enum ddp_status conv_backward(struct device_bench *b, bool dx)
{
    const struct device_layer *l = b->layer;
    const struct ddp_conv2d_backward args = {.shape = l->conv,
                                             .dtype = DDP_BF16,
                                             .compute = DDP_BF16,
                                             .x = l->x,
                                             .y = l->y,
                                             .weight = l->weight_f32,
                                             .dy = l->dy,
                                             .dx = dx ? l->dx : NULL,
                                             .dweight = dx ? NULL : l->dweight,
                                             .scratch = l->scratch};
    return b->kernels->conv2d_backward(&args, b->stream);
}

static enum ddp_status conv_dx(struct device_bench *b)
{
    return conv_backward(b, true);
}

static enum ddp_status conv_dweight(struct device_bench *b)
{
    return conv_backward(b, false);
}

/* 3 x 3, as many channels out as in. */
static void convolution(struct device_bench *b, const struct device_sizes *sizes, int64_t channels,
                        int64_t side, bool *first)
{
    static const struct device_row passes[] = {
        {.name = "forward", .run = conv_forward},
        {.name = "dX", .run = conv_dx},
        {.name = "dW", .run = conv_dweight},
    };
    const int64_t pixels = sizes->images * side * side, weights = channels * channels * 9;
    const double flop = 2.0 * (double)pixels * (double)weights;
    const size_t left = device_pieces();
    char name[96];
    struct device_layer layer = {.conv = {.batch = sizes->images,
                                          .height = side,
                                          .width = side,
                                          .in = channels,
                                          .out = channels,
                                          .kernel_height = 3,
                                          .kernel_width = 3,
                                          .stride = 1,
                                          .padding = 1,
                                          .dilation = 1}};
    const size_t forward = ddp_conv2d_forward_scratch_bytes(&layer.conv);
    const size_t backward = ddp_conv2d_backward_scratch_bytes(&layer.conv);
    layer.x = halves(b, pixels * channels);
    layer.y = layer.dy = halves(b, pixels * channels);
    layer.dx = halves(b, pixels * channels);
    layer.weight_f32 = device_memory(b, (size_t)weights * sizeof(float));
    layer.dweight = device_memory(b, (size_t)weights * sizeof(float));
    layer.scratch = device_memory(b, forward > backward ? forward : backward);
    device_fill(b, layer.weight_f32, (size_t)weights, -1);
    snprintf(name, sizeof name, "convolution %lldx%lldx%lld", (long long)channels, (long long)side,
             (long long)side);
    measure(b, &layer, name, passes, 3, (const double[]){flop, flop, flop}, left, first);
}

void device_layers_print(struct device_bench *b, const struct device_sizes *sizes, const char *kind,
                         bool *first)
{
    if (strcmp(kind, "products") == 0) {
        products(b, sizes, first);
    } else if (strcmp(kind, "attention") == 0) {
        attention(b, sizes, first);
    } else if (sizes->tiny) {
        convolution(b, sizes, 16, 4, first);
    } else {
        for (int64_t channels = 64, side = 32; channels <= 512; channels *= 2, side /= 2)
            convolution(b, sizes, channels, side, first);
    }
}
