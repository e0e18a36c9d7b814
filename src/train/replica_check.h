/* SPDX-License-Identifier: MIT
 *
 * --check-replicas: whether all ranks still hold the same parameters. They must, bit for bit; what
 * makes them differ is a fault of memory, of the machine or of a program. */
#ifndef DDP_TRAIN_REPLICA_CHECK_H
#define DDP_TRAIN_REPLICA_CHECK_H

#include "ddp.h"

struct ddp_run;

/* After `step` steps, where one is due: compares hashes of all parameters over the ranks.
 * Collective. DDP_ERR_MISMATCH: rank 0 has named the odd rank and the first parameter. */
enum ddp_status ddp_run_check_replicas(struct ddp_run *run, int64_t step);

#endif
