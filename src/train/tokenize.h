/* SPDX-License-Identifier: MIT
 *
 * "trainer tokenize IN OUT": texts to a file of tokens. */
#ifndef DDP_TRAIN_TOKENIZE_H
#define DDP_TRAIN_TOKENIZE_H

#include "plan/options.h"

/* Takes the command's operands off the front of a command line.
 *   argc, argv [in,out]  what is left are its options
 * DDP_ERR_INVALID: IN or OUT is missing. */
enum ddp_status ddp_train_take_tokenize(struct ddp_train_options *options, int *argc,
                                        char *const **argv);

/* Does the work and prints a line about it. The statuses of ddp_encode_texts() and of writing a
 * file. */
enum ddp_status ddp_train_tokenize(const struct ddp_train_options *options, FILE *out);

#endif
