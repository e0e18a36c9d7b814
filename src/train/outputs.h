/* SPDX-License-Identifier: MIT
 *
 * The files that a run writes. Before it begins: all must differ, their directories are made, and
 * those written at the end must be writable, with room for their contents. At the end: what cannot
 * be written there after all is written elsewhere. */
#ifndef DDP_TRAIN_OUTPUTS_H
#define DDP_TRAIN_OUTPUTS_H

#include "train/run.h"

/* DDP_ERR_INVALID names two options with the same file, DDP_ERR_IO what cannot be made or
 * written.
 *   out  says which directories were made; NULL: nothing */
enum ddp_status ddp_train_check_outputs(const struct ddp_train_options *options, FILE *out);

/* Whether there is room for what --save and --export will write. The model has been built.
 *   exported  bytes of what --export writes
 * DDP_ERR_IO: names the file. */
enum ddp_status ddp_run_check_room(const struct ddp_run *run, uint64_t exported);

/* Writes a result of the training to its path or, if it cannot be written there, into a new
 * directory in the first place for temporary files where it can, and says so.
 *   write  DDP_ERR_IO if it is the place that fails
 * DDP_ERR_IO: it was not written to its path. */
enum ddp_status ddp_run_write(struct ddp_run *run, const char *path,
                              enum ddp_status (*write)(struct ddp_run *run, const char *path));

#endif
