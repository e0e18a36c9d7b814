/* SPDX-License-Identifier: MIT
 *
 * Convolution: against the reference on shapes that meet every edge of the tiling, gradients by
 * differences, accumulation, bits over thread counts, bf16, PyTorch's numbers, bad arguments. */
#include "config.h"

#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/micro.h"
#include "tests/kernels/kernels_golden.h"

#include "kernels/bf16.h"
#include "tests/kernels/reference/reference.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct layer {
    struct ddp_conv2d_shape shape;
    enum ddp_activation activation;
    enum ddp_dtype compute;
    bool accumulate;
    int64_t x_count, y_count, weight_count;
    float *x, *weight, *bias, *y, *dy, *dx, *dweight, *dbias;
};

static struct layer layer_of(struct ddp_conv2d_shape s)
{
    struct layer layer = {.shape = s};
    layer.x_count = s.batch * s.height * s.width * s.in;
    layer.y_count = s.batch * s.out *
                    ddp_window_count(s.height, s.kernel_height, s.stride, s.padding, s.dilation) *
                    ddp_window_count(s.width, s.kernel_width, s.stride, s.padding, s.dilation);
    layer.weight_count = s.out * s.in * s.kernel_height * s.kernel_width;
    layer.x = array_of(layer.x_count);
    layer.weight = array_of(layer.weight_count);
    layer.bias = array_of(s.out);
    layer.y = array_of(layer.y_count);
    layer.dy = array_of(layer.y_count);
    layer.dx = array_of(layer.x_count);
    layer.dweight = array_of(layer.weight_count);
    layer.dbias = array_of(s.out);
    return layer;
}

static struct layer layer_copy(const struct layer *from)
{
    struct layer layer = *from;
    layer.x = array_copy(from->x, from->x_count);
    layer.weight = array_copy(from->weight, from->weight_count);
    layer.bias = array_copy(from->bias, from->shape.out);
    layer.y = array_copy(from->y, from->y_count);
    layer.dy = array_copy(from->dy, from->y_count);
    layer.dx = array_copy(from->dx, from->x_count);
    layer.dweight = array_copy(from->dweight, from->weight_count);
    layer.dbias = array_copy(from->dbias, from->shape.out);
    return layer;
}

static void layer_free(struct layer *layer)
{
    array_free(layer->x, layer->x_count);
    array_free(layer->weight, layer->weight_count);
    array_free(layer->bias, layer->shape.out);
    array_free(layer->y, layer->y_count);
    array_free(layer->dy, layer->y_count);
    array_free(layer->dx, layer->x_count);
    array_free(layer->dweight, layer->weight_count);
    array_free(layer->dbias, layer->shape.out);
}

/* With a guard behind it. */
static char *scratch_of(size_t bytes)
{
    char *scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    ck_assert_ptr_nonnull(scratch);
    memset(scratch, 0xff, (bytes + 127) / 64 * 64); /* NaN: nothing may rely on zeros */
    scratch[bytes] = 77;
    return scratch;
}

static void scratch_free(char *scratch, size_t bytes)
{
    ck_assert_msg(scratch[bytes] == 77, "written behind the end of the scratch memory");
    free(scratch);
}

static void run_forward(struct layer *layer, ddp_pool *pool, bool reference)
{
    const size_t bytes = ddp_conv2d_forward_scratch_bytes(&layer->shape);
    char *scratch = scratch_of(bytes);
    struct ddp_conv2d_forward args = {
        .shape = layer->shape,
        .activation = layer->activation,
        .compute = layer->compute,
        .x = layer->x,
        .weight = layer->weight,
        .bias = layer->bias,
        .y = layer->y,
        .scratch = scratch,
    };
    ck_assert_int_eq((reference ? ddp_conv2d_forward_reference : ddp_conv2d_forward)(&args, pool),
                     DDP_OK);
    scratch_free(scratch, bytes);
}

