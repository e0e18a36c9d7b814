/* SPDX-License-Identifier: MIT
 *
 * Attention of CUDA against the reference, and against itself; with shared heads, windows and
 * documents too. */
#include "config.h"

#include "kernels/bf16.h"
#include "tests/cuda/cuda_pair.h"
#include "tests/cuda/cuda_test.h"
#include "tests/kernels/grouped_attention.h"
#include "tests/kernels/reference/reference.h"

/* Of batch, length, heads, size. Lengths around the tiles' borders, sizes around the templates'. */
static const int64_t attentions[][4] = {
    {1, 1, 1, 1},    {2, 3, 2, 4},    {1, 17, 2, 8},   {1, 64, 1, 32},   {1, 65, 2, 33},
    {2, 63, 1, 64},  {1, 128, 2, 64}, {1, 130, 1, 64}, {1, 100, 2, 48},  {1, 31, 1, 80},
    {1, 33, 1, 128}, {1, 65, 1, 128}, {1, 17, 1, 130}, {1, 35, 1, 256},  {3, 5, 3, 6},
    {1, 200, 1, 16}, {1, 16, 1, 64},  {0, 3, 2, 4},    {2, 0, 2, 4},     {1, 1, 1, 64},
    {1, 15, 2, 24},  {1, 127, 2, 64}, {2, 129, 1, 64}, {1, 128, 1, 32},  {1, 130, 1, 40},
    {1, 64, 1, 128}, {1, 97, 2, 72},  {1, 193, 1, 56}, {1, 127, 1, 120},
};
#define ATTENTIONS (int)(sizeof attentions / sizeof *attentions)

/* A test's type may be DDP_F16: float32 in memory, with operands that float16 has. */
static enum ddp_dtype memory_of(enum ddp_dtype type)
{
    return type == DDP_F16 ? DDP_F32 : type;
}

static struct ddp_attention_shape shape_of(const int64_t *s, enum ddp_dtype type)
{
    struct ddp_attention_shape shape =
        ddp_attention_packed(s[0], s[1], s[2], s[3], memory_of(type));
    shape.f16 = type == DDP_F16;
    return shape;
}

