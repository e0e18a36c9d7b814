/* SPDX-License-Identifier: MIT
 *
 * A thread for each replica of DataParallel, always the same one, which waits for the master's next
 * phase. */
#ifndef DDP_MODE_REPLICA_THREADS_H
#define DDP_MODE_REPLICA_THREADS_H

#include "ddp.h"

typedef struct ddp_replica_threads ddp_replica_threads;
typedef enum ddp_status ddp_replica_threads_work(void *arg, int member);

/* Starts `size` threads. DDP_ERR_SYSTEM, DDP_ERR_MEMORY. */
enum ddp_status ddp_replica_threads_create(ddp_replica_threads **created, int size);
void ddp_replica_threads_destroy(ddp_replica_threads *team);

/* Every member calls work(arg, member); returns when all have, with the status of the first member
 * that failed. */
enum ddp_status ddp_replica_threads_run(ddp_replica_threads *team, ddp_replica_threads_work *work,
                                        void *arg);

#endif
