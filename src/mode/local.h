/* SPDX-License-Identifier: MIT
 *
 * Local steps in DDP (post-local SGD): each worker updates its own weights for some steps, then all
 * take the average, or let an outer optimizer take a step towards it (DiLoCo). struct
 * ddp_mode_local says when. Between synchronisations the weights may be replaced by the average for
 * a while, to evaluate or save it. */
#ifndef DDP_MODE_LOCAL_H
#define DDP_MODE_LOCAL_H

#include "mode/share.h"

struct ddp_local {
    struct ddp_share *share;
    const struct ddp_mode_local *config;
    bool apart;       /* there was a local step since the last synchronisation */
    bool state_apart; /* ... since the state was averaged */
    bool averaged;    /* the weights are the average, and this worker's own are in `kept` */
    float *kept;      /* flat, device memory; at a synchronisation the outer gradient */
    float *anchor;    /* the weights of the last synchronisation; NULL without an outer optimizer */
    ddp_optimizer *outer;
    char (*names)[64]; /* of the arrays that follow the optimizer's; the last is "" */
};

/* Does nothing if no step is local.
 *   local  zeroed
 * Close it with ddp_local_close(), even after a failure. */
enum ddp_status ddp_local_open(struct ddp_local *local, struct ddp_share *share);
void ddp_local_close(struct ddp_local *local); /* before the replica */

/* In place of a DDP step: the loss is over all workers' shards, the norm the mean of their norms,
 * and these the only exchange, unless the step ends with a synchronisation. */
enum ddp_status ddp_local_step(struct ddp_local *local, ddp_loader *loader, double rate,
                               int64_t step, float *loss);

/* For checkpoints, as ddp_mode_state_name() and the like, for the arrays that follow the
 * optimizer's own; and array i of the optimizer as the mean of all workers'. */
enum ddp_status ddp_local_name_arrays(struct ddp_local *local);
const char *ddp_local_array_name(const struct ddp_local *local, int i);
bool ddp_local_has_array(const struct ddp_local *local, int i, const struct ddp_mode_apart *apart);
enum ddp_status ddp_local_save_array(struct ddp_local *local, int i, float *flat);
enum ddp_status ddp_local_load_array(struct ddp_local *local, int i, const float *flat);
enum ddp_status ddp_local_save_mean(struct ddp_local *local, int i, float *flat);

/* As ddp_mode_average(), and the way back, which is not collective. */
enum ddp_status ddp_local_average(struct ddp_local *local);
enum ddp_status ddp_local_return(struct ddp_local *local);

/* After ddp_share_put_weights() of the same elements. */
enum ddp_status ddp_local_put_weights(struct ddp_local *local, int64_t begin, int64_t count);

#endif
