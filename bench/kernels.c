/* SPDX-License-Identifier: MIT
 *
 * Speed of the CPU kernels, for developers: GFLOP/s of the products of the MLP, against one whole
 * call of oneDNN where the build has it, and GB/s of the optimizer. */
#include "config.h"

#include "core/clock.h"
#include "kernels/cpu/gemm.h"
#include "kernels/sgd.h"
#include "core/pool.h"

#include <stdlib.h>
#include <string.h>
#ifdef HAVE_ONEDNN
#include <dnnl.h>
#endif
#ifdef HAVE_GOMP
void omp_set_num_threads(int threads);
#endif

#define SAMPLES   9
#define SAMPLE_NS 4000000

typedef enum ddp_status gemm_function(const struct ddp_gemm *gemm, void *stream);

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One whole call of the library on the calling thread. */
static enum ddp_status whole(const struct ddp_gemm *gemm, void *stream)
{
    (void)stream;
#ifdef HAVE_ONEDNN
    dnnl_status_t status = dnnl_sgemm(gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N',
                                      gemm->m, gemm->n, gemm->k, 1.0f, gemm->a, gemm->lda, gemm->b,
                                      gemm->ldb, gemm->beta, gemm->c, gemm->ldc);
    return status == dnnl_success ? DDP_OK : DDP_ERR_SYSTEM;
#else
    return ddp_gemm_plain(gemm, NULL);
#endif
}

/* Median seconds of one product. */
static double seconds(gemm_function *function, const struct ddp_gemm *gemm, ddp_pool *pool)
{
    double samples[SAMPLES];
    for (int i = -1; i < SAMPLES; i++) { /* the first warms up */
        int64_t begin = ddp_clock_ns(), end;
        int calls = 0;
        do {
            if (function(gemm, pool))
                exit(EXIT_FAILURE);
            calls++;
            end = ddp_clock_ns();
        } while (end - begin < SAMPLE_NS);
        if (i >= 0)
            samples[i] = (double)(end - begin) / 1e9 / calls;
    }
    qsort(samples, SAMPLES, sizeof samples[0], by_value);
    return samples[SAMPLES / 2];
}

static float *numbers(size_t count)
{
    float *values = malloc(count * sizeof *values);
    if (!values)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 251) / 251 - 0.5f;
    return values;
}

static void bench_gemm(const char *name, int64_t m, int64_t n, int64_t k, bool transpose_a,
                       bool transpose_b, ddp_pool *two)
{
    float *a = numbers((size_t)(m * k)), *b = numbers((size_t)(k * n)),
          *c = numbers((size_t)(m * n));
    struct ddp_gemm gemm = {
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .m = m,
        .n = n,
        .k = k,
        .a = a,
        .lda = transpose_a ? m : k,
        .b = b,
        .ldb = transpose_b ? k : n,
        .c = c,
        .ldc = n,
    };
    double gflop = 2e-9 * (double)m * (double)n * (double)k;
    double library = gflop / seconds(whole, &gemm, NULL);
    double one = gflop / seconds(ddp_gemm, &gemm, NULL);
    double both = gflop / seconds(ddp_gemm, &gemm, two);
    double plain = gflop / seconds(ddp_gemm_plain, &gemm, NULL);
    printf("%-8s %4lld %4lld %4lld  %7.1f %7.1f %5.0f %% %7.1f %5.2fx  %7.1f\n", name, (long long)m,
           (long long)n, (long long)k, library, one, 100 * one / library, both, both / one, plain);
    free(a);
    free(b);
    free(c);
}

static void bench_sgd(size_t count, ddp_pool *two)
{
    float *weight = numbers(count), *gradient = numbers(count), *velocity = numbers(count);
    struct ddp_sgd sgd = {
        .count = (int64_t)count,
        .weight = weight,
        .gradient = gradient,
        .velocity = velocity,
        .scale = 0.125f,
        .rate = 1e-6f,
        .momentum = 0.9f,
    };
    for (int threads = 1; threads <= 2; threads++) {
        double best = 1e9;
        for (int i = 0; i < SAMPLES; i++) {
            int64_t begin = ddp_clock_ns();
            if (ddp_sgd(&sgd, threads == 1 ? NULL : two))
                exit(EXIT_FAILURE);
            double taken = (double)(ddp_clock_ns() - begin) / 1e9;
            best = taken < best ? taken : best;
        }
        printf("sgd, momentum, %zu elements, %d thread%s: %.1f GB/s\n", count, threads,
               threads == 1 ? "" : "s", (double)count * 20 / best / 1e9);
    }
    free(weight);
    free(gradient);
    free(velocity);
}

int main(void)
{
    ddp_pool *two;
    if (ddp_pool_create(&two, 2))
        return EXIT_FAILURE;
#ifdef HAVE_GOMP
    omp_set_num_threads(1);
#endif
    puts("GFLOP/s     m    n    k  library       1        of       2 threads    plain C");
    const int64_t layers[][2] = {{784, 512}, {512, 512}, {512, 10}};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (int64_t rows = 32; rows <= 256; rows *= 2) {
            int64_t in = layers[i][0], out = layers[i][1];
            bench_gemm("forward", rows, out, in, false, true, two);
            bench_gemm("dX", rows, in, out, false, false, two);
            bench_gemm("dW", out, in, rows, true, false, two);
        }
    bench_sgd(669706, two); /* the MLP */
    bench_sgd(16u << 20, two);
    ddp_pool_destroy(two);
    return EXIT_SUCCESS;
}
