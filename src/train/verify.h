/* SPDX-License-Identifier: MIT
 *
 * trainer verify: steps of an earlier run are computed again, and the weights compared with the
 * hashes in its log. This file makes the options of such a run out of the log's, finds the
 * checkpoint that it begins with, and compares. */
#ifndef DDP_TRAIN_VERIFY_H
#define DDP_TRAIN_VERIFY_H

#include "train/history.h"
#include "train/run.h"

struct ddp_verify {
    struct ddp_history history;
    json_t *own_words;     /* the options of the caller */
    const char *places[2]; /* directories that may have checkpoints; NULL: none */
    char *from;            /* the checkpoint that it begins with; NULL: the beginning */
    int64_t compared;      /* hashes that agreed */
};

/* Reads the log and sets the options of the run that is to be made; they point into `verify`.
 *   options [in,out]  those of the caller, which win; of them --step
 * DDP_ERR_INVALID: no checkpoint is early enough, for one. */
enum ddp_status ddp_verify_open(struct ddp_verify *verify, const char *log,
                                struct ddp_train_options *options);
void ddp_verify_close(struct ddp_verify *verify); /* also after a failure */

/* Before the first step: the run must be the log's, and so must be its weights. Collective. */
enum ddp_status ddp_verify_begin(struct ddp_verify *verify, struct ddp_run *run);

/* After a step: compares the weights if the log has their hash. DDP_ERR_DIFFERS: on rank 0, which
 * says where; DDP_ERR_ABORTED on the others. Collective. */
enum ddp_status ddp_verify_step(struct ddp_verify *verify, struct ddp_run *run);

/* After the last one: one line. */
void ddp_verify_print(const struct ddp_verify *verify, const struct ddp_run *run);

#endif