static void run_backward(struct layer *layer, ddp_pool *pool, bool reference)
{
    const size_t bytes = ddp_conv2d_backward_scratch_bytes(&layer->shape);
    char *scratch = scratch_of(bytes);
    struct ddp_conv2d_backward args = {
        .shape = layer->shape,
        .activation = layer->activation,
        .compute = layer->compute,
        .x = layer->x,
        .y = layer->activation ? layer->y : NULL,
        .weight = layer->weight,
        .dy = layer->dy,
        .dx = layer->dx,
        .dweight = layer->dweight,
        .dbias = layer->dbias,
        .accumulate_dx = layer->accumulate,
        .accumulate_dweight = layer->accumulate,
        .scratch = scratch,
    };
    ck_assert_int_eq((reference ? ddp_conv2d_backward_reference : ddp_conv2d_backward)(&args, pool),
                     DDP_OK);
    scratch_free(scratch, bytes);
}

static void fill(float *values, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
}

static bool layers_same(const struct layer *a, const struct layer *b)
{
    return same_bits(a->y, b->y, a->y_count) && same_bits(a->dx, b->dx, a->x_count) &&
           same_bits(a->dweight, b->dweight, a->weight_count) &&
           same_bits(a->dbias, b->dbias, a->shape.out);
}

/* Against the reference, then on every number of threads. */
static void check_layer(struct ddp_conv2d_shape shape, enum ddp_activation activation,
                        enum ddp_dtype compute, bool accumulate)
{
    struct layer expected = layer_of(shape);
    expected.activation = activation;
    expected.compute = compute;
    expected.accumulate = accumulate;
    struct layer first = layer_copy(&expected);
    run_forward(&expected, NULL, true);
    fill(first.y, first.y_count, NAN);
    run_forward(&first, pools[0], false);
    const int64_t taps = shape.kernel_height * shape.kernel_width;
    const int64_t pixels = expected.y_count / shape.out;
    ck_assert_msg(largest_difference(first.y, expected.y, first.y_count) <=
                      product_tolerance(taps * shape.in),
                  "y differs by %g", largest_difference(first.y, expected.y, first.y_count));
    memcpy(first.y, expected.y, (size_t)first.y_count * sizeof *first.y); /* the same signs */
    struct layer fresh = layer_copy(&first);
    if (!accumulate) {
        fill(first.dx, first.x_count, NAN);
        fill(first.dweight, first.weight_count, NAN);
        fill(first.dbias, shape.out, NAN);
    }
    run_backward(&expected, NULL, true);
    run_backward(&first, pools[0], false);
    ck_assert_msg(largest_difference(first.dx, expected.dx, first.x_count) <=
                      product_tolerance(taps * shape.out),
                  "dx differs by %g", largest_difference(first.dx, expected.dx, first.x_count));
    ck_assert_msg(largest_difference(first.dweight, expected.dweight, first.weight_count) <=
                      product_tolerance(pixels),
                  "dweight differs by %g",
                  largest_difference(first.dweight, expected.dweight, first.weight_count));
    ck_assert(largest_difference(first.dbias, expected.dbias, shape.out) <=
              product_tolerance(pixels));
    for (int pool = 1; pool < POOLS; pool++) {
        struct layer other = layer_copy(&fresh);
        run_forward(&other, pools[pool], false);
        run_forward(&first, pools[0], false);
        struct layer again = layer_copy(&other);
        memcpy(again.y, fresh.y, (size_t)fresh.y_count * sizeof *fresh.y);
        run_backward(&again, pools[pool], false);
        memcpy(again.y, other.y, (size_t)fresh.y_count * sizeof *fresh.y);
        ck_assert_msg(layers_same(&first, &again), "other bits on %d threads", pool_threads[pool]);
        layer_free(&again);
        layer_free(&other);
    }
    layer_free(&fresh);
    layer_free(&first);
    layer_free(&expected);
}

