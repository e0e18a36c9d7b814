/* SPDX-License-Identifier: MIT
 *
 * A copy of a run's state in memory that outlives its process: a memfd of ddprun's. It has two
 * slots, written in turn, and a header that says which of them is whole, so that a kill in the
 * middle of a copy leaves the one before. Rank 0 writes and reads it. Knows no files: what a slot
 * holds are flat arrays, the text of state.json, and the program's own state. */
#ifndef DDP_CHECKPOINT_COPY_H
#define DDP_CHECKPOINT_COPY_H

#include "checkpoint/state.h"

typedef struct ddp_copy ddp_copy;

/* What restarts have cost so far. */
struct ddp_copy_cost {
    int64_t restarts;
    int64_t steps; /* computed again */
    int64_t ns;    /* from the last step before a loss until it was done again */
};

/* Looks at what is there; what another run has left, or nobody, counts as nothing.
 *   fd   borrowed
 *   run  not 0: different for runs that have nothing to do with each other
 * DDP_ERR_MEMORY, DDP_ERR_SYSTEM. */
enum ddp_status ddp_copy_open(ddp_copy **copy, int fd, uint64_t run);

/* The same only to read what is there, beside the process that has opened it. *copy stays NULL if
 * there is nothing. */
enum ddp_status ddp_copy_view(ddp_copy **copy, int fd);

/*   done  nobody is to begin with this copy any more: its memory is given back. A later process
 *         still sees that the run has begun; in this one the next run is a new one. */
void ddp_copy_close(ddp_copy *copy, bool done);

/* --- what an earlier process of the run has left ---------------------------------------------- */

/* Whether one had begun: the files that the run writes are its own. */
bool ddp_copy_has_begun(const ddp_copy *copy);

/* Steps done in the copy that is whole; -1: there is none. */
int64_t ddp_copy_step(const ddp_copy *copy);

/* Reads its state, and the program's own.
 *   own [out]  freed with free(); NULL: none
 *   reason     DDP_CHECKPOINT_REASON bytes: what is wrong, when false is returned */
bool ddp_copy_read(ddp_copy *copy, struct ddp_checkpoint_state *state, void **own, char *reason);

/* Its array i, after that, where it lies: until the copy after the next is made. DDP_ERR_FORMAT: it
 * has no such array of that size. */
enum ddp_status ddp_copy_array(const ddp_copy *copy, int i, size_t bytes, const float **array);

/* The run begins after `step` steps. If it had begun before, those that it had done since are
 * counted as computed again. */
void ddp_copy_start(ddp_copy *copy, int64_t step);

/* --- writing ---------------------------------------------------------------------------------- */

/* Takes the memory of both slots. The copy that is whole stays until the next one is.
 * DDP_ERR_MEMORY: not logged; there is no room. */
enum ddp_status ddp_copy_reserve(ddp_copy *copy, int array_count, size_t array_bytes);

/* Memory that both slots take, without the program's own state. */
size_t ddp_copy_bytes(int array_count, size_t array_bytes);

/* Gives the arrays to fill, in the slot that is not whole. DDP_ERR_MEMORY: as above.
 *   bytes  copied: first the text of state.json, then the program's own state */
enum ddp_status ddp_copy_begin(ddp_copy *copy, const char *bytes, size_t text_bytes,
                               size_t own_bytes, float *const **arrays);

/* The arrays are filled: the state after `step` steps. */
void ddp_copy_end(ddp_copy *copy, int64_t step);

/* What was ended last is whole from now on. Does nothing if it is already, or none was ended. */
void ddp_copy_publish(ddp_copy *copy);

/* `step` steps are done now. */
void ddp_copy_progress(ddp_copy *copy, int64_t step);

struct ddp_copy_cost ddp_copy_cost(const ddp_copy *copy);

#endif
