/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy of CUDA: the numbers of the reference in double. */
#include "config.h"

#include "tests/cuda/cuda_pair.h"
#include "tests/kernels/reference/reference.h"

static const int64_t entropies[][2] = {
    {0, 10},   {1, 1},     {1, 2},     {15, 10},   {16, 15},   {17, 16},
    {33, 17},  {64, 31},   {9, 128},   {5, 1000},  {3, 1024},  {3, 1025},
    {2, 5000}, {2, 16389}, {3, 50257}, {2, 65541}, {2000, 10},
};
#define ENTROPIES (sizeof entropies / sizeof *entropies)

static int32_t *labels_of(int64_t rows, int64_t classes, bool all)
{
    int32_t *labels = malloc((size_t)(rows + 1) * sizeof *labels);
    ck_assert_ptr_nonnull(labels);
    for (int64_t i = 0; i < rows; i++)
        labels[i] = !all && i % 3 == 2 ? DDP_LABEL_NONE : (int32_t)random_below(classes);
    return labels;
}

static void run_entropy(struct ddp_softmax_cross_entropy args, const struct pair *logits,
                        const struct pair *d, const struct pair *loss, int32_t *predictions,
                        const int32_t *labels)
{
    args.labels = labels;
    args.logits = logits->host;
    args.dlogits = d->host;
    args.loss = loss->host;
    args.predictions = predictions;
    ck_assert_int_eq(ddp_kernels_reference.softmax_cross_entropy(&args, NULL), DDP_OK);
}

/* way: bit 0: all rows count; bit 1: gradient in place; bit 2: no predictions; bit 3: a divisor,
 * and added to the loss, whose gradient is 1024; bit 4: bf16; d lies otherwise than the logits
 * where it is not in place. */
static void check_entropy(const int64_t *shape, int way)
{
    const int64_t rows = shape[0], classes = shape[1], n = rows * classes;
    const float scale = way & 8 ? 1024 : 1;
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    const enum ddp_dtype dtype = way & 16 ? DDP_BF16 : DDP_F32;
    struct pair logits = pair_of_type(dtype, n, (size_t)way % 4);
    struct pair d = pair_out_type(dtype, n, 2, false);
    struct pair loss = pair_out(1, 0, way & 8), uncounted = pair_out(1, 0, way & 8);
    for (int64_t i = 0; i < n; i++)
        logits.host[i] *= i % 7 == 0 ? 60 : 8;
    for (int64_t row = 0; classes > 40 && row < rows; row++)
        if (row % 2 == 0) /* the largest twice, or anywhere */
            logits.host[row * classes + 7] = logits.host[row * classes + 39] = 70;
        else
            logits.host[row * classes + random_below(classes)] = 70;
    pair_send(&logits);
    int32_t *labels = labels_of(rows, classes, way & 1);
    int32_t *best = malloc(bytes + 4), *got = malloc(bytes + 4);
    struct ddp_softmax_cross_entropy args = {.rows = rows, .classes = classes};
    args.divisor = way & 8 ? 3 * rows : 0;
    args.accumulate_loss = way & 8;
    args.uncounted = uncounted.host;
    run_entropy(args, &logits, &d, &loss, best, labels);
    for (int64_t i = 0; i < n; i++)
        d.host[i] *= scale;
    args.dloss = way & 8 ? cuda_floats(&scale, 1, 0) : NULL;
    args.uncounted = uncounted.device;
    args.labels = cuda_copy(labels, bytes, 0);
    args.dtype = dtype;
    args.logits = logits.device;
    args.dlogits = way & 2 ? logits.device : d.device;
    args.loss = loss.device;
    args.predictions = way & 4 ? NULL : cuda_memory(bytes, 0);
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_OK);
    pair_near("loss", &loss, 1e-6);
    pair_near("uncounted", &uncounted, 0);
    cuda_expect_near_type("dlogits", dtype, args.dlogits, d.host, n,
                          (double)scale * 8e-7 / (double)(rows + 1),
                          dtype == DDP_BF16 ? 0x1p-8 : 0);
    if (args.predictions) {
        cuda_get(got, args.predictions, bytes);
        ck_assert(memcmp(got, best, bytes) == 0);
    }
    if (!(way & 10)) { /* nothing but the loss: the same loss, twice */
        float *before = pair_fetch(&loss);
        args.dlogits = NULL;
        args.predictions = NULL;
        ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_OK);
        pair_same("loss alone", &loss, before);
    }
    pair_free(&logits);
    pair_free(&d);
    pair_free(&loss);
    pair_free(&uncounted);
    free(labels);
    free(best);
    free(got);
}

