/* SPDX-License-Identifier: MIT
 *
 * The part of the plan that updates weights: which optimizer with which numbers, and the learning
 * rate's schedule. What is not given is the model's own, or PyTorch's default. */
#include "config.h"

#include "plan/options.h"

#include "core/log.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define STEPS_MAX 4e18 /* fits in 64 bits */

const char *const ddp_train_decay_names[] = {"all", "matrices", NULL};

/* A flag that belongs to other optimizers or schedules than the chosen one. */
struct belongs {
    const char *flag, *to;
    bool fits;
};

static enum ddp_status check_belongs(const struct ddp_train_options *options,
                                     const struct belongs *rows, const char *what,
                                     const char *chosen)
{
    for (; rows->flag; rows++)
        if (!rows->fits && ddp_train_given(options, rows->flag))
            return ddp_fail(DDP_ERR_INVALID, "--%s belongs to --%s %s, and the %s is %s",
                            rows->flag, what, rows->to, what, chosen);
    return DDP_OK;
}

static enum ddp_status choose_rate(struct ddp_train_plan *plan,
                                   const struct ddp_train_options *options, double rate)
{
    if (ddp_train_given(options, "lr"))
        rate = options->rate;
    if (options->min_rate > rate)
        return ddp_fail(DDP_ERR_INVALID, "--schedule ...,min=%g is above the learning rate, %g",
                        options->min_rate, rate);
    /* By shards, not workers: the same for every split of a global batch. */
    const double factor = options->scale_rate ? (double)plan->global_shards : 1;
    plan->schedule.rate = rate * factor;
    plan->schedule.min_rate = options->min_rate * factor;
    return DDP_OK;
}

#define PREFERENCE_RATE 1e-6 /* as TRL's */

/* Fine-tuning takes smaller steps. */
static double model_rate(const struct ddp_model *model, const struct ddp_train_options *options)
{
    if (options->objective.kind)
        return PREFERENCE_RATE;
    if ((ddp_train_given(options, "lora") || options->adapted) && model->adapted_rate > 0)
        return model->adapted_rate;
    return options->load && model->tuned_rate > 0 ? model->tuned_rate : model->rate;
}

