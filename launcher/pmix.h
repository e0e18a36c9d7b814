/* SPDX-License-Identifier: MIT
 *
 * What the plugin libddp-pmix.so does for a ddprun that Slurm (srun --mpi=pmix), Open MPI or
 * another PMIx server started: it tells all ddpruns of the job where node 0 listens, and the key of
 * the job. A process can be a PMIx client once, so it is opened once and closed when ddprun ends.
 */
#ifndef DDP_LAUNCHER_PMIX_H
#define DDP_LAUNCHER_PMIX_H

#include "ddp.h"

struct pmix_ops {
    /* Becomes the client that PMIX_* in the environment describe. When the scheduler aborts the job
     * or its server goes away, this process gets SIGTERM. Outputs: its rank and the job's size. The
     * errors are those of share(); after DDP_ERR_TIMEOUT or DDP_ERR_ABORTED nothing may follow. */
    enum ddp_status (*open)(int *rank, int *size, double seconds, int interrupt_fd);

    /* Gives what rank 0 has in `data` to all ranks of the job, which all call this once.
     *   DDP_ERR_TIMEOUT   not all have done so within `seconds`
     *   DDP_ERR_MISMATCH  rank 0 gave another number of bytes
     *   DDP_ERR_ABORTED   interrupt_fd (-1: none) became readable; logged nowhere
     *   DDP_ERR_SYSTEM    the server's error */
    enum ddp_status (*share)(void *data, size_t bytes, double seconds, int interrupt_fd);

    /* Tells the server that this process ends as it should; without open() it does nothing. */
    void (*close)(void);
};

#endif
