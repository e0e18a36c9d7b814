/* SPDX-License-Identifier: MIT
 *
 * Whether all ranks were started alike; and of a run over several machines, the nodes: what they
 * are called, and whether they share the directory of checkpoints. */
#ifndef DDP_TRAIN_NODES_H
#define DDP_TRAIN_NODES_H

#include "ddp.h"

struct ddp_run;

#define DDP_TRAIN_HOST 64 /* bytes of a machine's name */

/* With the communicator, data and model there: learns the machines' names. DDP_ERR_INVALID: a rank
 * has other options, data or another model than rank 0, which says so. Collective. */
enum ddp_status ddp_run_meet_nodes(struct ddp_run *run);

/* With the directory of checkpoints open on rank 0: warns where other nodes see another one of that
 * name. Collective. */
enum ddp_status ddp_run_check_directory(struct ddp_run *run);

/* " on node 1 (name)", of a rank; nothing on one machine. */
#define DDP_TRAIN_WHERE (DDP_TRAIN_HOST + 32)
const char *ddp_run_where(const struct ddp_run *run, int rank, char text[DDP_TRAIN_WHERE]);

#endif
