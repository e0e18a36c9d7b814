/* SPDX-License-Identifier: MIT
 *
 * Threads, and signals where they compute. Code that oneDNN generates keeps other things than a
 * stack address in the stack pointer, so the frame of a handler would overwrite live memory. So
 * signals are held back around each product, and for good in our own threads. */
#ifndef DDP_CORE_THREAD_H
#define DDP_CORE_THREAD_H

#include "ddp.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a thread let through before it held signals back. */
struct ddp_signals {
    sigset_t before;
    bool outermost;
};

/* Holds back all signals of the calling thread except those of its own faults (SIGSEGV and the
 * like), until they are released. Pairs may nest; only the outermost makes system calls. A thread
 * that never takes signals holds them once and does not release them. */
void ddp_signals_hold(struct ddp_signals *signals);
void ddp_signals_release(const struct ddp_signals *signals);

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
