/* SPDX-License-Identifier: MIT
 *
 * Sums of squares by block: the same bits for any cut of the array at block borders and any number
 * of threads, near the plain sums, and PyTorch's norm. */
#include "config.h"

#include "core/rng.h"
#include "kernels/adamw.h"
#include "kernels/clip.h"
#include "kernels/ema.h"
#include "kernels/norm.h"
#include "kernels/sgd.h"
#include "tests/lib/golden.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

#define B ((int64_t)DDP_NORM_BLOCK)

static const struct {
    int64_t begin, end;
} ranges[] = {{0, 0},      {0, 1},     {16, 17},   {16, B - 1},         {0, B},
              {16, B + 1}, {3, 2 * B}, {B, 3 * B}, {B + 7, 40 * B + 5}, {70000, 70001}};

START_TEST(blocks)
{
    const int64_t begin = ranges[_i].begin, end = ranges[_i].end, count = ddp_norm_blocks(end);
    random_seed((uint64_t)_i);
    float *x = array_of(end);
    double *expected = calloc((size_t)count + 1, sizeof *expected);
    struct ddp_norm norm = {.begin = begin, .end = end, .x = x + begin, .sums = expected};
    ck_assert_int_eq(ddp_norm_reference(&norm, NULL), DDP_OK);
    double *first = calloc((size_t)count + 1, sizeof *first);
    for (int pool = 0; pool < POOLS; pool++) {
        double *sums = calloc((size_t)count + 1, sizeof *sums);
        norm.sums = sums;
        ck_assert_int_eq(ddp_norm(&norm, pools[pool]), DDP_OK);
        for (int64_t b = 0; b < count; b++)
            ck_assert_double_eq_tol(sums[b], expected[b], 1e-12 * (expected[b] + 1));
        ck_assert_double_eq(sums[count], 0);
        if (pool == 0)
            memcpy(first, sums, (size_t)count * sizeof *sums);
        ck_assert(memcmp(first, sums, (size_t)count * sizeof *sums) == 0);
        free(sums);
    }
    double *parts = calloc((size_t)count + 1, sizeof *parts);
    norm.sums = parts;
    for (int64_t at = begin; at < end; at = norm.end) {
        norm.begin = at;
        norm.x = x + at;
        norm.end = (at / B + 1 + random_below(3)) * B;
        norm.end = norm.end > end ? end : norm.end;
        ck_assert_int_eq(ddp_norm(&norm, pools[1]), DDP_OK);
    }
    ck_assert(memcmp(first, parts, (size_t)count * sizeof *parts) == 0);
    free(parts);
    free(first);
    free(expected);
    array_free(x, end);
}
END_TEST

START_TEST(as_pytorch)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("kernels/golden/optim.txt");
    while (golden_next(file, &g)) {
        if (strcmp(g.words[0], "clip") == 0) {
            struct ddp_rng rng;
            const int64_t n = strtoll(g.words[2], NULL, 10);
            const uint32_t word = (uint32_t)strtoul(g.answer[0], NULL, 16);
            float *x = array_of(n), expected;
            double sums[8] = {0}, total = 0;
            memcpy(&expected, &word, sizeof expected);
            ddp_rng_seed(&rng, strtoull(g.words[1], NULL, 10));
            ddp_rng_fill_uniform01(&rng, x, (size_t)n);
            for (int64_t i = 0; i < n; i++)
                x[i] -= 0.5f;
            struct ddp_norm norm = {.end = n, .x = x, .sums = sums};
            ck_assert_int_le(ddp_norm_blocks(n), 8);
            ck_assert_int_eq(ddp_norm(&norm, NULL), DDP_OK);
            for (int b = 0; b < 8; b++)
                total += sums[b];
            ck_assert_double_eq_tol(sqrt(total), (double)expected, 1e-6 * (double)expected);
            array_free(x, n);
            cases++;
        }
        golden_free(&g);
    }
    fclose(file);
    ck_assert_int_ge(cases, 5);
}
END_TEST

/* What is not finite shows in the sum. */
START_TEST(not_finite)
{
    float x[3] = {1, NAN, 2};
    double sum;
    struct ddp_norm norm = {.end = 3, .x = x, .sums = &sum};
    ck_assert_int_eq(ddp_norm(&norm, NULL), DDP_OK);
    ck_assert(isnan(sum));
    x[1] = -INFINITY;
    ck_assert_int_eq(ddp_norm(&norm, NULL), DDP_OK);
    ck_assert(isinf(sum));
    x[1] = 1e30f; /* whose square is not a float */
    ck_assert_int_eq(ddp_norm(&norm, NULL), DDP_OK);
    ck_assert_double_eq_tol(sum, 1e60, 1e53);
}
END_TEST

