/* SPDX-License-Identifier: MIT
 *
 * NCCL between processes on several machines, which are one here: each has a board and a heap of
 * its own, and NCCL is told that it is another host. And between groups of a job's ranks, also on
 * one machine. */
#include "config.h"

#include "core/clock.h"
#include "tests/comm/comm_ranks.h"
#include "tests/cuda/cuda_test.h"

#include <signal.h>
#include <string.h>

static const struct {
    int nodes, workers;
} shapes[] = {{2, 2}, {4, 1}, {2, 3}, {3, 2}, {2, 1}};

#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

/* What the simulation does with streams and threads in a round of a loop test. */
static void choose_streams(int round)
{
    setenv("DDP_CUDASIM_STREAMS", round & 1 ? "eager" : "lazy", 1);
    setenv("DDP_CUDASIM_ORDER", round & 1 ? "random:7" : "forward", 1);
}

static enum ddp_status settle(void)
{
    return ddp_device_synchronize(ranks_device);
}

/* --- the same sums as on one machine --- */

static void run_shape(int shape, ranks_body *body)
{
    run_nodes(shapes[shape].nodes, shapes[shape].workers, body, -1);
}

START_TEST(collectives)
{
    choose_streams(_i);
    run_shape(_i, row_collectives);
    run_shape(_i, row_returns);
}
END_TEST

START_TEST(overlap)
{
    choose_streams(_i + 1);
    run_shape(_i, row_overlap);
    run_shape(_i, row_slices);
    run_shape(_i, row_roots);
    run_shape(_i, row_bf16);
}
END_TEST

/* --- ranks that do not agree: found within a machine, and in calls that wait for all --- */

/* All have joined, and none is still in here when another one fails. */
static void meet(ddp_comm *comm)
{
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    usleep(100000);
}

/* Who finds it first ends the job, before others may have looked. */
static void need_ended(const ddp_job *job, enum ddp_status status)
{
    NEED(status == DDP_ERR_MISMATCH || status == DDP_ERR_ABORTED);
    NEED(ddp_job_aborted(job));
}

/* NCCL moves as many bytes, and does not notice. */
static void mismatch_before_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(400);
    const enum ddp_dtype dtype = ddp_comm_rank(comm) == 1 ? DDP_I32 : DDP_F32;
    meet(comm);
    NEED(ddp_comm_broadcast(comm, values, 100, dtype, 0) == DDP_OK);
    need_ended(job, ddp_comm_barrier(comm));
}

static void mismatch_vote_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    meet(comm);
    need_ended(job, ddp_comm_rank(comm) == 0 ? ddp_comm_barrier(comm)
                                             : ddp_comm_alloc(comm, 4096, &memory));
}

/* Of two machines the ranks of one differ. The simulation finds that too: it says what would hang.
 */
static void mismatch_within_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(1200);
    const size_t count = ddp_comm_rank(comm) == 1 ? 200 : 300;
    meet(comm);
    enum ddp_status status = ddp_comm_allreduce(comm, values, count, DDP_F32, DDP_SUM);
    status = status == DDP_OK ? settle() : status;
    need_ended(job, status == DDP_ERR_SYSTEM ? DDP_ERR_MISMATCH : status);
}

START_TEST(mismatch)
{
    run_nodes(2, 1, mismatch_before_body, -1);
    run_nodes(2, 1, mismatch_vote_body, -1);
    run_nodes(2, 2, mismatch_within_body, -1);
}
END_TEST

/* --- ranks that do not come --- */

/* The abort word, which the launchers carry over, ends what NCCL would wait for. */
static void need_aborted(ddp_job *job, int64_t start_ns, enum ddp_status status)
{
    NEED(status == DDP_ERR_ABORTED && ddp_job_aborted(job));
    NEED(ddp_clock_ns() - start_ns < INT64_C(30000000000));
}

static void killed_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    const size_t count = 1u << 16;
    enum ddp_status status = DDP_OK;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    int64_t start = 0;
    for (int i = 0; status == DDP_OK; i++) {
        if (i == 20 && ddp_comm_rank(comm) == 1)
            raise(SIGKILL);
        start = ddp_clock_ns();
        status = ddp_comm_allreduce(comm, memory, count, DDP_F32, DDP_SUM);
        if (status == DDP_OK)
            status = settle();
    }
    need_aborted(job, start, status);
}

