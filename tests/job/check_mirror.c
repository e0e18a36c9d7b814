/* SPDX-License-Identifier: MIT
 *
 * Tests of jobs over several nodes: boards of their own, workers in processes, and a pump in the
 * place of the launchers that carries what is new from board to board, late and in any order. */
#include "config.h"

#include "tests/job/job_world.h"
#include "tests/lib/messages.h"

#include "core/clock.h"
#include "job/job.h"
#include "job/mirror.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

enum { NODES = 3, WORKERS = 2, RANKS = NODES * WORKERS };

struct node {
    struct ddp_board board;
    int board_fd, heap_fd, bell;
    struct ddp_mirror mirror;
    bool sealed; /* its arrival is told */
    bool held;
};

static struct node nodes[NODES];
static uint32_t random_state;

static int chance(int most)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)((random_state >> 8) % (uint32_t)most);
}

static void make_nodes(void)
{
    int starts[NODES + 1];
    clear_environment();
    for (int n = 0; n <= NODES; n++)
        starts[n] = n * WORKERS;
    for (int n = 0; n < NODES; n++) {
        struct node *node = &nodes[n];
        memset(node, 0, sizeof *node);
        ck_assert_int_eq(ddp_board_create(&node->board, &node->board_fd, starts, n, NODES), DDP_OK);
        ck_assert_int_eq(ddp_board_create_heap(&node->board, &node->heap_fd), DDP_OK);
        ck_assert_int_eq(ddp_bell_create(&node->bell), DDP_OK);
    }
}

static ddp_job *join_node(int rank)
{
    ddp_job *job = NULL;
    const struct node *node = &nodes[rank / WORKERS];
    set_number("DDPRUN_BOARD_FD", node->board_fd);
    set_number("DDPRUN_HEAP_FD", node->heap_fd);
    set_number("DDPRUN_BELL_FD", node->bell);
    set_number("WORLD_SIZE", RANKS);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank % WORKERS);
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    return job;
}

/* --- the pump --------------------------------------------------------------------------------- */

static int damage; /* what happens to the address of rank 0 on its way */

static void spoil(struct ddp_posted *posted)
{
    if (damage == 0 || posted->number != DDP_ID_SLOTS)
        return;
    if (damage == 1)
        posted->data[0] ^= 1;
    else if (damage == 2)
        posted->data[posted->bytes - 1] ^= 0x80;
    else
        posted->bytes = damage == 3 ? posted->bytes - 1 : 3;
}

static void carry_posted(struct node *from)
{
    struct ddp_posted posted;
    while (ddp_mirror_next(&from->mirror, &from->board, &posted)) {
        spoil(&posted);
        for (int n = 0; n < NODES; n++)
            if (&nodes[n] != from)
                ck_assert(ddp_mirror_put(&nodes[n].mirror, &nodes[n].board, &posted));
    }
}

static void carry_barrier(struct node *from)
{
    uint32_t round;
    int arrived = 0;
    from->sealed = from->sealed || ddp_mirror_seal_barrier(&from->board, &round);
    for (int n = 0; n < NODES; n++)
        arrived += nodes[n].sealed;
    round = atomic_load(&from->board.memory->barrier) >> 16;
    if (arrived == NODES)
        for (int n = 0; n < NODES; n++) {
            ddp_mirror_open_barrier(&nodes[n].board, round);
            nodes[n].sealed = false;
        }
    else if (ddp_mirror_barrier_asked(&from->board, &round)) {
        ddp_mirror_unseal_barrier(&from->board, round);
        from->sealed = false;
    }
}

static void nap(void)
{
    usleep((useconds_t)chance(3) * (useconds_t)chance(1000));
}

/* All are held before any step is named. */
static void carry_stop(struct node *from)
{
    int64_t last = INT64_MIN;
    if (from->held || !atomic_load(&from->board.memory->stop_request))
        return;
    const int first = chance(NODES);
    for (int i = 0; i < NODES; i++) {
        struct node *node = &nodes[(first + i) % NODES];
        const int64_t passed = ddp_mirror_hold(&node->board);
        last = passed > last ? passed : last;
        node->held = true;
        nap();
    }
    for (int i = NODES - 1; i >= 0; i--) {
        ddp_mirror_stop_before(&nodes[(first + i) % NODES].board,
                               last == INT64_MIN ? INT64_MIN : last + 1);
        nap();
    }
}

