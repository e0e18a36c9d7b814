/* SPDX-License-Identifier: MIT
 *
 * Kills ddprun with SIGKILL at random moments of its start, run, restart and teardown, alone and
 * together with its keepers: within a second nothing of the job is left. This program is a child
 * subreaper, so all that a job has started, whatever session or group it went to, becomes its child
 * in the end: nobody is left when waitpid() says that there are no children. Arguments: the number
 * of kills, a seed, and "cgroup" where ddprun can make a control group for its
 * job: then some more are gone. As "orphans hide" and "orphans hop" it is what a worker starts. */
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

#define LIMIT_MS        1000
#define KEEPERS_LIFE_MS 4000 /* if they are stopped when nobody is left to continue them */
#define MAX_KEEPERS     2

/* What a worker starts: in its group, in a session of its own, and below that after its parent is
 * gone; without an environment; with one that is overwritten. */
#define LITTER                                                                                     \
    "sleep 77 & setsid sleep 77 & (setsid sh -c 'setsid sleep 77 & sleep 77' &) ; "                \
    "setsid env -i sleep 77 & (setsid env -i sh -c 'setsid sleep 77 & exit' &) ; ./orphans hide "  \
    "& "

enum victim {
    DDPRUN,
    ITS_GROUP,       /* all that a shell would call the job */
    SUCCESSOR,       /* a keeper is killed, has a successor, then ddprun is killed */
    BY_NAME,         /* as pkill -9 -f does */
    STOPPED_KEEPERS, /* they cannot act when ddprun is killed */
    PAIR,            /* a keeper and ddprun, in either order, in one breath */
    STOPPED_PAIR,    /* the same, and the other keeper is stopped */
    STOPPED_LATER,   /* ddprun is killed, and a keeper stopped at its work */
    /* Where there is a control group: */
    ALL,      /* ddprun and its keepers; the next ddprun finds what is left */
    UNMARKED, /* ddprun; a worker's child has neither the environment nor the limits */
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
    {"successor", SUCCESSOR, 20, 60, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"by name", BY_NAME, 20, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"stopped", STOPPED_KEEPERS, 10, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"pair", PAIR, 10, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"stopped, pair", STOPPED_PAIR, 10, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"stopped later", STOPPED_LATER, 10, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"hopping", DDPRUN, 10, 80, {"-n", "2", "sh", "-c", "./orphans hop & sleep 77"}},
    {"nested", DDPRUN, 20, 120, {"-n", "2", "./ddprun", "-n", "2", "sh", "-c", LITTER "sleep 77"}},
    {"nested pair",
     PAIR,
     20,
     120,
     {"-n", "2", "./ddprun", "-n", "2", "sh", "-c", LITTER "sleep 77"}},
    {"all at once", ALL, 10, 80, {"-n", "3", "sh", "-c", LITTER "sleep 77"}},
    {"nested, all at once",
     ALL,
     20,
     120,
     {"-n", "2", "./ddprun", "-n", "2", "sh", "-c", LITTER "sleep 77"}},
    {"no mark",
     UNMARKED,
     20,
     80,
     {"-n", "2", "sh", "-c", "setsid env -i prlimit --rttime=9:9 sleep 77 & sleep 77"}},
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

/* ddprun's children with the keepers' names; returns how many. */
static int find_keepers(pid_t ddprun, pid_t keepers[MAX_KEEPERS])
{
    char file[64], text[4096], name[64];
    int count = 0;
    snprintf(file, sizeof file, "task/%ld/children", (long)ddprun);
    if (!read_text(ddprun, file, text, sizeof text))
        return 0;
    char *save = NULL;
    for (char *word = strtok_r(text, " ", &save); word && count < MAX_KEEPERS;
         word = strtok_r(NULL, " ", &save))
        if (read_text(atol(word), "comm", name, sizeof name) &&
            (strcmp(name, "job-keeper\n") == 0 || strcmp(name, "job-watcher\n") == 0))
            keepers[count++] = (pid_t)atol(word);
    return count;
}

/* Waits for all keepers, none of which is `old`. */
static bool wait_for_keepers(pid_t ddprun, pid_t old, pid_t keepers[MAX_KEEPERS])
{
    for (int i = 0; i < 5000; i++) {
        if (find_keepers(ddprun, keepers) == MAX_KEEPERS && keepers[0] != old && keepers[1] != old)
            return true;
        sleep_us(1000);
    }
    return false;
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

static bool kill_successor(pid_t ddprun)
{
    pid_t keepers[MAX_KEEPERS] = {0}, others[MAX_KEEPERS];
    bool good = wait_for_keepers(ddprun, 0, keepers);
    if (good)
        kill(keepers[0], SIGKILL);
    good = good && wait_for_keepers(ddprun, keepers[0], others);
    if (!good)
        printf("FAIL: a keeper that was killed has no successor\n");
    kill(ddprun, SIGKILL);
    return good;
}

/* Starts jobs after the end of those that were killed, until nobody is left. At first the group may
 * be locked still, by a worker that has not executed its program and is about to die. */
static void run_others(pid_t ddprun, const pid_t *keepers, int count)
{
    waitpid(ddprun, NULL, 0);
    for (int i = 0; i < count; i++)
        waitpid(keepers[i], NULL, 0);
    for (int tries = 0; tries < 10; tries++) {
        pid_t pid = fork();
        if (pid == 0) {
            execl("./ddprun", "./ddprun", "-n", "1", "true", (char *)NULL);
            _exit(99);
        }
        waitpid(pid, NULL, 0);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (waitpid(-1, NULL, WNOHANG) < 0)
            break;
        sleep_us(5000);
    }
}

/* What of ddprun's keepers there are at this moment is hit. */
static void strike_keepers(enum victim victim, pid_t ddprun)
{
    pid_t keepers[MAX_KEEPERS];
    int count = find_keepers(ddprun, keepers), first = count > 0 ? (int)(random() % count) : 0;
    bool pair = victim == PAIR || victim == STOPPED_PAIR, before = random() % 2;
    for (int i = 0; i < count; i++)
        if (victim == STOPPED_KEEPERS || (victim == STOPPED_PAIR && i != first))
            kill(keepers[i], SIGSTOP);
    for (int i = 0; i < count && victim == ALL; i++)
        kill(keepers[i], SIGKILL);
    if (pair && before && count > 0)
        kill(keepers[first], SIGKILL);
    kill(ddprun, SIGKILL);
    if (pair && !before && count > 0)
        kill(keepers[first], SIGKILL);
    if (victim == STOPPED_LATER && count > 0) {
        sleep_us(random() % 3000);
        kill(keepers[first], SIGSTOP);
    }
    if (victim == ALL)
        run_others(ddprun, keepers, count);
}

static bool strike(enum victim victim, pid_t ddprun)
{
    switch (victim) {
    case DDPRUN:
        kill(ddprun, SIGKILL);
        break;
    case ITS_GROUP:
        kill(-ddprun, SIGKILL);
        break;
    case SUCCESSOR:
        return kill_successor(ddprun);
    case BY_NAME:
        kill_by_name(ddprun);
        break;
    default:
        strike_keepers(victim, ddprun);
    }
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
    for (bool first = true; waitpid(-1, NULL, WNOHANG) >= 0; first = false) {
        char *save = NULL;
        snprintf(file, sizeof file, "task/%ld/children", (long)getpid());
        if (!read_text(getpid(), file, text, sizeof text))
            continue;
        for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
            if (first && read_text(atol(word), "comm", command, sizeof command))
                printf("left behind: %s %s", word, command);
            kill((pid_t)atol(word), SIGKILL);
        }
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sleep_us(500);
    }
    return -1;
}

/* As programs do that write their state where their command line and environment were. */
static _Noreturn void hide(void)
{
    extern char **environ;
    setsid();
    for (char **variable = environ; *variable; variable++)
        memset(*variable, 0, strlen(*variable));
    sleep(77);
    _exit(0);
}

/* Never the same process for long, nor in the same session. */
static _Noreturn void hop(void)
{
    extern char **environ;
    for (char **variable = environ; *variable; variable++)
        memset(*variable, 0, strlen(*variable));
    for (int64_t end_us = now_us() + 77000000; now_us() < end_us;) {
        if (fork() != 0)
            _exit(0);
        setsid();
        sleep_us(2000);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "hide") == 0)
        hide();
    if (argc == 2 && strcmp(argv[1], "hop") == 0)
        hop();
    int kills = argc > 1 ? atoi(argv[1]) : 64, failures = 0, count = 0;
    unsigned seed = argc > 2 && *argv[2] ? (unsigned)atoi(argv[2]) : (unsigned)now_us();
    bool cgroup = argc > 3 && strcmp(argv[3], "cgroup") == 0;
    int64_t slowest_us = 0;
    double load = 1;
    if (access("/proc/self/task", R_OK) < 0) {
        printf("skipped: /proc is not there\n");
        return 77;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL);
    srandom(seed);
    for (int i = 0; i < SCENARIOS; i++)
        count += cgroup || scenarios[i].victim < ALL; /* the others stand last */
    for (int i = 0; i < kills; i++) {
        const struct scenario *scenario = &scenarios[i % count];
        int64_t moment_us =
            scenario->from_ms * 1000 + random() % ((scenario->to_ms - scenario->from_ms) * 1000);
        pid_t pid = start(scenario);
        sleep_us((long)moment_us);
        bool struck = strike(scenario->victim, pid);
        /* On a machine with more to do than it has cores for, a second is longer. */
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        int64_t share = getloadavg(&load, 1) == 1 ? (int64_t)load / (cores > 0 ? cores : 1) + 1 : 1;
        int64_t limit_ms = LIMIT_MS + (scenario->victim == STOPPED_LATER ? KEEPERS_LIFE_MS : 0);
        int64_t took_us = wait_for_end(limit_ms * 1000 * share);
        if (took_us < 0)
            printf("FAIL: kill %d (%s, after %.1f ms; seed %u): not gone in time\n", i,
                   scenario->name, (double)moment_us / 1e3, seed);
        failures += took_us < 0 || !struck;
        slowest_us = took_us > slowest_us ? took_us : slowest_us;
    }
    printf("%d kills, %d failures; the slowest end took %.1f ms\n", kills, failures,
           (double)slowest_us / 1e3);
    return failures > 0;
}
