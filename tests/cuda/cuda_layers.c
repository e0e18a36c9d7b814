/* SPDX-License-Identifier: MIT
 *
 * The linear layer of CUDA against the reference, and against themselves. */
#include "config.h"

#include "kernels/bf16.h"
#include "tests/cuda/cuda_pair.h"
#include "tests/kernels/reference/reference.h"

/* --- linear --------------------------------------------------------------------------------- */

struct layer {
    int64_t rows, in, out;
    enum ddp_activation activation;
    enum ddp_dtype compute, dtype;
    bool bias, add, rounded; /* gradients are added; weight and bias are given in bf16 */
    size_t shift;
    struct pair x, weight, b, y, pre, dy, dx, dweight, dbias;
    uint16_t *weight_bf16, *device_bf16, *device_b_bf16;
    void *scratch, *device_scratch;
};

/* Of rows, in, out. Sums over a multiple of eight, and not; more rows than one piece of them. */
static const int64_t layers[][3] = {
    {1, 1, 1},    {0, 3, 5},    {4, 0, 6},   {3, 5, 0},     {2, 8, 16},  {7, 3, 5},
    {16, 16, 16}, {33, 17, 31}, {64, 64, 8}, {65, 129, 63}, {5, 200, 7}, {200, 24, 40},
};

static struct layer layer_of(const int64_t *shape, enum ddp_activation activation,
                             enum ddp_dtype compute, int flags)
{
    struct layer l = {.rows = shape[0], .in = shape[1], .out = shape[2]};
    l.activation = activation;
    l.compute = compute;
    l.bias = flags & 1;
    l.add = flags & 2;
    l.rounded = flags & 4;
    l.shift = flags & 8 ? 1 : 0;
    l.dtype = flags & 16 ? DDP_BF16 : DDP_F32;
    l.x = pair_of_type(l.dtype, l.rows * l.in, l.shift);
    l.weight = pair_of(l.out * l.in, l.shift);
    l.b = pair_of(l.out, l.shift);
    l.y = pair_out_type(l.dtype, l.rows * l.out, l.shift, false);
    l.pre = pair_out_type(l.dtype, l.rows * l.out, l.shift, false);
    l.dy = pair_of_type(l.dtype, l.rows * l.out, l.shift);
    l.dx = pair_out_type(l.dtype, l.rows * l.in, l.shift, l.add);
    l.dweight = pair_out(l.out * l.in, l.shift, l.add);
    l.dbias = pair_out(l.out, l.shift, l.add);
    const size_t bytes =
        ddp_linear_scratch_bytes(l.rows, l.in, l.out, l.compute, DDP_F32, l.rounded);
    const size_t unpacked =
        l.rounded && l.compute == DDP_F32 ? ddp_linear_unpack_bytes(l.in, l.out) : 0;
    l.scratch = bytes + unpacked ? aligned_alloc(64, bytes + unpacked) : NULL;
    l.device_scratch = scratch_of(
        ddp_linear_scratch_bytes(l.rows, l.in, l.out, l.compute, l.dtype, l.rounded) + unpacked);
    if (l.dtype == DDP_BF16) /* the bias that is added is rounded */
        l.device_b_bf16 = cuda_numbers(DDP_BF16, l.b.host, l.out, l.shift);
    l.weight_bf16 = malloc((size_t)(l.out * l.in + 1) * sizeof *l.weight_bf16);
    ck_assert_ptr_nonnull(l.weight_bf16);
    for (int64_t i = 0; i < l.out * l.in; i++)
        l.weight_bf16[i] = ddp_bf16_of(l.weight.host[i]);
    l.device_bf16 = cuda_copy(l.weight_bf16, (size_t)(l.out * l.in) * sizeof *l.weight_bf16,
                              l.shift * sizeof *l.weight_bf16);
    return l;
}

