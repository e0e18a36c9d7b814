/* SPDX-License-Identifier: MIT
 *
 * main() of every unit test program; see runner.h. */
#include "config.h"

#include "tests/lib/runner.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* no caches, and never the tester's own */
    SRunner *runner = srunner_create(test_suite());
    srunner_run_all(runner, CK_ENV);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (run == 0)
        fputs("no test ran\n", stderr);
    return run == 0 || failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