/* B H W C O KH KW stride padding dilation */
static const struct ddp_conv2d_shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 1},     {2, 3, 5, 2, 3, 3, 3, 1, 1, 1},
    {3, 8, 8, 16, 16, 3, 3, 1, 1, 1},   {33, 4, 4, 3, 17, 3, 3, 1, 1, 1},
    {2, 9, 7, 15, 31, 3, 3, 2, 1, 1},   {2, 8, 8, 32, 33, 3, 3, 2, 1, 1},
    {2, 8, 8, 16, 32, 1, 1, 2, 0, 1},   {2, 12, 12, 6, 16, 5, 5, 1, 0, 1},
    {2, 14, 15, 1, 6, 5, 5, 1, 2, 1},   {1, 13, 11, 4, 5, 3, 2, 3, 2, 2},
    {1, 13, 12, 4, 5, 3, 3, 2, 3, 4},   {1, 17, 17, 3, 8, 3, 3, 1, 2, 2},
    {1, 9, 9, 2, 2, 2, 4, 4, 1, 1},     {1, 7, 7, 3, 48, 7, 7, 1, 3, 1},
    {1, 5, 5, 2, 3, 3, 3, 1, 4, 1},     {1, 3, 70, 520, 4, 3, 3, 1, 1, 1},
    {1, 2, 90, 700, 35, 1, 3, 2, 1, 1}, {1, 70, 90, 24, 5, 3, 3, 1, 1, 1},
    {1, 40, 200, 20, 3, 3, 3, 2, 1, 1}, {1, 6, 2500, 1, 2, 1, 1, 1, 0, 1},
    {1, 6, 5000, 12, 2, 1, 7, 5, 3, 1}, {40, 3, 3, 2, 100, 2, 2, 1, 0, 1},
    {5, 4, 4, 600, 18, 3, 3, 1, 1, 1},  {1, 20, 20, 3, 4, 11, 11, 4, 2, 1},
    {1, 3, 9, 1500, 3, 3, 3, 1, 1, 1},  {1, 3, 18, 900, 17, 3, 3, 2, 1, 1},
    {1, 3, 9, 2, 1500, 3, 3, 1, 1, 1},  {1, 5, 9, 1400, 2, 3, 3, 1, 2, 2},
    {3, 2, 3, 520, 130, 3, 3, 1, 1, 1},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

START_TEST(test_shapes)
{
    random_seed((uint64_t)_i);
    check_layer(shapes[_i], DDP_ACTIVATION_NONE, DDP_F32, false);
    check_layer(shapes[_i], DDP_ACTIVATION_RELU, DDP_F32, true);
    check_layer(shapes[_i], DDP_ACTIVATION_RELU, DDP_BF16, false);
    check_layer(shapes[_i], DDP_ACTIVATION_RELU, DDP_F16, false);
}
END_TEST

START_TEST(test_random_shapes)
{
    random_seed((uint64_t)_i + 100);
    struct ddp_conv2d_shape s;
    do {
        s = (struct ddp_conv2d_shape){
            .batch = random_below(20),
            .height = random_below(12) + 1,
            .width = random_below(20) + 1,
            .in = random_below(40) + 1,
            .out = random_below(40) + 1,
            .kernel_height = random_below(5) + 1,
            .kernel_width = random_below(5) + 1,
            .stride = random_below(4) + 1,
            .padding = random_below(5),
            .dilation = random_below(4) + 1,
        };
    } while (!ddp_window_count(s.height, s.kernel_height, s.stride, s.padding, s.dilation) ||
             !ddp_window_count(s.width, s.kernel_width, s.stride, s.padding, s.dilation));
    check_layer(s, random_below(2) ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE,
                random_below(3) ? DDP_F32 : DDP_BF16, random_below(2));
}
END_TEST

static double loss_of(void *arg)
{
    struct layer *layer = arg;
    run_forward(layer, NULL, false);
    double loss = 0;
    for (int64_t i = 0; i < layer->y_count; i++)
        loss += (double)layer->dy[i] * (double)layer->y[i];
    return loss;
}

