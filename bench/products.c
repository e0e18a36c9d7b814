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
#include "kernels/kernels.h"
#include "kernels/linear.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURNS   15
#define TURN_NS 2000000
#define BATCH   4
#define C       768
#define HEADS   12
#define V       50257

/* GFLOP/s of a product, here and by the peer; 0 where there is none. */
struct speeds {
    double own[2], peer[2]; /* float32, bf16 */
};

static ddp_pool *pool;
static struct speeds peak;
static bool busy;
static struct {
    double logs, worst;
    int count;
} against_peer[2];

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

/* Milliseconds of a call, in one turn. */
static double turn(call *function, void *args)
{
    int64_t begin = now_ns(), end;
    int calls = 0;
    do {
        bench_must(function(args));
        calls++;
        end = now_ns();
    } while (end - begin < TURN_NS);
    return (double)(end - begin) / 1e6 / calls;
}

/* Median milliseconds. */
static double measure(call *function, void *args)
{
    double samples[TURNS];
    turn(function, args); /* warms up */
    for (int i = 0; i < TURNS; i++)
        samples[i] = turn(function, args);
    return median(samples, TURNS);
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

/* oneDNN 2 or 3 as a peer, if it is installed: it has its threads from OpenMP. */
static struct {
    int (*sgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
    int (*gemm_bf16)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha,
                     const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta,
                     float *c, int64_t ldc);
} peer;

static void find_peer(int threads)
{
    char number[16];
    snprintf(number, sizeof number, "%d", threads);
    setenv("OMP_NUM_THREADS", number, 1);
    void *library = dlopen("libdnnl.so.3", RTLD_NOW);
    library = library ? library : dlopen("libdnnl.so.2", RTLD_NOW);
    if (!library)
        return;
    *(void **)&peer.sgemm = dlsym(library, "dnnl_sgemm");
    *(void **)&peer.gemm_bf16 = dlsym(library, "dnnl_gemm_bf16bf16f32");
}

static enum ddp_status run_peer(void *args)
{
    const struct ddp_gemm *g = args;
    const char ta = g->transpose_a ? 'T' : 'N', tb = g->transpose_b ? 'T' : 'N';
    const int error = g->bf16 ? peer.gemm_bf16(ta, tb, g->m, g->n, g->k, 1, g->a, g->lda, g->b,
                                               g->ldb, g->beta, g->c, g->ldc)
                              : peer.sgemm(ta, tb, g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb,
                                           g->beta, g->c, g->ldc);
    return error ? DDP_ERR_SYSTEM : DDP_OK;
}

/* By turns, so that what else the machine does meets both. Threads of OpenMP spin after their work:
 * they are given time to end. */
static void compare(struct ddp_gemm *gemm, double *own, double *theirs)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const bool has_peer = gemm->bf16 ? peer.gemm_bf16 != NULL : peer.sgemm != NULL;
    const double mflop = 2e-6 * (double)gemm->m * (double)gemm->n * (double)gemm->k;
    double samples[2][TURNS];
    if (!has_peer) {
        *own = mflop / measure(run_gemm, gemm);
        return;
    }
    for (int i = -1; i < TURNS; i++) { /* the first warms up */
        const double here = turn(run_gemm, gemm), there = turn(run_peer, gemm);
        if (i >= 0) {
            samples[0][i] = here;
            samples[1][i] = there;
        }
        if (ddp_pool_threads(pool) > 1)
            nanosleep(&pause, NULL);
    }
    *own = mflop / median(samples[0], TURNS);
    *theirs = mflop / median(samples[1], TURNS);
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
    struct speeds speeds = {0};
    compare(&f32, &speeds.own[0], &speeds.peer[0]);
    compare(&bf16, &speeds.own[1], &speeds.peer[1]);
    bench_release(begin);
    return speeds;
}

/* The fastest product there is: square tiles in plenty, nothing transposed. */
static void find_peaks(void)
{
    peak = speeds_of(&(struct product){.m = 1536, .n = 1536, .k = 768});
    printf("fastest product: %.0f GFLOP/s, bf16 %.0f; oneDNN's %.0f and %.0f\n", peak.own[0],
           peak.own[1], peak.peer[0], peak.peer[1]);
}

static void bench_product(const char *name, int64_t m, int64_t n, int64_t k, bool ta, bool tb)
{
    static const char *const types[] = {"", "   bf16"};
    const struct speeds speeds = speeds_of(&(struct product){m, n, k, ta, tb});
    printf("  %-8s %5lld x %5lld x %5lld %c%c", name, (long long)m, (long long)n, (long long)k,
           ta ? 'T' : 'N', tb ? 'T' : 'N');
    for (int type = 0; type < 2; type++) {
        printf("%s %7.1f GFLOP/s %3.0f %%", types[type], speeds.own[type],
               100 * speeds.own[type] / peak.own[type]);
        if (speeds.peer[type] == 0)
            continue;
        const double ratio = speeds.own[type] / speeds.peer[type];
        printf(", oneDNN %7.1f: %.2f", speeds.peer[type], ratio);
        against_peer[type].logs += log(ratio);
        if (against_peer[type].count++ == 0 || ratio < against_peer[type].worst)
            against_peer[type].worst = ratio;
    }
    puts("");
    fflush(stdout);
}

static void print_means(void)
{
    static const char *const types[] = {"float32", "bf16"};
    for (int type = 0; type < 2; type++)
        if (against_peer[type].count > 0)
            printf("%s, %d products: geometric mean %.3f of oneDNN, worst %.2f\n", types[type],
                   against_peer[type].count,
                   exp(against_peer[type].logs / against_peer[type].count),
                   against_peer[type].worst);
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

/* One row or column, and few rows: what fits into no cache, and what does. */
static void bench_few_rows(void)
{
    puts("few rows");
    for (int flags = 0; flags < 4; flags++) {
        bench_product("row", 1, 4 * C, C, flags & 1, flags & 2);
        bench_product("column", 4 * C, 1, C, flags & 1, flags & 2);
        bench_product("4 rows", 4, 4 * C, C, flags & 1, flags & 2);
        bench_product("16 rows", 16, 4 * C, C, flags & 1, flags & 2);
    }
    bench_product("head", 1, V, C, false, true);
}

/* --- attention --- */

static void print_flops(const char *name, double ms, double gflop)
{
    printf("  %-34s %9.3f ms  %7.1f GFLOP/s  %3.0f %%\n", name, ms, gflop / ms * 1e3,
           100 * gflop / ms * 1e3 / peak.own[0]);
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
    find_peer(threads);
    printf("GPT-2 124M, %d rows a batch, %d threads%s; ", BATCH, threads,
           busy ? ", processor time by thread" : "");
    find_peaks();
    for (int64_t length = 64; length <= 1024; length *= 16) {
        printf("T = %lld\n", (long long)length);
        bench_gpt2_products(BATCH * length);
        bench_attention(length);
    }
    bench_mlp_products();
    bench_few_rows();
    print_means();
    ddp_pool_destroy(pool);
    return 0;
}
