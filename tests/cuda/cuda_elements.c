/* SPDX-License-Identifier: MIT
 *
 * Elementwise operations of CUDA: they round as the CPU does, so the bits are the CPU's, at every
 * size and alignment; those of bf16 activations are the CPU's for the same numbers, rounded. */
#include "config.h"

#include "tests/cuda/cuda_kernels_test.h"
#include "tests/cuda/cuda_pair.h"
#include "tests/kernels/reference/reference.h"

/* By number of a looped test: a size, each twice: aligned to 16 bytes, and not. */
#define LOOPS (2 * CUDA_SIZES)

static int64_t size_of(int loop)
{
    return cuda_sizes[loop / 2];
}

/* Elements behind an aligned address. */
static size_t shift_of(int loop)
{
    return loop % 2 ? 1 + (size_t)loop / 2 % 3 : 0;
}

/* Bits that arithmetic has to handle with care. */
static float *special_array(int64_t count)
{
    static const float special[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-149f, 1};
    float *values = array_of(count);
    for (int64_t i = 0; i < count; i++)
        if (random_below(4) == 0)
            values[i] = special[random_below(8)];
    return values;
}

/* On the device: the same numbers, or NaN. */
static void *numbers_or_nan(enum ddp_dtype dtype, float *host, int64_t n, size_t shift, bool same)
{
    const size_t size = ddp_dtype_bytes(dtype);
    return same ? cuda_numbers(dtype, host, n, shift) : cuda_memory((size_t)n * size, shift * size);
}

/* b: another array, a itself or none; or a factor of a. y: memory of its own, a or b. */
static void check_add(int loop, enum ddp_dtype dtype, int second, int in_place, bool accumulate)
{
    const int64_t n = size_of(loop);
    float *a = array_of(n), *b = array_of(n), *y = array_of(n);
    void *d_a = cuda_numbers(dtype, a, n, shift_of(loop));
    void *d_b = cuda_numbers(dtype, b, n, shift_of(loop + 2));
    void *d_y = numbers_or_nan(dtype, y, n, shift_of(loop), accumulate);
    struct ddp_add args = {.count = n, .a = a, .y = y, .accumulate = accumulate};
    args.b = second == 1 ? b : second == 2 ? a : NULL;
    args.scale = second == 3 ? -0.3f : 0;
    args.y = in_place == 0 ? y : in_place == 1 ? a : b;
    ck_assert_int_eq(ddp_kernels_reference.add(&args, NULL), DDP_OK);
    const float *expected = args.y;
    args.dtype = dtype;
    args.a = d_a;
    args.b = second == 1 ? d_b : second == 2 ? d_a : NULL;
    args.y = in_place == 0 ? d_y : in_place == 1 ? d_a : d_b;
    ck_assert_int_eq(on_cuda->add(&args, cuda_stream), DDP_OK);
    cuda_expect_bits_type("add", dtype, args.y, expected, n);
    free(a);
    free(b);
    free(y);
}

static void try_add(int loop, enum ddp_dtype dtype)
{
    for (int second = 0; second < 4; second++)
        for (int in_place = 0; in_place < (second == 1 ? 3 : 2); in_place++)
            for (int accumulate = 0; accumulate < 2; accumulate++)
                check_add(loop, dtype, second, in_place, accumulate);
}

static void try_relu(int loop, enum ddp_dtype dtype)
{
    const int64_t n = size_of(loop);
    const size_t shift = shift_of(loop);
    for (int in_place = 0; in_place < 2; in_place++) {
        float *x = special_array(n), *y = array_of(n);
        void *d_x = cuda_numbers(dtype, x, n, shift);
        void *d_y = in_place ? d_x : numbers_or_nan(dtype, y, n, shift, false);
        struct ddp_relu_forward args = {.count = n, .x = x, .y = y};
        ck_assert_int_eq(ddp_kernels_reference.relu_forward(&args, NULL), DDP_OK);
        args = (struct ddp_relu_forward){.count = n, .dtype = dtype, .x = d_x, .y = d_y};
        ck_assert_int_eq(on_cuda->relu_forward(&args, cuda_stream), DDP_OK);
        cuda_expect_bits_type("relu", dtype, d_y, y, n);
        free(x);
        free(y);
    }
}

