/* SPDX-License-Identifier: MIT
 *
 * Tests of job: the board between threads and between processes, what a worker makes of its
 * environment, and what the launcher makes of a board that was scribbled over. */
#include "config.h"

#include "tests/job/job_world.h"
#include "tests/lib/scratch.h"

#include "core/clock.h"
#include "core/log.h"
#include "job/board.h"
#include "job/job.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- environment ----------------------------------------------------------------------------- */

START_TEST(open_alone)
{
    ddp_job *job = NULL;
    uint64_t a, b;
    char id[4] = "";
    clear_environment();
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    ck_assert_int_eq(ddp_job_rank(job), 0);
    ck_assert_int_eq(ddp_job_world_size(job), 1);
    ck_assert_int_eq(ddp_job_local_rank(job), 0);
    ck_assert_int_eq(ddp_job_heap_fd(job), -1);
    ck_assert_int_eq(ddp_job_barrier(job, 0), DDP_OK);
    ck_assert_int_eq(ddp_job_put_id(job, 3, "abc", 4), DDP_OK);
    ck_assert_int_eq(ddp_job_get_id(job, 3, id, 4, 0), DDP_OK);
    ck_assert_str_eq(id, "abc");
    ck_assert_int_eq(ddp_job_heap_reserve(job, 4096, &a), DDP_OK);
    ck_assert_int_eq(ddp_job_heap_reserve(job, 4096, &b), DDP_OK);
    ck_assert_uint_eq(b, a + 4096);
    ck_assert_int_eq(ddp_job_heap_reserve(job, SIZE_MAX - 4095, &b), DDP_ERR_MEMORY);
    ddp_job_report(job, "forward", 1);
    ck_assert(!ddp_job_aborted(job));
    ddp_job_abort(job);
    ck_assert(ddp_job_aborted(job));
    ck_assert_uint_eq(atomic_load(ddp_job_abort_word(job)), 1);
    ddp_job_close(job);
    ddp_job_close(NULL);
}
END_TEST

static const struct {
    const char *set[4]; /* "NAME=value" */
    enum ddp_status status;
} environments[] = {
    {{"WORLD_SIZE=1", "RANK=0"}, DDP_OK},
    {{"SLURM_STEP_NUM_TASKS=1"}, DDP_OK},
    {{"WORLD_SIZE=2", "RANK=0"}, DDP_ERR_UNSUPPORTED},
    {{"OMPI_COMM_WORLD_SIZE=4"}, DDP_ERR_UNSUPPORTED},
    {{"PMI_SIZE=4"}, DDP_ERR_UNSUPPORTED},
    {{"SLURM_STEP_NUM_TASKS=2"}, DDP_ERR_UNSUPPORTED},
    {{"WORLD_SIZE=0"}, DDP_ERR_INVALID},
    {{"WORLD_SIZE=two"}, DDP_ERR_INVALID},
    {{"WORLD_SIZE=1", "RANK=1"}, DDP_ERR_INVALID},
    {{"RANK=3"}, DDP_ERR_INVALID},
    {{"DDPRUN_BOARD_FD=x"}, DDP_ERR_INVALID},
    {{"DDPRUN_BOARD_FD=-1"}, DDP_ERR_INVALID},
    {{"DDPRUN_BOARD_FD=999"}, DDP_ERR_INVALID}, /* not open */
    {{"DDPRUN_BOARD_FD=0"}, DDP_ERR_INVALID},   /* not a memfd */
    {{"DDPRUN_BOARD_FD=500"}, DDP_ERR_INVALID}, /* a memfd, not a board */
};

START_TEST(open_environment)
{
    ddp_job *job = NULL;
    clear_environment();
    int fd = memfd_create("other", MFD_CLOEXEC);
    ck_assert_int_eq(dup2(fd, 500), 500);
    for (int i = 0; i < 4 && environments[_i].set[i]; i++) {
        char *text = strdup(environments[_i].set[i]);
        char *equals = strchr(text, '=');
        *equals = 0;
        setenv(text, equals + 1, 1);
        free(text);
    }
    ck_assert_int_eq(ddp_job_open(&job), environments[_i].status);
    ck_assert_int_eq(job != NULL, environments[_i].status == DDP_OK);
    ddp_job_close(job);
}
END_TEST

