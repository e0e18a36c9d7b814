/* SPDX-License-Identifier: MIT
 *
 * Encoding of one text with the tools of one thread; for the files of this room only. */
#ifndef DDP_DATA_TEXT_ENCODE_H
#define DDP_DATA_TEXT_ENCODE_H

#include "core/pool.h"
#include "data/text/encoder.h"

/* Appends the ids of a text. Says nothing of DDP_ERR_FORMAT and DDP_ERR_UNSUPPORTED, but where:
 * ddp_encode_failed() does.
 *   pool      for long texts; may be NULL
 *   bad [out] with DDP_ERR_FORMAT: where the text is not UTF-8 */
enum ddp_status ddp_encode_text(struct ddp_encoder *encoder, ddp_pool *pool,
                                const struct ddp_text_part *text, unsigned flags,
                                struct ddp_tokens *out, size_t *bad);

enum ddp_status ddp_encode_failed(const struct ddp_text_part *text, enum ddp_status status,
                                  size_t bad);

/* ddp_encoder_piece() of a whole piece, by all threads of a pool. */
enum ddp_status ddp_encode_long(struct ddp_encoder *encoder, ddp_pool *pool, const char *text,
                                size_t bytes, struct ddp_tokens *out);

#endif
