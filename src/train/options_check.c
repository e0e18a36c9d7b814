/* SPDX-License-Identifier: MIT
 *
 * Options that are valid each by itself: some exclude or need each other and are refused, others
 * have no effect together. See options.h. */
#include "config.h"

#include "train/options.h"

#include "core/log.h"

#include <inttypes.h>
#include <string.h>

/* --- one task or the other -------------------------------------------------------------------- */

/* What generating takes, alone or in between training ... */
static const char *const generation[] = {"prompt", "temperature", "top-k", "samples", "stop", NULL};
/* ... and what it shares with training. */
static const char *const shared[] = {
    "generate", "model", "load",      "seed",          "device",   "devices",      "threads",
    "verbose",  "quiet", "tokenizer", "chat-template", "adapters", "frozen-dtype", NULL};

static bool contains(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* What training does besides. */
static const char *const training[] = {
    "save",   "export",       "checkpoint-every", "keep",     "keep-best",
    "extend", "sample-every", "eval-every",       "patience", "check-replicas",
    "merge",  "export-dtype", "shard-size",       NULL};

/* Where --export converts a model: what it takes, and what would say how to compute. */
static const char *const conversion[] = {
    "load",         "adapters",     "merge", "export", "shard-size", "export-format",
    "export-dtype", "frozen-dtype", "model", "quiet",  "verbose",    NULL};
static const char *const computing[] = {"device", "devices", "threads", "data-threads", NULL};

/* Has this option no effect with --generate, with --export alone, with the others that train
 * nothing? */
static bool is_idle_generating(const char *name)
{
    return !contains(generation, name) && !contains(shared, name);
}

static bool is_idle_converting(const char *name)
{
    return contains(computing, name);
}

static bool is_idle_evaluating(const char *name)
{
    return contains(training, name);
}

/* One line for all options of training. */
static void warn_idle(const struct ddp_train_options *options, bool (*is_idle)(const char *name),
                      const char *task)
{
    char list[1024] = "";
    size_t used = 0;
    int count = 0;
    for (const struct ddp_option *row = ddp_train_option_table(); row->name; row++)
        if (ddp_train_given(options, row->name) && is_idle(row->name) && used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s--%s", count ? ", " : "",
                                     row->name);
            count++;
        }
    if (count > 0)
        ddp_log(DDP_LOG_WARNING, "%s %s no effect with --%s, which trains nothing", list,
                count == 1 ? "has" : "have", task);
}

/* --- two that do not go together, or not without each other ----------------------------------- */

static const char *const excluding[][2] = {
    {"steps", "epochs"},
    {"config", "size"},
    {"val", "val-split"},
    {"warmup-steps", "warmup-epochs"},
    {"lr-step-size", "lr-milestones"},
    {"shape", "data"},
    {"shape", "seq-len"},
    {"classes", "data"},
    {"shape", "resume"},
    {"shape", "resume-from"},
};

static const struct {
    const char *name, *needs, *argument;
} needing[] = {
    {"checkpoint-every", "checkpoint", "DIR"}, {"keep", "checkpoint", "DIR"},
    {"resume", "checkpoint", "DIR"},           {"export-format", "export", "FILE"},
    {"trace-steps", "trace", "FILE"},          {"keep-best", "checkpoint", "DIR"},
    {"sample-length", "sample-every", "N"},
};

/* What an evaluation decides or needs. */
static const char *const of_evaluation[] = {"eval-only", "eval-every", "eval-steps",
                                            "patience",  "keep-best",  NULL};

const char *ddp_train_evaluation_option(const struct ddp_train_options *options)
{
    int i = 0;
    while (of_evaluation[i] && !ddp_train_given(options, of_evaluation[i]))
        i++;
    return of_evaluation[i];
}

/* What stands for data in a plan, and in nothing else. */
static enum ddp_status check_shape(const struct ddp_train_options *options)
{
    static const char *const names[] = {"shape", "classes"};
    for (int i = 0; i < 2; i++)
        if (ddp_train_given(options, names[i]) && !options->plan)
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s is for --plan, which needs no data: training takes --data",
                            names[i]);
        else if (ddp_train_given(options, names[i]) && options->model == &ddp_model_article)
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s: the model article draws its own samples; leave it out",
                            names[i]);
    return DDP_OK;
}

/* What says where the data are, or what. */
static const char *const of_data[] = {"data",       "dataset",      "val",        "shape",
                                      "classes",    "seq-len",      "tokens",     "vocab-size",
                                      "image-size", "data-size",    "tokenizer",  "chat-template",
                                      "packing",    "long-samples", "show-masks", NULL};

static enum ddp_status check_own_data(const struct ddp_train_options *options)
{
    for (int i = 0; options->own_data && of_data[i]; i++)
        if (ddp_train_given(options, of_data[i]))
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s: this program has data of its own, with ddp_train_set_data(): "
                            "leave --%s out",
                            of_data[i], of_data[i]);
    const bool shape = options->plan && (options->shape_count > 0 || options->classes > 0);
    if (options->custom && !options->own_data && !options->data && !options->dataset && !shape)
        return ddp_fail(DDP_ERR_INVALID,
                        "the program's model %s has no data: call ddp_train_set_data(), or give "
                        "--data PATH",
                        options->model->name);
    return DDP_OK;
}

