/* SPDX-License-Identifier: MIT
 *
 * The collectives over several machines, which are one here: what every communicator must do, with
 * the bits of the one tree however the ranks are spread; calls that differ; and ranks that die. */
#include "config.h"

#include "comm/comm.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/plugin.h"
#include "job/job.h"
#include "tests/comm/comm_ranks.h"
#include "tests/lib/runner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Machines of so many ranks each. */
static const int shapes[][4] = {{1, 1},    {1, 1, 1, 1}, {2, 2},      {3, 1},
                                {1, 3, 2}, {3, 3, 3},    {1, 1, 3, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], FEW_SHAPES = 5 };

static void run_shape(int shape, ranks_body *body)
{
    int starts[5] = {0}, nodes = 0;
    for (; nodes < 4 && shapes[shape][nodes]; nodes++)
        starts[nodes + 1] = starts[nodes] + shapes[shape][nodes];
    run_starts(nodes, starts, body, -1);
}

static const int uneven[] = {0, 3, 4};

START_TEST(collectives)
{
    run_shape(_i, row_collectives);
}
END_TEST

START_TEST(overlap_and_slices)
{
    run_shape(_i, row_overlap);
    run_shape(_i, row_slices);
    run_shape(_i, row_roots);
}
END_TEST

START_TEST(returns)
{
    run_shape(_i, row_returns);
}
END_TEST

/* As a user may set it: UCX fetches a large message when there is a buffer, which may be later. */
START_TEST(rendezvous)
{
    setenv("UCX_RNDV_THRESH", "2048", 1);
    run_nodes(2, 1, row_collectives, -1);
    run_nodes(2, 2, row_overlap, -1);
}
END_TEST

START_TEST(bf16_and_memory)
{
    run_nodes(2, 2, row_bf16, -1);
    run_nodes(3, 1, row_bf16, -1);
    run_nodes(2, 2, row_memory, -1);
    run_nodes(2, 1, row_only_read, -1);
}
END_TEST

/* Beyond the chunks that are on their way at a time: 32 MiB. */
enum { LARGE = (34 << 20) / 4 + 5 };
static char *large_sum;  /* over all ranks, computed once for them */
static int large_memory; /* the first kind of memory to try */

static void large_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = LARGE;
    const int rank = ddp_comm_rank(comm);
    float *plain = malloc(count * 4);
    void *memory;
    (void)job;
    NEED(strcmp(ddp_comm_backend(comm), "nodes") == 0);
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    for (int i = large_memory; i < 3; i++) { /* registered, not, and where others are */
        float *buffer = i == 1 || (i == 2 && rank % 2) ? plain : memory;
        ranks_values(buffer, count, DDP_F32, rank);
        NEED(ddp_comm_allreduce(comm, buffer, count, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(memcmp(buffer, large_sum, count * 4) == 0);
    }
    ranks_values(memory, count, DDP_F32, rank);
    NEED(ddp_comm_broadcast(comm, memory, count, DDP_F32, 1) == DDP_OK);
    ranks_values(plain, count, DDP_F32, 1);
    NEED(memcmp(memory, plain, count * 4) == 0);
    free(plain);
}

START_TEST(large)
{
    large_sum = ranks_expect(2 * (1 + _i), LARGE, DDP_F32, DDP_SUM);
    large_memory = 2 * _i;
    if (_i == 0)
        run_nodes(2, 1, large_body, -1);
    else
        run_starts(2, uneven, large_body, -1);
    free(large_sum);
}
END_TEST

/* In an order of its own, which every rank has alike. */
static void fast_body(ddp_comm *comm, ddp_job *job)
{
    enum { COUNT = 100000 };
    const size_t counts[] = {5, 1000, COUNT};
    static float first[COUNT];
    float *values;
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, COUNT * sizeof *values, &memory) == DDP_OK);
    values = memory;
    ddp_comm_set_fast(comm, true);
    for (int i = 0; i < 3; i++) {
        float *sum = ranks_expect(ddp_comm_size(comm), counts[i], DDP_F32, DDP_SUM);
        ranks_values(values, counts[i], DDP_F32, ddp_comm_rank(comm));
        NEED(ddp_comm_allreduce(comm, values, counts[i], DDP_F32, DDP_SUM) == DDP_OK);
        for (size_t k = 0; k < counts[i]; k++)
            NEED(values[k] - sum[k] < 1 && sum[k] - values[k] < 1);
        memcpy(first, values, counts[i] * sizeof *values);
        NEED(ddp_comm_broadcast(comm, first, counts[i], DDP_F32, 0) == DDP_OK);
        NEED(memcmp(first, values, counts[i] * sizeof *values) == 0);
        free(sum);
    }
}

