/* SPDX-License-Identifier: MIT
 *
 * NCCL between processes with a GPU each: the rows of every communicator on the memory of devices,
 * and what can go wrong. On the simulated devices streams run late (nothing before somebody waits)
 * or at once, so that what works by luck does not work twice. */
#include "config.h"

#include "core/clock.h"
#include "tests/comm/comm_ranks.h"
#include "tests/cuda/cuda_test.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

static const int sizes[] = {2, 3, 4, 8};

/* What the simulation does with streams and threads in a round of a loop test. */
static void choose_streams(int round)
{
    setenv("DDP_CUDASIM_STREAMS", round & 1 ? "eager" : "lazy", 1);
    setenv("DDP_CUDASIM_ORDER", round & 1 ? "random:7" : "forward", 1);
}

START_TEST(collectives)
{
    choose_streams(_i);
    run_ranks(sizes[_i], row_collectives, -1);
}
END_TEST

START_TEST(overlap)
{
    choose_streams(_i + 1);
    run_ranks(sizes[_i], row_overlap, -1);
}
END_TEST

START_TEST(slices)
{
    choose_streams(_i);
    run_ranks(sizes[_i], row_slices, -1);
    run_ranks(sizes[_i], row_roots, -1);
}
END_TEST

START_TEST(returns)
{
    choose_streams(_i);
    run_ranks(sizes[_i], row_returns, -1);
}
END_TEST

START_TEST(bf16)
{
    run_ranks(3, row_bf16, -1);
}
END_TEST

/* Without NCCL. */
START_TEST(alone)
{
    run_ranks(1, row_collectives, -1);
    run_ranks(1, row_overlap, -1);
    run_ranks(1, row_slices, -1);
    run_ranks(1, row_returns, -1);
    run_ranks(1, row_bf16, -1);
}
END_TEST

/* More than the scratch holds: in pieces. */
static void large_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = (18u << 20) + 5, bytes = count * sizeof(float);
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, bytes, &memory) == DDP_OK);
    char *sum = ranks_expect(ddp_comm_size(comm), count, DDP_F32, DDP_SUM);
    ranks_fill(memory, count, DDP_F32, ddp_comm_rank(comm));
    NEED(ddp_comm_allreduce(comm, memory, count, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ranks_same(memory, sum, bytes));
    free(sum);
    NEED(ddp_comm_free(comm, memory) == DDP_OK);
}

START_TEST(large)
{
    run_ranks(2, large_body, -1);
}
END_TEST

