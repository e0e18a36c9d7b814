/* SPDX-License-Identifier: MIT
 *
 * The collectives between real processes, which meet on a board as ddprun makes it. */
#include "config.h"

#include "comm/comm.h"
#include "core/clock.h"
#include "core/log.h"
#include "job/board.h"
#include "job/job.h"
#include "kernels/reduce.h"
#include "tests/runner.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void body(ddp_comm *comm, ddp_job *job);

static struct ddp_board board;

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void child(int rank, int size, int board_fd, int heap_fd, body *run)
{
    ddp_job *job;
    ddp_comm *comm;
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", size);
    set_number(DDP_BOARD_FD_VARIABLE, board_fd);
    set_number(DDP_HEAP_FD_VARIABLE, heap_fd);
    NEED(ddp_job_open(&job) == DDP_OK);
    NEED(ddp_comm_create(&comm, job, NULL) == DDP_OK);
    run(comm, job);
    ddp_comm_destroy(comm);
    ddp_job_close(job);
    _exit(0);
}

/* Runs the body in `size` processes; a rank in `dies` may be killed. The parent stands in for the
 * launcher: a death sets the abort word. */
static void run_ranks(int size, body *run, int dies)
{
    int board_fd, heap_fd;
    pid_t pids[64];
    ck_assert_int_eq(ddp_board_create(&board, &board_fd, size, 1), DDP_OK);
    ck_assert_int_eq(ddp_board_create_heap(&board, &heap_fd), DDP_OK);
    for (int r = 0; r < size; r++) {
        pids[r] = fork();
        ck_assert_int_ge(pids[r], 0);
        if (pids[r] == 0)
            child(r, size, board_fd, heap_fd, run);
    }
    int bad = 0;
    for (int left = size; left > 0; left--) {
        int code;
        pid_t pid = wait(&code);
        bool expected = dies >= 0 && pid == pids[dies];
        if (code != 0)
            ddp_board_abort(&board, DDP_ABORT_BY_LAUNCHER);
        if (code != 0 && !expected)
            bad++;
    }
    ddp_board_unmap(&board);
    close(board_fd);
    close(heap_fd);
    ck_assert_int_eq(bad, 0);
}

/* The value of one element, of few enough bits or not: sums round, and only the right order gives
 * the bits. */
static void fill(void *memory, size_t count, enum ddp_dtype dtype, int rank)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u + 77u) * 2246822519u;
        double value = ((int32_t)h) / 3.0e4;
        switch (dtype) {
        case DDP_F32:
            ((float *)memory)[i] = (float)value;
            break;
        case DDP_F64:
            ((double *)memory)[i] = value;
            break;
        case DDP_I32:
            ((int32_t *)memory)[i] = (int32_t)h;
            break;
        case DDP_I64:
            ((int64_t *)memory)[i] = (int64_t)((uint64_t)h * 4294967291u);
            break;
        case DDP_BF16:
            ((uint16_t *)memory)[i] = (uint16_t)h;
            break;
        }
    }
}

/* What an all-reduce over `size` ranks must give. */
static void *expect(int size, size_t count, enum ddp_dtype dtype, enum ddp_redop op)
{
    const size_t bytes = count * ddp_dtype_bytes(dtype);
    void *sources[64], *out = malloc(bytes + 1);
    for (int r = 0; r < size; r++) {
        sources[r] = malloc(bytes + 1);
        fill(sources[r], count, dtype, r);
    }
    struct ddp_reduce args = {.source_count = size,
                              .destination_count = 1,
                              .sources = (const void *const *)sources,
                              .destinations = &out,
                              .count = (int64_t)count,
                              .dtype = dtype,
                              .op = op};
    NEED(ddp_reduce_reference(&args) == DDP_OK);
    for (int r = 0; r < size; r++)
        free(sources[r]);
    return out;
}

/* All collectives over `count` elements (a part each); memory is one element off its alignment. */
static void one_size(ddp_comm *comm, char *memory, size_t count, enum ddp_dtype dtype,
                     enum ddp_redop op)
{
    const int size = ddp_comm_size(comm), rank = ddp_comm_rank(comm);
    const size_t element = ddp_dtype_bytes(dtype), bytes = count * element;
    const size_t parts = (size_t)size;
    char *all = memory + element, *part = all + parts * bytes;
    char *sum = expect(size, count * parts, dtype, op);

