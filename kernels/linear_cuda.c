/* SPDX-License-Identifier: MIT
 *
 * Linear layer on a CUDA device; see linear.h. The products are cublasLt's (cuda/gemm.c), which are
 * bound by arithmetic and do the bias on the way; what stands around them is one pass over memory
 * each (cuda/columns.cu), bound by bytes: activations, and, going back, the activation's gradient
 * and the bias's sum together. Float32 tensors of a bf16 product are rounded in passes too, x and
 * the weight alone, dy in that of its gradient; tensors of bf16 are operands as they are.
 *
 * cublasLt's own GELU is taken for bf16 operands only: its tanh may be an approximation, and
 * float32 promises PyTorch's numerics. Its ReLU is not taken: it is documented as max(x, 0), which
 * would turn NaN into 0, and diverged training must be seen. */
#include "config.h"

#include "kernels/linear.h"
#include "kernels/bf16.h"

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/gemm.h"
#include "kernels/kernels_cuda.h"

static enum ddp_status round_to(void *to, const float *from, int64_t count, enum ddp_dtype compute,
                                void *stream)
{
    const struct ddp_to_bf16 bf16 = {.count = count, .x = from, .y = to};
    const struct ddp_round_f16 f16 = {.count = count, .x = from, .y = to};
    return compute == DDP_F16 ? ddp_cuda_round_f16(&f16, stream)
           : count > 0        ? ddp_cuda_to_bf16(&bf16, stream)
                              : DDP_OK;
}

/* The weight as a product of 16 bits takes it.
 *   made  scratch memory for it */
static enum ddp_status round_weight(const float *weight, const uint16_t *weight_bf16,
                                    const struct ddp_linear_blocks *blocks, int64_t count,
                                    enum ddp_dtype compute, void *made, const void **rounded,
                                    void *stream)
{
    if (blocks->block) {
        const struct ddp_cuda_blocks args = {blocks->type, blocks->values, 0, count, compute, made};
        *rounded = made;
        return ddp_cuda_unpack(&args, stream);
    }
    const struct ddp_round_f16 narrow = {.count = count, .x_bf16 = weight_bf16, .y = made};
    *rounded = compute == DDP_BF16 && weight_bf16 ? weight_bf16 : made;
    if (compute == DDP_BF16 && weight_bf16)
        return DDP_OK;
    return weight ? round_to(made, weight, count, compute, stream)
                  : ddp_cuda_round_f16(&narrow, stream);
}

/* --- weights of bf16, or in blocks, in products of float32 ------------------------------------ */

/* Outputs [begin, end), whose weights are unpacked. */
struct panel {
    int64_t begin, end;
    const float *weight;
};

/* The next panel: rows of the weight, which lie one behind the other. */
static enum ddp_status next_panel(struct panel *panel, const uint16_t *weight,
                                  const struct ddp_linear_blocks *blocks, float *scratch,
                                  int64_t in, int64_t out, struct ddp_cuda *cuda)
{
    const int64_t most = ddp_linear_panel_count(in, out) / in;
    if (!scratch)
        return ddp_fail(DDP_ERR_INVALID, "linear: packed weights without scratch memory");
    panel->begin = panel->end;
    panel->end = out - panel->begin < most ? out : panel->begin + most;
    panel->weight = scratch;
    const int64_t count = (panel->end - panel->begin) * in;
    if (blocks->block) {
        const struct ddp_cuda_blocks args = {blocks->type, blocks->values, panel->begin * in,
                                             count,        DDP_F32,        scratch};
        return ddp_cuda_unpack(&args, cuda);
    }
    const struct ddp_from_bf16 args = {
        .count = count, .x = weight + panel->begin * in, .y = scratch};
    return ddp_cuda_from_bf16(&args, cuda);
}

/* y, some columns at a time. */
static enum ddp_status forward_panels(const struct ddp_linear_forward *args,
                                      struct ddp_cuda_gemm product, struct ddp_cuda *cuda)
{
    struct panel panel = {0};
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && panel.end < args->out) {
        status = next_panel(&panel, args->weight_bf16, &args->weight_blocks, args->scratch,
                            args->in, args->out, cuda);
        product.n = panel.end - panel.begin;
        product.b = panel.weight;
        product.c = (float *)args->y + panel.begin;
        product.bias = args->bias ? args->bias + panel.begin : NULL;
        if (status == DDP_OK)
            status = args->rowwise ? ddp_cuda_gemm_rows(&product, cuda)
                                   : ddp_cuda_gemm(&product, cuda, NULL);
    }
    return status;
}

/* dx, the sum over the panels. */
static enum ddp_status backward_panels(const struct ddp_linear_backward *args,
                                       struct ddp_cuda_gemm dx, struct ddp_cuda *cuda)
{
    struct panel panel = {0};
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && panel.end < args->out) {
        status = next_panel(&panel, args->weight_bf16, &args->weight_blocks, args->scratch,
                            args->in, args->out, cuda);
        dx.k = panel.end - panel.begin;
        dx.a = (const float *)args->dy + panel.begin;
        dx.b = panel.weight;
        dx.add = args->accumulate_dx || panel.begin > 0;
        if (status == DDP_OK)
            status = ddp_cuda_gemm(&dx, cuda, NULL);
    }
    return status;
}

/* --- forward -------------------------------------------------------------------------------- */

