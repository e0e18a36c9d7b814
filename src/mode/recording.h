/* SPDX-License-Identifier: MIT
 *
 * A replica's passes as recorded work (device/device.h), which a step runs again instead of putting
 * operation after operation on the device. Everything a pass depends on is at the same place in
 * memory in every step, or is part of the key: the array of gradients, the exec, the slot of the
 * inputs, the shard's place in its lane, whether backward is separate. Partial sums are joined
 * between the parts. */
#ifndef DDP_MODE_RECORDING_H
#define DDP_MODE_RECORDING_H

#include "graph/exec.h"
#include "kernels/reduce.h"

struct ddp_recording_part {
    void *work;
    int64_t end; /* after it, gradients below this are final; -1: nothing waits for that here */
};

struct ddp_recording {
    int uses; /* passes so far: the first is run, the second recorded */
    struct ddp_recording_part *parts;
    int part_count, capacity; /* no parts: it is run */
};

struct ddp_recordings {
    ddp_device *device;
    bool off; /* nothing is recorded */
    /* arrays of gradients, short shards, slots, the first and last of a lane; backward separate
     * from forward */
    struct ddp_recording of[DDP_REDUCE_ROOTS][2][2][2][2][2];
    bool failed; /* the current recording, somewhere */
};

/* A pass from its beginning; in it ddp_recordings_cut() ends parts. */
typedef enum ddp_status ddp_recording_pass(void *arg);

/* Records the pass; if that fails there are no parts. */
void ddp_recordings_make(struct ddp_recordings *recordings, struct ddp_recording *recording,
                         ddp_recording_pass *pass, void *arg);
/* DDP_ERR_UNSUPPORTED (not logged): nothing is recorded any more, and the pass must end: what
 * follows would really run, on results that were never computed. */
enum ddp_status ddp_recordings_cut(struct ddp_recordings *recordings,
                                   struct ddp_recording *recording, int64_t end);

/* Runs the parts, and calls `ready` (may be NULL) between them. */
enum ddp_status ddp_recordings_run(const struct ddp_recordings *recordings,
                                   const struct ddp_recording *recording, ddp_exec_ready *ready,
                                   void *arg);

void ddp_recordings_free(struct ddp_recordings *recordings);

#endif
