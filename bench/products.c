/* SPDX-License-Identifier: MIT
 *
 * Speed of what multiplies, on the shapes of GPT-2 124M, 4 rows of 64 and of 1024 tokens, and of
 * the MLP: milliseconds, GFLOP/s and the share of the fastest product of these threads, measured in
 * the same run. */
#include "config.h"

#include "bench/bench.h"
#include "bench/median.h"
#include "core/clock.h"
#include "core/pool.h"
#include "kernels/attention/attention.h"
#include "kernels/bf16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernels.h"
#include "kernels/linear.h"

#include <stdio.h>
#include <string.h>
#ifdef HAVE_ONEDNN
#include <dnnl.h>
#endif

#define SAMPLES 9
#define BATCH   4
#define C       768
#define HEADS   12
#define V       50257

struct speeds {
    double f32, bf16, onednn; /* GFLOP/s; 0 where there is none */
};

static ddp_pool *pool;
static struct speeds peak;
static bool busy;

typedef enum ddp_status call(void *args);

#define RUN(name, operation)                                                                       \
    static enum ddp_status run_##name(void *args)                                                  \
    {                                                                                              \
        return ddp_##operation(args, pool);                                                        \
    }
RUN(gemm, gemm)
RUN(attention_forward, attention_forward)
RUN(attention_backward, attention_backward)

/* The clock; or, for a machine that has other things to do, processor time by thread. */
static int64_t now_ns(void)
{
    if (!busy)
        return ddp_clock_ns();
    return (int64_t)(bench_cpu_seconds() * 1e9) / ddp_pool_threads(pool);
}

/* Median milliseconds. */
static double measure(call *function, void *args)
{
    double samples[SAMPLES];
    for (int i = -1; i < SAMPLES; i++) { /* the first warms up */
        int64_t begin = now_ns(), end;
        int calls = 0;
        do {
            bench_must(function(args));
            calls++;
            end = now_ns();
        } while (end - begin < 2000000);
        if (i >= 0)
            samples[i] = (double)(end - begin) / 1e6 / calls;
    }
    return median(samples, SAMPLES);
}

static uint16_t *rounded(const float *from, int64_t count)
{
    uint16_t *values = bench_memory((size_t)(count + 1) * sizeof *values);
    const struct ddp_to_bf16 args = {.count = count, .x = from, .y = values};
    bench_must(ddp_to_bf16(&args, NULL));
    return values;
}

/* --- products --- */

/* C = A B, of matrices that may be stored transposed. */
struct product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
};

/* One whole call of the library, on the calling thread. */
static enum ddp_status run_library(void *args)
{
#ifdef HAVE_ONEDNN
    const struct ddp_gemm *gemm = args;
    const dnnl_status_t status = dnnl_sgemm(
        gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', gemm->m, gemm->n, gemm->k,
        1.0f, gemm->a, gemm->lda, gemm->b, gemm->ldb, gemm->beta, gemm->c, gemm->ldc);
    return status == dnnl_success ? DDP_OK : DDP_ERR_SYSTEM;
#else
    return ddp_gemm_plain(args, NULL);
#endif
}

static struct speeds speeds_of(const struct product *p)
{
    const size_t begin = bench_pieces();
    float *a = bench_numbers(p->m * p->k), *b = bench_numbers(p->k * p->n),
          *c = bench_numbers(p->m * p->n);
    struct ddp_gemm f32 = {.transpose_a = p->transpose_a,
                           .transpose_b = p->transpose_b,
                           .m = p->m,
                           .n = p->n,
                           .k = p->k,
                           .a = a,
                           .lda = p->transpose_a ? p->m : p->k,
                           .b = b,
                           .ldb = p->transpose_b ? p->k : p->n,
                           .c = c,
                           .ldc = p->n};
    struct ddp_gemm bf16 = f32;
    bf16.bf16 = true;
    bf16.a = rounded(a, p->m * p->k);
    bf16.b = rounded(b, p->k * p->n);
    const double mflop = 2e-6 * (double)p->m * (double)p->n * (double)p->k;
    struct speeds speeds = {.f32 = mflop / measure(run_gemm, &f32),
                            .onednn = mflop / measure(run_library, &f32)};
    if (ddp_gemm_bf16_native())
        speeds.bf16 = mflop / measure(run_gemm, &bf16);
    bench_release(begin);
    return speeds;
}

