/* SPDX-License-Identifier: MIT
 *
 * Training as ddp.h offers it: with a loop of the caller's, or of ours. */
#include "config.h"

#include "train/loop.h"

#include "core/log.h"
#include "core/memory.h"
#include "job/job.h"
#include "train/best.h"
#include "train/hooks.h"
#include "plan/config_file.h"
#include "plan/weights.h"
#include "train/predict.h"
#include "generate/sample.h"
#include "train/tensors.h"
#include "generate/texts.h"
#include "train/tokenize.h"
#include "train/verify.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ddp_train {
    struct ddp_train_options options; /* as they were set */
    struct ddp_config_words words;    /* of a file with options */
    struct ddp_model custom;          /* of ddp_train_set_model() */
    struct ddp_data data, test;       /* of ddp_train_set_data() */
    struct ddp_hooks hooks;
    /* A run that is open: */
    bool open;
    pid_t process;          /* that has opened it, */
    ddp_train *next;        /* ... and the run that it had opened before */
    enum ddp_status failed; /* the first failure */
    struct ddp_train_options running;
    struct ddp_run run;
    struct ddp_step step;
    struct ddp_evaluation evaluation;
};

/* Most calls are not for hooks, which a step or an evaluation waits for. Says so, then. */
static bool is_in_hook(const ddp_train *train, const char *call)
{
    if (train->run.hook)
        (void)ddp_fail(DDP_ERR_INVALID, "%s() cannot be called from the hook %s", call,
                       train->run.hook);
    return train->run.hook != NULL;
}

/* The status of an operation of the run; a failure is kept for its end. */
static enum ddp_status note(ddp_train *train, enum ddp_status status)
{
    if (status != DDP_OK && train->failed == DDP_OK)
        train->failed = status;
    return status;
}

/* --- runs that are open ----------------------------------------------------------------------- */

static ddp_train *open_runs;
static pthread_mutex_t open_runs_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The program has done with an open run. The other ranks would wait for this one. */
static void leave(const ddp_train *train, const char *how)
{
    if (train->failed == DDP_OK)
        (void)ddp_fail(DDP_ERR_ABORTED,
                       "the program %s after step %" PRId64
                       " without ddp_train_close(), which prints and saves the results",
                       how, train->run.step);
    if (train->run.job)
        ddp_job_abort(train->run.job);
}

static void leave_all(void)
{
    ddp_log_hold(NULL, 0); /* a read function may have called exit() */
    pthread_mutex_lock(&open_runs_mutex);
    for (const ddp_train *train = open_runs; train; train = train->next)
        if (train->process == getpid()) /* not that of a parent */
            leave(train, "exits");
    pthread_mutex_unlock(&open_runs_mutex);
}

static void set_open(ddp_train *train)
{
    static bool at_exit;
    pthread_mutex_lock(&open_runs_mutex);
    at_exit = at_exit || atexit(leave_all) == 0;
    train->open = true;
    train->process = getpid();
    train->next = open_runs;
    open_runs = train;
    pthread_mutex_unlock(&open_runs_mutex);
}

static void set_closed(ddp_train *train)
{
    ddp_train **at = &open_runs;
    pthread_mutex_lock(&open_runs_mutex);
    while (*at != train)
        at = &(*at)->next;
    *at = train->next;
    train->open = false;
    pthread_mutex_unlock(&open_runs_mutex);
}

/* --- its options ------------------------------------------------------------------------------ */

enum ddp_status ddp_train_create(ddp_train **train)
{
    ddp_job_share_errors();
    ddp_train *t = ddp_array_alloc(1, sizeof *t);
    if (!t)
        return DDP_ERR_MEMORY;
    ddp_train_options_default(&t->options);
    *train = t;
    return DDP_OK;
}

void ddp_train_destroy(ddp_train *train)
{
    if (train && is_in_hook(train, "ddp_train_destroy")) {
        (void)note(train, DDP_ERR_INVALID);
        return;
    }
    if (train && train->open) {
        leave(train, "destroys its training run");
        ddp_train_close(train, DDP_ERR_ABORTED);
    }
    if (train)
        ddp_config_words_free(&train->words);
    free(train);
}

