/* SPDX-License-Identifier: MIT
 *
 * From a replica's summed gradients to its new weights: the loss, the gradient's norm and its
 * clipping, the optimizer, the statistics. Everything works on parts of the flat array, so that
 * workers can divide it up, and gives the same bits however they do:
 *   ddp_updater_begin(); ddp_updater_measure() for each part; ddp_updater_wait(), the one moment
 *   of a step at which the host waits for the device;
 *   between workers, when there is a norm: an all-reduce of the ddp_updater_sums();
 *   ddp_updater_decide(); ddp_updater_apply() for each part.
 * A worker that has all gradients calls ddp_updater_run(), where the device decides by itself.
 * Parts begin at multiples of DDP_UPDATE_GRAIN and end there, or with the flat array. */
#ifndef DDP_MODE_UPDATER_H
#define DDP_MODE_UPDATER_H

#include "kernels/norm.h"
#include "mode/replica.h"

#define DDP_UPDATE_GRAIN DDP_NORM_BLOCK

struct ddp_updater {
    struct ddp_replica *replica;
    ddp_optimizer *optimizer;
    int64_t first_parameter; /* in the flat array; before it lie the loss and the statistics */
    int64_t learned_end;     /* behind it lie parameters that stay as they are */
    int64_t global_shards;
    double clip_norm;    /* 0: no clipping */
    double average;      /* decay of the moving average of the weights; 0: none */
    bool only_finite;    /* no update when loss or norm is not finite */
    int64_t block_count; /* of the norm; 0 when it is not needed */
    double *blocks;      /* device memory: their sums of squares */
    struct ddp_clipped *on_device;
    double *sums; /* host, page-locked: the same, and after them what follows */
    struct ddp_clipped *clipped;
    float *loss_sum; /* (DDP_FLAT_ALIGN) what gradients begin with: as struct ddp_clip has it */
    /* of the current step */
    int64_t targets; /* of each shard; 0: their losses are means over everything */
    float uncounted; /* targets of all shards that do not count */
    int64_t counted; /* targets that do; 0: the step is left out */
    float loss;      /* the mean over these */
    double norm, rate;
    bool left_out; /* also because of only_finite */
    float scale;
    int64_t scale_every;
    float loss_scale; /* that its gradients were multiplied by; 0: by none */
    int64_t step;
};

/* The optimizer's state arrays have state_count elements.
 *   state  as for ddp_optimizer_create()
 * After a failure nothing is left behind. */
enum ddp_status ddp_updater_open(struct ddp_updater *updater, struct ddp_replica *replica,
                                 const struct ddp_mode_setup *setup, int64_t state_count,
                                 float *const *state);
void ddp_updater_close(struct ddp_updater *updater); /* before its replica */

/* What the sum begins with, the loss and what does not count, must be there. */
enum ddp_status ddp_updater_begin(struct ddp_updater *updater);
enum ddp_status ddp_updater_measure(struct ddp_updater *updater, int64_t begin, int64_t end);
/* Elements [begin, end) of the flat array that these are part of, with blocks as they lie there.
 *   x  device memory, the first of them */
enum ddp_status ddp_updater_measure_at(struct ddp_updater *updater, const float *x, int64_t begin,
                                       int64_t end);
enum ddp_status ddp_updater_wait(struct ddp_updater *updater);

/* When loss_sum has been set. */
void ddp_updater_take_head(struct ddp_updater *updater);

/* The parts' sums of squares, in host memory; none without a norm. What a worker has not measured
 * is -0, so that a sum over workers has the bits of the one that has. */
double *ddp_updater_sums(struct ddp_updater *updater, size_t *count);

/* What the step's sums of gradients over all shards are divided by. */
double ddp_updater_divisor(const struct ddp_updater *updater);

void ddp_updater_decide(struct ddp_updater *updater, double rate, int64_t step);

/*   state_begin  where in the state arrays the state of element `begin` is */
enum ddp_status ddp_updater_apply(struct ddp_updater *updater, int64_t begin, int64_t end,
                                  int64_t state_begin);

/* All of that at once, if no other worker has a part. The host waits until the loss and the norm
 * are known, not for the update. */
enum ddp_status ddp_updater_run(struct ddp_updater *updater, double rate, int64_t step,
                                float *loss);

/* Sums of squares that make up the norm, on the device; 0: it is not computed. */
int64_t ddp_updater_blocks(const struct ddp_mode_setup *setup);

#endif
