/* SPDX-License-Identifier: MIT
 *
 * Stands in for the library Check where it is not installed (a machine with a GPU may have a
 * compiler and nothing else): the part of its interface that our tests use, under its names. Each
 * test runs in a child of its own with a time limit; the lines are like Check's. */
#ifndef DDP_TESTS_MINICHECK_CHECK_H
#define DDP_TESTS_MINICHECK_CHECK_H

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct ck_test {
    void (*run)(int _i);
    const char *name;
    int start, end;
    int signal; /* that it must end by; 0: none */
    struct ck_test *next;
} ck_test;

typedef struct ck_fixture {
    void (*setup)(void), (*teardown)(void);
    int in_child; /* checked: before each test, in its process */
    struct ck_fixture *next;
} ck_fixture;

typedef struct TCase {
    const char *name;
    double timeout;
    ck_test *tests;
    ck_fixture *fixtures;
    struct TCase *next;
} TCase;

typedef struct Suite {
    const char *name;
    TCase *cases;
} Suite;

typedef struct SRunner {
    Suite *suite;
    int run, failed;
} SRunner;

typedef struct ck_named {
    void (*run)(int _i);
    const char *name;
} TTest;

enum print_output { CK_SILENT, CK_MINIMAL, CK_NORMAL, CK_VERBOSE, CK_ENV };

/* --- suites --- */

static inline void *ck_new(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

static inline Suite *suite_create(const char *name)
{
    Suite *suite = (Suite *)ck_new(sizeof *suite);
    suite->name = name;
    return suite;
}

static inline TCase *tcase_create(const char *name)
{
    TCase *tc = (TCase *)ck_new(sizeof *tc);
    tc->name = name;
    tc->timeout = 4;
    return tc;
}

static inline void suite_add_tcase(Suite *suite, TCase *tc)
{
    TCase **last = &suite->cases;
    while (*last)
        last = &(*last)->next;
    *last = tc;
}

static inline void tcase_set_timeout(TCase *tc, double seconds)
{
    tc->timeout = seconds;
}

static inline void ck_add_test(TCase *tc, const TTest *test, int start, int end, int wanted)
{
    ck_test *added = (ck_test *)ck_new(sizeof *added);
    *added = (ck_test){test->run, test->name, start, end, wanted, NULL};
    ck_test **last = &tc->tests;
    while (*last)
        last = &(*last)->next;
    *last = added;
}
#define tcase_add_test(tc, test)                      ck_add_test(tc, test, 0, 1, 0)
#define tcase_add_loop_test(tc, test, start, end)     ck_add_test(tc, test, start, (int)(end), 0)
#define tcase_add_test_raise_signal(tc, test, signal) ck_add_test(tc, test, 0, 1, signal)

static inline void ck_add_fixture(TCase *tc, void (*setup)(void), void (*teardown)(void), int child)
{
    ck_fixture *added = (ck_fixture *)ck_new(sizeof *added);
    *added = (ck_fixture){setup, teardown, child, NULL};
    ck_fixture **last = &tc->fixtures;
    while (*last)
        last = &(*last)->next;
    *last = added;
}
#define tcase_add_checked_fixture(tc, setup, teardown)   ck_add_fixture(tc, setup, teardown, 1)
#define tcase_add_unchecked_fixture(tc, setup, teardown) ck_add_fixture(tc, setup, teardown, 0)

#define START_TEST(test_name)                                                                      \
    static void test_name##_run(int _i);                                                           \
    static const TTest test_name##_test = {test_name##_run, #test_name};                           \
    static const TTest *const test_name = &test_name##_test;                                       \
    static void test_name##_run(int _i)                                                            \
    {                                                                                              \
        (void)_i;
#define END_TEST }

/* --- running --- */

static inline SRunner *srunner_create(Suite *suite)
{
    SRunner *runner = (SRunner *)ck_new(sizeof *runner);
    runner->suite = suite;
    return runner;
}

static inline void ck_fixtures(const TCase *tc, int in_child, int begin)
{
    for (const ck_fixture *f = tc->fixtures; f; f = f->next)
        if (f->in_child == in_child && (begin ? f->setup : f->teardown))
            (begin ? f->setup : f->teardown)();
}

static inline void ck_run_here(const TCase *tc, const ck_test *test, int i)
{
    ck_fixtures(tc, 1, 1);
    test->run(i);
    ck_fixtures(tc, 1, 0);
}

/* 0: passed. The child leads a process group, which ends with it. */
static inline int ck_run_forked(const TCase *tc, const ck_test *test, int i)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        setpgid(0, 0);
        signal(SIGALRM, SIG_DFL);
        alarm((unsigned)ceil(tc->timeout));
        ck_run_here(tc, test, i);
        exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) != child)
        ;
    kill(-child, SIGKILL);
    const int ended_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (test->signal && ended_by == test->signal)
        return 0;
    if (test->signal)
        printf("%s:%s:%d: F: not ended by signal %d\n", tc->name, test->name, i, test->signal);
    if (ended_by)
        printf("%s:%s:%d: E: ended by signal %d (%s)\n", tc->name, test->name, i, ended_by,
               ended_by == SIGALRM ? "took too long" : strsignal(ended_by));
    else if (WEXITSTATUS(status) != 0)
        printf("%s:%s:%d: F\n", tc->name, test->name, i);
    return status != 0 || test->signal;
}