/* What a step does, near the reference: of every number of blocks about the lanes, with nothing
 * wrong, a loss or a gradient that is not finite, and a norm on both sides of the limit. */
START_TEST(clip)
{
    static const int64_t counts[] = {0, 1, 2, 255, 256, 257, 1000, 30500};
    double *sums = calloc(30500, sizeof *sums);
    for (int i = 0; i < 30500; i++)
        sums[i] = (i % 97 + 1) * 1e-3;
    for (int i = 0; i < 8 * 3 * 3 * 2 * 3; i++) {
        const float loss[2] = {i / 8 % 3 == 1 ? NAN : 12.5f, 11};
        struct ddp_clipped own = {0}, plain = {0};
        struct ddp_clip args = {.blocks = counts[i % 8],
                                .sums = sums,
                                .loss = loss,
                                .shards = 5,
                                .targets = i / 144 * 7, /* 35 less 11, 70 less 11 */
                                .most = i / 24 % 3 * 0.05,
                                .only_finite = i / 72 % 2,
                                .clipped = &own};
        sums[0] = i / 8 % 3 == 2 ? INFINITY : 1e-3;
        ck_assert_int_eq(ddp_clip(&args, NULL), DDP_OK);
        args.clipped = &plain;
        ck_assert_int_eq(ddp_clip_reference(&args, NULL), DDP_OK);
        ck_assert_int_eq(own.left_out, plain.left_out);
        ck_assert_int_eq(own.counted, plain.counted);
        ck_assert_int_eq(own.counted, args.targets ? 5 * args.targets - 11 : 5);
        ck_assert(isnan(loss[0]) ? isnan(own.loss)
                                 : fabsf(own.loss - plain.loss) <= 1e-7f * plain.loss);
        ck_assert(isfinite(plain.norm) ? fabs(own.norm - plain.norm) <= 1e-13 * fabs(plain.norm)
                                       : own.norm == plain.norm);
        ck_assert_float_eq_tol(own.scale, plain.scale, 1e-7f * plain.scale + 1e-30f);
    }
    free(sums);
}
END_TEST

/* A gradient that was multiplied by a power of two gives the step of one that was not. */
START_TEST(clip_scaled)
{
    const float loss[2] = {3, 0};
    for (int i = 0; i < 4; i++) {
        const float scale = i % 2 ? 65536 : 0.25f;
        const double sums[] = {7, 5}, scaled[] = {7 * (double)scale * (double)scale,
                                                  5 * (double)scale * (double)scale};
        struct ddp_clipped plain, own;
        struct ddp_clip args = {.blocks = 2,
                                .sums = sums,
                                .loss = loss,
                                .shards = 3,
                                .most = i / 2 * 0.5,
                                .clipped = &plain};
        ck_assert_int_eq(ddp_clip(&args, NULL), DDP_OK);
        args.sums = scaled;
        args.loss_scale = scale;
        args.clipped = &own;
        ck_assert_int_eq(ddp_clip(&args, NULL), DDP_OK);
        ck_assert_double_eq(own.norm, plain.norm);
        ck_assert_float_eq(own.loss, plain.loss);
        ck_assert_float_eq(own.scale * scale, plain.scale);
    }
}
END_TEST

/* As GradScaler.update(). */
START_TEST(loss_scale)
{
    struct ddp_loss_scale scale = {.scale = 65536};
    for (int i = 0; i < 3; i++)
        ddp_loss_scale_follow(&scale, i != 1, 2);
    ck_assert(scale.scale == 32768 && scale.good == 1 && scale.skipped == 1);
    ddp_loss_scale_follow(&scale, true, 2);
    ck_assert(scale.scale == 65536 && scale.good == 0 && scale.skipped == 1);
    scale.scale = 0x1p127f; /* twice that is infinite */
    for (int i = 0; i < 3; i++)
        ddp_loss_scale_follow(&scale, true, 2);
    ck_assert(scale.scale == 0x1p127f && scale.good == 1);
    for (int i = 0; i < 1000; i++)
        ddp_loss_scale_follow(&scale, false, 2);
    ck_assert(scale.scale > 0 && scale.good == 0 && scale.skipped == 1001);
}
END_TEST