static void try_relu_backward(int loop, enum ddp_dtype dtype)
{
    const int64_t n = size_of(loop);
    const size_t shift = shift_of(loop);
    for (int way = 0; way < 3; way++) { /* accumulated, overwritten, in place */
        float *y = special_array(n), *dy = array_of(n), *dx = array_of(n);
        void *d_y = cuda_numbers(dtype, y, n, shift_of(loop + 2));
        void *d_dy = cuda_numbers(dtype, dy, n, shift);
        void *d_dx = way == 2 ? d_dy : numbers_or_nan(dtype, dx, n, shift, way == 0);
        struct ddp_relu_backward args = {.count = n, .y = y, .dy = dy, .dx = dx};
        args.accumulate_dx = way == 0;
        ck_assert_int_eq(ddp_kernels_reference.relu_backward(&args, NULL), DDP_OK);
        args.dtype = dtype;
        args.y = d_y;
        args.dy = d_dy;
        args.dx = d_dx;
        ck_assert_int_eq(on_cuda->relu_backward(&args, cuda_stream), DDP_OK);
        cuda_expect_bits_type("relu backward", dtype, d_dx, dx, n);
        free(y);
        free(dy);
        free(dx);
    }
}

/* Not the bits of the CPU, whose exponential is another. */
static void try_swiglu(int loop, enum ddp_dtype dtype)
{
    const int64_t n = size_of(loop);
    const size_t shift = shift_of(loop), other = shift_of(loop + 2);
    for (int in_place = 0; in_place < 3; in_place++) {
        struct pair gate = pair_of_type(dtype, n, shift), up = pair_of_type(dtype, n, other);
        struct pair y = pair_out_type(dtype, n, shift, false);
        struct pair *out = in_place == 0 ? &y : in_place == 1 ? &gate : &up;
        struct ddp_swiglu_forward args = {n, DDP_F32, gate.host, up.host, out->host};
        ck_assert_int_eq(ddp_kernels_reference.swiglu_forward(&args, NULL), DDP_OK);
        args = (struct ddp_swiglu_forward){n, dtype, gate.device, up.device, out->device};
        ck_assert_int_eq(on_cuda->swiglu_forward(&args, cuda_stream), DDP_OK);
        pair_near("swiglu", out, 1e-6);
        pair_free(&gate);
        pair_free(&up);
        pair_free(&y);
    }
}

