/* SPDX-License-Identifier: MIT
 *
 * Updates and sums over flat arrays on CUDA: optimizers and norm have the bits of the CPU's, the
 * sum of all elements its number. */
#include "config.h"

#include "tests/cuda/cuda_kernels_test.h"
#include "tests/kernels/reference/reference.h"

#define FIRST 40 /* where in the flat array the arrays of these tests begin */

/* Spans of every length that work is cut by, up to behind the end. */
static int make_spans(struct ddp_range *spans, int most, int64_t count, int64_t longest)
{
    int n = 0;
    for (int64_t at = random_below(FIRST); n < most && at < FIRST + count; n++) {
        spans[n].begin = at;
        spans[n].end = at + 1 + random_below(longest);
        at = spans[n].end + random_below(longest);
    }
    return n;
}

/* The arrays of an update, on the host and on the device. */
struct arrays {
    int64_t count;
    size_t shift;
    float *host[4], *device[4]; /* weight, gradient, and two more */
    uint16_t *rounded, *d_rounded;
    struct ddp_range spans[600];
    int span_count;
};

static void arrays_make(struct arrays *a, int64_t count, size_t shift, int spans, int64_t longest)
{
    a->count = count;
    a->shift = shift;
    for (int i = 0; i < 4; i++) {
        a->host[i] = array_of(count);
        for (int64_t j = 0; j < count && i == 3; j++) /* exp_avg_sq */
            a->host[i][j] = a->host[i][j] * a->host[i][j];
        a->device[i] = cuda_floats(a->host[i], count, i == 1 ? shift : 0);
    }
    a->rounded = malloc((size_t)(count + 1) * sizeof *a->rounded);
    a->d_rounded = cuda_memory((size_t)count * sizeof *a->rounded, 0);
    a->span_count = make_spans(a->spans, spans, count, longest);
}

static void arrays_expect(struct arrays *a, const char *what)
{
    uint16_t *got = malloc((size_t)(a->count + 1) * sizeof *got);
    ck_assert_ptr_nonnull(got);
    for (int i = 0; i < 4; i++)
        cuda_expect_bits(what, a->device[i], a->host[i], a->count);
    cuda_get(got, a->d_rounded, (size_t)a->count * sizeof *got);
    ck_assert(memcmp(got, a->rounded, (size_t)a->count * sizeof *got) == 0);
    free(got);
}

static void arrays_free(struct arrays *a)
{
    for (int i = 0; i < 4; i++)
        free(a->host[i]);
    free(a->rounded);
}

/* way: bit 0: decoupled; bit 1: a beta1 that turns the way round. */
static void check_adamw(int64_t count, size_t shift, int way, int spans, int64_t longest)
{
    struct arrays a;
    arrays_make(&a, count, shift, spans, longest);
    struct ddp_adamw args = {.count = count, .scale = 0.25f, .rate = 1e-2, .beta2 = 0.99};
    args.beta1 = way & 2 ? 0.3 : 0.9;
    args.eps = 1e-8;
    args.weight_decay = 0.1;
    args.decoupled = way & 1;
    args.no_decay = a.spans;
    args.no_decay_count = a.span_count;
    args.first = FIRST;
    for (args.step = 0; args.step < 2; args.step++) {
        args.weight = a.host[0];
        args.gradient = a.host[1];
        args.exp_avg = a.host[2];
        args.exp_avg_sq = a.host[3];
        args.weight_bf16 = a.rounded;
        ck_assert_int_eq(ddp_kernels_cpu.adamw(&args, NULL), DDP_OK);
        args.weight = a.device[0];
        args.gradient = a.device[1];
        args.exp_avg = a.device[2];
        args.exp_avg_sq = a.device[3];
        args.weight_bf16 = a.d_rounded;
        ck_assert_int_eq(on_cuda->adamw(&args, cuda_stream), DDP_OK);
    }
    arrays_expect(&a, "adamw");
    arrays_free(&a);
}

