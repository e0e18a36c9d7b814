/* SPDX-License-Identifier: MIT
 *
 * Who updates what in DDP. The flat array is cut into buckets, which are summed over the workers as
 * they become ready. There are three kinds of update, which give the same bits:
 *   replicas   each worker gets the whole sum (all-reduce), and updates all of its weights
 *   zero       each worker gets the sum of its slices (reduce-scatter), keeps the optimizer's state
 *              for these and updates them; then all collect the weights (ZeRO, stage 1)
 *   shared     likewise, but weights and state are one copy in memory that all workers map: nothing
 *              is collected, and the machine holds each weight once. Of several machines each has
 *              such a copy of the weights: what others updated is collected, and the state is
 *              split as with zero
 *
 * With thin gradients a bucket's go when it has been summed, but for the worker's slice of the sum
 * (ZeRO, stage 2). Memory is there for what backward is about to write and for
 * DDP_SHARE_ON_THE_WAY buckets; what lanes add up in before the last pass is whole.
 *
 * With thin weights a machine keeps the slices of its workers (ZeRO, stage 3), of frozen ones too.
 * Those of the others are collected before passes read them, go when they have been read, and are
 * old after an update.
 *
 * Where a device computes in bf16 it reads few weights in float32: those of norms and embeddings.
 * Of the others the workers collect only the bf16 copy, and each keeps the float32 values of its
 * slices, until all are wanted.
 *
 * Gradients and weights travel by `wire`: on the CPU the worker's communicator, on a device with
 * its own memory one for that memory, whose work the host only queues. Host data (sums of the norm,
 * state for checkpoints) always travel by the worker's communicator. */
#ifndef DDP_MODE_SHARE_H
#define DDP_MODE_SHARE_H

#include "mode/internal.h"

#define DDP_SHARE_ON_THE_WAY 2 /* thin: backward waits for the sum of the bucket before these */

struct ddp_share {
    ddp_mode *mode;
    ddp_comm *wire; /* NULL: one worker, alone */
    int rank, size, nodes;
    bool zero, shared;              /* shared implies zero */
    bool packed;                    /* this worker has only the state of its slices */
    bool thin;                      /* it keeps only the gradients of its slices, */
    int standing;                   /* ... and the first buckets, which forward passes write */
    struct ddp_share_weights *held; /* thin weights; NULL: all are there */
    int64_t started;                /* calls that overlap with computing, so far */
    int64_t *bucket_end;            /* elements of the flat array; the last is its count */
    int bucket_count;
    int learned_count; /* of the buckets: the others do not travel, unless gradients are thin */
    struct ddp_comm_range *ranges; /* if it splits, all buckets in float32, and then: */
    struct ddp_comm_range *read;   /* what is read of the weights, which others update parts of */
    size_t read_count;
    bool splits;                 /* ... which is not all of it in float32 */
    struct ddp_comm_roots roots; /* of all workers' lanes; `count` 0: each has one array */
    float *gathered;             /* all of a bucket of packed state, until the next step; or NULL */
    int gathered_bucket, gathered_state;
};

/* The mode's first replica has a device, and is opened here with the memory that the kind of update
 * needs, and rank 0's weights; then the updater. Collective, unless there is one worker.
 *   wire   NULL: one worker
 *   parts  of enum ddp_exec_part */
enum ddp_status ddp_share_open(struct ddp_share *share, ddp_mode *mode, ddp_comm *wire,
                               unsigned parts);
void ddp_share_close(struct ddp_share *share);

/* Starts summing a bucket over the workers: their roots, or what each has in its first array. */
enum ddp_status ddp_share_reduce(struct ddp_share *share, int bucket);
enum ddp_status ddp_share_reduce_first(struct ddp_share *share, int bucket);

/* Once the sums are there: the loss, the norm, the decision, the update. If workers have slices,
 * each measures its own; a worker whose device has all sums decides alone, as do the others. */
enum ddp_status ddp_share_finish(struct ddp_share *share, double rate, int64_t step, float *loss);

/* After ddp_updater_decide(): all workers' weights are the new ones. */
enum ddp_status ddp_share_update(struct ddp_share *share);

/* As ddp_mode_complete_weights(), for at least `count` elements from `begin`. */
enum ddp_status ddp_share_complete_weights(struct ddp_share *share, int64_t begin, int64_t count);

/* Before the shards of a step are run. */
enum ddp_status ddp_share_begin(struct ddp_share *share);

/* Whether this parameter is collected in float32 even though the workers compute in bf16. */
bool ddp_share_is_exact(const ddp_graph *graph, int parameter);

/* Elements of an array of state that is split over the workers, without shared memory: those of
 * one rank. */
enum ddp_status ddp_share_packed_count(const struct ddp_mode_setup *setup, int rank, int size,
                                       int64_t *count);

/* Elements of an array of gradients that are there at once, at most, while one pass writes it. */
enum ddp_status ddp_share_window(const struct ddp_mode_setup *setup, int size, int64_t *count);

/* Bytes of other machines' weights that are there at once, at most, while passes read them.
 *   others       the part of all that these machines have
 *   moved [out]  bytes that are brought together for a pass, of all machines */
enum ddp_status ddp_share_weights_held(const struct ddp_mode_setup *setup, double others,
                                       double *bytes, double *moved);

/* Thin weights that other passes read than those of training, each of them run by all workers
 * together: one that has nothing to compute is idle. Opened one by one in the same order by all.
 *   parts  of enum ddp_exec_part
 * Close it even after a failure. */
enum ddp_status ddp_share_reader_open(struct ddp_share_reader **reader, struct ddp_share *share,
                                      const ddp_graph *graph, unsigned parts);
void ddp_share_reader_close(struct ddp_share_reader *reader); /* takes NULL */
void ddp_share_reader_watch(struct ddp_share_reader *reader, ddp_exec *exec);
enum ddp_status ddp_share_reader_idle(struct ddp_share_reader *reader);

/* As ddp_mode_put_weights(), and what ddp_mode_get_gradients() needs: all workers' sums here. */
enum ddp_status ddp_share_put_weights(struct ddp_share *share, int64_t begin, int64_t count,
                                      const float *values);
enum ddp_status ddp_share_gather_gradients(struct ddp_share *share, int64_t begin, int64_t count);

/* As ddp_mode_save_state() and ddp_mode_load_state(). */
enum ddp_status ddp_share_save_state(struct ddp_share *share, int i, int64_t begin, int64_t count,
                                     float *values);
enum ddp_status ddp_share_load_state(struct ddp_share *share, int i, int64_t begin, int64_t count,
                                     const float *values);

#endif
