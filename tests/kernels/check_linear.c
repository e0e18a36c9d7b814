/* SPDX-License-Identifier: MIT
 *
 * The linear layer: against the reference, gradients by differences, bits over thread counts, bad
 * arguments. */
#include "config.h"

#include "kernels/bf16.h"
#include "kernels/linear.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

struct layer {
    int64_t rows, in, out;
    enum ddp_activation activation;
    enum ddp_dtype compute;
    bool has_bias;
    bool accumulate;   /* every gradient is added to what is there */
    bool give_rounded; /* the weights are handed in as bf16 too */
    float *x, *weight, *bias, *y, *pre, *dy, *dx, *dweight, *dbias;
    uint16_t *weight_bf16;
    void *scratch;
};

static void add_memory(struct layer *layer)
{
    const int64_t weights = layer->out * layer->in;
    layer->weight_bf16 = malloc((size_t)(weights + 1) * sizeof(uint16_t));
    for (int64_t i = 0; i < weights; i++)
        layer->weight_bf16[i] = ddp_bf16_of(layer->weight[i]);
    const size_t bytes = ddp_linear_scratch_bytes(layer->rows, layer->in, layer->out,
                                                  layer->compute, DDP_F32, layer->give_rounded);
    layer->scratch = bytes ? aligned_alloc(64, bytes) : NULL;
}

/* flags: bias, accumulate, weights handed in as bf16 */
static struct layer layer_of(const int64_t *shape, enum ddp_activation activation,
                             enum ddp_dtype compute, int flags)
{
    const int64_t rows = shape[0], in = shape[1], out = shape[2];
    struct layer layer = {
        .rows = rows,
        .in = in,
        .out = out,
        .activation = activation,
        .compute = compute,
        .has_bias = flags & 1,
        .accumulate = flags & 2,
        .give_rounded = flags & 4,
        .x = array_of(rows * in),
        .weight = array_of(out * in),
        .bias = array_of(out),
        .y = array_of(rows * out),
        .pre = array_of(rows * out),
        .dy = array_of(rows * out),
        .dx = array_of(rows * in),
        .dweight = array_of(out * in),
        .dbias = array_of(out),
    };
    add_memory(&layer);
    return layer;
}

static void layer_free(struct layer *layer)
{
    array_free(layer->x, layer->rows * layer->in);
    array_free(layer->weight, layer->out * layer->in);
    array_free(layer->bias, layer->out);
    array_free(layer->y, layer->rows * layer->out);
    array_free(layer->pre, layer->rows * layer->out);
    array_free(layer->dy, layer->rows * layer->out);
    array_free(layer->dx, layer->rows * layer->in);
    array_free(layer->dweight, layer->out * layer->in);
    array_free(layer->dbias, layer->out);
    free(layer->weight_bf16);
    free(layer->scratch);
}

/* The same inputs, and outputs of its own: what is there is the same where it counts. */
static struct layer layer_copy(const struct layer *from)
{
    struct layer layer = *from;
    const bool same = from->accumulate;
    layer.x = array_copy(from->x, from->rows * from->in);
    layer.weight = array_copy(from->weight, from->out * from->in);
    layer.bias = array_copy(from->bias, from->out);
    layer.y = array_of(from->rows * from->out);
    layer.pre = array_of(from->rows * from->out);
    layer.dy = array_copy(from->dy, from->rows * from->out);
    layer.dx = same ? array_copy(from->dx, from->rows * from->in) : array_of(from->rows * from->in);
    layer.dweight =
        same ? array_copy(from->dweight, from->out * from->in) : array_of(from->out * from->in);
    layer.dbias = same ? array_copy(from->dbias, from->out) : array_of(from->out);
    add_memory(&layer);
    return layer;
}

static struct ddp_linear_forward forward_of(const struct layer *layer)
{
    return (struct ddp_linear_forward){
        .rows = layer->rows,
        .in = layer->in,
        .out = layer->out,
        .activation = layer->activation,
        .compute = layer->compute,
        .x = layer->x,
        .weight = layer->give_rounded ? NULL : layer->weight,
        .weight_bf16 = layer->give_rounded ? layer->weight_bf16 : NULL,
        .bias = layer->has_bias ? layer->bias : NULL,
        .y = layer->y,
        .pre = layer->pre,
        .scratch = layer->scratch,
    };
}

