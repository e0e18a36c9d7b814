/* SPDX-License-Identifier: MIT
 *
 * See thread.h. */
#include "config.h"

#include "core/thread.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rounding.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

/* All but what a thread raises by its own fault: those come at once or end the process. */
static void choose(sigset_t *set)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(set, faults[i]);
}

int ddp_thread_create(pthread_t *thread, void *(*main)(void *), void *arg)
{
    sigset_t held, old;
    struct ddp_rounding rounding;
    choose(&held);
    pthread_sigmask(SIG_BLOCK, &held, &old);
    ddp_rounding_hold(&rounding);
    const int error = pthread_create(thread, NULL, main, arg);
    ddp_rounding_release(&rounding);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

enum ddp_status ddp_thread_failed(int error, const char *format, ...)
{
    char what[256];
    size_t stack = 0;
    pthread_attr_t attributes;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
    }
    /* the C library takes a little more than the stack */
    if (error == ENOMEM || !ddp_memory_probe(stack + (1 << 20)))
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: cannot start %s: no room for its stack",
                        what);
    return ddp_fail(DDP_ERR_SYSTEM, "cannot start %s: %s", what, strerror(error));
}

int ddp_cpu_count(void)
{
    /* The kernel refuses a mask smaller than its own: grow until it fits. */
    for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            break;
        const size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
