/* SPDX-License-Identifier: MIT
 *
 * "trainer tokenize IN OUT": texts to a file of tokens. */
#ifndef DDP_TRAIN_TOKENIZE_H
#define DDP_TRAIN_TOKENIZE_H

#include "plan/options.h"

/* Does the work and prints a line about it. The statuses of ddp_encode_texts() and of writing a
 * file. */
enum ddp_status ddp_tokenize(const struct ddp_train_options *options, FILE *out);

#endif
