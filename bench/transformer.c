/* SPDX-License-Identifier: MIT
 *
 * Speed of the transformer's kernels on the shapes of GPT-2 124M, 4 rows of 64 and of 1024 tokens:
 * milliseconds, GFLOP/s or GB/s, and the share of a bound measured in the same run: the fastest
 * product of oneDNN on these threads, or a copy of arrays as large as the operation's. */
#include "config.h"

#include "core/clock.h"
#include "core/pool.h"
#include "kernels/add.h"
#include "kernels/attention/attention.h"
#include "kernels/bf16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/kernels.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/softmax_cross_entropy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES 9
#define BATCH   4
#define C       768
#define HEADS   12
#define V       50257
#define PIECES  32

static ddp_pool *pool;
static double peak_f32, peak_bf16; /* GFLOP/s */
static double layer_ms;            /* sum over the operations of one layer */
static bool busy;
static void *pieces[PIECES]; /* of memory */
static size_t piece_count;

typedef enum ddp_status call(void *args);

#define RUN(name, operation)                                                                       \
    static enum ddp_status run_##name(void *args)                                                  \
    {                                                                                              \
        return ddp_##operation(args, pool);                                                        \
    }
RUN(add, add)
RUN(gemm, gemm)
RUN(attention_forward, attention_forward)
RUN(attention_backward, attention_backward)
RUN(norm_forward, layer_norm_forward)
RUN(norm_backward, layer_norm_backward)
RUN(dropout, dropout)
RUN(linear_forward, linear_forward)
RUN(loss, softmax_cross_entropy)
RUN(embedding_forward, embedding_forward)
RUN(embedding_backward, embedding_backward)

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The clock; or, for a machine that has other things to do, processor time by thread. */
static int64_t now_ns(void)
{
    struct timespec time;
    if (!busy)
        return ddp_clock_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return ((int64_t)time.tv_sec * 1000000000 + time.tv_nsec) / ddp_pool_threads(pool);
}

/* Median milliseconds. */
static double measure(call *function, void *args)
{
    double samples[SAMPLES];
    for (int i = -1; i < SAMPLES; i++) { /* the first warms up */
        int64_t begin = now_ns(), end;
        int calls = 0;
        do {
            if (function(args))
                exit(EXIT_FAILURE);
            calls++;
            end = now_ns();
        } while (end - begin < 2000000);
        if (i >= 0)
            samples[i] = (double)(end - begin) / 1e6 / calls;
    }
    qsort(samples, SAMPLES, sizeof samples[0], by_value);
    return samples[SAMPLES / 2];
}

/* Until release(). */
static void *memory(size_t bytes)
{
    void *values = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!values || piece_count == PIECES)
        exit(EXIT_FAILURE);
    memset(values, 0, bytes);
    return pieces[piece_count++] = values;
}

/* Frees all memory but the first `left` pieces. */
static void release(size_t left)
{
    while (piece_count > left)
        free(pieces[--piece_count]);
}