START_TEST(test_gradient)
{
    static const struct ddp_conv2d_shape small[] = {{2, 5, 4, 2, 3, 3, 3, 1, 1, 1},
                                                    {2, 6, 5, 2, 2, 3, 3, 2, 1, 1},
                                                    {1, 7, 7, 2, 2, 3, 2, 2, 2, 2}};
    random_seed((uint64_t)_i);
    struct layer layer = layer_of(small[_i % 3]);
    layer.activation = _i < 3 ? DDP_ACTIVATION_NONE : DDP_ACTIVATION_RELU;
    if (layer.activation) /* far from the kink, on either side */
        for (int64_t o = 0; o < layer.shape.out; o++)
            layer.bias[o] = o % 2 ? 30 : -30;
    run_forward(&layer, NULL, false);
    run_backward(&layer, NULL, false);
    check_gradient("x", layer.x, layer.dx, layer.x_count, loss_of, &layer, 5e-3);
    check_gradient("weight", layer.weight, layer.dweight, layer.weight_count, loss_of, &layer,
                   5e-3);
    check_gradient("bias", layer.bias, layer.dbias, layer.shape.out, loss_of, &layer, 5e-3);
    layer_free(&layer);
}
END_TEST

/* bf16 means the rounded operands: on operands that are bf16 already both computations agree. */
START_TEST(test_bf16)
{
    random_seed(1);
    struct layer layer = layer_of(shapes[2]);
    for (int64_t i = 0; i < layer.x_count; i++)
        layer.x[i] = ddp_bf16_to_f32(ddp_bf16_of(layer.x[i]));
    for (int64_t i = 0; i < layer.weight_count; i++)
        layer.weight[i] = ddp_bf16_to_f32(ddp_bf16_of(layer.weight[i]));
    struct layer other = layer_copy(&layer);
    other.compute = DDP_BF16;
    run_forward(&layer, NULL, false);
    run_forward(&other, NULL, false);
    ck_assert(same_bits(layer.y, other.y, layer.y_count));
    other.x[0] = 1 + 0x1p-9f; /* rounds to 1 */
    layer.x[0] = 1;
    run_forward(&layer, NULL, false);
    run_forward(&other, NULL, false);
    ck_assert(same_bits(layer.y, other.y, layer.y_count));
    layer_free(&layer);
    layer_free(&other);
}
END_TEST

/* Rows of zeros around a NaN stay finite, windows that meet it do not; ReLU keeps it. */
START_TEST(test_nan_and_null)
{
    struct layer layer = layer_of((struct ddp_conv2d_shape){1, 5, 5, 1, 1, 3, 3, 1, 1, 1});
    layer.activation = DDP_ACTIVATION_RELU;
    layer.x[12] = NAN;
    run_forward(&layer, NULL, false);
    for (int i = 0; i < 25; i++) {
        const bool meets = i / 5 >= 1 && i / 5 <= 3 && i % 5 >= 1 && i % 5 <= 3;
        ck_assert(isnan(layer.y[i]) == meets);
    }
    const size_t bytes = ddp_conv2d_backward_scratch_bytes(&layer.shape);
    char *scratch = scratch_of(bytes);
    struct ddp_conv2d_backward args = {
        .shape = layer.shape, .dy = layer.dy, .dbias = layer.dbias, .scratch = scratch};
    float sum = 0;
    for (int i = 0; i < 25; i++)
        sum += layer.dy[i];
    ck_assert_int_eq(ddp_conv2d_backward(&args, NULL), DDP_OK);
    ck_assert(fabsf(sum - layer.dbias[0]) < 1e-5f);
    args.dbias = NULL;
    args.weight = layer.weight;
    args.dx = layer.dx;
    ck_assert_int_eq(ddp_conv2d_backward(&args, NULL), DDP_OK);
    scratch_free(scratch, bytes);
    layer_free(&layer);
}
END_TEST

