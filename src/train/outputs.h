/* SPDX-License-Identifier: MIT
 *
 * The files that a run writes, before it begins: no two may be one, their directories are made, and
 * those that are written at the end can be. */
#ifndef DDP_TRAIN_OUTPUTS_H
#define DDP_TRAIN_OUTPUTS_H

#include "plan/options.h"

/* DDP_ERR_INVALID names two options with the same file, DDP_ERR_IO what cannot be made or
 * written.
 *   out  says which directories were made; NULL: nothing */
enum ddp_status ddp_train_check_outputs(const struct ddp_train_options *options, FILE *out);

#endif
