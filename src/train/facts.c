/* SPDX-License-Identifier: MIT
 *
 * The facts that make two runs the same, which a checkpoint holds. */
#include "config.h"

#include "train/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The shortest text that reads back as the same number. */
static const char *number_text(char text[32], double value)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

static void add_number(struct ddp_checkpoint_facts *facts, const char *name, double value)
{
    char text[32];
    ddp_checkpoint_fact_add(facts, name, "%s", number_text(text, value));
}

static void add_flag(struct ddp_checkpoint_facts *facts, const char *name, bool value)
{
    ddp_checkpoint_fact_add(facts, name, "%s", value ? "yes" : "no");
}

/* Where the rate falls: "30,60" steps. */
static const char *milestones_text(const struct ddp_schedule *schedule, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < schedule->milestone_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "," : "",
                                 schedule->milestones[i]);
    return text;
}

/* A constant rate and one that falls in steps say nothing of the end: such a run may be made
 * longer. The others are extended (extend.c), which reads this again. */
static void add_schedule(struct ddp_checkpoint_facts *facts, const struct ddp_schedule *schedule)
{
    char number[32], milestones[DDP_SCHEDULE_MILESTONES * 24];
    const char *name = ddp_schedule_names[schedule->kind];
    add_number(facts, DDP_FACT_RATE, schedule->rate);
    ddp_checkpoint_fact_add(facts, DDP_FACT_WARMUP, "%" PRId64, schedule->warmup_steps);
    switch (schedule->kind) {
    case DDP_SCHEDULE_CONSTANT:
        ddp_checkpoint_fact_add(facts, DDP_FACT_SCHEDULE, "%s", name);
        break;
    case DDP_SCHEDULE_STEP:
        number_text(number, schedule->gamma);
        if (schedule->step_size > 0)
            ddp_checkpoint_fact_add(facts, "schedule", "%s, times %s every %" PRId64 " steps", name,
                                    number, schedule->step_size);
        else
            ddp_checkpoint_fact_add(facts, "schedule", "%s, times %s at %s", name, number,
                                    milestones_text(schedule, milestones, sizeof milestones));
        break;
    case DDP_SCHEDULE_LINEAR:
    case DDP_SCHEDULE_COSINE:
        ddp_checkpoint_fact_add(facts, DDP_FACT_SCHEDULE, "%s to %s over %" PRId64 " steps", name,
                                number_text(number, schedule->min_rate), schedule->total_steps);
        break;
    }
    if (schedule->extended_at > 0)
        ddp_checkpoint_fact_add(facts, DDP_FACT_EXTENDED, "at step %" PRId64 " from rate %s",
                                schedule->extended_at,
                                number_text(number, schedule->extended_rate));
}

static void add_optimizer(struct ddp_checkpoint_facts *facts, const struct ddp_train_plan *plan)
{
    const struct ddp_optimizer_config *optimizer = &plan->optimizer;
    ddp_checkpoint_fact_add(facts, "optimizer", "%s", optimizer->name);
    if (strcmp(optimizer->name, "sgd") == 0) {
        add_number(facts, "momentum", optimizer->momentum);
        add_flag(facts, "nesterov", optimizer->nesterov);
    } else {
        add_number(facts, "beta1", optimizer->beta1);
        add_number(facts, "beta2", optimizer->beta2);
        add_number(facts, "eps", optimizer->eps);
    }
    add_number(facts, "weight decay", optimizer->weight_decay);
    if (optimizer->average > 0) /* earlier versions had none */
        add_number(facts, "average of weights", optimizer->average);
    if (optimizer->weight_decay > 0)
        add_flag(facts, "decay of matrices alone", plan->decay_matrices_only);
    add_number(facts, "norm to clip at", plan->clip_norm);
}

/* Where all steps are ordinary, checkpoints are those of runs that know no others. */
static void add_local(struct ddp_checkpoint_facts *facts, const struct ddp_mode_local *local)
{
    char rate[32], momentum[32];
    if (local->every <= 1)
        return;
    ddp_checkpoint_fact_add(facts, "sync every", "%" PRId64, local->every);
    ddp_checkpoint_fact_add(facts, "local from", "%" PRId64, local->from);
    add_flag(facts, "sync state", false); /* that of earlier versions */
    if (local->outer)
        ddp_checkpoint_fact_add(facts, "outer SGD", "rate %s momentum %s",
                                number_text(rate, local->outer_rate),
                                number_text(momentum, local->outer_momentum));
}