static struct ddp_linear_backward backward_of(const struct layer *layer)
{
    return (struct ddp_linear_backward){
        .rows = layer->rows,
        .in = layer->in,
        .out = layer->out,
        .activation = layer->activation,
        .compute = layer->compute,
        .x = layer->x,
        .y = layer->activation == DDP_ACTIVATION_RELU ? layer->y : NULL,
        .pre = layer->activation > DDP_ACTIVATION_RELU ? layer->pre : NULL,
        .weight = layer->give_rounded ? NULL : layer->weight,
        .weight_bf16 = layer->give_rounded ? layer->weight_bf16 : NULL,
        .dy = layer->dy,
        .dx = layer->dx,
        .dweight = layer->dweight,
        .dbias = layer->has_bias ? layer->dbias : NULL,
        .accumulate_dx = layer->accumulate,
        .accumulate_dweight = layer->accumulate,
        .accumulate_dbias = layer->accumulate,
        .scratch = layer->scratch,
    };
}

/* Forward, then backward from the outputs of another run: a sign that rounding decides would
 * differ else. */
static void run_layer(struct layer *layer, const struct layer *other, ddp_pool *pool,
                      bool reference)
{
    struct ddp_linear_forward forward = forward_of(layer);
    struct ddp_linear_backward backward = backward_of(layer);
    ck_assert_int_eq(
        (reference ? ddp_linear_forward_reference : ddp_linear_forward)(&forward, pool), DDP_OK);
    if (other) {
        backward.y = backward.y ? other->y : NULL;
        backward.pre = backward.pre ? other->pre : NULL;
    }
    ck_assert_int_eq(
        (reference ? ddp_linear_backward_reference : ddp_linear_backward)(&backward, pool), DDP_OK);
}

static bool layers_same(const struct layer *a, const struct layer *b)
{
    return same_bits(a->y, b->y, a->rows * a->out) && same_bits(a->dy, b->dy, a->rows * a->out) &&
           (a->activation <= DDP_ACTIVATION_RELU || same_bits(a->pre, b->pre, a->rows * a->out)) &&
           same_bits(a->dx, b->dx, a->rows * a->in) &&
           same_bits(a->dweight, b->dweight, a->out * a->in) &&
           (!a->has_bias || same_bits(a->dbias, b->dbias, a->out));
}

static const int64_t shapes[][3] = {
    {0, 4, 3},   {2, 0, 3},    {2, 3, 0},     {1, 1, 1},      {3, 5, 127},    {2, 7, 128},
    {4, 3, 129}, {17, 31, 33}, {32, 784, 10}, {32, 100, 512}, {256, 65, 257}, {255, 300, 511},
};

static void check_against(const struct layer *first, const struct layer *expected)
{
    const int64_t outputs = expected->rows * expected->out;
    const bool gelu = expected->activation > DDP_ACTIVATION_RELU;
    /* a rounding of dz that went the other way is 2^-9 of it in bf16, 2^-12 in float16 */
    const double flips = !gelu || expected->compute == DDP_F32 ? 0
                         : expected->compute == DDP_BF16       ? 0x1p-8
                                                               : 0x1p-10;
    ck_assert(largest_difference(first->y, expected->y, outputs) <=
              product_tolerance(expected->in) + (gelu ? 2e-7 : 0));
    if (gelu) {
        ck_assert(largest_difference(first->pre, expected->pre, outputs) <=
                  product_tolerance(expected->in));
        ck_assert(largest_difference(first->dy, expected->dy, outputs) <= 3e-7);
    } else
        ck_assert(same_bits(first->dy, expected->dy, outputs));
    ck_assert(largest_difference(first->dx, expected->dx, expected->rows * expected->in) <=
              product_tolerance(expected->out) + (gelu ? 3e-7 : 0) * (double)expected->out + flips);
    ck_assert(largest_difference(first->dweight, expected->dweight, expected->out * expected->in) <=
              product_tolerance(expected->rows) + (gelu ? 3e-7 : 0) * (double)expected->rows +
                  flips);
    if (!first->has_bias)
        return;
    if (gelu)
        ck_assert(largest_difference(first->dbias, expected->dbias, expected->out) <=
                  3e-7 * (double)(expected->rows + 2));
    else
        ck_assert(same_bits(first->dbias, expected->dbias, expected->out));
}

