/* SPDX-License-Identifier: MIT
 *
 * Attention and convolution by cuDNN against the CPU's and against our own kernels, on a GPU; and
 * that our own take over where cuDNN is missing, refuses or has no plan, on the simulated device,
 * whose cuDNN computes nothing. The other files of tests do without cuDNN. */
#include "config.h"

#include "core/log.h"
#include "kernels/attention/pieces.h"
#include "kernels/bf16.h"
#include "tests/cuda_pair.h"
#include "tests/cuda_test.h"
#include "tests/reference/reference.h"

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

static void expect_near_share(const char *what, const struct pair *pair, double share)
{
    pair_near(what, pair, share * largest_size(pair->host, pair->count));
}

/* --- attention ------------------------------------------------------------------------------ */

/* Of batch, length, heads, size. The last two are left to our own kernels. */
static const int64_t attentions[][4] = {
    {1, 2, 1, 8},    {2, 17, 2, 8}, {1, 64, 3, 32}, {2, 65, 2, 64}, {1, 130, 2, 64}, {3, 33, 1, 80},
    {1, 40, 2, 128}, {43, 8, 2, 8}, {2, 8, 70, 8},  {2, 6, 70, 8},  {3, 5, 1, 12},
};
#define ATTENTIONS (int)(sizeof attentions / sizeof *attentions)

enum { QKV, Y, LSE, DY, DQKV, ARRAYS };

static enum ddp_status attend(const int64_t *s, const struct pair *all, bool lse, void *stream)
{
    const bool device = stream != NULL;
    const enum ddp_dtype dtype = device ? DDP_BF16 : DDP_F32;
    char *qkv = device ? all[QKV].device : (char *)all[QKV].host;
    const size_t part = (size_t)(s[2] * s[3]) * ddp_dtype_bytes(dtype);
    const struct ddp_attention_forward args = {
        .shape = ddp_attention_packed(s[0], s[1], s[2], s[3], dtype),
        .q = qkv,
        .k = qkv + part,
        .v = qkv + 2 * part,
        .y = device ? all[Y].device : all[Y].host,
        .lse = !lse     ? NULL
               : device ? all[LSE].device
                        : all[LSE].host,
    };
    return done(table_of(device)->attention_forward(&args, stream));
}

static enum ddp_status attend_back(const int64_t *s, const struct pair *all, bool add, void *stream)
{
    const bool device = stream != NULL;
    const enum ddp_dtype dtype = device ? DDP_BF16 : DDP_F32;
    char *qkv = device ? all[QKV].device : (char *)all[QKV].host;
    char *dqkv = device ? all[DQKV].device : (char *)all[DQKV].host;
    const size_t part = (size_t)(s[2] * s[3]) * ddp_dtype_bytes(dtype);
    const struct ddp_attention_backward args = {
        .shape = ddp_attention_packed(s[0], s[1], s[2], s[3], dtype),
        .q = qkv,
        .k = qkv + part,
        .v = qkv + 2 * part,
        .y = device ? all[Y].device : all[Y].host,
        .lse = device ? all[LSE].device : all[LSE].host,
        .dy = device ? all[DY].device : all[DY].host,
        .dq = dqkv,
        .dk = dqkv + part,
        .dv = dqkv + 2 * part,
        .accumulate_dq = add,
        .accumulate_dk = add,
        .accumulate_dv = add,
    };
    return done(table_of(device)->attention_backward(&args, stream));
}

static void attention_arrays(const int64_t *s, struct pair *all)
{
    const int64_t rows = s[0] * s[1], c = s[2] * s[3];
    all[QKV] = pair_of_type(DDP_BF16, rows * 3 * c, 0);
    all[Y] = pair_out_type(DDP_BF16, rows * c, 0, false);
    all[LSE] = pair_out(rows * s[2], 0, false);
    all[DY] = pair_of_type(DDP_BF16, rows * c, 0);
    all[DQKV] = pair_of_type(DDP_BF16, rows * 3 * c, 0);
    for (int64_t i = 0; i < all[QKV].count; i++) /* a softmax that is not flat */
        all[QKV].host[i] *= 3;
    pair_send(&all[QKV]);
}

