/* SPDX-License-Identifier: MIT
 *
 * The pieces in which cuDNN's backward pass of attention is done: its engine keeps the gradient of
 * the scores, 2 T T bytes for each head, in the workspace. A piece is some rows of the batch, or
 * some heads of one row. The bits do not depend on how many there are: a head is computed by
 * itself, and the room for a head is the same in all pieces, so that engines are refused alike. */
#ifndef DDP_KERNELS_ATTENTION_PIECES_H
#define DDP_KERNELS_ATTENTION_PIECES_H

#include "core/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_PIECE_ALIGN   256
#define DDP_PIECE_LENGTHS 128 /* the engine's tiles: it computes with whole ones */

struct ddp_attention_sizes {
    int64_t batch, heads, length;
};

/* Rows [batch, batch + batches), heads likewise. */
struct ddp_attention_piece {
    int64_t batch, batches, head, heads;
};

/* What a plan for the piece may take of the workspace. */
static inline int64_t ddp_attention_plan_bytes(const struct ddp_attention_sizes *s,
                                               const struct ddp_attention_piece *piece)
{
    const int64_t length =
        (s->length + DDP_PIECE_LENGTHS - 1) / DDP_PIECE_LENGTHS * DDP_PIECE_LENGTHS;
    return piece->batches * piece->heads * (2 * length * length + DDP_PIECE_ALIGN);
}

/* The sums of its rows, which lie before that. */
static inline int64_t ddp_attention_sums_bytes(const struct ddp_attention_sizes *s,
                                               const struct ddp_attention_piece *piece)
{
    const int64_t rows = piece->batches * piece->heads * s->length;
    return (int64_t)ddp_align_up((size_t)rows * sizeof(float), DDP_PIECE_ALIGN);
}

/* A first piece whose size all have, but for the last; no heads: it cannot be done in pieces that
 * fit `room` bytes. */
static inline struct ddp_attention_piece
ddp_attention_first_piece(const struct ddp_attention_sizes *s, size_t room)
{
    const struct ddp_attention_piece one = {0, 1, 0, 1};
    const int64_t head = ddp_attention_plan_bytes(s, &one) + ddp_attention_sums_bytes(s, &one);
    const int64_t fit = (int64_t)room / head;
    struct ddp_attention_piece piece = {0, 1, 0, s->heads};
    if (fit >= s->heads) {
        const int64_t most = fit / s->heads, pieces = (s->batch + most - 1) / most;
        piece.batches = (s->batch + pieces - 1) / pieces; /* none much smaller than others */
    }
    while (piece.heads > 0 && (piece.heads > fit || s->heads % piece.heads != 0))
        piece.heads--;
    return piece;
}

/* ... and the one behind it; it begins at s->batch when all are done. */
static inline struct ddp_attention_piece
ddp_attention_next_piece(const struct ddp_attention_sizes *s, struct ddp_attention_piece piece)
{
    piece.head += piece.heads;
    if (piece.head == s->heads) {
        piece.head = 0;
        piece.batch += piece.batches;
    }
    if (s->batch - piece.batch < piece.batches)
        piece.batches = s->batch - piece.batch;
    return piece;
}

#endif