    fill(all, count * parts, dtype, rank);
    NEED(ddp_comm_allreduce(comm, all, count * parts, dtype, op) == DDP_OK);
    NEED(memcmp(all, sum, bytes * parts) == 0);

    fill(all, count * parts, dtype, rank);
    NEED(ddp_comm_reduce_scatter(comm, all, part, count, dtype, op) == DDP_OK);
    NEED(memcmp(part, sum + (size_t)rank * bytes, bytes) == 0);
    NEED(ddp_comm_reduce_scatter(comm, all, all + (size_t)rank * bytes, count, dtype, op) ==
         DDP_OK);
    NEED(memcmp(all + (size_t)rank * bytes, sum + (size_t)rank * bytes, bytes) == 0);

    NEED(ddp_comm_all_gather(comm, all + (size_t)rank * bytes, all, count, dtype) == DDP_OK);
    NEED(memcmp(all, sum, bytes * parts) == 0);
    memset(all, 0, bytes * parts);
    NEED(ddp_comm_all_gather(comm, part, all, count, dtype) == DDP_OK);
    NEED(memcmp(all, sum, bytes * parts) == 0);

    const int root = size - 1;
    fill(all, count, dtype, rank);
    fill(sum, count, dtype, root);
    NEED(ddp_comm_broadcast(comm, all, count, dtype, root) == DDP_OK);
    NEED(memcmp(all, sum, bytes) == 0);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    free(sum);
}

static void every_kind(ddp_comm *comm, ddp_job *job)
{
    static const size_t counts[] = {0, 1, 3, 33, 64, 65, 1001, 40000};
    const size_t bytes = (40000 * (size_t)(ddp_comm_size(comm) + 1) + 1) * 8;
    void *registered, *second, *plain = malloc(bytes);
    (void)job;
    NEED(ddp_comm_alloc(comm, bytes, &registered) == DDP_OK);
    NEED(ddp_comm_alloc(comm, 5, &second) == DDP_OK);
    for (size_t i = 0; i < bytes; i++)
        NEED(((char *)registered)[i] == 0);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int dtype = 0; dtype <= DDP_I64; dtype++)
            for (int op = 0; op <= DDP_MAX; op++) {
                if (counts[c] > 1001 && dtype + op > 1)
                    continue;
                one_size(comm, registered, counts[c], (enum ddp_dtype)dtype, (enum ddp_redop)op);
                one_size(comm, plain, counts[c], (enum ddp_dtype)dtype, (enum ddp_redop)op);
                one_size(comm, ddp_comm_rank(comm) & 1 ? plain : registered, counts[c],
                         (enum ddp_dtype)dtype, (enum ddp_redop)op);
            }
    NEED(ddp_comm_free(comm, second) == DDP_OK);
    free(plain);
}

START_TEST(collectives)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    run_ranks(sizes[_i], every_kind, -1);
}
END_TEST

static void large_body(ddp_comm *comm, ddp_job *job)
{
    const size_t count = (24u << 20) / 4 + 5; /* beyond the cache: streaming stores */
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, count * 4, &memory) == DDP_OK);
    char *sum = expect(ddp_comm_size(comm), count, DDP_F32, DDP_SUM);
    fill(memory, count, DDP_F32, ddp_comm_rank(comm));
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