static void check_layer(const int64_t *shape, enum ddp_activation activation,
                        enum ddp_dtype compute, int flags)
{
    struct layer expected = layer_of(shape, activation, compute, flags);
    struct layer first = layer_copy(&expected), before = layer_copy(&expected);
    run_layer(&expected, NULL, NULL, true);
    run_layer(&first, &expected, pools[0], false);
    check_against(&first, &expected);
    for (int pool = 1; pool < POOLS; pool++) {
        struct layer other = layer_copy(&before);
        run_layer(&other, &expected, pools[pool], false);
        ck_assert_msg(layers_same(&first, &other), "other bits on %d threads", pool_threads[pool]);
        layer_free(&other);
    }
    layer_free(&first);
    layer_free(&before);
    layer_free(&expected);
}

/* The reference takes its time: of large shapes only some combinations. */
static bool is_large(int shape)
{
    return shapes[shape][0] * shapes[shape][1] * shapes[shape][2] > 1000000;
}

START_TEST(test_shapes)
{
    random_seed((uint64_t)_i);
    for (int activation = 0; activation <= DDP_ACTIVATION_GELU_TANH; activation++)
        for (int flags = 0; flags < 8; flags++)
            if (!is_large(_i) || flags % 4 == activation)
                check_layer(shapes[_i], (enum ddp_activation)activation, DDP_F32, flags);
}
END_TEST

START_TEST(test_bf16)
{
    random_seed((uint64_t)_i);
    for (int activation = 0; activation <= DDP_ACTIVATION_GELU_TANH; activation++)
        for (int flags = activation & 1; flags < 8; flags += 2)
            if (!is_large(_i) || flags / 2 == activation)
                check_layer(shapes[_i], (enum ddp_activation)activation, DDP_BF16, flags);
}
END_TEST

START_TEST(test_f16)
{
    random_seed((uint64_t)_i);
    for (int activation = 0; activation <= DDP_ACTIVATION_GELU_TANH; activation++)
        for (int flags = activation & 1; flags < 8; flags += 2)
            if (!is_large(_i) || flags / 2 == activation)
                check_layer(shapes[_i], (enum ddp_activation)activation, DDP_F16, flags);
}
END_TEST

/* Added gradients are those that would be written, plus what was there. */
START_TEST(test_accumulate)
{
    static const int64_t shape[3] = {9, 20, 33};
    random_seed(21);
    for (int compute = 0; compute < 2; compute++) {
        struct layer written =
            layer_of(shape, DDP_ACTIVATION_GELU, compute ? DDP_BF16 : DDP_F32, 1);
        written.accumulate = true; /* for the copies */
        struct layer before = layer_copy(&written), added = layer_copy(&written);
        written.accumulate = false;
        run_layer(&written, NULL, NULL, false);
        run_layer(&added, NULL, NULL, false);
        for (int64_t i = 0; i < 9 * 20; i++)
            ck_assert_float_eq_tol(added.dx[i], before.dx[i] + written.dx[i], 3e-6f);
        for (int64_t i = 0; i < 33 * 20; i++)
            ck_assert_float_eq_tol(added.dweight[i], before.dweight[i] + written.dweight[i], 3e-6f);
        for (int64_t i = 0; i < 33; i++)
            ck_assert_float_eq(added.dbias[i], before.dbias[i] + written.dbias[i]);
        layer_free(&written);
        layer_free(&before);
        layer_free(&added);
    }
}
END_TEST