static void carry_abort(struct node *from)
{
    const uint32_t by = atomic_load(&from->board.memory->abort_word);
    for (int n = 0; by != 0 && n < NODES; n++)
        ddp_board_abort(&nodes[n].board, by);
}

/* Carries until all workers have ended; returns how many of them failed. */
static int pump(const pid_t pids[RANKS])
{
    struct pollfd bells[NODES];
    int ended = 0, failed = 0, status;
    for (int n = 0; n < NODES; n++)
        bells[n] = (struct pollfd){.fd = nodes[n].bell, .events = POLLIN};
    while (ended < RANKS) {
        poll(bells, NODES, 10);
        for (int n = 0; n < NODES; n++) {
            if (!bells[n].revents)
                continue;
            ddp_bell_take(nodes[n].bell);
            carry_posted(&nodes[n]);
            carry_barrier(&nodes[n]);
            carry_stop(&nodes[n]);
            carry_abort(&nodes[n]);
        }
        for (int rank = 0; rank < RANKS; rank++)
            if (waitpid(pids[rank], &status, WNOHANG) == pids[rank]) {
                ended++;
                failed += status != 0;
                if (status != 0)
                    fprintf(stderr, "rank %d: status %x\n", rank, status);
            }
    }
    return failed;
}

static void run_nodes(int (*body)(ddp_job *job, int rank))
{
    pid_t pids[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            ddp_job *job = join_node(rank);
            random_state += (uint32_t)rank * 977;
            const int code = body(job, rank);
            ddp_job_close(job);
            _exit(code);
        }
    }
    ck_assert_int_eq(pump(pids), 0);
}

/* --- ids, addresses, barrier ------------------------------------------------------------------ */

static int exchange(ddp_job *job, int rank)
{
    char mine[32], theirs[32];
    unsigned char address[DDP_ADDRESS_MAX_BYTES];
    size_t bytes;
    if (ddp_job_node(job) != rank / WORKERS || ddp_job_node_count(job) != NODES ||
        ddp_job_node_rank(job) != rank % WORKERS || ddp_job_world_size(job) != RANKS)
        return 1;
    snprintf(mine, sizeof mine, "rank %d", rank);
    if (ddp_job_put_id(job, rank, mine, sizeof mine) != DDP_OK ||
        ddp_job_put_address(job, mine, (size_t)rank + 6) != DDP_OK)
        return 2;
    for (int other = 0; other < RANKS; other++) {
        snprintf(mine, sizeof mine, "rank %d", other);
        if (ddp_job_get_id(job, other, theirs, sizeof theirs, 20000) != DDP_OK ||
            strcmp(mine, theirs) != 0)
            return 3;
        if (ddp_job_get_address(job, other, address, &bytes, 20000) != DDP_OK ||
            bytes != (size_t)other + 6 || memcmp(address, mine, 6) != 0)
            return 4;
    }
    return 0;
}

START_TEST(ids_and_addresses)
{
    make_nodes();
    run_nodes(exchange);
}
END_TEST

/* As if each rank were three processes: nobody sees the address of an earlier one. */
static int readdress(ddp_job *job, int rank)
{
    char mine[48];
    unsigned char address[DDP_ADDRESS_MAX_BYTES];
    size_t bytes;
    for (int process = 0; process < 3; process++) {
        snprintf(mine, sizeof mine, "process %d of %d", process, rank);
        for (int again = 0; again < 2; again++)
            if (ddp_job_put_address(job, mine, sizeof mine) != DDP_OK)
                return 1;
        for (int other = 0; other < RANKS; other++) {
            snprintf(mine, sizeof mine, "process %d of %d", process, other);
            if (ddp_job_get_address(job, other, address, &bytes, 20000) != DDP_OK ||
                bytes != sizeof mine || strcmp(mine, (char *)address) != 0)
                return 2;
        }
        if (ddp_job_barrier(job, 20000) != DDP_OK)
            return 3;
    }
    return 0;
}