enum ddp_status ddp_train_parse(ddp_train *train, int argc, char *const *argv)
{
    int rest;
    const enum ddp_status status = ddp_options_parse(
        ddp_train_option_table(), &train->options, &train->options.given, argc, argv, false, &rest);
    return status == DDP_OK ? ddp_config_file_apply(&train->options, &train->words) : status;
}

enum ddp_status ddp_train_set(ddp_train *train, const char *name, const char *value)
{
    return ddp_options_set(ddp_train_option_table(), &train->options, &train->options.given, name,
                           value);
}

void ddp_train_set_model(ddp_train *train, const char *name, ddp_model_builder *build, void *arg)
{
    train->custom = ddp_model_custom;
    train->custom.name = name;
    train->options.model = &train->custom;
    train->options.custom = true;
    ddp_model_custom_set(&train->options.models[DDP_MODELS - 1], build, arg);
}

enum ddp_status ddp_train_set_data(ddp_train *train, const struct ddp_data *training,
                                   const struct ddp_data *test)
{
    struct ddp_data own, own_test = {.count = 0};
    enum ddp_status status = ddp_dataset_take_own(&own, training, DDP_DATASET_OWN);
    if (status == DDP_OK && own.classes > 0 && own.label_count == 0)
        status = ddp_fail(DDP_ERR_INVALID,
                          DDP_DATASET_OWN ": there are classes, and label_count is 0: it is 1 for "
                                          "a class of each sample");
    if (status == DDP_OK && test)
        status = ddp_dataset_take_own(&own_test, test, DDP_DATASET_OWN_TEST);
    if (status != DDP_OK)
        return status;
    train->data = own;
    train->test = own_test;
    train->options.own_data = &train->data;
    train->options.own_test = test ? &train->test : NULL;
    return DDP_OK;
}

enum ddp_status ddp_train_set_hooks(ddp_train *train, const struct ddp_hooks *hooks)
{
    if (train->open)
        return ddp_fail(DDP_ERR_INVALID, "the run is open: set its hooks before ddp_train_open()");
    return ddp_hooks_take(&train->hooks, hooks);
}

bool ddp_train_accepts_stop(const ddp_train *train)
{
    return ddp_train_options_accept_stop(&train->options);
}

void ddp_train_help(FILE *out)
{
    ddp_options_help(ddp_train_option_table(), out);
}

void ddp_train_help_short(FILE *out)
{
    ddp_options_help_short(ddp_train_option_table(), out);
}

/* --- a run ------------------------------------------------------------------------------------ */

static enum ddp_status open_run(ddp_train *train, FILE *out, bool own_loop)
{
    train->running = train->options;
    train->run = (struct ddp_run){.planned = {.options = &train->running},
                                  .out = out,
                                  .own_loop = own_loop,
                                  .own_rate = NAN,
                                  .train = train,
                                  .hooks = &train->hooks};
    train->failed = DDP_OK;
    set_open(train);
    const char *name = train->custom.name;
    if (train->options.custom && (!name || !*name || strpbrk(name, " \t\n=")))
        return ddp_fail(DDP_ERR_INVALID, "ddp_train_set_model: the name \"%s\" is not one word",
                        name ? name : "");
    if (ddp_train_evaluates_only(&train->running))
        ddp_run_drop_training(&train->running);
    return ddp_run_open(&train->run);
}

/* Closes what is open.
 *   status  of everything before */
static enum ddp_status close_run(ddp_train *train, enum ddp_status status)
{
    struct ddp_run *run = &train->run;
    const bool stopped = status == DDP_ERR_PREEMPTED;
    ddp_train_metrics_close(run->metrics, status);
    if (stopped)
        status = DDP_OK;
    if (status == DDP_OK)
        status = ddp_comm_barrier(run->comm); /* no rank leaves while another may still fail */
    if (status == DDP_OK && run->out && (fflush(run->out) != 0 || ferror(run->out)))
        status = ddp_fail(DDP_ERR_IO, "cannot write the results to standard output");
    if (status != DDP_OK && status != DDP_ERR_ABORTED && run->job)
        ddp_job_abort(run->job);
    if (status == DDP_OK)
        ddp_job_report(run->job, "done", run->end_step > 0 ? run->end_step - 1 : 0);
    run->complete = status == DDP_OK;
    run->stopped = stopped;
    /* After a failure the board keeps the phase it happened in, for the launcher to show. */
    set_closed(train);
    ddp_run_close(run);
    return status == DDP_OK && stopped ? DDP_ERR_PREEMPTED : status;
}

