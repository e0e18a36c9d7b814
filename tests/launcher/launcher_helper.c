/* SPDX-License-Identifier: MIT
 *
 * A worker that misbehaves on demand: launcher_helper WORD [NUMBER]. The tests of ddprun start it.
 */
#include "config.h"

#include "core/clock.h"
#include "job/board.h"
#include "job/job.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int rank_number(void)
{
    const char *rank = getenv("RANK");
    return rank ? atoi(rank) : 0;
}

static ddp_job *join_job(void)
{
    ddp_job *job;
    enum ddp_status status = ddp_job_open(&job);
    if (status != DDP_OK)
        exit(ddp_status_exit_code(status));
    return job;
}

/* Rank N dies in the middle of a collective; the others give up with exit code 6 as soon as they
 * see it. */
static int abort_job(int culprit)
{
    ddp_job *job = join_job();
    enum ddp_status status = ddp_job_barrier(job, 20000);
    if (ddp_job_rank(job) == culprit) {
        ddp_job_report(job, "backward", 41);
        ddp_job_collective_enter(job, NULL, "all-reduce", 1042, 4096);
        ddp_job_abort(job);
        usleep(100000); /* the others are gone first */
        ddp_job_close(job);
        return 9;
    }
    while (status == DDP_OK)
        status = ddp_job_barrier(job, 20000);
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

static int scribble(void)
{
    ddp_job *job = join_job();
    const _Atomic uint32_t *word = ddp_job_abort_word(job);
    unsigned char *page = (unsigned char *)((uintptr_t)word & ~(uintptr_t)4095);
    memset(page, 0xa5, 4096); /* the header, the barrier, ids */
    ddp_job_barrier(job, 10);
    memset(page, 0xff, 4096);
    ddp_job_close(job);
    return 3;
}

static unsigned char *map_inherited(const char *variable, size_t *bytes)
{
    struct stat info;
    const char *text = getenv(variable);
    int fd = text ? atoi(text) : -1;
    if (fstat(fd, &info) < 0 || (info.st_size == 0 && ftruncate(fd, info.st_size = 65536) < 0))
        exit(99);
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        exit(99);
    *bytes = (size_t)info.st_size;
    return memory;
}

/* Writes at random places of the board and the heap, as fast as it can: random bytes, and values
 * that are nearly right. */
static int scrawl(long milliseconds)
{
    static const unsigned char odd[] = {0, 0, 0, 1, 2, 0x7f, 0x80, 0xff};
    size_t sizes[2];
    unsigned char *memory[] = {map_inherited(DDP_BOARD_FD_VARIABLE, &sizes[0]),
                               map_inherited(DDP_HEAP_FD_VARIABLE, &sizes[1])};
    uint64_t random = (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15) | 1;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    struct ddp_board_memory *board = (struct ddp_board_memory *)memory[0];
    do {
        for (int i = 0; i < 1000; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            int which = (random >> 60) == 0;
            unsigned char byte = (random >> 40) & 1 ? odd[(random >> 41) % sizeof odd]
                                                    : (unsigned char)(random >> 48);
            ((volatile unsigned char *)memory[which])[(uint32_t)random % sizes[which]] = byte;
            /* Mostly a board by its head, so that readers go on to what follows. */
            ((volatile struct ddp_board_memory *)board)->magic = DDP_BOARD_MAGIC;
            ((volatile struct ddp_board_memory *)board)->version = DDP_BOARD_VERSION;
            ((volatile struct ddp_board_memory *)board)->bytes = sizes[0];
            ((volatile struct ddp_board_memory *)board)->node = 0;
            ((volatile struct ddp_board_memory *)board)->nodes = 1;
            ((volatile struct ddp_board_memory *)board)->first = 0;
            const uint32_t workers =
                i % 2 ? (uint32_t)((sizes[0] - sizeof *board) / sizeof board->lines[0])
                      : DDP_BOARD_MAX_WORLD;
            ((volatile struct ddp_board_memory *)board)->size = workers;
            ((volatile struct ddp_board_memory *)board)->workers = workers;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
             milliseconds);
    return 5;
}

static int speak_for_all(void)
{
    ddp_job *job = join_job();
    ddp_job_sole_output(job);
    if (ddp_job_rank(job) == 0) {
        puts("for all");
        fputs("for itself\n", stderr);
    }
    ddp_job_close(job);
    return 0;
}

/* All ranks but one wait at the same all-reduce. */
static int hang(int missing)
{
    ddp_job *job = join_job();
    ddp_job_report(job, "backward", 12);
    for (uint64_t i = 0; i < 1042; i++) {
        ddp_job_collective_enter(job, NULL, "all-reduce", i, 4096);
        ddp_job_collective_leave(job);
    }
    if (ddp_job_rank(job) == missing)
        pause();
    ddp_job_collective_enter(job, NULL, "all-reduce", 1042, 4096);
    enum ddp_status status = ddp_job_barrier(job, 60000);
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

/* One rank does not take what the one before sends, nor send to the one behind. */
static int keep_waiting(int missing)
{
    ddp_job *job = join_job();
    const int rank = ddp_job_rank(job);
    if (rank == missing)
        pause();
    ddp_job_transfer_enter(job, rank < missing, rank < missing ? rank + 1 : rank - 1, 7, 4096);
    enum ddp_status status = ddp_job_barrier(job, 60000);
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

/* Four ranks, of which 0 2 and 1 3 are groups. With `pauses` rank 0 does nothing, and 3 waits for a
 * message of 2; else the others wait for rank 1 in a barrier of all, which is in one of its group.
 */
static int hang_groups(bool pauses)
{
    ddp_job *job = join_job();
    const int rank = ddp_job_rank(job);
    const struct ddp_job_group own = {rank % 2, 2, 2, 3}, all = {0, 1, 4, 1};
    const uint64_t count = rank % 2 ? 100 : 7;
    for (uint64_t i = 0; i < count; i++) {
        ddp_job_collective_enter(job, &own, "all-reduce", i, 4096);
        ddp_job_collective_leave(job);
    }
    if (pauses && rank == 0)
        pause();
    if (pauses && rank == 3)
        ddp_job_transfer_enter(job, false, 2, 7, 4096);
    else if (pauses || rank == 1)
        ddp_job_collective_enter(job, &own, "all-reduce", count, 4096);
    else
        ddp_job_collective_enter(job, &all, "barrier", 0, 0);
    char none;
    enum ddp_status status = ddp_job_get_id(job, 5, &none, 1, 60000); /* nobody puts it */
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

/* One of at most 8 ranks comes late to each of five barriers: when the others are there, and later
 * than a busy machine has held it up in those before. */
static int straggle(int late)
{
    ddp_job *job = join_job();
    const int rank = ddp_job_rank(job), size = ddp_job_world_size(job);
    enum ddp_status status = DDP_OK;
    int64_t held_ns = 0;
    char there = 1;
    for (int i = 0; i < 5 && status == DDP_OK; i++) {
        if (rank != late)
            status = ddp_job_put_id(job, i * 8 + rank, &there, 1);
        for (int other = 0; rank == late && other < size && status == DDP_OK; other++)
            if (other != late)
                status = ddp_job_get_id(job, i * 8 + other, &there, 1, 60000);
        if (rank == late)
            usleep((useconds_t)(50000 + 4 * held_ns / 1000));
        const int64_t start_ns = ddp_clock_ns();
        ddp_job_collective_enter(job, NULL, "barrier", (uint64_t)i, 0);
        status = status == DDP_OK ? ddp_job_barrier(job, 60000) : status;
        ddp_job_collective_leave(job);
        held_ns += ddp_clock_ns() - start_ns;
    }
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

/* Reports `count` steps, with a barrier in each. */
static int take_steps(long count)
{
    ddp_job *job = join_job();
    enum ddp_status status = DDP_OK;
    for (int64_t step = 0; step < count && status == DDP_OK; step++) {
        ddp_job_report(job, "step", step);
        status = ddp_job_barrier(job, 20000);
    }
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

/* The rank always fails, in the middle of the others' barrier. */
static int fail_rank(int rank)
{
    ddp_job *job = join_job();
    enum ddp_status status = DDP_OK;
    if (ddp_job_rank(job) == rank) {
        ddp_job_close(job);
        return 1;
    }
    status = ddp_job_barrier(job, 20000);
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

/* Ids and addresses reach all ranks: the last one writes an id, each reads every address. */
static enum ddp_status meet(ddp_job *job)
{
    char id[64] = "an id of the last rank";
    unsigned char address[DDP_ADDRESS_MAX_BYTES] = {0};
    size_t bytes;
    const int last = ddp_job_world_size(job) - 1;
    enum ddp_status status = DDP_OK;
    if (ddp_job_rank(job) == last)
        status = ddp_job_put_id(job, 3, id, sizeof id);
    memset(id, 0, sizeof id);
    if (status == DDP_OK)
        status = ddp_job_get_id(job, 3, id, sizeof id, 20000);
    if (status == DDP_OK && strcmp(id, "an id of the last rank") != 0)
        return DDP_ERR_MISMATCH;
    if (ddp_job_node_count(job) == 1)
        return status;
    address[0] = (unsigned char)ddp_job_rank(job);
    if (status == DDP_OK)
        status = ddp_job_put_address(job, address, (size_t)ddp_job_rank(job) + 1);
    for (int rank = 0; rank <= last && status == DDP_OK; rank++) {
        status = ddp_job_get_address(job, rank, address, &bytes, 20000);
        if (status == DDP_OK && (bytes != (size_t)rank + 1 || address[0] != rank))
            return DDP_ERR_MISMATCH;
    }
    return status;
}

/* As a program that trains: meets, then steps of a millisecond with a barrier in each, until they
 * are done or the job is asked to stop. */
static int train(long steps)
{
    sigset_t requests;
    sigemptyset(&requests);
    sigaddset(&requests, SIGINT);
    sigaddset(&requests, SIGTERM);
    sigaddset(&requests, SIGUSR1);
    sigprocmask(SIG_BLOCK, &requests, NULL); /* so that a late one does not kill it */
    ddp_job *job = join_job();
    enum ddp_status status = ddp_job_accept_stop(job);
    if (status == DDP_OK)
        status = meet(job);
    for (int64_t step = 0; step < steps && status == DDP_OK; step++) {
        usleep((useconds_t)ddp_job_rank(job) * 500); /* ranks begin a step one after the other */
        if (ddp_job_should_stop(job, step)) {
            printf("stopped before %lld\n", (long long)step);
            status = DDP_ERR_PREEMPTED;
            break;
        }
        ddp_job_report(job, "train", step);
        usleep(1000);
        ddp_job_collective_enter(job, NULL, "barrier", (uint64_t)step, 0);
        status = ddp_job_barrier(job, 20000);
        ddp_job_collective_leave(job);
    }
    ddp_job_close(job);
    return ddp_status_exit_code(status);
}

static int flood(long megabytes)
{
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    block[sizeof block - 1] = '\n';
    for (long i = 0; i < megabytes; i++)
        if (fwrite(block, 1, sizeof block, stdout) != sizeof block)
            return 1;
    return 0;
}

/* Lines of the rank's own letter, of many lengths, in pieces that are not lines; the last has no
 * end. */
static int write_lines(long count)
{
    static char line[300000];
    memset(line, 'a' + rank_number() % 26, sizeof line);
    for (long i = 0; i < count; i++) {
        size_t length = i % 50 == 49 ? sizeof line : (size_t)(i * 37 % 200);
        for (size_t at = 0; at < length;) {
            size_t piece = length - at < 7001 ? length - at : 7001;
            if (write(STDOUT_FILENO, line + at, piece) != (ssize_t)piece)
                return 1;
            at += piece;
        }
        if (i + 1 < count && write(STDOUT_FILENO, "\n", 1) != 1)
            return 1;
    }
    return 0;
}

static int show_signals(void)
{
    sigset_t blocked;
    struct sigaction action;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&blocked, number) == 1)
            printf("blocked %d\n", number);
    for (int number = 1; number < NSIG; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            printf("ignored %d\n", number);
    return 0;
}

/* Uses so many MiB. */
static int eat(long megabytes)
{
    for (long i = 0; i < megabytes; i++) {
        volatile char *block = malloc(1 << 20);
        if (!block)
            return 9;
        for (size_t at = 0; at < 1 << 20; at += 4096)
            block[at] = (char)i;
    }
    return 0;
}

static void exit_quietly(int number)
{
    (void)number;
    _exit(75);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 0;
    const struct rlimit no_core = {0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (strcmp(word, "signal") == 0)
        return raise((int)number);
    if (strcmp(word, "abort") == 0)
        return abort_job((int)number);
    if (strcmp(word, "scribble") == 0)
        return rank_number() == 0 ? scribble() : (pause(), 0);
    if (strcmp(word, "scrawl") == 0)
        return scrawl(number);
    if (strcmp(word, "sole") == 0)
        return speak_for_all();
    if (strcmp(word, "hang") == 0)
        return hang((int)number);
    if (strcmp(word, "transfer") == 0)
        return keep_waiting((int)number);
    if (strcmp(word, "groups") == 0)
        return hang_groups(number != 0);
    if (strcmp(word, "straggle") == 0)
        return straggle((int)number);
    if (strcmp(word, "fails") == 0)
        return fail_rank((int)number);
    if (strcmp(word, "steps") == 0)
        return take_steps(number);
    if (strcmp(word, "train") == 0)
        return train(number);
    if (strcmp(word, "flood") == 0)
        return flood(number);
    if (strcmp(word, "lines") == 0)
        return write_lines(number);
    if (strcmp(word, "signals") == 0)
        return show_signals();
    if (strcmp(word, "normal") == 0 && argc > 2) {
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        execv(argv[2], argv + 2);
    }
    if (strcmp(word, "blocked") == 0 && argc > 2) { /* as a careless parent leaves it */
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        execv(argv[2], argv + 2);
    }
    if (strcmp(word, "eat") == 0)
        return eat(number);
    if (strcmp(word, "preempted") == 0) {
        signal(SIGTERM, exit_quietly);
        signal(SIGUSR1, exit_quietly);
        if (rank_number() > 0)
            sleep((unsigned)number);
        return 75;
    }
    fprintf(stderr, "launcher_helper: %s?\n", word);
    return 99;
}
