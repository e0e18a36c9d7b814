/* SPDX-License-Identifier: MIT
 *
 * How long it takes to start and end N workers that do nothing: bare fork, exec and wait, ddprun,
 * and mpirun where it is installed, taken in turns, the median of each. Also the peak memory of
 * ddprun. */
#include "config.h"

#include "bench/median.h"
#include "core/clock.h"
#include "core/parse.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ROUNDS  1001
#define MAX_WORKERS 1024

static pid_t start(char *const *command)
{
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDERR_FILENO);
        execvp(command[0], command);
        _exit(127);
    }
    return pid;
}

static bool bare(int workers)
{
    char *const command[] = {(char *)"/bin/true", NULL};
    pid_t pids[MAX_WORKERS];
    bool good = true;
    for (int i = 0; i < workers; i++)
        pids[i] = start(command);
    for (int i = 0; i < workers; i++) {
        int status = 0;
        good = pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i] && status == 0 && good;
    }
    return good;
}

static bool launch(char *const *command, long *peak_kib)
{
    struct rusage usage;
    int status = 0;
    pid_t pid = start(command);
    bool good = pid > 0 && wait4(pid, &status, 0, &usage) == pid && status == 0;
    if (good && peak_kib)
        *peak_kib = usage.ru_maxrss;
    return good;
}

static int64_t number_argument(int argc, char **argv, int index, int64_t normal, int64_t max)
{
    int64_t value = normal;
    if (argc > index && !ddp_parse_int64(argv[index], 1, max, &value)) {
        fprintf(stderr, "usage: launch_perf [WORKERS [ROUNDS]]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static double times[3][MAX_ROUNDS];
    static const char *const names[] = {"fork+exec+wait", "ddprun", "mpirun"};
    int workers = (int)number_argument(argc, argv, 1, 8, MAX_WORKERS);
    int rounds = (int)number_argument(argc, argv, 2, 21, MAX_ROUNDS);
    char count[16];
    snprintf(count, sizeof count, "%d", workers);
    char *const ddprun[] = {(char *)"./ddprun", (char *)"-n", count, (char *)"/bin/true", NULL};
    char *const mpirun[] = {(char *)"mpirun",
                            (char *)"--allow-run-as-root",
                            (char *)"--oversubscribe",
                            (char *)"-n",
                            count,
                            (char *)"/bin/true",
                            NULL};
    long peak_kib = 0;
    bool with_mpirun = launch(mpirun, NULL);
    for (int round = 0; round < rounds; round++)
        for (int kind = 0; kind < (with_mpirun ? 3 : 2); kind++) {
            int64_t begin_ns = ddp_clock_ns();
            bool good = kind == 0   ? bare(workers)
                        : kind == 1 ? launch(ddprun, &peak_kib)
                                    : launch(mpirun, NULL);
            times[kind][round] = (double)(ddp_clock_ns() - begin_ns) / 1e6;
            if (!good) {
                fprintf(stderr, "launch_perf: %s failed (run this in the build directory)\n",
                        names[kind]);
                return 1;
            }
        }
    double base = median(times[0], rounds);
    printf("%d workers, median of %d rounds\n", workers, rounds);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2 && !with_mpirun) {
            printf("%-16s not installed\n", names[kind]);
            continue;
        }
        double ms = median(times[kind], rounds);
        printf("%-16s %8.2f ms %6.1fx\n", names[kind], ms, ms / base);
    }
    printf("%-16s %8.2f MiB\n", "ddprun's memory", (double)peak_kib / 1024);
    return 0;
}
