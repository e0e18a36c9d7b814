/* SPDX-License-Identifier: MIT
 *
 * Numbers brought to mean 0 and deviation 1. */
#ifndef DDP_DATA_NORMALIZE_H
#define DDP_DATA_NORMALIZE_H

#include "data/dataset.h"

/* Whether the samples are scaled by their source, as pixels are. */
bool ddp_dataset_is_scaled(const struct ddp_dataset_info *info);

/* Makes (x - mean) / deviation of every number of both sets, in double precision, rounded to
 * float32. Mean and deviation are those of the training set: of each channel, which is the first
 * of the samples' dimensions, so of each feature where there is only one. The deviation is that of
 * all values (divided by their number); of equal ones it is taken as 1, so that they become 0.
 * Looked at are all samples, or of a large set as many as have 2^26 numbers, spread evenly.
 * Samples that are scaled stay as they are.
 *   train [in,out]  numbers; becomes the set of scaled ones, which owns what it was
 *   test [in,out]   the same; *test may be NULL
 * DDP_ERR_MEMORY, and as ddp_dataset_read(). */
enum ddp_status ddp_normalize(ddp_dataset **train, ddp_dataset **test);

#endif