/* Both passes on a device, compared with the CPU's. */
static void check_attention(const int64_t *s, void *stream, bool add)
{
    struct pair all[ARRAYS];
    attention_arrays(s, all);
    ck_assert_int_eq(attend(s, all, true, stream), DDP_OK);
    ck_assert_int_eq(attend(s, all, true, NULL), DDP_OK);
    expect_near_share("attention y", &all[Y], 0x1p-8);
    pair_near("attention lse", &all[LSE], 1e-5);
    float *y = pair_fetch(&all[Y]);
    ck_assert_int_eq(attend(s, all, false, stream), DDP_OK); /* cuDNN has other kernels for it */
    expect_near_share("attention without lse", &all[Y], 0x1p-8);
    ck_assert_int_eq(attend(s, all, true, stream), DDP_OK);
    pair_same("attention, again", &all[Y], y);
    pair_send(&all[Y]);
    ck_assert_int_eq(attend_back(s, all, add, stream), DDP_OK);
    ck_assert_int_eq(attend_back(s, all, add, NULL), DDP_OK);
    expect_near_share("attention dqkv", &all[DQKV], 0x1p-7);
    if (!add) {
        float *dqkv = pair_fetch(&all[DQKV]);
        ck_assert_int_eq(attend_back(s, all, add, stream), DDP_OK);
        pair_same("attention dqkv, again", &all[DQKV], dqkv);
    }
    for (int i = 0; i < ARRAYS; i++)
        pair_free(&all[i]);
}

START_TEST(test_attention)
{
    random_seed((uint64_t)_i);
    check_attention(attentions[_i], stream_of(true), false);
    check_attention(attentions[_i], stream_of(true), true);
    random_seed((uint64_t)_i); /* the same numbers by our own kernels, to the same bounds */
    check_attention(attentions[_i], stream_of(false), false);
}
END_TEST

/* What one kernel leaves, the other takes. */
START_TEST(test_attention_mixed)
{
    const int64_t s[] = {2, 65, 2, 64};
    struct pair all[ARRAYS];
    attention_arrays(s, all);
    ck_assert_int_eq(attend(s, all, true, stream_of(false)), DDP_OK);
    ck_assert_int_eq(ddp_device_synchronize(plain), DDP_OK);
    ck_assert_int_eq(attend_back(s, all, false, stream_of(true)), DDP_OK);
    ck_assert_int_eq(attend(s, all, true, NULL), DDP_OK);
    ck_assert_int_eq(attend_back(s, all, false, NULL), DDP_OK);
    expect_near_share("attention dqkv", &all[DQKV], 0x1p-7);
    for (int i = 0; i < ARRAYS; i++)
        pair_free(&all[i]);
}
END_TEST

/* Pieces of all sizes give the same bits. The variable is read when a device is opened. */
START_TEST(test_attention_pieces)
{
    const int64_t s[] = {5, 64, 6, 64};
    float *bits[2];
    for (int i = 0; i < 2; i++) {
        struct pair all[ARRAYS];
        setenv("DDP_CUDNN", "1", 1);
        setenv("DDP_CUDNN_WORKSPACE", i == 0 ? "100kB" : "100MB", 1); /* 2 heads, and all */
        cuda_open_cudnn();
        random_seed(1);
        attention_arrays(s, all);
        ck_assert_int_eq(attend(s, all, true, cuda_stream), DDP_OK);
        ck_assert_int_eq(attend_back(s, all, false, cuda_stream), DDP_OK);
        bits[i] = cuda_fetch(DDP_BF16, all[DQKV].device, all[DQKV].count);
        if (i == 1)
            ck_assert(same_bits(bits[0], bits[1], all[DQKV].count));
        for (int j = 0; j < ARRAYS; j++)
            pair_free(&all[j]);
        cuda_close();
    }
    free(bits[0]);
    free(bits[1]);
}
END_TEST

/* What a layer of 64 x 1024, 12 heads takes, and edges. */
static const struct {
    int64_t batch, heads, length;
    double room;
    int pieces;
} cuts[] = {
    {64, 12, 1024, 64 * 0x1p20, 32},
    {64, 12, 1024, 256 * 0x1p20, 7},
    {64, 12, 1024, 512 * 0x1p20, 4},
    {64, 12, 1024, 1.7 * 0x1p30, 1},
    {3, 12, 1024, 0x1p20, 0},
    {3, 12, 1024, 2.5e6, 36},
    {1, 1, 1, 1e6, 1},
    {7, 5, 100, 2 * 0x1p20, 1},
    {7, 5, 100, 3 * 33700.0, 35},
    {7, 6, 100, 3 * 33700.0, 14},
    {7, 6, 100, 12 * 33700.0, 4},
};

