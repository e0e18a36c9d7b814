/* SPDX-License-Identifier: MIT
 *
 * What checkpoints hold of local steps, as further arrays of state behind the optimizer's: of the
 * outer optimizer, and each worker's own weights and state. See local.h. */
#include "config.h"

#include "mode/local.h"

#include "comm/comm.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>

/* Array i, from 0 behind the optimizer's own. */
struct array {
    enum { ANCHOR, MOMENTUM, WEIGHTS, STATE } kind;
    int rank, state;
};

static int outer_count(const struct ddp_local *local)
{
    return !local->outer ? 0 : local->config->outer_momentum > 0 ? 2 : 1;
}

static int state_count(const struct ddp_local *local)
{
    int count = 0;
    while (ddp_mode_state(local->share->mode, count))
        count++;
    return count;
}

/* A worker alone is its own average. */
static int array_count(const struct ddp_local *local)
{
    const int workers = local->share->size > 1 ? local->share->size : 0;
    return outer_count(local) + workers * (1 + state_count(local));
}

static struct array array_at(const struct ddp_local *local, int i)
{
    const int outer = outer_count(local), each = 1 + state_count(local);
    if (i < outer)
        return (struct array){.kind = i == 0 ? ANCHOR : MOMENTUM};
    const int rank = (i - outer) / each, k = (i - outer) % each;
    return (struct array){k == 0 ? WEIGHTS : STATE, rank, k - 1};
}

enum ddp_status ddp_local_name_arrays(struct ddp_local *local)
{
    const int count = array_count(local);
    const char *name;
    local->names = ddp_array_alloc((size_t)count + 1, sizeof *local->names);
    if (!local->names)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        const struct array array = array_at(local, i);
        switch (array.kind) {
        case ANCHOR:
            snprintf(local->names[i], sizeof local->names[i], "outer.anchor");
            break;
        case MOMENTUM:
            snprintf(local->names[i], sizeof local->names[i], "outer.momentum_buffer");
            break;
        case WEIGHTS:
            snprintf(local->names[i], sizeof local->names[i], "worker.%d.weights", array.rank);
            break;
        case STATE:
            (void)ddp_optimizer_state(local->share->mode->updater.optimizer, array.state, &name);
            snprintf(local->names[i], sizeof local->names[i], "worker.%d.%s", array.rank, name);
            break;
        }
    }
    return DDP_OK;
}

const char *ddp_local_array_name(const struct ddp_local *local, int i)
{
    return local->names && *local->names[i] ? local->names[i] : NULL;
}

bool ddp_local_has_array(const struct ddp_local *local, int i, const struct ddp_mode_apart *apart)
{
    switch (array_at(local, i).kind) {
    case ANCHOR:
        return apart->weights;
    case MOMENTUM:
        break;
    case WEIGHTS:
        return apart->weights && apart->workers == local->share->size;
    case STATE:
        return apart->state && apart->workers == local->share->size;
    }
    return true;
}

/* In device memory, of this worker. */
static float *memory_of(const struct ddp_local *local, const struct array *array)
{
    ddp_mode *mode = local->share->mode;
    const char *name;
    switch (array->kind) {
    case ANCHOR:
        return local->anchor;
    case MOMENTUM:
        return ddp_optimizer_state(local->outer, 0, &name);
    case WEIGHTS:
        return local->averaged ? local->kept : mode->replicas->weights;
    case STATE:
        break;
    }
    return ddp_mode_state(mode, array->state);
}

static enum ddp_status copy_out(const struct ddp_local *local, float *flat, const float *memory)
{
    const struct ddp_replica *replica = local->share->mode->replicas;
    enum ddp_status status =
        ddp_device_copy_out(replica->device, flat, memory, replica->flat_bytes);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

static enum ddp_status copy_in(const struct ddp_local *local, float *memory, const float *flat)
{
    const struct ddp_replica *replica = local->share->mode->replicas;
    enum ddp_status status = ddp_device_copy_in(replica->device, memory, flat, replica->flat_bytes);
    return status == DDP_OK ? ddp_device_synchronize(replica->device) : status;
}

/* One worker's array goes to rank 0, by way of all. */
enum ddp_status ddp_local_save_array(struct ddp_local *local, int i, float *flat)
{
    const struct array array = array_at(local, i);
    const struct ddp_share *share = local->share;
    const size_t count = (size_t)share->mode->replicas->flat_count;
    const bool own = array.kind == WEIGHTS || array.kind == STATE;
    if (!own)
        return flat ? copy_out(local, flat, memory_of(local, &array)) : DDP_OK;
    float *whole = flat ? flat : ddp_array_alloc(count, sizeof *whole);
    enum ddp_status status = whole ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK && share->rank == array.rank)
        status = copy_out(local, whole, memory_of(local, &array));
    if (status == DDP_OK)
        status = ddp_comm_broadcast(share->mode->setup.comm, whole, count, DDP_F32, array.rank);
    if (!flat)
        free(whole);
    return status;
}

enum ddp_status ddp_local_load_array(struct ddp_local *local, int i, const float *flat)
{
    const struct array array = array_at(local, i);
    const struct ddp_share *share = local->share;
    struct ddp_replica *replica = share->mode->replicas;
    const size_t count = (size_t)replica->flat_count;
    const bool all = array.kind == ANCHOR || array.kind == MOMENTUM;
    float *whole = ddp_array_alloc(count, sizeof *whole);
    if (!whole)
        return DDP_ERR_MEMORY;
    for (size_t e = 0; flat && e < count; e++)
        whole[e] = flat[e];
    enum ddp_status status = share->mode->everywhere ? DDP_OK
                                                     : ddp_comm_broadcast(share->mode->setup.comm,
                                                                          whole, count, DDP_F32, 0);
    if (status == DDP_OK && (all || share->rank == array.rank))
        status = copy_in(local, memory_of(local, &array), whole);
    if (status == DDP_OK && array.kind == WEIGHTS && share->rank == array.rank)
        status = ddp_replica_round_weights(replica, 0, replica->flat_count);
    local->apart = local->apart || array.kind == WEIGHTS || array.kind == ANCHOR;
    local->state_apart = local->state_apart || array.kind == STATE;
    free(whole);
    return status;
}

/* The optimizer's state, for any number of workers: the mean of all workers'. */
enum ddp_status ddp_local_save_mean(struct ddp_local *local, int i, float *flat)
{
    const struct ddp_share *share = local->share;
    const size_t count = (size_t)share->mode->replicas->flat_count;
    const float scale = 1.0f / (float)share->size;
    float *whole = flat ? flat : ddp_array_alloc(count, sizeof *whole);
    if (!whole)
        return DDP_ERR_MEMORY;
    enum ddp_status status = copy_out(local, whole, ddp_mode_state(share->mode, i));
    if (status == DDP_OK)
        status = ddp_comm_allreduce(share->mode->setup.comm, whole, count, DDP_F32, DDP_SUM);
    for (size_t e = 0; e < count; e++)
        whole[e] *= scale;
    if (!flat)
        free(whole);
    return status;
}
