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

bool ddp_train_plan_has_runs(const struct ddp_train_plan *plan)
{
    return plan->nodes == 1 && plan->device.host_memory && plan->local.every <= 1;
}

/* Of a unit: a run of lanes may have fewer shards than another. */
struct span {
    int64_t least, most;
};

static struct span shards_of(const struct ddp_train_plan *plan)
{
    const int units = ddp_train_plan_units(plan);
    struct span span = {plan->local_shards, plan->local_shards};
    for (int unit = 0; ddp_train_plan_has_runs(plan) && unit < units; unit++) {
        const struct ddp_lanes_run run =
            ddp_lanes_run_of(plan->global_shards, plan->lanes, units, unit);
        const int64_t shards = ddp_lanes_shards(&run);
        span.least = unit == 0 || shards < span.least ? shards : span.least;
        span.most = unit == 0 || shards > span.most ? shards : span.most;
    }
    return span;
}

int64_t ddp_train_plan_process_shards(const struct ddp_train_plan *plan)
{
    return plan->mode == DDP_MODE_DP ? plan->global_shards : plan->local_shards;
}

void ddp_train_plan_lanes(struct ddp_train_plan *plan, int64_t wanted)
{
    const int64_t shards = plan->global_shards;
    const int units = ddp_train_plan_units(plan);
    const bool runs = ddp_train_plan_has_runs(plan);
    plan->wanted_lanes = wanted;
    plan->lanes = ddp_lanes_count(shards, wanted, units, !runs);
    if (runs) {
        plan->run = ddp_lanes_run_of(shards, plan->lanes, units,
                                     plan->rank / ddp_train_plan_stage_workers(plan));
        plan->local_shards =
            plan->mode == DDP_MODE_DP ? shards_of(plan).most : ddp_lanes_shards(&plan->run);
    } else {
        plan->run = ddp_lanes_run_of(plan->local_shards, plan->lanes / units, 1, 0);
    }
}

int ddp_train_plan_arrays(const struct ddp_train_plan *plan)
{
    const int units = ddp_train_plan_units(plan);
    if (!ddp_train_plan_has_runs(plan))
        return 1 + ddp_lanes_partials(plan->lanes / units);
    const struct ddp_lanes_room room = ddp_lanes_room(plan->global_shards, plan->lanes, units);
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
    const bool runs = ddp_train_plan_has_runs(plan), whole = ddp_lanes_same(shards, lanes, units);
    int listed = 0;
    if (shards == 1)
        return;
    fprintf(out, "lanes    %" PRId64 " (%d array%s of gradients a %s", lanes, arrays,
            arrays == 1 ? "" : "s", unit);
    if (runs && units > 1)
        fprintf(out, ", %d added up over all", ddp_lanes_room(shards, lanes, units).exchanged);
    fputs("), the same bits with", out);
    if (runs) {
        const bool fixed = units <= plan->wanted_lanes;
        const int64_t most = lanes < DDP_REDUCE_MAX ? lanes : DDP_REDUCE_MAX;
        fprintf(out, fixed && most > 1 ? " 1 to %" PRId64 " %ss\n" : " %" PRId64 " %s%s\n",
                fixed ? most : units, unit, (fixed ? most : units) == 1 ? "" : "s");
        return;
    }
    for (int n = 1; n <= DDP_REDUCE_MAX; n++) {
        const bool same = whole && ddp_lanes_count(shards, plan->wanted_lanes, n, true) == lanes &&
                          ddp_lanes_same(shards, lanes, n);
        if (same || n == units)
            fprintf(out, "%s %d", listed++ ? "," : "", n);
    }
    fprintf(out, " %s%s\n", unit, listed == 1 && units == 1 ? "" : "s");
}
