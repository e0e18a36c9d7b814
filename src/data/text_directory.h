/* SPDX-License-Identifier: MIT
 *
 * The texts in a directory and below it: *.txt, *.txt.gz, *.jsonl and *.jsonl.gz. Names that begin
 * with a dot are left out. */
#ifndef DDP_DATA_TEXT_DIRECTORY_H
#define DDP_DATA_TEXT_DIRECTORY_H

#include "data/data_names.h"

/* Whether there is any, or something that cannot be searched. */
bool ddp_text_directory_any(const char *directory);

/* Lists them, sorted by the bytes of their path.
 *   train, val [out]  zeroed before; freed with ddp_data_names_free(), also after a failure. What
 *     is called train, a directory or a text (train.txt, stories-train.txt), is for training, and
 *     without one all but what is called val, valid, validation or test. For the evaluation is what
 *     is called val, valid or validation, else test. val NULL: all are for training.
 * DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_text_directory_list(const char *directory, struct ddp_data_names *train,
                                        struct ddp_data_names *val);

#endif