START_TEST(open_launched)
{
    make_board(3);
    ddp_job *job = join_job(2);
    ck_assert_int_eq(ddp_job_rank(job), 2);
    ck_assert_int_eq(ddp_job_world_size(job), 3);
    ck_assert_int_eq(ddp_job_local_rank(job), 2);
    ck_assert_int_ge(ddp_job_heap_fd(job), 0);
    ck_assert_int_ne(ddp_job_heap_fd(job), heap_fd);
    ddp_job_close(job);
    job = join_job(0); /* the descriptors are still there for another try */
    ddp_job_close(job);
}
END_TEST

/* Wrong ranks and sizes against a good board; each is one clear error. */
START_TEST(open_contradictions)
{
    static const char *const wrong[][2] = {
        {"RANK", "3"},
        {"RANK", "-1"},
        {"RANK", "x"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "x"},
        {"DDPRUN_HEAP_FD", "0"},
        {"DDPRUN_HEAP_FD", "999"},
        {"RANK", NULL},
        {"DDPRUN_HEAP_FD", NULL},
    };
    ddp_job *job = NULL;
    make_board(3);
    set_number("RANK", 1);
    if (wrong[_i][1])
        setenv(wrong[_i][0], wrong[_i][1], 1);
    else
        unsetenv(wrong[_i][0]);
    ck_assert_int_eq(ddp_job_open(&job), DDP_ERR_INVALID);
    ck_assert_ptr_null(job);
}
END_TEST

START_TEST(open_damaged_board)
{
    ddp_job *job = NULL;
    make_board(2);
    set_number("RANK", 0);
    struct ddp_board_memory good = *board.memory;
    if (_i == 0)
        board.memory->magic++;
    else if (_i == 1)
        board.memory->version++;
    else if (_i == 2)
        board.memory->workers = 5;
    else if (_i == 3)
        board.memory->bytes++;
    else if (_i == 4)
        board.memory->workers = UINT32_MAX;
    ck_assert_int_eq(ddp_job_open(&job), DDP_ERR_INVALID);
    board.memory->magic = good.magic;
    board.memory->version = good.version;
    board.memory->workers = good.workers;
    board.memory->bytes = good.bytes;
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    ddp_job_close(job);
}
END_TEST

/* A worker cannot pull the memory away under the launcher. */
/* Another process changes the number of workers to and fro: a board that is taken has the true one.
 */
