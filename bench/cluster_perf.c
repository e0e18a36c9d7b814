/* SPDX-License-Identifier: MIT
 *
 * Our side of bench/cluster: started by ddprun, one process a rank. */
#include "config.h"

#include "bench/cluster_loop.h"
#include "ddp.h"

static ddp_comm *the_comm;

static int reduce_floats(float *buffer, size_t count)
{
    return ddp_comm_allreduce(the_comm, buffer, count, DDP_F32, DDP_SUM) == DDP_OK ? 0 : 1;
}

static int wait_all(void)
{
    return ddp_comm_barrier(the_comm) == DDP_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    ddp_job *job = NULL;
    void *memory = NULL;
    int result = 1;
    if (argc != 2) {
        fprintf(stderr, "usage: cluster_perf PIPES; bench/cluster starts it, see bench/README\n");
        return 2;
    }
    if (ddp_job_open(&job) == DDP_OK && ddp_comm_create(&the_comm, job, NULL) == DDP_OK &&
        ddp_comm_alloc(the_comm, CLUSTER_LARGEST, &memory) == DDP_OK) {
        const struct cluster_loop loop = {ddp_comm_rank(the_comm), ddp_comm_size(the_comm),
                                          reduce_floats, wait_all};
        result = cluster_serve(&loop, memory, argv[1]);
    }
    ddp_comm_destroy(the_comm);
    ddp_job_close(job);
    return result;
}
