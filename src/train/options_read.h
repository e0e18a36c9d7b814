/* SPDX-License-Identifier: MIT
 *
 * The readers that the table of options names: each sets members of a struct ddp_train_options and
 * returns NULL, or what is wrong with the value. */
#ifndef DDP_TRAIN_OPTIONS_READ_H
#define DDP_TRAIN_OPTIONS_READ_H

#include <stdint.h>

#define DDP_COUNT_MAX INT64_C(1000000000000000) /* steps, and what is counted in them */

const char *ddp_train_read_model(void *destination, const char *value);
const char *ddp_train_read_dataset(void *destination, const char *value);
const char *ddp_train_read_augment(void *destination, const char *value);
const char *ddp_train_read_hidden(void *destination, const char *value);
const char *ddp_train_read_devices(void *destination, const char *value);
const char *ddp_train_read_milestones(void *destination, const char *value);
const char *ddp_train_read_trace_steps(void *destination, const char *value);

#endif