START_TEST(attach_while_changed)
{
    make_board(2);
    volatile uint32_t *number = &board.memory->workers;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(dup2(null, STDERR_FILENO), STDERR_FILENO); /* the complaints */
    pid_t writer = fork();
    if (writer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint64_t i = 0;; i++)
            *number = i & 1024 ? 2 : DDP_BOARD_MAX_WORLD;
    }
    int taken = 0, wrong = 0;
    int64_t end_ns = ddp_deadline_ns(1000);
    while (!ddp_deadline_passed(end_ns)) {
        struct ddp_board other;
        if (ddp_board_attach(&other, board_fd, "board") != DDP_OK)
            continue;
        taken++;
        wrong += other.shape.workers != 2;
        ddp_board_unmap(&other);
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    close(null);
    ck_assert_int_gt(taken, 0);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(board_is_sealed)
{
    make_board(2);
    ck_assert_int_lt(ftruncate(board_fd, 0), 0);
    ck_assert_int_lt(ftruncate(board_fd, 1 << 20), 0);
}
END_TEST

/* --- between processes ----------------------------------------------------------------------- */

static int many_barriers(ddp_job *job, int rank)
{
    /* The first bytes of id slot 0 serve as a counter that all ranks must see in step. */
    _Atomic uint32_t *counter = (_Atomic uint32_t *)(void *)board.memory->ids[0].data;
    uint32_t world = (uint32_t)ddp_job_world_size(job);
    for (uint32_t round = 0; round < 500; round++) {
        if (atomic_load(counter) > round * world + world || rank < 0)
            return 1;
        atomic_fetch_add(counter, 1);
        if (ddp_job_barrier(job, 20000) != DDP_OK)
            return 2;
        if (atomic_load(counter) < (round + 1) * world)
            return 3;
    }
    return 0;
}

START_TEST(barrier_processes)
{
    run_world(_i, many_barriers, 0);
}
END_TEST

/* A rank that gave up waiting is no longer counted: the next barrier is whole again. */
static int late_rank(ddp_job *job, int rank)
{
    if (rank == 0) {
        if (ddp_job_barrier(job, 50) != DDP_ERR_TIMEOUT)
            return 1;
        if (ddp_job_put_id(job, 1, "go", 3) != DDP_OK)
            return 2;
    } else {
        char go[3];
        if (ddp_job_get_id(job, 1, go, 3, 20000) != DDP_OK)
            return 3;
    }
    return ddp_job_barrier(job, 20000) == DDP_OK ? 0 : 4;
}

START_TEST(barrier_timeout)
{
    run_world(3, late_rank, 0);
}
END_TEST

static int hand_over_ids(ddp_job *job, int rank)
{
    unsigned char id[DDP_ID_MAX_BYTES];
    for (int slot = 0; slot < DDP_ID_SLOTS; slot++) {
        if (rank == slot % 3) {
            memset(id, slot + 1, sizeof id);
            if (ddp_job_put_id(job, slot, id, sizeof id) != DDP_OK ||
                ddp_job_put_id(job, slot, id, sizeof id) != DDP_ERR_INVALID)
                return 1;
        }
        memset(id, 0, sizeof id);
        if (ddp_job_get_id(job, slot, id, sizeof id, 20000) != DDP_OK)
            return 2;
        for (size_t i = 0; i < sizeof id; i++)
            if (id[i] != slot + 1)
                return 3;
    }
    if (ddp_job_get_id(job, 0, id, 128, 0) != DDP_ERR_MISMATCH)
        return 4;
    return 0;
}

START_TEST(ids_processes)
{
    run_world(3, hand_over_ids, 0);
}
END_TEST

START_TEST(ids_bad)
{
    char id[300] = {0};
    make_board(2);
    ddp_job *job = join_job(0);
    ck_assert_int_eq(ddp_job_put_id(job, -1, id, 1), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_job_put_id(job, DDP_ID_SLOTS, id, 1), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_job_put_id(job, 0, id, 257), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_job_get_id(job, 0, id, 257, 0), DDP_ERR_INVALID);
    int64_t start = ddp_clock_ns();
    ck_assert_int_eq(ddp_job_get_id(job, 0, id, 1, 60), DDP_ERR_TIMEOUT);
    ck_assert_int_ge(ddp_clock_ns() - start, 60000000);
    ddp_job_close(job);
}
END_TEST

static int abort_others(ddp_job *job, int rank)
{
    char id[1];
    if (rank == 0) {
        usleep(50000);
        ddp_job_abort(job);
        return ddp_job_barrier(job, -1) == DDP_ERR_ABORTED ? 0 : 1;
    }
    if (rank == 1)
        return ddp_job_barrier(job, -1) == DDP_ERR_ABORTED ? 0 : 2;
    return ddp_job_get_id(job, 0, id, 1, -1) == DDP_ERR_ABORTED ? 0 : 3;
}

START_TEST(abort_wakes)
{
    int64_t start = ddp_clock_ns();
    run_world(3, abort_others, 0);
    ck_assert_int_lt(ddp_clock_ns() - start, INT64_C(2000000000));
    ddp_board_abort(&board, DDP_ABORT_BY_LAUNCHER);
    ddp_board_abort(&board, 3);
    ck_assert_uint_eq(atomic_load(&board.memory->abort_word), 1); /* rank 0 was first */
}
END_TEST

static int reserve_heap(ddp_job *job, int rank)
{
    _Atomic uint32_t *taken = (_Atomic uint32_t *)(void *)board.memory->ids[0].data;
    (void)rank;
    for (int i = 0; i < 10; i++) {
        uint64_t offset;
        if (ddp_job_heap_reserve(job, 4096, &offset) != DDP_OK)
            return 1;
        if (atomic_fetch_or(taken, 1u << (offset / 4096)) & (1u << (offset / 4096)))
            return 2; /* handed out twice */
    }
    return 0;
}

START_TEST(heap_processes)
{
    run_world(3, reserve_heap, 0);
}
END_TEST

/* --- lines ----------------------------------------------------------------------------------- */

START_TEST(line_view)
{
    struct ddp_board_view view;
    make_board(2);
    ddp_board_read(&board, 1, &view);
    ck_assert_int_eq(view.pid, 0);
    ck_assert_int_eq((int)view.step, -1);
    ddp_job *job = join_job(1);
    ddp_job_report(job, "a phase with a long name", 12);
    ddp_job_collective_enter(job, NULL, "reduce-scatter", 7, 4096);
    ddp_board_read(&board, 1, &view);
    ck_assert_int_eq(view.pid, getpid());
    ck_assert_str_eq(view.phase, "a phase with a ");
    ck_assert_int_eq((int)view.step, 12);
    ck_assert_str_eq(view.name, "reduce-scatter");
    ck_assert_uint_eq(view.number, 7);
    ck_assert_uint_eq(view.bytes, 4096);
    ck_assert(view.inside && !view.closed);
    ck_assert_uint_eq(view.entered, 1);
    ck_assert_int_gt(view.enter_ns, 0);
    ddp_job_collective_leave(job);
    ddp_job_report(job, NULL, 13);
    ddp_board_read(&board, 1, &view);
    ck_assert(!view.inside);
    ck_assert_str_eq(view.phase, "");
    ddp_job_close(job);
    ddp_board_read(&board, 1, &view);
    ck_assert(view.closed);
    ddp_board_read(&board, 0, &view);
    ck_assert_int_eq(view.pid, 0); /* nobody wrote another's line */
}
END_TEST

/* A program that trains the same again has begun that itself. */
START_TEST(runs_of_an_attempt_before)
{
    make_board(1);
    atomic_store(&board.memory->begun_before, 7);
    ddp_job *job = join_job(0);
    ck_assert(!ddp_job_had_begun(job, 8));
    ck_assert(ddp_job_had_begun(job, 7));
    ddp_job_begin_run(job, 7);
    ck_assert_uint_eq(atomic_load(&board.memory->begun), 7);
    ck_assert(!ddp_job_had_begun(job, 7));
    ddp_job_close(job);
    ddp_board_unmap(&board);
}
END_TEST

/* Whatever the bytes are, reading ends, stays in bounds, and gives text that can be printed. */
START_TEST(line_scribbled)
{
    struct ddp_board_view view;
    make_board(4);
    uint32_t state = 12345;
    for (int round = 0; round < 10; round++) {
        unsigned char *bytes = (unsigned char *)board.memory;
        for (size_t i = 0; i < board.bytes; i++) {
            state = state * 1664525 + 1013904223;
            bytes[i] = (unsigned char)(state >> 24);
        }
        for (int rank = 0; rank < 4; rank++) {
            ddp_board_read(&board, rank, &view);
            ck_assert_uint_lt(strnlen(view.phase, sizeof view.phase), sizeof view.phase);
            ck_assert_uint_lt(strnlen(view.name, sizeof view.name), sizeof view.name);
            for (const char *c = view.phase; *c; c++)
                ck_assert(*c >= 0x20 && *c <= 0x7e);
        }
        ddp_board_abort(&board, DDP_ABORT_BY_LAUNCHER);
    }
}
END_TEST

static void *write_line(void *arg)
{
    ddp_job *job = arg;
    for (int64_t step = 0; step < 20000; step++) {
        ddp_job_report(job, step % 2 ? "oddoddodd" : "eveneveneven", step);
        ddp_job_collective_enter(job, NULL, step % 2 ? "odd" : "even", (uint64_t)step,
                                 (uint64_t)step * 2);
        ddp_job_collective_leave(job);
    }
    return NULL;
}

/* Is the writer between the words of a report? */
static bool is_amid(const struct ddp_board_line *line)
{
    return (atomic_load(&line->sequence) | atomic_load(&line->collective_sequence)) & 1;
}

/* A reader never sees half of one report and half of the next. */
START_TEST(line_threads)
{
    pthread_t thread;
    struct ddp_board_view view;
    make_board(1);
    unsetenv("DDPRUN_HEAP_FD");
    ddp_job *job = join_job(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_line, job), 0);
    do {
        ddp_board_read(&board, 0, &view);
        if (is_amid(&board.memory->lines[0])) /* it may have lost its processor there */
            continue;
        if (view.phase[0] != 0) /* something has been reported */
            ck_assert_str_eq(view.phase, view.step % 2 ? "oddoddodd" : "eveneveneven");
        ck_assert_uint_eq(view.bytes, view.number * 2);
        if (view.entered > 0)
            ck_assert_str_eq(view.name, view.number % 2 ? "odd" : "even");
    } while (view.step < 19999);
    pthread_join(thread, NULL);
    ddp_job_close(job);
}
END_TEST

