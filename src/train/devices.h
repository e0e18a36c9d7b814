/* SPDX-License-Identifier: MIT
 *
 * Whether the workers of a run share devices. */
#ifndef DDP_TRAIN_DEVICES_H
#define DDP_TRAIN_DEVICES_H

#include "train/run.h"

/* Finds out whether workers share a device, logs it, and prepares the environment for it.
 * Collective. DDP_ERR_UNSUPPORTED: they do, but the options do not ask for it. */
enum ddp_status ddp_run_check_devices(struct ddp_run *run);

#endif
