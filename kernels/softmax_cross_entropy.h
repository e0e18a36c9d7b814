/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy of class labels, as torch.nn.functional.cross_entropy (mean over rows),
 * fused with its gradient, which may be written over the logits. */
#ifndef DDP_KERNELS_SOFTMAX_CROSS_ENTROPY_H
#define DDP_KERNELS_SOFTMAX_CROSS_ENTROPY_H

#include "ddp.h"

#include "core/label.h"
#include "kernels/check.h"

/* The mean is over the rows that count: those whose label is not DDP_LABEL_NONE. The others have
 * no loss, and zeros for a gradient. With a `divisor` the sums are divided by that instead: parts
 * of a batch then add up, whatever each of them counts. */
struct ddp_softmax_cross_entropy {
    int64_t rows, classes; /* B, V; V >= 1 */
    int64_t divisor;       /* 0: the number of rows that count */
    int64_t stride;        /* from row to row of logits and dlogits: V, or 0, which is V, or more:
                              what lies between is not read, and zero in dlogits */
    enum ddp_dtype dtype;  /* of logits and dlogits: DDP_F32 or DDP_BF16 */
    const void *logits;    /* (B,V) */
    const int32_t *labels; /* (B) each 0 .. V-1 or NONE, else DDP_ERR_INVALID names the row */
    float *loss;           /* (1) out: mean of -log softmax(logits)[label]; 0 when no row counts */
    float *uncounted;      /* (1) out: the rows that do not count; NULL: not needed */
    bool accumulate_loss;  /* add to what is in loss and uncounted */
    int64_t first_row;     /* the number of row 0 in errors: in a chunk, rows come before it */
    void *dlogits;         /* (B,V) out: gradient of loss; may equal logits; NULL: not needed */
    int32_t *predictions;  /* (B) out: the first class with the largest logit; NULL: not needed */
    const float *dloss;    /* (1) the gradient of the loss itself; NULL: 1 */
    float *row_losses;     /* (B) out: -log softmax(logits)[label], 0 of NONE; NULL: not needed */
    const float *row_weights; /* (B) factors of the rows' gradients; NULL: 1 */
    /* Where the labels are, without row_losses and row_weights; NULL: they are what they are. */
    const struct ddp_soft_labels *soft;
};

/* All but the labels themselves, which may be on a device. */
static inline enum ddp_status
ddp_softmax_cross_entropy_check(const struct ddp_softmax_cross_entropy *args)
{
    if (args->rows < 0 || args->classes < 1 || args->classes > INT32_MAX || args->divisor < 0 ||
        args->stride > INT32_MAX || (args->stride != 0 && args->stride < args->classes) ||
        !args->loss || (args->rows > 0 && (!args->logits || !args->labels)))
        return ddp_fail(DDP_ERR_INVALID,
                        "softmax cross-entropy: bad arguments (%lld rows of %lld classes)",
                        (long long)args->rows, (long long)args->classes);
    return ddp_check_dtype("softmax cross-entropy", args->dtype);
}

static inline int64_t ddp_softmax_cross_entropy_stride(const struct ddp_softmax_cross_entropy *args)
{
    return args->stride > 0 ? args->stride : args->classes;
}

enum ddp_status ddp_softmax_cross_entropy(const struct ddp_softmax_cross_entropy *args,
                                          void *stream);

#endif
