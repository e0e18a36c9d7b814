/* SPDX-License-Identifier: MIT
 *
 * Gradient accumulation: one worker runs all shards of the global batch, one after another, then
 * updates. */
#include "config.h"

#include "mode/updater.h"

#include "core/memory.h"

#include <stdlib.h>

#define PARTS (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

struct accum {
    struct ddp_mode_setup setup;
    struct ddp_replica replica;
    struct ddp_updater updater;
};

static void destroy(void *state)
{
    struct accum *accum = state;
    ddp_updater_close(&accum->updater);
    ddp_replica_close(&accum->replica);
    free(accum);
}

static enum ddp_status create(void **state, const struct ddp_mode_setup *setup)
{
    struct accum *accum = ddp_array_alloc(1, sizeof *accum);
    if (!accum)
        return DDP_ERR_MEMORY;
    accum->setup = *setup;
    enum ddp_status status = ddp_replica_open(&accum->replica, setup, 0, PARTS, NULL);
    if (status == DDP_OK)
        status = ddp_updater_open(&accum->updater, &accum->replica, setup,
                                  accum->replica.flat_count, NULL);
    if (status != DDP_OK) {
        destroy(accum);
        return status;
    }
    *state = accum;
    return DDP_OK;
}

static enum ddp_status step(void *state, ddp_loader *loader, double rate, int64_t number,
                            float *loss)
{
    struct accum *accum = state;
    accum->replica.step = number;
    ddp_job_report(accum->setup.job, "compute", number);
    enum ddp_status status = ddp_replica_run_shards(&accum->replica, loader, NULL, NULL);
    return status == DDP_OK ? ddp_updater_run(&accum->updater, rate, number, loss) : status;
}

static void memory(const void *state, struct ddp_mode_memory *total)
{
    const struct accum *accum = state;
    ddp_replica_memory(&accum->replica, &accum->setup, PARTS, total);
    ddp_updater_memory(&accum->updater, total);
}

static const struct ddp_replica *replica(const void *state)
{
    return &((const struct accum *)state)->replica;
}

static const struct ddp_updater *updater(const void *state)
{
    return &((const struct accum *)state)->updater;
}

const struct ddp_mode_ops ddp_mode_accum = {
    .name = "accum",
    .create = create,
    .destroy = destroy,
    .step = step,
    .memory = memory,
    .replica = replica,
    .updater = updater,
};
