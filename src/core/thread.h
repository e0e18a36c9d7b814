/* SPDX-License-Identifier: MIT
 *
 * Threads that cannot be started. */
#ifndef DDP_CORE_THREAD_H
#define DDP_CORE_THREAD_H

#include "ddp.h"

/* Logs that a thread could not be started, and why; the C library gives one error for too little
 * memory and for too many threads.
 *   error  of pthread_create()
 * DDP_ERR_MEMORY: there is no room for a stack; else DDP_ERR_SYSTEM. */
enum ddp_status ddp_thread_failed(int error, const char *format, ...) DDP_PRINTF(2, 3);

#endif
