/* SPDX-License-Identifier: MIT
 *
 * The speed of all-reduce, in the columns of nccl-tests, each result compared bit for bit; see
 * bench/README. Started alone it forks its ranks onto a board as ddprun makes it, and, where mpirun
 * and mpicc are installed, measures Open MPI with the same loop in the same run (allreduce_mpi.c).
 * Rank r is bound to core r, modulo the number of cores: a slice stays in the cache of the core
 * that summed it. */
#include "config.h"

#include "bench/allreduce_loop.h"
#include "comm/channel.h"
#include "comm/comm.h"
#include "core/log.h"
#include "core/options.h"
#include "ddp.h"
#include "job/board.h"
#include "kernels/reduce.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct settings {
    int64_t ranks, rounds, lanes;
    const char *mpi_source;
    bool channels;
};

#define OPTION_STRUCT struct settings

static const struct ddp_option options[] = {
    {OPTION_INT("ranks", ranks, 1, 64, "N"), .letter = 'n', .help = "number of ranks (2)"},
    {OPTION_INT("rounds", rounds, 1, 100, "N"),
     .help = "how often each side is measured, by turns; the median counts (3)"},
    {OPTION_INT("lanes", lanes, 1, 1024, "N"),
     .help = "add up the roots of runs of N lanes, as training does; at least one a rank"},
    {OPTION_FLAG("channels", channels), .help = "measure channels between two ranks only"},
    {OPTION_TEXT("mpi-source", mpi_source, "FILE"),
     .help = "allreduce_mpi.c, compiled with mpicc (default: beside the sources)"},
    {0},
};

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void bind_core(int rank)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static ddp_comm *the_comm;
static struct ddp_comm_roots the_roots; /* of --lanes; count 0: each rank has one array */
static int most_roots = 1;

static void cut_lanes(int lanes, int ranks)
{
    static int first[DDP_REDUCE_MAX + 1], end[1024];
    the_roots = (struct ddp_comm_roots){.first = first, .end = end, .bytes = LOOP_LARGEST};
    for (int r = 0; r < ranks; r++) {
        const int own = ddp_reduce_run_roots(0, lanes, r * lanes / ranks, (r + 1) * lanes / ranks,
                                             end + the_roots.count);
        the_roots.count += own;
        first[r + 1] = the_roots.count;
        most_roots = own > most_roots ? own : most_roots;
    }
}

static int reduce_floats(float *buffer, size_t count)
{
    if (the_roots.count == 0)
        return ddp_comm_allreduce(the_comm, buffer, count, DDP_F32, DDP_SUM) == DDP_OK ? 0 : 1;
    return ddp_comm_reduce_roots_start(the_comm, buffer, count, 0, &the_roots, 0, false) ==
                       DDP_OK &&
                   ddp_comm_finish(the_comm) == DDP_OK
               ? 0
               : 1;
}

static int wait_all(void)
{
    return ddp_comm_barrier(the_comm) == DDP_OK ? 0 : 1;
}

/* One rank: rows of results go to `out` from rank 0. only: one size in bytes, or 0 for all. */
static int run_rank(int rank, int size, FILE *out, size_t only)
{
    ddp_job *job;
    void *memory;
    if (ddp_job_open(&job) != DDP_OK || ddp_comm_create(&the_comm, job, NULL) != DDP_OK ||
        ddp_comm_alloc(the_comm, (size_t)most_roots * LOOP_LARGEST, &memory) != DDP_OK)
        return 1;
    const struct loop loop = {rank, size, reduce_floats, wait_all};
    int result = only ? loop_size(&loop, memory, only, out) : loop_all(&loop, memory, out);
    ddp_comm_destroy(the_comm);
    ddp_job_close(job);
    return result;
}

/* Rank 1 sends what it copies into the slots, `only` bytes each, and rank 0 takes them. Writes, in
 * microseconds, a plain copy, a message, and a signal there and back. */