START_TEST(addresses_of_processes)
{
    make_nodes();
    run_nodes(readdress);
}
END_TEST

/* A library of networks may not bear an address that is not as it was: it is never shown one. */
static int read_damaged(ddp_job *job, int rank)
{
    unsigned char address[DDP_ADDRESS_MAX_BYTES];
    size_t bytes;
    if (ddp_job_put_address(job, "an address", 10) != DDP_OK)
        return 2;
    const bool damaged = rank >= WORKERS; /* rank 0 is on node 0 */
    if (ddp_job_get_address(job, 0, address, &bytes, 20000) !=
        (damaged ? DDP_ERR_MISMATCH : DDP_OK))
        return 3;
    return ddp_job_get_address(job, RANKS - 1, address, &bytes, 20000) == DDP_OK && bytes == 10 ? 0
                                                                                                : 4;
}

START_TEST(damaged_addresses)
{
    make_nodes();
    damage = _i;
    catch_messages();
    run_nodes(read_damaged);
    damage = 0;
    ck_assert_ptr_nonnull(
        strstr(take_messages(), "error: the address of rank 0, on node 0, has arrived damaged"));
}
END_TEST

static _Atomic int *shared; /* by all processes of a test */

static int many_rounds(ddp_job *job, int rank)
{
    for (int round = 0; round < 200; round++) {
        if (chance(20) == 0)
            nap();
        atomic_fetch_add(shared, 1);
        if (ddp_job_barrier(job, 20000) != DDP_OK)
            return 2;
        if (atomic_load(shared) != (round + 1) * RANKS || rank < 0)
            return 3;
        if (ddp_job_barrier(job, 20000) != DDP_OK)
            return 4;
    }
    return 0;
}

START_TEST(barrier_rounds)
{
    make_nodes();
    run_nodes(many_rounds);
}
END_TEST

/* All but one give up, in rounds that their own nodes have sealed; then the barrier is whole. */
static int late_rank(ddp_job *job, int rank)
{
    char go[3];
    if (rank > 0) {
        for (int i = 0; i < 3; i++)
            if (ddp_job_barrier(job, 20 + chance(20)) != DDP_ERR_TIMEOUT)
                return 1;
        if (atomic_fetch_add(shared, 1) == RANKS - 2 && ddp_job_put_id(job, 1, "go", 3) != DDP_OK)
            return 2;
    }
    if (ddp_job_get_id(job, 1, go, 3, 20000) != DDP_OK)
        return 3;
    return ddp_job_barrier(job, 20000) == DDP_OK ? 0 : 4;
}

START_TEST(barrier_late)
{
    make_nodes();
    run_nodes(late_rank);
}
END_TEST

static int abort_all(ddp_job *job, int rank)
{
    if (rank == RANKS - 1) {
        usleep(50000);
        ddp_job_abort(job);
    }
    if (ddp_job_barrier(job, -1) != DDP_ERR_ABORTED)
        return 1;
    return atomic_load(ddp_job_abort_word(job)) == RANKS ? 0 : 2;
}

START_TEST(abort_reaches_all)
{
    const int64_t start = ddp_clock_ns();
    make_nodes();
    run_nodes(abort_all);
    ck_assert_int_lt(ddp_clock_ns() - start, INT64_C(5000000000));
}
END_TEST

/* --- stopping --------------------------------------------------------------------------------- */

/* Trains: some ranks are slow, one is asked to stop at a step of its own. Ranks that stop before
 * different steps would leave each other in the barrier. */
static int train(ddp_job *job, int rank)
{
    const int asked = atomic_load(&shared[1]), when = atomic_load(&shared[2]);
    if (ddp_job_accept_stop(job) != DDP_OK)
        return 1;
    for (int64_t step = when; step < when + 400; step++) {
        if (rank == asked && step == when + asked * 3 && raise(SIGUSR1) != 0)
            return 3;
        if (step == when + asked * 3 || chance(8) == 0)
            nap(); /* some have begun the step when the request is heard, and some have not */
        if (ddp_job_should_stop(job, step)) {
            int none = -1;
            return !atomic_compare_exchange_strong(&shared[3], &none, (int)step) && none != step
                       ? 2
                       : 0;
        }
        if (ddp_job_barrier(job, 20000) != DDP_OK)
            return 4;
    }
    return 5;
}