/* With all targets, loss and scale are those of one division in float, whatever a shard has of
 * them; without any the step is left out. */
START_TEST(clip_counts_targets)
{
    const double sums[] = {3};
    struct ddp_clipped clipped;
    struct ddp_clip args = {.blocks = 1, .sums = sums, .clipped = &clipped};
    random_seed(4);
    for (int i = 0; i < 20000; i++) {
        const float loss[2] = {(float)random_below(1 << 24) * 0x1p-18f, 0};
        args.loss = loss;
        args.shards = i < 5000 ? i + 1 : 1 + random_below(100000);
        args.targets = i % 3 ? 1 + random_below(1 << 20) : 0;
        ck_assert_int_eq(ddp_clip(&args, NULL), DDP_OK);
        ck_assert_float_eq(clipped.loss, loss[0] / (float)args.shards);
        ck_assert_float_eq(clipped.scale, 1.0f / (float)args.shards);
        ck_assert_double_eq(clipped.norm, sqrt(3) / (double)args.shards);
        ck_assert(!clipped.left_out);
    }
    args.loss = (const float[]){0, 60};
    args.shards = 6;
    args.targets = 10;
    ck_assert_int_eq(ddp_clip(&args, NULL), DDP_OK);
    ck_assert(clipped.left_out && clipped.counted == 0 && isnan(clipped.loss));
    args.targets = 0; /* of another loss, which does not say what counts */
    ck_assert_int_eq(ddp_clip(&args, NULL), DDP_OK);
    ck_assert(!clipped.left_out && clipped.counted == 6 && clipped.loss == 0);
    args.targets = -1;
    ck_assert_int_eq(ddp_clip(&args, NULL), DDP_ERR_INVALID);
}
END_TEST

/* Steps that are left out change nothing; else the scale is the decided one. */
START_TEST(clipped_steps)
{
    for (int i = 0; i < 2; i++) {
        const struct ddp_clipped clipped = {.scale = 0.5f, .left_out = i};
        float w[3][2] = {{1, 2}, {1, 2}, {1, 2}}, m[2] = {0}, v[2] = {0};
        const float g[2] = {2, 4};
        struct ddp_adamw adamw = {.count = 2,
                                  .weight = w[0],
                                  .gradient = g,
                                  .exp_avg = m,
                                  .exp_avg_sq = v,
                                  .scale = 7,
                                  .clipped = &clipped,
                                  .rate = 0.5};
        struct ddp_sgd sgd = {.count = 2,
                              .weight = w[1],
                              .gradient = g,
                              .scale = 7,
                              .clipped = &clipped,
                              .rate = 0.5f};
        struct ddp_ema ema = {.count = 2,
                              .momentum = 0.5f,
                              .scale = 1,
                              .clipped = &clipped,
                              .sum = g,
                              .running = w[2]};
        ck_assert_int_eq(ddp_adamw(&adamw, NULL), DDP_OK);
        ck_assert_int_eq(ddp_sgd(&sgd, NULL), DDP_OK);
        ck_assert_int_eq(ddp_ema(&ema, NULL), DDP_OK);
        ck_assert_float_eq(m[1], i ? 0 : 2); /* beta1 0: the scaled gradient */
        ck_assert_float_eq(w[0][0], i ? 1 : 0.5f);
        ck_assert_float_eq(w[1][1], i ? 2 : 1);
        ck_assert_float_eq(w[2][1], i ? 2 : 3);
    }
}
END_TEST

START_TEST(bad_arguments)
{
    float x[1] = {1};
    double sums[1];
    const struct ddp_norm bad[] = {{.begin = -1, .end = 1, .x = x, .sums = sums},
                                   {.begin = 1, .end = 0, .x = x, .sums = sums},
                                   {.begin = 0, .end = 1, .sums = sums},
                                   {.begin = 0, .end = 1, .x = x}};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ddp_norm(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_norm_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("norm");
    TCase *tc = kernel_case(suite, "norm");
    tcase_add_loop_test(tc, blocks, 0, sizeof ranges / sizeof ranges[0]);
    tcase_add_test(tc, as_pytorch);
    tcase_add_test(tc, not_finite);
    tcase_add_test(tc, clip);
    tcase_add_test(tc, clip_scaled);
    tcase_add_test(tc, loss_scale);
    tcase_add_test(tc, clip_counts_targets);
    tcase_add_test(tc, clipped_steps);
    tcase_add_test(tc, bad_arguments);
    return suite;
}
