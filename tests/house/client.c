/* SPDX-License-Identifier: MIT
 *
 * A user's program: knows ddp.h and nothing else of the tree. Every rank adds its number plus one;
 * all must get the same sum. Compiled against the installed library by
 * tests/house/check_install.sh and by Debian's autopkgtest. */
#include <ddp.h>

#include <stdio.h>

static int run(ddp_job *job, ddp_comm *comm)
{
    int size = ddp_comm_size(comm);
    double sum = ddp_comm_rank(comm) + 1;
    enum ddp_status status = ddp_comm_allreduce(comm, &sum, 1, DDP_F64, DDP_SUM);
    if (status != DDP_OK)
        return ddp_status_exit_code(status);
    double expected = 0.5 * size * (size + 1);
    if (sum != expected || ddp_job_world_size(job) != size) {
        fprintf(stderr, "rank %d of %d: the sum is %g, not %g\n", ddp_comm_rank(comm), size, sum,
                expected);
        return 1;
    }
    if (ddp_comm_rank(comm) == 0)
        printf("libddp %s: %d ranks agree on %g over %s\n", ddp_version(), size, sum,
               ddp_comm_backend(comm));
    return 0;
}

int main(void)
{
    ddp_job *job = NULL;
    ddp_comm *comm = NULL;
    enum ddp_status status = ddp_job_open(&job);
    if (status == DDP_OK)
        status = ddp_comm_create(&comm, job, NULL);
    int code = status == DDP_OK ? run(job, comm) : ddp_status_exit_code(status);
    ddp_comm_destroy(comm);
    ddp_job_close(job);
    return code;
}