/* The loops of each instruction set give the same bits. */
START_TEST(test_instruction_sets)
{
    random_seed(9);
    const int64_t length = 29, pixels = 7, lanes = 16;
    float *x = array_of(pixels * length), *weight = aligned_alloc(64, 29 * 16 * sizeof *weight);
    float *expected = array_of(pixels * lanes), *y = array_of(pixels * lanes);
    float *gradient = array_of(length * lanes), *expected_gradient = array_of(length * lanes);
    int64_t x_offsets[7], y_offsets[7];
    for (int64_t i = 0; i < length * 16; i++)
        weight[i] = random_number();
    for (int64_t p = 0; p < pixels; p++) {
        x_offsets[p] = p * length;
        y_offsets[p] = p * lanes;
    }
    for (int isa = DDP_ISA_PLAIN; isa <= DDP_ISA_AVX512; isa++) {
        if (!ddp_cpu_has((enum ddp_isa)isa))
            continue;
        const struct ddp_conv_micro *micro = ddp_conv_micro((enum ddp_isa)isa);
        for (int64_t at = 0; at < pixels; at += micro->pixels) {
            struct ddp_conv_strip strip = {
                .runs = {.outer = 1, .inner = 1, .length = length},
                .x = x,
                .x_offsets = x_offsets + at,
                .weight = weight,
                .y = isa ? y : expected,
                .y_offsets = y_offsets + at,
                .lanes = lanes,
            };
            int64_t left = pixels - at;
            micro->strip(&strip, left < micro->pixels ? left : micro->pixels, 1);
        }
        struct ddp_conv_outer outer = {
            .x = x,
            .x_offsets = x_offsets,
            .dy = expected,
            .dy_offsets = y_offsets,
            .pixels = pixels,
            .dweight = isa ? gradient : expected_gradient,
        };
        micro->outer(&outer, length, 1);
        if (isa) {
            ck_assert(same_bits(y, expected, pixels * lanes));
            ck_assert(same_bits(gradient, expected_gradient, length * lanes));
        }
    }
    array_free(x, pixels * length);
    free(weight);
    array_free(expected, pixels * lanes);
    array_free(y, pixels * lanes);
    array_free(gradient, length * lanes);
    array_free(expected_gradient, length * lanes);
}
END_TEST

/* All of it on each set that the processor has, which a process asks for once: more positions than
 * a chain of the weight's gradient takes. */
START_TEST(test_sets_agree)
{
    static const char *const sets[] = {"plain", "avx2", "avx512"};
    const struct ddp_conv2d_shape s = {1, 30, 30, 2, 48, 1, 1, 1, 0, 1};
    struct layer layer = layer_of(s);
    random_seed(11);
    for (int64_t i = 0; i < layer.x_count; i++)
        layer.x[i] = random_number();
    for (int64_t i = 0; i < layer.y_count; i++)
        layer.dy[i] = random_number();
    const size_t bytes = (size_t)layer.weight_count * sizeof(float);
    float *found = mmap(NULL, 3 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(found != MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            char *scratch = scratch_of(ddp_conv2d_backward_scratch_bytes(&s));
            const struct ddp_conv2d_backward args = {.shape = s,
                                                     .x = layer.x,
                                                     .dy = layer.dy,
                                                     .dweight = found + i * layer.weight_count,
                                                     .scratch = scratch};
            setenv("DDP_ISA", sets[i], 1);
            _exit(ddp_conv2d_backward(&args, NULL) != DDP_OK);
        }
        int status = -1;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        ck_assert(same_bits(found + i * layer.weight_count, found, layer.weight_count));
    }
    munmap(found, 3 * bytes);
    layer_free(&layer);
}
END_TEST

