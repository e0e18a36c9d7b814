/* SPDX-License-Identifier: MIT
 *
 * A worker's view of its job, for the rooms of the library: what ddp.h offers to programs is
 * declared there. Owns: the mapping of the board and the descriptors that the launcher handed down.
 */
#ifndef DDP_JOB_JOB_H
#define DDP_JOB_JOB_H

#include "ddp.h"

#include <stdatomic.h>

/* The descriptor of the heap, an empty memfd shared by all workers, which the communicator sizes
 * and maps; -1 in a world of one. Owned by the job. */
int ddp_job_heap_fd(const ddp_job *job);

/* Takes `bytes` (a multiple of the page size) of the heap permanently; only the caller knows
 * the offset. Local, safe between processes (an atomic addition on the board). */
enum ddp_status ddp_job_heap_reserve(ddp_job *job, size_t bytes, uint64_t *offset);

/* Non-zero as soon as the job is being taken down. Every wait loop polls it. Never NULL. */
const _Atomic uint32_t *ddp_job_abort_word(const ddp_job *job);

/* Declares, before the first word is written, that of all ranks only rank 0 writes to standard
 * output: the launcher then leaves out the rank before its lines. */
void ddp_job_sole_output(ddp_job *job);

/* From now on an error that several ranks of this process's job find alike is logged by one of
 * them, rank 0 where it finds it too, and the launcher knows that it was. ddp_job_open() does this;
 * a program that can fail before calls it first. Without a job, or with log files of the launcher,
 * each process logs its own errors. */
void ddp_job_share_errors(void);

/* Writes the collective that this rank arrived at to its line: a name such as "all-reduce", its
 * number from 0, its size. And that it left: arrival times show stragglers, a missing arrival
 * explains a hang. Cheap: a few stores and one clock reading. */
void ddp_job_collective_enter(ddp_job *job, const char *name, uint64_t number, uint64_t bytes);
void ddp_job_collective_leave(ddp_job *job);

/* For collectives that continue on a device after the call returned: this rank waits for what it
 * arrived at, or waits no longer. */
void ddp_job_collective_wait(ddp_job *job, bool waits);

#endif
