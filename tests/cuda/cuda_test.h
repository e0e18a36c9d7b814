/* SPDX-License-Identifier: MIT
 *
 * What the unit tests of CUDA share. `make check` runs them on the simulated device, `make
 * check-gpu` on a real one, by DDP_TEST_PLUGINS, the folder of libddp-cuda.so. */
#ifndef DDP_TESTS_CUDA_TEST_H
#define DDP_TESTS_CUDA_TEST_H

#include "device/device.h"
#include "kernels/kernels.h"
#include "tests/lib/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether the plugin is one with the simulated runtime: its kernels compiled for the host, or what
 * nvcc made of them, interpreted (tests/ptxsim). */
static inline bool cuda_test_interpreted(void)
{
    const char *plugins = getenv("DDP_TEST_PLUGINS");
    return plugins && strstr(plugins, "/tests/ptxsim/");
}

static inline bool cuda_test_simulated(void)
{
    return getenv("DDP_TEST_PLUGINS") == NULL || cuda_test_interpreted();
}

/* The first line of test_suite(): chooses the plugin. These tests run only where the simulation was
 * built, or where check-gpu has found a GPU; so a device that is not found is an error, never a
 * reason to skip. Looks in a child: Check forks its tests, and CUDA does not survive a fork. */
static inline void cuda_test_begin(void)
{
    char folder[4096];
    const char *plugins = getenv("DDP_TEST_PLUGINS");
    const char *build = getenv("abs_top_builddir");
    snprintf(folder, sizeof folder, "%s/tests/cudasim/.libs", build ? build : ".");
    setenv("DDP_PLUGIN_PATH", plugins ? plugins : folder, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct ddp_device_kind kind;
        _exit(ddp_device_find(&kind, "cuda") == DDP_OK ? 0 : TEST_HARD);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "no device is found in %s (status %d)\n", getenv("DDP_PLUGIN_PATH"),
                status);
        exit(TEST_HARD);
    }
}

#endif