static void *cross_barriers(void *arg)
{
    intptr_t bad = 0;
    for (int round = 0; round < 300; round++)
        bad += ddp_job_barrier(arg, 20000) != DDP_OK;
    return (void *)bad;
}

START_TEST(barrier_threads)
{
    pthread_t threads[3];
    ddp_job *jobs[3];
    make_board(3);
    for (int rank = 0; rank < 3; rank++)
        jobs[rank] = join_job(rank);
    for (int rank = 0; rank < 3; rank++)
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, cross_barriers, jobs[rank]), 0);
    for (int rank = 0; rank < 3; rank++) {
        void *bad;
        pthread_join(threads[rank], &bad);
        ck_assert_ptr_null(bad);
        ddp_job_close(jobs[rank]);
    }
}
END_TEST

/* --- errors that several ranks find ----------------------------------------------------------- */

/* Each logs an error that all find, one of its own, and that memory ran out, each with its number.
 */
static int fail_alike(ddp_job *job, int rank)
{
    board.memory->flags |= DDP_BOARD_ONE_SPEAKS;
    ddp_job_barrier(job, 20000);
    (void)ddp_fail(DDP_ERR_INVALID, "--lr abc");
    (void)ddp_fail(DDP_ERR_INVALID, "device %d", rank);
    (void)ddp_fail(DDP_ERR_MEMORY, "out of memory for %d bytes", rank);
    return 0;
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        count++;
    return count;
}

