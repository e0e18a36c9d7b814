/* SPDX-License-Identifier: MIT
 *
 * The directory of checkpoints: each is DIR/step-00000100/, created atomically. An incomplete one
 * has another name (.step-00000100.tmp-PID), so that the next trainer recognises and removes what a
 * kill has left. Knows nothing of the contents. */
#ifndef DDP_CHECKPOINT_DIRECTORY_H
#define DDP_CHECKPOINT_DIRECTORY_H

#include "ddp.h"

struct ddp_checkpoint_dir {
    char *path;
    int fd;
    bool locked; /* by us: no other trainer writes here */
};

#define DDP_CHECKPOINT_BEST "best"

#define DDP_CHECKPOINT_NAME 48 /* bytes of "step-..." and of temporary names */

/* Opens the directory, creates it (and its parents) if it does not exist, and locks it. The lock is
 * on the directory itself and leaves nothing behind; if the file system has no locks, a warning
 * says so. Incomplete checkpoints of killed trainers are removed.
 *   wait_ms  for another trainer to end, such as the one that this one replaces; logged
 * DDP_ERR_IO: cannot be read or written; another trainer uses it. */
enum ddp_status ddp_checkpoint_dir_open(struct ddp_checkpoint_dir *dir, const char *path,
                                        int wait_ms);
void ddp_checkpoint_dir_close(struct ddp_checkpoint_dir *dir);

/* Makes an empty file whose name has this number, for who looks from another machine whether it is
 * the same directory; and removes it. What a kill leaves is removed as an incomplete checkpoint. */
enum ddp_status ddp_checkpoint_dir_mark(const struct ddp_checkpoint_dir *dir, uint64_t mark);
void ddp_checkpoint_dir_unmark(const struct ddp_checkpoint_dir *dir, uint64_t mark);
bool ddp_checkpoint_dir_has_mark(const char *path, uint64_t mark);

/* Whether the directory of that path has a checkpoint, by name only. */
bool ddp_checkpoint_dir_has_checkpoints(const char *path);

/* The steps that there are checkpoints of, by name only, highest first.
 *   steps [out]  freed with free() */
enum ddp_status ddp_checkpoint_dir_list(const struct ddp_checkpoint_dir *dir, int64_t **steps,
                                        size_t *count);

/* "step-00000100" */
const char *ddp_checkpoint_name(char name[DDP_CHECKPOINT_NAME], int64_t step);

/* Makes an empty temporary directory for a step and opens it. */
enum ddp_status ddp_checkpoint_dir_begin(const struct ddp_checkpoint_dir *dir, int64_t step,
                                         int *fd);

/* Makes the temporary directory durable and gives it its name; a checkpoint of the same step that
 * is there already is replaced, and there is one at every moment. The files in it have been synced.
 */
enum ddp_status ddp_checkpoint_dir_commit(const struct ddp_checkpoint_dir *dir, int64_t step,
                                          int fd);

/* Removes the temporary directory of a step, if there is one. */
void ddp_checkpoint_dir_discard(const struct ddp_checkpoint_dir *dir, int64_t step);

/* The best checkpoint has a second name: DIR/best, a symbolic link that is replaced atomically.
 * set_best: false, with a warning, where there can be no link. best: its step; -1: none is linked.
 */
bool ddp_checkpoint_dir_set_best(const struct ddp_checkpoint_dir *dir, int64_t step);
int64_t ddp_checkpoint_dir_best(const struct ddp_checkpoint_dir *dir);

/* Removes a checkpoint: it loses its name first, so that none is ever half there. What cannot be
 * removed is warned of. */
void ddp_checkpoint_dir_remove(const struct ddp_checkpoint_dir *dir, int64_t step);

#endif
