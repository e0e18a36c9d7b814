/* SPDX-License-Identifier: MIT
 *
 * Whether all ranks were started alike; and for a run over several machines, the names of the
 * nodes, and whether they share the directory of checkpoints. */
#ifndef DDP_TRAIN_NODES_H
#define DDP_TRAIN_NODES_H

#include "ddp.h"

struct ddp_run;

#define DDP_TRAIN_HOST 64 /* bytes of a machine's name */

/* Once communicator, data and model are there: learns the machines' names. DDP_ERR_INVALID: a rank
 * has other options, other data or another model than rank 0, which says so. Collective. */
enum ddp_status ddp_run_meet_nodes(struct ddp_run *run);

/* With the directory of checkpoints open on rank 0: warns if other nodes see a different one of
 * that name. Collective. */
enum ddp_status ddp_run_check_directory(struct ddp_run *run);

/* " on node 1 (name)", of a rank; nothing on one machine. */
#define DDP_TRAIN_WHERE (DDP_TRAIN_HOST + 32)
const char *ddp_run_where(const struct ddp_run *run, int rank, char text[DDP_TRAIN_WHERE]);

#endif
