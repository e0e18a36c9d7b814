/* SPDX-License-Identifier: MIT
 *
 * Which devices a run computes on: the kind, and one for this worker or for each of its
 * replicas. */
#ifndef DDP_TRAIN_DEVICES_H
#define DDP_TRAIN_DEVICES_H

#include "train/options.h"

struct ddp_run;

/* The kind of device and how many of it there are; and so how many replicas --mode dp has when
 * nobody says it.
 *
 * DDP_ERR_UNSUPPORTED, DDP_ERR_INVALID: names the flag and what would do. */
enum ddp_status ddp_train_plan_kind(struct ddp_train_plan *plan,
                                    const struct ddp_train_options *options);

/* Once mode and replicas are known: a device for each of them. Errors likewise. */
enum ddp_status ddp_train_plan_devices(struct ddp_train_plan *plan,
                                       const struct ddp_train_options *options, const ddp_job *job);

/* Finds out whether workers meet on one device, says so, and prepares the environment for it.
 * Collective. DDP_ERR_UNSUPPORTED: they do, and nobody has asked for it. */
enum ddp_status ddp_run_check_devices(struct ddp_run *run);

#endif
