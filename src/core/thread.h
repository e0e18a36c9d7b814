/* SPDX-License-Identifier: MIT
 *
 * Threads, which take no signals: those are for the program's own. */
#ifndef DDP_CORE_THREAD_H
#define DDP_CORE_THREAD_H

#include "ddp.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* pthread_create() for a thread that takes no signals from its first instruction on, which are for
 * the program's own threads, and that rounds as rounding.h says. Returns an errno. */
int ddp_thread_create(pthread_t *thread, void *(*main)(void *), void *arg);

/* Logs that a thread could not be started, and why; the C library has one error for too little
 * memory and too many threads.
 *   error  of pthread_create()
 * DDP_ERR_MEMORY: there is no room for a stack; else DDP_ERR_SYSTEM. */
enum ddp_status ddp_thread_failed(int error, const char *format, ...) DDP_PRINTF(2, 3);

/* CPUs that this process may run on, by its affinity. */
int ddp_cpu_count(void);

#ifdef __cplusplus
}
#endif

#endif
