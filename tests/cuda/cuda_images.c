/* SPDX-License-Identifier: MIT
 *
 * Convolution, pooling and batch norm of CUDA against the reference, and against themselves. */
#include "config.h"

#include "kernels/bf16.h"
#include "tests/cuda/cuda_pair.h"
#include "tests/kernels/reference/reference.h"

/* --- convolution ---------------------------------------------------------------------------- */

/* Of batch, height, width, in, out, kernel height and width, stride, padding, dilation. The last
 * two need more than one piece of windows in the simulation. */
static const struct ddp_conv2d_shape convolutions[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 1},    {2, 5, 4, 3, 5, 3, 3, 1, 1, 1},
    {2, 6, 6, 4, 8, 3, 3, 2, 1, 1},    {1, 7, 9, 8, 4, 1, 1, 1, 0, 1},
    {2, 7, 5, 4, 4, 1, 1, 2, 0, 1},    {1, 9, 8, 2, 3, 3, 2, 1, 2, 2},
    {1, 11, 10, 4, 4, 3, 3, 2, 2, 2},  {2, 8, 8, 3, 4, 5, 5, 3, 0, 1},
    {1, 6, 7, 1, 6, 4, 3, 3, 4, 1},    {1, 12, 12, 4, 12, 3, 3, 3, 1, 2},
    {0, 4, 4, 4, 4, 3, 3, 1, 1, 1},    {3, 16, 16, 16, 8, 3, 3, 1, 1, 1},
    {3, 20, 20, 32, 4, 3, 3, 1, 1, 1}, {4, 21, 23, 4, 32, 3, 3, 2, 1, 1},
};
#define CONVOLUTIONS (int)(sizeof convolutions / sizeof *convolutions)

struct conv {
    struct ddp_conv2d_shape s;
    enum ddp_activation activation;
    enum ddp_dtype compute, dtype;
    bool add;
    int64_t pixels; /* of y */
    struct pair x, weight, bias, y, dy, dx, dweight, dbias;
    void *forward_scratch, *backward_scratch;
};

static struct conv conv_of(const struct ddp_conv2d_shape *s, int flags)
{
    const size_t shift = flags & 4 ? 1 : 0;
    struct conv c = {.s = *s, .add = flags & 1};
    c.activation = flags & 2 ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE;
    c.compute = flags & 32 ? DDP_F16 : flags & 8 ? DDP_BF16 : DDP_F32;
    c.dtype = flags & 16 ? DDP_BF16 : DDP_F32;
    c.pixels = s->batch *
               ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, s->dilation) *
               ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, s->dilation);
    const int64_t weights = s->out * s->in * s->kernel_height * s->kernel_width;
    c.x = pair_of_type(c.dtype, s->batch * s->height * s->width * s->in, shift);
    c.weight = pair_of(weights, shift);
    c.bias = pair_of(s->out, shift);
    c.y = pair_out_type(c.dtype, c.pixels * s->out, shift, false);
    c.dy = pair_of_type(c.dtype, c.pixels * s->out, shift);
    c.dx = pair_out_type(c.dtype, c.x.count, shift, c.add);
    c.dweight = pair_out(weights, shift, c.add);
    c.dbias = pair_out(s->out, shift, c.add);
    c.forward_scratch = scratch_of(ddp_conv2d_forward_scratch_bytes(s));
    c.backward_scratch = scratch_of(ddp_conv2d_backward_scratch_bytes(s));
    return c;
}