static void layer_free(struct layer *l)
{
    struct pair *all[] = {&l->x,  &l->weight, &l->b,       &l->y,    &l->pre,
                          &l->dy, &l->dx,     &l->dweight, &l->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    free(l->scratch);
    free(l->weight_bf16);
}

static bool is_gelu(const struct layer *l)
{
    return l->activation == DDP_ACTIVATION_GELU || l->activation == DDP_ACTIVATION_GELU_TANH;
}

static void linear_forward(const struct layer *l, bool device)
{
    struct ddp_linear_forward args = {
        .rows = l->rows,
        .in = l->in,
        .out = l->out,
        .activation = l->activation,
        .compute = l->compute,
        .dtype = device ? l->dtype : DDP_F32,
        .x = device ? l->x.device : l->x.host,
        .weight = l->rounded ? NULL
                  : device   ? l->weight.device
                             : l->weight.host,
        .weight_bf16 = !l->rounded ? NULL
                       : device    ? l->device_bf16
                                   : l->weight_bf16,
        .bias = !l->bias ? NULL
                : device ? l->b.device
                         : l->b.host,
        .bias_bf16 = l->rounded && device ? l->device_b_bf16 : NULL,
        .y = device ? l->y.device : l->y.host,
        .pre = device ? l->pre.device : l->pre.host,
        .scratch = device ? l->device_scratch : l->scratch,
    };
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(table->linear_forward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void linear_backward(const struct layer *l, bool device)
{
    struct ddp_linear_backward args = {
        .rows = l->rows,
        .in = l->in,
        .out = l->out,
        .activation = l->activation,
        .compute = l->compute,
        .dtype = device ? l->dtype : DDP_F32,
        .x = device ? l->x.device : l->x.host,
        .y = device ? l->y.device : l->y.host,
        .pre = device ? l->pre.device : l->pre.host,
        .weight = l->rounded ? NULL
                  : device   ? l->weight.device
                             : l->weight.host,
        .weight_bf16 = !l->rounded ? NULL
                       : device    ? l->device_bf16
                                   : l->weight_bf16,
        .dy = device ? l->dy.device : l->dy.host,
        .dx = device ? l->dx.device : l->dx.host,
        .dweight = device ? l->dweight.device : l->dweight.host,
        .dbias = device ? l->dbias.device : l->dbias.host,
        .accumulate_dx = l->add,
        .accumulate_dweight = l->add,
        .accumulate_dbias = l->add,
        .scratch = device ? l->device_scratch : l->scratch,
    };
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(table->linear_backward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void check_layer(const int64_t *shape, enum ddp_activation activation,
                        enum ddp_dtype compute, int flags)
{
    struct layer l = layer_of(shape, activation, compute, flags);
    linear_forward(&l, true);
    float *y = pair_fetch(&l.y);
    linear_forward(&l, true);
    pair_same("linear, again", &l.y, y);
    linear_forward(&l, false);
    /* What GELU takes may be rounded first: its result may be much smaller. cublasLt's GELU is an
     * approximation. */
    const double taken = !is_gelu(&l)          ? 0
                         : l.dtype == DDP_BF16 ? 0x1p-8 * largest_size(l.pre.host, l.pre.count)
                         : compute == DDP_BF16 && !cuda_test_simulated() ? 2e-5
                                                                         : 0;
    pair_near("linear y", &l.y,
              2e-6 + product_tolerance(l.in) + taken + rounded_twice(&l.y, l.bias));
    if (is_gelu(&l))
        pair_near("linear pre", &l.pre, product_tolerance(l.in));
    pair_send(&l.y); /* the same signs on both sides */
    pair_send(&l.pre);

    /* GELU's derivative may round to its neighbour. */
    const double apart = compute == DDP_F32 || !is_gelu(&l) ? 4e-6
                         : compute == DDP_F16               ? 0x1p-10
                                                            : 0x1p-7;
    linear_backward(&l, true);
    float *dweight = l.add ? NULL : pair_fetch(&l.dweight), *dbias = pair_fetch(&l.dbias);
    linear_backward(&l, false);
    pair_near("linear dy", &l.dy, 4e-6);
    pair_near("linear dx", &l.dx, apart + product_tolerance(l.out) + rounded_twice(&l.dx, l.add));
    pair_near("linear dweight", &l.dweight, apart + product_tolerance(l.rows));
    pair_near("linear dbias", &l.dbias, 4e-6 + product_tolerance(l.rows));
    if (!l.add && activation == DDP_ACTIVATION_NONE) { /* dy is as it was */
        linear_backward(&l, true);
        pair_same("linear dweight, again", &l.dweight, dweight);
        pair_same("linear dbias, again", &l.dbias, dbias);
    } else {
        free(dweight);
        free(dbias);
    }
    layer_free(&l);
}

START_TEST(test_linear)
{
    static const enum ddp_dtype computes[] = {DDP_F32, DDP_BF16, DDP_F16};
    const int64_t *shape = layers[_i / 3];
    const enum ddp_dtype compute = computes[_i % 3];
    random_seed((uint64_t)_i);
    for (int activation = 0; activation <= DDP_ACTIVATION_GELU_TANH; activation++)
        for (int flags = 0; flags < 32; flags++)
            if ((flags + activation + _i) % (compute == DDP_F16 ? 9 : 3) == 0 &&
                (compute == DDP_BF16 || !(flags & (compute == DDP_F16 ? 16 : 20))))
                check_layer(shape, (enum ddp_activation)activation, compute, flags);
}
END_TEST

/* Many rows: the bias's gradient in several pieces. */
START_TEST(test_linear_tall)
{
    const int64_t shape[] = {3000, 8, 12}, odd[] = {1027, 4, 3};
    random_seed(5);
    check_layer(shape, DDP_ACTIVATION_RELU, DDP_F32, 3);
    check_layer(odd, DDP_ACTIVATION_GELU_TANH, DDP_BF16, 1);
    check_layer(shape, DDP_ACTIVATION_GELU_TANH, DDP_BF16, 16 + 7);
    check_layer(odd, DDP_ACTIVATION_RELU, DDP_BF16, 16 + 3);
}
END_TEST

/* Training that has diverged must be seen. */
START_TEST(test_linear_nan)
{
    const int64_t shape[] = {3, 8, 8};
    random_seed(6);
    for (int activation = 0; activation <= DDP_ACTIVATION_GELU_TANH; activation++)
        for (int bf16 = 0; bf16 < 3; bf16++) {
            struct layer l = layer_of(shape, (enum ddp_activation)activation,
                                      bf16 ? DDP_BF16 : DDP_F32, bf16 == 2 ? 17 : 1);
            l.x.host[8] = NAN;
            pair_send(&l.x);
            linear_forward(&l, true);
            linear_forward(&l, false);
            for (int64_t j = 0; j < 8; j++)
                ck_assert(isnan(l.y.host[8 + j]));
            pair_near("linear of NaN", &l.y, l.dtype == DDP_BF16 ? 0x1p-7 : 1e-5);
            layer_free(&l);
        }
}
END_TEST

START_TEST(test_linear_refused)
{
    const struct ddp_linear_forward forward = {.rows = 1, .in = 1, .out = 1};
    const struct ddp_linear_backward backward = {.rows = -1};
    const struct ddp_linear_forward mixed = {.dtype = DDP_BF16}; /* products of float32 */
    ck_assert_int_eq(on_cuda->linear_forward(&forward, cuda_stream), DDP_ERR_INVALID);
    ck_assert_int_eq(on_cuda->linear_forward(&mixed, cuda_stream), DDP_ERR_INVALID);
    ck_assert_int_eq(on_cuda->linear_backward(&backward, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

/* The same shape with arrays that lie differently: what was chosen for one may not do for the
 * other. */
START_TEST(test_linear_alignment)
{
    const int64_t n = 16;
    for (int aligned = 1; aligned >= 0; aligned--) {
        struct pair x = pair_of(n * n, 0), weight = pair_of(n * n, 0);
        struct pair bias = pair_of(n, aligned ? 0 : 1), y = pair_out(n * n, 0, false);
        struct ddp_linear_forward args = {.rows = n,
                                          .in = n,
                                          .out = n,
                                          .x = x.device,
                                          .weight = weight.device,
                                          .bias = bias.device,
                                          .y = y.device};
        ck_assert_int_eq(on_cuda->linear_forward(&args, cuda_stream), DDP_OK);
        args.x = x.host;
        args.weight = weight.host;
        args.bias = bias.host;
        args.y = y.host;
        ck_assert_int_eq(ddp_kernels_reference.linear_forward(&args, NULL), DDP_OK);
        pair_near("linear y", &y, 1e-5);
        pair_free(&x);
        pair_free(&weight);
        pair_free(&bias);
        pair_free(&y);
    }
}
END_TEST

/* y, and dx unless that is NULL, with a weight that is handed in as it is, or in blocks. */
static void multiply_both_ways(const int64_t *shape, enum ddp_dtype compute, const float *weight,
                               const struct ddp_linear_blocks *blocks, const struct pair *x,
                               const struct pair *y, const struct pair *dx)
{
    const size_t bytes = compute == DDP_F32 ? ddp_linear_unpack_bytes(shape[1], shape[2])
                                            : ddp_linear_scratch_bytes(shape[0], shape[1], shape[2],
                                                                       compute, x->dtype, false);
    const struct ddp_linear_forward forward = {.rows = shape[0],
                                               .in = shape[1],
                                               .out = shape[2],
                                               .compute = compute,
                                               .dtype = x->dtype,
                                               .x = x->device,
                                               .weight = weight,
                                               .weight_blocks = *blocks,
                                               .y = y->device,
                                               .scratch = scratch_of(bytes)};
    const struct ddp_linear_backward backward = {.rows = shape[0],
                                                 .in = shape[1],
                                                 .out = shape[2],
                                                 .compute = compute,
                                                 .dtype = x->dtype,
                                                 .weight = weight,
                                                 .weight_blocks = *blocks,
                                                 .dy = y->device,
                                                 .dx = dx ? dx->device : NULL,
                                                 .scratch = forward.scratch};
    ck_assert_int_eq(on_cuda->linear_forward(&forward, cuda_stream), DDP_OK);
    ck_assert_int_eq(on_cuda->linear_backward(&backward, cuda_stream), DDP_OK);
}

/* Weights in blocks give the bits that the same ones give that lie one by one. */
START_TEST(test_linear_blocks)
{
    static const enum ddp_dtype types[] = {DDP_NF4, DDP_NF4_BF16, DDP_Q8_0, DDP_Q4_0};
    static const enum ddp_dtype computes[] = {DDP_F32, DDP_BF16, DDP_F16};
    static const int64_t shapes[][3] = {
        {3, 64, 40}, {5, 96, 33}, {2, 36, 19}, {1, 37, 3}, {1, 4099, 1030}}; /* in two panels */
    const enum ddp_dtype type = types[_i / 3], compute = computes[_i % 3];
    const enum ddp_dtype dtype = compute == DDP_BF16 ? DDP_BF16 : DDP_F32;
    random_seed((uint64_t)_i);
    const int count_of_shapes = type == DDP_Q8_0 || type == DDP_Q4_0 ? 2
                                : _i == 0 && cuda_test_simulated()   ? 5
                                                                     : 4;
    for (int i = 0; i < count_of_shapes; i++) {
        const int64_t *shape = shapes[i], count = shape[1] * shape[2];
        const size_t bytes = ddp_values_bytes(type, count);
        float *weight = array_of(count);
        uint8_t *packed = malloc(bytes);
        ck_assert_ptr_nonnull(packed);
        ddp_values_pack(type, weight, count, packed);
        ddp_values_unpack(type, packed, 0, count, weight);
        const struct ddp_linear_blocks blocks = {ddp_block_of(type), cuda_copy(packed, bytes, 0),
                                                 type},
                                       none = {0};
        struct pair x = pair_of_type(dtype, shape[0] * shape[1], 0);
        struct pair y = pair_out_type(dtype, shape[0] * shape[2], 0, false);
        struct pair dx = pair_out_type(dtype, shape[0] * shape[1], 0, false);
        struct pair *down = i < 4 ? &dx : NULL; /* panels are added up in another order */
        multiply_both_ways(shape, compute, cuda_floats(weight, count, 0), &none, &x, &y, down);
        float *y_before = pair_fetch(&y), *dx_before = pair_fetch(&dx);
        multiply_both_ways(shape, compute, NULL, &blocks, &x, &y, down);
        pair_same("y of blocks", &y, y_before);
        pair_same("dx of blocks", &dx, dx_before);
        pair_free(&x);
        pair_free(&y);
        pair_free(&dx);
        free(packed);
        array_free(weight, count);
    }
}
END_TEST

/* Row by row: near the reference, and the bits of each row alone. */
START_TEST(test_linear_rowwise)
{
    random_seed((uint64_t)_i);
    const int flags = (_i % 2) | (_i % 3 ? 0 : 8); /* bias; not aligned */
    struct layer l = layer_of(layers[_i], (enum ddp_activation)(_i % 4), DDP_F32, flags);
    struct ddp_linear_forward args = {.rows = l.rows, .in = l.in, .out = l.out};
    linear_forward(&l, false);
    args.activation = l.activation;
    args.x = l.x.device;
    args.weight = l.weight.device;
    args.bias = l.bias ? l.b.device : NULL;
    args.y = l.y.device;
    args.pre = l.pre.device;
    args.rowwise = true;
    ck_assert_int_eq(on_cuda->linear_forward(&args, cuda_stream), DDP_OK);
    pair_near("y", &l.y, 2e-6 * (double)(l.in + 1));
    float *together = pair_fetch(&l.y);
    args.rows = 1;
    for (int64_t i = 0; i < l.rows; i++) {
        args.x = (float *)l.x.device + i * l.in;
        args.y = (float *)l.y.device + i * l.out;
        args.pre = (float *)l.pre.device + i * l.out;
        ck_assert_int_eq(on_cuda->linear_forward(&args, cuda_stream), DDP_OK);
    }
    pair_same("y of single rows", &l.y, together);
    layer_free(&l);
}
END_TEST

/* GELU and its derivative in double, by formulas that lose nothing below 0. */
static void gelu_of(enum ddp_activation activation, double z, double *y, double *slope)
{
    const double share = activation == DDP_ACTIVATION_GELU
                             ? erfc(-z * M_SQRT1_2) / 2
                             : 1 / (1 + exp(-2 * 0.7978845608 * (z + 0.044715 * z * z * z)));
    const double other = activation == DDP_ACTIVATION_GELU
                             ? erfc(z * M_SQRT1_2) / 2
                             : 1 / (1 + exp(2 * 0.7978845608 * (z + 0.044715 * z * z * z)));
    *y = z * share;
    *slope = share + (activation == DDP_ACTIVATION_GELU
                          ? z * exp(-z * z / 2) * 0.3989422804
                          : 2 * z * 0.7978845608 * (1 + 0.134145 * z * z) * share * other);
}

/* Half a unit of the last place that bf16 has there is its rounding; a little more is allowed. */
static void check_rounded(const char *what, enum ddp_activation activation, double z, float got,
                          double exact)
{
    int exponent;
    frexp(exact, &exponent);
    const double unit = ldexp(1, exponent - 8) + 1e-35; /* may be flushed to 0 */
    ck_assert_msg(fabs((double)got - exact) <= 0.55 * unit, "%s %d of %g: %.9g, not %.9g", what,
                  (int)activation, z, (double)got, exact);
}

/* Of all numbers up to 64 that bf16 has, a row each: the pass over memory has approximations, which
 * must not be seen behind its rounding. */
START_TEST(test_linear_gelu)
{
    enum { SIDE = 0x4280, COUNT = 2 * SIDE };
    const enum ddp_activation activation = _i ? DDP_ACTIVATION_GELU_TANH : DDP_ACTIVATION_GELU;
    const int64_t shape[] = {COUNT, 1, 1};
    struct layer l = layer_of(shape, activation, DDP_BF16, 16 + 8); /* not aligned */
    for (int i = 0; i < COUNT; i++) {
        const uint32_t bits = (uint32_t)(i < SIDE ? i : 0x8000 + i - SIDE) << 16;
        memcpy(&l.x.host[i], &bits, sizeof bits);
        l.dy.host[i] = 1;
    }
    l.weight.host[0] = 1;
    pair_send(&l.x);
    pair_send(&l.dy);
    pair_send(&l.weight);
    linear_forward(&l, true);
    linear_backward(&l, true);
    float *y = pair_fetch(&l.y), *dz = pair_fetch(&l.dy);
    for (int i = 0; i < COUNT; i++) {
        double exact, slope;
        gelu_of(activation, (double)l.x.host[i], &exact, &slope);
        check_rounded("GELU", activation, (double)l.x.host[i], y[i], exact);
        check_rounded("derivative of GELU", activation, (double)l.x.host[i], dz[i], slope);
    }
    free(y);
    free(dz);
    layer_free(&l);
}
END_TEST

/* More columns than there is memory to sum them in. */
START_TEST(test_linear_wide)
{
    const int64_t columns = 9000000;
    float *v = cuda_memory((size_t)columns * sizeof *v, 0);
    const struct ddp_linear_backward args = {.rows = 1, .out = columns, .dy = v, .dbias = v};
    ck_assert_int_eq(on_cuda->linear_backward(&args, cuda_stream), DDP_ERR_UNSUPPORTED);
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_OK);
}
END_TEST

void cuda_layer_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "linear");
    tcase_add_loop_test(tc, test_linear, 0, 3 * (int)(sizeof layers / sizeof *layers));
    tcase_add_test(tc, test_linear_tall);
    tcase_add_loop_test(tc, test_linear_blocks, 0, 12);
    tcase_add_test(tc, test_linear_nan);
    tcase_add_test(tc, test_linear_refused);
    tcase_add_test(tc, test_linear_alignment);
    tcase_add_loop_test(tc, test_linear_rowwise, 0, (int)(sizeof layers / sizeof *layers));
    tcase_add_loop_test(tc, test_linear_gelu, 0, 2);
    tcase_add_test(tc, test_linear_wide);
}
