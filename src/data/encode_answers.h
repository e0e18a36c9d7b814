/* SPDX-License-Identifier: MIT
 *
 * Preferences to tokens: prompts with their answers, as TRL encodes them; and what ends a
 * document. */
#ifndef DDP_DATA_ENCODE_ANSWERS_H
#define DDP_DATA_ENCODE_ANSWERS_H

#include "data/record.h"

/* Appends the prompt with the answer, or with both of a pair, each ended by the tokenizer's token
 * or by the template. The answer, which is trained, begins where the tokens differ from those of
 * the prompt alone, and at the same place in both.
 *   trained       a byte for each token, as of ddp_chat_encode()
 *   second [out]  where the tokens of the rejected answer begin, with their prompt
 * Statuses as of encode.h. */
enum ddp_status ddp_encode_answers(const struct ddp_record *record, const ddp_tokenizer *tokenizer,
                                   const ddp_chat_template *chat, const char *where,
                                   struct ddp_tokens *tokens, struct ddp_buffer *trained,
                                   size_t *second);

/* Appends the token that ends a document, and which tokens are trained.
 *   first  of the document's tokens that is; those before are not */
enum ddp_status ddp_encode_end(const ddp_tokenizer *tokenizer, size_t first,
                               struct ddp_tokens *tokens, struct ddp_buffer *trained);

#endif