/* Operands are rounded: sums of what bf16 holds are exact, and what it does not hold is lost. */
START_TEST(test_bf16_rounds)
{
    _Alignas(64) char scratch[3 * 64];
    float x[2] = {1.0f, 1.0f + 0x1p-9f}, weight[2] = {3, 0x1p-7f}, y;
    const struct ddp_linear_forward args = {.rows = 1,
                                            .in = 2,
                                            .out = 1,
                                            .compute = DDP_BF16,
                                            .x = x,
                                            .weight = weight,
                                            .y = &y,
                                            .scratch = scratch};
    ck_assert_uint_le(ddp_linear_scratch_bytes(1, 2, 1, DDP_BF16, DDP_F32, false), sizeof scratch);
    ck_assert_int_eq(ddp_linear_forward(&args, NULL), DDP_OK);
    ck_assert_float_eq(y, 3 + 0x1p-7f);
    ck_assert_int_eq(ddp_linear_forward_reference(&args, NULL), DDP_OK);
    ck_assert_float_eq(y, 3 + 0x1p-7f);
}
END_TEST

/* What float16 does not hold is lost, weights of bf16 too; what is too large becomes infinite. */
START_TEST(test_f16_rounds)
{
    _Alignas(64) char scratch[4 * 64];
    float x[2] = {1 + 0x1p-12f, 65519}, y, dx[2], dweight[2], dy = 65520;
    const uint16_t weight[2] = {ddp_bf16_of(3), ddp_bf16_of(0x1p-25f)};
    const struct ddp_linear_forward args = {.rows = 1,
                                            .in = 2,
                                            .out = 1,
                                            .compute = DDP_F16,
                                            .x = x,
                                            .weight_bf16 = weight,
                                            .y = &y,
                                            .scratch = scratch};
    const struct ddp_linear_backward backward = {.rows = 1,
                                                 .in = 2,
                                                 .out = 1,
                                                 .compute = DDP_F16,
                                                 .x = x,
                                                 .weight_bf16 = weight,
                                                 .dy = &dy,
                                                 .dx = dx,
                                                 .dweight = dweight,
                                                 .scratch = scratch};
    ck_assert_uint_le(ddp_linear_scratch_bytes(1, 2, 1, DDP_F16, DDP_F32, true), sizeof scratch);
    ck_assert_int_eq(ddp_linear_forward(&args, NULL), DDP_OK);
    ck_assert_float_eq(y, 3);
    ck_assert_int_eq(ddp_linear_backward(&backward, NULL), DDP_OK);
    ck_assert(isinf(dx[0]) && isnan(dx[1]) && isinf(dweight[0]) && isinf(dweight[1]));
    dy = 65519;
    ck_assert_int_eq(ddp_linear_backward(&backward, NULL), DDP_OK);
    ck_assert(dx[0] == 3 * 65504.0f && dx[1] == 0);
    ck_assert(dweight[0] == 65504 && dweight[1] == 65504.0f * 65504.0f);
}
END_TEST

struct probe {
    struct ddp_linear_forward forward;
    const float *dy;
};

static double loss_of(void *arg)
{
    struct probe *probe = arg;
    ck_assert_int_eq(ddp_linear_forward(&probe->forward, NULL), DDP_OK);
    double loss = 0;
    for (int64_t i = 0; i < probe->forward.rows * probe->forward.out; i++)
        loss += (double)probe->dy[i] * (double)((const float *)probe->forward.y)[i];
    return loss;
}

/* With ReLU no output may lie so near to 0 that a difference steps over the kink. */
static void keep_off_kink(struct layer *layer)
{
    struct ddp_linear_forward forward = forward_of(layer);
    forward.activation = DDP_ACTIVATION_NONE;
    bool near = true;
    for (int round = 0; near && round < 1000; round++) {
        ck_assert_int_eq(ddp_linear_forward(&forward, NULL), DDP_OK);
        near = false;
        for (int64_t i = 0; i < layer->rows * layer->out; i++)
            near |= fabsf(layer->y[i]) < 0.02f;
        for (int64_t i = 0; near && i < layer->rows * layer->in; i++)
            layer->x[i] = random_number();
    }
    ck_assert(!near);
}

