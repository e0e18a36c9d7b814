/* SPDX-License-Identifier: MIT
 *
 * `trainer --generate`: from options to text on the output. */
#ifndef DDP_TRAIN_SAMPLE_H
#define DDP_TRAIN_SAMPLE_H

#include "train/options.h"

/* Loads the model and the weights that --load names, continues --prompt by --generate tokens and
 * prints both as they come: bytes as text, other tokens as numbers.
 * DDP_ERR_INVALID, DDP_ERR_IO, DDP_ERR_FORMAT: names the flag or file. */
enum ddp_status ddp_train_sample(const struct ddp_train_options *options, FILE *out);

#endif