START_TEST(fast)
{
    run_nodes(2, 3, fast_body, -1);
}
END_TEST

/* One copy a machine; what a gathering of slices gives is the same in all. */
static void shared_body(ddp_comm *comm, ddp_job *job)
{
    enum { COUNT = 100001, GRAIN = 16 };
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    const size_t begin = ddp_slice_begin(COUNT, GRAIN, rank, size);
    const size_t end = ddp_slice_begin(COUNT, GRAIN, rank + 1, size);
    void *memory;
    NEED(ddp_comm_has_shared(comm));
    NEED(ddp_comm_alloc_shared(comm, COUNT * sizeof(int32_t), &memory) == DDP_OK);
    int32_t *shared = memory;
    NEED((uintptr_t)memory % 4096 == 0);
    for (int round = 0; round < 3; round++) {
        for (size_t k = begin; k < end; k++)
            shared[k] = (int32_t)k + round;
        NEED(ddp_comm_gather_slices(comm, shared, COUNT, GRAIN, DDP_I32) == DDP_OK);
        for (size_t k = 0; k < COUNT; k++)
            NEED(shared[k] == (int32_t)k + round);
        NEED(ddp_comm_barrier(comm) == DDP_OK);
    }
    shared[ddp_job_node_rank(job)] = -1 - rank; /* of this machine alone */
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    for (int r = 0; r < ddp_job_node_size(job); r++)
        NEED(shared[r] == -1 - (rank - ddp_job_node_rank(job) + r));
    NEED(ddp_comm_free(comm, shared) == DDP_ERR_INVALID);
}

START_TEST(shared)
{
    run_nodes(2, 1, shared_body, -1);
    run_nodes(2, 2, shared_body, -1);
    run_starts(2, uneven, shared_body, -1);
}
END_TEST

/* --- calls that differ --- */

START_TEST(mismatch)
{
    run_nodes(_i % 2 ? 3 : 2, _i % 2 ? 1 : 2, mismatch_rows[_i], -1);
    run_starts(2, uneven, mismatch_rows[_i], -1);
}
END_TEST

START_TEST(mismatch_words)
{
    words_first_call = _i;
    run_nodes(2, 1, row_words, -1);
}
END_TEST

/* The ranks of a machine agree, and learn from the other why a call fails there. */
static void told_body(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_comm_rank(comm);
    char text[300] = "";
    float value = 0;
    ddp_log_hold(text, sizeof text);
    NEED((rank == 3 ? ddp_comm_barrier(comm)
                    : ddp_comm_allreduce(comm, &value, 1, DDP_F32, DDP_SUM)) == DDP_ERR_MISMATCH);
    ddp_log_hold(NULL, 0);
    if (ddp_job_node(job) == 0)
        NEED(strstr(text, "rank 3 calls barrier, rank 2 all-reduce (sum) of 1 f32") ||
             strstr(text, "rank 2 calls all-reduce (sum) of 1 f32, rank 3 barrier"));
}

START_TEST(told)
{
    run_nodes(2, 2, told_body, -1);
}
END_TEST

/* --- ranks that are late, or die --- */

static _Atomic int64_t *shared_ns; /* a time, for all processes */

static void share_ns(void)
{
    shared_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared_ns != MAP_FAILED);
}

