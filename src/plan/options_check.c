/* SPDX-License-Identifier: MIT
 *
 * What was given of the options, and what does not go together of those that are valid each by
 * itself: some exclude or need each other and are refused, others have no effect. See options.h. */
#include "config.h"

#include "plan/options.h"

#include "core/log.h"

#include <inttypes.h>
#include <string.h>

/* --- what was given --------------------------------------------------------------------------- */

bool ddp_train_given(const struct ddp_train_options *options, const char *name)
{
    return ddp_options_given(ddp_train_option_table(), &options->given, name);
}

const char *ddp_train_given_of(const struct ddp_train_options *options, unsigned scope)
{
    const struct ddp_option *row =
        ddp_options_given_of(ddp_train_option_table(), &options->given, scope);
    return row ? row->name : NULL;
}

const union ddp_model_own *ddp_train_model_own(const struct ddp_train_options *options)
{
    int i = 0;
    while (ddp_model_at(i) && !ddp_model_same(ddp_model_at(i), options->model))
        i++;
    return &options->models[options->custom ? DDP_MODELS - 1 : ddp_model_options_of(i)];
}

bool ddp_train_options_accept_stop(const struct ddp_train_options *options)
{
    return options->checkpoint && !options->generate && !options->plan &&
           !ddp_train_evaluates_only(options);
}

bool ddp_train_evaluates_only(const struct ddp_train_options *options)
{
    return options->eval_only || options->predict;
}

/* --- one task or the other -------------------------------------------------------------------- */

/* One line for all options that have no effect: those with any of these scopes, or without. */
static void warn_idle(const struct ddp_train_options *options, unsigned scopes, bool with,
                      const char *task)
{
    char list[1024] = "";
    size_t used = 0;
    int count = 0;
    for (const struct ddp_option *row = ddp_train_option_table(); row->name; row++)
        if (ddp_train_given(options, row->name) && ((row->scope & scopes) != 0) == with &&
            !strstr(row->name, DDP_OPTION_PART) && used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s--%s", count ? ", " : "",
                                     row->name);
            count++;
        }
    if (count > 0)
        ddp_log(DDP_LOG_WARNING, "%s %s no effect with --%s, which trains nothing", list,
                count == 1 ? "has" : "have", task);
}

/* --- two that do not go together, or not without each other ----------------------------------- */

/* What stands for data in a plan, and in nothing else. */
static enum ddp_status check_shape(const struct ddp_train_options *options)
{
    const char *name = ddp_train_given_of(options, DDP_OF_PLAN);
    if (name && !options->plan)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s is for --plan, which needs no data: training takes --data", name);
    if (name && options->model == &ddp_model_article)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s: the model article draws its own samples; leave it out", name);
    return DDP_OK;
}

static enum ddp_status check_own_data(const struct ddp_train_options *options)
{
    const char *name = options->own_data ? ddp_train_given_of(options, DDP_OF_DATA) : NULL;
    const bool shape = options->plan && options->shape_count > 0;
    if (options->custom && !options->own_data && !options->data && !options->dataset && !shape)
        return ddp_fail(DDP_ERR_INVALID,
                        "the program's model %s has no data: call ddp_train_set_data(), or give "
                        "--data PATH",
                        options->model->name);
    return name ? ddp_fail(DDP_ERR_INVALID,
                           "--%s: this program has data of its own, with ddp_train_set_data(): "
                           "leave --%s out",
                           name, name)
                : DDP_OK;
}

enum ddp_status ddp_train_check_pairs(const struct ddp_train_options *options)
{
    if (ddp_options_check(ddp_train_option_table(), &options->given) != DDP_OK)
        return DDP_ERR_INVALID;
    if (options->resume_from && options->load && !ddp_train_given(options, "lora") &&
        !ddp_objective_refers(&options->objective) && !options->adapters &&
        !options->verify_step) /* whose checkpoints are without their base */
        return ddp_fail(DDP_ERR_INVALID, "--resume-from and --load exclude each other: give one");
    if (check_own_data(options) != DDP_OK)
        return DDP_ERR_INVALID;
    const char *evaluation = ddp_train_given_of(options, DDP_OF_EVALUATION);
    if (evaluation && !options->evaluate)
        return ddp_fail(DDP_ERR_INVALID, "--%s and --no-eval exclude each other: give one",
                        evaluation);
    if (options->extend && !options->resume && !options->resume_from)
        return ddp_fail(
            DDP_ERR_INVALID,
            "--extend plans a resumed run anew: it needs --resume or --resume-from DIR");
    return DDP_OK;
}