static void attend(const int64_t *s, enum ddp_dtype type, const struct pair *qkv,
                   const struct pair *y, const struct pair *lse, bool device)
{
    const enum ddp_dtype dtype = device ? qkv->dtype : DDP_F32;
    const char *q = device ? qkv->device : (char *)qkv->host;
    const size_t part = (size_t)(s[2] * s[3]) * ddp_dtype_bytes(dtype);
    const struct ddp_attention_forward args = {
        .shape = shape_of(s, device ? type : DDP_F32),
        .q = q,
        .k = q + part,
        .v = q + 2 * part,
        .y = device ? y->device : y->host,
        .lse = !lse     ? NULL
               : device ? lse->device
                        : lse->host,
    };
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(table->attention_forward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void attend_back(const int64_t *s, enum ddp_dtype type, const struct pair *all, bool add,
                        bool device)
{
    const enum ddp_dtype dtype = device ? all[0].dtype : DDP_F32;
    const char *q = device ? all[0].device : (char *)all[0].host;
    char *dq = device ? all[4].device : (char *)all[4].host;
    const size_t part = (size_t)(s[2] * s[3]) * ddp_dtype_bytes(dtype);
    const struct ddp_attention_backward args = {
        .shape = shape_of(s, device ? type : DDP_F32),
        .q = q,
        .k = q + part,
        .v = q + 2 * part,
        .y = device ? all[1].device : all[1].host,
        .lse = device ? all[2].device : all[2].host,
        .dy = device ? all[3].device : all[3].host,
        .dq = dq,
        .dk = dq + part,
        .dv = dq + 2 * part,
        .accumulate_dq = add,
        .accumulate_dk = add,
        .accumulate_dv = add,
    };
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(table->attention_backward(&args, device ? cuda_stream : NULL), DDP_OK);
}

/* Scores of q, or of q, k and v, times a factor: larger than random numbers give, so that the
 * softmax is not flat. */
static void sharpen(struct pair *pair, enum ddp_dtype type, float factor)
{
    for (int64_t i = 0; i < pair->count; i++)
        pair->host[i] = ddp_operand(pair->host[i] * factor, type);
    pair_send(pair);
}

/* Root of the mean square of the differences, in parts of the numbers'. */
static void expect_share(const char *what, const struct pair *pair, double most)
{
    float *got = pair_fetch(pair);
    double differences = 0, all = 1e-30;
    for (int64_t i = 0; i < pair->count; i++) {
        const double wanted = (double)pair->host[i];
        differences += ((double)got[i] - wanted) * ((double)got[i] - wanted);
        all += wanted * wanted;
    }
    const double share = sqrt(differences / all);
    ck_assert_msg(share <= most, "%s is off by %g of its size on the device", what, share);
    free(got);
}

/* What tensor cores may be off by: they take probabilities in bf16 or float16, each off by up to
 * half of it. */
static double rounded_by(enum ddp_dtype type)
{
    return type == DDP_F16 ? 0x1p-11 : 0x1p-8;
}

/* share: rounded_by() a type, or 0 by the plain kernels. */
static void near_or_rounded(const char *what, const struct pair *pair, double tolerance,
                            double share)
{
    if (share > 0)
        expect_share(what, pair, share);
    pair_near(what, pair, share > 0 ? share * largest_size(pair->host, pair->count) : tolerance);
}

static void check_attention(const int64_t *s, enum ddp_dtype type, size_t shift, bool add, bool mma)
{
    const enum ddp_dtype dtype = memory_of(type);
    const double share = mma ? rounded_by(type) : 0;
    const int64_t rows = s[0] * s[1], c = s[2] * s[3];
    struct pair all[5] = {pair_of_type(dtype, rows * 3 * c, shift),
                          pair_out_type(dtype, rows * c, shift, false),
                          pair_out(rows * s[2], shift, false), pair_of_type(dtype, rows * c, shift),
                          pair_out_type(dtype, rows * 3 * c, shift, add)};
    sharpen(&all[0], type, 3);
    sharpen(&all[3], type, 1);
    attend(s, type, &all[0], &all[1], &all[2], true);
    attend(s, type, &all[0], &all[1], &all[2], false);
    near_or_rounded("attention y", &all[1], 1e-5, share);
    pair_near("attention lse", &all[2], 1e-5);
    float *y = pair_fetch(&all[1]);
    attend(s, type, &all[0], &all[1], NULL, true);
    pair_same("attention without lse", &all[1], y);
    if (type != DDP_F32)
        pair_send(&all[1]);

    attend_back(s, type, all, add, true);
    attend_back(s, type, all, add, false);
    near_or_rounded("attention dqkv", &all[4], 1e-4, share);
    float *dqkv = pair_fetch(&all[4]);
    if (!add) {
        attend_back(s, type, all, add, true);
        pair_same("attention dqkv, again", &all[4], dqkv);
    } else {
        free(dqkv);
    }
    for (int i = 0; i < 5; i++)
        pair_free(&all[i]);
}

START_TEST(test_attention)
{
    random_seed((uint64_t)_i);
    for (int shift = 0; shift < 2; shift++)
        check_attention(attentions[_i], DDP_F32, (size_t)shift, shift != _i % 2, false);
}
END_TEST

/* On tensor cores where they can do it, then by the plain kernels. */
START_TEST(test_attention_bf16)
{
    const int64_t *s = attentions[_i % ATTENTIONS];
    const bool plain = _i >= ATTENTIONS;
    random_seed((uint64_t)_i);
    if (plain)
        setenv("DDP_CUDA_PLAIN", "1", 1);
    for (int shift = 0; shift < 2; shift++)
        check_attention(s, DDP_BF16, (size_t)shift, shift != _i % 2,
                        !plain && shift == 0 && s[3] % 8 == 0 && s[3] <= 128);
    unsetenv("DDP_CUDA_PLAIN");
}
END_TEST

/* On tensor cores, of what float32 has, which shows: the plain kernels are nearer. */
static void check_f16(const int64_t *s, uint64_t seed)
{
    random_seed(seed);
    check_attention(s, DDP_F16, 0, seed % 2, true);
    const int64_t n = s[0] * s[1] * s[2] * s[3];
    struct pair qkv = pair_of(3 * n, 0), y = pair_out(n, 0, false);
    attend(s, DDP_F16, &qkv, &y, NULL, true);
    float *rounded = pair_fetch(&y);
    attend(s, DDP_F32, &qkv, &y, NULL, true);
    float *plain = pair_fetch(&y);
    ck_assert(n == 0 || !same_bits(rounded, plain, n));
    free(rounded);
    free(plain);
    pair_free(&qkv);
    pair_free(&y);
}

START_TEST(test_attention_f16)
{
    const int64_t *s = attentions[_i];
    if (s[3] % 8 == 0 && s[3] <= 128)
        check_f16(s, (uint64_t)_i);
    random_seed((uint64_t)_i);
    check_attention(s, DDP_F16, 1, false, false);
}
END_TEST

START_TEST(test_attention_nan)
{
    const int64_t s[] = {1, 70, 1, 64};
    const enum ddp_dtype type = _i == 0 ? DDP_F32 : _i == 1 ? DDP_BF16 : DDP_F16;
    const enum ddp_dtype dtype = memory_of(type);
    struct pair qkv = pair_of_type(dtype, 70 * 3 * 64, 0);
    struct pair y = pair_out_type(dtype, 70 * 64, 0, false);
    qkv.host[66 * 3 * 64 + 64] = NAN; /* a key: of its query and those after it */
    pair_send(&qkv);
    attend(s, type, &qkv, &y, NULL, true);
    float *values = pair_fetch(&y);
    for (int64_t i = 0; i < 70 * 64; i++)
        ck_assert_msg(isnan(values[i]) == (i >= 66 * 64), "element %lld", (long long)i);
    free(values);
    pair_free(&qkv);
    pair_free(&y);
}
END_TEST

/* The plugin was compiled for 7.5, of which the driver makes code for the device: with products of
 * float16 alone. */
START_TEST(test_attention_old_code)
{
    setenv("DDP_CUDASIM_PTX", "75", 1);
    char name[] = "/tmp/ddp-cuda-XXXXXX", text[1000] = "";
    const int fd = mkstemp(name), before = dup(STDERR_FILENO);
    ck_assert_int_ge(fd, 0);
    unlink(name);
    fflush(NULL);
    dup2(fd, STDERR_FILENO);
    cuda_open_cudnn(); /* which warns already */
    for (int i = 0; i < ATTENTIONS; i++)
        if (attentions[i][3] % 8 == 0 && attentions[i][1] <= 65)
            check_attention(attentions[i], DDP_BF16, 0, false, false);
    check_f16(attentions[6], 1);
    dup2(before, STDERR_FILENO);
    ck_assert_int_gt(pread(fd, text, sizeof text - 1, 0), 0);
    const char *line = strchr(text, '\n');
    ck_assert_msg(line && line[1] == '\0' && strstr(text, "warning: attention leaves") &&
                      strstr(text, "9.0: configure with NVCC_GENCODE=") && strstr(text, "=sm_90 "),
                  "not one warning: %s", text);
    close(before);
    close(fd);
    cuda_close();
}
END_TEST

/* The first `prefix` positions at once, the others one by one; all samples, or one alone. */
static void attend_cached(const int64_t *s, int64_t prefix, bool alone, const float *qkv,
                          float *cache, float *y, bool device)
{
    const int64_t c = s[2] * s[3], row = 3 * c, samples = alone ? 1 : s[0];
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    float *in = array_of(samples * s[1] * row), *out = array_of(samples * s[1] * c);
    struct ddp_attention_cached args = {.shape =
                                            ddp_attention_packed(samples, 1, s[2], s[3], DDP_F32)};
    args.capacity = s[1] + 2;
    args.cache_stride = 2 * c * args.capacity + 3;
    args.cache = cache;
    for (int64_t t = 0; t < s[1]; t += args.shape.length) {
        args.past = t;
        args.shape.length = t == 0 ? prefix : 1;
        for (int64_t b = 0; b < samples; b++)
            memcpy(in + b * args.shape.length * row, qkv + (b * s[1] + t) * row,
                   (size_t)(args.shape.length * row) * sizeof *in);
        const int64_t rows = samples * args.shape.length;
        args.q = device ? cuda_floats(in, rows * row, 0) : in;
        args.k = args.q + c;
        args.v = args.q + 2 * c;
        args.y = device ? cuda_memory((size_t)(rows * c) * sizeof *out, 0) : out;
        ck_assert_int_eq(table->attention_cached(&args, device ? cuda_stream : NULL), DDP_OK);
        if (device)
            cuda_get(out, args.y, (size_t)(rows * c) * sizeof *out);
        for (int64_t b = 0; b < samples; b++)
            memcpy(y + (b * s[1] + t) * c, out + b * args.shape.length * c,
                   (size_t)(args.shape.length * c) * sizeof *y);
    }
    array_free(in, samples * s[1] * row);
    array_free(out, samples * s[1] * c);
}

START_TEST(test_attention_cached)
{
    const int64_t *s = attentions[_i], n = s[0] * s[1] * s[2] * s[3];
    const int64_t prefix = s[1] > 12 ? s[1] - 9 : s[1] > 1 ? s[1] / 2 : 1;
    const int64_t room = s[0] * (2 * s[2] * s[3] * (s[1] + 2) + 3);
    random_seed((uint64_t)_i);
    float *qkv = array_of(3 * n), *y[3] = {array_of(n), array_of(n), array_of(n)};
    struct pair cache = pair_of(room, 0);
    for (int64_t i = 0; i < 3 * n; i++)
        qkv[i] *= 3;
    attend_cached(s, prefix, false, qkv, cache.host, y[0], false);
    attend_cached(s, prefix, false, qkv, cache.device, y[1], true);
    pair_equal("keys and values", &cache);
    ck_assert(largest_difference(y[1], y[0], n) <= 1e-5);
    if (n > 0) { /* the first sample, without the others */
        attend_cached(s, prefix, true, qkv, cache.device, y[2], true);
        ck_assert(same_bits(y[2], y[1], n / s[0]));
    }
    for (int i = 0; i < 3; i++)
        array_free(y[i], n);
    array_free(qkv, 3 * n);
    pair_free(&cache);
}
END_TEST

/* --- shared heads, windows, documents --- */

static void *side(const struct pair *pair, bool device)
{
    return device ? pair->device : pair->host;
}

static void attend_grouped(const struct ddp_attention_shape *shape, const struct pair *all,
                           bool device)
{
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    void *stream = device ? cuda_stream : NULL;
    const struct ddp_attention_forward forward = {.shape = *shape,
                                                  .q = side(&all[GQ], device),
                                                  .k = side(&all[GK], device),
                                                  .v = side(&all[GV], device),
                                                  .y = side(&all[GY], device),
                                                  .lse = side(&all[GLSE], device)};
    ck_assert_int_eq(table->attention_forward(&forward, stream), DDP_OK);
}

static void attend_grouped_back(const struct ddp_attention_shape *shape, const struct pair *all,
                                int add, int needed, bool device)
{
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    const struct ddp_attention_backward args = {.shape = *shape,
                                                .q = side(&all[GQ], device),
                                                .k = side(&all[GK], device),
                                                .v = side(&all[GV], device),
                                                .y = side(&all[GY], device),
                                                .lse = side(&all[GLSE], device),
                                                .dy = side(&all[GDY], device),
                                                .dq = needed & 1 ? side(&all[GDQ], device) : NULL,
                                                .dk = needed & 2 ? side(&all[GDK], device) : NULL,
                                                .dv = needed & 4 ? side(&all[GDV], device) : NULL,
                                                .accumulate_dq = add & 1,
                                                .accumulate_dk = add & 2,
                                                .accumulate_dv = add & 4};
    ck_assert_int_eq(table->attention_backward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void check_grouped(const struct grouped *c, enum ddp_dtype type, int add, int needed,
                          bool mma)
{
    const enum ddp_dtype dtype = memory_of(type);
    const double share = mma ? rounded_by(type) : 0;
    int32_t *documents = grouped_documents(c);
    struct ddp_attention_shape host = grouped_shape(c, documents), device = host;
    struct pair all[GARRAYS];
    device.dtype = dtype;
    device.f16 = type == DDP_F16;
    if (host.documents)
        device.documents =
            cuda_copy(documents, (size_t)(c->batch * c->length) * sizeof *documents, 0);
    for (int i = 0; i < GARRAYS; i++) {
        const int64_t count = grouped_count(&host, i);
        all[i] = i == GLSE ? pair_out(count, 0, false) : pair_out_type(dtype, count, 0, i != GY);
    }
    sharpen(&all[GQ], type, 3);
    for (int i = GK; i <= GDY; i++)
        if (i == GK || i == GV || i == GDY)
            sharpen(&all[i], type, 1);
    attend_grouped(&device, all, true);
    attend_grouped(&host, all, false);
    near_or_rounded("attention y", &all[GY], 1e-5, share);
    pair_near("attention lse", &all[GLSE], 1e-5);
    if (type != DDP_F32)
        pair_send(&all[GY]);
    attend_grouped_back(&device, all, add, needed, true);
    attend_grouped_back(&host, all, add, needed, false);
    near_or_rounded("attention dq", &all[GDQ], 1e-4, share);
    near_or_rounded("attention dk", &all[GDK], 1e-4, share);
    near_or_rounded("attention dv", &all[GDV], 1e-4, share);
    for (int i = 0; i < GARRAYS; i++)
        pair_free(&all[i]);
    free(documents);
}

/* As float32, in bf16 on tensor cores, in bf16 by the plain kernels, and in float16. */
START_TEST(test_grouped)
{
    const int i = _i % GROUPED;
    const struct grouped *c = &grouped_cases[i];
    static const enum ddp_dtype types[] = {DDP_F32, DDP_BF16, DDP_BF16, DDP_F16};
    const int way = _i / GROUPED;
    const bool mma = way % 2 == 1 && c->size % 8 == 0;
    random_seed((uint64_t)_i);
    if (way == 2)
        setenv("DDP_CUDA_PLAIN", "1", 1);
    if (way == 0) {
        check_grouped(c, types[way], 0, 7, mma);
        check_grouped(c, types[way], i & 7, 7 - (i + 1) % 8, mma);
    } else { /* in a third of the cases some gradients are not needed */
        check_grouped(c, types[way], i & 7, i % 3 == way % 3 ? 7 - (i + 1) % 8 : 7, mma);
    }
    unsetenv("DDP_CUDA_PLAIN");
}
END_TEST

/* Documents that are not as they should be: nothing is read or written outside, all is finite. */
START_TEST(test_wrong_documents)
{
    const struct grouped c = {2, 150, 4, 2, 32, _i < 2 ? 0 : 20, SOME};
    int32_t documents[300];
    random_seed((uint64_t)_i);
    for (int i = 0; i < 300; i++)
        documents[i] = i % 3 == 0   ? INT32_MIN + (int32_t)random_below(3)
                       : i % 3 == 1 ? INT32_MAX - (int32_t)random_below(3)
                                    : (int32_t)random_below(400) - 100;
    struct ddp_attention_shape shape = grouped_shape(&c, cuda_copy(documents, sizeof documents, 0));
    struct pair all[GARRAYS];
    shape.dtype = _i % 2 ? DDP_BF16 : DDP_F32;
    for (int i = 0; i < GARRAYS; i++)
        all[i] = i == GLSE ? pair_out(grouped_count(&shape, i), 0, false)
                           : pair_out_type(shape.dtype, grouped_count(&shape, i), 0, i != GY);
    attend_grouped(&shape, all, true);
    attend_grouped_back(&shape, all, 0, 7, true);
    float *y = pair_fetch(&all[GY]);
    for (int64_t i = 0; i < all[GY].count; i++)
        ck_assert(isfinite(y[i]));
    free(y);
    for (int i = 0; i < GARRAYS; i++)
        pair_free(&all[i]);
}
END_TEST

START_TEST(test_grouped_cached)
{
    struct grouped c = grouped_cases[_i];
    random_seed((uint64_t)_i);
    c.documents = WHOLE;
    const struct ddp_attention_shape shape = grouped_shape(&c, NULL);
    const int64_t stride = 2 * c.kv_heads * c.size * (c.length + 1), width = c.heads * c.size;
    const int64_t n = grouped_count(&shape, GY), prefix = c.length > 12 ? c.length - 9 : 1;
    struct pair in[3], cache = pair_of(c.batch * stride, 0), y = pair_out(n, 0, false);
    for (int i = 0; i < 3; i++)
        in[i] = pair_of(grouped_count(&shape, i), 0);
    sharpen(&in[0], DDP_F32, 3);
    for (int device = 0; device < 2; device++)
        for (int64_t b = 0; b < c.batch; b++) {
            const int64_t row = b * c.length;
            struct ddp_attention_cached args = {.shape = shape, .capacity = c.length + 1};
            args.shape.batch = 1;
            args.cache_stride = stride;
            args.cache = (float *)side(&cache, device) + b * stride;
            for (int64_t t = 0; t < c.length; t += args.shape.length) {
                args.past = t;
                args.shape.length = t == 0 ? prefix : 1;
                args.q = (float *)side(&in[0], device) + (row + t) * shape.q_stride;
                args.k = (float *)side(&in[1], device) + (row + t) * shape.k_stride;
                args.v = (float *)side(&in[2], device) + (row + t) * shape.v_stride;
                args.y = (float *)side(&y, device) + (row + t) * width;
                ck_assert_int_eq((device ? on_cuda : &ddp_kernels_reference)
                                     ->attention_cached(&args, device ? cuda_stream : NULL),
                                 DDP_OK);
            }
        }
    pair_equal("keys and values", &cache);
    pair_near("with a cache", &y, 1e-5);
    for (int i = 0; i < 3; i++)
        pair_free(&in[i]);
    pair_free(&cache);
    pair_free(&y);
}
END_TEST

START_TEST(test_attention_refused)
{
    float some[1];
    struct ddp_attention_forward args = {
        ddp_attention_packed(1, 1, 1, 257, DDP_F32), some, some, some, some, NULL};
    ck_assert_int_eq(on_cuda->attention_forward(&args, cuda_stream), DDP_ERR_UNSUPPORTED);
    args.q = NULL;
    ck_assert_int_eq(on_cuda->attention_forward(&args, cuda_stream), DDP_ERR_INVALID);
    struct ddp_attention_cached cached = {.shape = ddp_attention_packed(1, 1, 1, 257, DDP_F32)};
    cached.capacity = 1;
    cached.q = cached.k = cached.v = cached.cache = cached.y = some;
    ck_assert_int_eq(on_cuda->attention_cached(&cached, cuda_stream), DDP_ERR_UNSUPPORTED);
    cached.capacity = 0;
    ck_assert_int_eq(on_cuda->attention_cached(&cached, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

void cuda_attention_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "attention");
    tcase_add_loop_test(tc, test_attention, 0, ATTENTIONS);
    tcase_add_loop_test(tc, test_attention_bf16, 0, 2 * ATTENTIONS);
    tcase_add_loop_test(tc, test_attention_f16, 0, ATTENTIONS);
    tcase_add_loop_test(tc, test_attention_nan, 0, 3);
    tcase_add_loop_test(tc, test_attention_cached, 0, ATTENTIONS);
    tcase_add_test(tc, test_attention_refused);
    tcase_add_loop_test(tc, test_grouped, 0, 4 * GROUPED);
    tcase_add_loop_test(tc, test_wrong_documents, 0, 4);
    tcase_add_loop_test(tc, test_grouped_cached, 0, GROUPED);
    TCase *old = test_case(suite, "attention-old-code", 120);
    if (cuda_test_simulated())
        tcase_add_test(old, test_attention_old_code);
}