/* The fastest product there is: square tiles in plenty, nothing transposed. */
static void find_peaks(void)
{
    peak = speeds_of(&(struct product){.m = 1536, .n = 1536, .k = 768});
    printf("fastest product: %.0f GFLOP/s, bf16 %.0f, oneDNN's on one thread %.0f\n", peak.f32,
           peak.bf16, peak.onednn);
}

static void bench_product(const char *name, int64_t m, int64_t n, int64_t k, bool ta, bool tb)
{
    const struct speeds speeds = speeds_of(&(struct product){m, n, k, ta, tb});
    printf("  %-8s %5lld x %5lld x %5lld %7.1f GFLOP/s %3.0f %%   library %7.1f", name,
           (long long)m, (long long)n, (long long)k, speeds.f32, 100 * speeds.f32 / peak.f32,
           speeds.onednn);
    if (speeds.bf16 > 0)
        printf("   bf16 %7.1f GFLOP/s %3.0f %%", speeds.bf16, 100 * speeds.bf16 / peak.bf16);
    puts("");
}

/* The three products of a linear layer. */
static void bench_products(const char *name, int64_t rows, int64_t out, int64_t in)
{
    bench_product(name, rows, out, in, false, true);
    bench_product("  dX", rows, in, out, false, false);
    bench_product("  dW", out, in, rows, true, false);
}

static void bench_gpt2_products(int64_t rows)
{
    bench_products("qkv", rows, 3 * C, C);
    bench_products("attproj", rows, C, C);
    bench_products("fc", rows, 4 * C, C);
    bench_products("fcproj", rows, C, 4 * C);
    if (rows <= 256) /* more takes gigabytes */
        bench_products("head", rows, V, C);
}

static void bench_mlp_products(void)
{
    puts("MLP, products");
    for (int64_t rows = 32; rows <= 256; rows *= 2) {
        bench_products("hidden 1", rows, 512, 784);
        bench_products("hidden 2", rows, 512, 512);
        bench_products("classes", rows, 10, 512);
    }
}

/* --- attention --- */

static void print_flops(const char *name, double ms, double gflop)
{
    printf("  %-34s %9.3f ms  %7.1f GFLOP/s  %3.0f %%\n", name, ms, gflop / ms * 1e3,
           100 * gflop / ms * 1e3 / peak.f32);
}

/* Half of the square counts as work: what is above the diagonal does not. */
static void bench_attention(int64_t length)
{
    const size_t begin = bench_pieces();
    const int64_t n = BATCH * length * C, rows = BATCH * length * HEADS;
    float *qkv = bench_numbers(3 * n), *y = bench_numbers(n), *lse = bench_numbers(rows),
          *dy = bench_numbers(n), *dqkv = bench_numbers(3 * n);
    const struct ddp_attention_shape shape =
        ddp_attention_packed(BATCH, length, HEADS, C / HEADS, DDP_F32);
    struct ddp_attention_forward forward = {
        .shape = shape, .q = qkv, .k = qkv + C, .v = qkv + 2 * C, .y = y, .lse = lse};
    struct ddp_attention_backward backward = {.shape = shape,
                                              .q = qkv,
                                              .k = qkv + C,
                                              .v = qkv + 2 * C,
                                              .y = y,
                                              .lse = lse,
                                              .dy = dy,
                                              .dq = dqkv,
                                              .dk = dqkv + C,
                                              .dv = dqkv + 2 * C};
    const double gflop = 2e-9 * (double)n * (double)(length + 1) / 2;
    print_flops("attention forward", measure(run_attention_forward, &forward), 2 * gflop);
    print_flops("attention backward", measure(run_attention_backward, &backward), 5 * gflop);
    bench_release(begin);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    busy = argc > 2 && strcmp(argv[2], "cpu") == 0;
    bench_must(ddp_pool_create(&pool, threads));
    ddp_onednn_stay_single();
    printf("GPT-2 124M, %d rows a batch, %d threads%s; ", BATCH, threads,
           busy ? ", processor time by thread" : "");
    find_peaks();
    for (int64_t length = 64; length <= 1024; length *= 16) {
        printf("T = %lld\n", (long long)length);
        bench_gpt2_products(BATCH * length);
        bench_attention(length);
    }
    bench_mlp_products();
    ddp_pool_destroy(pool);
    return 0;
}
