/* SPDX-License-Identifier: MIT
 *
 * Tests of requests to stop: the step that the ranks agree on, signals that are blocked or ignored.
 */
#include "config.h"

#include "tests/job/job_world.h"

#include "job/job.h"

#include <signal.h>

/* One rank, at a step of its own, is asked to stop: all stop before the same step. */
static int stop_together(ddp_job *job, int rank)
{
    _Atomic uint32_t *stopped = (_Atomic uint32_t *)(void *)board.memory->ids[0].data;
    if (ddp_job_accept_stop(job) != DDP_OK)
        return 1;
    for (int64_t step = 0; step < 2000; step++) {
        if (ddp_job_should_stop(job, step)) {
            uint32_t none = 0;
            if (!atomic_compare_exchange_strong(stopped, &none, (uint32_t)step) && none != step)
                return 2;
            return step > 20 ? 0 : 3;
        }
        if (rank == 1 && step == 20)
            raise(SIGUSR1);
        if (ddp_job_barrier(job, 20000) != DDP_OK)
            return 4;
    }
    return 5;
}

START_TEST(stop_processes)
{
    run_world(3, stop_together, 0);
}
END_TEST

/* Rank 0 has passed step 4 when rank 1 is asked to stop before it: both stop before step 5. */
static int stop_behind(ddp_job *job, int rank)
{
    if (ddp_job_accept_stop(job) != DDP_OK)
        return 1;
    if (rank == 0 && ddp_job_should_stop(job, 4))
        return 2;
    if (ddp_job_barrier(job, 20000) != DDP_OK)
        return 3;
    if (rank == 1 && (raise(SIGUSR1) != 0 || ddp_job_should_stop(job, 4)))
        return 4;
    if (ddp_job_barrier(job, 20000) != DDP_OK)
        return 3;
    return ddp_job_should_stop(job, 5) ? 0 : 5;
}

START_TEST(stop_one_behind)
{
    run_world(2, stop_behind, 0);
}
END_TEST

START_TEST(stop_alone)
{
    ddp_job *job = NULL, *other = NULL;
    struct sigaction before, now;
    sigaction(SIGTERM, NULL, &before);
    clear_environment();
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    ck_assert_int_eq(ddp_job_open(&other), DDP_OK);
    ck_assert_int_eq(ddp_job_accept_stop(job), DDP_OK);
    ck_assert_int_eq(ddp_job_accept_stop(other), DDP_ERR_INVALID);
    ck_assert(!ddp_job_should_stop(job, 4));
    raise(SIGTERM);
    ck_assert(ddp_job_should_stop(job, 5));
    ck_assert(!ddp_job_should_stop(other, 5));
    ddp_job_close(other);
    ddp_job_close(job);
    sigaction(SIGTERM, NULL, &now);
    ck_assert(now.sa_handler == before.sa_handler);
}
END_TEST

/* What a program does that must not lose a request before its job is open, nor be killed by one
 * afterwards. */
START_TEST(stop_blocked)
{
    ddp_job *job = NULL;
    struct sigaction now;
    sigset_t three, mask;
    clear_environment();
    sigemptyset(&three);
    sigaddset(&three, SIGINT);
    sigaddset(&three, SIGTERM);
    sigaddset(&three, SIGUSR1);
    sigprocmask(SIG_BLOCK, &three, NULL);
    raise(SIGUSR1);
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    ck_assert(!ddp_job_should_stop(job, 0));
    ck_assert_int_eq(ddp_job_accept_stop(job), DDP_OK);
    ck_assert(ddp_job_should_stop(job, 0));
    raise(SIGINT);
    sigaction(SIGINT, NULL, &now);
    ck_assert(now.sa_handler == SIG_DFL); /* the second one ends the program */
    ddp_job_close(job);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(sigismember(&mask, (const int[]){SIGINT, SIGTERM, SIGUSR1}[i]), 1);
    raise(SIGTERM); /* stays pending */
}
END_TEST

START_TEST(stop_ignored)
{
    ddp_job *job = NULL;
    struct sigaction now;
    clear_environment();
    signal(SIGINT, SIG_IGN);
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    ck_assert_int_eq(ddp_job_accept_stop(job), DDP_OK);
    sigaction(SIGINT, NULL, &now);
    ck_assert(now.sa_handler == SIG_IGN);
    raise(SIGINT);
    ck_assert(!ddp_job_should_stop(job, 0));
    ddp_job_close(job);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("stop");
    TCase *processes = test_case(suite, "processes", 60);
    tcase_add_loop_test(processes, stop_processes, 0, 5);
    tcase_add_test(processes, stop_one_behind);
    tcase_add_test(processes, stop_alone);
    tcase_add_test(processes, stop_blocked);
    tcase_add_test(processes, stop_ignored);
    return suite;
}
