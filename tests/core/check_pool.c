/* SPDX-License-Identifier: MIT
 *
 * The pool of threads: each task once, no lost wake-up, many pools, no burning of cores. */
#include "config.h"

#include "core/clock.h"
#include "core/pool.h"
#include "core/thread.h"
#include "tests/lib/runner.h"

#include <fenv.h>
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void count_task(void *arg, size_t index)
{
    atomic_uchar *seen = arg;
    atomic_fetch_add(&seen[index], 1);
}

static void check_counts(ddp_pool *pool)
{
    const size_t counts[] = {0, 1, 2, 3, 7, 64, 10000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        atomic_uchar *seen = calloc(counts[i] + 1, sizeof *seen);
        ddp_pool_run(pool, counts[i], count_task, seen);
        for (size_t j = 0; j < counts[i]; j++)
            ck_assert_uint_eq(seen[j], 1);
        ck_assert_uint_eq(seen[counts[i]], 0);
        free(seen);
    }
}

START_TEST(test_each_once)
{
    check_counts(NULL);
    ck_assert_int_eq(ddp_pool_threads(NULL), 1);
    const int threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        ddp_pool *pool;
        ck_assert_int_eq(ddp_pool_create(&pool, threads[i]), DDP_OK);
        ck_assert_int_eq(ddp_pool_threads(pool), threads[i]);
        check_counts(pool);
        ddp_pool_destroy(pool);
    }
    ddp_pool_destroy(NULL);
}
END_TEST

START_TEST(test_arguments)
{
    ddp_pool *pool;
    ck_assert_int_eq(ddp_pool_create(&pool, 0), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_pool_create(&pool, -1), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_pool_create(&pool, 1025), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_pool_create(NULL, 2), DDP_ERR_INVALID);
}
END_TEST

/* Plain data: what a task writes is visible after the run, what the caller wrote before it is
 * visible inside. */
static void add_task(void *arg, size_t index)
{
    long *values = arg;
    values[index + 1] += values[0];
}

static void *many_runs(void *arg)
{
    int threads = *(int *)arg;
    ddp_pool *pool;
    if (ddp_pool_create(&pool, threads))
        return arg;
    long values[17] = {0}, expected = 0;
    for (int run = 0; run < 3000; run++) {
        values[0] = run;
        expected += run;
        ddp_pool_run(pool, 16, add_task, values);
        if (run % 1000 == 0) /* the workers fall asleep in between */
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    ddp_pool_destroy(pool);
    for (int i = 1; i < 17; i++)
        if (values[i] != expected)
            return arg;
    return NULL;
}

/* Several threads, each with a pool of its own. */
START_TEST(test_many_pools)
{
    pthread_t callers[3];
    int threads[3] = {2, 3, 2};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&callers[i], NULL, many_runs, &threads[i]), 0);
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(callers[i], &failed);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

START_TEST(test_create_destroy)
{
    for (int i = 0; i < 300; i++) {
        ddp_pool *pool;
        atomic_uchar seen[9] = {0};
        ck_assert_int_eq(ddp_pool_create(&pool, 1 + i % 6), DDP_OK);
        if (i % 2)
            ddp_pool_run(pool, 9, count_task, seen);
        ddp_pool_destroy(pool);
        for (int j = 0; j < 9; j++)
            ck_assert_uint_eq(seen[j], i % 2);
    }
}
END_TEST

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void sleep_task(void *arg, size_t index)
{
    (void)arg;
    if (index == 0)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
}

/* Neither idle workers nor a caller that waits for a late task burn a core. */
START_TEST(test_no_burning)
{
    const int threads[] = {2, 64};
    for (int i = 0; i < 2; i++) {
        ddp_pool *pool;
        ck_assert_int_eq(ddp_pool_create(&pool, threads[i]), DDP_OK);
        ddp_pool_run(pool, 2, sleep_task, NULL);
        double before = cpu_seconds();
        ddp_pool_run(pool, 2, sleep_task, NULL);
        double used = cpu_seconds() - before;
        ck_assert_msg(used < 0.1, "%d threads used %.3f s of CPU in 0.3 s", threads[i], used);
        ddp_pool_destroy(pool);
    }
}
END_TEST

static atomic_int signalled_elsewhere;
static pthread_t main_thread;

static void on_signal(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), main_thread))
        atomic_fetch_add(&signalled_elsewhere, 1);
}

START_TEST(test_signals_stay_outside)
{
    main_thread = pthread_self();
    signal(SIGUSR1, on_signal);
    ddp_pool *pool;
    ck_assert_int_eq(ddp_pool_create(&pool, 4), DDP_OK);
    sigset_t usr1, old;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, &old); /* only a worker could take it now */
    kill(getpid(), SIGUSR1);
    ddp_pool_run(pool, 2, sleep_task, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    ck_assert_int_eq(signalled_elsewhere, 0);
    ddp_pool_destroy(pool);
}
END_TEST

/* --- rounding --- */

/* As a library does that was built with -ffast-math, and worse: up. */
static void plant_rounding(void)
{
    fesetround(FE_UPWARD);
#ifdef __x86_64__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* subnormal numbers become zero */
#elif defined(__aarch64__)
    fenv_t environment;
    fegetenv(&environment);
    environment.__fpcr |= 1u << 24;
    fesetenv(&environment);
#endif
}

static bool rounds_by_default(void)
{
    const volatile float one = 1, three = 3, small = FLT_MIN, half = 0.5f;
    const volatile float third = one / three, subnormal = small * half;
    return third == 0x1.555556p-2f && one + FLT_EPSILON / 4 == one && subnormal > 0;
}

static void rounds_task(void *arg, size_t index)
{
    bool *by_default = arg;
    by_default[index] = rounds_by_default();
}

static void *rounds_main(void *arg)
{
    rounds_task(arg, 0);
    return NULL;
}

START_TEST(test_rounding)
{
    bool by_default[100];
    pthread_t thread;
    plant_rounding();
    ck_assert(!rounds_by_default());
    ck_assert_int_eq(ddp_thread_create(&thread, rounds_main, by_default), 0);
    pthread_join(thread, NULL);
    ck_assert(by_default[0]);
    for (int threads = 0; threads <= 3; threads++) {
        ddp_pool *pool = NULL;
        if (threads > 0)
            ck_assert_int_eq(ddp_pool_create(&pool, threads), DDP_OK);
        memset(by_default, 0, sizeof by_default);
        ddp_pool_run(pool, 100, rounds_task, by_default);
        for (int i = 0; i < 100; i++)
            ck_assert(by_default[i]);
        ddp_pool_destroy(pool);
        ck_assert(!rounds_by_default());
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pool");
    TCase *tc = test_case(suite, "pool", 60);
    tcase_add_test(tc, test_each_once);
    tcase_add_test(tc, test_arguments);
    tcase_add_test(tc, test_many_pools);
    tcase_add_test(tc, test_create_destroy);
    tcase_add_test(tc, test_no_burning);
    tcase_add_test(tc, test_signals_stay_outside);
    tcase_add_test(tc, test_rounding);
    return suite;
}