static inline int ck_wanted(const char *variable, const char *name)
{
    const char *only = getenv(variable);
    return !only || strcmp(only, name) == 0;
}

static inline void srunner_run_all(SRunner *runner, enum print_output mode)
{
    const char *setting = getenv("CK_FORK");
    const int forks = !setting || strcmp(setting, "no") != 0;
    (void)mode;
    printf("Running suite(s): %s\n", runner->suite->name);
    for (const TCase *tc = runner->suite->cases; tc; tc = tc->next) {
        if (!ck_wanted("CK_RUN_CASE", tc->name))
            continue;
        ck_fixtures(tc, 0, 1);
        for (const ck_test *test = tc->tests; test; test = test->next) {
            for (int i = test->start; i < test->end; i++) {
                runner->run++;
                if (forks)
                    runner->failed += ck_run_forked(tc, test, i);
                else
                    ck_run_here(tc, test, i);
            }
        }
        ck_fixtures(tc, 0, 0);
    }
    printf("%d%%: Checks: %d, Failures: %d\n",
           runner->run ? 100 * (runner->run - runner->failed) / runner->run : 0, runner->run,
           runner->failed);
}

static inline int srunner_ntests_run(SRunner *runner)
{
    return runner->run;
}

static inline int srunner_ntests_failed(SRunner *runner)
{
    return runner->failed;
}

/* Of a program that ends now. */
static inline void srunner_free(SRunner *runner)
{
    while (runner->suite->cases) {
        TCase *tc = runner->suite->cases;
        runner->suite->cases = tc->next;
        while (tc->tests) {
            ck_test *test = tc->tests;
            tc->tests = test->next;
            free(test);
        }
        while (tc->fixtures) {
            ck_fixture *fixture = tc->fixtures;
            tc->fixtures = fixture->next;
            free(fixture);
        }
        free(tc);
    }
    free(runner->suite);
    free(runner);
}

/* --- assertions --- */

#define ck_fail(...)                                                                               \
    (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), fflush(NULL),       \
     _exit(1))
#define ck_abort_msg(...) ck_fail(__VA_ARGS__)
#define ck_assert_msg(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_fail(__VA_ARGS__);                                                                  \
    } while (0)
#define ck_assert(condition) ck_assert_msg(condition, "Assertion '%s' failed", #condition)

