/* SPDX-License-Identifier: MIT
 *
 * Linear layer, its products added in double precision; see linear.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"

#include <math.h>

/* An operand of a product: rounded to the type that it is computed in. */
static double operand(float value, enum ddp_dtype compute)
{
    return (double)(compute == DDP_BF16  ? ddp_bf16_to_f32(ddp_bf16_of(value))
                    : compute == DDP_F16 ? ddp_f16_to_f32(ddp_f16_of(value))
                                         : value);
}

static double weight_at(const float *weight, const uint16_t *weight_bf16, enum ddp_dtype compute,
                        int64_t at)
{
    if (weight_bf16 && (compute == DDP_BF16 || !weight))
        return operand(ddp_bf16_to_f32(weight_bf16[at]), compute);
    return operand(weight[at], compute);
}

static double activate_reference(double z, enum ddp_activation activation)
{
    const double root = sqrt(2 / acos(-1.0));
    switch (activation) {
    case DDP_ACTIVATION_NONE:
        break;
    case DDP_ACTIVATION_RELU:
        return z < 0 ? 0 : z;
    case DDP_ACTIVATION_GELU:
        return 0.5 * z * (1 + erf(z * sqrt(0.5)));
    case DDP_ACTIVATION_GELU_TANH:
        return 0.5 * z * (1 + tanh(root * (z + 0.044715 * z * z * z)));
    }
    return z;
}

enum ddp_status ddp_linear_forward_reference(const struct ddp_linear_forward *args, void *stream)
{
    const float *x = args->x;
    float *y = args->y, *pre = args->pre;
    (void)stream;
    enum ddp_status status = ddp_linear_check_forward(args);
    if (status)
        return status;
    for (int64_t at = 0; at < args->rows * args->out; at++) {
        const int64_t row = at / args->out, o = at % args->out;
        double sum = 0;
        for (int64_t c = 0; c < args->in; c++)
            sum += operand(x[row * args->in + c], args->compute) *
                   weight_at(args->weight, args->weight_bf16, args->compute, o * args->in + c);
        const float z = (float)sum + (args->bias ? args->bias[o] : 0);
        if (ddp_linear_is_gelu(args->activation) && pre)
            pre[at] = z;
        y[at] = (float)activate_reference((double)z, args->activation);
    }
    return DDP_OK;
}

static double derivative_reference(double z, enum ddp_activation activation)
{
    const double pi = acos(-1.0), root = sqrt(2 / pi);
    if (activation == DDP_ACTIVATION_GELU)
        return 0.5 * (1 + erf(z * sqrt(0.5))) + z * exp(-0.5 * z * z) / sqrt(2 * pi);
    const double t = tanh(root * (z + 0.044715 * z * z * z));
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * root * (1 + 3 * 0.044715 * z * z);
}

/* dW = dz^T x and dx = dz W; dz stands in dy. */
static void products(const struct ddp_linear_backward *args)
{
    const int64_t rows = args->rows, in = args->in, out = args->out;
    const float *x = args->x, *dz = args->dy;
    float *dx = args->dx;
    for (int64_t at = 0; args->dweight && at < out * in; at++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++)
            sum += operand(dz[row * out + at / in], args->compute) *
                   operand(x[row * in + at % in], args->compute);
        args->dweight[at] =
            (float)(sum + (args->accumulate_dweight ? (double)args->dweight[at] : 0));
    }
    for (int64_t at = 0; dx && at < rows * in; at++) {
        double sum = 0;
        for (int64_t o = 0; o < out; o++)
            sum += operand(dz[at / in * out + o], args->compute) *
                   weight_at(args->weight, args->weight_bf16, args->compute, o * in + at % in);
        dx[at] = (float)(sum + (args->accumulate_dx ? (double)dx[at] : 0));
    }
}

enum ddp_status ddp_linear_backward_reference(const struct ddp_linear_backward *args, void *stream)
{
    const float *y = args->y;
    const float *pre = args->pre;
    float *dy = args->dy;
    (void)stream;
    enum ddp_status status = ddp_linear_check_backward(args);
    if (status)
        return status;
    for (int64_t j = 0; j < args->out; j++) {
        float sum = 0;
        for (int64_t i = 0; i < args->rows; i++) {
            int64_t at = i * args->out + j;
            if (args->activation == DDP_ACTIVATION_RELU && !(y[at] > 0))
                dy[at] = 0;
            if (ddp_linear_is_gelu(args->activation))
                dy[at] = (float)((double)dy[at] *
                                 derivative_reference((double)pre[at], args->activation));
            sum += dy[at];
        }
        if (args->dbias)
            args->dbias[j] = args->accumulate_dbias ? args->dbias[j] + sum : sum;
    }
    products(args);
    return DDP_OK;
}
