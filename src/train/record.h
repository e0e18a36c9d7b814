/* SPDX-License-Identifier: MIT
 *
 * --hash-every: what a log says so that the run can be computed again. Its first line gets
 *   options    those that were given, as words of a command line
 *   run        what decides the bits, as state.json of a checkpoint has it
 *   weights    the hash of the weights that it starts from, in hexadecimal digits
 *   tensors    the first digits of each tensor's hash, in the order of their names
 * and each line of event "hash" the last two, after so many steps. */
#ifndef DDP_TRAIN_RECORD_H
#define DDP_TRAIN_RECORD_H

#include "core/json.h"
#include "train/weights_hash.h"

#define DDP_RECORD_OPTIONS "options"
#define DDP_RECORD_RUN     "run"
#define DDP_RECORD_WEIGHTS "weights"
#define DDP_RECORD_TENSORS "tensors"

/* The options that were given, as an array of words. DDP_ERR_INVALID: one is not UTF-8. */
enum ddp_status ddp_record_options(json_t **words, const struct ddp_train_options *options);

/* Before the first step: what the first line gets. Collective.
 *   record [out]  on rank 0, else NULL; also NULL if no hash is asked for */
enum ddp_status ddp_record_begin(json_t **record, struct ddp_run *run);

/* After run->step steps: logs the weights' hash if it is due. Collective. */
enum ddp_status ddp_record_step(struct ddp_run *run);

#endif
