/* SPDX-License-Identifier: MIT
 *
 * Convolution by cuDNN against the CPU's and against our own kernels, on a GPU; and that our own
 * take over where cuDNN is missing, refuses or has no plan, on the simulated device, whose cuDNN
 * computes nothing. The other files of tests do without cuDNN. */
#include "config.h"

#include "core/log.h"
#include "kernels/bf16.h"
#include "tests/cuda/cuda_pair.h"
#include "tests/cuda/cuda_test.h"
#include "tests/kernels/reference/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A second device on the same GPU that has our own kernels only. */
static ddp_device *plain;

static void open_both(void)
{
    cuda_open_cudnn();
    ck_assert_int_eq(ddp_device_open(&plain, "cuda", 0, 1), DDP_OK);
}

static void close_both(void)
{
    ddp_device_close(plain);
    cuda_close();
}

/* DDP_CUDNN is looked at when a device first does something of cuDNN's. */
static void *stream_of(bool cudnn)
{
    setenv("DDP_CUDNN", cudnn ? "1" : "0", 1);
    return cudnn ? cuda_stream : ddp_device_stream(plain);
}

static const struct ddp_kernels *table_of(bool device)
{
    return device ? on_cuda : &ddp_kernels_reference;
}

/* Results are fetched through the other device. */
static enum ddp_status done(enum ddp_status status)
{
    if (plain)
        ck_assert_int_eq(ddp_device_synchronize(plain), DDP_OK);
    return status;
}

static const struct ddp_conv2d_shape convolutions[] = {
    {1, 1, 1, 8, 8, 1, 1, 1, 0, 1},    {2, 5, 4, 3, 8, 3, 3, 1, 1, 1},
    {2, 6, 6, 8, 16, 3, 3, 2, 1, 1},   {2, 7, 5, 8, 8, 1, 1, 2, 0, 1},
    {1, 9, 8, 8, 3, 3, 2, 1, 2, 2},    {2, 8, 8, 3, 4, 5, 5, 3, 0, 1},
    {3, 16, 16, 16, 8, 3, 3, 1, 1, 1},
};
#define CONVOLUTIONS (int)(sizeof convolutions / sizeof *convolutions)

enum { X, WEIGHT, BIAS, CY, CDY, DX, DWEIGHT, DBIAS, CONV_ARRAYS };

struct conv {
    struct ddp_conv2d_shape s;
    enum ddp_activation activation;
    bool add, bias;
    struct pair all[CONV_ARRAYS];
    void *scratch;
};

static struct conv conv_of(const struct ddp_conv2d_shape *s, int flags)
{
    struct conv c = {.s = *s, .add = flags & 1, .bias = flags & 2};
    const int64_t weights = s->out * s->in * s->kernel_height * s->kernel_width;
    const int64_t pixels =
        s->batch *
        ddp_window_count(s->height, s->kernel_height, s->stride, s->padding, s->dilation) *
        ddp_window_count(s->width, s->kernel_width, s->stride, s->padding, s->dilation);
    const size_t forward = ddp_conv2d_forward_scratch_bytes(s);
    const size_t backward = ddp_conv2d_backward_scratch_bytes(s);
    c.activation = flags & 4 ? DDP_ACTIVATION_RELU : DDP_ACTIVATION_NONE;
    c.all[X] = pair_of_type(DDP_BF16, s->batch * s->height * s->width * s->in, 0);
    c.all[WEIGHT] = pair_of(weights, 0);
    c.all[BIAS] = pair_of(s->out, 0);
    for (int64_t i = 0; i < s->out; i++) /* which our own kernel rounds */
        c.all[BIAS].host[i] = ddp_bf16_to_f32(ddp_bf16_of(c.all[BIAS].host[i]));
    pair_send(&c.all[BIAS]);
    c.all[CY] = pair_out_type(DDP_BF16, pixels * s->out, 0, false);
    c.all[CDY] = pair_of_type(DDP_BF16, pixels * s->out, 0);
    c.all[DX] = pair_out_type(DDP_BF16, c.all[X].count, 0, c.add);
    c.all[DWEIGHT] = pair_out(weights, 0, c.add);
    c.all[DBIAS] = pair_out(s->out, 0, c.add);
    c.scratch = scratch_of(forward > backward ? forward : backward);
    return c;
}

static void *array(const struct conv *c, int which, bool device)
{
    return device ? c->all[which].device : c->all[which].host;
}

static enum ddp_status conv_forward(const struct conv *c, void *stream)
{
    const bool device = stream != NULL;
    const struct ddp_conv2d_forward args = {
        .shape = c->s,
        .activation = c->activation,
        .compute = DDP_BF16,
        .dtype = device ? DDP_BF16 : DDP_F32,
        .x = array(c, X, device),
        .weight = array(c, WEIGHT, device),
        .bias = c->bias ? array(c, BIAS, device) : NULL,
        .y = array(c, CY, device),
        .scratch = c->scratch,
    };
    return done(table_of(device)->conv2d_forward(&args, stream));
}

static enum ddp_status conv_backward(const struct conv *c, void *stream)
{
    const bool device = stream != NULL;
    const struct ddp_conv2d_backward args = {
        .shape = c->s,
        .activation = c->activation,
        .compute = DDP_BF16,
        .dtype = device ? DDP_BF16 : DDP_F32,
        .x = array(c, X, device),
        .y = array(c, CY, device),
        .weight = array(c, WEIGHT, device),
        .dy = array(c, CDY, device),
        .dx = array(c, DX, device),
        .dweight = array(c, DWEIGHT, device),
        .dbias = array(c, DBIAS, device),
        .accumulate_dx = c->add,
        .accumulate_dweight = c->add,
        .scratch = c->scratch,
    };
    return done(table_of(device)->conv2d_backward(&args, stream));
}

