/* SPDX-License-Identifier: MIT
 *
 * The tensors of a run by name: weights in and out, gradients out, in every mode and on any
 * device. */
#ifndef DDP_TRAIN_TENSORS_H
#define DDP_TRAIN_TENSORS_H

#include "train/run.h"

/* Makes run->tensors, which ddp_run_close() frees. */
enum ddp_status ddp_run_list_tensors(struct ddp_run *run);

/* The calls of ddp.h, of a run that is open. DDP_ERR_INVALID: no tensor has this name, or it has
 * another count; it has no gradient; there was no step. */
enum ddp_status ddp_run_get_weights(const struct ddp_run *run, const char *name, float *values,
                                    size_t count);
enum ddp_status ddp_run_put_weights(struct ddp_run *run, const char *name, const float *values,
                                    size_t count);
enum ddp_status ddp_run_get_gradients(const struct ddp_run *run, const char *name, float *values,
                                      size_t count);

#endif
