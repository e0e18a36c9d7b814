/* SPDX-License-Identifier: MIT
 *
 * y = activation(x W^T + b), as torch.nn.Linear followed by its activation, and its gradients. */
#ifndef DDP_KERNELS_LINEAR_H
#define DDP_KERNELS_LINEAR_H

#include "ddp.h"

#include "core/blocks.h"
#include "kernels/check.h"

/* With compute DDP_BF16 the operands of each product are rounded to bf16 (nearest, ties to even)
 * and the products added in float32. The rounded weights may be handed in as weight_bf16, the same
 * values as `weight`; else they are made in the scratch memory. A dtype of DDP_BF16 goes with this
 * only: its tensors are operands as they are, results and the bias that is added to them are
 * rounded once, and what is added to dweight and dbias stays float32.
 *
 * With compute DDP_F16 operands are rounded to float16; all of them are made in the scratch memory,
 * on the CPU as float32. Those from 65520 on become infinite.
 *
 * With compute DDP_F32 and `weight` NULL the weights are those of weight_bf16, taken as float32;
 * kernels without reads_bf16_weights unpack them into the scratch memory, panel by panel. */

/* Weights that lie in blocks. On the CPU they are unpacked a strip at a time, while a product packs
 * its operands, to float32 or, in bf16 products, rounded to bf16; CUDA unpacks them into the
 * scratch memory: panel by panel for products of float32, else rounded and as a whole. `weight` and
 * `weight_bf16` are NULL then. */
struct ddp_linear_blocks {
    const struct ddp_block *block; /* NULL: they do not */
    const void *values;            /* (O,C) */
    enum ddp_dtype type;           /* of the block, which ddp_linear_gpus_read() on CUDA */
};

static inline bool ddp_linear_gpus_read(enum ddp_dtype type)
{
    return type == DDP_NF4 || type == DDP_NF4_BF16 || type == DDP_Q8_0 || type == DDP_Q4_0;
}

struct ddp_linear_forward {
    int64_t rows, in, out; /* B, C, O */
    enum ddp_activation activation;
    enum ddp_dtype compute;      /* DDP_F32, DDP_BF16 or DDP_F16 */
    enum ddp_dtype dtype;        /* of x, y and pre: DDP_F32 or DDP_BF16 */
    const void *x;               /* (B,C) */
    const float *weight;         /* (O,C), or NULL: those of weight_bf16; not read in a bf16
                                    product that has these */
    const uint16_t *weight_bf16; /* (O,C), or NULL */
    struct ddp_linear_blocks weight_blocks;
    const float *bias;         /* (O), or NULL: none */
    const uint16_t *bias_bf16; /* (O) rounded, which saves a pass with a dtype of DDP_BF16; NULL */
    void *y;                   /* (B,O) out */
    void *pre;     /* (B,O) out: what the activation took, for the backward pass of the two GELUs
                       (other activations leave it alone); NULL: not needed. Not y. */
    void *scratch; /* ddp_linear_scratch_bytes(), aligned to 64; NULL where that is 0 */
    bool rowwise; /* the bits of a row of y depend on that row alone, not on how many there are: for
                      few rows, whose product is bound by the bytes of the weight; float32 only */
};

struct ddp_linear_backward {
    int64_t rows, in, out;
    enum ddp_activation activation;
    enum ddp_dtype compute;
    enum ddp_dtype dtype;        /* of x, y, pre and their gradients: DDP_F32 or DDP_BF16 */
    const void *x;               /* (B,C) the input of forward */
    const void *y;               /* (B,O) the output of forward; read for ReLU only */
    const void *pre;             /* (B,O) read for the GELUs only */
    const float *weight;         /* (O,C), or NULL, as in forward */
    const uint16_t *weight_bf16; /* (O,C), or NULL */
    struct ddp_linear_blocks weight_blocks;
    void *dy; /* (B,O) gradient of y; with an activation overwritten by the gradient before it */
    void *dx; /* (B,C) out, or NULL: not needed */
    float *dweight;          /* (O,C) out, or NULL */
    float *dbias;            /* (O) out, or NULL; rows are added from the first to the last */
    bool accumulate_dx;      /* add to what is in dx; false: overwrite it, whatever it is */
    bool accumulate_dweight; /* likewise */
    bool accumulate_dbias;   /* likewise: the sum over rows is made first, then added */
    void *scratch;           /* as in forward, and the same size */
};

static inline bool ddp_linear_is_gelu(enum ddp_activation activation)
{
    return activation == DDP_ACTIVATION_GELU || activation == DDP_ACTIVATION_GELU_TANH;
}

/* --- scratch memory --- */

static inline size_t ddp_linear_part_bytes(int64_t count, enum ddp_dtype compute)
{
    const size_t element = compute == DDP_F16 ? sizeof(float) : sizeof(uint16_t);
    return ddp_align_up((size_t)count * element, 64);
}

/* What either pass needs for a shape: memory for operands that have to be rounded. 0 for DDP_F32,
 * and with a dtype of DDP_BF16 and weight_bf16. */
static inline size_t ddp_linear_scratch_bytes(int64_t rows, int64_t in, int64_t out,
                                              enum ddp_dtype compute, enum ddp_dtype dtype,
                                              bool has_weight_bf16)
{
    if (compute == DDP_F32 || rows < 0 || in < 0 || out < 0)
        return 0;
    return (dtype == DDP_BF16 ? 0
                              : ddp_linear_part_bytes(rows * in, compute) +
                                    ddp_linear_part_bytes(rows * out, compute)) +
           (has_weight_bf16 && compute == DDP_BF16 ? 0 : ddp_linear_part_bytes(in * out, compute));
}