START_TEST(errors_said_once)
{
    struct ddp_board_view view;
    capture_start();
    run_world(4, fail_alike, 0);
    const char *text = capture_stop();
    ck_assert_int_eq(count_of(text, "--lr abc"), 1);
    ck_assert_ptr_nonnull(strstr(text, "rank 0: error: --lr abc"));
    ck_assert_int_eq(count_of(text, "error: device "), 4);
    ck_assert_int_eq(count_of(text, "out of memory"), 1);
    for (int rank = 0; rank < 4; rank++) {
        ddp_board_read(&board, rank, &view);
        ck_assert(view.told);
    }
}
END_TEST

/* Runs a rank that may log the error, and returns whether its line was written. */
static bool says(int rank, bool fails)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        (void)join_job(rank); /* its end is that of the process */
        capture_start();
        if (fails)
            (void)ddp_fail(DDP_ERR_INVALID, "the same");
        _exit(strstr(capture_stop(), "error: the same\n") != NULL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* Rank 1 is silent after rank 0 has said it; not if rank 0 says nothing, if it died before its line
 * was written, or where the launcher keeps what each rank writes. */
START_TEST(errors_of_the_dead)
{
    enum { SAID, NOTHING, UNSAID, KEPT };
    make_board(2);
    board.memory->flags |= _i == KEPT ? 0 : DDP_BOARD_ONE_SPEAKS;
    ck_assert(says(0, _i != NOTHING) == (_i != NOTHING));
    for (int i = 0; _i == UNSAID && i < DDP_BOARD_ERRORS; i++)
        atomic_store(&board.memory->errors[i].said_ns, 0);
    ck_assert(says(1, true) == (_i != SAID));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("job");
    TCase *opening = test_case(suite, "opening", 10);
    tcase_add_test(opening, open_alone);
    tcase_add_loop_test(opening, open_environment, 0, sizeof environments / sizeof environments[0]);
    tcase_add_test(opening, open_launched);
    tcase_add_loop_test(opening, open_contradictions, 0, 9);
    tcase_add_loop_test(opening, open_damaged_board, 0, 5);
    tcase_add_test(opening, attach_while_changed);
    tcase_add_test(opening, board_is_sealed);
    tcase_add_test(opening, runs_of_an_attempt_before);
    TCase *processes = test_case(suite, "processes", 60);
    tcase_add_loop_test(processes, barrier_processes, 1, 5);
    tcase_add_test(processes, barrier_timeout);
    tcase_add_test(processes, ids_processes);
    tcase_add_test(processes, ids_bad);
    tcase_add_test(processes, abort_wakes);
    tcase_add_test(processes, heap_processes);
    tcase_add_test(processes, errors_said_once);
    tcase_add_loop_test(processes, errors_of_the_dead, 0, 4);
    TCase *lines = test_case(suite, "lines", 60);
    tcase_add_test(lines, line_view);
    tcase_add_test(lines, line_scribbled);
    tcase_add_test(lines, line_threads);
    tcase_add_test(lines, barrier_threads);
    return suite;
}
