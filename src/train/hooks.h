/* SPDX-License-Identifier: MIT
 *
 * The program's functions that a run calls: ddp_train_set_hooks(). A failure ends the run. */
#ifndef DDP_TRAIN_HOOKS_H
#define DDP_TRAIN_HOOKS_H

#include "train/run.h"

/* Takes what the caller has filled in, of this or another version of ddp.h. DDP_ERR_INVALID. */
enum ddp_status ddp_hooks_take(struct ddp_hooks *hooks, const struct ddp_hooks *given);

enum ddp_status ddp_run_before_step(struct ddp_run *run);
enum ddp_status ddp_run_after_step(struct ddp_run *run, const struct ddp_step *step);
enum ddp_status ddp_run_after_evaluation(struct ddp_run *run,
                                         const struct ddp_evaluation *evaluation);

/* The program's own state. */
struct ddp_own {
    char file[DDP_CHECKPOINT_OWN_NAME + 1]; /* its name in a checkpoint; "": there is none */
    const void *bytes;                      /* the program's */
    size_t count;
};

/* Asks the program for it: on rank 0. */
enum ddp_status ddp_run_save_own(struct ddp_run *run, struct ddp_own *own);

/* Gives the state in the checkpoint back, on all ranks. Collective. */
enum ddp_status ddp_run_restore_own(struct ddp_run *run);

#endif
