/* SPDX-License-Identifier: MIT
 *
 * All-reduce between GPUs, in the columns of nccl-tests: the ordered sum that training takes, and
 * NCCL's own (--fast). Run as one worker per GPU: ddprun bench/gpu_allreduce [--mebibytes N]. One
 * JSON object of rank 0 on stdout. The first element of every result is compared with the sum. */
#include "config.h"

#include "comm/comm.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 20
#define SIZES 4 /* of 1/64, 1/16, 1/4 and the whole of the largest */

struct bench {
    ddp_job *job;
    ddp_device *device;
    ddp_comm *comm;
    float *buffer;
};

/* Seconds of one call, on the slowest rank. */
static enum ddp_status measure(struct bench *b, size_t count, double *took)
{
    const float one = 1;
    float sum = 0;
    double seconds = 0;
    enum ddp_status status = ddp_device_copy_in(b->device, b->buffer, &one, sizeof one);
    for (int i = -1; status == DDP_OK && i < CALLS; i++) {
        if (i == 0) {
            status = ddp_device_copy_out(b->device, &sum, b->buffer, sizeof sum);
            if (status == DDP_OK)
                status = ddp_device_synchronize(b->device);
            seconds = -(double)ddp_clock_ns() * 1e-9;
        }
        if (status == DDP_OK)
            status = ddp_comm_allreduce(b->comm, b->buffer, count, DDP_F32, DDP_SUM);
    }
    if (status == DDP_OK)
        status = ddp_device_synchronize(b->device);
    if (status != DDP_OK)
        return status;
    if (sum != (float)ddp_comm_size(b->comm))
        return ddp_fail(DDP_ERR_SYSTEM, "the sum over %d ranks is %g", ddp_comm_size(b->comm),
                        (double)sum);
    *took = (seconds + (double)ddp_clock_ns() * 1e-9) / CALLS;
    return DDP_OK;
}

static enum ddp_status rows(struct bench *b, size_t largest)
{
    const int size = ddp_comm_size(b->comm);
    const bool first = ddp_comm_rank(b->comm) == 0;
    enum ddp_status status = DDP_OK;
    if (first)
        printf("{\"ranks\": %d, \"device\": \"%s\", \"rows\": [", size,
               ddp_device_describe(b->device));
    for (int row = 0; status == DDP_OK && row < 2 * SIZES; row++) {
        const bool fast = row >= SIZES;
        const size_t count = largest >> 2 * (SIZES - 1 - row % SIZES);
        double took = 0;
        ddp_comm_set_fast(b->comm, fast);
        status = measure(b, count, &took);
        const double speed = (double)(count * sizeof(float)) / (took > 0 ? took : 1);
        if (first && status == DDP_OK)
            printf("%s{\"sum\": \"%s\", \"bytes\": %zu, \"seconds\": %.4g, \"algbw\": %.4g, "
                   "\"busbw\": %.4g}",
                   row ? ", " : "", fast ? "NCCL's" : "ordered", count * sizeof(float), took, speed,
                   speed * 2 * (size - 1) / size);
    }
    if (first)
        printf("]}\n");
    return status;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    int64_t mebibytes = 256;
    const bool sized = argc == 3 && strcmp(argv[1], "--mebibytes") == 0;
    void *memory = NULL;
    struct ddp_device_kind kind = {0};
    if (argc > 1 && (!sized || !ddp_parse_int64(argv[2], 1, 1 << 16, &mebibytes))) {
        fprintf(stderr, "usage: ddprun gpu_allreduce [--mebibytes N]\n");
        return 2;
    }
    const size_t largest = ((size_t)mebibytes << 20) / sizeof(float);
    enum ddp_status status = ddp_job_open(&b.job);
    if (status == DDP_OK)
        status = ddp_device_find(&kind, "cuda");
    if (status == DDP_OK) /* the launcher shows each worker its own GPU, or all of them to all */
        status =
            ddp_device_open(&b.device, "cuda", kind.count == 1 ? 0 : ddp_job_local_rank(b.job), 1);
    if (status == DDP_OK)
        status = ddp_comm_create_on(&b.comm, b.job, "nccl", b.device);
    if (status == DDP_OK)
        status = ddp_comm_alloc(b.comm, largest * sizeof(float), &memory);
    b.buffer = memory;
    if (status == DDP_OK)
        status = rows(&b, largest);
    ddp_comm_destroy(b.comm);
    ddp_device_close(b.device);
    ddp_job_close(b.job);
    return ddp_status_exit_code(status);
}