#define ck_compare(type, format, x, op, y)                                                         \
    do {                                                                                           \
        type ck_x = (x);                                                                           \
        type ck_y = (y);                                                                           \
        if (!(ck_x op ck_y))                                                                       \
            ck_fail("Assertion '%s %s %s' failed: " format ", " format, #x, #op, #y, ck_x, ck_y);  \
    } while (0)
#define ck_assert_int_eq(x, y)   ck_compare(intmax_t, "%jd", x, ==, y)
#define ck_assert_int_ne(x, y)   ck_compare(intmax_t, "%jd", x, !=, y)
#define ck_assert_int_lt(x, y)   ck_compare(intmax_t, "%jd", x, <, y)
#define ck_assert_int_le(x, y)   ck_compare(intmax_t, "%jd", x, <=, y)
#define ck_assert_int_gt(x, y)   ck_compare(intmax_t, "%jd", x, >, y)
#define ck_assert_int_ge(x, y)   ck_compare(intmax_t, "%jd", x, >=, y)
#define ck_assert_uint_eq(x, y)  ck_compare(uintmax_t, "%ju", x, ==, y)
#define ck_assert_uint_ne(x, y)  ck_compare(uintmax_t, "%ju", x, !=, y)
#define ck_assert_uint_lt(x, y)  ck_compare(uintmax_t, "%ju", x, <, y)
#define ck_assert_uint_le(x, y)  ck_compare(uintmax_t, "%ju", x, <=, y)
#define ck_assert_uint_gt(x, y)  ck_compare(uintmax_t, "%ju", x, >, y)
#define ck_assert_uint_ge(x, y)  ck_compare(uintmax_t, "%ju", x, >=, y)
#define ck_assert_ptr_eq(x, y)   ck_compare(const void *, "%p", x, ==, y)
#define ck_assert_ptr_ne(x, y)   ck_compare(const void *, "%p", x, !=, y)
#define ck_assert_ptr_null(x)    ck_compare(const void *, "%p", x, ==, NULL)
#define ck_assert_ptr_nonnull(x) ck_compare(const void *, "%p", x, !=, NULL)

#define ck_compare_real(type, x, op, y)  ck_compare(type, "%.17g", x, op, y)
#define ck_assert_float_eq(x, y)         ck_compare_real(float, x, ==, y)
#define ck_assert_float_ne(x, y)         ck_compare_real(float, x, !=, y)
#define ck_assert_float_lt(x, y)         ck_compare_real(float, x, <, y)
#define ck_assert_float_le(x, y)         ck_compare_real(float, x, <=, y)
#define ck_assert_float_gt(x, y)         ck_compare_real(float, x, >, y)
#define ck_assert_float_ge(x, y)         ck_compare_real(float, x, >=, y)
#define ck_assert_float_eq_tol(x, y, t)  ck_compare_real(float, fabsf((x) - (y)), <, t)
#define ck_assert_float_finite(x)        ck_assert_msg(isfinite(x), "'%s' is not finite", #x)
#define ck_assert_float_nan(x)           ck_assert_msg(isnan(x), "'%s' is a number", #x)
#define ck_assert_double_eq(x, y)        ck_compare_real(double, x, ==, y)
#define ck_assert_double_ne(x, y)        ck_compare_real(double, x, !=, y)
#define ck_assert_double_lt(x, y)        ck_compare_real(double, x, <, y)
#define ck_assert_double_le(x, y)        ck_compare_real(double, x, <=, y)
#define ck_assert_double_gt(x, y)        ck_compare_real(double, x, >, y)
#define ck_assert_double_ge(x, y)        ck_compare_real(double, x, >=, y)
#define ck_assert_double_eq_tol(x, y, t) ck_compare_real(double, fabs((x) - (y)), <, t)
#define ck_assert_double_finite(x)       ck_assert_msg(isfinite(x), "'%s' is not finite", #x)

#define ck_compare_strings(x, y, same, holds)                                                      \
    do {                                                                                           \
        const char *ck_x = (x), *ck_y = (y);                                                       \
        if (!(holds))                                                                              \
            ck_fail("Assertion '%s %s %s' failed: \"%s\", \"%s\"", #x, same, #y,                   \
                    ck_x ? ck_x : "(null)", ck_y ? ck_y : "(null)");                               \
    } while (0)
#define ck_assert_str_eq(x, y) ck_compare_strings(x, y, "==", ck_x &&ck_y &&strcmp(ck_x, ck_y) == 0)
#define ck_assert_str_ne(x, y) ck_compare_strings(x, y, "!=", ck_x &&ck_y &&strcmp(ck_x, ck_y) != 0)
#define ck_assert_pstr_eq(x, y)                                                                    \
    ck_compare_strings(x, y, "==", ck_x == ck_y || (ck_x && ck_y && strcmp(ck_x, ck_y) == 0))
#define ck_assert_mem_eq(x, y, bytes)                                                              \
    ck_assert_msg(memcmp(x, y, bytes) == 0, "Assertion '%s == %s' failed: other bytes", #x, #y)
#define ck_assert_mem_ne(x, y, bytes)                                                              \
    ck_assert_msg(memcmp(x, y, bytes) != 0, "Assertion '%s != %s' failed", #x, #y)

#endif
