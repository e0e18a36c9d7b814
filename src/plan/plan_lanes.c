/* SPDX-License-Identifier: MIT
 *
 * How the shards of a global batch are shared out over workers or replicas, in lanes. */
#include "config.h"

#include "plan/options.h"

#include "kernels/reduce.h"
#include "mode/lanes.h"

#include <inttypes.h>

int ddp_train_plan_units(const struct ddp_train_plan *plan)
{
    return plan->mode == DDP_MODE_DP ? plan->replicas
                                     : plan->world_size / ddp_train_plan_stage_workers(plan);
}

const char *ddp_train_plan_unit_name(const struct ddp_train_plan *plan)
{
    return plan->mode == DDP_MODE_DP || plan->mode == DDP_MODE_PIPELINE ? "replica" : "worker";
}

/* Of a unit: a run of lanes may have fewer shards than another. */
struct span {
    int64_t least, most;
};

static struct span shards_of(const struct ddp_train_plan *plan)
{
    const int units = ddp_train_plan_units(plan);
    struct span span = {INT64_MAX, 0};
    for (int unit = 0; unit < units; unit++) {
        const struct ddp_lanes_run run =
            ddp_lanes_run_of(plan->global_shards, plan->lanes, units, unit);
        const int64_t shards = ddp_lanes_shards(&run);
        span.least = shards < span.least ? shards : span.least;
        span.most = shards > span.most ? shards : span.most;
    }
    return span;
}

int64_t ddp_train_plan_process_shards(const struct ddp_train_plan *plan)
{
    return plan->mode == DDP_MODE_DP ? plan->global_shards : plan->local_shards;
}

void ddp_train_plan_lanes(struct ddp_train_plan *plan, int64_t wanted)
{
    const int units = ddp_train_plan_units(plan);
    plan->wanted_lanes = wanted;
    plan->lanes = ddp_lanes_count(plan->global_shards, wanted, units);
    plan->run = ddp_lanes_run_of(plan->global_shards, plan->lanes, units,
                                 plan->rank / ddp_train_plan_stage_workers(plan));
    plan->local_shards =
        plan->mode == DDP_MODE_DP ? shards_of(plan).most : ddp_lanes_shards(&plan->run);
}

enum ddp_status ddp_train_plan_check_lanes(const struct ddp_train_plan *plan)
{
    const int units = ddp_train_plan_units(plan);
    const char *unit = ddp_train_plan_unit_name(plan);
    char more[48] = "";
    if (units <= plan->wanted_lanes)
        return DDP_OK;
    if (units <= DDP_TRAIN_LANES)
        snprintf(more, sizeof more, "--lanes %d, or ", units);
    return ddp_fail(DDP_ERR_INVALID,
                    "%d %ss are more than the %" PRId64 " lane%s that gradients are added up in: "
                    "use %sat most %" PRId64 " %s%s",
                    units, unit, plan->wanted_lanes, plan->wanted_lanes == 1 ? "" : "s", more,
                    plan->wanted_lanes, unit, plan->wanted_lanes == 1 ? "" : "s");
}

int ddp_train_plan_most_workers(const struct ddp_train_plan *plan)
{
    int64_t units = plan->wanted_lanes;
    if (plan->local.every <= 1 && plan->global_shards < units)
        units = plan->global_shards;
    return (int)units * ddp_train_plan_stage_workers(plan);
}

int ddp_train_plan_arrays(const struct ddp_train_plan *plan)
{
    const struct ddp_lanes_room room =
        ddp_lanes_room(plan->global_shards, plan->lanes, ddp_train_plan_units(plan));
    return room.roots + room.partials;
}

const char *ddp_train_plan_show_shards(const struct ddp_train_plan *plan,
                                       char text[DDP_TRAIN_SHARDS])
{
    const struct span span = shards_of(plan);
    if (span.least == span.most)
        snprintf(text, DDP_TRAIN_SHARDS, "%" PRId64, span.most);
    else
        snprintf(text, DDP_TRAIN_SHARDS, "%" PRId64 " to %" PRId64, span.least, span.most);
    return text;
}

/* How gradients are added up, what that costs, and which numbers of workers end in the same bits.
 */
void ddp_train_plan_print_lanes(const struct ddp_train_plan *plan, FILE *out)
{
    const int64_t shards = plan->global_shards, lanes = plan->lanes;
    const int units = ddp_train_plan_units(plan), arrays = ddp_train_plan_arrays(plan);
    const char *unit = ddp_train_plan_unit_name(plan);
    const int64_t most = lanes < DDP_REDUCE_MAX ? lanes : DDP_REDUCE_MAX;
    const bool any = units <= plan->wanted_lanes && plan->local.every <= 1 && most > 1;
    if (shards == 1)
        return;
    fprintf(out, "lanes    %" PRId64 " (%d array%s of gradients a %s", lanes, arrays,
            arrays == 1 ? "" : "s", unit);
    if (units > 1)
        fprintf(out, ", %d added up over all", ddp_lanes_room(shards, lanes, units).exchanged);
    fputs("), the same bits with", out);
    if (any)
        fprintf(out, " 1 to %" PRId64 " %ss\n", most, unit);
    else
        fprintf(out, " %d %s%s\n", units, unit, units == 1 ? "" : "s");
}
