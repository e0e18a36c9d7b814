/* SPDX-License-Identifier: MIT
 *
 * Examples to fine-tune a language model on, several in a row of T tokens or each in its own:
 * prompts with their completion, and chats. Sample i is a row: x is (2, T), first the tokens, then
 * for each the position in the row at which its document begins. Label t is the token at t+1 if it
 * is trained and of the same document, else -1; padding has documents of one position. */
#ifndef DDP_DATA_EXAMPLES_H
#define DDP_DATA_EXAMPLES_H

#include "data/data_names.h"
#include "data/dataset.h"
#include "data/encoded.h"

/*   encoded        with documents; the dataset's own from now on, also after a failure
 *   files          that it was made of, for messages
 *   class_count    tokens of the vocabulary
 *   dataset [out]  NULL before; what was made is closed by the caller, also after a failure
 * DDP_ERR_INVALID: an example is too long, or a token is not in the vocabulary; DDP_ERR_FORMAT:
 * nothing is trained; DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_examples_open(ddp_dataset **dataset, struct ddp_encoded *encoded,
                                  const char *path, const struct ddp_data_names *files,
                                  const struct ddp_dataset_options *options, int64_t class_count);

#endif
