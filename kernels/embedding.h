/* SPDX-License-Identifier: MIT
 *
 * Rows of a table, one for each token, plus one for its position, as GPT-2 begins:
 * y[b,t] = wte[tokens[b,t]] + wpe[t]. Without wpe it is torch.nn.Embedding. */
#ifndef DDP_KERNELS_EMBEDDING_H
#define DDP_KERNELS_EMBEDDING_H

#include "ddp.h"

/* A token that is not 0 .. V-1 is DDP_ERR_INVALID, which names its row and place, in both passes;
 * so are more positions than wpe has. */

struct ddp_embedding_forward {
    int64_t batch, length, features; /* B, T, C */
    int64_t vocabulary;              /* V */
    int64_t positions;               /* P, rows of wpe: at least T */
    enum ddp_dtype dtype;            /* of y: DDP_F32 or DDP_BF16 */
    const int32_t *tokens;           /* (B,T) */
    const float *wte;                /* (V,C) */
    const float *wpe;                /* (P,C), or NULL: none */
    void *y;                         /* (B,T,C) out */
};

struct ddp_embedding_backward {
    int64_t batch, length, features, vocabulary, positions;
    enum ddp_dtype dtype;  /* of dy: DDP_F32 or DDP_BF16 */
    const int32_t *tokens; /* (B,T) */
    const void *dy;        /* (B,T,C) */
    float *dwte;           /* (V,C) out, or NULL: not needed; rows are added first to last */
    float *dwpe;           /* (P,C) out, or NULL */
    bool accumulate_dwte;  /* add each row of dy to what is in dwte; false: start from zeros */
    bool accumulate_dwpe;  /* likewise */
};

enum ddp_status ddp_embedding_forward(const struct ddp_embedding_forward *args, void *stream);
enum ddp_status ddp_embedding_forward_reference(const struct ddp_embedding_forward *args,
                                                void *stream);
enum ddp_status ddp_embedding_backward(const struct ddp_embedding_backward *args, void *stream);
enum ddp_status ddp_embedding_backward_reference(const struct ddp_embedding_backward *args,
                                                 void *stream);

#endif
