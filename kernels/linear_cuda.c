/* SPDX-License-Identifier: MIT
 *
 * Linear layer on a CUDA device; see linear.h. The products are cublasLt's (cuda_gemm.c), which are
 * bound by arithmetic and do the bias on the way; what stands around them is one pass over memory
 * each (cuda_columns.cu), bound by bytes: rounding of operands, activations, and, going back, the
 * activation's gradient, its rounding and the bias's sum together.
 *
 * cublasLt's own GELU is taken for bf16 operands only: its tanh may be an approximation, and
 * float32 promises PyTorch's numerics. Its ReLU is not taken: it is documented as max(x, 0), which
 * would turn NaN into 0, and diverged training must be seen. */
#include "config.h"

#include "kernels/linear.h"

#include "kernels/cuda_columns.h"
#include "kernels/cuda_gemm.h"
#include "kernels/kernels_cuda.h"
#include "kernels/linear_check.h"

static enum ddp_status round_to(uint16_t *to, const float *from, int64_t count, void *stream)
{
    const struct ddp_to_bf16 args = {.count = count, .x = from, .y = to};
    return count > 0 ? ddp_cuda_to_bf16(&args, stream) : DDP_OK;
}

/* --- forward -------------------------------------------------------------------------------- */

static enum ddp_status round_forward(const struct ddp_linear_forward *args,
                                     struct ddp_cuda_gemm *product, struct ddp_cuda *cuda)
{
    const struct ddp_linear_rounded rounded =
        ddp_linear_rounded_in(args->scratch, args->rows, args->in, args->out, args->dtype);
    product->a = rounded.x;
    product->b = args->weight_bf16 ? args->weight_bf16 : rounded.weight;
    enum ddp_status status = round_to(rounded.x, args->x, args->rows * args->in, cuda);
    if (status == DDP_OK && !args->weight_bf16)
        status = round_to(rounded.weight, args->weight, args->out * args->in, cuda);
    return status;
}

enum ddp_status ddp_cuda_linear_forward(const struct ddp_linear_forward *args, void *stream)
{
    enum ddp_status status = ddp_linear_check_forward(args);
    if (status || args->rows == 0 || args->out == 0)
        return status;
    struct ddp_cuda *cuda = stream;
    bool activated = false;
    struct ddp_cuda_gemm product = {
        .transpose_b = true,
        .m = args->rows,
        .n = args->out,
        .k = args->in,
        .type = args->compute,
        .a = args->x,
        .b = args->weight,
        .c = args->y,
        .lda = args->in,
        .ldb = args->in,
        .ldc = args->out,
        .bias = args->bias,
        .gelu = args->activation == DDP_ACTIVATION_GELU_TANH && args->compute == DDP_BF16,
        .pre = args->pre,
    };
    if (args->compute == DDP_BF16 && args->in > 0)
        status = round_forward(args, &product, cuda);
    if (status == DDP_OK)
        status = ddp_cuda_gemm(&product, cuda, &activated);
    if (status || activated || args->activation == DDP_ACTIVATION_NONE)
        return status;
    return ddp_cuda_activate(args->y, args->pre, args->rows * args->out, args->activation, cuda);
}

/* --- backward ------------------------------------------------------------------------------- */

/* dW = dz^T x and dx = dz W. */
static enum ddp_status backward_products(const struct ddp_linear_backward *args, const void *dz,
                                         const void *x, const void *weight, struct ddp_cuda *cuda)
{
    const struct ddp_cuda_gemm dweight = {
        .transpose_a = true,
        .m = args->out,
        .n = args->in,
        .k = args->rows,
        .type = args->compute,
        .a = dz,
        .b = x,
        .c = args->dweight,
        .lda = args->out,
        .ldb = args->in,
        .ldc = args->in,
        .add = args->accumulate_dweight,
    };
    const struct ddp_cuda_gemm dx = {
        .m = args->rows,
        .n = args->in,
        .k = args->out,
        .type = args->compute,
        .a = dz,
        .b = weight,
        .c = args->dx,
        .lda = args->out,
        .ldb = args->in,
        .ldc = args->in,
        .add = args->accumulate_dx,
    };
    enum ddp_status status = DDP_OK;
    if (args->dweight)
        status = ddp_cuda_gemm(&dweight, cuda, NULL);
    return args->dx && status == DDP_OK ? ddp_cuda_gemm(&dx, cuda, NULL) : status;
}

enum ddp_status ddp_cuda_linear_backward(const struct ddp_linear_backward *args, void *stream)
{
    enum ddp_status status = ddp_linear_check_backward(args);
    if (status)
        return status;
    struct ddp_cuda *cuda = stream;
    const bool bf16 = args->compute == DDP_BF16, elements = args->rows > 0 && args->out > 0;
    const bool round = bf16 && elements && args->in > 0 && (args->dweight || args->dx);
    struct ddp_linear_rounded rounded = {0};
    if (round)
        rounded =
            ddp_linear_rounded_in(args->scratch, args->rows, args->in, args->out, args->dtype);
    const bool active = args->activation != DDP_ACTIVATION_NONE;
    const struct ddp_cuda_columns columns = {
        .rows = args->rows,
        .columns = args->out,
        .activation = args->activation,
        .dy = args->dy,
        .kept = args->activation == DDP_ACTIVATION_RELU ? args->y : args->pre,
        .dz = active ? args->dy : NULL,
        .dz_bf16 = rounded.dy,
        .sums = args->dbias,
        .add = args->accumulate_dbias,
    };
    if (active || round || args->dbias)
        status = ddp_cuda_columns(&columns, cuda);
    const void *weight = args->weight;
    if (round && args->dweight && status == DDP_OK)
        status = round_to(rounded.x, args->x, args->rows * args->in, cuda);
    if (round && args->dx)
        weight = args->weight_bf16 ? args->weight_bf16 : rounded.weight;
    if (round && args->dx && !args->weight_bf16 && status == DDP_OK)
        status = round_to(rounded.weight, args->weight, args->out * args->in, cuda);
    if (status)
        return status;
    return bf16 ? backward_products(args, rounded.dy, rounded.x, weight, cuda)
                : backward_products(args, args->dy, args->x, weight, cuda);
}
