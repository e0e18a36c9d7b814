/* SPDX-License-Identifier: MIT
 *
 * From --stages, --cut and the number of workers to stages and replicas; see options.h. */
#include "config.h"

#include "plan/planned.h"

#include "core/log.h"

/* "h.4,h.8": three stages. */
static int stages_of_cut(const char *cut)
{
    int count = 2;
    for (; *cut && count <= DDP_STAGES_MAX; cut++)
        count += *cut == ',';
    return count;
}

static enum ddp_status check_workers(const struct ddp_train_plan *plan)
{
    const int workers = plan->world_size, stages = plan->stages, fewer = workers / stages * stages;
    char fits[64];
    if (workers == 1 || workers % stages == 0)
        return DDP_OK;
    if (plan->nodes > 1)
        snprintf(fits, sizeof fits, "a multiple of it");
    else if (fewer > 0)
        snprintf(fits, sizeof fits, "--nproc %d or %d", fewer, fewer + stages);
    else
        snprintf(fits, sizeof fits, "--nproc %d", stages);
    return ddp_fail(DDP_ERR_INVALID,
                    "a replica of the model takes %d workers, one for each stage, and ddprun "
                    "started %d: give ddprun %s, or other --stages",
                    stages, workers, fits);
}

enum ddp_status ddp_train_plan_stages(struct ddp_train_plan *plan,
                                      const struct ddp_train_options *options)
{
    const bool given = ddp_train_given(options, "stages");
    plan->stages = 1;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    const int devices = plan->replicas > 1 ? plan->replicas : 2; /* or that many threads */
    plan->stages = given                  ? (int)options->stages
                   : options->cut         ? stages_of_cut(options->cut)
                   : plan->world_size > 1 ? plan->world_size
                                          : devices;
    if (plan->stages > DDP_STAGES_MAX)
        return ddp_fail(DDP_ERR_INVALID, "--%s: a pipeline has at most %d stages: use --stages",
                        options->cut ? "cut" : "mode pipeline", DDP_STAGES_MAX);
    return check_workers(plan);
}

enum ddp_status ddp_planned_cut(struct ddp_planned *planned)
{
    struct ddp_train_plan *plan = &planned->plan;
    struct ddp_stages stages;
    if (plan->mode != DDP_MODE_PIPELINE)
        return DDP_OK;
    enum ddp_status status =
        planned->options->cut
            ? ddp_stages_parse(planned->graph, planned->options->cut, plan->stages, plan->cuts)
            : ddp_stages_estimate(planned->graph, plan->stages, plan->cuts);
    return status == DDP_OK ? ddp_stages_make(&stages, planned->graph, plan->stages, plan->cuts)
                            : status;
}