START_TEST(test_arguments)
{
    float v[64] = {0};
    const struct ddp_conv2d_forward good = {
        .shape = {1, 3, 3, 1, 1, 3, 3, 1, 1, 1}, .x = v, .weight = v, .y = v, .scratch = v};
    struct ddp_conv2d_forward bad[16];
    int count = 0;
    for (; count < 16; count++)
        bad[count] = good;
    bad[0].shape.batch = -1;
    bad[1].shape.height = 0;
    bad[2].shape.width = -3;
    bad[3].shape.in = 0;
    bad[4].shape.out = INT64_MAX;
    bad[5].shape.kernel_height = 6;
    bad[6].shape.kernel_width = 0;
    bad[7].shape.stride = 0;
    bad[8].shape.padding = -1;
    bad[9].shape.dilation = 0;
    bad[10].activation = (enum ddp_activation)99;
    bad[11].compute = DDP_I32;
    bad[12].x = NULL;
    bad[13].weight = NULL;
    bad[14].y = NULL;
    bad[15].shape = (struct ddp_conv2d_shape){1 << 20, 1 << 20, 1 << 20, 64, 1, 3, 3, 1, 1, 1};
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(ddp_conv2d_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_conv2d_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
        struct ddp_conv2d_backward backward = {
            .shape = bad[i].shape,
            .activation = bad[i].activation,
            .compute = bad[i].compute,
            .x = bad[i].x,
            .y = v,
            .weight = bad[i].weight,
            .dy = bad[i].y,
            .dx = v,
            .dweight = v,
            .scratch = v,
        };
        ck_assert_int_eq(ddp_conv2d_backward(&backward, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_conv2d_backward_reference(&backward, NULL), DDP_ERR_INVALID);
    }
    ck_assert_int_eq(ddp_conv2d_forward_scratch_bytes(&bad[4].shape), 0);
    ck_assert_int_eq(ddp_conv2d_backward_scratch_bytes(&bad[15].shape), 0);
    ck_assert_int_eq(ddp_window_count(32, 3, 2, 1, 1), 16);
    ck_assert_int_eq(ddp_window_count(2, 3, 1, 0, 1), 0);
}
END_TEST

static void run_golden(struct golden_case *c)
{
    golden_seed(c);
    struct ddp_conv2d_shape s = {.batch = golden_number(c)};
    s.height = golden_number(c);
    s.width = golden_number(c);
    s.in = golden_number(c);
    s.out = golden_number(c);
    s.kernel_height = golden_number(c);
    s.kernel_width = golden_number(c);
    s.stride = golden_number(c);
    s.padding = golden_number(c);
    s.dilation = golden_number(c);
    struct layer layer = layer_of(s);
    layer.activation = golden_number(c) ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE;
    golden_draw(c, layer.x, layer.x_count);
    golden_draw(c, layer.weight, layer.weight_count);
    golden_draw(c, layer.bias, s.out);
    golden_draw(c, layer.dy, layer.y_count);
    run_forward(&layer, NULL, false);
    run_backward(&layer, NULL, false);
    golden_compare(c, "y", layer.y, layer.y_count, 1e-6);
    golden_compare(c, "dx", layer.dx, layer.x_count, 2e-6);
    golden_compare(c, "dweight", layer.dweight, layer.weight_count, 3e-6);
    golden_compare(c, "dbias", layer.dbias, s.out, 3e-6);
    layer_free(&layer);
}

START_TEST(test_pytorch)
{
    golden_run("kernels/golden/images.txt", "conv2d", run_golden);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("conv2d");
    TCase *tc = kernel_case(suite, "conv2d");
    tcase_add_loop_test(tc, test_shapes, 0, SHAPES);
    tcase_add_loop_test(tc, test_random_shapes, 0, 60);
    tcase_add_loop_test(tc, test_gradient, 0, 6);
    tcase_add_test(tc, test_bf16);
    tcase_add_test(tc, test_nan_and_null);
    tcase_add_test(tc, test_instruction_sets);
    tcase_add_test(tc, test_sets_agree);
    tcase_add_test(tc, test_pytorch);
    tcase_add_test(tc, test_arguments);
    return suite;
}