/* Weights of bf16 in float32 products: elements that are unpacked at once. A panel has so many
 * outputs or, going back, inputs at least, or all of them. */
#define DDP_LINEAR_PANEL         ((int64_t)1 << 22)
#define DDP_LINEAR_PANEL_COLUMNS 384

static inline int64_t ddp_linear_panel_count(int64_t in, int64_t out)
{
    const int64_t whole = in * out, longer = in > out ? in : out;
    const int64_t least = longer * DDP_LINEAR_PANEL_COLUMNS;
    const int64_t most = least > DDP_LINEAR_PANEL ? least : DDP_LINEAR_PANEL;
    return whole < most ? whole : most;
}

/* The scratch memory that these need in either pass, in the place of ddp_linear_scratch_bytes(),
 * where kernels do not read them as they are. */
static inline size_t ddp_linear_unpack_bytes(int64_t in, int64_t out)
{
    return ddp_align_up((size_t)ddp_linear_panel_count(in, out) * sizeof(float), 64);
}

/* Where rounded operands lie in the scratch memory: as bf16, or for DDP_F16 as float. */
struct ddp_linear_rounded {
    void *x, *dy, *weight;
};

static inline struct ddp_linear_rounded ddp_linear_rounded_in(void *memory, int64_t rows,
                                                              int64_t in, int64_t out,
                                                              enum ddp_dtype compute,
                                                              enum ddp_dtype dtype)
{
    const size_t x_bytes = dtype == DDP_BF16 ? 0 : ddp_linear_part_bytes(rows * in, compute);
    const size_t dy_bytes = dtype == DDP_BF16 ? 0 : ddp_linear_part_bytes(rows * out, compute);
    char *at = (char *)memory;
    struct ddp_linear_rounded rounded;
    rounded.x = at;
    rounded.dy = at + x_bytes;
    rounded.weight = at + x_bytes + dy_bytes;
    return rounded;
}

/* --- checks --- */

static inline enum ddp_status ddp_linear_check_shape(int64_t rows, int64_t in, int64_t out,
                                                     enum ddp_activation activation,
                                                     enum ddp_dtype compute, enum ddp_dtype dtype)
{
    if (rows < 0 || in < 0 || out < 0)
        return ddp_fail(DDP_ERR_INVALID, "linear: negative size (%lld rows, %lld in, %lld out)",
                        (long long)rows, (long long)in, (long long)out);
    if ((unsigned)activation > DDP_ACTIVATION_GELU_TANH)
        return ddp_fail(DDP_ERR_INVALID, "linear: unknown activation %d", (int)activation);
    if (compute != DDP_F32 && compute != DDP_BF16 && compute != DDP_F16)
        return ddp_fail(DDP_ERR_INVALID, "linear: computes in f32, bf16 or f16, not dtype %d",
                        (int)compute);
    if (dtype != DDP_F32 && (dtype != DDP_BF16 || compute != DDP_BF16))
        return ddp_fail(DDP_ERR_INVALID, "linear: dtype %d with products of dtype %d", (int)dtype,
                        (int)compute);
    return ddp_check_dtype("linear", dtype);
}

static inline enum ddp_status ddp_linear_check_forward(const struct ddp_linear_forward *args)
{
    enum ddp_status status = ddp_linear_check_shape(args->rows, args->in, args->out,
                                                    args->activation, args->compute, args->dtype);
    if (status)
        return status;
    const bool outputs = args->rows > 0 && args->out > 0, inputs = outputs && args->in > 0;
    if ((inputs &&
         (!args->x || !(args->weight || args->weight_bf16 || args->weight_blocks.block))) ||
        (outputs && !args->y))
        return ddp_fail(DDP_ERR_INVALID, "linear: x, weight or y is NULL");
    if (inputs && !args->scratch &&
        ddp_linear_scratch_bytes(args->rows, args->in, args->out, args->compute, args->dtype,
                                 args->weight_bf16 || args->weight_blocks.block) > 0)
        return ddp_fail(DDP_ERR_INVALID, "linear: 16 bits without scratch memory");
    if (args->rowwise && args->compute != DDP_F32)
        return ddp_fail(DDP_ERR_INVALID, "linear: row by row in float32 only");
    return DDP_OK;
}

static inline enum ddp_status ddp_linear_check_backward(const struct ddp_linear_backward *args)
{
    enum ddp_status status = ddp_linear_check_shape(args->rows, args->in, args->out,
                                                    args->activation, args->compute, args->dtype);
    if (status)
        return status;
    const bool outputs = args->rows > 0 && args->out > 0, inputs = outputs && args->in > 0;
    bool missing = outputs && !args->dy;
    missing |= outputs && args->activation == DDP_ACTIVATION_RELU && !args->y;
    missing |= outputs && ddp_linear_is_gelu(args->activation) && !args->pre;
    missing |= inputs && args->dweight && !args->x;
    missing |=
        inputs && args->dx && !args->weight && !args->weight_bf16 && !args->weight_blocks.block;
    if (missing)
        return ddp_fail(DDP_ERR_INVALID, "linear backward: dy, y, pre, x or weight is NULL");
    if (inputs && !args->scratch &&
        ddp_linear_scratch_bytes(args->rows, args->in, args->out, args->compute, args->dtype,
                                 args->weight_bf16 || args->weight_blocks.block) > 0)
        return ddp_fail(DDP_ERR_INVALID, "linear backward: 16 bits without scratch memory");
    return DDP_OK;
}

enum ddp_status ddp_linear_forward(const struct ddp_linear_forward *args, void *stream);
enum ddp_status ddp_linear_backward(const struct ddp_linear_backward *args, void *stream);

#endif
