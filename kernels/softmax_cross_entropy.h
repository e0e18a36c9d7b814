/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy of class labels, as torch.nn.functional.cross_entropy (mean over rows),
 * fused with its gradient, which may be written over the logits. */
#ifndef DDP_KERNELS_SOFTMAX_CROSS_ENTROPY_H
#define DDP_KERNELS_SOFTMAX_CROSS_ENTROPY_H

#include "ddp.h"

struct ddp_softmax_cross_entropy {
    int64_t rows, classes; /* B, V; V >= 1 */
    const float *logits;   /* (B,V) */
    const int32_t *labels; /* (B) each 0 .. V-1, else DDP_ERR_INVALID names the row */
    float *loss;    /* (1) out: mean over the rows of -log softmax(logits)[label]; 0 for no rows */
    float *dlogits; /* (B,V) out: gradient of loss; may equal logits; NULL: not needed */
    int32_t *predictions; /* (B) out: the first class with the largest logit; NULL: not needed */
};

enum ddp_status ddp_softmax_cross_entropy(const struct ddp_softmax_cross_entropy *args,
                                          void *stream);
enum ddp_status ddp_softmax_cross_entropy_reference(const struct ddp_softmax_cross_entropy *args,
                                                    void *stream);

#endif