START_TEST(test_adamw)
{
    for (int i = 0; i < CUDA_SIZES; i++) {
        random_seed((uint64_t)i);
        check_adamw(cuda_sizes[i], i % 4 == 3, _i, i % 3 * 20, 1 + cuda_sizes[i] / 10);
    }
}
END_TEST

/* way: 0: plain; 1: momentum, first step; 2: later; 3: nesterov. */
static void check_sgd(int64_t count, size_t shift, int way, int spans, int64_t longest)
{
    struct arrays a;
    arrays_make(&a, count, shift, spans, longest);
    struct ddp_sgd args = {.count = count, .scale = 0.5f, .rate = 0.1f, .weight_decay = 0.01f};
    args.momentum = way > 0 ? 0.9f : 0;
    args.nesterov = way == 3;
    args.first_step = way == 1;
    args.no_decay = a.spans;
    args.no_decay_count = a.span_count;
    args.first = FIRST;
    args.weight = a.host[0];
    args.gradient = a.host[1];
    args.velocity = way > 0 ? a.host[2] : NULL;
    args.weight_bf16 = a.rounded;
    ck_assert_int_eq(ddp_kernels_cpu.sgd(&args, NULL), DDP_OK);
    args.weight = a.device[0];
    args.gradient = a.device[1];
    args.velocity = way > 0 ? a.device[2] : NULL;
    args.weight_bf16 = a.d_rounded;
    ck_assert_int_eq(on_cuda->sgd(&args, cuda_stream), DDP_OK);
    arrays_expect(&a, "sgd");
    arrays_free(&a);
}

START_TEST(test_sgd)
{
    for (int i = 0; i < CUDA_SIZES; i++) {
        random_seed((uint64_t)i);
        check_sgd(cuda_sizes[i], i % 4 == 3, _i, i % 3 * 20, 1 + cuda_sizes[i] / 10);
    }
}
END_TEST

/* More spans than one launch takes, and as close together as can be. */
START_TEST(test_many_spans)
{
    random_seed(1);
    check_adamw(8192, 0, 1, 600, 8);
    check_adamw(8192, 1, 0, 600, 30);
    check_sgd(4097, 0, 2, 600, 1);
    check_sgd(33333, 0, 0, 600, 60);
}
END_TEST

/* A vector without its copy in bf16; weights that are not finite stay by themselves. */
START_TEST(test_alone)
{
    float weight[6] = {1, INFINITY, 2, 3, 4, 5}, gradient[6] = {1, 1, 1, NAN, 1, 1};
    float m[6] = {0}, v[6] = {0};
    struct ddp_adamw args = {.count = 6, .scale = 1, .rate = 0.1, .beta1 = 0.9, .beta2 = 0.99};
    args.weight = cuda_copy(weight, sizeof weight, 4);
    args.gradient = cuda_copy(gradient, sizeof gradient, 4);
    args.exp_avg = cuda_copy(m, sizeof m, 4);
    args.exp_avg_sq = cuda_copy(v, sizeof v, 4);
    const float *d_weight = args.weight;
    ck_assert_int_eq(on_cuda->adamw(&args, cuda_stream), DDP_OK);
    args.weight = weight;
    args.gradient = gradient;
    args.exp_avg = m;
    args.exp_avg_sq = v;
    ck_assert_int_eq(ddp_kernels_cpu.adamw(&args, NULL), DDP_OK);
    cuda_expect_near("adamw", d_weight, weight, 6, 0, 0);
}
END_TEST

