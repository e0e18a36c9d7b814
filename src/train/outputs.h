/* SPDX-License-Identifier: MIT
 *
 * The files that a run writes, before it begins: no two may be one. */
#ifndef DDP_TRAIN_OUTPUTS_H
#define DDP_TRAIN_OUTPUTS_H

#include "train/options.h"

/* DDP_ERR_INVALID names the two options. */
enum ddp_status ddp_train_check_outputs(const struct ddp_train_options *options);

#endif
