/* SPDX-License-Identifier: MIT
 *
 * NCCL in ways that only GPUs have: a GPU without room for the operations of two communicators side
 * by side, ranks that are connected when something is called first, and islands of GPUs. On real
 * ones the settings of the simulation have no effect. */
#include "config.h"

#include "tests/comm/comm_ranks.h"
#include "tests/cuda/cuda_test.h"
#include "tests/lib/scratch.h"

/* A GPU that has room for one operation, and would begin them in another order on each rank. */
static void ordered_body(ddp_comm *comm, ddp_job *job)
{
    ddp_comm *other = NULL;
    void *memory[2];
    NEED(ranks_join(&other, job) == DDP_OK);
    NEED(ddp_comm_alloc(comm, 4000, &memory[0]) == DDP_OK);
    NEED(ddp_comm_alloc(other, 4000, &memory[1]) == DDP_OK);
    ddp_comm_set_timeout(comm, 5000);
    ddp_comm_set_timeout(other, 5000);
    for (int round = 0; round < 5; round++) {
        NEED(ddp_comm_allreduce_start(comm, memory[0], 1000, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_allreduce_start(other, memory[1], 1000, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_finish(round % 2 ? comm : other) == DDP_OK);
        NEED(ddp_comm_finish(round % 2 ? other : comm) == DDP_OK);
        NEED(ddp_device_synchronize(ranks_device) == DDP_OK);
    }
    ddp_comm_destroy(other);
}

START_TEST(ordered)
{
    setenv("DDP_CUDASIM_STREAMS", _i ? "eager" : "lazy", 1);
    setenv("DDP_CUDASIM_NCCL_ROOM", "1", 1);
    run_ranks(2 + _i, ordered_body, -1);
    run_ranks(3, row_channel_crossing, -1);
}
END_TEST

/* NCCL connects ranks when something is called first: that is over when there is a communicator. */
static void connected_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, 300000, &memory) == DDP_OK);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    ddp_comm_set_timeout(comm, 400);
    for (int round = 0; round < 2; round++) {
        ddp_comm_set_fast(comm, round == 1);
        NEED(ddp_comm_allreduce_start(comm, memory, 30000, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_reduce_slices_start(comm, memory, 30000, 10000, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_finish(comm) == DDP_OK);
        NEED(ddp_comm_gather_slices(comm, memory, 30000, 10000, DDP_F32) == DDP_OK);
        NEED(ddp_device_synchronize(ranks_device) == DDP_OK);
    }
}

START_TEST(connected)
{
    setenv("DDP_CUDASIM_NCCL_CONNECT", "600", 1);
    run_ranks(3, connected_body, -1);
}
END_TEST

/* Islands of two or four: the sums have the bits of the one tree. */
static void islands_body(ddp_comm *comm, ddp_job *job)
{
    row_collectives(comm, job);
    row_overlap(comm, job);
    row_slices(comm, job);
    row_roots(comm, job);
}

START_TEST(islands)
{
    setenv("DDP_CUDASIM_STREAMS", _i % 2 ? "eager" : "lazy", 1);
    setenv("DDPRUN_ISLAND", _i == 2 ? "4" : "2", 1);
    run_ranks(_i == 0 ? 4 : _i == 1 ? 6 : 8, islands_body, -1);
}
END_TEST

#define SUMMED 30000 /* floats, whose slices differ in length */

static void sum_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, SUMMED * sizeof(float), &memory) == DDP_OK);
    NEED(ddp_comm_allreduce_start(comm, memory, SUMMED, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    NEED(ddp_device_synchronize(ranks_device) == DDP_OK);
}

/* Bytes that were sent between ranks 0, 1 and ranks 2, 3. */
static long long sent_between(const char *log, const char *island)
{
    long long sum = 0, bytes;
    int from, to;
    unlink(log);
    if (island)
        setenv("DDPRUN_ISLAND", island, 1);
    else
        unsetenv("DDPRUN_ISLAND");
    run_ranks(4, sum_body, -1);
    FILE *file = fopen(log, "r");
    ck_assert_ptr_nonnull(file);
    while (fscanf(file, "%d %d %lld", &from, &to, &bytes) == 3)
        if (from / 2 != to / 2)
            sum += bytes;
    fclose(file);
    return sum;
}

/* Each slice crosses once for each rank of the other island, and so does its sum; or both once, the
 * sums by broadcasts. What connects ranks at first comes on top in both. */
START_TEST(between_islands)
{
    const long long array = SUMMED * (long long)sizeof(float), connect = 4LL * 2 * 256;
    const char *log = scratch_path("log");
    setenv("DDP_CUDASIM_NCCL_LOG", log, 1);
    if (cuda_test_simulated()) {
        ck_assert_int_eq(sent_between(log, NULL), 4 * array + connect);
        ck_assert_int_eq(sent_between(log, "2"), array + connect);
    }
}
END_TEST

Suite *test_suite(void)
{
    setenv("DDP_CUDASIM_DEVICES", "8", 1);
    cuda_test_begin();
    ranks_use("cuda", "nccl");
    Suite *suite = suite_create("order of NCCL");
    TCase *tc = test_case(suite, "order", 120);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_loop_test(tc, ordered, 0, 2);
    tcase_add_test(tc, connected);
    tcase_add_loop_test(tc, islands, 0, 3);
    tcase_add_test(tc, between_islands);
    return suite;
}
