/* SPDX-License-Identifier: MIT
 *
 * A graph that only runs forward, with a mode's weights: for evaluation. In a pipeline each stage
 * runs its part, and the last one has the output and the loss. */
#ifndef DDP_MODE_NETWORK_H
#define DDP_MODE_NETWORK_H

#include "graph/exec.h"
#include "mode/mode.h"

typedef struct ddp_network ddp_network;

/* The mode and the graph outlive it. In a pipeline collective over the stages of a replica, all of
 * which run the same batches in the same order.
 *   graph  of the mode's model, for any number of rows
 *   parts  of enum ddp_exec_part, without backward
 * Takes memory for inputs if the device cannot read the host's. */
enum ddp_status ddp_network_open(ddp_network **network, ddp_mode *mode, const ddp_graph *graph,
                                 unsigned parts);
void ddp_network_close(ddp_network *network);

/* Runs a batch up to the output.
 *   x, labels  host memory, which must stay until the device has read it; labels may be NULL if the
 *              loss is not run */
enum ddp_status ddp_network_run(ddp_network *network, const void *x, const void *labels);

/* Takes part in a batch of others, output and loss. With thin weights (ddp_mode_setup) all workers
 * run equally many; else nobody waits. */
enum ddp_status ddp_network_idle(ddp_network *network);

/* The exec that has the output of the last batch, and runs its loss; NULL: another worker has
 * it. */
ddp_exec *ddp_network_exec(const ddp_network *network);

/* Its device: the mode's, or that of the last stage. */
ddp_device *ddp_network_device(const ddp_network *network);

#endif