/* In [-1/2, 1/2); never so small that products of them underflow. */
static float *numbers(int64_t count)
{
    float *values = memory((size_t)(count + 1) * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = ((float)((uint32_t)i * 2654435761u >> 24) - 127.5f) / 256;
    return values;
}

static uint16_t *rounded(const float *from, int64_t count)
{
    uint16_t *values = memory((size_t)(count + 1) * sizeof *values);
    const struct ddp_to_bf16 args = {.count = count, .x = from, .y = values};
    if (ddp_to_bf16(&args, NULL))
        exit(EXIT_FAILURE);
    return values;
}

static void print_flops(const char *name, double ms, double gflop, double peak)
{
    printf("  %-34s %9.3f ms  %7.1f GFLOP/s  %3.0f %% of the fastest product\n", name, ms,
           gflop / ms * 1e3, 100 * gflop / ms * 1e3 / peak);
    layer_ms += ms;
}

/* A copy that moves as many bytes is the bound. */
static void print_bytes(const char *name, double ms, int64_t bytes)
{
    const size_t begin = piece_count;
    float *from = numbers(bytes / 8), *to = numbers(bytes / 8);
    double bound = measure(run_add, &(struct ddp_add){.count = bytes / 8, .a = from, .y = to});
    printf("  %-34s %9.3f ms  %7.1f GB/s     %3.0f %% of a copy\n", name, ms,
           (double)bytes / 1e6 / ms, 100 * bound / ms);
    release(begin);
    layer_ms += ms;
}

/* --- products
 * ------------------------------------------------------------------------------------- */

static void bench_product(const char *name, int64_t m, int64_t n, int64_t k, bool ta, bool tb)
{
    const size_t begin = piece_count;
    float *a = numbers(m * k), *b = numbers(k * n), *c = numbers(m * n);
    uint16_t *a16 = rounded(a, m * k), *b16 = rounded(b, k * n);
    const int64_t lda = ta ? m : k, ldb = tb ? k : n;
    struct ddp_gemm f32 = {
        .transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k, .a = a, .b = b, .c = c};
    f32.lda = lda;
    f32.ldb = ldb;
    f32.ldc = n;
    struct ddp_gemm bf16 = {.bf16 = true,
                            .transpose_a = ta,
                            .transpose_b = tb,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = a16,
                            .b = b16,
                            .c = c};
    bf16.lda = lda;
    bf16.ldb = ldb;
    bf16.ldc = n;
    const double gflop = 2e-9 * (double)m * (double)n * (double)k;
    const double ms = measure(run_gemm, &f32);
    printf("  %-8s %5lld x %5lld x %5lld %8.2f ms %7.1f GFLOP/s %3.0f %%", name, (long long)m,
           (long long)n, (long long)k, ms, gflop / ms * 1e3, 100 * gflop / ms * 1e3 / peak_f32);
    if (ddp_gemm_bf16_native()) {
        const double half = measure(run_gemm, &bf16);
        printf("   bf16 %8.2f ms %7.1f GFLOP/s %3.0f %%", half, gflop / half * 1e3,
               100 * gflop / half * 1e3 / peak_bf16);
    }
    puts("");
    release(begin);
}

/* The fastest product there is: square tiles in plenty, nothing transposed. */
static void find_peaks(void)
{
    const size_t begin = piece_count;
    enum { M = 1536, N = 1536, K = 768 };
    float *a = numbers(M * K), *b = numbers(K * N), *c = numbers(M * N);
    uint16_t *a16 = rounded(a, M * K), *b16 = rounded(b, K * N);
    const double gflop = 2e-9 * M * N * K;
    struct ddp_gemm f32 = {.m = M, .n = N, .k = K, .a = a, .b = b, .c = c};
    f32.lda = K;
    f32.ldb = f32.ldc = N;
    peak_f32 = gflop / measure(run_gemm, &f32) * 1e3;
    printf("fastest product: %.0f GFLOP/s", peak_f32);
    if (ddp_gemm_bf16_native()) {
        struct ddp_gemm bf16 = {.bf16 = true, .m = M, .n = N, .k = K, .a = a16, .b = b16, .c = c};
        bf16.lda = K;
        bf16.ldb = bf16.ldc = N;
        peak_bf16 = gflop / measure(run_gemm, &bf16) * 1e3;
        printf(", of bf16 %.0f", peak_bf16);
    }
    puts("");
    release(begin);
}

static void bench_products(int64_t rows)
{
    static const struct {
        const char *name;
        int64_t out, in;
    } layers[] = {{"qkv", 3 * C, C},
                  {"attproj", C, C},
                  {"fc", 4 * C, C},
                  {"fcproj", C, 4 * C},
                  {"head", V, C}};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (rows > 256 && layers[i].out == V)
            continue; /* gigabytes */
        bench_product(layers[i].name, rows, layers[i].out, layers[i].in, false, true);
        bench_product("  dX", rows, layers[i].in, layers[i].out, false, false);
        bench_product("  dW", layers[i].out, layers[i].in, rows, true, false);
    }
}

/* --- one layer
 * ------------------------------------------------------------------------------------ */

