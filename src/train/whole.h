/* SPDX-License-Identifier: MIT
 *
 * The weights of the whole model on this worker's device, for what runs it besides training: the
 * mode's own, or, in a pipeline, where each stage has a part, a copy. */
#ifndef DDP_TRAIN_WHOLE_H
#define DDP_TRAIN_WHOLE_H

#include "mode/mode.h"

struct ddp_run;

struct ddp_whole {
    const float *weights;         /* flat; NULL: not wanted on this rank */
    const uint16_t *weights_bf16; /* NULL unless the graphs compute in bf16 */
    const struct ddp_frozen *frozen;
    /* A copy, and the device that frees it; NULL: the mode's are borrowed. */
    ddp_device *device;
    float *copy;
    uint16_t *copy_bf16;
    size_t bytes;
};

/* Whether a worker can run the whole model: it cannot if its device has only a stage's frozen
 * parameters. */
bool ddp_whole_is_there(const struct ddp_run *run);

/* Takes memory for a copy if one is needed.
 *   wanted  on this rank
 * On failure ddp_whole_close() frees what there is. */
enum ddp_status ddp_whole_open(struct ddp_whole *whole, const struct ddp_run *run, bool wanted);
void ddp_whole_close(struct ddp_whole *whole);

/* Brings the copy up to date. Collective, as ddp_mode_get_weights() is. */
enum ddp_status ddp_whole_fetch(struct ddp_whole *whole, struct ddp_run *run);

#endif