/* Each needs more scratch than the one before, which still uses it. */
static void growing_body(ddp_comm *comm, ddp_job *job)
{
    static const size_t counts[] = {100000, 900000, 3000000};
    const int size = ddp_comm_size(comm);
    void *memory[3];
    (void)job;
    for (int i = 0; i < 3; i++) {
        NEED(ddp_comm_alloc(comm, counts[i] * 4, &memory[i]) == DDP_OK);
        ranks_fill(memory[i], counts[i], DDP_F32, ddp_comm_rank(comm));
    }
    for (int i = 0; i < 3; i++)
        NEED(ddp_comm_allreduce_start(comm, memory[i], counts[i], DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    for (int i = 0; i < 3; i++) {
        float *sum = ranks_expect(size, counts[i], DDP_F32, DDP_SUM);
        NEED(ranks_same(memory[i], sum, counts[i] * 4));
        free(sum);
    }
}

START_TEST(growing)
{
    choose_streams(_i);
    run_ranks(3, growing_body, -1);
}
END_TEST

/* --- in NCCL's own order --- */

static void fast_body(ddp_comm *comm, ddp_job *job)
{
    static const size_t counts[] = {1, 1001, 40000, 3 * 4096, 4 * 4096};
    const int size = ddp_comm_size(comm), rank = ddp_comm_rank(comm);
    void *memory;
    (void)job;
    ddp_comm_set_fast(comm, true);
    NEED(ddp_comm_alloc(comm, 40000 * 4, &memory) == DDP_OK);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const size_t count = counts[c], bytes = count * 4;
        float *sum = ranks_expect(size, count, DDP_F32, DDP_SUM), *got = malloc(bytes);
        int32_t *most = ranks_expect(size, count, DDP_I32, DDP_MAX);
        const size_t begin = ddp_slice_begin(count, 4096, rank, size);
        const size_t end = ddp_slice_begin(count, 4096, rank + 1, size);
        ranks_fill(memory, count, DDP_F32, rank);
        NEED(ddp_comm_allreduce(comm, memory, count, DDP_F32, DDP_SUM) == DDP_OK);
        ranks_get(got, memory, bytes);
        for (size_t i = 0; i < count; i++)
            NEED(fabsf(got[i] - sum[i]) <= 0.1f);
        ranks_fill(memory, count, DDP_F32, rank);
        NEED(ddp_comm_reduce_slices_start(comm, memory, count, 4096, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_finish(comm) == DDP_OK);
        ranks_get(got, memory, bytes);
        for (size_t i = begin; i < end; i++)
            NEED(fabsf(got[i] - sum[i]) <= 0.1f);
        ranks_values(sum, count, DDP_F32, rank);
        NEED(memcmp(got, sum, begin * 4) == 0);
        NEED(memcmp(got + end, sum + end, (count - end) * 4) == 0);
        ranks_fill(memory, count, DDP_I32, rank);
        NEED(ddp_comm_allreduce(comm, memory, count, DDP_I32, DDP_MAX) == DDP_OK);
        NEED(ranks_same(memory, most, bytes));
        free(most);
        free(got);
        free(sum);
    }
}

START_TEST(fast)
{
    run_ranks(4, fast_body, -1);
    run_ranks(3, fast_body, -1);
}
END_TEST

/* --- ranks that do not agree --- */

static enum ddp_status settle(void)
{
    return ddp_device_synchronize(ranks_device);
}

/* All have joined, and none is still in here when another one fails. */
static void meet(ddp_comm *comm)
{
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    usleep(100000);
}

static void mismatch_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = ddp_comm_rank(comm) == 1 ? 200 : 300;
    void *values = ranks_alloc(300 * 4);
    meet(comm);
    enum ddp_status status = ddp_comm_allreduce(comm, values, count, DDP_F32, DDP_SUM);
    if (status == DDP_OK)
        status = settle();
    NEED(status == DDP_ERR_MISMATCH);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_MISMATCH);
    NEED(ddp_job_aborted(job));
}

static void mismatch_kind_body(ddp_comm *comm, ddp_job *job)
{
    void *value = ranks_alloc(4);
    enum ddp_status status;
    (void)job;
    meet(comm);
    if (ddp_comm_rank(comm) == 0)
        status = ddp_comm_barrier(comm);
    else
        status = ddp_comm_broadcast(comm, value, 1, DDP_F32, 0);
    if (status == DDP_OK)
        status = settle();
    NEED(status == DDP_ERR_MISMATCH);
}

static void mismatch_alloc_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    meet(comm);
    NEED(ddp_comm_alloc(comm, 4096u * (1u + (unsigned)ddp_comm_rank(comm)), &memory) ==
         DDP_ERR_MISMATCH);
}

START_TEST(mismatch)
{
    run_ranks(3, mismatch_body, -1);
    run_ranks(2, mismatch_kind_body, -1);
    run_ranks(2, mismatch_alloc_body, -1);
}
END_TEST

/* --- ranks that do not come --- */

static void need_between(int64_t start_ns, int least_ms, int most_ms)
{
    const int64_t ms = (ddp_clock_ns() - start_ns) / 1000000;
    NEED(ms >= least_ms && ms < most_ms);
}

