/* SPDX-License-Identifier: MIT
 *
 * A worker's view of its job, for the rooms of the library: what ddp.h offers to programs is
 * declared there. Owns: the mapping of the board and the descriptors that the launcher handed down.
 */
#ifndef DDP_JOB_JOB_H
#define DDP_JOB_JOB_H

#include "ddp.h"

#include <stdatomic.h>

#define DDP_ADDRESS_MAX_BYTES 1008 /* the largest address of a rank */

/* Which machine of the job this is, of how many; this worker's number on it, of how many workers.
 * The first ranks of all machines, in order, and behind them the number of ranks. */
int ddp_job_node(const ddp_job *job);
int ddp_job_node_count(const ddp_job *job);
int ddp_job_node_rank(const ddp_job *job);
int ddp_job_node_size(const ddp_job *job);
const int *ddp_job_node_starts(const ddp_job *job);

/* The machine of a rank. */
int ddp_job_node_of(const ddp_job *job, int rank);

/* As ddp_job_put_id() and ddp_job_get_id(), between the workers of one machine, in slots of their
 * own. */
enum ddp_status ddp_job_put_node_id(ddp_job *job, int slot, const void *id, size_t bytes);
enum ddp_status ddp_job_get_node_id(ddp_job *job, int slot, void *id, size_t bytes, int timeout_ms);

/* Where a rank can be reached from other machines: each rank writes its own, the same whenever a
 * process does, at most DDP_ADDRESS_MAX_BYTES; any rank waits for any. A worker may be several
 * processes, one after another: each writes another, and waits for those of the others that were
 * written as often. Several machines only.
 * The errors of ids; DDP_ERR_MISMATCH: it is not what that rank has written. */
enum ddp_status ddp_job_put_address(ddp_job *job, const void *address, size_t bytes);
enum ddp_status ddp_job_get_address(ddp_job *job, int rank,
                                    unsigned char address[DDP_ADDRESS_MAX_BYTES], size_t *bytes,
                                    int timeout_ms);

/* The descriptor of the heap, an empty memfd shared by all workers of this machine, which the
 * communicator sizes and maps; -1 in a world of one. Owned by the job. */
int ddp_job_heap_fd(const ddp_job *job);

/* Whether it was made by ddp_job_host(): no launcher watches over it. */
bool ddp_job_hosted(const ddp_job *job);

/* Takes so many id slots for communicators, in the order in which all ranks do; the first of
 * them. They are never given back. */
int ddp_job_take_slots(ddp_job *job, int count);

/* The job's workers in its first attempt: a restart may have others. */
int ddp_job_first_size(const ddp_job *job);

/* The descriptor of a memfd that outlives the workers, where ddprun may restart them; else -1.
 * Owned by the job. */
int ddp_job_copy_fd(const ddp_job *job);

/* This worker begins with a run, which has a name that is not 0, the same on all nodes. And whether
 * it had begun before the workers were last started, on any node of the job: said once. */
void ddp_job_begin_run(ddp_job *job, uint64_t run);
bool ddp_job_had_begun(ddp_job *job, uint64_t run);

/* Whether the job's nodes come and go, so that any may be lost, with what its copy has. */
bool ddp_job_nodes_change(const ddp_job *job);

/* As ddp_job_accept_stop(), without signals: only when nodes have come, for which ddprun starts the
 * workers again. Local. */
void ddp_job_accept_change(ddp_job *job);

/* More workers than that would be of no use to the program: nodes that would bring them wait. */
void ddp_job_limit_workers(ddp_job *job, int most);

/* Takes `bytes` (a multiple of the page size) of the heap permanently; only the caller knows
 * the offset. Local, safe between processes (an atomic addition on the board). */
enum ddp_status ddp_job_heap_reserve(ddp_job *job, size_t bytes, uint64_t *offset);

/* Non-zero as soon as the job is being taken down. Every wait loop polls it. Never NULL. */
const _Atomic uint32_t *ddp_job_abort_word(const ddp_job *job);

/* Called every millisecond of every wait of this process from now on, for ranks of the job or for
 * what they write. The one that was set; NULL: none. */
typedef void ddp_turn(void);
#define DDP_TURN_MS 1
void ddp_job_set_turn(ddp_turn *turn);
ddp_turn *ddp_job_turn(void);

/* Declares, before the first word is written, that of all ranks only rank 0 writes to standard
 * output: the launcher then leaves out the rank before its lines. */
void ddp_job_sole_output(ddp_job *job);

/* From now on an error that several ranks of this process's job find alike is logged by one of
 * them, rank 0 where it finds it too, and the launcher knows that it was. ddp_job_open() does this;
 * a program that can fail before calls it first. Without a job, or with log files of the launcher,
 * each process logs its own errors. */
void ddp_job_share_errors(void);

/* Ranks that call collectives together: first, first + stride, ... of the job. They number them
 * under one of the machine's id slots. */
struct ddp_job_group {
    int first, stride, size, slot;
};

/* Writes the collective that this rank arrived at to its line: a name such as "all-reduce", its
 * number from 0, its size, and who calls it (NULL: all ranks). And that it left: arrival times show
 * stragglers, a missing arrival explains a hang. Cheap: a few stores and one clock reading. */
void ddp_job_collective_enter(ddp_job *job, const struct ddp_job_group *group, const char *name,
                              uint64_t number, uint64_t bytes);
void ddp_job_collective_leave(ddp_job *job);

/* The same of a message that this rank waits to send, or to receive, between two ranks: it is left
 * like a collective, but not counted as one that all ranks arrive at. The name is "send to 3" or
 * "recv from 3", which the launcher reads. */
void ddp_job_transfer_enter(ddp_job *job, bool sends, int peer, uint64_t number, uint64_t bytes);

/* For collectives that continue on a device after the call returned: this rank waits for what it
 * arrived at, or waits no longer. */
void ddp_job_collective_wait(ddp_job *job, bool waits);

#endif