/* The operands in 16 bits. */
static enum ddp_status round_forward(const struct ddp_linear_forward *args,
                                     struct ddp_cuda_gemm *product, struct ddp_cuda *cuda)
{
    struct ddp_linear_rounded rounded = {0};
    if (args->scratch)
        rounded = ddp_linear_rounded_in(args->scratch, args->rows, args->in, args->out,
                                        args->compute, args->dtype);
    enum ddp_status status = DDP_OK;
    if (args->dtype != DDP_BF16) {
        product->a = rounded.x;
        status = round_to(rounded.x, args->x, args->rows * args->in, args->compute, cuda);
    }
    return status == DDP_OK ? round_weight(args->weight, args->weight_bf16, &args->weight_blocks,
                                           args->out * args->in, args->compute, rounded.weight,
                                           &product->b, cuda)
                            : status;
}

/* The bias as it is added: of the type of the result. */
static enum ddp_status round_bias(const struct ddp_linear_forward *args,
                                  struct ddp_cuda_gemm *product, struct ddp_cuda *cuda)
{
    product->bias = args->bias;
    if (!args->bias || args->dtype != DDP_BF16)
        return DDP_OK;
    product->bias = args->bias_bf16;
    if (args->bias_bf16)
        return DDP_OK;
    if ((size_t)args->out * sizeof(uint16_t) > DDP_CUDA_SPARE_BYTES)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "linear: a bias of %lld elements is too large",
                        (long long)args->out);
    product->bias = ddp_cuda_spare(cuda);
    return round_to(ddp_cuda_spare(cuda), args->bias, args->out, DDP_BF16, cuda);
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
        .result = args->dtype,
        .c = args->y,
        .lda = args->in,
        .ldb = args->in,
        .ldc = args->out,
        .gelu = args->activation == DDP_ACTIVATION_GELU_TANH && args->compute == DDP_BF16,
        .pre = args->pre,
    };
    status = round_bias(args, &product, cuda);
    if (status == DDP_OK && args->compute != DDP_F32 && args->in > 0)
        status = round_forward(args, &product, cuda);
    if (status == DDP_OK && args->compute == DDP_F32 && !args->weight && args->in > 0)
        status = forward_panels(args, product, cuda);
    else if (status == DDP_OK)
        status = args->rowwise ? ddp_cuda_gemm_rows(&product, cuda)
                               : ddp_cuda_gemm(&product, cuda, &activated);
    if (status || activated || args->activation == DDP_ACTIVATION_NONE)
        return status;
    return ddp_cuda_activate(args->y, args->pre, args->rows * args->out, args->activation,
                             args->dtype, cuda);
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
        .result = args->dtype,
        .c = args->dx,
        .lda = args->out,
        .ldb = args->in,
        .ldc = args->in,
        .add = args->accumulate_dx,
    };
    enum ddp_status status = DDP_OK;
    if (args->dweight)
        status = ddp_cuda_gemm(&dweight, cuda, NULL);
    if (args->dx && status == DDP_OK && !weight && args->rows > 0 && args->out > 0 && args->in > 0)
        status = backward_panels(args, dx, cuda);
    else if (args->dx && status == DDP_OK)
        status = ddp_cuda_gemm(&dx, cuda, NULL);
    return status;
}

/* dz in place, rounded where the products need another type, and its sums. */
static enum ddp_status gradient(const struct ddp_linear_backward *args, void *rounded,
                                struct ddp_cuda *cuda)
{
    const bool active = args->activation != DDP_ACTIVATION_NONE;
    const struct ddp_cuda_columns columns = {
        .rows = args->rows,
        .columns = args->out,
        .activation = args->activation,
        .dtype = args->dtype,
        .dy = args->dy,
        .kept = args->activation == DDP_ACTIVATION_RELU ? args->y : args->pre,
        .dz = active ? args->dy : NULL,
        .dz_16 = rounded,
        .type = args->compute,
        .sums = args->dbias,
        .add = args->accumulate_dbias,
    };
    return active || rounded || args->dbias ? ddp_cuda_columns(&columns, cuda) : DDP_OK;
}

enum ddp_status ddp_cuda_linear_backward(const struct ddp_linear_backward *args, void *stream)
{
    enum ddp_status status = ddp_linear_check_backward(args);
    if (status)
        return status;
    struct ddp_cuda *cuda = stream;
    const bool narrow = args->compute != DDP_F32, elements = args->rows > 0 && args->out > 0;
    const bool products = elements && args->in > 0 && (args->dweight || args->dx);
    const bool round = narrow && products && args->dtype != DDP_BF16;
    struct ddp_linear_rounded rounded = {0};
    if (args->scratch)
        rounded = ddp_linear_rounded_in(args->scratch, args->rows, args->in, args->out,
                                        args->compute, args->dtype);
    const void *dz = args->dy, *x = args->x, *weight = args->weight;
    status = gradient(args, round ? rounded.dy : NULL, cuda);
    if (round) {
        dz = rounded.dy;
        x = rounded.x;
        if (args->dweight && status == DDP_OK)
            status = round_to(rounded.x, args->x, args->rows * args->in, args->compute, cuda);
    }
    if (narrow && products && args->dx && status == DDP_OK)
        status = round_weight(args->weight, args->weight_bf16, &args->weight_blocks,
                              args->out * args->in, args->compute, rounded.weight, &weight, cuda);
    return status == DDP_OK ? backward_products(args, dz, x, weight, cuda) : status;
}
