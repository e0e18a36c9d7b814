/* SPDX-License-Identifier: MIT
 *
 * A dataset in two parts: one to train on, one for the test set. */
#ifndef DDP_DATA_SPLIT_H
#define DDP_DATA_SPLIT_H

#include "data/dataset.h"

/* How many of `total` samples or tokens are the test part: a share of them below 1, rounded up, or
 * that many. */
int64_t ddp_split_count(double amount, int64_t total);

/* Cuts a test part off. It is the second part that PyTorch's random_split() makes with a generator
 * of seed 0, so it is the same in every run; both parts keep the order of the samples.
 *   train [in,out]  the dataset; becomes its first part, which owns what it was
 *   test [out]      closed with ddp_dataset_close(), before or after the other
 *   amount          ddp_dataset_options.val_split
 * DDP_ERR_INVALID: no sample would be left for training. DDP_ERR_MEMORY. */
enum ddp_status ddp_split(ddp_dataset **train, ddp_dataset **test, double amount);

/* Which samples of the whole a part has, in rising order. */
const uint32_t *ddp_split_samples(const ddp_dataset *part);

#endif
