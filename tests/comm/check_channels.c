/* SPDX-License-Identifier: MIT
 *
 * Channels between processes of one machine, and between threads. */
#include "config.h"

#include "comm/channel.h"
#include "core/clock.h"
#include "tests/comm/comm_ranks.h"
#include "tests/lib/runner.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

START_TEST(orders)
{
    run_ranks(2 + _i, row_channels, -1);
}
END_TEST

START_TEST(large)
{
    run_ranks(2, row_channel_large, -1);
}
END_TEST

START_TEST(arguments)
{
    run_ranks(1 + _i, row_channel_arguments, -1);
}
END_TEST

START_TEST(overlap)
{
    run_ranks(2 + _i, row_channel_overlap, -1);
}
END_TEST

START_TEST(leaves)
{
    run_ranks(3, row_channel_leaves, -1);
    run_ranks(3, row_channel_crossing, -1);
    run_ranks(3, row_channel_beside, -1);
}
END_TEST

START_TEST(mismatch)
{
    run_ranks(3, channel_mismatch_rows[_i], -1);
}
END_TEST

START_TEST(timeouts)
{
    run_ranks(2, channel_timeout_rows[_i], -1);
}
END_TEST

START_TEST(killed)
{
    const int64_t start = ddp_clock_ns();
    run_ranks(3, channel_killed_rows[_i], 1);
    ck_assert_int_lt((ddp_clock_ns() - start) / 1000000, 30000);
}
END_TEST

START_TEST(aborted)
{
    run_ranks(3, row_channel_aborted, -1);
}
END_TEST

/* --- between threads --- */

enum { MESSAGES = 20000, COUNT = 9 };

static void *send_all(void *arg)
{
    ddp_channel *channel = arg;
    for (uint64_t m = 0; m < MESSAGES; m++) {
        void *slot;
        if (ddp_channel_acquire(channel, &slot) != DDP_OK)
            return NULL;
        for (uint64_t i = 0; i < COUNT; i++)
            ((uint64_t *)slot)[i] = m * COUNT + i;
        if (ddp_channel_release(channel) != DDP_OK)
            return NULL;
    }
    return arg;
}

START_TEST(threads)
{
    static _Atomic uint32_t stop;
    ddp_channel *ends[2];
    pthread_t sender;
    void *result;
    ck_assert_int_eq(ddp_channel_open_threads(ends, COUNT * 8, 1 + 2 * _i, &stop), DDP_OK);
    ck_assert_int_eq(pthread_create(&sender, NULL, send_all, ends[0]), 0);
    for (uint64_t m = 0; m < MESSAGES; m++) {
        void *slot;
        ck_assert_int_eq(ddp_channel_acquire(ends[1], &slot), DDP_OK);
        for (uint64_t i = 0; i < COUNT; i++)
            ck_assert_uint_eq(((uint64_t *)slot)[i], m * COUNT + i);
        ck_assert_int_eq(ddp_channel_release(ends[1]), DDP_OK);
    }
    pthread_join(sender, &result);
    ck_assert_ptr_nonnull(result);
    ddp_channel_close_threads(ends);
    ck_assert_ptr_null(ends[0]);
    ddp_channel_close_threads(ends);
    ck_assert_int_eq(ddp_channel_open_threads(ends, SIZE_MAX, 1, &stop), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_channel_open_threads(ends, 1, 0, &stop), DDP_ERR_INVALID);
}
END_TEST

static void *stop_soon(void *stop)
{
    usleep(100000);
    atomic_store((_Atomic uint32_t *)stop, 1);
    return NULL;
}

/* A thread that fails ends the other's waits, in whichever direction. */
START_TEST(threads_stop)
{
    static _Atomic uint32_t stop;
    ddp_channel *ends[2];
    pthread_t thread;
    void *slot;
    ck_assert_int_eq(ddp_channel_open_threads(ends, 4, 1, &stop), DDP_OK);
    if (_i) {
        ck_assert_int_eq(ddp_channel_acquire(ends[0], &slot), DDP_OK);
        ck_assert_int_eq(ddp_channel_release(ends[0]), DDP_OK);
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_soon, (void *)&stop), 0);
    ck_assert_int_eq(ddp_channel_acquire(ends[1 - _i], &slot), DDP_ERR_ABORTED);
    pthread_join(thread, NULL);
    ddp_channel_close_threads(ends);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("channels");
    TCase *tc = test_case(suite, "ranks", 120);
    tcase_add_loop_test(tc, orders, 0, 4);
    tcase_add_test(tc, large);
    tcase_add_loop_test(tc, arguments, 0, 3);
    tcase_add_loop_test(tc, overlap, 0, 2);
    tcase_add_test(tc, leaves);
    tcase_add_loop_test(tc, mismatch, 0, CHANNEL_MISMATCH_ROWS);
    tcase_add_loop_test(tc, timeouts, 0, 2);
    tcase_add_loop_test(tc, killed, 0, 2);
    tcase_add_test(tc, aborted);
    tc = test_case(suite, "threads", 60);
    tcase_add_loop_test(tc, threads, 0, 3);
    tcase_add_loop_test(tc, threads_stop, 0, 2);
    return suite;
}