static void overlap_body(ddp_comm *comm, ddp_job *job)
{
    enum { MOST = 5000, BUFFERS = 40 };
    const int rank = ddp_comm_rank(comm);
    float *memory[BUFFERS];
    void *all;
    (void)job;
    srand((unsigned)rank);
    NEED(ddp_comm_alloc(comm, sizeof(float) * MOST * BUFFERS, &all) == DDP_OK);
    for (int round = 0; round < 20; round++) {
        const int started = 1 + round * 2; /* more than the ring has entries, too */
        for (int b = 0; b < started; b++) {
            memory[b] = (float *)all + (size_t)b * MOST;
            fill(memory[b], MOST, DDP_F32, rank);
            NEED(ddp_comm_allreduce_start(comm, memory[b], (size_t)(b * 128 + round), DDP_F32,
                                          DDP_SUM) == DDP_OK);
            for (int p = rand() % 3; p > 0; p--)
                NEED(ddp_comm_progress(comm) == DDP_OK);
        }
        NEED(ddp_comm_finish(comm) == DDP_OK);
        for (int b = 0; b < started; b++) {
            size_t count = (size_t)(b * 128 + round);
            float *sum = expect(ddp_comm_size(comm), count, DDP_F32, DDP_SUM);
            NEED(memcmp(memory[b], sum, count * 4) == 0);
            free(sum);
        }
        float one = 1;
        NEED(ddp_comm_allreduce(comm, &one, 1, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(one == (float)ddp_comm_size(comm));
    }
    float outside = 0;
    if (ddp_comm_size(comm) > 1)
        NEED(ddp_comm_allreduce_start(comm, &outside, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
}

START_TEST(overlap)
{
    static const int sizes[] = {1, 2, 3, 8};
    run_ranks(sizes[_i], overlap_body, -1);
}
END_TEST

static void mismatch_body(ddp_comm *comm, ddp_job *job)
{
    float values[300] = {0};
    const size_t count = ddp_comm_rank(comm) == 1 ? 200 : 300;
    (void)job;
    NEED(ddp_comm_allreduce(comm, values, count, DDP_F32, DDP_SUM) == DDP_ERR_MISMATCH);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_MISMATCH);
}

static void mismatch_kind_body(ddp_comm *comm, ddp_job *job)
{
    float value = 0;
    (void)job;
    if (ddp_comm_rank(comm) == 0)
        NEED(ddp_comm_barrier(comm) == DDP_ERR_MISMATCH);
    else
        NEED(ddp_comm_broadcast(comm, &value, 1, DDP_F32, 0) == DDP_ERR_MISMATCH);
}

static void mismatch_alloc_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, 4096u * (1u + (unsigned)ddp_comm_rank(comm)), &memory) ==
         DDP_ERR_MISMATCH);
}

/* Slices: started in between all-reduces, each rank gets its own sum and keeps the rest; gathered,
 * all have all, whether the memory is registered or not. */
