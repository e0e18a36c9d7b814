/* SPDX-License-Identifier: MIT
 *
 * Which node of the job this ddprun is: what the user or the launcher that started us says. Reads
 * options and the environment only; nothing is sent, and no name is looked up. */
#ifndef DDP_LAUNCHER_PLACE_H
#define DDP_LAUNCHER_PLACE_H

#include "launcher/settings.h"

enum place_kind {
    PLACE_ALONE,    /* one machine; node 0 of 1 */
    PLACE_OPTIONS,  /* --nnodes and --node-rank, or PET_NNODES and PET_NODE_RANK */
    PLACE_OPEN_MPI, /* one task of mpirun a node */
    PLACE_SLURM,    /* one task of srun a node */
    PLACE_HYDRA,    /* one task of MPICH's mpiexec a node */
};

#define PLACE_ADDRESS_SIZE 256 /* of a host's name or address, with its end */

struct place {
    enum place_kind kind;
    int node, node_count; /* of an elastic job: where it would like to be, and the most nodes */
    int least_nodes;      /* of an elastic job; 0: it is not */
    /* Where node 0 listens for the other ddpruns; "" and 0 where only PMIx can tell. */
    char address[PLACE_ADDRESS_SIZE];
    int port;
    /* Node 0 takes the first free one of this many ports, from `port` on: 1 where the user chose
     * it, more where it follows from the number of a Slurm job. */
    int port_count;
    bool pmix; /* a PMIx server serves this process: what it tells comes before the address */
};

/* Nodes may be lost and come while the job runs. */
static inline bool place_is_elastic(const struct place *place)
{
    return place->least_nodes > 0;
}

/* Finds the place. DDP_ERR_INVALID (logged) where options and environment contradict each other or
 * where something is missing that only the user knows. */
enum ddp_status place_find(struct place *place, const struct settings *settings);

#endif
