/* SPDX-License-Identifier: MIT
 *
 * Preferences to learn: prompts, each with a chosen and a rejected answer, or with a rated one and,
 * for comparison, that of another prompt. Such a pair of sequences shares a row of T tokens, so
 * that each may have T/2, with other pairs or alone. x is as in examples.h; labels are (3,T) as in
 * kernels/preference.h: the next tokens, DDP_ROLE_ bits, and what a reference says. */
#ifndef DDP_DATA_PAIRS_H
#define DDP_DATA_PAIRS_H

#include "data/data_names.h"
#include "data/dataset.h"
#include "data/encoded.h"

/* As ddp_examples_open(), of an encoding with preferences.
 * DDP_ERR_FORMAT also: a rated answer where options->preferences wants pairs. */
enum ddp_status ddp_pairs_open(ddp_dataset **dataset, struct ddp_encoded *encoded, const char *path,
                               const struct ddp_data_names *files,
                               const struct ddp_dataset_options *options, int64_t class_count);

#endif