START_TEST(test_entropy)
{
    for (size_t i = 0; i < ENTROPIES; i++) {
        random_seed(i);
        if (pair_is_tried(i, _i))
            check_entropy(entropies[i], _i);
    }
}
END_TEST

/* More rows than a chunk of losses has. */
START_TEST(test_entropy_chunks)
{
    random_seed(9);
    check_entropy((const int64_t[]){32768 + 5, 1}, 1);
    check_entropy((const int64_t[]){32768 + 9, 2}, 10 + 16);
}
END_TEST

/* Rows that lie apart: as packed ones. What is between logits is not read, nor written; between
 * gradients it becomes zero. way: bit 0: bf16; bit 1: in place. */
static void check_apart(const int64_t *shape, int way)
{
    const int64_t rows = shape[0], classes = shape[1], stride = shape[2];
    const enum ddp_dtype dtype = way & 1 ? DDP_BF16 : DDP_F32;
    struct pair dense = pair_of_type(dtype, rows * classes, 0), d = pair_out(rows * classes, 0, 0),
                loss = pair_out(1, 0, false);
    struct pair apart = pair_out_type(dtype, rows * stride, 0, true),
                d_apart = pair_out_type(dtype, rows * stride, 0, true);
    for (int64_t i = 0; i < rows * stride; i++)
        apart.host[i] = i % stride < classes ? dense.host[i / stride * classes + i % stride] : NAN;
    pair_send(&apart);
    float *before = pair_fetch(&apart);
    int32_t *labels = labels_of(rows, classes, false);
    struct ddp_softmax_cross_entropy args = {.rows = rows, .classes = classes};
    run_entropy(args, &dense, &d, &loss, NULL, labels);
    args.dtype = dtype;
    args.stride = stride;
    args.labels = cuda_copy(labels, (size_t)rows * sizeof *labels, 0);
    args.logits = apart.device;
    args.dlogits = way & 2 ? apart.device : d_apart.device;
    args.loss = loss.device;
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_OK);
    pair_near("loss of rows that lie apart", &loss, 1e-6);
    for (int64_t i = 0; i < rows * stride; i++)
        d_apart.host[i] = i % stride < classes ? d.host[i / stride * classes + i % stride] : 0;
    cuda_expect_near_type("dlogits that lie apart", dtype, args.dlogits, d_apart.host, apart.count,
                          8e-7 / (double)(rows + 1), way & 1 ? 0x1p-8 : 0);
    if (way & 2)
        free(before);
    else
        pair_same("logits that lie apart", &apart, before);
    args.stride = classes - 1;
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_ERR_INVALID);
    struct pair *const all[] = {&dense, &d, &apart, &d_apart, &loss};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    free(labels);
}

START_TEST(test_entropy_stride)
{
    static const int64_t strides[][3] = {
        {5, 10, 16}, {4, 1000, 1000}, {9, 33, 34}, {3, 1029, 1152}, {2, 9001, 9088}};
    random_seed(11);
    for (int way = 0; way < 4; way++)
        check_apart(strides[_i], way);
}
END_TEST

/* Soft labels: what the CPU computes, in place and not, with predictions and without, with rows
 * that do not count. */
