/* SPDX-License-Identifier: MIT
 *
 * Reads the steps of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor,
 * decoder. What is not supported is refused by name. */
#ifndef DDP_DATA_TEXT_READ_STEPS_H
#define DDP_DATA_TEXT_READ_STEPS_H

#include "data/text/tokenizer_parts.h"

/* In messages the tokenizer's path is the file.
 *   json  the value of the key; may be NULL or null
 * DDP_ERR_FORMAT, DDP_ERR_UNSUPPORTED, DDP_ERR_MEMORY. */
enum ddp_status ddp_read_normalizer(ddp_tokenizer *tokenizer, const json_t *json);
enum ddp_status ddp_read_pre_tokenizer(ddp_tokenizer *tokenizer, const json_t *json);
enum ddp_status ddp_read_decoder(ddp_tokenizer *tokenizer,
                                 const json_t *json); /* after these two */
enum ddp_status ddp_read_post_processor(ddp_tokenizer *tokenizer, const json_t *json); /* last */

/* The GPT-2 pre-tokenizer: ByteLevel with its own regular expression. */
enum ddp_status ddp_read_byte_level(ddp_tokenizer *tokenizer);

#endif