enum ddp_status ddp_train_check_conversion(const struct ddp_train_options *options)
{
    for (const struct ddp_option *row = ddp_train_option_table(); row->name; row++)
        if (!(row->scope & (DDP_WITH_CONVERSION | DDP_OF_MACHINE)) &&
            ddp_train_given(options, row->name))
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s: --export without --data converts the model of --load, and "
                            "trains nothing: give --data too, or leave --%s out",
                            row->name, row->name);
    warn_idle(options, DDP_OF_MACHINE, true, "export alone");
    return DDP_OK;
}

enum ddp_status ddp_train_check_options(const struct ddp_train_options *options,
                                        const struct ddp_train_plan *plan)
{
    if (!plan && options->sample_every)
        return ddp_fail(DDP_ERR_INVALID,
                        "--generate N, which continues a text instead of training, "
                        "and --sample-every exclude each other: give one");
    if (!plan) {
        warn_idle(options, DDP_OF_TEXT | DDP_WITH_TEXT, false, "generate");
        return DDP_OK;
    }
    const char *of_text = ddp_train_given_of(options, DDP_OF_TEXT);
    if (of_text && !options->sample_every)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s belongs to --generate N, which continues a text instead of "
                        "training, or to --sample-every N: give one of them too, or none",
                        of_text);
    if (options->sample_every && !plan->model->context)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sample-every: only gpt2 and llama write texts, and the model is %s",
                        plan->model->name);
    if (options->dtype != DDP_TRAIN_FP16 && (ddp_train_given(options, "dtype ...,scale") ||
                                             ddp_train_given(options, "dtype ...,every")))
        return ddp_fail(DDP_ERR_INVALID,
                        "--dtype: scale= and every= belong to fp16, which scales the loss");
    enum ddp_status status = check_shape(options);
    if (status == DDP_OK)
        status = ddp_train_check_objective(options, plan);
    if (status != DDP_OK || plan->rank != 0)
        return status;
    if (ddp_train_evaluates_only(options))
        warn_idle(options, DDP_OF_TRAINING, true, options->eval_only ? "eval-only" : "predict");
    if (options->val && !options->evaluate)
        ddp_log(DDP_LOG_WARNING, "--val has no effect with --no-eval: nothing is evaluated");
    if (ddp_train_given(options, "weight-decay ...,on") && plan->optimizer.weight_decay == 0)
        ddp_log(DDP_LOG_WARNING, "--weight-decay 0,on= has no effect: nothing decays");
    return DDP_OK;
}

/* --- the number of steps ---------------------------------------------------------------------- */

static void warn_schedule(const struct ddp_train_options *options,
                          const struct ddp_train_plan *plan)
{
    const struct ddp_schedule *schedule = &plan->schedule;
    const int64_t steps = plan->total_steps;
    if (schedule->warmup_steps > steps)
        ddp_log(
            DDP_LOG_WARNING,
            "--warmup-steps: the warm-up of %" PRId64 " steps is longer than the run, of %" PRId64
            ": the learning rate rises to %.3g and never reaches %g",
            schedule->warmup_steps, steps, ddp_schedule_rate(schedule, steps - 1), schedule->rate);
    const int drops = options->milestones.count;
    if (drops > 0 && schedule->milestones[drops - 1] >= steps)
        ddp_log(DDP_LOG_WARNING,
                "--schedule ...,at=: the last one is at step %" PRId64 ", and the run has %" PRId64
                ": the learning rate does not fall there",
                schedule->milestones[drops - 1] + 1, steps);
    if (ddp_train_given(options, "schedule ...,every") && schedule->step_size >= steps)
        ddp_log(DDP_LOG_WARNING,
                "--schedule ...,every=: the first fall is at step %" PRId64
                ", and the run has %" PRId64 ": the learning rate never falls",
                schedule->step_size + 1, steps);
}

void ddp_train_check_length(const struct ddp_train_options *options,
                            const struct ddp_train_plan *plan)
{
    const int64_t steps = plan->total_steps;
    if (plan->rank != 0 || ddp_train_evaluates_only(options))
        return;
    warn_schedule(options, plan);
    if (options->report.trace && options->report.trace_first > steps)
        ddp_log(DDP_LOG_WARNING,
                "--trace ...,steps= begins at %" PRId64 ", and the run ends after step %" PRId64
                ": the trace shows none",
                options->report.trace_first, steps);
    if (plan->local.every > 1 && plan->local.from >= steps)
        ddp_log(DDP_LOG_WARNING,
                "--sync-every ...,from=%" PRId64 ": the run ends after step %" PRId64
                ": no step is local",
                plan->local.from, steps);
}