static void conv_free(struct conv *c)
{
    struct pair *all[] = {&c->x,  &c->weight, &c->bias,    &c->y,
                          &c->dy, &c->dx,     &c->dweight, &c->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
}

static void conv_forward(const struct conv *c, bool bias, bool device)
{
    const struct ddp_conv2d_forward args = {
        .shape = c->s,
        .activation = c->activation,
        .compute = c->compute,
        .dtype = device ? c->dtype : DDP_F32,
        .x = device ? c->x.device : c->x.host,
        .weight = device ? c->weight.device : c->weight.host,
        .bias = !bias    ? NULL
                : device ? c->bias.device
                         : c->bias.host,
        .y = device ? c->y.device : c->y.host,
        .scratch = c->forward_scratch,
    };
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(table->conv2d_forward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void conv_backward(const struct conv *c, bool device)
{
    const struct ddp_conv2d_backward args = {
        .shape = c->s,
        .activation = c->activation,
        .compute = c->compute,
        .dtype = device ? c->dtype : DDP_F32,
        .x = device ? c->x.device : c->x.host,
        .y = device ? c->y.device : c->y.host,
        .weight = device ? c->weight.device : c->weight.host,
        .dy = device ? c->dy.device : c->dy.host,
        .dx = device ? c->dx.device : c->dx.host,
        .dweight = device ? c->dweight.device : c->dweight.host,
        .dbias = device ? c->dbias.device : c->dbias.host,
        .accumulate_dx = c->add,
        .accumulate_dweight = c->add,
        .scratch = c->backward_scratch,
    };
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    ck_assert_int_eq(table->conv2d_backward(&args, device ? cuda_stream : NULL), DDP_OK);
}

static void check_conv(const struct ddp_conv2d_shape *shape, int flags)
{
    struct conv c = conv_of(shape, flags);
    const int64_t taps = c.s.kernel_height * c.s.kernel_width;
    if (c.dtype == DDP_BF16) /* the bias that is added is rounded */
        for (int64_t i = 0; i < c.s.out; i++)
            c.bias.host[i] = ddp_bf16_to_f32(ddp_bf16_of(c.bias.host[i]));
    conv_forward(&c, flags & 4, true);
    float *y = pair_fetch(&c.y);
    conv_forward(&c, flags & 4, true);
    pair_same("conv2d, again", &c.y, y);
    conv_forward(&c, flags & 4, false);
    pair_near("conv2d y", &c.y, product_tolerance(taps * c.s.in) + rounded_twice(&c.y, flags & 4));
    pair_send(&c.y); /* the same signs on both sides */

    conv_backward(&c, true);
    conv_backward(&c, false);
    pair_near("conv2d dx", &c.dx, product_tolerance(taps * c.s.out) + rounded_twice(&c.dx, c.add));
    pair_near("conv2d dweight", &c.dweight, product_tolerance(c.pixels));
    pair_near("conv2d dbias", &c.dbias, product_tolerance(c.pixels));
    if (!c.add) {
        float *dx = pair_fetch(&c.dx), *dweight = pair_fetch(&c.dweight);
        conv_backward(&c, true);
        pair_same("conv2d dx, again", &c.dx, dx);
        pair_same("conv2d dweight, again", &c.dweight, dweight);
    }
    conv_free(&c);
}

START_TEST(test_conv2d)
{
    const struct ddp_conv2d_shape *s = &convolutions[_i];
    random_seed((uint64_t)_i);
    for (int flags = 0; flags < 32; flags++)
        if ((flags < 16 || flags & 8) &&
            (s->batch * s->height * s->in < 500 || flags % 5 == 3 || flags % 6 == 1))
            check_conv(s, flags);
    check_conv(s, 32 + _i % 8); /* float16 */
}
END_TEST

START_TEST(test_conv2d_refused)
{
    const struct ddp_conv2d_shape never = {1, 2, 2, 1, 1, 5, 5, 1, 0, 1};
    const struct ddp_conv2d_shape shape = {1, 2, 2, 1, 1, 1, 1, 1, 0, 1};
    float some[4] = {0};
    struct ddp_conv2d_forward args = {.shape = never, .x = some, .weight = some, .y = some};
    ck_assert_int_eq(on_cuda->conv2d_forward(&args, cuda_stream), DDP_ERR_INVALID);
    args = (struct ddp_conv2d_forward){
        .shape = shape, .dtype = DDP_BF16, .x = some, .weight = some, .y = some};
    ck_assert_int_eq(on_cuda->conv2d_forward(&args, cuda_stream), DDP_ERR_INVALID);
    args.dtype = DDP_F32;
    args.shape = shape; /* no scratch */
    ck_assert_int_eq(on_cuda->conv2d_forward(&args, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

/* --- pooling -------------------------------------------------------------------------------- */

/* Of batch, height, width, channels, kernel height and width, stride, padding. */
static const struct ddp_pool2d_shape pools2d[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},   {2, 5, 7, 3, 2, 2, 2, 0},  {2, 8, 8, 4, 3, 3, 2, 1},
    {1, 9, 6, 8, 3, 2, 1, 1},   {2, 4, 4, 12, 4, 4, 4, 0}, {1, 10, 10, 5, 3, 3, 4, 0},
    {1, 7, 7, 4, 5, 5, 3, 2},   {3, 6, 5, 16, 2, 3, 1, 0}, {0, 4, 4, 4, 2, 2, 2, 0},
    {1, 40, 33, 4, 3, 3, 2, 1},
};
#define POOLS2D (int)(sizeof pools2d / sizeof *pools2d)

static int64_t pooled(const struct ddp_pool2d_shape *s)
{
    return s->batch * s->channels *
           ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, 1) *
           ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, 1);
}

static void check_max_pool(const struct ddp_pool2d_shape *s, enum ddp_dtype dtype, size_t shift,
                           bool add, bool nans)
{
    const int64_t inputs = s->batch * s->height * s->width * s->channels, outputs = pooled(s);
    struct pair x = pair_of_type(dtype, inputs, shift);
    struct pair y = pair_out_type(dtype, outputs, shift, false);
    struct pair dy = pair_of_type(dtype, outputs, shift);
    struct pair dx = pair_out_type(dtype, inputs, shift, add);
    uint8_t *chosen = malloc((size_t)outputs + 1), *got = malloc((size_t)outputs + 1);
    uint8_t *device_chosen = cuda_memory((size_t)outputs, shift);
    for (int64_t i = 0; i < inputs; i++) /* equals, and NaN */
        x.host[i] = nans && random_below(6) == 0 ? NAN : (float)random_below(4);
    pair_send(&x);
    struct ddp_max_pool2d_forward args = {
        .shape = *s, .dtype = dtype, .x = x.device, .y = y.device, .chosen = device_chosen};
    ck_assert_int_eq(on_cuda->max_pool2d_forward(&args, cuda_stream), DDP_OK);
    args = (struct ddp_max_pool2d_forward){.shape = *s, .x = x.host, .y = y.host, .chosen = chosen};
    ck_assert_int_eq(ddp_kernels_reference.max_pool2d_forward(&args, NULL), DDP_OK);
    pair_equal("max pooling", &y);
    cuda_get(got, device_chosen, (size_t)outputs);
    ck_assert_int_eq(memcmp(got, chosen, (size_t)outputs), 0);
    args =
        (struct ddp_max_pool2d_forward){.shape = *s, .dtype = dtype, .x = x.device, .y = y.device};
    ck_assert_int_eq(on_cuda->max_pool2d_forward(&args, cuda_stream), DDP_OK);
    pair_equal("max pooling, not chosen", &y);

    struct ddp_max_pool2d_backward back = {.shape = *s,
                                           .dtype = dtype,
                                           .dy = dy.device,
                                           .chosen = device_chosen,
                                           .dx = dx.device,
                                           .accumulate_dx = add};
    ck_assert_int_eq(on_cuda->max_pool2d_backward(&back, cuda_stream), DDP_OK);
    back = (struct ddp_max_pool2d_backward){
        .shape = *s, .dy = dy.host, .chosen = chosen, .dx = dx.host, .accumulate_dx = add};
    ck_assert_int_eq(ddp_kernels_reference.max_pool2d_backward(&back, NULL), DDP_OK);
    pair_near("max pooling dx", &dx, 1e-6);
    free(chosen);
    free(got);
    pair_free(&x);
    pair_free(&y);
    pair_free(&dy);
    pair_free(&dx);
}

static void check_avg_pool(const struct ddp_pool2d_shape *s, enum ddp_dtype dtype, size_t shift,
                           bool add)
{
    const int64_t inputs = s->batch * s->height * s->width * s->channels, outputs = pooled(s);
    struct pair x = pair_of_type(dtype, inputs, shift);
    struct pair y = pair_out_type(dtype, outputs, shift, false);
    struct pair dy = pair_of_type(dtype, outputs, shift);
    struct pair dx = pair_out_type(dtype, inputs, shift, add);
    struct ddp_avg_pool2d_forward args = {
        .shape = *s, .dtype = dtype, .x = x.device, .y = y.device};
    ck_assert_int_eq(on_cuda->avg_pool2d_forward(&args, cuda_stream), DDP_OK);
    args = (struct ddp_avg_pool2d_forward){.shape = *s, .x = x.host, .y = y.host};
    ck_assert_int_eq(ddp_kernels_reference.avg_pool2d_forward(&args, NULL), DDP_OK);
    pair_near("average pooling", &y, 1e-6);
    struct ddp_avg_pool2d_backward back = {
        .shape = *s, .dtype = dtype, .dy = dy.device, .dx = dx.device, .accumulate_dx = add};
    ck_assert_int_eq(on_cuda->avg_pool2d_backward(&back, cuda_stream), DDP_OK);
    back = (struct ddp_avg_pool2d_backward){
        .shape = *s, .dy = dy.host, .dx = dx.host, .accumulate_dx = add};
    ck_assert_int_eq(ddp_kernels_reference.avg_pool2d_backward(&back, NULL), DDP_OK);
    pair_near("average pooling dx", &dx, 1e-6);
    pair_free(&x);
    pair_free(&y);
    pair_free(&dy);
    pair_free(&dx);
}

START_TEST(test_pool2d)
{
    random_seed((uint64_t)_i);
    for (int flags = 0; flags < 16; flags++) {
        const enum ddp_dtype dtype = flags & 8 ? DDP_BF16 : DDP_F32;
        check_max_pool(&pools2d[_i], dtype, flags & 1, flags & 2, flags & 4);
        if (flags & 4)
            check_avg_pool(&pools2d[_i], dtype, flags & 1, flags & 2);
    }
}
END_TEST

START_TEST(test_pool2d_refused)
{
    const struct ddp_avg_pool2d_forward args = {.shape = pools2d[1]};
    ck_assert_int_eq(on_cuda->avg_pool2d_forward(&args, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

/* --- batch norm ----------------------------------------------------------------------------- */

/* Of rows, channels. Around the threads of a block, the rows of a piece and their number. */
static const int64_t norms[][2] = {{2, 1},    {5, 3},     {64, 16},  {65, 4},   {100, 64}, {63, 65},
                                   {129, 68}, {1000, 12}, {20, 300}, {4100, 4}, {257, 24}};
#define NORMS (int)(sizeof norms / sizeof *norms)

struct norm {
    int64_t rows, channels;
    enum ddp_dtype dtype; /* on the device */
    enum ddp_activation activation;
    bool residual, add;
    struct pair x, y, gamma, beta, other, saved, mean, var, dy, dx, dother, dgamma, dbeta;
    double *sums, *device_sums;
    void *scratch, *device_scratch;
};

static struct norm norm_of(const int64_t *shape, int flags)
{
    const int64_t rows = shape[0], channels = shape[1], count = rows * channels;
    const size_t shift = flags & 8 ? 1 : 0;
    const enum ddp_dtype dtype = flags & 16 ? DDP_BF16 : DDP_F32;
    struct norm n = {.rows = rows, .channels = channels, .residual = flags & 1, .add = flags & 4};
    n.dtype = dtype;
    n.activation = flags & 2 ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE;
    n.x = pair_of_type(dtype, count, shift);
    n.y = pair_out_type(dtype, count, shift, false);
    n.gamma = pair_of(channels, shift);
    n.beta = pair_of(channels, shift);
    n.other = pair_of_type(dtype, count, shift);
    n.saved = pair_out(2 * channels, shift, false);
    n.mean = pair_out(channels, shift, n.add);
    n.var = pair_out(channels, shift, n.add);
    n.dy = pair_of_type(dtype, count, shift);
    n.dx = pair_out_type(dtype, count, shift, n.add);
    n.dother = pair_out_type(dtype, count, shift, n.add);
    n.dgamma = pair_out(channels, shift, n.add);
    n.dbeta = pair_out(channels, shift, n.add);
    const size_t bytes = ddp_batch_norm_scratch_bytes(rows, channels);
    n.scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    n.device_scratch = scratch_of(bytes);
    n.sums = malloc((size_t)channels * 2 * sizeof *n.sums);
    n.device_sums = cuda_memory((size_t)channels * 2 * sizeof *n.sums, 0);
    return n;
}

static void norm_free(struct norm *n)
{
    struct pair *all[] = {&n->x,   &n->y,  &n->gamma, &n->beta,   &n->other,  &n->saved, &n->mean,
                          &n->var, &n->dy, &n->dx,    &n->dother, &n->dgamma, &n->dbeta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    free(n->scratch);
    free(n->sums);
}

static void norm_forward(const struct norm *n, bool device, bool training)
{
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    void *stream = device ? cuda_stream : NULL;
    const struct ddp_batch_norm_sums sums = {
        .rows = n->rows,
        .channels = n->channels,
        .dtype = device ? n->dtype : DDP_F32,
        .x = device ? n->x.device : n->x.host,
        .sums = device ? n->device_sums : n->sums,
        .scratch = device ? n->device_scratch : n->scratch,
    };
    const struct ddp_batch_norm_forward args = {
        .rows = n->rows,
        .channels = n->channels,
        .dtype = device ? n->dtype : DDP_F32,
        .activation = n->activation,
        .epsilon = 1e-5f,
        .x = device ? n->x.device : n->x.host,
        .gamma = device ? n->gamma.device : n->gamma.host,
        .beta = device ? n->beta.device : n->beta.host,
        .residual = !n->residual ? NULL
                    : device     ? n->other.device
                                 : n->other.host,
        .sums = !training ? NULL
                : device  ? n->device_sums
                          : n->sums,
        .count = (double)n->rows,
        .running_mean = device ? n->mean.device : n->mean.host,
        .running_var = device ? n->var.device : n->var.host,
        .y = device ? n->y.device : n->y.host,
        .saved = device ? n->saved.device : n->saved.host,
        .stat_mean = !training ? NULL
                     : device  ? n->mean.device
                               : n->mean.host,
        .stat_var = !training ? NULL
                    : device  ? n->var.device
                              : n->var.host,
        .accumulate_stat = n->add,
    };
    if (training)
        ck_assert_int_eq(table->batch_norm_sums(&sums, stream), DDP_OK);
    ck_assert_int_eq(table->batch_norm_forward(&args, stream), DDP_OK);
}

static void norm_backward(const struct norm *n, bool device)
{
    const struct ddp_kernels *table = device ? on_cuda : &ddp_kernels_reference;
    void *stream = device ? cuda_stream : NULL;
    const struct ddp_batch_norm_backward_sums sums = {
        .rows = n->rows,
        .channels = n->channels,
        .dtype = device ? n->dtype : DDP_F32,
        .activation = n->activation,
        .has_residual = n->residual,
        .x = device ? n->x.device : n->x.host,
        .y = device ? n->y.device : n->y.host,
        .dy = device ? n->dy.device : n->dy.host,
        .gamma = device ? n->gamma.device : n->gamma.host,
        .beta = device ? n->beta.device : n->beta.host,
        .saved = device ? n->saved.device : n->saved.host,
        .sums = device ? n->device_sums : n->sums,
        .scratch = device ? n->device_scratch : n->scratch,
    };
    const struct ddp_batch_norm_backward args = {
        .rows = n->rows,
        .channels = n->channels,
        .dtype = device ? n->dtype : DDP_F32,
        .activation = n->activation,
        .x = sums.x,
        .y = sums.y,
        .dy = sums.dy,
        .gamma = sums.gamma,
        .beta = sums.beta,
        .saved = sums.saved,
        .sums = sums.sums,
        .count = (double)n->rows,
        .local_sums = sums.sums,
        .dx = device ? n->dx.device : n->dx.host,
        .dresidual = device ? n->dother.device : n->dother.host,
        .has_residual = n->residual,
        .dgamma = device ? n->dgamma.device : n->dgamma.host,
        .dbeta = device ? n->dbeta.device : n->dbeta.host,
        .accumulate_dx = n->add,
        .accumulate_dresidual = n->add,
        .accumulate = n->add,
    };
    ck_assert_int_eq(table->batch_norm_backward_sums(&sums, stream), DDP_OK);
    ck_assert_int_eq(table->batch_norm_backward(&args, stream), DDP_OK);
}

/* Sums are doubles: nearly the same ones. */
static void expect_sums(const struct norm *n)
{
    const int64_t count = 2 * n->channels;
    double *got = malloc((size_t)count * sizeof *got);
    cuda_get(got, n->device_sums, (size_t)count * sizeof *got);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - n->sums[i]) <= 1e-6 * (1 + fabs(n->sums[i])),
                      "sum %lld is %.17g on the device, not %.17g", (long long)i, got[i],
                      n->sums[i]);
    free(got);
}

static void check_norm(const int64_t *shape, int flags)
{
    struct norm n = norm_of(shape, flags);
    norm_forward(&n, true, true);
    norm_forward(&n, false, true);
    expect_sums(&n);
    pair_near("batch norm saved", &n.saved, 1e-5);
    pair_near("batch norm mean", &n.mean, 1e-6);
    pair_near("batch norm variance", &n.var, 1e-6);
    pair_near("batch norm y", &n.y, 1e-4);
    pair_send(&n.y);
    pair_send(&n.saved); /* the same signs on both sides */
    norm_backward(&n, true);
    norm_backward(&n, false);
    expect_sums(&n);
    pair_near("batch norm dx", &n.dx, 1e-4);
    pair_near("batch norm dgamma", &n.dgamma, 1e-5);
    pair_near("batch norm dbeta", &n.dbeta, 1e-5);
    if (n.residual)
        pair_near("batch norm dresidual", &n.dother, 1e-6);
    if (!n.add) {
        float *dx = pair_fetch(&n.dx), *dgamma = pair_fetch(&n.dgamma);
        norm_backward(&n, true);
        pair_same("batch norm dx, again", &n.dx, dx);
        pair_same("batch norm dgamma, again", &n.dgamma, dgamma);
    }
    for (int64_t c = 0; c < n.channels; c++)
        n.var.host[c] = fabsf(n.var.host[c]);
    pair_send(&n.mean);
    pair_send(&n.var);
    norm_forward(&n, true, false);
    norm_forward(&n, false, false);
    pair_near("batch norm y, evaluation", &n.y, 1e-4);
    norm_free(&n);
}

START_TEST(test_batch_norm)
{
    random_seed((uint64_t)_i);
    for (int flags = 0; flags < 32; flags++)
        if (norms[_i][0] * norms[_i][1] < 2000 || (flags + _i) % 4 == 0)
            check_norm(norms[_i], flags);
}
END_TEST

START_TEST(test_batch_norm_refused)
{
    const struct ddp_batch_norm_sums args = {.rows = 4, .channels = 4};
    ck_assert_int_eq(on_cuda->batch_norm_sums(&args, cuda_stream), DDP_ERR_INVALID);
}
END_TEST

void cuda_image_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "conv2d");
    tcase_add_loop_test(tc, test_conv2d, 0, CONVOLUTIONS);
    tcase_add_test(tc, test_conv2d_refused);
    tc = cuda_case(suite, "pool2d");
    tcase_add_loop_test(tc, test_pool2d, 0, POOLS2D);
    tcase_add_test(tc, test_pool2d_refused);
    tc = cuda_case(suite, "batch_norm");
    tcase_add_loop_test(tc, test_batch_norm, 0, NORMS);
    tcase_add_test(tc, test_batch_norm_refused);
}