/* Pieces cover each head once and fit their room. */
START_TEST(test_pieces)
{
    const struct ddp_attention_sizes s = {cuts[_i].batch, cuts[_i].heads, cuts[_i].length};
    const size_t room = (size_t)cuts[_i].room;
    int64_t covered = 0;
    int pieces = 0;
    struct ddp_attention_piece piece = ddp_attention_first_piece(&s, room);
    for (; piece.heads > 0 && piece.batch < s.batch; piece = ddp_attention_next_piece(&s, piece)) {
        ck_assert_int_eq(piece.batch * s.heads + piece.head, covered);
        ck_assert(piece.batches == 1 || piece.heads == s.heads);
        ck_assert_int_le(
            ddp_attention_plan_bytes(&s, &piece) + ddp_attention_sums_bytes(&s, &piece), room);
        covered += piece.batches * piece.heads;
        pieces++;
    }
    ck_assert_int_eq(pieces, cuts[_i].pieces);
    ck_assert_int_eq(covered, pieces ? s.batch * s.heads : 0);
}
END_TEST

/* --- convolution ---------------------------------------------------------------------------- */

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
    pair_near("conv2d y", &c.all[CY], 1e-4);
    pair_send(&c.all[CY]); /* the same signs on both sides */
    ck_assert_int_eq(conv_backward(&c, stream), DDP_OK);
    ck_assert_int_eq(conv_backward(&c, NULL), DDP_OK);
    pair_near("conv2d dx", &c.all[DX], 1e-3);
    expect_near_share("conv2d dweight", &c.all[DWEIGHT], 0x1p-8); /* rounded to bf16 */
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
    {"80907", NULL, "cuDNN is not used: version 80907 is too old"},
    {"91000", NULL, "cuDNN is not used: version 91000 is too old, or has known errors"},
    {"91900", "cudnnCreate:1", "cuDNN is not used: CUDNN_STATUS_INTERNAL_ERROR"},
    {"91900", "cudnnSetStream:1", "cuDNN is not used: CUDNN_STATUS_INTERNAL_ERROR"},
    {"91900", NULL, "attention backward: not done by cuDNN, which has no deterministic plan"},
    {"91900", NULL, "conv2d backward: not done by cuDNN, which has no deterministic plan"},
    {"91900", "cudnnBackendCreateDescriptor:1", "attention: not done by cuDNN, which rejects"},
    {"91900", "cudnnBackendCreateDescriptor:40", "attention: not done by cuDNN, which rejects"},
    {"91900", "cudnnBackendSetAttribute:1", "attention: not done by cuDNN, which rejects a tensor"},
    {"91900", "cudnnBackendSetAttribute:100", "attention: not done by cuDNN, which rejects"},
    {"91900", "cudnnBackendFinalize:1", "attention: not done by cuDNN, which rejects a tensor"},
    {"91900", "cudnnBackendFinalize:34", "attention: not done by cuDNN, which rejects"},
    {"91900", "cudnnBackendGetAttribute:1", "attention backward: not done by cuDNN"},
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
    check_attention(attentions[3], cuda_stream, false);
    check_conv(&convolutions[2], 0, cuda_stream);
    cuda_close();
    expect_said(file, own, refusals[_i].said);
}
END_TEST

void cuda_cudnn_cases(Suite *suite)
{
    tcase_add_loop_test(test_case(suite, "cudnn pieces", 30), test_pieces, 0,
                        sizeof cuts / sizeof *cuts);
    if (cuda_test_simulated()) { /* has nothing to compute with */
        TCase *tc = test_case(suite, "cudnn refuses", 120);
        tcase_add_loop_test(tc, test_refusals, 0, REFUSALS);
        return;
    }
    TCase *tc = test_case(suite, "cudnn", 120);
    tcase_add_checked_fixture(tc, open_both, close_both);
    tcase_add_loop_test(tc, test_attention, 0, ATTENTIONS);
    tcase_add_test(tc, test_attention_mixed);
    tcase_add_loop_test(tc, test_conv2d, 0, CONVOLUTIONS);
    tcase_add_test(test_case(suite, "cudnn pieces give the same bits", 120), test_attention_pieces);
}