START_TEST(killed)
{
    choose_streams(_i);
    run_nodes(shapes[_i].nodes, shapes[_i].workers, killed_body, 1);
}
END_TEST

static void never_comes_body(ddp_comm *comm, ddp_job *job)
{
    const int64_t start = ddp_clock_ns();
    if (ddp_job_rank(job) == 2) {
        usleep(300000);
        ddp_job_abort(job);
        return;
    }
    need_aborted(job, start, ranks_join(&comm, job));
}

/* Rank 0 never makes the id. */
static void no_id_body(ddp_comm *comm, ddp_job *job)
{
    const int64_t start = ddp_clock_ns();
    if (ddp_job_rank(job) == 0) {
        usleep(300000);
        ddp_job_abort(job);
        return;
    }
    need_aborted(job, start, ranks_join(&comm, job));
}

START_TEST(never_comes)
{
    run_nodes_alone(3, 1, never_comes_body, -1);
    run_nodes_alone(2, 2, no_id_body, -1);
}
END_TEST

/* --- groups: replicas of some stages --- */

static void run_grid(int grid, ranks_body *body, int dies)
{
    groups_stages = groups_grids[grid].stages;
    run_nodes(groups_grids[grid].nodes, groups_grids[grid].per_node, body, dies);
}

START_TEST(groups)
{
    choose_streams(_i);
    run_grid(_i, row_groups, -1);
}
END_TEST

/* Some groups lie on one machine, others do not. */
START_TEST(uneven_groups)
{
    groups_stages = 2;
    run_starts(2, (const int[]){0, 3, 4}, row_groups, -1);
}
END_TEST

START_TEST(groups_fail)
{
    choose_streams(_i);
    run_grid(_i, row_groups_killed, 1);
}
END_TEST

START_TEST(groups_differ)
{
    run_nodes_alone(2, 2, groups_differ_rows[_i], -1);
}
END_TEST

/* --- on one machine --- */

static const struct {
    int stages, replicas;
} grids[] = {{2, 2}, {4, 2}, {2, 4}, {3, 1}, {1, 2}};
enum { GRIDS = sizeof grids / sizeof grids[0] };

START_TEST(one_groups)
{
    choose_streams(_i);
    groups_stages = grids[_i].stages;
    run_ranks(grids[_i].stages * grids[_i].replicas, row_groups, -1);
}
END_TEST

START_TEST(one_groups_fail)
{
    choose_streams(_i);
    groups_stages = 2;
    run_ranks(4, row_groups_named, -1);
    run_ranks_alone(4, row_groups_arguments, -1);
    run_ranks_alone(4, row_groups_beside, -1);
    run_ranks(4, row_groups_killed, 1);
}
END_TEST

START_TEST(one_groups_differ)
{
    run_ranks_alone(4, groups_differ_rows[_i], -1);
}
END_TEST

Suite *test_suite(void)
{
    setenv("DDP_CUDASIM_DEVICES", "8", 1);
    cuda_test_begin();
    ranks_use("cuda", "nccl");
    Suite *suite = suite_create("comm of NCCL over machines");
    TCase *tc = test_case(suite, "nodes", 120);
    tcase_add_loop_test(tc, collectives, 0, SHAPES);
    tcase_add_loop_test(tc, overlap, 0, SHAPES);
    tcase_add_test(tc, mismatch);
    tcase_add_loop_test(tc, killed, 0, SHAPES);
    tcase_add_test(tc, never_comes);
    tcase_add_loop_test(tc, groups, 0, GROUPS_GRIDS);
    tcase_add_test(tc, uneven_groups);
    tcase_add_loop_test(tc, groups_fail, 0, 2);
    tcase_add_loop_test(tc, groups_differ, 0, GROUPS_DIFFER_ROWS);
    tc = test_case(suite, "one machine", 120);
    tcase_add_loop_test(tc, one_groups, 0, GRIDS);
    tcase_add_loop_test(tc, one_groups_fail, 0, 2);
    tcase_add_loop_test(tc, one_groups_differ, 0, GROUPS_DIFFER_ROWS);
    return suite;
}