/* Half of the square counts as work: what is above the diagonal does not. */
static void bench_attention(int64_t length)
{
    const size_t begin = piece_count;
    const int64_t n = BATCH * length * C, rows = BATCH * length * HEADS;
    float *qkv = numbers(3 * n), *y = numbers(n), *lse = numbers(rows), *dy = numbers(n),
          *dqkv = numbers(3 * n);
    struct ddp_attention_forward forward = {.batch = BATCH,
                                            .length = length,
                                            .heads = HEADS,
                                            .head_size = C / HEADS,
                                            .qkv = qkv,
                                            .y = y,
                                            .lse = lse};
    struct ddp_attention_backward backward = {.batch = BATCH,
                                              .length = length,
                                              .heads = HEADS,
                                              .head_size = C / HEADS,
                                              .qkv = qkv,
                                              .y = y,
                                              .lse = lse,
                                              .dy = dy,
                                              .dqkv = dqkv};
    const double gflop = 2e-9 * (double)n * (double)(length + 1) / 2;
    print_flops("attention forward", measure(run_attention_forward, &forward), 2 * gflop, peak_f32);
    print_flops("attention backward", measure(run_attention_backward, &backward), 5 * gflop,
                peak_f32);
    release(begin);
}

static void bench_rows(int64_t rows)
{
    const size_t begin = piece_count;
    const int64_t n = rows * C;
    float *x = numbers(n), *y = numbers(n), *dy = numbers(n), *gamma = numbers(4 * C),
          *statistics = numbers(2 * rows);
    struct ddp_layer_norm_forward forward = {.rows = rows,
                                             .features = C,
                                             .eps = 1e-5f,
                                             .x = x,
                                             .gamma = gamma,
                                             .beta = gamma + C,
                                             .y = y,
                                             .statistics = statistics};
    struct ddp_layer_norm_backward backward = {.rows = rows,
                                               .features = C,
                                               .x = x,
                                               .gamma = gamma,
                                               .statistics = statistics,
                                               .dy = dy,
                                               .dx = y,
                                               .dgamma = gamma + 2 * C,
                                               .dbeta = gamma + 3 * C,
                                               .scratch =
                                                   memory(ddp_layer_norm_scratch_bytes(rows, C))};
    struct ddp_add add = {.count = n, .a = x, .b = dy, .y = y};
    struct ddp_dropout dropout = {.count = n, .probability = 0.1f, .x = x, .y = y};
    print_bytes("layer norm forward, 2", 2 * measure(run_norm_forward, &forward), 16 * n);
    print_bytes("layer norm backward, 2", 2 * measure(run_norm_backward, &backward), 24 * n);
    print_bytes("residual add, 2", 2 * measure(run_add, &add), 24 * n);
    const double before = layer_ms; /* dropout is off in GPT-2's own pretraining */
    print_bytes("(dropout, 2)", 2 * measure(run_dropout, &dropout), 16 * n);
    layer_ms = before;
    release(begin);
}

/* dy is made anew each time, or it would shrink to nothing. */
struct again {
    struct ddp_linear_backward args;
    const float *dy;
};

static enum ddp_status run_linear_backward(void *args)
{
    struct again *again = args;
    memcpy(again->args.dy, again->dy, (size_t)(again->args.rows * again->args.out) * sizeof(float));
    return ddp_linear_backward(&again->args, pool);
}

static void bench_linear(const char *name, int64_t rows, int64_t in, int64_t out,
                         enum ddp_activation activation, enum ddp_dtype compute)
{
    const size_t begin = piece_count;
    float *x = numbers(rows * in), *y = numbers(rows * out), *pre = numbers(rows * out),
          *weight = numbers(out * in), *bias = numbers(out), *dy = numbers(rows * out),
          *dx = numbers(rows * in), *dweight = numbers(out * in), *dbias = numbers(out);
    uint16_t *weight_bf16 = rounded(weight, out * in);
    void *scratch = memory(ddp_linear_scratch_bytes(rows, in, out, compute, DDP_F32, true) + 1);
    struct ddp_linear_forward forward = {.rows = rows,
                                         .in = in,
                                         .out = out,
                                         .activation = activation,
                                         .compute = compute,
                                         .x = x,
                                         .weight = weight,
                                         .weight_bf16 = weight_bf16,
                                         .bias = bias,
                                         .y = y,
                                         .pre = pre,
                                         .scratch = scratch};
    struct again again = {.dy = dy,
                          .args = {.rows = rows,
                                   .in = in,
                                   .out = out,
                                   .activation = activation,
                                   .compute = compute,
                                   .x = x,
                                   .y = y,
                                   .pre = pre,
                                   .weight = weight,
                                   .weight_bf16 = weight_bf16,
                                   .dy = numbers(rows * out),
                                   .dx = dx,
                                   .dweight = dweight,
                                   .dbias = dbias,
                                   .scratch = scratch}};
    const double gflop = 2e-9 * (double)rows * (double)in * (double)out;
    const double peak = compute == DDP_F32 ? peak_f32 : peak_bf16;
    char text[64];
    snprintf(text, sizeof text, "%s forward%s", name, compute == DDP_F32 ? "" : ", bf16");
    print_flops(text, measure(run_linear_forward, &forward), gflop, peak);
    snprintf(text, sizeof text, "%s backward%s", name, compute == DDP_F32 ? "" : ", bf16");
    print_flops(text, measure(run_linear_backward, &again), 2 * gflop, peak);
    release(begin);
}

