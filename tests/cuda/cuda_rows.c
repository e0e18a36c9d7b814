/* SPDX-License-Identifier: MIT
 *
 * Operations on rows of CUDA: transposition and embedding have the bits of the CPU's, layer norm
 * the numbers of the reference in double. Bad labels and tokens end the
 * next synchronisation; tests/cuda/check_cuda_device.c has their sentences. */
#include "config.h"

#include "tests/cuda/cuda_pair.h"
#include "tests/kernels/reference/reference.h"

/* --- transpose ------------------------------------------------------------------------------ */

static void check_transpose(enum ddp_dtype dtype, int64_t batch, int64_t rows, int64_t columns,
                            bool accumulate)
{
    const int64_t n = batch * rows * columns;
    struct pair x = pair_of_type(dtype, n, 1), y = pair_out_type(dtype, n, 3, accumulate);
    struct ddp_transpose args = {.batch = batch, .rows = rows, .columns = columns};
    args.accumulate = accumulate;
    args.x = x.host;
    args.y = y.host;
    ck_assert_int_eq(ddp_kernels_reference.transpose(&args, NULL), DDP_OK);
    args.dtype = dtype;
    args.x = x.device;
    args.y = y.device;
    ck_assert_int_eq(on_cuda->transpose(&args, cuda_stream), DDP_OK);
    pair_equal("transpose", &y);
    pair_free(&x);
    pair_free(&y);
}

START_TEST(test_transpose)
{
    static const int64_t sides[] = {1, 3, 16, 17, 31, 32, 33, 65, 100};
    const enum ddp_dtype dtype = _i ? DDP_BF16 : DDP_F32;
    random_seed(1);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (size_t j = 0; j < sizeof sides / sizeof *sides; j++)
            check_transpose(dtype, 1 + (int64_t)(i + j) % 3, sides[i], sides[j], (i + j) % 2);
    check_transpose(dtype, 0, 3, 4, false);
    check_transpose(dtype, 2, 0, 4, false);
}
END_TEST

/* --- embedding ------------------------------------------------------------------------------ */

enum { BATCH, LENGTH, FEATURES, VOCABULARY, POSITIONS };

static const int64_t embeddings[][5] = {
    {1, 1, 1, 1, 1},       {2, 3, 4, 5, 3},          {3, 33, 5, 2, 40},
    {2, 100, 64, 50, 100}, {4, 64, 130, 7, 64},      {2, 17, 256, 1000, 32},
    {0, 5, 4, 3, 5},       {1, 257, 12, 70000, 257}, {3, 1000, 3, 300, 1000},
};
#define EMBEDDINGS (sizeof embeddings / sizeof *embeddings)

/* Some tokens are much more frequent than others. */
static int32_t *tokens_of(const int64_t *shape)
{
    const int64_t count = shape[BATCH] * shape[LENGTH];
    int32_t *tokens = malloc((size_t)(count + 1) * sizeof *tokens);
    ck_assert_ptr_nonnull(tokens);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(random_below(shape[VOCABULARY]) + 1);
    return tokens;
}

static const int32_t *cuda_tokens(const int32_t *tokens, const int64_t *shape)
{
    return cuda_copy(tokens, (size_t)(shape[BATCH] * shape[LENGTH]) * sizeof *tokens, 0);
}

START_TEST(test_embedding)
{
    const int64_t *shape = embeddings[_i], n = shape[FEATURES];
    const int64_t count = shape[BATCH] * shape[LENGTH] * n;
    random_seed((uint64_t)_i);
    int32_t *tokens = tokens_of(shape);
    /* bit 0: wpe; bit 1: not aligned; bit 2: y is bf16; bit 3: tables of bf16 */
    for (int way = 0; way < 16; way++) {
        const enum ddp_dtype dtype = way & 4 ? DDP_BF16 : DDP_F32;
        const enum ddp_dtype table = way & 8 ? DDP_BF16 : DDP_F32;
        struct pair wte = pair_of_type(table, shape[VOCABULARY] * n, way & 2 ? 1 : 0);
        struct pair wpe = pair_of_type(table, shape[POSITIONS] * n, 0);
        struct pair y = pair_out_type(dtype, count, 0, false);
        struct ddp_embedding_forward args = {.batch = shape[BATCH], .length = shape[LENGTH]};
        args.features = n;
        args.vocabulary = shape[VOCABULARY];
        args.positions = shape[POSITIONS];
        args.tokens = tokens;
        args.wte = wte.host;
        args.wpe = way & 1 ? wpe.host : NULL;
        args.first = way & 1 ? shape[POSITIONS] - shape[LENGTH] : 0;
        args.y = y.host;
        ck_assert_int_eq(ddp_kernels_reference.embedding_forward(&args, NULL), DDP_OK);
        args.tokens = cuda_tokens(tokens, shape);
        args.wte = way & 8 ? NULL : wte.device;
        args.wpe = way & 1 && !(way & 8) ? wpe.device : NULL;
        args.wte_bf16 = way & 8 ? (void *)wte.device : NULL;
        args.wpe_bf16 = way & 1 && way & 8 ? (void *)wpe.device : NULL;
        args.y = y.device;
        args.dtype = dtype;
        ck_assert_int_eq(on_cuda->embedding_forward(&args, cuda_stream), DDP_OK);
        pair_equal("embedding", &y);
        pair_free(&wte);
        pair_free(&wpe);
        pair_free(&y);
    }
    free(tokens);
}
END_TEST

