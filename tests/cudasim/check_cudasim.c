/* SPDX-License-Identifier: MIT
 *
 * The simulated device finds what it is there to find. Programs with one planted bug each run in
 * several orders of threads and streams, and under the sanitizers where the compiler has them; each
 * bug must be found by what the table says, and programs without a bug must stay clean. */
#include "config.h"

#include "tests/cudasim/cudasim_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NOTHING = 0,
    REPORT = 1, /* the simulation says so, with the words of the table */
    FAULT = 2,  /* it touches what must not be touched */
    NANS = 4,   /* results are NaN */
    BITS = 8,   /* results depend on the order of threads or streams */
    TOOL = 16,  /* the sanitizer says so */
    UNDEFINED = 32,
    REFUSED = 64, /* CUDA returns an error, in the words of the table */
    EITHER = 128  /* the sanitizer says so, or UBSan, which in gcc 14 sees it first */
};

/* By how a bug is found: by the program as it is, with AddressSanitizer and UBSan, with
 * ThreadSanitizer, and with shared memory that is poisoned. */
static const struct bug {
    const char *name;
    unsigned plain, address, thread, poison;
    const char *words;
} bugs[] = {
    {"control-block-sum", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"control-warp", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"control-events", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"control-independent", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"control-pinned", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"control-graph", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"read-after-write", BITS, NOTHING, TOOL, NANS, NULL},
    {"write-after-read", BITS, NOTHING, TOOL, NOTHING, NULL},
    {"one-for-all", BITS, NOTHING, TOOL, NANS, NULL},
    {"no-syncwarp", BITS, NOTHING, TOOL, NANS, NULL},
    {"half-barrier", BITS, NOTHING, TOOL, NOTHING, NULL},
    {"two-barriers", REPORT, REPORT, REPORT, REPORT, "wait in different __syncthreads"},
    {"exited-lane", REPORT, REPORT, REPORT, REPORT, "lane 3 of the mask 0xffffffff has exited"},
    {"deadlock", REPORT, REPORT, REPORT, REPORT, "for lanes 0xffffffff; 32 from thread (1,0,0)"},
    {"not-in-mask", REPORT, REPORT, REPORT, REPORT, "is not in its own mask 0x7fffffff"},
    {"source-not-in-mask", NANS, NANS, NANS, NANS, NULL},
    {"divergent-shuffle", REPORT, REPORT, REPORT, REPORT, "meet in different operations"},
    {"read-past", FAULT, TOOL, TOOL, FAULT, "0 bytes past the end of 2048 bytes of device memory"},
    {"write-past", FAULT, TOOL, TOOL, FAULT, "0 bytes past the end of 2048 bytes of device memory"},
    {"past-static-shared", NOTHING, EITHER, NOTHING, NOTHING, NULL},
    {"past-dynamic-shared", FAULT, TOOL, TOOL, FAULT, NULL},
    {"uninitialised-shared", NOTHING, NOTHING, NOTHING, NANS, NULL},
    {"uninitialised-dynamic", NANS, NANS, NANS, NANS, NULL},
    {"misaligned", NOTHING, UNDEFINED, NOTHING, NOTHING, NULL},
    {"index-overflow", NOTHING, UNDEFINED, NOTHING, NOTHING, NULL},
    {"shared-counter", BITS, NOTHING, TOOL, NOTHING, NULL},
    {"blocks-write-one", BITS, NOTHING, NOTHING, NOTHING, NULL},
    {"reads-neighbour", BITS, NOTHING, NOTHING, NOTHING, NULL},
    {"atomic-sum", BITS, NOTHING, NOTHING, NOTHING, NULL},
    {"no-event-wait", BITS, NOTHING, TOOL, NOTHING, NULL},
    {"wait-before-record", BITS, NOTHING, TOOL, NOTHING, NULL},
    {"buffer-reused", BITS, NOTHING, TOOL, NOTHING, NULL},
    {"read-before-sync", BITS | NANS, NANS, NANS, NANS, NULL},
    {"uninitialised-device", NANS, NANS, NANS, NANS, NULL},
    {"host-pointer", REPORT, REPORT, REPORT, REPORT, "memory of the host that no device can use"},
    {"freed", REPORT, REPORT, REPORT, REPORT, "lies in 2048 bytes that were freed"},
    {"freed-early", FAULT, TOOL, TOOL, FAULT, "byte 0 of 2048 bytes of freed memory"},
    {"freed-twice", REPORT, REPORT, REPORT, REPORT, "was freed before"},
    {"other-device", REPORT, REPORT, REPORT, REPORT, "is memory of device 0, used on device 1"},
    {"copy-too-long", REPORT, REPORT, REPORT, REPORT, "where only 2044 of 2044 are left"},
    {"wrong-direction", REPORT, REPORT, REPORT, REPORT, "where the kind of copy has the host's"},
    {"host-reads-device", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"control-no-leak", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
    {"leak", REPORT, REPORT, REPORT, REPORT, "1 allocations are never freed, among them 2048"},
    {"too-many-threads", REFUSED, REFUSED, REFUSED, REFUSED, "invalid configuration argument"},
    {"no-blocks", REFUSED, REFUSED, REFUSED, REFUSED, "invalid configuration argument"},
    {"grid-too-high", REFUSED, REFUSED, REFUSED, REFUSED, "invalid configuration argument"},
    {"too-much-shared", REFUSED, REFUSED, REFUSED, REFUSED, "invalid argument"},
    /* What runs from one tensor of an allocation into the next is not seen by anything here. */
    {"arena", NOTHING, NOTHING, NOTHING, NOTHING, NULL},
};

static const struct {
    const char *streams, *order;
} modes[] = {{"lazy", "forward"},
             {"eager", "reverse"},
             {"lazy", "random:1"},
             {"eager", "random:2"},
             {"lazy", "random:3"}};

enum { MODES = sizeof modes / sizeof *modes };

struct outcome {
    bool finished, exited; /* with a result; by itself */
    uint64_t hash;
    int nans;
    char text[16384];
};

static void exec_child(const char *program, const char *name, int mode, bool protect, int pipe)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    setenv("DDP_CUDASIM_STREAMS", modes[mode].streams, 1);
    setenv("DDP_CUDASIM_ORDER", modes[mode].order, 1);
    setenv("DDP_CUDASIM_PROTECT", protect ? "1" : "0", 1);
    setenv("DDP_CUDASIM_LEAKS", strstr(name, "leak") ? "1" : "0", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "atexit_sleep_ms=10", 1); /* by itself it waits a second for others */
    unsetenv("DDP_CUDASIM_DEVICES");
    unsetenv("DDP_CUDASIM_FAIL");
    unsetenv("CUDA_VISIBLE_DEVICES");
    /* ThreadSanitizer of older compilers cannot stand all random addresses. */
    personality(ADDR_NO_RANDOMIZE);
    dup2(pipe, STDOUT_FILENO);
    dup2(pipe, STDERR_FILENO);
    execl(program, program, name, (char *)NULL);
    _exit(TEST_HARD);
}