static void check_norm(const float *x, const float *d_x, int64_t begin, int64_t end)
{
    double sums[12], got[12], *d_sums;
    for (int i = 0; i < 12; i++)
        sums[i] = -7; /* what is outside stays */
    d_sums = cuda_copy(sums, sizeof sums, 0);
    struct ddp_norm args = {.begin = begin, .end = end, .x = x + begin, .sums = sums};
    ck_assert_int_eq(ddp_kernels_cpu.norm(&args, NULL), DDP_OK);
    args.x = d_x + begin;
    args.sums = d_sums;
    ck_assert_int_eq(on_cuda->norm(&args, cuda_stream), DDP_OK);
    cuda_get(got, d_sums, sizeof got);
    for (int i = 0; i < 12; i++)
        ck_assert_msg(memcmp(&got[i], &sums[i], sizeof got[i]) == 0,
                      "block %d of elements %lld to %lld: %.17g, not %.17g", i, (long long)begin,
                      (long long)end, got[i], sums[i]);
}

START_TEST(test_norm)
{
    static const int64_t ranges[][2] = {{0, 0},       {0, 1},       {0, 4095},      {0, 4096},
                                        {0, 4097},    {0, 45000},   {5, 6},         {4000, 4200},
                                        {4096, 8192}, {4097, 8191}, {10000, 44999}, {7, 12288}};
    random_seed(2);
    float *x = array_of(45000);
    const float *d_x = cuda_floats(x, 45000, 1);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        check_norm(x, d_x, ranges[i][0], ranges[i][1]);
    free(x);
}
END_TEST

/* The same decision, bit for bit. */
START_TEST(test_clip)
{
    static const int64_t counts[] = {0, 1, 31, 256, 257, 5000};
    random_seed(3);
    float *numbers = array_of(5000), loss[2] = {3.7f, 0};
    double *sums = calloc(5000, sizeof *sums);
    for (int i = 0; i < 5000; i++)
        sums[i] = (double)numbers[i] * (double)numbers[i];
    const double *d_sums = cuda_copy(sums, 5000 * sizeof *sums, 0);
    const float *d_loss = cuda_copy(loss, sizeof loss, 0);
    loss[1] = 17;
    const float *d_masked = cuda_copy(loss, sizeof loss, 0);
    for (int i = 0; i < 6 * 3 * 3; i++) {
        struct ddp_clipped clipped = {0}, got;
        struct ddp_clip args = {.blocks = counts[i % 6], .sums = sums, .loss = loss};
        args.shards = 3;
        args.targets = i / 18 * 8; /* 24 less 17, 48 less 17 */
        args.most = i / 6 % 3 * 0.3;
        args.only_finite = true;
        args.clipped = &clipped;
        ck_assert_int_eq(ddp_kernels_cpu.clip(&args, NULL), DDP_OK);
        args.sums = d_sums;
        args.loss = args.targets > 0 ? d_masked : d_loss;
        args.clipped = cuda_memory(sizeof got, 0);
        ck_assert_int_eq(on_cuda->clip(&args, cuda_stream), DDP_OK);
        cuda_get(&got, args.clipped, sizeof got);
        ck_assert(memcmp(&got.norm, &clipped.norm, sizeof got.norm) == 0);
        ck_assert(memcmp(&got.scale, &clipped.scale, sizeof got.scale) == 0);
        ck_assert(got.loss == clipped.loss && got.left_out == clipped.left_out);
        ck_assert_int_eq(got.counted, clipped.counted);
    }
    free(sums);
    free(numbers);
}
END_TEST

