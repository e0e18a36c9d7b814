/* SPDX-License-Identifier: MIT
 *
 * The parts of check_cudasim. */
#ifndef DDP_TESTS_CUDASIM_TEST_H
#define DDP_TESTS_CUDASIM_TEST_H

#include "tests/lib/runner.h"

void cudasim_runtime_tests(Suite *suite);

#endif