START_TEST(test_gradient)
{
    const enum ddp_activation activation = (enum ddp_activation)(_i / 2);
    random_seed((uint64_t)_i);
    struct layer layer = layer_of((const int64_t[]){3, 5, 4}, activation, DDP_F32, _i & 1);
    if (activation == DDP_ACTIVATION_RELU)
        keep_off_kink(&layer);
    float *dy = array_copy(layer.dy, 12);
    run_layer(&layer, NULL, NULL, false);
    struct probe probe = {.forward = forward_of(&layer), .dy = dy};
    check_gradient("x", layer.x, layer.dx, 15, loss_of, &probe, 2e-4);
    check_gradient("weight", layer.weight, layer.dweight, 20, loss_of, &probe, 2e-4);
    if (layer.has_bias)
        check_gradient("bias", layer.bias, layer.dbias, 4, loss_of, &probe, 2e-4);
    array_free(dy, 12);
    layer_free(&layer);
}
END_TEST

/* NaN goes through ReLU; outputs that are not wanted may be NULL. */
START_TEST(test_nan_and_null)
{
    float x[2] = {NAN, -1}, weight[1] = {1}, y[2], dy[2] = {3, 4};
    struct ddp_linear_forward forward = {
        .rows = 2, .in = 1, .out = 1, .activation = DDP_ACTIVATION_RELU, .x = x, .weight = weight};
    forward.y = y;
    ck_assert_int_eq(ddp_linear_forward(&forward, NULL), DDP_OK);
    ck_assert(isnan(y[0]) && y[1] == 0);
    y[0] = 1;
    struct ddp_linear_backward backward = {
        .rows = 2, .in = 1, .out = 1, .activation = DDP_ACTIVATION_RELU, .y = y, .dy = dy};
    ck_assert_int_eq(ddp_linear_backward(&backward, NULL), DDP_OK);
    ck_assert(dy[0] == 3 && dy[1] == 0);
}
END_TEST

/* Weights of bf16 have the bits of the same weights of float32, also where they take several
 * panels. */
START_TEST(test_unpacked)
{
    static const int64_t sizes[][3] = {{0, 3, 2},       {3, 0, 2},       {1, 1, 1},
                                       {300, 130, 770}, {5, 4099, 1030}, {3, 2048, 4096}};
    random_seed((uint64_t)_i);
    struct layer plain = layer_of(sizes[_i], DDP_ACTIVATION_NONE, DDP_F32, 1);
    for (int64_t i = 0; i < plain.out * plain.in; i++)
        plain.weight[i] = ddp_bf16_to_f32(plain.weight_bf16[i]);
    for (int way = 0; way < 4; way++) { /* adding; gradients through it alone */
        struct layer expected = layer_copy(&plain);
        expected.accumulate = way & 1;
        memset(expected.dx, 0, (size_t)(plain.rows * plain.in) * sizeof(float));
        struct layer packed = layer_copy(&expected);
        free(packed.scratch);
        free(packed.weight_bf16);
        packed.give_rounded = true;
        add_memory(&packed);
        for (int i = 0; i < 2; i++) {
            struct layer *layer = i ? &packed : &expected;
            struct ddp_linear_forward forward = forward_of(layer);
            struct ddp_linear_backward backward = backward_of(layer);
            forward.rowwise = way == 3;
            if (way & 2)
                backward.dweight = backward.dbias = NULL;
            ck_assert_int_eq(ddp_linear_forward(&forward, pools[1]), DDP_OK);
            ck_assert_int_eq(ddp_linear_backward(&backward, pools[1]), DDP_OK);
        }
        ck_assert(same_bits(expected.y, packed.y, plain.rows * plain.out));
        ck_assert(same_bits(expected.dx, packed.dx, plain.rows * plain.in));
        layer_free(&expected);
        layer_free(&packed);
    }
    layer_free(&plain);
}
END_TEST