/* way: bit 0: without dwpe; bit 1: accumulated; bit 2: not aligned; bit 3: dy is bf16. */
static void check_embedding_backward(const int64_t *shape, int way)
{
    const int64_t n = shape[FEATURES], count = shape[BATCH] * shape[LENGTH] * n;
    int32_t *tokens = tokens_of(shape);
    struct pair dy = pair_of_type(way & 8 ? DDP_BF16 : DDP_F32, count, way & 4 ? 1 : 0);
    struct pair dwte = pair_out(shape[VOCABULARY] * n, 0, way & 2);
    struct pair dwpe = pair_out(shape[POSITIONS] * n, 0, way & 2);
    struct ddp_embedding_backward args = {.batch = shape[BATCH], .length = shape[LENGTH]};
    args.features = n;
    args.vocabulary = shape[VOCABULARY];
    args.positions = shape[POSITIONS];
    args.tokens = tokens;
    args.dy = dy.host;
    args.dwte = dwte.host;
    args.dwpe = way & 1 ? NULL : dwpe.host;
    args.accumulate_dwte = args.accumulate_dwpe = way & 2;
    ck_assert_int_eq(ddp_kernels_reference.embedding_backward(&args, NULL), DDP_OK);
    args.tokens = cuda_tokens(tokens, shape);
    args.dtype = dy.dtype;
    args.dy = dy.device;
    args.dwte = dwte.device;
    args.dwpe = way & 1 ? NULL : dwpe.device;
    ck_assert_int_eq(on_cuda->embedding_backward(&args, cuda_stream), DDP_OK);
    cuda_expect_bits("dwte", dwte.device, dwte.host, dwte.count);
    if (args.dwpe)
        cuda_expect_bits("dwpe", dwpe.device, dwpe.host, dwpe.count);
    pair_free(&dy);
    pair_free(&dwte);
    pair_free(&dwpe);
    free(tokens);
}

START_TEST(test_embedding_backward)
{
    random_seed((uint64_t)_i);
    for (int way = 0; way < 16; way++)
        check_embedding_backward(embeddings[_i], way);
}
END_TEST

/* Longer than what is sorted at a time in the simulation's memory. */
START_TEST(test_long_embedding)
{
    random_seed(7);
    check_embedding_backward((const int64_t[]){2, 70000, 1, 90, 70000}, 2);
}
END_TEST

/* --- layer norm ----------------------------------------------------------------------------- */

static const int64_t norms[][2] = {
    {0, 8},    {1, 1},    {3, 5},    {1, 128},  {9, 12},    {33, 132},  {17, 255},  {40, 256},
    {20, 512}, {3, 513},  {70, 768}, {5, 1024}, {18, 1028}, {2, 1500},  {3, 2048},  {2, 4096},
    {2, 4100}, {2, 8192}, {1, 8196}, {600, 7},  {8300, 4},  {37, 1000}, {21, 1600}, {19, 2304},
};
#define NORMS (sizeof norms / sizeof *norms)

/* Four ways are enough for a shape of many rows. */
static bool is_tried(size_t shape, int way)
{
    return pair_is_tried(shape, way) && (norms[shape][0] < 8000 || !(way & 1) == !(way & 2));
}

struct norm_case {
    int64_t rows, n;
    struct pair x, y, gamma, beta, statistics, dy, dx, dgamma, dbeta;
    bool affine, rms;
    enum ddp_dtype dtype; /* on the device */
};