static enum ddp_status need_open(const ddp_train *train)
{
    if (!train->open)
        return ddp_fail(DDP_ERR_INVALID, "the run is not open: call ddp_train_open() first");
    return train->failed == DDP_OK ? DDP_OK
                                   : ddp_fail(train->failed,
                                              "the run has failed or was stopped before (%s): call "
                                              "ddp_train_close()",
                                              ddp_status_string(train->failed));
}

/* For what a hook cannot call. */
static enum ddp_status need_free(const ddp_train *train, const char *call)
{
    return is_in_hook(train, call) ? DDP_ERR_INVALID : need_open(train);
}

/* For what a hook cannot call that runs on one rank alone. */
static enum ddp_status need_all(const ddp_train *train, const char *call)
{
    return train->run.hook_alone ? need_free(train, call) : need_open(train);
}

static enum ddp_status open_training(ddp_train *train, FILE *out, bool own_loop)
{
    enum ddp_status status = open_run(train, out, own_loop);
    if (status == DDP_OK)
        status = ddp_run_list_tensors(&train->run);
    if (status == DDP_OK)
        status = ddp_run_begin(&train->run);
    if (status == DDP_OK)
        status = ddp_run_restore_own(&train->run);
    return note(train, status);
}

enum ddp_status ddp_train_open(ddp_train *train, FILE *out)
{
    const struct ddp_train_options *options = &train->options;
    if (train->open)
        return ddp_fail(DDP_ERR_INVALID, "the run is open already: call ddp_train_close() first");
    if (options->generate || options->plan || ddp_train_evaluates_only(options))
        return ddp_fail(DDP_ERR_INVALID, "--%s does not train: it needs ddp_train_run()",
                        options->generate    ? "generate"
                        : options->plan      ? "plan"
                        : options->eval_only ? "eval-only"
                                             : "predict");
    return open_training(train, out, true);
}

int ddp_train_rank(const ddp_train *train)
{
    return train->run.planned.plan.rank;
}

int64_t ddp_train_steps_left(const ddp_train *train)
{
    const struct ddp_run *run = &train->run;
    const bool goes_on = train->open && train->failed == DDP_OK;
    return goes_on && run->step < run->end_step ? run->end_step - run->step : 0;
}

enum ddp_status ddp_train_step(ddp_train *train, const struct ddp_step **step)
{
    struct ddp_run *run = &train->run;
    enum ddp_status status = need_free(train, "ddp_train_step");
    if (status == DDP_OK && ddp_train_steps_left(train) == 0)
        status = ddp_fail(DDP_ERR_INVALID, "all %" PRId64 " steps are done", run->step);
    if (status == DDP_OK)
        status = note(train, ddp_run_step(run));
    if (status != DDP_OK)
        return status;
    const struct ddp_train_event *event = ddp_train_metrics_last(run->metrics);
    train->step = (struct ddp_step){
        .number = run->step,
        .epoch = event->epoch,
        .samples = (int64_t)event->samples,
        .loss = event->loss,
        .rate = event->rate,
        .gradient_norm = event->gradient_norm,
        .seconds = event->seconds,
        .evaluate = run->evaluator && ddp_run_evaluation_due(run, run->step),
    };
    status = note(train, ddp_run_after_step(run, &train->step));
    if (status == DDP_OK)
        *step = &train->step;
    return status;
}

void ddp_train_set_rate(ddp_train *train, double rate)
{
    struct ddp_run *run = &train->run;
    if (rate != run->own_rate)
        run->saved_step = -1; /* a checkpoint of this step has another rate */
    run->own_rate = rate;
}