static void timeout_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(1000);
    if (ddp_comm_rank(comm) == 0) {
        while (!ddp_job_aborted(job))
            usleep(1000);
        return;
    }
    ddp_comm_set_timeout(comm, 200);
    const int64_t start = ddp_clock_ns();
    NEED(ddp_comm_allreduce(comm, values, 250, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(settle() == DDP_ERR_TIMEOUT);
    need_between(start, 195, 2000);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
}

static void barrier_timeout_body(ddp_comm *comm, ddp_job *job)
{
    if (ddp_comm_rank(comm) == 0) {
        while (!ddp_job_aborted(job))
            usleep(1000);
        return;
    }
    ddp_comm_set_timeout(comm, 200);
    const int64_t start = ddp_clock_ns();
    NEED(ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
    need_between(start, 195, 2000);
}

START_TEST(timeouts)
{
    run_ranks(2, timeout_body, -1);
    run_ranks(2, barrier_timeout_body, -1);
}
END_TEST

/* A deadline counts from when the others are waited for, not from when the work was given. */
static void patient_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(1000);
    (void)job;
    ddp_comm_set_timeout(comm, 1000);
    NEED(ddp_comm_allreduce(comm, values, 250, DDP_F32, DDP_SUM) == DDP_OK);
    usleep(1500000); /* both: the device is done long before the host looks */
    NEED(settle() == DDP_OK);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
}

START_TEST(patience)
{
    run_ranks(2, patient_body, -1);
}
END_TEST

static void killed_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    const size_t count = 1u << 16;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    for (int i = 0;; i++) {
        if (i == 20 && ddp_comm_rank(comm) == 1)
            raise(SIGKILL);
        enum ddp_status status = ddp_comm_allreduce(comm, memory, count, DDP_F32, DDP_SUM);
        if (status == DDP_OK)
            status = settle();
        if (status == DDP_OK)
            continue;
        NEED(status == DDP_ERR_ABORTED);
        NEED(i >= 19 && ddp_job_aborted(job));
        NEED(ddp_comm_barrier(comm) == DDP_ERR_ABORTED);
        return;
    }
}

START_TEST(killed)
{
    const int64_t start = ddp_clock_ns();
    choose_streams(_i);
    run_ranks(3, killed_body, 1);
    ck_assert_int_lt((ddp_clock_ns() - start) / 1000000, 8000);
}
END_TEST

/* Killed while its peers are inside, and it too: on the way through many collectives. */
static void killed_inside_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    const size_t count = 1u << 18;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    if (ddp_comm_rank(comm) == 1) {
        signal(SIGALRM, SIG_DFL); /* Check has a handler */
        alarm(1);
    }
    for (;;) {
        enum ddp_status status = DDP_OK;
        for (int b = 0; status == DDP_OK && b < 8; b++)
            status = ddp_comm_allreduce_start(comm, (float *)memory + b * (1 << 15), 1 << 15,
                                              DDP_F32, DDP_SUM);
        if (status == DDP_OK)
            status = ddp_comm_finish(comm);
        if (status == DDP_OK)
            status = settle();
        if (status == DDP_OK)
            continue;
        NEED(status == DDP_ERR_ABORTED && ddp_job_aborted(job));
        return;
    }
}

START_TEST(killed_inside)
{
    choose_streams(_i);
    run_ranks(3, killed_inside_body, 1);
}
END_TEST

static void aborted_body(ddp_comm *comm, ddp_job *job)
{
    void *values = ranks_alloc(1000);
    if (ddp_comm_rank(comm) == 0) {
        usleep(200000);
        ddp_job_abort(job);
        NEED(ddp_comm_allreduce(comm, values, 250, DDP_F32, DDP_SUM) == DDP_ERR_ABORTED);
        return;
    }
    NEED(ddp_comm_allreduce(comm, values, 250, DDP_F32, DDP_SUM) == DDP_OK);
    const int64_t start = ddp_clock_ns();
    NEED(settle() == DDP_ERR_ABORTED);
    need_between(start, 0, 2000);
}

