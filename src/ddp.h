/* SPDX-License-Identifier: MIT
 *
 * libddp: data-parallel training in C. This is the library's one public header.
 *
 * Conventions
 *   - Functions that can fail return enum ddp_status; DDP_OK is 0, errors are negative. The cause
 * is logged once, to standard error, where it is first known. Outputs are written on success only.
 *   - "Collective" functions must be called by every rank, in the same order; all others are local.
 *   - Sizes named *_count are elements, *_bytes bytes, *_ms milliseconds (-1: no limit).
 *   - Objects are created and destroyed by their own functions; destroy functions take NULL.
 *   - No object may be used by two threads at a time, unless its comment says so.
 */
#ifndef DDP_H
#define DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DDP_API                   __attribute__((visibility("default")))
#define DDP_PRINTF(string, first) __attribute__((format(printf, string, first)))
#else
#define DDP_API
#define DDP_PRINTF(string, first)
#endif

/* --- Status ------------------------------------------------------------------------------------
 */

enum ddp_status {
    DDP_OK = 0,
    DDP_ERR_INVALID = -1,     /* an argument, flag or combination that makes no sense */
    DDP_ERR_MEMORY = -2,      /* out of memory, also of shared or device memory */
    DDP_ERR_IO = -3,          /* a file that cannot be opened, read or written */
    DDP_ERR_FORMAT = -4,      /* a file whose contents are wrong */
    DDP_ERR_SYSTEM = -5,      /* a system call failed */
    DDP_ERR_TIMEOUT = -6,     /* a deadline passed while waiting for other ranks */
    DDP_ERR_ABORTED = -7,     /* the job is being taken down because another rank failed */
    DDP_ERR_MISMATCH = -8,    /* ranks called different collectives, or with different sizes */
    DDP_ERR_UNSUPPORTED = -9, /* not in this build, or not on this device */
    DDP_ERR_PREEMPTED = -10,  /* stopped on request, after finishing the step */
    DDP_ERR_DIVERGED = -11,   /* training was stopped: a loss or gradient is not finite */
};

/* One English phrase for a status; never NULL, also for unknown numbers. */
DDP_API const char *ddp_status_string(enum ddp_status status);

/* The process exit code that ddprun and trainer document for a status (0 for DDP_OK). */
DDP_API int ddp_status_exit_code(enum ddp_status status);

/* The library's version, "major.minor.patch". */
DDP_API const char *ddp_version(void);

/* --- Job: which worker this is, and the board shared with the launcher ---------------------------
 */

typedef struct ddp_job ddp_job;

/* Joins the job that ddprun started, found through the environment (DDPRUN_BOARD_FD, RANK,
 * WORLD_SIZE, LOCAL_RANK); without a launcher the job is a world of one. job [out]  freed with
 * ddp_job_close(). DDP_ERR_INVALID: the environment contradicts itself; DDP_ERR_UNSUPPORTED: RANK
 * and WORLD_SIZE > 1 come from a launcher that gives no board; DDP_ERR_SYSTEM, DDP_ERR_MEMORY. */
DDP_API enum ddp_status ddp_job_open(ddp_job **job);
DDP_API void ddp_job_close(ddp_job *job);

DDP_API int ddp_job_rank(const ddp_job *job);       /* 0 .. world size - 1 */
DDP_API int ddp_job_world_size(const ddp_job *job); /* workers in the job, at least 1 */
DDP_API int ddp_job_local_rank(const ddp_job *job); /* equals the rank on one machine */

#define DDP_ID_MAX_BYTES 256 /* the largest id; ncclUniqueId has 128 bytes */
#define DDP_ID_SLOTS     16  /* ids a job can hand over: one for each communicator */

/* Hands an opaque id (a ncclUniqueId, say) from the one rank that made it to all others.
 *   slot   0 .. DDP_ID_SLOTS-1, each written once in a job
 *   bytes  at most DDP_ID_MAX_BYTES; the same on both sides (else DDP_ERR_MISMATCH)
 * ddp_job_get_id() waits until the id is there: DDP_ERR_TIMEOUT, DDP_ERR_ABORTED. */
DDP_API enum ddp_status ddp_job_put_id(ddp_job *job, int slot, const void *id, size_t bytes);
DDP_API enum ddp_status ddp_job_get_id(ddp_job *job, int slot, void *id, size_t bytes,
                                       int timeout_ms);

/* Waits until all ranks are here. Collective. DDP_ERR_TIMEOUT, DDP_ERR_ABORTED. */
DDP_API enum ddp_status ddp_job_barrier(ddp_job *job, int timeout_ms);

/* Writes this worker's line on the board, which the launcher shows when the job fails or hangs.
 *   phase  a word such as "forward" (cut at 15 bytes); step: the optimizer step, from 0. Never
 * blocks. */
DDP_API void ddp_job_report(ddp_job *job, const char *phase, int64_t step);

/* From now on SIGTERM and SIGUSR1 ask the job to stop after a step, instead of killing this
 * process; ddprun passes on those it gets. Undone by ddp_job_close(). One job of a process at a
 * time: DDP_ERR_INVALID otherwise. */
DDP_API enum ddp_status ddp_job_accept_stop(ddp_job *job);

/* Asked before each optimizer step, by every rank: true when the job is to stop before `step`. All
 * ranks get true for the same step, provided that no rank can begin step s + 1 before every rank
 * has begun step s, as is so when gradients are reduced in each. A program then saves its state,
 * and exits with the code of DDP_ERR_PREEMPTED. Never blocks. */
DDP_API bool ddp_job_should_stop(ddp_job *job, int64_t step);