START_TEST(stop_together)
{
    random_state = (uint32_t)_i * 31 + 7;
    make_nodes();
    atomic_store(&shared[1], chance(RANKS));
    atomic_store(&shared[2], _i % 2 ? 1000 : 0); /* a run that was resumed */
    atomic_store(&shared[3], -1);
    run_nodes(train);
    const int first = atomic_load(&shared[2]) + atomic_load(&shared[1]) * 3;
    ck_assert_int_ge(atomic_load(&shared[3]), first);
}
END_TEST

/* A request that is there before the first step: no step is begun. */
static int stop_at_once(ddp_job *job, int rank)
{
    (void)rank;
    return ddp_job_should_stop(job, 700) ? 0 : 1;
}

START_TEST(stop_before_all)
{
    make_nodes();
    for (int n = 0; n < NODES; n++)
        ck_assert(ddp_mirror_hold(&nodes[n].board) == INT64_MIN);
    for (int n = 0; n < NODES; n++)
        ddp_mirror_stop_before(&nodes[n].board, INT64_MIN);
    run_nodes(stop_at_once);
}
END_TEST

/* --- what does not fit ------------------------------------------------------------------------ */

START_TEST(bell_refused)
{
    ddp_job *job = NULL;
    make_nodes();
    ddp_job_close(join_node(1));
    if (_i == 0)
        unsetenv("DDPRUN_BELL_FD");
    else
        set_number("DDPRUN_BELL_FD", _i == 1 ? 999 : nodes[0].board_fd);
    ck_assert_int_eq(ddp_job_open(&job), DDP_ERR_INVALID);
}
END_TEST

/* A launcher believes neither its board nor another's launcher. */
START_TEST(posted_refused)
{
    static struct ddp_posted posted;
    struct node *node = &nodes[1];
    make_nodes();
    posted = (struct ddp_posted){.number = -1, .bytes = 1};
    ck_assert(!ddp_mirror_put(&node->mirror, &node->board, &posted));
    posted = (struct ddp_posted){.number = 0, .bytes = DDP_ID_MAX_BYTES + 1};
    ck_assert(!ddp_mirror_put(&node->mirror, &node->board, &posted));
    posted = (struct ddp_posted){.number = DDP_ID_SLOTS + RANKS, .bytes = 1};
    ck_assert(!ddp_mirror_put(&node->mirror, &node->board, &posted));
    posted.number = DDP_ID_SLOTS + WORKERS; /* its own worker's */
    ck_assert(!ddp_mirror_put(&node->mirror, &node->board, &posted));
    memset(node->board.memory->ids, 0xff, sizeof node->board.memory->ids);
    ck_assert(!ddp_mirror_next(&node->mirror, &node->board, &posted));
    atomic_store(&node->board.memory->ids[3].post.state, DDP_POST_READY);
    ck_assert(ddp_mirror_next(&node->mirror, &node->board, &posted));
    ck_assert_int_eq(posted.number, 3);
    ck_assert_uint_eq(posted.bytes, DDP_ID_MAX_BYTES);
    ck_assert(!ddp_mirror_next(&node->mirror, &node->board, &posted));
}
END_TEST

static void share(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne((void *)shared, MAP_FAILED);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("mirror");
    TCase *processes = test_case(suite, "processes", 60);
    tcase_add_checked_fixture(processes, share, NULL);
    tcase_add_test(processes, ids_and_addresses);
    tcase_add_test(processes, addresses_of_processes);
    tcase_add_loop_test(processes, damaged_addresses, 1, 5);
    tcase_add_test(processes, barrier_rounds);
    tcase_add_loop_test(processes, barrier_late, 0, 3);
    tcase_add_test(processes, abort_reaches_all);
    tcase_add_loop_test(processes, stop_together, 0, 20);
    tcase_add_test(processes, stop_before_all);
    tcase_add_loop_test(processes, bell_refused, 0, 3);
    tcase_add_test(processes, posted_refused);
    return suite;
}