static int run_channel(int rank, int size, FILE *out, size_t only)
{
    enum { CALLS = 40, SIGNALS = 20000 };
    ddp_job *job;
    ddp_channel *data, *there, *back;
    void *from, *to, *slot;
    double copy[CALLS], send[CALLS], start = 0;
    (void)size;
    if (ddp_job_open(&job) != DDP_OK || ddp_comm_create(&the_comm, job, NULL) != DDP_OK ||
        ddp_comm_alloc(the_comm, only, &from) != DDP_OK ||
        ddp_comm_alloc(the_comm, 2 * only, &to) != DDP_OK ||
        ddp_channel_open(&data, the_comm, 1, 0, only, 2) != DDP_OK ||
        ddp_channel_open(&there, the_comm, 1, 0, 0, 1) != DDP_OK ||
        ddp_channel_open(&back, the_comm, 0, 1, 0, 1) != DDP_OK)
        return 1;
    memset(from, rank, only);
    for (int i = 0; i < CALLS; i++) { /* by turns: memory is faster at some times */
        start = loop_now_us();
        if (rank == 1)
            memcpy((char *)to + (i % 2 ? only : 0), from, only); /* to two places, as slots are */
        copy[i] = loop_now_us() - start;
        start = loop_now_us();
        if (ddp_channel_acquire(data, &slot) != DDP_OK)
            return 1;
        if (rank == 1)
            memcpy(slot, from, only);
        if (ddp_channel_release(data) != DDP_OK)
            return 1;
        send[i] = loop_now_us() - start;
    }
    start = loop_now_us();
    for (int i = 0; i < 2 * SIGNALS; i++) {
        ddp_channel *c = i % 2 ? back : there;
        if (ddp_channel_acquire(c, &slot) != DDP_OK || ddp_channel_release(c) != DDP_OK)
            return 1;
    }
    if (rank == 1)
        fprintf(out, "%f %f %f\n", median(copy, CALLS), median(send, CALLS),
                (loop_now_us() - start) / SIGNALS);
    ddp_comm_destroy(the_comm);
    ddp_job_close(job);
    return 0;
}

/* Forks the ranks; returns what one wrote, to be read and closed, or NULL. */
static FILE *run_all(int (*run)(int rank, int size, FILE *out, size_t only), int size, size_t only)
{
    struct ddp_board board;
    int board_fd, heap_fd, failed = 0;
    FILE *out = tmpfile();
    if (!out || ddp_board_create(&board, &board_fd, (const int[]){0, size}, 0, 1) != DDP_OK ||
        ddp_board_create_heap(&board, &heap_fd) != DDP_OK)
        return NULL;
    fflush(stdout);
    for (int r = 0; r < size; r++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            set_number("RANK", r);
            set_number("LOCAL_RANK", r);
            set_number("WORLD_SIZE", size);
            set_number(DDP_BOARD_FD_VARIABLE, board_fd);
            set_number(DDP_HEAP_FD_VARIABLE, heap_fd);
            bind_core(r);
            int result = run(r, size, out, only);
            fflush(out);
            _exit(result);
        }
    for (int left = size, code; left > 0; left--)
        if (wait(&code) > 0 && code != 0) {
            ddp_board_abort(&board, DDP_ABORT_BY_LAUNCHER);
            failed = 1;
        }
    ddp_board_unmap(&board);
    close(board_fd);
    close(heap_fd);
    rewind(out);
    if (failed)
        fclose(out);
    return failed ? NULL : out;
}

static FILE *run_ours(int size, size_t only)
{
    return run_all(run_rank, size, only);
}

static FILE *run_mpi(int size, const char *program)
{
    char command[600];
    FILE *out = tmpfile();
    snprintf(
        command, sizeof command,
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n %d --bind-to core %s "
        ">&%d",
        size, program, out ? fileno(out) : 1);
    fflush(stdout);
    if (!out || system(command) != 0) {
        if (out)
            fclose(out);
        return NULL;
    }
    rewind(out);
    return out;
}

#define ROUNDS 100

struct table {
    double us[LOOP_SIZES][ROUNDS];
    long wrong[LOOP_SIZES];
    int rounds;
};

static bool read_rows(struct table *table, FILE *rows)
{
    size_t bytes;
    double us;
    long wrong;
    int i = 0;
    if (!rows)
        return false;
    for (; i < LOOP_SIZES && fscanf(rows, "%zu %lf %ld", &bytes, &us, &wrong) == 3; i++) {
        table->us[i][table->rounds] = us;
        table->wrong[i] += wrong;
    }
    fclose(rows);
    table->rounds++;
    return i == LOOP_SIZES;
}

static double median_of(const struct table *table, int i)
{
    double us[ROUNDS];
    for (int r = 0; r < table->rounds; r++)
        us[r] = table->us[i][r];
    return median(us, table->rounds);
}

