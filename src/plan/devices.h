/* SPDX-License-Identifier: MIT
 *
 * The devices that a run computes on: the kind, and one for this worker or for each of its
 * replicas. */
#ifndef DDP_PLAN_DEVICES_H
#define DDP_PLAN_DEVICES_H

#include "plan/options.h"

/* The kind and number of devices, and so the default number of replicas of --mode dp, or of stages
 * that are threads.
 * DDP_ERR_UNSUPPORTED, DDP_ERR_INVALID: names the flag and what would be right. */
enum ddp_status ddp_train_plan_kind(struct ddp_train_plan *plan,
                                    const struct ddp_train_options *options);

/* Once mode, replicas and stages are known: a device for each. The same errors. */
enum ddp_status ddp_train_plan_devices(struct ddp_train_plan *plan,
                                       const struct ddp_train_options *options, const ddp_job *job);

#endif