/* Earlier versions knew crop and flip alone. */
static void add_augment(struct ddp_checkpoint_facts *facts, const struct ddp_augment *augment)
{
    add_flag(facts, "crop", augment->crop);
    add_flag(facts, "flip", augment->flip);
    if (augment->resized > 0)
        add_number(facts, "resized", augment->resized);
    if (augment->jitter > 0)
        add_number(facts, "jitter", augment->jitter);
    if (augment->mixup > 0)
        add_number(facts, "mixup", augment->mixup);
    if (augment->smooth > 0)
        add_number(facts, "smooth", augment->smooth);
}

/* A new setting that determines them must be added here. */
void ddp_run_collect_facts(const struct ddp_run *run, struct ddp_checkpoint_facts *facts)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    char scale[32];
    facts->count = 0;
    ddp_checkpoint_fact_add(facts, "model", "%s", ddp_graph_description(run->planned.graph));
    add_number(facts, "dropout",
               plan->model->dropout ? plan->model->dropout(&run->planned.model_config) : 0);
    if (run->planned.model_config.head_only) /* earlier versions had none */
        add_flag(facts, "frozen below the head", true);
    add_flag(facts, "bf16", run->planned.model_config.compute == DDP_BF16);
    if (run->planned.model_config.compute == DDP_F16) /* earlier versions had none */
        ddp_checkpoint_fact_add(facts, "fp16", "scale %s, twice every %" PRId64 " steps",
                                number_text(scale, run->planned.options->loss_scale),
                                run->planned.options->scale_every);
    if (run->planned.options->wire_dtype) /* likewise */
        ddp_checkpoint_fact_add(facts, "sums of gradients", "bf16");
    ddp_checkpoint_fact_add(facts, "parameters", "%" PRId64,
                            ddp_graph_element_count(run->planned.graph));
    if (ddp_graph_frozen_count(run->planned.graph) > 0) /* which checkpoints do not hold */
        ddp_checkpoint_fact_add(facts, DDP_CHECKPOINT_FROZEN, "%d of hash %016" PRIx64,
                                ddp_graph_frozen_count(run->planned.graph), run->frozen_hash);
    ddp_checkpoint_fact_add(facts, "samples", "%" PRId64,
                            ddp_dataset_info(run->planned.data)->sample_count);
    ddp_checkpoint_fact_add(facts, DDP_CHECKPOINT_DATA, "%016" PRIx64, run->data_fingerprint);
    if (run->planned.options->objective.kind) {
        char objective[DDP_TRAIN_OBJECTIVE];
        ddp_checkpoint_fact_add(
            facts, "objective", "%s",
            ddp_train_show_objective(&run->planned.options->objective, objective));
        ddp_checkpoint_fact_add(facts, DDP_CHECKPOINT_REFERENCE, "%016" PRIx64,
                                run->reference_hash);
    }
    if (run->planned.options->val_split > 0)
        add_number(facts, "val split", run->planned.options->val_split);
    if (run->planned.options->normalize)
        add_flag(facts, "normalize", true);
    add_flag(facts, "shuffle", plan->sampler.shuffle);
    add_flag(facts, "drop last", plan->sampler.drop_last);
    add_augment(facts, &run->planned.options->augment);
    add_flag(facts, "sync batch norm", run->planned.options->sync_batch_norm);
    ddp_checkpoint_fact_add(facts, DDP_CHECKPOINT_SHARDS, "%" PRId64, plan->global_shards);
    ddp_checkpoint_fact_add(facts, DDP_CHECKPOINT_LANES, "%" PRId64, plan->lanes);
    ddp_checkpoint_fact_add(facts, DDP_CHECKPOINT_BATCH, "%" PRId64, plan->batch_size);
    add_optimizer(facts, plan);
    add_local(facts, &plan->local);
    add_schedule(facts, &plan->schedule);
}
