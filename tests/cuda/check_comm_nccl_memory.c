/* SPDX-License-Identifier: MIT
 *
 * Memory of GPUs with NCCL between them: there is too little, and it is given back while others are
 * waited for. */
#include "config.h"

#include "core/clock.h"
#include "tests/comm/comm_ranks.h"
#include "tests/cuda/cuda_test.h"

START_TEST(too_little_memory)
{
    run_ranks(2, row_memory, -1);
}
END_TEST

/* One rank's trouble is everybody's. */
static void one_fails(int rank)
{
    if (rank == 1)
        setenv("DDP_CUDASIM_MEMORY", "100000000", 1);
}

static void uneven_memory_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, 200000000, &memory) == DDP_ERR_MEMORY);
    NEED(ddp_comm_alloc(comm, 1000, &memory) == DDP_OK);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
}

START_TEST(uneven_memory)
{
    if (!cuda_test_simulated())
        return;
    ranks_prepare = one_fails;
    run_ranks(3, uneven_memory_body, -1);
    run_nodes(2, 1, uneven_memory_body, -1);
    run_nodes(2, 2, uneven_memory_body, -1);
}
END_TEST

static enum ddp_status settle(void)
{
    return ddp_device_synchronize(ranks_device);
}

static void need_between(int64_t start_ns, int least_ms, int most_ms)
{
    const int64_t ms = (ddp_clock_ns() - start_ns) / 1000000;
    NEED(ms >= least_ms && ms < most_ms);
}

/* Memory is given back while the device waits for rank 0, which does not come. CUDA would wait for
 * it too, and for ever: what is looked after comes to an end, what is not is left. */
static void give_back_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(1000), *unused = ranks_alloc(1000);
    if (ddp_comm_rank(comm) == 0) {
        while (!ddp_job_aborted(job))
            usleep(1000);
        ranks_free(unused, 1000);
        return;
    }
    ddp_comm_set_timeout(comm, 200);
    const int64_t start = ddp_clock_ns();
    NEED(ddp_comm_allreduce(comm, values, 250, DDP_F32, DDP_SUM) == DDP_OK);
    ranks_free(unused, 1000);
    need_between(start, 195, 2000);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
}

static enum ddp_status fail_at_once(void *arg)
{
    (void)arg;
    return DDP_ERR_ABORTED;
}

static void leave_behind_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(1000), *unused = ranks_alloc(1000);
    if (ddp_comm_rank(comm) == 0) {
        while (!ddp_job_aborted(job))
            usleep(1000);
        return;
    }
    NEED(ddp_comm_allreduce(comm, values, 250, DDP_F32, DDP_SUM) == DDP_OK);
    ddp_device_set_poll(ranks_device, fail_at_once, NULL);
    NEED(settle() == DDP_ERR_ABORTED);
    const int64_t start = ddp_clock_ns();
    ranks_free(unused, 1000);
    need_between(start, 1900, 4000);
    ddp_job_abort(job);
}

/* One communicator's sum never ends, and nobody waits for it: not the device's stream, not the
 * host. Another one's memory goes first, when the job is down. */
static void other_goes_first_body(ddp_comm *comm, ddp_job *job)
{
    ddp_comm *other;
    void *values, *memory;
    NEED(ranks_join(&other, job) == DDP_OK);
    NEED(ddp_comm_alloc(comm, 1000, &values) == DDP_OK);
    NEED(ddp_comm_alloc(other, 1000, &memory) == DDP_OK);
    if (ddp_comm_rank(comm) == 0) {
        usleep(300000);
        ddp_job_abort(job);
    } else {
        NEED(ddp_comm_allreduce_start(comm, values, 250, DDP_F32, DDP_SUM) == DDP_OK);
        while (!ddp_job_aborted(job))
            usleep(1000);
    }
    const int64_t start = ddp_clock_ns();
    ddp_comm_destroy(other);
    need_between(start, 0, 1500);
}

START_TEST(other_goes_first)
{
    setenv("DDP_CUDASIM_STREAMS", _i ? "eager" : "lazy", 1);
    run_ranks(2, other_goes_first_body, -1);
}
END_TEST

START_TEST(give_back)
{
    run_ranks(2, give_back_body, -1);
    run_ranks(2, leave_behind_body, -1);
}
END_TEST

Suite *test_suite(void)
{
    setenv("DDP_CUDASIM_DEVICES", "8", 1);
    cuda_test_begin();
    ranks_use("cuda", "nccl");
    Suite *suite = suite_create("memory of NCCL");
    TCase *tc = test_case(suite, "memory", 60);
    tcase_add_test(tc, too_little_memory);
    tcase_add_test(tc, uneven_memory);
    tcase_add_test(tc, give_back);
    tcase_add_loop_test(tc, other_goes_first, 0, 2);
    return suite;
}