static void run(struct outcome *outcome, const char *program, const char *name, int mode,
                bool protect)
{
    int ends[2], status;
    size_t used = 0;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(ends[0]);
        exec_child(program, name, mode, protect, ends[1]);
    }
    close(ends[1]);
    memset(outcome, 0, sizeof *outcome);
    for (;;) {
        char rest[4096];
        bool room = used + 1 < sizeof outcome->text;
        ssize_t got = room ? read(ends[0], outcome->text + used, sizeof outcome->text - 1 - used)
                           : read(ends[0], rest, sizeof rest);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        if (room && got > 0)
            used += (size_t)got;
    }
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(!WIFEXITED(status) || WEXITSTATUS(status) != TEST_HARD, "%s cannot run", program);
    const char *result = strstr(outcome->text, "result ");
    outcome->exited = WIFEXITED(status);
    unsigned long long hash;
    if (result && sscanf(result, "result %llx nan %d", &hash, &outcome->nans) == 2) {
        outcome->hash = hash;
        outcome->finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
}

/* What the outcome of one run shows. */
static unsigned found_in(const struct outcome *outcome, const char *words)
{
    const char *report = strstr(outcome->text, "cudasim: ");
    bool said = !words || strstr(outcome->text, words);
    unsigned found = outcome->nans > 0 ? NANS : 0;
    if (report && strstr(report, "segmentation fault"))
        found |= said ? FAULT : 0;
    else if (report && !outcome->finished)
        found |= said ? REPORT : 0;
    else if (outcome->exited && !outcome->finished && words && said)
        found |= REFUSED;
    if (strstr(outcome->text, "ThreadSanitizer: ") || strstr(outcome->text, "AddressSanitizer: ") ||
        strstr(outcome->text, "AddressSanitizer:DEADLYSIGNAL"))
        found |= TOOL;
    if (strstr(outcome->text, "runtime error: "))
        found |= UNDEFINED;
    if (found & (TOOL | UNDEFINED))
        found |= EITHER;
    return found;
}

