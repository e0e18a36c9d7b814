/* SPDX-License-Identifier: MIT
 *
 * `trainer --generate`: from options to text on the output. */
#ifndef DDP_GENERATE_SAMPLE_H
#define DDP_GENERATE_SAMPLE_H

#include "data/text/tokenizer.h"
#include "plan/options.h"

/* Loads the model and the weights that --load names, continues --prompt by --generate tokens and
 * prints both as they come: as the tokenizer's text; without one, bytes as text and other tokens as
 * numbers.
 *   tokenizer  NULL: none
 * DDP_ERR_INVALID, DDP_ERR_IO, DDP_ERR_FORMAT: names the flag or file. */
enum ddp_status ddp_train_sample(const struct ddp_train_options *options,
                                 const ddp_tokenizer *tokenizer, FILE *out);

#endif