/* Steps that are left out change nothing; else the scale is the decided one. */
START_TEST(test_clipped)
{
    for (int32_t left_out = 0; left_out < 2; left_out++) {
        const struct ddp_clipped clipped = {.scale = 0.25f, .left_out = left_out};
        const struct ddp_clipped *there = cuda_copy(&clipped, sizeof clipped, 0);
        struct arrays a;
        arrays_make(&a, 5000, 0, 20, 100);
        cuda_get(a.rounded, a.d_rounded, 5000 * sizeof *a.rounded);
        struct ddp_adamw adamw = {.count = 5000, .scale = 9, .rate = 0.1, .beta2 = 0.99, .eps = 1};
        struct ddp_ema ema = {.count = 5000, .momentum = 0.1f, .scale = 1};
        for (int side = 0; side < 2; side++) {
            const struct ddp_kernels *kernels = side ? on_cuda : &ddp_kernels_cpu;
            float **arrays = side ? a.device : a.host;
            adamw.weight = arrays[0];
            adamw.gradient = ema.sum = arrays[1];
            adamw.exp_avg = ema.running = arrays[2];
            adamw.exp_avg_sq = arrays[3];
            adamw.weight_bf16 = side ? a.d_rounded : a.rounded;
            adamw.clipped = ema.clipped = side ? there : &clipped;
            ck_assert_int_eq(kernels->adamw(&adamw, side ? cuda_stream : NULL), DDP_OK);
            ck_assert_int_eq(kernels->ema(&ema, side ? cuda_stream : NULL), DDP_OK);
        }
        arrays_expect(&a, left_out ? "a step that is left out" : "a scale of the device");
        arrays_free(&a);
    }
}
END_TEST

static void check_sum(enum ddp_dtype dtype, int64_t count, size_t shift)
{
    float *x = array_of(count), expected, dy = 3.2568f, *dx = array_of(count);
    const void *d_x = cuda_numbers(dtype, x, count, shift);
    float *d_y = cuda_memory(sizeof expected, 0), first, again;
    struct ddp_sum_forward args = {.count = count, .x = x, .y = &expected};
    ck_assert_int_eq(ddp_kernels_reference.sum_forward(&args, NULL), DDP_OK);
    args.dtype = dtype;
    args.x = d_x;
    args.y = d_y;
    ck_assert_int_eq(on_cuda->sum_forward(&args, cuda_stream), DDP_OK);
    cuda_expect_near("sum", d_y, &expected, 1, 0, 0x1p-23);
    cuda_get(&first, d_y, sizeof first);
    ck_assert_int_eq(on_cuda->sum_forward(&args, cuda_stream), DDP_OK);
    cuda_get(&again, d_y, sizeof again);
    ck_assert(same_bits(&first, &again, 1));

    const size_t size = ddp_dtype_bytes(dtype);
    void *d_dx = cuda_memory((size_t)count * size, shift * size);
    const struct ddp_sum_backward backward = {
        .count = count, .dtype = dtype, .dy = cuda_copy(&dy, sizeof dy, 0), .dx = d_dx};
    ck_assert_int_eq(on_cuda->sum_backward(&backward, cuda_stream), DDP_OK);
    for (int64_t i = 0; i < count; i++)
        dx[i] = dy;
    cuda_expect_bits_type("sum backward", dtype, d_dx, dx, count);
    free(x);
    free(dx);
}

/* in_place: the gradient over the output. */
static void check_mse(enum ddp_dtype dtype, int64_t count, size_t shift, bool in_place)
{
    const float scale = 1024;
    float *x = array_of(count), *targets = array_of(count), *dx = array_of(count);
    const size_t size = ddp_dtype_bytes(dtype);
    void *d_x = cuda_numbers(dtype, x, count, shift);
    float *d_loss = cuda_memory(sizeof(float), 0), expected, first, again;
    struct ddp_mse args = {.count = count, .x = x, .targets = targets};
    args.loss = &expected;
    args.dx = dx;
    ck_assert_int_eq(ddp_kernels_reference.mse(&args, NULL), DDP_OK);
    for (int64_t i = 0; i < count && in_place; i++)
        dx[i] *= scale;
    args.dloss = in_place ? cuda_floats(&scale, 1, 0) : NULL;
    args.dtype = dtype;
    args.x = d_x;
    args.targets = cuda_floats(targets, count, shift);
    args.loss = d_loss;
    args.dx = NULL; /* the loss alone */
    ck_assert_int_eq(on_cuda->mse(&args, cuda_stream), DDP_OK);
    cuda_get(&first, d_loss, sizeof first);
    args.dx = in_place ? d_x : cuda_memory((size_t)count * size, shift * size);
    ck_assert_int_eq(on_cuda->mse(&args, cuda_stream), DDP_OK);
    cuda_expect_near("mse", d_loss, &expected, 1, 0, 0x1p-23);
    cuda_expect_near_type("gradient of mse", dtype, args.dx, dx, count,
                          (in_place ? 1024 : 1) * 6e-7 / (double)(count + 1),
                          dtype == DDP_BF16 ? 0x1p-8 : 0);
    cuda_get(&again, d_loss, sizeof again);
    ck_assert(same_bits(&first, &again, 1));
    free(x);
    free(targets);
    free(dx);
}