/* In the middle of a sum of 64 MiB: all that rank 1 can move on at a time is less. */
static void killed_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = 16u << 20;
    void *memory;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    memset(memory, 0, count * 4);
    NEED(ddp_comm_allreduce(comm, memory, 1u << 20, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_allreduce_start(comm, memory, count, DDP_F32, DDP_SUM) == DDP_OK);
    if (ddp_comm_rank(comm) == 1) {
        NEED(ddp_comm_progress(comm) == DDP_OK);
        *shared_ns = ddp_clock_ns();
        raise(SIGKILL);
    }
    const enum ddp_status status = ddp_comm_finish(comm);
    const int64_t ms = (ddp_clock_ns() - *shared_ns) / 1000000;
    NEED(status == DDP_ERR_ABORTED && ms < 30000); /* a start may take minutes */
    NEED(!ranks_untold || !ddp_job_aborted(job));
    NEED(ddp_comm_barrier(comm) == DDP_ERR_ABORTED);
    if (getenv("CHECK_NODES_TIMES"))
        fprintf(stderr, "after %d ms\n", (int)ms);
}

START_TEST(killed)
{
    static const int nodes[] = {2, 2, 3}, per_node[] = {1, 2, 2};
    share_ns();
    run_nodes(nodes[_i], per_node[_i], killed_body, 1);
}
END_TEST

/* The wire alone tells it. */
START_TEST(killed_untold)
{
    share_ns();
    ranks_untold = true;
    run_nodes(2 + _i, 1, killed_body, 1);
}
END_TEST

