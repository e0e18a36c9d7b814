/* SPDX-License-Identifier: MIT
 *
 * A pool of threads, including the calling one, that runs numbered tasks. Idle threads spin
 * briefly, then sleep on a futex; where threads outnumber the usable cores they sleep at once.
 * Workers block all signals. */
#ifndef DDP_CORE_POOL_H
#define DDP_CORE_POOL_H

#include "ddp.h"

typedef struct ddp_pool ddp_pool;
typedef void ddp_pool_task(void *arg, size_t index);

/* A pool of `threads` (1 .. 1024), counting the caller. The pool belongs to the thread that runs
 * tasks on it: one ddp_pool_run() at a time. After fork() the child has none. */
enum ddp_status ddp_pool_create(ddp_pool **pool, int threads);

void ddp_pool_destroy(ddp_pool *pool);
int ddp_pool_threads(const ddp_pool *pool); /* 1 for NULL */

/* Calls task(arg, index) for 0 .. count-1, each once, in any order, on any thread; returns when all
 * are done. A NULL pool runs them in the caller. All round as rounding.h says. Indices are handed
 * out one by one, so make each worth microseconds. */
void ddp_pool_run(ddp_pool *pool, size_t count, ddp_pool_task *task, void *arg);

#endif