enum ddp_status ddp_train_plan_optimizer(struct ddp_train_plan *plan,
                                         const struct ddp_train_options *options)
{
    const struct ddp_model *model = plan->model;
    const char *models = model->optimizer ? model->optimizer : "sgd";
    const char *name =
        ddp_train_given(options, "optimizer") ? ddp_optimizer_names[options->optimizer] : models;
    const bool own = strcmp(name, models) == 0; /* the model's other defaults were made for it */
    const bool sgd = strcmp(name, "sgd") == 0;
    const struct belongs rows[] = {
        {"momentum", "sgd", sgd},
        {"optimizer ...,beta1", "adam or adamw", !sgd},
        {"optimizer ...,beta2", "adam or adamw", !sgd},
        {"optimizer ...,eps", "adam or adamw", !sgd},
        {0},
    };
    enum ddp_status status = check_belongs(options, rows, "optimizer", name);
    if (status != DDP_OK)
        return status;
    if (options->nesterov && options->momentum == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--momentum 0,nesterov: Nesterov's needs a momentum above 0");
    const double torch_decay = strcmp(name, "adamw") == 0 ? 0.01 : 0;
    const double decay = own && model->weight_decay > 0 ? model->weight_decay : torch_decay;
    plan->optimizer = (struct ddp_optimizer_config){
        .name = name,
        .momentum = options->momentum,
        .nesterov = options->nesterov,
        .beta1 = options->beta1,
        .beta2 = ddp_train_given(options, "optimizer ...,beta2") || !own || model->beta2 == 0
                     ? options->beta2
                     : model->beta2,
        .eps = options->eps,
        .average = options->average,
        .weight_decay = ddp_train_given(options, "weight-decay") ? options->weight_decay : decay,
    };
    plan->clip_norm = ddp_train_given(options, "clip-grad-norm") ? options->clip_norm
                      : own                                      ? model->clip_norm
                                                                 : 0;
    plan->decay_matrices_only = ddp_train_given(options, "weight-decay ...,on")
                                    ? options->decay_on == DDP_DECAY_MATRICES
                                    : own && model->decay_matrices_only;
    return choose_rate(plan, options, own ? model_rate(model, options) : sgd ? 0.1 : 0.001);
}

static enum ddp_status check_schedule(const struct ddp_train_options *options,
                                      enum ddp_schedule_kind kind)
{
    const bool step = kind == DDP_SCHEDULE_STEP;
    const struct belongs rows[] = {
        {"schedule ...,min", "linear or cosine",
         kind == DDP_SCHEDULE_LINEAR || kind == DDP_SCHEDULE_COSINE},
        {"schedule ...,gamma", "step", step},
        {"schedule ...,every", "step", step},
        {"schedule ...,at", "step", step},
        {0},
    };
    return check_belongs(options, rows, "schedule", ddp_schedule_names[kind]);
}

/* Epochs as steps; more than there can be are as good as never. */
static int64_t steps_of(const struct ddp_train_plan *plan, double epochs)
{
    const double steps = epochs * (double)plan->steps_per_epoch;
    return steps > STEPS_MAX ? (int64_t)STEPS_MAX : llround(steps);
}

enum ddp_status ddp_train_plan_schedule(struct ddp_train_plan *plan,
                                        const struct ddp_train_options *options)
{
    struct ddp_schedule *schedule = &plan->schedule;
    schedule->kind = ddp_train_given(options, "schedule")
                         ? (enum ddp_schedule_kind)options->schedule
                         : plan->model->schedule;
    enum ddp_status status = check_schedule(options, schedule->kind);
    if (status != DDP_OK)
        return status;
    schedule->warmup_steps = options->warmup_steps;
    schedule->total_steps = plan->total_steps;
    if (schedule->kind != DDP_SCHEDULE_STEP)
        return DDP_OK;
    schedule->gamma = options->gamma;
    schedule->milestone_count = options->milestones.count;
    if (options->milestones.count == 0)
        schedule->step_size = steps_of(plan, (double)options->step_size);
    for (int i = 0; i < options->milestones.count; i++)
        schedule->milestones[i] = steps_of(plan, (double)options->milestones.epochs[i]);
    return DDP_OK;
}

void ddp_train_plan_print_optimizer(const struct ddp_train_plan *plan, FILE *out)
{
    const struct ddp_optimizer_config *o = &plan->optimizer;
    fprintf(out, "update   %s", o->name);
    if (strcmp(o->name, "sgd") == 0)
        fprintf(out, ", momentum %g%s", o->momentum, o->nesterov ? " (Nesterov's)" : "");
    else
        fprintf(out, ", betas %g and %g, eps %g", o->beta1, o->beta2, o->eps);
    if (o->weight_decay > 0)
        fprintf(out, ", weight decay %g%s", o->weight_decay,
                plan->decay_matrices_only ? " of matrices" : "");
    if (o->average > 0)
        fprintf(out, ", weights averaged with decay %g", o->average);
    if (plan->clip_norm > 0)
        fprintf(out, ", clipped to norm %g", plan->clip_norm);
    if (plan->zero_open && !plan->zero)
        fputs(", whole in each worker (--zero 0: there is memory for it)", out);
    if (plan->zero)
        fprintf(out, ", split over the workers%s%s",
                plan->thin_weights     ? " with the gradients, and the weights over the nodes"
                : plan->thin_gradients ? " with the gradients,"
                                       : "",
                plan->thin_weights      ? ""
                : plan->zero_open       ? " (--zero 1: the GPUs have no memory for --zero 0)"
                : !plan->shared_weights ? ""
                : plan->nodes > 1       ? " on one copy of the weights a node"
                                        : " on one copy of the weights");
    fputc('\n', out);
}