/* way: bit 0: accumulated; else bit 1: gradients over the inputs; bit 2: only that of up. */
static void try_swiglu_backward(int loop, enum ddp_dtype dtype)
{
    const int64_t n = size_of(loop);
    const size_t shift = shift_of(loop), other = shift_of(loop + 2);
    for (int way = 0; way < 5; way++) {
        const bool add = way & 1, in_place = way == 2;
        struct pair gate = pair_of_type(dtype, n, shift), up = pair_of_type(dtype, n, other);
        struct pair dy = pair_of_type(dtype, n, shift);
        struct pair own[2] = {pair_out_type(dtype, n, shift, add),
                              pair_out_type(dtype, n, shift, add)};
        struct pair *dgate = in_place ? &gate : &own[0], *dup = in_place ? &up : &own[1];
        struct ddp_swiglu_backward args = {n,    DDP_F32,   gate.host, up.host, dy.host,
                                           NULL, dup->host, add,       add};
        args.dgate = way == 4 ? NULL : dgate->host;
        ck_assert_int_eq(ddp_kernels_reference.swiglu_backward(&args, NULL), DDP_OK);
        args = (struct ddp_swiglu_backward){n,    dtype,       gate.device, up.device, dy.device,
                                            NULL, dup->device, add,         add};
        args.dgate = way == 4 ? NULL : dgate->device;
        ck_assert_int_eq(on_cuda->swiglu_backward(&args, cuda_stream), DDP_OK);
        if (way != 4)
            pair_near("gradient of the gate", dgate, 1e-6);
        pair_near("gradient of up", dup, 1e-6);
        struct pair *const all[] = {&gate, &up, &dy, &own[0], &own[1]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            pair_free(all[i]);
    }
}

static void try_dropout(int loop, enum ddp_dtype dtype)
{
    const int64_t n = size_of(loop);
    const uint32_t place[2] = {5, 77};
    const uint32_t *d_place = cuda_copy(place, sizeof place, 0);
    for (int way = 0; way < 4; way++) { /* bit 0: accumulated; bit 1: place from memory */
        float *x = array_of(n), *y = array_of(n);
        void *d_x = cuda_numbers(dtype, x, n, shift_of(loop));
        void *d_y = way & 1 ? cuda_numbers(dtype, y, n, shift_of(loop)) : d_x;
        struct ddp_dropout args = {.count = n, .probability = 0.3f, .seed = 9, .layer = 2};
        args.accumulate = way & 1;
        args.shard = place[0];
        args.step = place[1];
        args.x = x;
        args.y = y;
        ck_assert_int_eq(ddp_kernels_reference.dropout(&args, NULL), DDP_OK);
        args.dtype = dtype;
        args.x = d_x;
        args.y = d_y;
        if (way & 2) {
            args.shard = args.step = 0;
            args.place = d_place;
        }
        ck_assert_int_eq(on_cuda->dropout(&args, cuda_stream), DDP_OK);
        cuda_expect_bits_type("dropout", dtype, d_y, y, n);
        free(x);
        free(y);
    }
}

static void try_to_bf16(int loop)
{
    const int64_t n = size_of(loop);
    float *x = special_array(n);
    uint16_t *y = malloc((size_t)(n + 1) * sizeof *y), *got = malloc((size_t)(n + 1) * sizeof *y);
    for (int64_t i = 0; i < n; i++) { /* any bits, ties between two bf16 among them */
        const uint32_t bits = (uint32_t)random_below((int64_t)1 << 32);
        if (i % 3 == 0)
            memcpy(&x[i], &bits, sizeof bits);
        const uint32_t tie = (bits & 0xffff0000u) | 0x8000u;
        if (i % 3 == 1)
            memcpy(&x[i], &tie, sizeof tie);
    }
    uint16_t *d_y = cuda_memory((size_t)n * sizeof *y, shift_of(loop) * sizeof *y);
    struct ddp_to_bf16 args = {.count = n, .x = x, .y = y};
    ck_assert_int_eq(ddp_kernels_reference.to_bf16(&args, NULL), DDP_OK);
    args.x = cuda_floats(x, n, shift_of(loop + 2));
    args.y = d_y;
    ck_assert_int_eq(on_cuda->to_bf16(&args, cuda_stream), DDP_OK);
    cuda_get(got, d_y, (size_t)n * sizeof *y);
    ck_assert(memcmp(got, y, (size_t)n * sizeof *y) == 0);
    free(x);
    free(y);
    free(got);
}

static void try_ema(int loop)
{
    const int64_t n = size_of(loop);
    float *sum = array_of(n), *running = array_of(n);
    float *d_running = cuda_floats(running, n, shift_of(loop));
    struct ddp_ema args = {.count = n, .momentum = 0.1f, .scale = 1.0f / 3};
    args.sum = sum;
    args.running = running;
    ck_assert_int_eq(ddp_kernels_reference.ema(&args, NULL), DDP_OK);
    args.sum = cuda_floats(sum, n, 0);
    args.running = d_running;
    ck_assert_int_eq(on_cuda->ema(&args, cuda_stream), DDP_OK);
    cuda_expect_bits("ema", d_running, running, n);
    free(sum);
    free(running);
}

static void check_merge(int loop, int partials, int destination)
{
    const int64_t n = size_of(loop);
    float *host[DDP_MERGE_MAX + 2], *device[DDP_MERGE_MAX + 2];
    const float *from[DDP_MERGE_MAX], *d_from[DDP_MERGE_MAX];
    for (int i = 0; i < partials + 2; i++) { /* then the leaf, then a destination of its own */
        host[i] = array_of(n);
        device[i] = cuda_floats(host[i], n, i == partials / 2 ? shift_of(loop) : 0);
    }
    for (int i = 0; i < partials; i++) {
        from[i] = host[i];
        d_from[i] = device[i];
    }
    const int to = destination < 0 ? partials + 1 : destination;
    struct ddp_merge args = {.count = n, .partial_count = partials, .partials = from};
    args.leaf = host[partials];
    args.destination = host[to];
    ck_assert_int_eq(ddp_kernels_reference.merge(&args, NULL), DDP_OK);
    args.partials = d_from;
    args.leaf = device[partials];
    args.destination = device[to];
    ck_assert_int_eq(on_cuda->merge(&args, cuda_stream), DDP_OK);
    cuda_expect_bits("merge", device[to], host[to], n);
    for (int i = 0; i < partials + 2; i++)
        free(host[i]);
}

static void try_merge(int loop)
{
    check_merge(loop, 0, -1);
    check_merge(loop, 0, 0); /* the leaf itself */
    check_merge(loop, 1, 0);
    check_merge(loop, 3, 3);
    check_merge(loop, 5, 2);
    if (loop % 8 == 0)
        check_merge(loop, DDP_MERGE_MAX, -1);
}

/* Random bytes as numbers of a type: integers of any size, so that sums wrap. */
static void *numbers_of(enum ddp_dtype dtype, int64_t n)
{
    unsigned char *bytes = malloc((size_t)n * 8 + 8);
    ck_assert_ptr_nonnull(bytes);
    for (int64_t i = 0; i < n; i++) {
        const double number = (double)random_number();
        const float single = (float)number;
        const int64_t large = random_below(INT64_MAX) - random_below(INT64_MAX);
        const int32_t half = (int32_t)large;
        if (dtype == DDP_F32)
            memcpy(bytes + 4 * i, &single, sizeof single);
        else if (dtype == DDP_F64)
            memcpy(bytes + 8 * i, &number, sizeof number);
        else if (dtype == DDP_I32)
            memcpy(bytes + 4 * i, &half, sizeof half);
        else
            memcpy(bytes + 8 * i, &large, sizeof large);
    }
    return bytes;
}

static void check_reduce(int loop, int sources, int destinations, enum ddp_dtype dtype,
                         enum ddp_redop op)
{
    const int64_t n = size_of(loop);
    const size_t bytes = (size_t)n * ddp_dtype_bytes(dtype);
    const size_t shift = shift_of(loop) * ddp_dtype_bytes(dtype);
    const void *from[DDP_REDUCE_MAX], *d_from[DDP_REDUCE_MAX];
    void *to[DDP_REDUCE_MAX], *d_to[DDP_REDUCE_MAX];
    for (int i = 0; i < sources; i++) {
        void *numbers = numbers_of(dtype, n);
        from[i] = numbers;
        d_from[i] = cuda_copy(numbers, bytes, i == sources / 2 ? shift : 0);
    }
    for (int i = 0; i < destinations; i++) { /* the first is a source */
        to[i] = i == 0 ? numbers_of(dtype, n) : malloc(bytes + 8);
        d_to[i] = i == 0 ? (void *)(uintptr_t)d_from[0] : cuda_memory(bytes, shift);
    }
    struct ddp_reduce args = {.source_count = sources, .destination_count = destinations};
    args.sources = from;
    args.destinations = to;
    args.count = n;
    args.dtype = dtype;
    args.op = op;
    ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
    args.sources = d_from;
    args.destinations = d_to;
    ck_assert_int_eq(on_cuda->reduce(&args, cuda_stream), DDP_OK);
    void *got = malloc(bytes + 8);
    for (int i = 0; i < destinations; i++) {
        cuda_get(got, d_to[i], bytes);
        ck_assert_msg(memcmp(got, to[i], bytes) == 0,
                      "%d sources, destination %d of %d, type %d, operator %d, %lld elements",
                      sources, i, destinations, (int)dtype, (int)op, (long long)n);
        free(to[i]);
    }
    for (int i = 0; i < sources; i++)
        free((void *)(uintptr_t)from[i]);
    free(got);
}

static void try_reduce(int loop)
{
    for (int sources = 1; sources <= 9; sources++)
        check_reduce(loop, sources, 1 + sources % 3, (enum ddp_dtype)(sources % 4),
                     (enum ddp_redop)(sources % 3));
}

static void (*const tries[])(int loop) = {try_to_bf16, try_ema, try_merge, try_reduce};

/* Of activations: with either type. */
static void (*const activation_tries[])(int loop, enum ddp_dtype dtype) = {
    try_add, try_relu, try_relu_backward, try_dropout, try_swiglu, try_swiglu_backward,
};
#define ACTIVATION_TRIES (int)(sizeof activation_tries / sizeof *activation_tries)

START_TEST(test_sizes)
{
    for (int loop = 0; loop < LOOPS; loop++) {
        random_seed((uint64_t)loop);
        tries[_i](loop);
    }
}
END_TEST

START_TEST(test_activations)
{
    for (int loop = 0; loop < LOOPS; loop++) {
        random_seed((uint64_t)loop);
        activation_tries[_i / 2](loop, _i % 2 ? DDP_BF16 : DDP_F32);
    }
}
END_TEST

/* Every number of sources: the tree's form. */
START_TEST(test_reduce_trees)
{
    random_seed(6);
    for (int n = 1; n <= DDP_REDUCE_MAX; n++) {
        check_reduce(12, n, 1, DDP_F32, DDP_SUM);
        check_reduce(9, n, 2, (enum ddp_dtype)(n % 4), (enum ddp_redop)(n / 4 % 3));
    }
    check_reduce(13, DDP_REDUCE_MAX, DDP_REDUCE_MAX, DDP_F64, DDP_SUM);
}
END_TEST

/* Sums of subtrees, as so many units bring them, into the first. */
static void check_roots(int loop, int leaves, int units)
{
    const int64_t n = size_of(loop);
    const size_t bytes = (size_t)n * sizeof(float);
    const void *from[DDP_REDUCE_DEVICE], *d_from[DDP_REDUCE_DEVICE];
    int ends[DDP_REDUCE_DEVICE], count = 0;
    for (int u = 0; u < units; u++)
        count += ddp_reduce_run_roots(0, leaves, u * leaves / units, (u + 1) * leaves / units,
                                      ends + count);
    for (int i = 0; i < count; i++) {
        void *numbers = numbers_of(DDP_F32, n);
        from[i] = numbers;
        d_from[i] = cuda_copy(numbers, bytes, i == count / 2 ? shift_of(loop) * sizeof(float) : 0);
    }
    void *to = malloc(bytes + 8), *got = malloc(bytes + 8), *d_to = (void *)(uintptr_t)d_from[0];
    struct ddp_reduce args = {.source_count = count, .destination_count = 1};
    args.sources = from;
    args.destinations = &to;
    args.count = n;
    args.dtype = DDP_F32;
    args.op = DDP_SUM;
    args.ends = ends;
    ck_assert_int_eq(ddp_reduce_reference(&args), DDP_OK);
    args.sources = d_from;
    args.destinations = &d_to;
    ck_assert_int_eq(on_cuda->reduce(&args, cuda_stream), DDP_OK);
    cuda_get(got, d_to, bytes);
    ck_assert_msg(memcmp(got, to, bytes) == 0, "%d leaves, %d units, %lld elements", leaves, units,
                  (long long)n);
    args.op = DDP_MAX;
    ck_assert_int_eq(on_cuda->reduce(&args, cuda_stream), DDP_ERR_UNSUPPORTED);
    for (int i = 0; i < count; i++)
        free((void *)(uintptr_t)from[i]);
    free(to);
    free(got);
}

START_TEST(test_reduce_roots)
{
    random_seed(7);
    for (int leaves = 1; leaves <= 21; leaves++)
        for (int units = 1; units <= leaves; units++)
            check_roots(leaves + units, leaves, units);
    check_roots(12, 1023, 59);
    check_roots(12, 1024, 1);
    check_roots(12, 1024, 63);
}
END_TEST

/* Activations are float32 or bf16. */
START_TEST(test_other_types)
{
    float *v = cuda_memory(64, 0);
    const struct ddp_add add = {.count = 4, .dtype = DDP_F64, .a = v, .y = v, .accumulate = true};
    ck_assert_int_eq(on_cuda->add(&add, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_relu_forward relu = {.count = 4, .dtype = DDP_I32, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->relu_forward(&relu, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_relu_backward backward = {
        .count = 4, .dtype = DDP_F64, .y = v, .dy = v, .dx = v};
    ck_assert_int_eq(on_cuda->relu_backward(&backward, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_dropout dropout = {.count = 4, .dtype = DDP_F64, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->dropout(&dropout, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_swiglu_forward swiglu = {
        .count = 4, .dtype = DDP_F64, .gate = v, .up = v, .y = v};
    ck_assert_int_eq(on_cuda->swiglu_forward(&swiglu, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_sum_forward sum = {.count = 4, .dtype = DDP_F64, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->sum_forward(&sum, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_transpose transpose = {1, 2, 2, .dtype = DDP_F64, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->transpose(&transpose, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_layer_norm_forward norm = {
        .rows = 1, .features = 4, .dtype = DDP_F64, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->layer_norm_forward(&norm, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_max_pool2d_forward pool = {
        .shape = {1, 2, 2, 1, 1, 1, 1, 0}, .dtype = DDP_F64, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->max_pool2d_forward(&pool, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_batch_norm_sums sums = {
        .rows = 2, .channels = 2, .dtype = DDP_F64, .x = v, .sums = (double *)v, .scratch = v};
    ck_assert_int_eq(on_cuda->batch_norm_sums(&sums, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_embedding_forward embedding = {
        1, 1, 4, 1, .dtype = DDP_F64, .tokens = (int32_t *)v, .wte = v, .y = v};
    ck_assert_int_eq(on_cuda->embedding_forward(&embedding, cuda_stream), DDP_ERR_UNSUPPORTED);
    const struct ddp_softmax_cross_entropy entropy = {
        .rows = 1, .classes = 4, .dtype = DDP_F64, .logits = v, .labels = (int32_t *)v, .loss = v};
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&entropy, cuda_stream), DDP_ERR_UNSUPPORTED);
}
END_TEST

/* What does not fit is refused before anything runs. */
START_TEST(test_arguments)
{
    float *v = cuda_memory(16, 0);
    const struct ddp_add add = {.count = 4, .a = v};
    ck_assert_int_eq(on_cuda->add(&add, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_relu_forward relu = {.count = -1, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->relu_forward(&relu, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_relu_backward backward = {.count = 4, .y = v, .dy = v};
    ck_assert_int_eq(on_cuda->relu_backward(&backward, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_dropout dropout = {.count = 4, .probability = 1, .x = v, .y = v};
    ck_assert_int_eq(on_cuda->dropout(&dropout, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_swiglu_forward swiglu = {.count = 4, .gate = v, .y = v};
    ck_assert_int_eq(on_cuda->swiglu_forward(&swiglu, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_swiglu_backward gradients = {.count = 4, .gate = v, .up = v, .dup = v};
    ck_assert_int_eq(on_cuda->swiglu_backward(&gradients, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_to_bf16 bf16 = {.count = 4, .x = v};
    ck_assert_int_eq(on_cuda->to_bf16(&bf16, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_ema ema = {.count = 4, .sum = v};
    ck_assert_int_eq(on_cuda->ema(&ema, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_merge merge = {.count = 4, .partial_count = 33, .leaf = v, .destination = v};
    ck_assert_int_eq(on_cuda->merge(&merge, cuda_stream), DDP_ERR_INVALID);
    const struct ddp_reduce reduce = {.source_count = 65, .destination_count = 1, .count = 4};
    ck_assert_int_eq(on_cuda->reduce(&reduce, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

void cuda_element_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "elements");
    tcase_add_loop_test(tc, test_sizes, 0, sizeof tries / sizeof *tries);
    tcase_add_loop_test(tc, test_activations, 0, 2 * ACTIVATION_TRIES);
    tcase_add_test(tc, test_reduce_trees);
    tcase_add_test(tc, test_reduce_roots);
    tcase_add_test(tc, test_other_types);
    tcase_add_test(tc, test_arguments);
}