static void print_table(const char *name, const struct table *table, int size)
{
    printf("# %s, %d ranks\n%12s %12s %6s %6s %10s %8s %8s %6s\n", name, size, "size (B)", "count",
           "type", "redop", "time (us)", "algbw", "busbw", "#wrong");
    for (int i = 0; i < LOOP_SIZES; i++) {
        double us = median_of(table, i), algbw = (double)loop_sizes[i] / us / 1e3;
        printf("%12zu %12zu %6s %6s %10.2f %8.2f %8.2f %6ld\n", loop_sizes[i], loop_sizes[i] / 4,
               "float", "sum", us, algbw, algbw * 2 * (size - 1) / size, table->wrong[i]);
    }
}

/* More ranks than cores, against as many as there are. */
static void print_crowded(void)
{
    const size_t bytes = (size_t)16 << 20;
    double us[2] = {0};
    for (int i = 0; i < 2; i++) {
        FILE *rows = run_ours(i ? 8 : 2, bytes);
        if (!rows || fscanf(rows, "%*u %lf", &us[i]) != 1)
            us[i] = 0;
        if (rows)
            fclose(rows);
    }
    if (us[0] > 0)
        printf("16 MiB: 2 ranks %.0f us, 8 ranks %.0f us: time x%.2f, busbw x%.2f\n", us[0], us[1],
               us[1] / us[0], 1.75 * us[0] / us[1]);
}

/* Bounded by a plain copy: that is all that a sender does which does not compute into the slot. */
static void print_channel(void)
{
    static const size_t sizes[] = {(size_t)1 << 20, (size_t)64 << 20};
    double copy, send, trip;
    for (int i = 0; i < 2; i++) {
        FILE *rows = run_all(run_channel, 2, sizes[i]);
        if (rows && fscanf(rows, "%lf %lf %lf", &copy, &send, &trip) == 3)
            printf("channel, messages of %zu MiB: %.2f GB/s, memcpy %.2f GB/s (x%.2f); a signal "
                   "there and back: %.2f us\n",
                   sizes[i] >> 20, (double)sizes[i] / send / 1e3, (double)sizes[i] / copy / 1e3,
                   copy / send, trip);
        if (rows)
            fclose(rows);
    }
}

int main(int argc, char **argv)
{
    static struct table ours, theirs;
    struct settings s = {.ranks = 2, .rounds = 3, .mpi_source = BENCH_SOURCE "/allreduce_mpi.c"};
    char program[] = "/tmp/allreduce_mpi.XXXXXX", command[1024];
    struct ddp_options_given given = {0};
    int rest;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        ddp_options_help(options, stdout);
        return 0;
    }
    if (ddp_options_parse(options, &s, &given, argc, argv, false, &rest) != DDP_OK)
        return 2;
    if (s.lanes > 0)
        cut_lanes((int)(s.lanes < s.ranks ? s.ranks : s.lanes), (int)s.ranks);
    if (s.channels) {
        print_channel();
        return 0;
    }
    int fd = mkstemp(program);
    if (fd >= 0)
        close(fd);
    snprintf(command, sizeof command,
             "mpicc -O2 -I'" BENCH_BUILD "' -I'" BENCH_SOURCE "/..' -o %s '%s' 2>/dev/null",
             program, s.mpi_source);
    bool mpi = fd >= 0 && system("command -v mpirun >/dev/null 2>&1") == 0 && system(command) == 0;
    bool good = true;
    for (int64_t r = 0; r < s.rounds && good; r++) {
        good = read_rows(&ours, run_ours((int)s.ranks, 0));
        mpi = mpi && read_rows(&theirs, run_mpi((int)s.ranks, program));
    }
    unlink(program);
    if (!good)
        return 1;
    print_table("ddp", &ours, (int)s.ranks);
    if (mpi)
        print_table("Open MPI", &theirs, (int)s.ranks);
    if (s.lanes == 0) {
        print_crowded();
        print_channel();
    }
    for (int i = 0; i < LOOP_SIZES; i++)
        good = good && ours.wrong[i] == 0;
    if (mpi) {
        double ratio[LOOP_SIZES];
        for (int i = 0; i < LOOP_SIZES; i++)
            ratio[i] = median_of(&theirs, i) / median_of(&ours, i);
        printf("allreduce %d ranks: 4 B %.1fx, 1 MiB %.1fx, 64 MiB %.1fx, 496 MB %.1fx of Open "
               "MPI's speed\n",
               (int)s.ranks, ratio[LOOP_4B], ratio[LOOP_1MIB], ratio[LOOP_64MIB],
               ratio[LOOP_496MB]);
    } else {
        puts("Open MPI is not installed (libopenmpi-dev, openmpi-bin): nothing to compare with");
    }
    return good ? 0 : 1;
}