START_TEST(test_entropy_soft)
{
    static const struct ddp_soft_labels softs[] = {{1, 0.1f}, {0.3f, 0}, {0.7f, 0.2f}};
    const int64_t rows = entropies[_i][0], classes = entropies[_i][1], n = rows * classes;
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    random_seed((uint64_t)_i);
    for (int way = 0; way < 8; way++) {
        const enum ddp_dtype dtype = way & 4 ? DDP_BF16 : DDP_F32;
        struct pair logits = pair_of_type(dtype, n, 0), d = pair_out_type(dtype, n, 0, false),
                    loss = pair_out(1, 0, false);
        int32_t *labels = labels_of(rows, classes, way == 4), *best = labels_of(rows, classes, 1);
        struct ddp_softmax_cross_entropy args = {.rows = rows,
                                                 .classes = classes,
                                                 .divisor = rows,
                                                 .labels = labels,
                                                 .logits = logits.host,
                                                 .dlogits = d.host,
                                                 .loss = loss.host,
                                                 .predictions = way & 2 ? best : NULL,
                                                 .soft = &softs[way % 3]};
        ck_assert_int_eq(ddp_softmax_cross_entropy(&args, NULL), DDP_OK);
        args.dtype = dtype;
        args.labels = cuda_copy(labels, bytes, 0);
        args.logits = logits.device;
        args.dlogits = way & 1 ? logits.device : d.device;
        args.loss = loss.device;
        args.predictions = way & 2 ? cuda_memory(bytes, 0) : NULL;
        args.soft = cuda_copy(&softs[way % 3], sizeof *softs, 0);
        ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_OK);
        pair_near("loss of soft labels", &loss, 2e-6);
        cuda_expect_near_type("dlogits of soft labels", dtype, args.dlogits, d.host, n,
                              8e-7 / (double)(rows + 1), dtype == DDP_BF16 ? 0x1p-8 : 0);
        if (args.predictions) {
            cuda_get(labels, args.predictions, bytes);
            ck_assert(memcmp(labels, best, bytes) == 0);
        }
        pair_free(&logits);
        pair_free(&d);
        pair_free(&loss);
        free(labels);
        free(best);
    }
}
END_TEST

static float entropy_of_row(const float *logits, int64_t classes, int32_t label, float *gradient,
                            int32_t *prediction)
{
    float loss;
    const size_t bytes = (size_t)classes * sizeof *logits;
    struct ddp_softmax_cross_entropy args = {.rows = 1, .classes = classes};
    args.logits = cuda_copy(logits, bytes, 0);
    args.labels = cuda_copy(&label, sizeof label, 0);
    args.loss = cuda_memory(sizeof loss, 0);
    args.dlogits = cuda_memory(bytes, 0);
    args.predictions = cuda_memory(sizeof label, 0);
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_OK);
    cuda_get(&loss, args.loss, sizeof loss);
    cuda_get(gradient, args.dlogits, bytes);
    cuda_get(prediction, args.predictions, sizeof *prediction);
    return loss;
}

START_TEST(test_extremes)
{
    float d[20];
    int32_t best;
    const float huge[4] = {1e30f, -1e30f, 1e30f, 0};
    ck_assert_float_eq_tol(entropy_of_row(huge, 4, 0, d, &best), logf(2), 1e-6f);
    ck_assert_int_eq(best, 0); /* the first of two */
    ck_assert(d[0] == -0.5f && d[1] == 0 && d[2] == 0.5f && d[3] == 0);
    ck_assert_float_eq(entropy_of_row(huge, 4, 1, d, &best), 2e30f);

    const float masked[3] = {-INFINITY, 1, 1};
    ck_assert_float_eq_tol(entropy_of_row(masked, 3, 2, d, &best), logf(2), 1e-6f);
    ck_assert_int_eq(best, 1);
    ck_assert(d[0] == 0);
    ck_assert(isinf(entropy_of_row(masked, 3, 0, d, &best)));

    float poisoned[20] = {0};
    for (int i = 0; i < 20; i++) {
        poisoned[i] = NAN;
        ck_assert(isnan(entropy_of_row(poisoned, 20, (i + 1) % 20, d, &best)));
        ck_assert(isnan(d[(i + 2) % 20]));
        ck_assert_int_eq(best, i == 0); /* NaN is not the largest */
        poisoned[i] = 0;
    }
    const float nothing[2] = {NAN, NAN}, lowest[3] = {NAN, -INFINITY, -INFINITY};
    ck_assert(isnan(entropy_of_row(nothing, 2, 0, d, &best)));
    ck_assert_int_eq(best, 0);
    ck_assert(isnan(entropy_of_row(lowest, 3, 1, d, &best)));
    ck_assert_int_eq(best, 1);
}
END_TEST

void cuda_entropy_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "entropy");
    tcase_add_loop_test(tc, test_entropy, 0, 32);
    tcase_add_test(tc, test_entropy_chunks);
    tcase_add_loop_test(tc, test_entropy_stride, 0, 5);
    tcase_add_loop_test(tc, test_entropy_soft, 1, 11);
    tcase_add_test(tc, test_extremes);
}
