/* SPDX-License-Identifier: MIT
 *
 * How long a cache line takes from one core to another: the state of a virtual machine, whose host
 * may move its cores between such that share a cache and such that do not. Prints nanoseconds. */
#include "config.h"

#include "core/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUND_TRIPS 100000

static _Alignas(128) atomic_int ball;

/* The calling thread to the n-th of the cores that the process may use. */
static void stay_on(int n)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && n-- == 0)
            CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* Odd numbers go out, even ones come back. */
static void *send_back(void *arg)
{
    stay_on(1);
    for (int i = 1; i <= 2 * ROUND_TRIPS; i += 2) {
        while (atomic_load(&ball) != i)
            continue;
        atomic_store(&ball, i + 1);
    }
    return arg;
}

int main(void)
{
    pthread_t other;
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) < 0 || CPU_COUNT(&all) < 2) {
        fputs("ping_perf: needs two cores\n", stderr);
        return EXIT_FAILURE;
    }
    if (pthread_create(&other, NULL, send_back, NULL))
        return EXIT_FAILURE;
    stay_on(0);
    const int64_t begin = ddp_clock_ns();
    for (int i = 1; i <= 2 * ROUND_TRIPS; i += 2) {
        atomic_store(&ball, i);
        while (atomic_load(&ball) != i + 1)
            continue;
    }
    printf("%.0f\n", (double)(ddp_clock_ns() - begin) / (2.0 * ROUND_TRIPS));
    pthread_join(other, NULL);
    return EXIT_SUCCESS;
}