/* way: bit 0: without gamma and beta; bit 1: accumulated; bit 2: not aligned; bit 3: bf16; bit 4:
 * RMS norm. */
static struct norm_case norm_case_of(const int64_t *shape, int way)
{
    const int64_t rows = shape[0], n = shape[1];
    const size_t shift = way & 4 ? 1 : 0;
    const enum ddp_dtype dtype = way & 8 ? DDP_BF16 : DDP_F32;
    return (struct norm_case){
        .rows = rows,
        .n = n,
        .x = pair_of_type(dtype, rows * n, shift),
        .y = pair_out_type(dtype, rows * n, shift, false),
        .gamma = pair_of(n, 0),
        .beta = pair_of(n, 0),
        .statistics = pair_out(2 * rows, 0, false),
        .dy = pair_of_type(dtype, rows * n, 0),
        .dx = pair_out_type(dtype, rows * n, 0, way & 2),
        .dgamma = pair_out(n, 0, way & 2),
        .dbeta = pair_out(n, 0, way & 2),
        .affine = !(way & 1),
        .rms = way & 16,
        .dtype = dtype,
    };
}

static void norm_case_free(struct norm_case *c)
{
    struct pair *const all[] = {&c->x,  &c->y,  &c->gamma,  &c->beta, &c->statistics,
                                &c->dy, &c->dx, &c->dgamma, &c->dbeta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
}

static void norm_forward(const struct norm_case *c, bool device)
{
    struct ddp_layer_norm_forward args = {.rows = c->rows, .features = c->n, .eps = 1e-5f};
    args.dtype = device ? c->dtype : DDP_F32;
    args.rms = c->rms;
    args.x = device ? c->x.device : c->x.host;
    args.y = device ? c->y.device : c->y.host;
    if (c->affine) {
        args.gamma = device ? c->gamma.device : c->gamma.host;
        if (!c->rms)
            args.beta = device ? c->beta.device : c->beta.host;
    }
    args.statistics = device ? c->statistics.device : c->statistics.host;
    const struct ddp_kernels *kernels = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(kernels->layer_norm_forward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void norm_backward(const struct norm_case *c, bool device, int way, void *scratch)
{
    struct ddp_layer_norm_backward args = {.rows = c->rows, .features = c->n};
    args.dtype = device ? c->dtype : DDP_F32;
    args.rms = c->rms;
    args.x = device ? c->x.device : c->x.host;
    args.statistics = device ? c->statistics.device : c->statistics.host;
    args.dy = device ? c->dy.device : c->dy.host;
    args.dx = device ? c->dx.device : c->dx.host;
    if (c->affine) {
        args.gamma = device ? c->gamma.device : c->gamma.host;
        args.dgamma = device ? c->dgamma.device : c->dgamma.host;
        if (!c->rms)
            args.dbeta = device ? c->dbeta.device : c->dbeta.host;
    }
    args.accumulate = args.accumulate_dx = way & 2;
    args.scratch = scratch;
    const struct ddp_kernels *kernels = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(kernels->layer_norm_backward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void check_layer_norm(const int64_t *shape, int way)
{
    struct norm_case c = norm_case_of(shape, way);
    const size_t bytes = ddp_layer_norm_scratch_bytes(c.rows, c.n);
    void *scratch = malloc(bytes + 1), *d_scratch = cuda_memory(bytes, 0);
    norm_forward(&c, false);
    norm_forward(&c, true);
    pair_near("layer norm", &c.y, 4e-6);
    pair_near("statistics", &c.statistics, c.n == 1 ? 1e-3 : 2e-6);
    float *y = pair_fetch(&c.y);
    norm_forward(&c, true);
    pair_same("layer norm again", &c.y, y);
    pair_send(&c.statistics); /* both go on with the same */
    norm_backward(&c, false, way, scratch);
    norm_backward(&c, true, way, d_scratch);
    const double size = 1 + (double)c.rows;
    pair_near("dx", &c.dx, c.n == 1 ? 1e-2 : 2e-5);
    if (c.affine) {
        pair_near("dgamma", &c.dgamma, 4e-7 * size);
        if (!c.rms)
            pair_near("dbeta", &c.dbeta, 4e-7 * size);
    }
    if (!(way & 2)) {
        float *dx = pair_fetch(&c.dx), *dgamma = pair_fetch(&c.dgamma);
        norm_backward(&c, true, way, d_scratch);
        pair_same("dx again", &c.dx, dx);
        pair_same("dgamma again", &c.dgamma, dgamma);
    }
    norm_case_free(&c);
    free(scratch);
}

START_TEST(test_layer_norm)
{
    for (size_t i = 0; i < NORMS; i++) {
        random_seed(i);
        if (is_tried(i, _i))
            check_layer_norm(norms[i], _i);
    }
}
END_TEST

/* A NaN anywhere in a row is in all that comes of the row. */
static void check_layer_norm_nan(struct norm_case *c, int64_t row, int64_t column)
{
    const int64_t begin = row * c->n, end = begin + c->n;
    const float kept = c->x.host[begin + column];
    c->x.host[begin + column] = NAN;
    pair_send(&c->x);
    norm_forward(c, true);
    norm_backward(c, true, 0, cuda_memory(ddp_layer_norm_scratch_bytes(c->rows, c->n), 0));
    float *y = pair_fetch(&c->y), *dx = pair_fetch(&c->dx), *all = pair_fetch(&c->statistics);
    for (int64_t i = 0; i < c->rows * c->n; i++)
        if ((i >= begin && i < end) != (isnan(y[i]) && isnan(dx[i])))
            ck_abort_msg("rows of %d, a NaN in column %d: element %d is %g, its gradient %g",
                         (int)c->n, (int)column, (int)i, (double)y[i], (double)dx[i]);
    for (int64_t i = 0; i < 2 * c->rows; i++)
        if ((i / 2 == row && !(c->rms && i % 2 == 0)) != !!isnan(all[i]))
            ck_abort_msg("rows of %d, a NaN in column %d: statistic %d is %g", (int)c->n,
                         (int)column, (int)i, (double)all[i]);
    c->x.host[begin + column] = kept;
    free(y);
    free(dx);
    free(all);
}

START_TEST(test_layer_norm_nan)
{
    for (size_t i = 1; i < NORMS; i++) {
        const int64_t rows = norms[i][0], n = norms[i][1];
        if (rows > 20 || !is_tried(i, _i))
            continue;
        struct norm_case c = norm_case_of(norms[i], 4 * _i);
        check_layer_norm_nan(&c, 0, n - 1);
        check_layer_norm_nan(&c, rows / 2, n / 3);
        norm_case_free(&c);
    }
}
END_TEST

/* y may be x, dx may be dy; sums without dx, and dx without sums. */
START_TEST(test_layer_norm_in_place)
{
    static const int64_t shapes[][2] = {{20, 36},  {20, 37},   {29, 256}, {37, 768},
                                        {7, 1536}, {21, 2304}, {3, 4100}};
    random_seed(5);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t rows = shapes[i][0], n = shapes[i][1];
        struct norm_case c = norm_case_of(shapes[i], 8 * _i);
        norm_forward(&c, true);
        void *scratch = cuda_memory(ddp_layer_norm_scratch_bytes(rows, n), 0);
        norm_backward(&c, true, 0, scratch);
        float *y = pair_fetch(&c.y), *dx = pair_fetch(&c.dx), *dgamma = pair_fetch(&c.dgamma);
        struct ddp_layer_norm_backward args = {.rows = rows, .features = n, .x = c.x.device};
        args.dtype = c.dtype;
        args.rms = c.rms;
        args.scratch = scratch;
        args.gamma = c.gamma.device;
        args.statistics = c.statistics.device;
        args.dy = c.dy.device;
        args.dgamma = cuda_memory((size_t)n * sizeof(float), 0);
        ck_assert_int_eq(on_cuda->layer_norm_backward(&args, cuda_stream), DDP_OK);
        cuda_expect_bits("dgamma alone", args.dgamma, dgamma, n);
        float *dgamma_alone = args.dgamma;
        args.dgamma = NULL;
        args.dx = c.dx.device;
        ck_assert_int_eq(on_cuda->layer_norm_backward(&args, cuda_stream), DDP_OK);
        cuda_expect_bits_type("dx alone", c.dtype, c.dx.device, dx, rows * n);
        args.dgamma = dgamma_alone;
        args.dx = c.dy.device;
        ck_assert_int_eq(on_cuda->layer_norm_backward(&args, cuda_stream), DDP_OK);
        pair_same("dx over dy", &c.dy, dx);
        cuda_expect_bits("dgamma with dx over dy", args.dgamma, dgamma, n);
        const struct ddp_layer_norm_forward forward = {.rows = rows,
                                                       .features = n,
                                                       .dtype = c.dtype,
                                                       .eps = 1e-5f,
                                                       .rms = c.rms,
                                                       .x = c.x.device,
                                                       .gamma = c.gamma.device,
                                                       .beta = c.rms ? NULL : c.beta.device,
                                                       .y = c.x.device};
        ck_assert_int_eq(on_cuda->layer_norm_forward(&forward, cuda_stream), DDP_OK);
        pair_same("y over x", &c.x, y);
        free(dgamma);
        norm_case_free(&c);
    }
}
END_TEST

/* A sum and its norm in one pass: the bits of one after the other. way: as above, but bit 1: the
 * sum overwrites one of what is added. */
static void check_add_layer_norm(const int64_t *shape, int way)
{
    struct norm_case c = norm_case_of(shape, way & ~2);
    const int64_t count = c.rows * c.n;
    const size_t shift = c.x.shift;
    struct pair a = pair_of_type(c.dtype, count, shift), b = pair_of_type(c.dtype, count, shift);
    struct pair own = pair_out_type(c.dtype, count, shift, false);
    const struct ddp_add add = {
        .count = count, .dtype = c.dtype, .a = a.device, .b = b.device, .y = c.x.device};
    ck_assert_int_eq(on_cuda->add(&add, cuda_stream), DDP_OK);
    norm_forward(&c, true);
    float *x = pair_fetch(&c.x), *y = pair_fetch(&c.y), *statistics = pair_fetch(&c.statistics);
    struct pair *sum = !(way & 2) ? &own : way & 1 ? &a : &b;
    struct pair out = pair_out_type(c.dtype, count, shift, false);
    struct pair out_statistics = pair_out(2 * c.rows, 0, false);
    const struct ddp_add_layer_norm_forward args = {.rows = c.rows,
                                                    .features = c.n,
                                                    .dtype = c.dtype,
                                                    .eps = 1e-5f,
                                                    .rms = c.rms,
                                                    .a = a.device,
                                                    .b = b.device,
                                                    .sum = sum->device,
                                                    .gamma = c.affine ? c.gamma.device : NULL,
                                                    .beta =
                                                        c.affine && !c.rms ? c.beta.device : NULL,
                                                    .y = out.device,
                                                    .statistics = out_statistics.device};
    ck_assert_int_eq(on_cuda->add_layer_norm_forward(&args, cuda_stream), DDP_OK);
    pair_same("sum", sum, x);
    pair_same("norm of a sum", &out, y);
    pair_same("statistics of a sum", &out_statistics, statistics);
    struct pair *const all[] = {&a, &b, &own, &out, &out_statistics};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    norm_case_free(&c);
}

START_TEST(test_add_layer_norm)
{
    for (size_t i = 0; i < NORMS; i++) {
        random_seed(i);
        if (is_tried(i, _i))
            check_add_layer_norm(norms[i], _i);
    }
}
END_TEST

/* --- rotary positions ----------------------------------------------------------------------- */

/* B, T, H, D, R, first position; where a bf16 pack is whole, where only that of floats is, where
 * none is. */
static const int64_t rotations[][6] = {
    {0, 3, 2, 8, 8, 0},     {1, 1, 1, 2, 2, 0},   {2, 3, 2, 32, 32, 1}, {3, 5, 3, 64, 32, 0},
    {2, 4, 3, 128, 128, 9}, {1, 33, 2, 24, 8, 0}, {2, 7, 5, 20, 12, 2}, {2, 6, 1, 31, 30, 0},
};

/* way: bit 0: backwards; bit 1: accumulated; bit 2: not aligned; bit 3: bf16. */
static void check_rotary(const int64_t *s, int way, bool in_place)
{
    const int64_t n = s[0] * s[1] * s[2] * s[3];
    const enum ddp_dtype dtype = way & 8 ? DDP_BF16 : DDP_F32;
    struct pair table = pair_of((s[5] + s[1]) * s[4], 0);
    struct pair x = pair_of_type(dtype, n, way & 4 ? 1 : 0);
    struct pair y = pair_out_type(dtype, n, 0, way & 2), *out = in_place ? &x : &y;
    struct ddp_rotary args = {.batch = s[0],
                              .length = s[1],
                              .heads = s[2],
                              .head_size = s[3],
                              .size = s[4],
                              .first = s[5],
                              .positions = s[5] + s[1],
                              .inverse = way & 1,
                              .accumulate = way & 2};
    for (int device = 0; device < 2; device++) {
        args.dtype = device ? dtype : DDP_F32;
        args.table = device ? table.device : table.host;
        args.x = device ? x.device : x.host;
        args.y = device ? out->device : out->host;
        const struct ddp_kernels *kernels = device ? on_cuda : &ddp_kernels_reference;
        ck_assert_int_eq(kernels->rotary(&args, device ? cuda_stream : NULL), DDP_OK);
    }
    pair_near("rope", out, 3e-7);
    pair_free(&table);
    pair_free(&x);
    pair_free(&y);
}

START_TEST(test_rotary)
{
    for (size_t i = 0; i < sizeof rotations / sizeof *rotations; i++) {
        random_seed(i);
        check_rotary(rotations[i], _i, false);
        if (!(_i & 2))
            check_rotary(rotations[i], _i, true);
    }
}
END_TEST

/* --- what is wrong -------------------------------------------------------------------------- */

/* Nothing outside the arrays is touched on behalf of a bad label or token. */
START_TEST(test_bad_numbers)
{
    const int32_t numbers[4] = {2, INT32_MAX, INT32_MIN, 3};
    const int32_t *d_numbers = cuda_copy(numbers, sizeof numbers, 0);
    float *wte = cuda_memory(12 * sizeof *wte, 0), *y = cuda_memory(16 * sizeof *y, 0);
    const struct ddp_embedding_forward forward = {
        2, 2, 4, .vocabulary = 3, .tokens = d_numbers, .wte = wte, .y = y};
    ck_assert_int_eq(on_cuda->embedding_forward(&forward, cuda_stream), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_ERR_INVALID);
    const struct ddp_embedding_backward backward = {
        2, 2, 4, .vocabulary = 3, .tokens = d_numbers, .dy = y, .dwte = wte};
    ck_assert_int_eq(on_cuda->embedding_backward(&backward, cuda_stream), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_ERR_INVALID);
    const struct ddp_softmax_cross_entropy entropy = {
        .rows = 4, .classes = 3, .logits = wte, .labels = d_numbers, .loss = y, .dlogits = wte};
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&entropy, cuda_stream), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_OK); /* said once */
}
END_TEST

START_TEST(test_arguments)
{
    float *v = cuda_memory(16, 0);
    const struct ddp_transpose transpose = {.batch = 1, .rows = 2, .columns = 2, .x = v};
    ck_assert_int_eq(on_cuda->transpose(&transpose, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_layer_norm_forward norm = {.rows = 1, .features = 4, .eps = NAN, .x = v};
    ck_assert_int_eq(on_cuda->layer_norm_forward(&norm, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_layer_norm_backward backward = {.rows = 1, .features = 4, .x = v, .dx = v};
    ck_assert_int_eq(on_cuda->layer_norm_backward(&backward, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_layer_norm_forward rms = {
        .rows = 1, .features = 4, .rms = true, .x = v, .beta = v, .y = v};
    ck_assert_int_eq(on_cuda->layer_norm_forward(&rms, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_rotary rotary = {1, 2, 1, 2, 2, .positions = 1, .table = v, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->rotary(&rotary, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_softmax_cross_entropy entropy = {.rows = 1, .classes = 0, .logits = v};
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&entropy, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_embedding_forward long_rows = {
        1, 3, 1, 4, .positions = 2, .tokens = (int32_t *)v, .wte = v, .wpe = v, .y = v};
    ck_assert_int_eq(on_cuda->embedding_forward(&long_rows, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_embedding_backward nothing = {1, 3, 1, 4, .tokens = (int32_t *)v, .dwte = v};
    ck_assert_int_eq(on_cuda->embedding_backward(&nothing, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

void cuda_row_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "rows");
    tcase_add_loop_test(tc, test_transpose, 0, 2);
    tcase_add_loop_test(tc, test_embedding, 0, EMBEDDINGS);
    tcase_add_loop_test(tc, test_embedding_backward, 0, EMBEDDINGS);
    tcase_add_test(tc, test_long_embedding);
    tcase_add_loop_test(tc, test_layer_norm, 0, 32);
    tcase_add_loop_test(tc, test_layer_norm_nan, 0, 8);
    tcase_add_loop_test(tc, test_layer_norm_in_place, 0, 4);
    tcase_add_loop_test(tc, test_add_layer_norm, 0, 32);
    tcase_add_loop_test(tc, test_rotary, 0, 16);
    tcase_add_test(tc, test_bad_numbers);
    tcase_add_test(tc, test_arguments);
}