static void check_conv(const struct ddp_conv2d_shape *shape, int flags, void *stream)
{
    struct conv c = conv_of(shape, flags);
    ck_assert_int_eq(conv_forward(&c, stream), DDP_OK);
    ck_assert_int_eq(conv_forward(&c, NULL), DDP_OK);
    pair_near("conv2d y", &c.all[CY], 1e-4 + rounded_twice(&c.all[CY], c.bias));
    pair_send(&c.all[CY]); /* the same signs on both sides */
    ck_assert_int_eq(conv_backward(&c, stream), DDP_OK);
    ck_assert_int_eq(conv_backward(&c, NULL), DDP_OK);
    pair_near("conv2d dx", &c.all[DX], 1e-3 + rounded_twice(&c.all[DX], c.add));
    const float largest = largest_size(c.all[DWEIGHT].host, c.all[DWEIGHT].count);
    pair_near("conv2d dweight", &c.all[DWEIGHT], 0x1p-8 * largest); /* rounded to bf16 */
    pair_near("conv2d dbias", &c.all[DBIAS], 1e-3);
    if (!c.add) {
        float *dx = pair_fetch(&c.all[DX]), *dweight = pair_fetch(&c.all[DWEIGHT]);
        ck_assert_int_eq(conv_backward(&c, stream), DDP_OK);
        pair_same("conv2d dx, again", &c.all[DX], dx);
        pair_same("conv2d dweight, again", &c.all[DWEIGHT], dweight);
    }
    for (int i = 0; i < CONV_ARRAYS; i++)
        pair_free(&c.all[i]);
}

START_TEST(test_conv2d)
{
    for (int flags = 0; flags < 8; flags++) {
        random_seed((uint64_t)_i);
        check_conv(&convolutions[_i], flags, stream_of(true));
        random_seed((uint64_t)_i);
        check_conv(&convolutions[_i], flags, stream_of(false));
    }
}
END_TEST

/* --- without it: the library of the simulation computes nothing ------------------------------- */

/* What is wrong with it, and why it is not used, in the words of DDP_LOG=debug. */
static const struct {
    const char *version, *fail, *said;
} refusals[] = {
    {NULL, NULL, "cuDNN is not used: libcudnn.so.9 cannot be loaded"},
    {"91900", "dlsym:4", "cuDNN is not used: libcudnn.so.9 lacks cudnnDestroy"},
    {"91900", "cudnnCreate:1", "cuDNN is not used: CUDNN_STATUS_INTERNAL_ERROR"},
    {"91900", "cudnnSetStream:1", "cuDNN is not used: CUDNN_STATUS_INTERNAL_ERROR"},
    {"91900", NULL, "conv2d backward: not done by cuDNN, which has no deterministic plan"},
    {"91900", "cudnnBackendCreateDescriptor:1",
     "conv2d: not done by cuDNN, which rejects a tensor"},
    {"91900", "cudnnBackendCreateDescriptor:5", "conv2d: not done by cuDNN, which rejects a conv"},
    {"91900", "cudnnBackendSetAttribute:1", "conv2d: not done by cuDNN, which rejects a tensor"},
    {"91900", "cudnnBackendSetAttribute:30", "conv2d: not done by cuDNN, which rejects"},
    {"91900", "cudnnBackendFinalize:1", "conv2d: not done by cuDNN, which rejects a tensor"},
    {"91900", "cudnnBackendFinalize:6", "conv2d: not done by cuDNN, which rejects the graph"},
    {"91900", "cudnnBackendGetAttribute:1", "conv2d backward: not done by cuDNN"},
};
#define REFUSALS (int)(sizeof refusals / sizeof *refusals)

/* Sends what is logged to a file from now on; returns standard error's own. */
static int log_to(FILE *file)
{
    const int own = dup(STDERR_FILENO);
    ck_assert_int_ge(own, 0);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    ddp_log_set_level(DDP_LOG_DEBUG);
    return own;
}

/* ... and no further; was it said? */
static void expect_said(FILE *file, int own, const char *said)
{
    char line[512];
    bool found = false;
    ck_assert_int_ge(dup2(own, STDERR_FILENO), 0);
    close(own);
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        found = found || strstr(line, said);
        ck_assert_msg(!strstr(line, "error:"), "an error was logged: %s", line);
        fputs(line, stderr);
    }
    ck_assert_msg(found, "was not logged: %s", said);
    fclose(file);
}

/* Our own kernels do it all, without an error. The environment is read once in a process, so that
 * it is set before the device is opened. */
START_TEST(test_refusals)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    if (refusals[_i].version)
        setenv("DDP_CUDASIM_CUDNN", refusals[_i].version, 1);
    if (refusals[_i].fail)
        setenv("DDP_CUDASIM_FAIL", refusals[_i].fail, 1);
    setenv("DDP_CUDNN", "1", 1);
    const int own = log_to(file);
    cuda_open_cudnn();
    check_conv(&convolutions[2], 0, cuda_stream);
    cuda_close();
    expect_said(file, own, refusals[_i].said);
}
END_TEST

void cuda_cudnn_cases(Suite *suite)
{
    if (cuda_test_interpreted()) /* what nvcc compiled looks for the real library */
        return;
    if (cuda_test_simulated()) { /* has nothing to compute with */
        TCase *tc = test_case(suite, "cudnn refuses", 120);
        tcase_add_loop_test(tc, test_refusals, 0, REFUSALS);
        return;
    }
    TCase *tc = test_case(suite, "cudnn", 120);
    tcase_add_checked_fixture(tc, open_both, close_both);
    tcase_add_loop_test(tc, test_conv2d, 0, CONVOLUTIONS);
}