static void bench_layer(int64_t length, enum ddp_dtype compute)
{
    const int64_t rows = BATCH * length;
    layer_ms = 0;
    bench_linear("qkv", rows, C, 3 * C, DDP_ACTIVATION_NONE, compute);
    bench_linear("attproj", rows, C, C, DDP_ACTIVATION_NONE, compute);
    bench_linear("fc, GELU by tanh", rows, C, 4 * C, DDP_ACTIVATION_GELU_TANH, compute);
    bench_linear("fcproj", rows, 4 * C, C, DDP_ACTIVATION_NONE, compute);
    const double products = layer_ms;
    bench_attention(length);
    bench_rows(rows);
    printf("  one layer of 124M: %.2f ms, of it %.0f %% in linear layers; 12 of them %.0f ms\n",
           layer_ms, 100 * products / layer_ms, 12 * layer_ms);
}

/* --- both ends
 * ------------------------------------------------------------------------------------ */

static void bench_ends(int64_t length)
{
    const size_t begin = piece_count;
    const int64_t rows = BATCH * length;
    float *logits = numbers(rows * V), *wte = numbers((int64_t)V * C), *wpe = numbers(length * C),
          *y = numbers(rows * C), loss;
    int32_t *tokens = memory((size_t)rows * sizeof *tokens);
    for (int64_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)(i * 7919 % V);
    struct ddp_softmax_cross_entropy entropy = {.rows = rows,
                                                .classes = V,
                                                .logits = logits,
                                                .labels = tokens,
                                                .loss = &loss,
                                                .dlogits = logits};
    struct ddp_embedding_forward forward = {.batch = BATCH,
                                            .length = length,
                                            .features = C,
                                            .vocabulary = V,
                                            .positions = length,
                                            .tokens = tokens,
                                            .wte = wte,
                                            .wpe = wpe,
                                            .y = y};
    struct ddp_embedding_backward backward = {.batch = BATCH,
                                              .length = length,
                                              .features = C,
                                              .vocabulary = V,
                                              .positions = length,
                                              .tokens = tokens,
                                              .dy = y,
                                              .dwte = wte,
                                              .dwpe = wpe,
                                              .accumulate_dwte = true};
    print_bytes("softmax cross-entropy", measure(run_loss, &entropy), 8 * rows * V);
    print_bytes("embedding forward", measure(run_embedding_forward, &forward), 12 * rows * C);
    print_bytes("embedding backward, tied", measure(run_embedding_backward, &backward),
                20 * rows * C);
    release(begin);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    busy = argc > 2 && strcmp(argv[2], "cpu") == 0;
    if (ddp_pool_create(&pool, threads))
        return EXIT_FAILURE;
    printf("GPT-2 124M, %d rows a batch, %d threads%s; ", BATCH, threads,
           busy ? ", processor time by thread" : "");
    find_peaks();
    for (int64_t length = 64; length <= 1024; length *= 16) {
        printf("T = %lld, products\n", (long long)length);
        bench_products(BATCH * length);
        for (int bf16 = 0; bf16 <= ddp_gemm_bf16_native(); bf16++) {
            printf("T = %lld, one layer in %s\n", (long long)length, bf16 ? "bf16" : "float32");
            bench_layer(length, bf16 ? DDP_BF16 : DDP_F32);
        }
        if (length == 64) {
            printf("T = %lld, both ends\n", (long long)length);
            bench_ends(length);
        }
    }
    ddp_pool_destroy(pool);
    return EXIT_SUCCESS;
}