START_TEST(aborted)
{
    run_ranks(3, aborted_body, -1);
}
END_TEST

/* Rank 2 never joins; its launcher takes the job down. */
static void never_comes_body(ddp_comm *comm, ddp_job *job)
{
    if (ddp_job_rank(job) == 2) {
        usleep(300000);
        ddp_job_abort(job);
        return;
    }
    const int64_t start = ddp_clock_ns();
    NEED(ranks_join(&comm, job) == DDP_ERR_ABORTED);
    need_between(start, 0, 3000);
}

/* Rank 0 never makes the id. */
static void no_id_body(ddp_comm *comm, ddp_job *job)
{
    if (ddp_job_rank(job) == 0) {
        usleep(300000);
        ddp_job_abort(job);
        return;
    }
    NEED(ranks_join(&comm, job) == DDP_ERR_ABORTED);
}

START_TEST(never_comes)
{
    run_ranks_alone(3, never_comes_body, -1);
    run_ranks_alone(2, no_id_body, -1);
}
END_TEST

static void late_body(ddp_comm *comm, ddp_job *job)
{
    struct rusage before, after;
    void *value = ranks_alloc(4);
    (void)job;
    meet(comm);
    if (ddp_comm_rank(comm) == 0)
        usleep(1000000);
    getrusage(RUSAGE_SELF, &before);
    NEED(ddp_comm_allreduce(comm, value, 1, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(settle() == DDP_OK);
    getrusage(RUSAGE_SELF, &after);
    double burnt = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                   (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                   (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) * 1e-6 +
                   (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1e-6;
    NEED(burnt < 0.4);
}

START_TEST(late_rank_burns_little)
{
    run_ranks(2, late_body, -1);
}
END_TEST

/* --- sharing --- */

/* Several communicators of one device, on their way at the same time. */
static void several_body(ddp_comm *comm, ddp_job *job)
{
    enum { COUNT = 20000 };
    const int size = ddp_comm_size(comm), rank = ddp_comm_rank(comm);
    float *sum = ranks_expect(size, COUNT, DDP_F32, DDP_SUM);
    ddp_comm *others[3];
    void *memory[3];
    for (int i = 0; i < 3; i++) {
        NEED(ranks_join(&others[i], job) == DDP_OK);
        NEED(ddp_comm_alloc(others[i], COUNT * 4, &memory[i]) == DDP_OK);
    }
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) {
            ranks_fill(memory[i], COUNT, DDP_F32, rank);
            NEED(ddp_comm_allreduce_start(others[i], memory[i], COUNT, DDP_F32, DDP_SUM) == DDP_OK);
        }
        NEED(ddp_comm_barrier(comm) == DDP_OK);
        for (int i = 2; i >= 0; i--) {
            NEED(ddp_comm_finish(others[i]) == DDP_OK);
            NEED(ranks_same(memory[i], sum, COUNT * 4));
        }
    }
    ddp_comm_destroy(others[1]);
    ddp_comm_destroy(others[0]);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    NEED(settle() == DDP_OK);
    ddp_comm_destroy(others[2]);
    free(sum);
}

START_TEST(several_communicators)
{
    choose_streams(_i);
    run_ranks(3, several_body, -1);
}
END_TEST

/* What goes wrong in any communicator of a device ends the wait for it, whichever was made first;
 * and when one is destroyed the others are watched still. */
static int broken;

static void watched_body(ddp_comm *comm, ddp_job *job)
{
    ddp_comm *comms[3] = {comm};
    void *values = ranks_alloc(1000);
    for (int i = 1; i < 3; i++)
        NEED(ranks_join(&comms[i], job) == DDP_OK);
    if (broken >= 3) {
        ddp_comm_destroy(comms[2]); /* the latest */
        comms[2] = NULL;
    }
    meet(comm);
    if (ddp_comm_rank(comm) == 0) {
        while (!ddp_job_aborted(job))
            usleep(1000);
    } else {
        for (int i = 0; i < 3 && comms[i]; i++)
            ddp_comm_set_timeout(comms[i], i == broken % 3 ? 200 : -1);
        const int64_t start = ddp_clock_ns();
        NEED(ddp_comm_allreduce(comms[broken % 3], values, 250, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(settle() == DDP_ERR_TIMEOUT);
        need_between(start, 195, 2000);
    }
    ddp_comm_destroy(comms[2]);
    ddp_comm_destroy(comms[1]);
}

START_TEST(all_are_watched)
{
    broken = _i;
    run_ranks(2, watched_body, -1);
}
END_TEST

/* Workers that share a GPU: NCCL refuses, unless they look like several machines. */
static void duplicate_body(ddp_comm *comm, ddp_job *job)
{
    const enum ddp_status status = ranks_join(&comm, job);
    NEED(status == DDP_ERR_UNSUPPORTED || status == DDP_ERR_ABORTED);
    NEED(ddp_job_aborted(job));
}

START_TEST(channels)
{
    choose_streams(_i);
    run_ranks(2 + _i, row_channels, -1);
    run_ranks(2 + _i, row_channel_overlap, -1);
    run_ranks(3, row_channel_leaves, -1);
    run_ranks(3, row_channel_crossing, -1);
}
END_TEST

START_TEST(channel_arguments)
{
    run_ranks(1 + _i, row_channel_arguments, -1);
}
END_TEST

START_TEST(channel_failures)
{
    for (int i = 0; i < CHANNEL_MISMATCH_ROWS; i++)
        run_ranks(3, channel_mismatch_rows[i], -1);
    for (int i = 0; i < 2; i++)
        run_ranks(2, channel_timeout_rows[i], -1);
    for (int i = 0; i < 2; i++)
        run_ranks(3, channel_killed_rows[i], 1);
    run_ranks(3, row_channel_aborted, -1);
}
END_TEST

START_TEST(shared_gpu)
{
    setenv("DDP_CUDASIM_DEVICES", "1", 1);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    run_ranks(2, row_slices, -1);
    setenv("RANKS_AS_ONE_HOST", "1", 1);
    run_ranks_alone(2, duplicate_body, -1);
}
END_TEST

Suite *test_suite(void)
{
    setenv("DDP_CUDASIM_DEVICES", "8", 1);
    cuda_test_begin();
    ranks_use("cuda", "nccl");
    Suite *suite = suite_create("comm of NCCL");
    TCase *tc = test_case(suite, "nccl", 240);
    tcase_add_loop_test(tc, collectives, 0, 4);
    tcase_add_loop_test(tc, overlap, 0, 4);
    tcase_add_loop_test(tc, slices, 0, 4);
    tcase_add_loop_test(tc, returns, 0, 4);
    tcase_add_test(tc, bf16);
    tcase_add_test(tc, alone);
    tcase_add_test(tc, large);
    tcase_add_loop_test(tc, growing, 0, 2);
    tcase_add_test(tc, fast);
    tcase_add_loop_test(tc, several_communicators, 0, 2);
    tc = test_case(suite, "failures", 60);
    tcase_add_test(tc, mismatch);
    tcase_add_test(tc, timeouts);
    tcase_add_test(tc, patience);
    tcase_add_loop_test(tc, killed, 0, 2);
    tcase_add_loop_test(tc, killed_inside, 0, 2);
    tcase_add_test(tc, aborted);
    tcase_add_loop_test(tc, all_are_watched, 0, 5);
    tcase_add_test(tc, never_comes);
    tcase_add_test(tc, late_rank_burns_little);
    tcase_add_test(tc, shared_gpu);
    tc = test_case(suite, "channels", 120);
    tcase_add_loop_test(tc, channels, 0, 3);
    tcase_add_loop_test(tc, channel_arguments, 0, 2);
    tcase_add_test(tc, channel_failures);
    return suite;
}