/* Runs a bug in some modes; what they show together. */
static unsigned find(const struct bug *bug, const char *name, int mode_count, bool protect)
{
    static struct outcome first, next;
    const char *build = getenv("abs_top_builddir");
    char program[4096];
    unsigned found = 0;
    snprintf(program, sizeof program, "%s/tests/cudasim/%s", build ? build : ".", name);
    for (int mode = 0; mode < mode_count; mode++) {
        struct outcome *outcome = mode == 0 ? &first : &next;
        run(outcome, program, bug->name, mode, protect);
        found |= found_in(outcome, bug->words);
        if (outcome->finished && first.finished && outcome->hash != first.hash)
            found |= BITS;
        ck_assert_msg(outcome->finished || found != 0, "%s of %s: %s", bug->name, name,
                      outcome->text);
    }
    return found;
}

static void expect(const struct bug *bug, const char *program, unsigned wanted, unsigned found)
{
    const char *const names[] = {"a report", "a fault",   "NaN",
                                 "bits",     "sanitizer", "undefined behaviour",
                                 "an error", "sanitizers"};
    for (int i = 0; i < 8; i++)
        ck_assert_msg(!(wanted >> i & 1) || found >> i & 1, "%s of %s is not found by %s",
                      bug->name, program, names[i]);
    if (strncmp(bug->name, "control-", 8) == 0)
        ck_assert_msg(found == 0, "%s of %s, which has no bug: found %#x", bug->name, program,
                      found);
}

START_TEST(planted)
{
    const struct bug *bug = &bugs[_i];
#if defined(CUDASIM_ADDRESS)
    unsigned wanted = bug->address;
    if (!strstr(CUDASIM_SANITIZE, "undefined"))
        wanted &= ~(unsigned)UNDEFINED;
    if (!strstr(CUDASIM_SANITIZE, "address"))
        wanted &= ~(unsigned)(TOOL | EITHER);
    expect(bug, "bugs", wanted, find(bug, "bugs", 1, false));
#elif defined(CUDASIM_THREAD)
    expect(bug, "bugs", bug->thread, find(bug, "bugs", 1, false));
#else
    expect(bug, "bugs", bug->plain, find(bug, "bugs", MODES, false));
    expect(bug, "bugs_poison", bug->poison, find(bug, "bugs_poison", 1, false));
#ifdef CUDASIM_SANITIZERS
    expect(bug, "bugs_address", bug->address, find(bug, "bugs_address", 1, false));
    expect(bug, "bugs_thread", bug->thread, find(bug, "bugs_thread", 1, false));
#endif
#endif
}
END_TEST

/* With DDP_CUDASIM_PROTECT=1 a device's memory is closed to the host. */
START_TEST(protected_memory)
{
    struct bug bug = {.name = "host-reads-device",
                      .words = "byte 0 of 2048 bytes of device memory"};
    unsigned wanted = FAULT;
#if defined(CUDASIM_ADDRESS) || defined(CUDASIM_THREAD)
    wanted = TOOL;
    if (strcmp(CUDASIM_SANITIZE, " -fsanitize=undefined -fno-sanitize-recover=undefined") == 0)
        wanted = FAULT;
#endif
    expect(&bug, "bugs", wanted, find(&bug, "bugs", 1, true));
    bug = (struct bug){.name = "control-graph"};
    expect(&bug, "bugs", NOTHING, find(&bug, "bugs", 1, true));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cudasim");
    TCase *tc = test_case(suite, "bugs", 120);
    tcase_add_loop_test(tc, planted, 0, (int)(sizeof bugs / sizeof *bugs));
    tcase_add_test(tc, protected_memory);
    cudasim_runtime_tests(suite);
    return suite;
}