START_TEST(test_mse)
{
    const enum ddp_dtype dtype = _i / 2 ? DDP_BF16 : DDP_F32;
    random_seed((uint64_t)_i);
    for (size_t i = 0; i < CUDA_SIZES; i++)
        check_mse(dtype, cuda_sizes[i], i % 4, _i % 2);
    if (_i % 3 == 0)
        check_mse(dtype, 4194304 + 13, 0, _i % 2); /* parts of more than the least size */
}
END_TEST

START_TEST(test_sum)
{
    random_seed(3);
    for (int i = 0; i < CUDA_SIZES; i++) {
        check_sum(DDP_F32, cuda_sizes[i], i % 3 == 2);
        check_sum(DDP_BF16, cuda_sizes[i], i % 3 == 2);
    }
    check_sum(DDP_F32, 1024 * 4096 + 5, 0); /* parts longer than the least */
}
END_TEST

START_TEST(test_arguments)
{
    float *v = cuda_memory(16, 0);
    const struct ddp_range wrong[2] = {{0, 4}, {3, 5}};
    const struct ddp_adamw adamw = {.count = 4,
                                    .weight = v,
                                    .gradient = v,
                                    .exp_avg = v,
                                    .exp_avg_sq = v,
                                    .beta1 = 0.9,
                                    .beta2 = 0.99};
    struct ddp_adamw bad[] = {adamw, adamw, adamw, adamw, adamw};
    bad[0].gradient = NULL;
    bad[1].beta2 = 1;
    bad[2].eps = NAN;
    bad[3].step = -1;
    bad[4].no_decay = wrong;
    bad[4].no_decay_count = 2;
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(on_cuda->adamw(&bad[i], cuda_stream), DDP_ERR_INVALID);
    const struct ddp_sgd sgd = {.count = 4, .weight = v, .gradient = v, .velocity = v};
    struct ddp_sgd worse[] = {sgd, sgd, sgd};
    worse[0].weight = NULL;
    worse[1].momentum = NAN;
    worse[2].nesterov = true;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(on_cuda->sgd(&worse[i], cuda_stream), DDP_ERR_INVALID);
    const struct ddp_norm norm = {.begin = 3, .end = 2};
    ck_assert_int_eq(on_cuda->norm(&norm, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_sum_forward sum = {.count = 4, .x = v};
    ck_assert_int_eq(on_cuda->sum_forward(&sum, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_mse mse = {.count = 4, .x = v, .loss = v};
    ck_assert_int_eq(on_cuda->mse(&mse, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_sum_backward backward = {.count = 4, .dy = v};
    ck_assert_int_eq(on_cuda->sum_backward(&backward, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

void cuda_optimizer_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "optimizers");
    tcase_add_loop_test(tc, test_adamw, 0, 4);
    tcase_add_loop_test(tc, test_sgd, 0, 4);
    tcase_add_test(tc, test_many_spans);
    tcase_add_test(tc, test_alone);
    tcase_add_test(tc, test_norm);
    tcase_add_test(tc, test_clip);
    tcase_add_test(tc, test_clipped);
    tcase_add_test(tc, test_sum);
    tcase_add_loop_test(tc, test_mse, 0, 4);
    tcase_add_test(tc, test_arguments);
}
