/* SPDX-License-Identifier: MIT
 *
 * See linear_check.h. */
#include "config.h"

#include "kernels/linear_check.h"

#include "core/log.h"
#include "core/memory.h"

#define ALIGN 64

static enum ddp_status check_stride(int64_t stride, int64_t out, enum ddp_activation activation,
                                    enum ddp_dtype dtype)
{
    if (stride == 0 || stride == out ||
        (stride > out && dtype == DDP_BF16 && activation == DDP_ACTIVATION_NONE))
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID, "linear: rows of %lld elements, %lld apart", (long long)out,
                    (long long)stride);
}

static enum ddp_status check_shape(int64_t rows, int64_t in, int64_t out,
                                   enum ddp_activation activation, enum ddp_dtype compute,
                                   enum ddp_dtype dtype)
{
    if (rows < 0 || in < 0 || out < 0)
        return ddp_fail(DDP_ERR_INVALID, "linear: negative size (%lld rows, %lld in, %lld out)",
                        (long long)rows, (long long)in, (long long)out);
    if ((unsigned)activation > DDP_ACTIVATION_GELU_TANH)
        return ddp_fail(DDP_ERR_INVALID, "linear: unknown activation %d", (int)activation);
    if (compute != DDP_F32 && compute != DDP_BF16)
        return ddp_fail(DDP_ERR_INVALID, "linear: computes in f32 or bf16, not dtype %d",
                        (int)compute);
    if (dtype != DDP_F32 && (dtype != DDP_BF16 || compute != DDP_BF16))
        return ddp_fail(DDP_ERR_INVALID, "linear: dtype %d with products of dtype %d", (int)dtype,
                        (int)compute);
    return DDP_OK;
}

static size_t part_bytes(int64_t count)
{
    return ddp_align_up((size_t)count * sizeof(uint16_t), ALIGN);
}

size_t ddp_linear_scratch_bytes(int64_t rows, int64_t in, int64_t out, enum ddp_dtype compute,
                                enum ddp_dtype dtype, bool has_weight_bf16)
{
    if (compute != DDP_BF16 || rows < 0 || in < 0 || out < 0)
        return 0;
    return (dtype == DDP_BF16 ? 0 : part_bytes(rows * in) + part_bytes(rows * out)) +
           (has_weight_bf16 ? 0 : part_bytes(in * out));
}

struct ddp_linear_rounded ddp_linear_rounded_in(void *scratch, int64_t rows, int64_t in,
                                                int64_t out, enum ddp_dtype dtype)
{
    const size_t x_bytes = dtype == DDP_BF16 ? 0 : part_bytes(rows * in);
    const size_t dy_bytes = dtype == DDP_BF16 ? 0 : part_bytes(rows * out);
    char *memory = scratch;
    return (struct ddp_linear_rounded){
        .x = (uint16_t *)(void *)memory,
        .dy = (uint16_t *)(void *)(memory + x_bytes),
        .weight = (uint16_t *)(void *)(memory + x_bytes + dy_bytes),
    };
}

enum ddp_status ddp_linear_check_forward(const struct ddp_linear_forward *args)
{
    enum ddp_status status =
        check_shape(args->rows, args->in, args->out, args->activation, args->compute, args->dtype);
    if (status == DDP_OK)
        status = check_stride(args->y_stride, args->out, args->activation, args->dtype);
    if (status)
        return status;
    const bool outputs = args->rows > 0 && args->out > 0, inputs = outputs && args->in > 0;
    const bool bf16 = args->compute == DDP_BF16;
    const bool weight = args->weight || (bf16 && args->weight_bf16);
    if ((inputs && (!args->x || !weight)) || (outputs && !args->y))
        return ddp_fail(DDP_ERR_INVALID, "linear: x, weight or y is NULL");
    if (inputs && !args->scratch &&
        ddp_linear_scratch_bytes(args->rows, args->in, args->out, args->compute, args->dtype,
                                 args->weight_bf16) > 0)
        return ddp_fail(DDP_ERR_INVALID, "linear: bf16 without scratch memory");
    return DDP_OK;
}

enum ddp_status ddp_linear_check_backward(const struct ddp_linear_backward *args)
{
    enum ddp_status status =
        check_shape(args->rows, args->in, args->out, args->activation, args->compute, args->dtype);
    if (status == DDP_OK)
        status = check_stride(args->y_stride, args->out, args->activation, args->dtype);
    if (status)
        return status;
    const bool outputs = args->rows > 0 && args->out > 0, inputs = outputs && args->in > 0;
    const bool bf16 = args->compute == DDP_BF16;
    bool missing = outputs && !args->dy;
    missing |= outputs && args->activation == DDP_ACTIVATION_RELU && !args->y;
    missing |= outputs && ddp_linear_is_gelu(args->activation) && !args->pre;
    missing |= inputs && args->dweight && !args->x;
    missing |= inputs && args->dx && !args->weight && !(bf16 && args->weight_bf16);
    if (missing)
        return ddp_fail(DDP_ERR_INVALID, "linear backward: dy, y, pre, x or weight is NULL");
    if (inputs && !args->scratch &&
        ddp_linear_scratch_bytes(args->rows, args->in, args->out, args->compute, args->dtype,
                                 args->weight_bf16) > 0)
        return ddp_fail(DDP_ERR_INVALID, "linear backward: bf16 without scratch memory");
    return DDP_OK;
}
