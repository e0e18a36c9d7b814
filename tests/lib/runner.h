/* SPDX-License-Identifier: MIT
 *
 * What every unit test program shares. A program is one check_NAME.c that defines test_suite(); the
 * runner's main() runs it in forked processes (CK_FORK=no: in this one, for gdb), prints Check's
 * lines, and fails when a test failed or none ran. */
#ifndef DDP_TESTS_RUNNER_H
#define DDP_TESTS_RUNNER_H

#include <check.h>

#define TEST_SKIP 77 /* exit status: could not run here */
#define TEST_HARD 99 /* exit status: the set-up is broken */

/* Defined by each test program. */
Suite *test_suite(void);

/* One case with a time limit of its own, added to the suite. */
static inline TCase *test_case(Suite *suite, const char *name, double timeout_seconds)
{
    TCase *tc = tcase_create(name);
    tcase_set_timeout(tc, timeout_seconds);
    suite_add_tcase(suite, tc);
    return tc;
}

#endif