/* It is stopped in the middle of a sum, for a while: the others wait. */
static void stopped_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = 4u << 20;
    float *values;
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    values = memory;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)i;
    NEED(ddp_comm_allreduce_start(comm, memory, count, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_progress(comm) == DDP_OK);
    if (ddp_comm_rank(comm) == 1) {
        if (fork() == 0) {
            usleep(500000);
            kill(getppid(), SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
    }
    NEED(ddp_comm_finish(comm) == DDP_OK);
    for (size_t i = 0; i < count; i++)
        NEED(values[i] == (float)i * (float)ddp_comm_size(comm));
}

START_TEST(stopped)
{
    run_nodes(2, 1, stopped_body, -1);
    run_nodes(2, 2, stopped_body, -1);
}
END_TEST

static void timeout_body(ddp_comm *comm, ddp_job *job)
{
    const bool waits = ddp_comm_rank(comm) > 0;
    char text[200] = "";
    ddp_comm_set_timeout(comm, 100);
    int64_t start = ddp_clock_ns();
    ddp_log_hold(text, sizeof text);
    NEED(!waits || ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
    ddp_log_hold(NULL, 0);
    NEED(!waits || ddp_clock_ns() - start >= 95000000);
    NEED(!waits || strcmp(text, "waited 100 ms for rank 0 in a collective") == 0);
    ranks_come_last(job, NULL, 0);
}

START_TEST(timeouts)
{
    run_nodes(3, 1, timeout_body, -1);
}
END_TEST

/* A rank that stands still holds all up, who sleep meanwhile, and it goes on as if nothing was. */
static void late_body(ddp_comm *comm, ddp_job *job)
{
    int64_t one = 1;
    (void)job;
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (ddp_comm_rank(comm) == 0)
        usleep(1000000);
    const clock_t before = clock();
    NEED(ddp_comm_allreduce(comm, &one, 1, DDP_I64, DDP_SUM) == DDP_OK);
    NEED(clock() - before < CLOCKS_PER_SEC / 10);
    NEED(one == ddp_comm_size(comm));
}

START_TEST(late_rank_burns_nothing)
{
    run_nodes(2, 2, late_body, -1);
}
END_TEST

/* What does not fit them stays in UCX's buffer until the sender calls it again. */
static void small_sockets(int rank)
{
    (void)rank;
    setenv("UCX_TCP_SNDBUF", "4k", 1);
    setenv("UCX_TCP_RCVBUF", "16k", 1);
}

/* A rank that has returned computes, or sleeps: what it sent has left its process. Rank 1 sends
 * nearly all here, while rank 0 does not read yet, and has what it gets at once. Or it waits for
 * what the job's ranks write, before it has returned: that moves the wire on. */
static bool silent_waits;
static void silent_body(ddp_comm *comm, ddp_job *job)
{
    const size_t first = 15360, second = 16; /* elements of the slices */
    char there = 1;
    void *memory;
    NEED(ddp_comm_alloc(comm, (first + second) * 4, &memory) == DDP_OK);
    NEED(ddp_comm_reduce_slices_start(comm, memory, first + second, first, DDP_F32, DDP_SUM) ==
         DDP_OK);
    if (ddp_comm_rank(comm) == 0)
        usleep(500000);
    if (silent_waits && ddp_comm_rank(comm) == 1)
        NEED(ddp_job_get_id(job, DDP_ID_SLOTS - 1, &there, 1, 60000) == DDP_OK);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    if (ddp_comm_rank(comm) == 0)
        NEED(ddp_job_put_id(job, DDP_ID_SLOTS - 1, &there, 1) == DDP_OK);
    ranks_come_last(job, NULL, 1);
}

START_TEST(silent_rank_has_sent)
{
    ranks_prepare = small_sockets;
    silent_waits = _i % 2;
    run_nodes(2, 1, silent_body, -1);
}
END_TEST

/* The abort word ends a wait for another machine at once. */
static void aborted_body(ddp_comm *comm, ddp_job *job)
{
    ranks_come_last(job, NULL, 0);
    if (ddp_comm_rank(comm) == 0) {
        usleep(200000); /* they go into the barrier */
        ddp_job_abort(job);
        usleep(300000);
        return;
    }
    NEED(ddp_comm_barrier(comm) == DDP_ERR_ABORTED);
    ranks_need_end(job, ddp_clock_ns());
}

START_TEST(aborted)
{
    run_nodes(2, 1, aborted_body, -1);
    run_nodes(2, 2, aborted_body, -1);
}
END_TEST

static void several_body(ddp_comm *comm, ddp_job *job)
{
    for (int i = 0; i < DDP_ID_SLOTS - 1; i++) {
        ddp_comm *other;
        void *memory;
        NEED(ddp_comm_create(&other, job, "nodes") == DDP_OK);
        NEED(ddp_comm_alloc(other, 1u << 20, &memory) == DDP_OK);
        int64_t one = 1;
        NEED(ddp_comm_allreduce(other, &one, 1, DDP_I64, DDP_SUM) == DDP_OK);
        NEED(one == ddp_comm_size(other));
        NEED(ddp_comm_allreduce_start(other, memory, 1u << 18, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_barrier(comm) == DDP_OK);
        NEED(ddp_comm_finish(other) == DDP_OK);
        ddp_comm_destroy(other);
    }
}

START_TEST(several_communicators)
{
    run_nodes(2, 2, several_body, -1);
}
END_TEST

/* A process that ends takes nothing with it that others wait for. */
static void ending_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = 1u << 20;
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    NEED(ddp_comm_broadcast(comm, memory, count, DDP_F32, 0) == DDP_OK);
}

START_TEST(ending)
{
    for (int i = 0; i < 6; i++)
        run_nodes(2 + i % 2, 1 + i % 3, ending_body, -1);
}
END_TEST

/* UCX aborts a process that cannot start a thread. */
static void no_thread_body(ddp_comm *comm, ddp_job *job)
{
    const struct rlimit none = {0, 0};
    const struct ddp_plugin *plugin;
    NEED(ddp_plugin_load(&plugin, "ucx", true) == DDP_OK); /* another user might not read it */
    NEED(geteuid() != 0 || setuid(65534) == 0);            /* root has no limit */
    NEED(setrlimit(RLIMIT_NPROC, &none) == 0);
    NEED(ranks_join(&comm, job) == DDP_ERR_SYSTEM);
}

START_TEST(no_thread)
{
    run_nodes_alone(2, 1, no_thread_body, -1);
}
END_TEST

/* UCX takes SIGHUP, with which ddprun ends a worker, for a wish to see what it does. */
static void signals_body(ddp_comm *comm, ddp_job *job)
{
    (void)comm;
    (void)job;
    for (int number = 1; number < 32; number++) {
        struct sigaction now;
        NEED(sigaction(number, NULL, &now) == 0);
        /* A sanitizer has three, and the runner of tests its alarm. */
        NEED(now.sa_handler == SIG_DFL || number == SIGSEGV || number == SIGBUS ||
             number == SIGFPE || number == SIGALRM);
    }
}

static void default_signals(int rank)
{
    const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2};
    (void)rank;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        signal(numbers[i], SIG_DFL); /* of ours, nohup ignores one, a shell others */
}

START_TEST(keeps_signals)
{
    ranks_prepare = default_signals;
    run_nodes(2, 1, signals_body, -1);
    ranks_prepare = NULL;
}
END_TEST

/* Along the rails, across them, and within a machine. */
START_TEST(channels)
{
    run_shape(_i, row_channels);
    run_shape(_i, row_channel_overlap);
    run_shape(_i, row_channel_leaves);
}
END_TEST

START_TEST(channels_more)
{
    run_nodes(2, 1, row_channel_large, -1);
    run_nodes(2, 2, row_channel_crossing, -1);
    run_nodes(2, 2, row_channel_beside, -1);
    run_nodes(2, 2, row_channel_arguments, -1);
    run_nodes(2, 1, row_channel_arguments, -1);
}
END_TEST

START_TEST(channel_failures)
{
    for (int i = 0; i < CHANNEL_MISMATCH_ROWS; i++)
        run_nodes(3, 1, channel_mismatch_rows[i], -1);
    for (int i = 0; i < 2; i++) {
        run_nodes(2, 1, channel_timeout_rows[i], -1);
        run_nodes(3, 1, channel_killed_rows[i], 1);
    }
    run_nodes(3, 1, row_channel_aborted, -1);
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
    run_grid(_i, row_groups, -1);
    if (_i < GROUPS_GRIDS - 1)
        run_grid(_i, row_groups_killed, 1);
}
END_TEST

START_TEST(groups_more)
{
    run_grid(0, row_groups_named, -1);
    run_grid(1, row_groups_named, -1);
    groups_stages = 2; /* some of which lie on one machine, others do not */
    run_starts(2, uneven, row_groups, -1);
    run_nodes(2, 3, row_groups, -1);
    groups_stages = 3;
    run_starts(2, (const int[]){0, 1, 6}, row_groups, -1);
    groups_stages = 2;
    run_nodes_alone(2, 2, row_groups_beside, -1);
    run_nodes_alone(4, 1, row_groups_beside, -1);
    for (int i = 0; i < 2 * GROUPS_DIFFER_ROWS; i++)
        run_nodes_alone(i % 2 ? 4 : 2, i % 2 ? 1 : 2, groups_differ_rows[i / 2], -1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("nodes");
    TCase *tc = test_case(suite, "rows", 120);
    setenv("DDP_PLUGIN_PATH", ".libs", 0);
    tcase_add_loop_test(tc, collectives, 0, SHAPES);
    tcase_add_loop_test(tc, overlap_and_slices, 0, SHAPES);
    tcase_add_loop_test(tc, returns, 0, FEW_SHAPES);
    tcase_add_test(tc, bf16_and_memory);
    tc = test_case(suite, "rendezvous", 60);
    tcase_add_test(tc, rendezvous);
    tc = test_case(suite, "own", 120);
    tcase_add_loop_test(tc, large, 0, 2);
    tcase_add_test(tc, fast);
    tcase_add_test(tc, shared);
    tcase_add_loop_test(tc, mismatch, 0, MISMATCH_ROWS);
    tcase_add_loop_test(tc, mismatch_words, 0, WORDS_CALLS);
    tcase_add_test(tc, told);
    tcase_add_loop_test(tc, killed, 0, 3);
    tcase_add_loop_test(tc, killed_untold, 0, 2);
    tcase_add_test(tc, stopped);
    tcase_add_test(tc, timeouts);
    tcase_add_test(tc, late_rank_burns_nothing);
    tcase_add_loop_test(tc, silent_rank_has_sent, 0, 4); /* what sockets take at once varies */
    tcase_add_test(tc, aborted);
    tcase_add_test(tc, several_communicators);
    tcase_add_test(tc, ending);
    tcase_add_test(tc, keeps_signals);
    tcase_add_test(tc, no_thread);
    tc = test_case(suite, "channels", 60);
    tcase_add_loop_test(tc, channels, 0, FEW_SHAPES);
    tcase_add_test(tc, channels_more);
    tcase_add_test(tc, channel_failures);
    tc = test_case(suite, "groups", 120);
    tcase_add_loop_test(tc, groups, 0, GROUPS_GRIDS);
    tcase_add_test(tc, groups_more);
    return suite;
}