static void slices_body(ddp_comm *comm, ddp_job *job)
{
    enum { MOST = 30000 };
    static const size_t counts[] = {0, 1, 16, 4096, 4097, 12288, MOST};
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    void *registered, *second;
    float *plain = malloc(MOST * sizeof *plain), *filled = malloc(MOST * sizeof *filled);
    (void)job;
    NEED(ddp_comm_has_slices(comm));
    NEED(ddp_comm_alloc(comm, MOST * sizeof(float), &registered) == DDP_OK);
    NEED(ddp_comm_alloc(comm, MOST * sizeof(float), &second) == DDP_OK);
    for (size_t i = 0; i < 2 * sizeof counts / sizeof counts[0]; i++) {
        const size_t count = counts[i / 2], grain = i & 1 ? 4096 : 16;
        const size_t begin = ddp_slice_begin(count, grain, rank, size);
        const size_t end = ddp_slice_begin(count, grain, rank + 1, size);
        float *sum = expect(size, count, DDP_F32, DDP_SUM), *all = registered;
        fill(filled, MOST, DDP_F32, rank);
        fill(all, MOST, DDP_F32, rank);
        fill(second, MOST, DDP_F32, rank);
        NEED(begin % grain == 0 || begin == count);
        NEED(ddp_comm_reduce_slices_start(comm, all, count, grain, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_allreduce_start(comm, second, count, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_finish(comm) == DDP_OK);
        NEED(memcmp(all + begin, sum + begin, (end - begin) * sizeof *all) == 0);
        NEED(memcmp(second, sum, count * sizeof *all) == 0);
        for (size_t k = size > 1 ? 0 : MOST; k < MOST; k++)
            NEED((k >= begin && k < end) || memcmp(&all[k], &filled[k], sizeof *all) == 0);
        memcpy(plain, all, MOST * sizeof *all);
        NEED(ddp_comm_gather_slices(comm, all, count, grain, DDP_F32) == DDP_OK);
        if (size > 1)
            NEED(memcmp(all, sum, count * sizeof *all) == 0);
        NEED(ddp_comm_gather_slices(comm, rank & 1 ? plain : all, count, grain, DDP_F32) == DDP_OK);
        NEED(ddp_comm_gather_slices(comm, plain, count, grain, DDP_F32) == DDP_OK);
        if (size > 1)
            NEED(memcmp(plain, sum, count * sizeof *all) == 0);
        free(sum);
    }
    NEED(ddp_comm_gather_slices(comm, plain, 1, 0, DDP_F32) == DDP_ERR_INVALID);
    if (size > 1)
        NEED(ddp_comm_reduce_slices_start(comm, plain, 1, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
    free(plain);
    free(filled);
}

START_TEST(slices)
{
    static const int sizes[] = {1, 2, 3, 8};
    run_ranks(sizes[_i], slices_body, -1);
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
    run_ranks(3, mismatch_body, -1);
    run_ranks(2, mismatch_kind_body, -1);
    run_ranks(2, mismatch_alloc_body, -1);
}
END_TEST

/* bf16 is copied, but not reduced; the communicator lives on. */
static void bf16_body(ddp_comm *comm, ddp_job *job)
{
    enum { COUNT = 33 };
    uint16_t all[5 * COUNT], part[COUNT], expected[COUNT];
    (void)job;
    for (int round = 0; round < 2; round++) {
        fill(part, COUNT, DDP_BF16, ddp_comm_rank(comm));
        NEED(ddp_comm_all_gather(comm, part, all, COUNT, DDP_BF16) == DDP_OK);
        for (int rank = 0; rank < ddp_comm_size(comm); rank++) {
            fill(expected, COUNT, DDP_BF16, rank);
            NEED(memcmp(all + rank * COUNT, expected, sizeof expected) == 0);
        }
        NEED(ddp_comm_broadcast(comm, part, COUNT, DDP_BF16, ddp_comm_size(comm) - 1) == DDP_OK);
        NEED(memcmp(part, expected, sizeof expected) == 0);
        NEED(ddp_comm_allreduce(comm, part, 1, DDP_BF16, DDP_SUM) == DDP_ERR_INVALID);
        NEED(ddp_comm_allreduce_start(comm, part, 1, DDP_BF16, DDP_MAX) == DDP_ERR_INVALID);
        NEED(ddp_comm_reduce_scatter(comm, all, part, 1, DDP_BF16, DDP_SUM) == DDP_ERR_INVALID);
    }
}

START_TEST(bf16)
{
    run_ranks(1, bf16_body, -1);
    run_ranks(5, bf16_body, -1);
}
END_TEST

static void memory_body(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, (size_t)1 << 46, &memory) == DDP_ERR_MEMORY);
    NEED(ddp_comm_alloc(comm, SIZE_MAX, &memory) == DDP_ERR_INVALID);
    NEED(ddp_comm_alloc(comm, 1, &memory) == DDP_OK); /* the communicator lives on */
    NEED(ddp_comm_barrier(comm) == DDP_OK);
}

START_TEST(too_little_memory)
{
    run_ranks(2, memory_body, -1);
}
END_TEST

static void timeout_body(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    if (ddp_comm_rank(comm) == 0) {
        usleep(400000);
        return;
    }
    ddp_comm_set_timeout(comm, 100);
    int64_t start = ddp_clock_ns();
    NEED(ddp_comm_barrier(comm) == DDP_ERR_TIMEOUT);
    int64_t ms = (ddp_clock_ns() - start) / 1000000;
    NEED(ms >= 95 && ms < 300);
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
    ck_assert_int_lt((ddp_clock_ns() - start) / 1000000, 2000);
}
END_TEST

static void late_body(ddp_comm *comm, ddp_job *job)
{
    struct rusage before, after;
    (void)job;
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (ddp_comm_rank(comm) == 0)
        usleep(1000000);
    getrusage(RUSAGE_SELF, &before);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    getrusage(RUSAGE_SELF, &after);
    double burnt = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                   (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                   (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) * 1e-6 +
                   (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1e-6;
    NEED(burnt < 0.1);
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

Suite *test_suite(void)
{
    Suite *suite = suite_create("comm");
    TCase *tc = test_case(suite, "comm", 120);
    tcase_add_loop_test(tc, collectives, 0, 5);
    tcase_add_test(tc, large);
    tcase_add_loop_test(tc, slices, 0, 4);
    tcase_add_loop_test(tc, shared, 0, 3);
    tcase_add_loop_test(tc, overlap, 0, 4);
    tcase_add_test(tc, mismatch);
    tcase_add_test(tc, too_little_memory);
    tcase_add_test(tc, bf16);
    tcase_add_test(tc, timeouts);
    tcase_add_test(tc, killed);
    tcase_add_test(tc, late_rank_burns_nothing);
    tcase_add_test(tc, several_communicators);
    return suite;
}