/* Row by row: a row's bits are its own, in any company. */
START_TEST(test_rowwise)
{
    random_seed((uint64_t)_i);
    struct layer layer = layer_of(shapes[_i / 2], (enum ddp_activation)(_i / 2 % 4), DDP_F32,
                                  _i / 2 % 2 + _i % 2 * 4);
    struct layer first = layer_copy(&layer), other = layer_copy(&layer);
    struct ddp_linear_forward args = forward_of(&layer);
    ck_assert_int_eq(ddp_linear_forward_reference(&args, NULL), DDP_OK);
    args = forward_of(&first);
    args.rowwise = true;
    ck_assert_int_eq(ddp_linear_forward(&args, pools[0]), DDP_OK);
    const int64_t count = layer.rows * layer.out;
    const double worst = largest_difference(first.y, layer.y, count);
    ck_assert_msg(worst <= 1e-6 * (double)(layer.in + 10), "off by %g", worst);
    args = forward_of(&other);
    args.rowwise = true;
    args.rows = 1;
    for (int64_t i = 0; i < layer.rows; i++) {
        args.x = other.x + i * layer.in;
        args.y = other.y + i * layer.out;
        args.pre = other.pre + i * layer.out;
        ck_assert_int_eq(ddp_linear_forward(&args, pools[POOLS - 1]), DDP_OK);
    }
    ck_assert_msg(same_bits(first.y, other.y, count), "other bits alone, or on other threads");
    layer_free(&layer);
    layer_free(&first);
    layer_free(&other);
}
END_TEST

START_TEST(test_arguments)
{
    float v[4] = {1, 2, 3, 4};
    const struct ddp_linear_forward good = {.rows = 2,
                                            .in = 2,
                                            .out = 2,
                                            .activation = DDP_ACTIVATION_RELU,
                                            .x = v,
                                            .weight = v,
                                            .y = v};
    float scratch[64];
    struct ddp_linear_forward bad[] = {good, good, good, good, good, good, good, good, good, good};
    bad[0].rows = -1;
    bad[1].in = -1;
    bad[2].out = -1;
    bad[3].activation = (enum ddp_activation)7;
    bad[4].x = NULL;
    bad[5].weight = NULL;
    bad[6].y = NULL;
    bad[7].compute = DDP_I32;
    bad[8].compute = DDP_BF16; /* without scratch memory */
    bad[9].compute = DDP_BF16;
    bad[9].scratch = scratch;
    bad[9].rowwise = true;
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(ddp_linear_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_linear_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
        if (i == 9)
            break;
        struct ddp_linear_backward backward = {
            .rows = bad[i].rows,
            .in = bad[i].in,
            .out = bad[i].out,
            .activation = bad[i].activation,
            .compute = bad[i].compute,
            .x = bad[i].x,
            .y = v,
            .weight = bad[i].weight,
            .dy = bad[i].y,
            .dx = v,
            .dweight = v,
        };
        ck_assert_int_eq(ddp_linear_backward(&backward, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_linear_backward_reference(&backward, NULL), DDP_ERR_INVALID);
    }
    struct ddp_linear_backward no_pre = {.rows = 1, .in = 1, .out = 1, .y = v, .dy = v};
    no_pre.activation = DDP_ACTIVATION_GELU;
    ck_assert_int_eq(ddp_linear_backward(&no_pre, NULL), DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("linear");
    TCase *tc = kernel_case(suite, "linear");
    tcase_add_loop_test(tc, test_shapes, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_loop_test(tc, test_bf16, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tc, test_accumulate);
    tcase_add_test(tc, test_bf16_rounds);
    tcase_add_loop_test(tc, test_f16, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tc, test_f16_rounds);
    tcase_add_loop_test(tc, test_gradient, 0, 8);
    tcase_add_test(tc, test_nan_and_null);
    tcase_add_loop_test(tc, test_rowwise, 0, 2 * (int)(sizeof shapes / sizeof shapes[0]));
    tcase_add_loop_test(tc, test_unpacked, 0, 6);
    tcase_add_test(tc, test_arguments);
    return suite;
}
