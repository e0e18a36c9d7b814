/* SPDX-License-Identifier: MIT
 *
 * What a run has to do with texts: its tokenizer, and --show-masks. */
#ifndef DDP_GENERATE_TEXTS_H
#define DDP_GENERATE_TEXTS_H

#include "data/text/chat.h"
#include "plan/options.h"

/* Opens the tokenizer that --tokenizer names, else that of the directory of --load.
 *   tokenizer [out]  NULL: there is neither; closed by the caller
 *   tell             warn of one in the directory that cannot be used: one rank does
 * The statuses of ddp_tokenizer_open(). */
enum ddp_status ddp_train_open_tokenizer(ddp_tokenizer **tokenizer,
                                         const struct ddp_train_options *options, bool tell);

/* Warns of another tokenizer than the one whose tokens the loaded weights learned.
 *   tokenizer    a ddp_tokenizer_hash(); 0: there is none
 *   description  NULL: not known */
void ddp_train_note_tokenizer(uint64_t tokenizer, const char *description);

/* Prints the first samples of a set of tokens as the model sees them: text, what is trained in
 * colour on a terminal and else in brackets, a line for each document.
 *   tokenizer  NULL: DDP_ERR_INVALID, unless tokens are bytes
 *   count      samples, at most
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_train_show_masks(const ddp_dataset *data, const ddp_tokenizer *tokenizer,
                                     int64_t count, FILE *out);

/* Writes text for people: control characters are escaped, except tabs and line ends. */
enum ddp_status ddp_train_print_text(FILE *out, const char *text, size_t bytes);

#endif
