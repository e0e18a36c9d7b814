/* SPDX-License-Identifier: MIT
 *
 * Flat arrays of a run's weights and state in the host's memory: what files and copies are made
 * from. */
#include "config.h"

#include "train/run.h"

#include "core/memory.h"

enum ddp_status ddp_run_fetch_weights(struct ddp_run *run, bool wanted)
{
    if (wanted && !run->weights)
        run->weights =
            ddp_array_alloc((size_t)ddp_graph_flat_count(run->planned.graph), sizeof(float));
    if (wanted && !run->weights)
        return DDP_ERR_MEMORY;
    return ddp_mode_get_weights(run->mode, 0, ddp_graph_flat_count(run->planned.graph),
                                wanted ? run->weights : NULL);
}

int ddp_run_array_count(const struct ddp_run *run)
{
    int count = 1;
    while (ddp_mode_state_name(run->mode, count - 1))
        count++;
    return count;
}

enum ddp_status ddp_run_fill_arrays(struct ddp_run *run, float *const *arrays)
{
    const struct ddp_mode_apart apart = ddp_mode_apart_now(run->mode);
    enum ddp_status status = ddp_mode_get_weights(
        run->mode, 0, ddp_graph_flat_count(run->planned.graph), arrays ? arrays[0] : NULL);
    for (int i = 0; status == DDP_OK && ddp_mode_state_name(run->mode, i); i++)
        if (ddp_mode_has_state(run->mode, i, &apart))
            status = ddp_mode_save_state(run->mode, i, arrays ? arrays[1 + i] : NULL);
    return status;
}
