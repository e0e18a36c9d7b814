/* SPDX-License-Identifier: MIT
 *
 * What a user should know about the data before training, one line each. */
#ifndef DDP_TRAIN_DATA_NOTES_H
#define DDP_TRAIN_DATA_NOTES_H

#include "data/dataset.h"
#include "plan/options.h"

/* Numbers far beyond 1, no test set, a --normalize without effect, what the source has to say. For
 * rank 0.
 *   test         NULL: there is none
 *   description  of what the loaded weights learned from; NULL: not known
 * DDP_ERR_MEMORY, and as ddp_dataset_read(), which reads some samples. */
enum ddp_status ddp_train_data_notes(const struct ddp_train_options *options,
                                     const ddp_dataset *data, const ddp_dataset *test,
                                     const char *description);

#endif