/* Takes the whole job down: every wait of every rank ends with DDP_ERR_ABORTED. May be called by
 * any thread. */
DDP_API void ddp_job_abort(ddp_job *job);
DDP_API bool ddp_job_aborted(const ddp_job *job);

/* --- Collectives
 * ----------------------------------------------------------------------------------- */

typedef struct ddp_comm ddp_comm;

enum ddp_dtype {
    DDP_F32 = 0,
    DDP_F64 = 1,
    DDP_I32 = 2,
    DDP_I64 = 3,
    DDP_BF16 = 4, /* the upper half of a float32; collectives copy it, but do not reduce it */
};

enum ddp_redop {
    DDP_SUM = 0, /* floating sums are taken in one fixed binary tree over the ranks: the same bits
                    every time */
    DDP_MIN = 1,
    DDP_MAX = 2,
};

DDP_API size_t ddp_dtype_bytes(enum ddp_dtype dtype); /* 0 for an unknown dtype */

/* Makes a communicator over all ranks of the job. Collective.
 *   backend  "self" (a world of one), "shm", or NULL for the best that fits.
 *   comm [out]  freed with ddp_comm_destroy(), before its job is closed. */
DDP_API enum ddp_status ddp_comm_create(ddp_comm **comm, ddp_job *job, const char *backend);
DDP_API void ddp_comm_destroy(ddp_comm *comm);

DDP_API int ddp_comm_rank(const ddp_comm *comm);
DDP_API int ddp_comm_size(const ddp_comm *comm);
DDP_API const char *ddp_comm_backend(const ddp_comm *comm);

/* Every wait of this communicator gives up after this time (default: -1, no limit). */
DDP_API void ddp_comm_set_timeout(ddp_comm *comm, int timeout_ms);

/* Registered memory: zeroed, page-aligned, which peers can reach without a copy. Collective, with
 * the same size on all ranks (DDP_ERR_MISMATCH otherwise). DDP_ERR_MEMORY says what was needed and
 * what there is. ddp_comm_free() is collective too; memory that is left is freed with the
 * communicator. */
DDP_API enum ddp_status ddp_comm_alloc(ddp_comm *comm, size_t bytes, void **memory);
DDP_API enum ddp_status ddp_comm_free(ddp_comm *comm, void *memory);

/* The collectives take any memory; registered memory is reduced where it lies.
 * count is elements per rank: of the whole vector for allreduce and broadcast, of one rank's part
 * for reduce_scatter (send: size x count) and all_gather (receive: size x count). send == receive
 * part is allowed (in place); other overlaps are not. count may be 0. All are collective; each can
 * return DDP_ERR_ABORTED, DDP_ERR_TIMEOUT, DDP_ERR_MISMATCH (ranks do not agree on the call), after
 * which the communicator is dead. */
DDP_API enum ddp_status ddp_comm_allreduce(ddp_comm *comm, void *buffer, size_t count,
                                           enum ddp_dtype dtype, enum ddp_redop op);
DDP_API enum ddp_status ddp_comm_reduce_scatter(ddp_comm *comm, const void *send, void *receive,
                                                size_t count, enum ddp_dtype dtype,
                                                enum ddp_redop op);
DDP_API enum ddp_status ddp_comm_all_gather(ddp_comm *comm, const void *send, void *receive,
                                            size_t count, enum ddp_dtype dtype);
DDP_API enum ddp_status ddp_comm_broadcast(ddp_comm *comm, void *buffer, size_t count,
                                           enum ddp_dtype dtype, int root);
DDP_API enum ddp_status ddp_comm_barrier(ddp_comm *comm);

/* All-reduce that overlaps with computing: start() returns at once, progress() does what can be
 * done without waiting, finish() waits until every started all-reduce is complete. The buffer must
 * be registered and is not touched between start and finish. Started in the same order on all
 * ranks; no other collective in between. */
DDP_API enum ddp_status ddp_comm_allreduce_start(ddp_comm *comm, void *buffer, size_t count,
                                                 enum ddp_dtype dtype, enum ddp_redop op);
DDP_API enum ddp_status ddp_comm_progress(ddp_comm *comm);
DDP_API enum ddp_status ddp_comm_finish(ddp_comm *comm);

/* --- Training
 * ----------------------------------------------------------------------------------------- */

/* A training run: its options, which are those of the program `trainer` (see trainer(1)), and its
 * result. */
typedef struct ddp_train ddp_train;

/* Makes a run with default options. Freed with ddp_train_destroy(). DDP_ERR_MEMORY. */
DDP_API enum ddp_status ddp_train_create(ddp_train **train);
DDP_API void ddp_train_destroy(ddp_train *train);

/* Sets options from a command line, argv[1] .. argv[argc-1]; argv must outlive the run. In names
 * '-' and '_' are the same. DDP_ERR_INVALID: the message names the flag and what would be right. */
DDP_API enum ddp_status ddp_train_parse(ddp_train *train, int argc, char *const *argv);

/* Sets one option by its long name, such as "batch-size". A flag takes value NULL. The value must
 * outlive the run. DDP_ERR_INVALID. */
DDP_API enum ddp_status ddp_train_set(ddp_train *train, const char *name, const char *value);

/* Prints all options, as `trainer --help` does. */
DDP_API void ddp_train_help(FILE *out);

/* Trains: joins the job, loads the data, runs all steps, evaluates, saves. Collective over the
 * job's workers. When one fails, the job is aborted. out  where rank 0 prints plan, progress and
 * results; NULL: nowhere */
DDP_API enum ddp_status ddp_train_run(ddp_train *train, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
