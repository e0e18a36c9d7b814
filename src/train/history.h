/* SPDX-License-Identifier: MIT
 *
 * Reads the log of a run with --hash-every (train/record.h): one of its runs, with the hashes of
 * its steps. Every line of such a run must be as it was written (report/metrics.h has the chain).
 */
#ifndef DDP_TRAIN_HISTORY_H
#define DDP_TRAIN_HISTORY_H

#include "checkpoint/state.h"

struct ddp_history {
    const char *path;
    json_t *run;                       /* its first line; each that is used has been checked: */
    json_t *options;                   /* words, of `run` */
    struct ddp_checkpoint_facts facts; /* that decide the bits */
    uint64_t seed;
    int64_t first_step; /* done before it */
    int64_t shards, batch_size, world_size;
    json_t *hashes; /* lines of event "hash", by their step in digits */
    int64_t step;   /* that is asked for */
};

/* Of the runs in the log, takes the last one with a hash of this step.
 *   step  0: the last that has a hash
 * DDP_ERR_FORMAT: it is no such log, or was edited; names the line. DDP_ERR_INVALID: there is no
 * such hash; names the next ones. DDP_ERR_IO, DDP_ERR_MEMORY. After a failure nothing is to be
 * freed. */
enum ddp_status ddp_history_read(struct ddp_history *history, const char *path, int64_t step);

/* The same for a text; `path` is for messages. */
enum ddp_status ddp_history_parse(struct ddp_history *history, const char *path, const char *text,
                                  size_t bytes, int64_t step);
void ddp_history_free(struct ddp_history *history);

/* The line with the hash after so many steps; that of the run, before its first; NULL: none. */
const json_t *ddp_history_hash(const struct ddp_history *history, int64_t step);

#endif