enum ddp_status ddp_train_check_pairs(const struct ddp_train_options *options)
{
    for (size_t i = 0; i < sizeof excluding / sizeof excluding[0]; i++)
        if (ddp_train_given(options, excluding[i][0]) && ddp_train_given(options, excluding[i][1]))
            return ddp_fail(DDP_ERR_INVALID, "--%s and --%s exclude each other: give one",
                            excluding[i][0], excluding[i][1]);
    if (options->resume_from && options->load && !ddp_train_given(options, "lora") &&
        !options->adapters) /* whose checkpoints are without their base */
        return ddp_fail(DDP_ERR_INVALID, "--resume-from and --load exclude each other: give one");
    for (size_t i = 0; i < sizeof needing / sizeof needing[0]; i++)
        if (ddp_train_given(options, needing[i].name) &&
            !ddp_train_given(options, needing[i].needs))
            return ddp_fail(DDP_ERR_INVALID, "--%s needs --%s %s", needing[i].name,
                            needing[i].needs, needing[i].argument);
    if (check_own_data(options) != DDP_OK)
        return DDP_ERR_INVALID;
    const char *evaluation = ddp_train_evaluation_option(options);
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
        if (ddp_train_given(options, row->name) && !contains(conversion, row->name) &&
            !contains(computing, row->name))
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s: --export without --data converts the model of --load, and "
                            "trains nothing: give --data too, or leave --%s out",
                            row->name, row->name);
    warn_idle(options, is_idle_converting, "export alone");
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
        warn_idle(options, is_idle_generating, "generate");
        return DDP_OK;
    }
    for (int i = 0; generation[i] && !options->sample_every; i++)
        if (ddp_train_given(options, generation[i]))
            return ddp_fail(DDP_ERR_INVALID,
                            "--%s belongs to --generate N, which continues a text instead of "
                            "training, or to --sample-every N: give one of them too, or none",
                            generation[i]);
    if (options->sample_every && !plan->model->context)
        return ddp_fail(DDP_ERR_INVALID,
                        "--sample-every: only gpt2 and llama write texts, and the model is %s",
                        plan->model->name);
    enum ddp_status status = check_shape(options);
    if (status != DDP_OK || plan->rank != 0)
        return status;
    if (ddp_train_evaluates_only(options))
        warn_idle(options, is_idle_evaluating, options->eval_only ? "eval-only" : "predict");
    if (options->val && !options->evaluate)
        ddp_log(DDP_LOG_WARNING, "--val has no effect with --no-eval: nothing is evaluated");
    if (ddp_train_given(options, "decay-on") && plan->optimizer.weight_decay == 0)
        ddp_log(DDP_LOG_WARNING,
                "--decay-on has no effect: the weight decay is 0; set it with --weight-decay");
    return DDP_OK;
}

/* --- the number of steps ---------------------------------------------------------------------- */

static void warn_schedule(const struct ddp_train_options *options,
                          const struct ddp_train_plan *plan)
{
    const struct ddp_schedule *schedule = &plan->schedule;
    const int64_t steps = plan->total_steps;
    if (schedule->warmup_steps > steps)
        ddp_log(DDP_LOG_WARNING,
                "--warmup-%s: the warm-up of %" PRId64 " steps is longer than the run, of %" PRId64
                ": the learning rate rises to %.3g and never reaches %g",
                ddp_train_given(options, "warmup-epochs") ? "epochs" : "steps",
                schedule->warmup_steps, steps, ddp_schedule_rate(schedule, steps - 1),
                schedule->rate);
    if (options->milestone_count > 0 && schedule->milestones[options->milestone_count - 1] >= steps)
        ddp_log(DDP_LOG_WARNING,
                "--lr-milestones: the last one is at step %" PRId64 ", and the run has %" PRId64
                ": the learning rate does not fall there",
                schedule->milestones[options->milestone_count - 1] + 1, steps);
    if (ddp_train_given(options, "lr-step-size") && schedule->step_size >= steps)
        ddp_log(DDP_LOG_WARNING,
                "--lr-step-size: the first fall is at step %" PRId64 ", and the run has %" PRId64
                ": the learning rate never falls",
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
                "--trace-steps begins at %" PRId64 ", and the run ends after step %" PRId64
                ": the trace shows none",
                options->report.trace_first, steps);
    if (plan->local.every > 1 && plan->local.from >= steps)
        ddp_log(DDP_LOG_WARNING,
                "--local-from %" PRId64 ": the run ends after step %" PRId64 ": no step is local",
                plan->local.from, steps);
    if (options->check_replicas > steps)
        ddp_log(DDP_LOG_WARNING,
                "--check-replicas %" PRId64 ": the run ends after step %" PRId64
                ": nothing is compared",
                options->check_replicas, steps);
}