enum ddp_status ddp_train_evaluate(ddp_train *train, const struct ddp_evaluation **evaluation)
{
    struct ddp_run *run = &train->run;
    struct ddp_train_scores scores;
    enum ddp_status status = need_free(train, "ddp_train_evaluate");
    if (status == DDP_OK && !run->evaluator)
        return ddp_fail(DDP_ERR_INVALID,
                        "there is nothing to evaluate on: %s has no test set with labels",
                        ddp_dataset_where(ddp_dataset_info(run->planned.data)));
    if (status == DDP_OK)
        status = note(train, ddp_run_evaluate(run, run->step, &scores));
    if (status != DDP_OK)
        return status;
    train->evaluation = (struct ddp_evaluation){
        .samples = scores.samples,
        .loss = scores.loss,
        .accuracy = scores.accuracy,
        .perplexity = scores.has_perplexity ? scores.perplexity : NAN,
        .bits_per_byte = scores.has_bits_per_byte ? scores.bits_per_byte : NAN,
        .best_number = run->best.step,
        .best_loss = run->best.step > 0 ? run->best.loss : NAN,
        .since_best = run->best.since,
    };
    status = note(train, ddp_run_after_evaluation(run, &train->evaluation));
    if (status == DDP_OK)
        *evaluation = &train->evaluation;
    return status;
}

enum ddp_status ddp_train_checkpoint(ddp_train *train)
{
    struct ddp_run *run = &train->run;
    enum ddp_status status = need_free(train, "ddp_train_checkpoint");
    if (status == DDP_OK && !run->planned.options->checkpoint)
        return ddp_fail(DDP_ERR_INVALID, "no directory is named for checkpoints: set --checkpoint");
    if (status == DDP_OK && run->step != run->saved_step)
        status = note(train, ddp_run_checkpoint(run, run->step));
    return status;
}

enum ddp_status ddp_train_save(ddp_train *train, const char *path)
{
    enum ddp_status status = need_all(train, "ddp_train_save");
    if (status == DDP_OK && (!path || !*path))
        return ddp_fail(DDP_ERR_INVALID, "ddp_train_save(): no file is named");
    return status == DDP_OK ? note(train, ddp_run_save(&train->run, path, false)) : status;
}

const struct ddp_train_tensor *ddp_train_tensor(const ddp_train *train, int i)
{
    const struct ddp_run *run = &train->run;
    const bool known = train->open && run->tensors;
    return known && i >= 0 && i < ddp_graph_parameter_count(run->planned.graph) ? &run->tensors[i]
                                                                                : NULL;
}

enum ddp_status ddp_train_get_weights(ddp_train *train, const char *name, float *values,
                                      size_t count)
{
    const bool local = ddp_train_plan_stage_workers(&train->run.planned.plan) == 1 &&
                       !(train->open && ddp_mode_lacks_weights(train->run.mode));
    enum ddp_status status = local ? need_open(train) : need_all(train, "ddp_train_get_weights");
    return status == DDP_OK ? ddp_run_get_weights(&train->run, name, values, count) : status;
}

enum ddp_status ddp_train_put_weights(ddp_train *train, const char *name, const float *values,
                                      size_t count)
{
    enum ddp_status status = need_all(train, "ddp_train_put_weights");
    return status == DDP_OK ? ddp_run_put_weights(&train->run, name, values, count) : status;
}

enum ddp_status ddp_train_get_gradients(ddp_train *train, const char *name, float *values,
                                        size_t count)
{
    enum ddp_status status = need_all(train, "ddp_train_get_gradients");
    return status == DDP_OK ? ddp_run_get_gradients(&train->run, name, values, count) : status;
}

enum ddp_status ddp_train_close(ddp_train *train, enum ddp_status status)
{
    if (!train->open)
        return status;
    if (is_in_hook(train, "ddp_train_close"))
        return DDP_ERR_INVALID;
    if (train->failed != DDP_OK && (status == DDP_OK || train->failed != DDP_ERR_PREEMPTED))
        status = train->failed; /* the cause of what came later */
    if (status == DDP_OK || (status == DDP_ERR_PREEMPTED && train->failed == status))
        status = ddp_run_end(&train->run, status);
    return close_run(train, status);
}

