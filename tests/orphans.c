/* SPDX-License-Identifier: MIT
 *
 * Kills ddprun with SIGKILL at random moments of its start, run, restart and teardown: within a
 * second nothing of the job is left. This program is a child subreaper, so all that a job has
 * started, whatever session or group it went to, becomes its child in the end: nobody is left when
 * waitpid() says that there are no children. Arguments: the number of kills, and a seed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 1000

/* What a worker starts: in its group, in a session of its own, and below that after its parent is
 * gone. */
#define LITTER "sleep 77 & setsid sleep 77 & (setsid sh -c 'setsid sleep 77 & sleep 77' &) ; "

enum victim {
    DDPRUN,
    ITS_GROUP,         /* all that a shell would call the job */
    KEEPER_AND_DDPRUN, /* the one that should clean up is killed first, and has a successor */
    BY_NAME,           /* as pkill -9 -f does */
};

struct scenario {
    const char *name;
    enum victim victim;
    int from_ms, to_ms; /* when */
    const char *const arguments[12];
};

static const struct scenario scenarios[] = {
    {"start", DDPRUN, 0, 8, {"-n", "4", "sh", "-c", LITTER "sleep 77"}},
    {"run", DDPRUN, 20, 120, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"restart",
     DDPRUN,
     0,
     500,
     {"-n", "2", "--max-restarts", "100", "sh", "-c", LITTER "sleep 0.02; exit 3"}},
    {"teardown",
     DDPRUN,
     30,
     150,
     {"-n", "3", "--grace", "50", "sh", "-c",
      LITTER "trap '' TERM; test $RANK = 1 && sleep 0.03 && exit 3; sleep 77; sleep 77"}},
    {"end", DDPRUN, 10, 60, {"-n", "3", "sh", "-c", LITTER "sleep 0.02"}},
    {"whole group", ITS_GROUP, 0, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"keeper first", KEEPER_AND_DDPRUN, 20, 60, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"by name", BY_NAME, 20, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
};

#define SCENARIOS (int)(sizeof scenarios / sizeof scenarios[0])

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_us(long us)
{
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static bool read_text(long pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* The child of ddprun with the keeper's name that is not `old`; 0: there is none yet. */
static long find_keeper(pid_t ddprun, long old)
{
    char file[64], text[4096], name[64];
    snprintf(file, sizeof file, "task/%ld/children", (long)ddprun);
    if (!read_text(ddprun, file, text, sizeof text))
        return 0;
    char *save = NULL;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        long pid = atol(word);
        if (pid != old && read_text(pid, "comm", name, sizeof name) &&
            strcmp(name, "job-keeper\n") == 0)
            return pid;
    }
    return 0;
}

static long wait_for_keeper(pid_t ddprun, long old)
{
    long keeper = 0;
    for (int i = 0; i < 5000 && (keeper = find_keeper(ddprun, old)) == 0; i++)
        sleep_us(1000);
    return keeper;
}

/* Kills ddprun and those of its children that have the same command line. */
static void kill_by_name(pid_t ddprun)
{
    char file[64], wanted[4096], text[4096], line[4096];
    snprintf(file, sizeof file, "task/%ld/children", (long)ddprun);
    bool known = read_text(ddprun, "cmdline", wanted, sizeof wanted) &&
                 read_text(ddprun, file, text, sizeof text);
    kill(ddprun, SIGKILL);
    char *save = NULL;
    for (char *word = known ? strtok_r(text, " ", &save) : NULL; word;
         word = strtok_r(NULL, " ", &save))
        if (read_text(atol(word), "cmdline", line, sizeof line) && strcmp(line, wanted) == 0)
            kill((pid_t)atol(word), SIGKILL);
}

static pid_t start(const struct scenario *scenario)
{
    char *arguments[16] = {"./ddprun"};
    for (int i = 0; scenario->arguments[i]; i++)
        arguments[i + 1] = (char *)scenario->arguments[i];
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        setpgid(0, 0);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        execv("./ddprun", arguments);
        _exit(99);
    }
    setpgid(pid, pid);
    return pid;
}

static bool strike(const struct scenario *scenario, pid_t ddprun)
{
    long keeper = 0;
    switch (scenario->victim) {
    case DDPRUN:
        break;
    case ITS_GROUP:
        kill(-ddprun, SIGKILL);
        break;
    case KEEPER_AND_DDPRUN:
        if ((keeper = wait_for_keeper(ddprun, 0)) > 0)
            kill((pid_t)keeper, SIGKILL);
        if (keeper == 0 || wait_for_keeper(ddprun, keeper) == 0) {
            printf("FAIL: a keeper that was killed has no successor\n");
            kill(ddprun, SIGKILL);
            return false;
        }
        break;
    case BY_NAME:
        kill_by_name(ddprun);
        return true;
    }
    kill(ddprun, SIGKILL);
    return true;
}

/* Waits for the end of all; the time that took, or -1: some are left, which are shown and killed.
 */
static int64_t wait_for_end(int64_t limit_us)
{
    char file[64], text[4096], command[256];
    int64_t start_us = now_us();
    while (now_us() - start_us < limit_us) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return now_us() - start_us;
        if (pid == 0)
            sleep_us(500);
    }
    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        char *save = NULL;
        snprintf(file, sizeof file, "task/%ld/children", (long)getpid());
        if (!read_text(getpid(), file, text, sizeof text))
            continue;
        for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
            if (read_text(atol(word), "comm", command, sizeof command))
                printf("left behind: %s %s", word, command);
            kill((pid_t)atol(word), SIGKILL);
        }
        sleep_us(2000);
    }
    return -1;
}

int main(int argc, char **argv)
{
    int kills = argc > 1 ? atoi(argv[1]) : 64, failures = 0;
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)now_us();
    int64_t slowest_us = 0;
    double load = 1;
    if (access("/proc/self/task", R_OK) < 0) {
        printf("skipped: /proc is not there\n");
        return 77;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL);
    srandom(seed);
    for (int i = 0; i < kills; i++) {
        const struct scenario *scenario = &scenarios[i % SCENARIOS];
        int64_t moment_us =
            scenario->from_ms * 1000 + random() % ((scenario->to_ms - scenario->from_ms) * 1000);
        pid_t pid = start(scenario);
        sleep_us((long)moment_us);
        bool struck = strike(scenario, pid);
        /* On a machine with more to do than it has cores for, a second is longer. */
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        int64_t share = getloadavg(&load, 1) == 1 ? (int64_t)load / (cores > 0 ? cores : 1) + 1 : 1;
        int64_t took_us = wait_for_end(LIMIT_MS * 1000 * share);
        if (took_us < 0)
            printf("FAIL: kill %d (%s, after %.1f ms; seed %u): not gone within a second\n", i,
                   scenario->name, (double)moment_us / 1e3, seed);
        failures += took_us < 0 || !struck;
        slowest_us = took_us > slowest_us ? took_us : slowest_us;
    }
    printf("%d kills, %d failures; the slowest end took %.1f ms\n", kills, failures,
           (double)slowest_us / 1e3);
    return failures > 0;
}
