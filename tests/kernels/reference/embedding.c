/* SPDX-License-Identifier: MIT
 *
 * Embedding; see embedding.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include "core/bf16.h"

static float table_at(const float *table, const uint16_t *bf16, int64_t at)
{
    return table ? table[at] : bf16 ? ddp_bf16_to_f32(bf16[at]) : 0;
}

enum ddp_status ddp_embedding_forward_reference(const struct ddp_embedding_forward *args,
                                                void *stream)
{
    float *y = args->y;
    (void)stream;
    enum ddp_status status = ddp_embedding_check_forward(args);
    if (status == DDP_OK)
        status = ddp_embedding_check_tokens("embedding", args->tokens, args->batch * args->length,
                                            args->length, args->vocabulary);
    if (status)
        return status;
    const int64_t n = args->features;
    for (int64_t row = 0; row < args->batch * args->length; row++)
        for (int64_t j = 0; j < n; j++)
            y[row * n + j] =
                table_at(args->wte, args->wte_bf16, args->tokens[row] * n + j) +
                table_at(args->wpe, args->wpe_bf16, (args->first + row % args->length) * n + j);
    return DDP_OK;
}

enum ddp_status ddp_embedding_backward_reference(const struct ddp_embedding_backward *args,
                                                 void *stream)
{
    const float *dy = args->dy;
    (void)stream;
    enum ddp_status status = ddp_embedding_check_backward(args);
    if (status == DDP_OK)
        status =
            ddp_embedding_check_tokens("embedding backward", args->tokens,
                                       args->batch * args->length, args->length, args->vocabulary);
    if (status)
        return status;
    const int64_t n = args->features;
    for (int64_t i = 0; args->dwte && !args->accumulate_dwte && i < args->vocabulary * n; i++)
        args->dwte[i] = 0;
    for (int64_t i = 0; args->dwpe && !args->accumulate_dwpe && i < args->positions * n; i++)
        args->dwpe[i] = 0;
    for (int64_t row = 0; row < args->batch * args->length; row++)
        for (int64_t j = 0; j < n; j++) {
            if (args->dwte)
                args->dwte[args->tokens[row] * n + j] += dy[row * n + j];
            if (args->dwpe)
                args->dwpe[row % args->length * n + j] += dy[row * n + j];
        }
    return DDP_OK;
}