/* The steps of a run, and evaluations when they are due. */
static enum ddp_status run_steps(ddp_train *train)
{
    const struct ddp_step *step;
    const struct ddp_evaluation *evaluation;
    enum ddp_status status = DDP_OK;
    if (train->run.evaluator && ddp_train_steps_left(train) == 0) /* complete: only the result */
        status = ddp_train_evaluate(train, &evaluation);
    while (status == DDP_OK && ddp_train_steps_left(train) > 0) {
        status = ddp_train_step(train, &step);
        if (status == DDP_OK && step->evaluate)
            status = ddp_train_evaluate(train, &evaluation);
    }
    return status;
}

/* With the file that --load stands for. */
static enum ddp_status generate(const struct ddp_train_options *options, FILE *out)
{
    struct ddp_train_options found = *options;
    struct ddp_load load = {0};
    ddp_tokenizer *tokenizer = NULL;
    enum ddp_status status = ddp_load_find(&load, options, true);
    found.load = load.file;
    found.adapters = load.adapters;
    if (status == DDP_OK)
        status = ddp_train_open_tokenizer(&tokenizer, options, true);
    if (status == DDP_OK)
        status = ddp_train_sample(&found, tokenizer, out);
    ddp_tokenizer_close(tokenizer);
    ddp_load_close(&load);
    return status;
}

/* Of several workers rank 0 does it: it is not cut up. */
static enum ddp_status alone(const struct ddp_train_options *options, FILE *out,
                             enum ddp_status (*work)(const struct ddp_train_options *options,
                                                     FILE *out))
{
    ddp_job *job = NULL;
    enum ddp_status status = ddp_job_open(&job);
    if (status == DDP_OK)
        ddp_job_sole_output(job);
    if (status == DDP_OK && ddp_job_rank(job) == 0)
        status = work(options, out);
    ddp_job_close(job);
    return status;
}

enum ddp_status ddp_train_tokenize(ddp_train *train, const char *in, const char *to, FILE *out)
{
    struct ddp_train_options options = train->options;
    options.tokenize_in = in;
    options.tokenize_out = to;
    return alone(&options, out, ddp_tokenize);
}

static enum ddp_status fail_open(void)
{
    return ddp_fail(DDP_ERR_INVALID, "the run is open: call ddp_train_close() first");
}

/* The steps up to the one that is compared last. */
static enum ddp_status compute_again(ddp_train *train, struct ddp_verify *verify, FILE *out)
{
    struct ddp_run *run = &train->run;
    enum ddp_status status = open_training(train, out, false);
    if (status == DDP_OK)
        status = ddp_verify_begin(verify, run);
    while (status == DDP_OK && run->step < verify->history.step) {
        status = ddp_run_step(run);
        if (status == DDP_OK)
            status = ddp_verify_step(verify, run);
    }
    if (status == DDP_OK)
        ddp_verify_print(verify, run);
    return close_run(train, status);
}

enum ddp_status ddp_train_verify(ddp_train *train, const char *log, FILE *out)
{
    const struct ddp_train_options options = train->options;
    struct ddp_verify verify;
    if (train->open)
        return fail_open();
    enum ddp_status status = ddp_verify_open(&verify, log, &train->options);
    if (status == DDP_OK)
        status = compute_again(train, &verify, out);
    train->options = options;
    ddp_verify_close(&verify);
    return status;
}

enum ddp_status ddp_train_run(ddp_train *train, FILE *out)
{
    const struct ddp_train_options *options = &train->options;
    enum ddp_status status;
    if (train->open)
        return fail_open();
    if (options->verify_step)
        return ddp_fail(DDP_ERR_INVALID, "--step belongs to trainer verify LOG; to train so many "
                                         "steps, use --steps");
    if (options->generate)
        return alone(options, out, generate);
    if (ddp_planned_converts(options))
        return alone(options, out, ddp_planned_convert);
    if (options->plan || ddp_train_evaluates_only(options)) {
        status = open_run(train, out, false);
        if (status == DDP_OK && options->plan)
            status = ddp_run_print_plan(&train->run);
        else if (status == DDP_OK && (status = ddp_run_begin(&train->run)) == DDP_OK)
            status = ddp_run_without_training(&train->run);
        return close_run(train, status);
    }
    status = open_training(train, out, false);
    if (status == DDP_OK)
        status = run_steps(train);
    return ddp_train_close(train, status);
}
