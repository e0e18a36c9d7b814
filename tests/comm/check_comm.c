/* SPDX-License-Identifier: MIT
 *
 * The collectives between processes on the host's memory. */
#include "config.h"

#include "comm/comm.h"
#include "core/clock.h"
#include "job/job.h"
#include "tests/comm/comm_ranks.h"
#include "tests/lib/runner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

START_TEST(collectives)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    run_ranks(sizes[_i], row_collectives, -1);
}
END_TEST

static void large_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = (24u << 20) / 4 + 5; /* beyond the cache: streaming stores */
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    char *sum = ranks_expect(ddp_comm_size(comm), count, DDP_F32, DDP_SUM);
    ranks_values(memory, count, DDP_F32, ddp_comm_rank(comm));
    NEED(ddp_comm_allreduce(comm, memory, count, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(memcmp(memory, sum, count * 4) == 0);
    free(sum);
    NEED(ddp_comm_free(comm, memory) == DDP_OK);
}

START_TEST(large)
{
    run_ranks(2, large_body, -1);
}
END_TEST

START_TEST(overlap)
{
    static const int sizes[] = {1, 2, 3, 8};
    run_ranks(sizes[_i], row_overlap, -1);
}
END_TEST

/* Nothing comes between the start and the end of an all-reduce that is computed beside. */
static void started_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    float value = 1;
    (void)job;
    NEED(ddp_comm_alloc(comm, 4096, &memory) == DDP_OK);
    memset(memory, 0, 4096);
    NEED(ddp_comm_allreduce_start(comm, memory, 1024, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_INVALID);
    NEED(ddp_comm_allreduce(comm, &value, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
}

START_TEST(slices)
{
    static const int sizes[] = {1, 2, 3, 8};
    run_ranks(sizes[_i], row_slices, -1);
    run_ranks(sizes[_i], row_roots, -1);
}
END_TEST

/* What one rank writes all others read, also when some have left the communicator. */
static void shared_body(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    const size_t counts[] = {1, 1000, 100001};
    int32_t *shared[3], sum = 0;
    NEED(ddp_comm_has_shared(comm));
    for (int i = 0; i < 3; i++) {
        void *memory;
        NEED(ddp_comm_alloc_shared(comm, counts[i] * sizeof(int32_t), &memory) == DDP_OK);
        NEED((uintptr_t)memory % 4096 == 0);
        shared[i] = memory;
        for (size_t k = 0; k < counts[i]; k++)
            NEED(shared[i][k] == 0);
        NEED(ddp_comm_barrier(comm) == DDP_OK);
        for (size_t k = (size_t)rank; k < counts[i]; k += (size_t)size)
            shared[i][k] = (int32_t)k + i;
    }
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < counts[i]; k++)
            NEED(shared[i][k] == (int32_t)k + i);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    NEED(ddp_comm_free(comm, shared[0]) == (size > 1 ? DDP_ERR_INVALID : DDP_OK));
    for (int r = 0; r < size; r++) /* it may be a collective's buffer as other memory is */
        shared[2][r] = 1;
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    sum = shared[2][rank];
    NEED(ddp_comm_allreduce(comm, &sum, 1, DDP_I32, DDP_SUM) == DDP_OK);
    NEED(sum == size);
    if (rank == size - 1) { /* the others leave meanwhile */
        usleep(50000);
        for (size_t k = 100; k < counts[2]; k++)
            NEED(shared[2][k] == (int32_t)k + 2);
    }
    (void)job;
}

START_TEST(shared)
{
    static const int sizes[] = {1, 2, 5};
    run_ranks(sizes[_i], shared_body, -1);
}
END_TEST

START_TEST(mismatch)
{
    for (int i = 0; i < MISMATCH_ROWS; i++)
        run_ranks(i ? 2 : 3, mismatch_rows[i], -1);
}
END_TEST

/* The one-line message names both ranks and all that they call. */
START_TEST(mismatch_words)
{
    words_first_call = _i;
    run_ranks(2, row_words, -1);
}
END_TEST

START_TEST(started)
{
    run_ranks(1, started_body, -1);
    run_ranks(3, started_body, -1);
}
END_TEST

START_TEST(returns)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    run_ranks(sizes[_i], row_returns, -1);
}
END_TEST

START_TEST(bf16)
{
    run_ranks(1, row_bf16, -1);
    run_ranks(5, row_bf16, -1);
}
END_TEST

START_TEST(too_little_memory)
{
    run_ranks(2, row_memory, -1);
    run_ranks(2, row_only_read, -1);
}
END_TEST

static void timeout_body(ddp_comm *comm, ddp_job *job)
{
    ddp_comm_set_timeout(comm, 100);
    const int64_t start = ddp_clock_ns();
    NEED(ddp_comm_rank(comm) == 0 || ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
    NEED(ddp_comm_rank(comm) == 0 || ddp_clock_ns() - start >= 95000000);
    ranks_come_last(job, NULL, 0);
}

START_TEST(timeouts)
{
    run_ranks(2, timeout_body, -1);
}
END_TEST

static void killed_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    const size_t count = 1u << 18;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    for (int i = 0;; i++) {
        if (i == 50 && ddp_comm_rank(comm) == 1)
            raise(SIGKILL);
        enum ddp_status status = ddp_comm_allreduce(comm, memory, count, DDP_F32, DDP_SUM);
        if (status == DDP_OK)
            continue;
        NEED(status == DDP_ERR_ABORTED);
        NEED(i >= 49 && ddp_job_aborted(job));
        return;
    }
}

START_TEST(killed)
{
    int64_t start = ddp_clock_ns();
    run_ranks(3, killed_body, 1);
    ck_assert_int_lt((ddp_clock_ns() - start) / 1000000, 30000);
}
END_TEST

static void late_body(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (ddp_comm_rank(comm) == 0)
        usleep(1000000);
    const clock_t before = clock();
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    NEED(clock() - before < CLOCKS_PER_SEC / 10);
}

START_TEST(late_rank_burns_nothing)
{
    run_ranks(2, late_body, -1);
}
END_TEST

static void several_body(ddp_comm *comm, ddp_job *job)
{
    for (int i = 0; i < DDP_ID_SLOTS - 1; i++) {
        ddp_comm *other;
        void *memory;
        NEED(ddp_comm_create(&other, job, "shm") == DDP_OK);
        NEED(ddp_comm_alloc(other, 1u << 20, &memory) == DDP_OK);
        int64_t one = 1;
        NEED(ddp_comm_allreduce(other, &one, 1, DDP_I64, DDP_SUM) == DDP_OK);
        NEED(one == ddp_comm_size(other));
        NEED(ddp_comm_barrier(comm) == DDP_OK);
        ddp_comm_destroy(other);
    }
}

START_TEST(several_communicators)
{
    run_ranks(3, several_body, -1);
}
END_TEST

/* --- groups: replicas of some stages --- */

static const struct {
    int stages, replicas;
} grids[] = {{2, 2}, {4, 2}, {2, 4}, {1, 3}, {3, 1}, {3, 2}};
enum { GRIDS = sizeof grids / sizeof grids[0] };

START_TEST(groups)
{
    groups_stages = grids[_i].stages;
    run_ranks(grids[_i].stages * grids[_i].replicas, row_groups, -1);
}
END_TEST

START_TEST(groups_named)
{
    groups_stages = grids[_i].stages;
    run_ranks(grids[_i].stages * grids[_i].replicas, row_groups_named, -1);
}
END_TEST

START_TEST(groups_more)
{
    groups_stages = 2;
    run_ranks_alone(4, row_groups_arguments, -1);
    run_ranks_alone(4, row_groups_beside, -1);
}
END_TEST

START_TEST(groups_killed)
{
    const int64_t start = ddp_clock_ns();
    groups_stages = grids[_i].stages;
    run_ranks(grids[_i].stages * grids[_i].replicas, row_groups_killed, 1);
    ck_assert_int_lt((ddp_clock_ns() - start) / 1000000, 30000);
}
END_TEST

START_TEST(groups_differ)
{
    run_ranks_alone(4, groups_differ_rows[_i], -1);
    run_ranks_alone(6, groups_differ_rows[_i], -1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("comm");
    TCase *tc = test_case(suite, "comm", 120);
    tcase_add_loop_test(tc, collectives, 0, 5);
    tcase_add_loop_test(tc, returns, 0, 5);
    tcase_add_test(tc, large);
    tcase_add_loop_test(tc, slices, 0, 4);
    tcase_add_loop_test(tc, shared, 0, 3);
    tcase_add_loop_test(tc, overlap, 0, 4);
    tcase_add_test(tc, mismatch);
    tcase_add_loop_test(tc, mismatch_words, 0, WORDS_CALLS);
    tcase_add_test(tc, started);
    tcase_add_test(tc, too_little_memory);
    tcase_add_test(tc, bf16);
    tcase_add_test(tc, timeouts);
    tcase_add_test(tc, killed);
    tcase_add_test(tc, late_rank_burns_nothing);
    tcase_add_test(tc, several_communicators);
    tc = test_case(suite, "groups", 120);
    tcase_add_loop_test(tc, groups, 0, GRIDS);
    tcase_add_loop_test(tc, groups_named, 0, 3);
    tcase_add_test(tc, groups_more);
    tcase_add_loop_test(tc, groups_killed, 0, 3);
    tcase_add_loop_test(tc, groups_differ, 0, GROUPS_DIFFER_ROWS);
    return suite;
}
