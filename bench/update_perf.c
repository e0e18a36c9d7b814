/* SPDX-License-Identifier: MIT
 *
 * Speed of the update of a large model, against the speed at which memory can be copied: the rows
 * by turns, so that all see the same state of the machine. Bytes are those of the arrays, read and
 * written. */
#include "config.h"

#include "core/clock.h"
#include "core/memory.h"
#include "kernels/adamw.h"
#include "kernels/norm.h"
#include "kernels/sgd.h"

#include "core/parse.h"
#include "core/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2   124439808 /* parameters of GPT-2, the small one */
#define ROUNDS 15
#define PIECE  (1 << 20) /* elements of a copying task */

struct arrays {
    int64_t count;
    float *w, *g, *m, *v;
    uint16_t *half;
    double *sums;
};

static void *memory(size_t bytes)
{
    void *pages = ddp_pages_alloc(bytes);
    if (!pages)
        exit(EXIT_FAILURE);
    memset(pages, 0, bytes);
    return pages;
}

static void copy_task(void *arg, size_t index)
{
    const struct arrays *a = arg;
    const int64_t begin = (int64_t)index * PIECE;
    const int64_t count = a->count - begin < PIECE ? a->count - begin : PIECE;
    memcpy(a->m + begin, a->g + begin, (size_t)count * sizeof(float));
}

static void copy(struct arrays *a, ddp_pool *pool)
{
    ddp_pool_run(pool, (size_t)((a->count + PIECE - 1) / PIECE), copy_task, a);
}

static struct ddp_adamw adamw_of(const struct arrays *a)
{
    return (struct ddp_adamw){.count = a->count,
                              .weight = a->w,
                              .gradient = a->g,
                              .exp_avg = a->m,
                              .exp_avg_sq = a->v,
                              .scale = 0.125f,
                              .rate = 6e-4,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .decoupled = true,
                              .step = 100};
}

static void adamw(struct arrays *a, ddp_pool *pool)
{
    const struct ddp_adamw args = adamw_of(a);
    if (ddp_adamw(&args, pool))
        exit(EXIT_FAILURE);
}

static void adamw_bf16(struct arrays *a, ddp_pool *pool)
{
    struct ddp_adamw args = adamw_of(a);
    args.weight_bf16 = a->half;
    if (ddp_adamw(&args, pool))
        exit(EXIT_FAILURE);
}

static void sgd(struct arrays *a, ddp_pool *pool)
{
    const struct ddp_sgd args = {.count = a->count,
                                 .weight = a->w,
                                 .gradient = a->g,
                                 .velocity = a->m,
                                 .scale = 0.125f,
                                 .rate = 1e-6f,
                                 .momentum = 0.9f};
    if (ddp_sgd(&args, pool))
        exit(EXIT_FAILURE);
}

static void norm(struct arrays *a, ddp_pool *pool)
{
    const struct ddp_norm args = {.end = a->count, .x = a->g, .sums = a->sums};
    if (ddp_norm(&args, pool))
        exit(EXIT_FAILURE);
}

static const struct {
    const char *name;
    double bytes; /* a parameter */
    void (*run)(struct arrays *a, ddp_pool *pool);
} rows[] = {
    {"copy (memcpy)", 8, copy}, {"adamw", 28, adamw}, {"adamw, bf16 copy", 30, adamw_bf16},
    {"sgd, momentum", 20, sgd}, {"norm", 4, norm},
};
#define ROWS (sizeof rows / sizeof rows[0])

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct arrays *a, int threads)
{
    static double seconds[ROWS][ROUNDS];
    ddp_pool *pool;
    if (ddp_pool_create(&pool, threads))
        exit(EXIT_FAILURE);
    for (int round = -1; round < ROUNDS; round++) /* the first warms up */
        for (size_t i = 0; i < ROWS; i++) {
            const int64_t begin = ddp_clock_ns();
            rows[i].run(a, pool);
            if (round >= 0)
                seconds[i][round] = (double)(ddp_clock_ns() - begin) / 1e9;
        }
    double bandwidth = 0;
    for (size_t i = 0; i < ROWS; i++) {
        qsort(seconds[i], ROUNDS, sizeof(double), by_value);
        const double median = seconds[i][ROUNDS / 2], least = seconds[i][0];
        const double speed = rows[i].bytes * (double)a->count / median / 1e9;
        bandwidth = i == 0 ? speed : bandwidth;
        printf("%d thread%s  %-18s %8.1f ms (least %.1f)  %6.1f GB/s  %4.0f %% of copying\n",
               threads, threads == 1 ? " " : "s", rows[i].name, median * 1e3, least * 1e3, speed,
               100 * speed / bandwidth);
    }
    ddp_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    struct arrays a = {.count = GPT2};
    if (argc > 2 || (argc == 2 && !ddp_parse_int64(argv[1], 1, 1 << 30, &a.count))) {
        fprintf(stderr, "usage: update_perf [PARAMETERS]\n");
        return EXIT_FAILURE;
    }
    const size_t bytes = (size_t)a.count * sizeof(float);
    a.w = memory(bytes);
    a.g = memory(bytes);
    a.m = memory(bytes);
    a.v = memory(bytes);
    a.half = memory(bytes / 2);
    a.sums = memory((size_t)ddp_norm_blocks(a.count) * sizeof(double));
    for (int64_t i = 0; i < a.count; i++)
        a.w[i] = a.g[i] = (float)(i % 251) / 251 - 0.5f;
    printf("%lld parameters, medians of %d rounds\n", (long long)a.count, ROUNDS);
    for (int threads = 1; threads <= 2; threads++)
        measure(&a, threads);
    ddp_pages_free(a.w, bytes);
    ddp_pages_free(a.g, bytes);
    ddp_pages_free(a.m, bytes);
    ddp_pages_free(a.v, bytes);
    ddp_pages_free(a.half, bytes / 2);
    ddp_pages_free(a.sums, (size_t)ddp_norm_blocks(a.count) * sizeof(double));
    return EXIT_SUCCESS;
}
