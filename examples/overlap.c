/* SPDX-License-Identifier: MIT
 *
 * Gradients of a program of one's own, all-reduced while it goes on computing: registered memory,
 * one all-reduce for each bucket as soon as it is ready, one wait at the end.
 *
 *   cc overlap.c -o overlap $(pkg-config --cflags --libs libddp)
 *   ddprun -n 4 ./overlap
 */
#include <ddp.h>

#define BUCKETS      8
#define BUCKET_COUNT 4096 /* floats in each */

/* Stands for the backward pass of one layer. */
static void compute(float *gradients, int bucket, int rank)
{
    for (int i = 0; i < BUCKET_COUNT; i++)
        gradients[i] = (float)(bucket + rank);
}

static enum ddp_status step(ddp_job *job, ddp_comm *comm, float *gradients, int64_t number)
{
    enum ddp_status status = DDP_OK;
    ddp_job_report(job, "backward", number); /* what the launcher shows if this rank hangs here */
    for (int b = 0; status == DDP_OK && b < BUCKETS; b++) {
        float *bucket = gradients + (size_t)b * BUCKET_COUNT;
        compute(bucket, b, ddp_comm_rank(comm));
        status = ddp_comm_allreduce_start(comm, bucket, BUCKET_COUNT, DDP_F32, DDP_SUM);
        if (status == DDP_OK)
            status = ddp_comm_progress(comm);
    }
    return status == DDP_OK ? ddp_comm_finish(comm) : status;
}

int main(void)
{
    ddp_job *job = NULL;
    ddp_comm *comm = NULL;
    void *memory = NULL;
    enum ddp_status status = ddp_job_open(&job);
    if (status == DDP_OK)
        status = ddp_comm_create(&comm, job, NULL);
    if (status == DDP_OK)
        status = ddp_comm_alloc(comm, BUCKETS * BUCKET_COUNT * sizeof(float), &memory);
    for (int64_t number = 0; status == DDP_OK && number < 10; number++)
        status = step(job, comm, (float *)memory, number);
    if (status == DDP_OK && ddp_comm_rank(comm) == 0)
        printf("%d ranks, last bucket: %g\n", ddp_comm_size(comm),
               (double)((float *)memory)[(BUCKETS - 1) * BUCKET_COUNT]);
    ddp_comm_destroy(comm); /* with its memory */
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}
