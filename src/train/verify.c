/* SPDX-License-Identifier: MIT
 *
 * See verify.h. */
#include "config.h"

#include "train/verify.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/terminal.h"
#include "core/text.h"
#include "train/record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the options of the run ------------------------------------------------------------------- */

/* Where a run was computed, what it wrote and what it did beside its steps: nothing of this decides
 * the bits. The number of shards does, and is set by the log's. */
static const char *const dropped[] = {
    "mode",         "distributed",  "replicas",    "stages",       "cut",        "device",
    "devices",      "fast",         "threads",     "data-threads", "bucket-mb",  "zero",
    "acc-steps",    "global-batch", "save",        "export",       "resume",     "checkpoint-every",
    "keep",         "eval",         "val",         "eval-every",   "eval-steps", "patience",
    "sample-every", "prompt",       "temperature", "samples",      "stop",       "log-every",
    "log",          "hash-every",   "tensorboard", "trace",        "verbose",    "quiet",
    "show-masks",   "copy-every",
};

static bool is_dropped(const char *word)
{
    const char *name = word + 2;
    const size_t length = strcspn(name, "=");
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        if ((strlen(dropped[i]) == length && strncmp(dropped[i], name, length) == 0) ||
            (strncmp(name, "no-", 3) == 0 && strcmp(dropped[i], name + 3) == 0))
            return true;
    return false;
}

/* Sets options from an array of words.
 *   keeps_all  also those that are dropped */
static enum ddp_status set_words(struct ddp_train_options *options, const json_t *words,
                                 bool keeps_all)
{
    const json_t *word;
    size_t i;
    json_array_foreach(words, i, word)
    {
        char *const argv[] = {NULL, (char *)(uintptr_t)json_string_value(word)};
        enum ddp_status status = keeps_all || !is_dropped(argv[1])
                                     ? ddp_options_parse(ddp_train_option_table(), options,
                                                         &options->given, 2, argv, false, NULL)
                                     : DDP_OK;
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

static void forget(struct ddp_train_options *options, const char *name)
{
    ddp_options_forget(ddp_train_option_table(), &options->given, name);
}

/* Of the caller's and the log's. */
static enum ddp_status merge_options(struct ddp_verify *verify, struct ddp_train_options *options)
{
    const struct ddp_history *history = &verify->history;
    struct ddp_train_options merged;
    int64_t lanes;
    ddp_train_options_default(&merged);
    if (options->custom) {
        merged.model = options->model;
        merged.custom = true;
        merged.models[DDP_MODELS - 1] = options->models[DDP_MODELS - 1];
    }
    merged.own_data = options->own_data;
    merged.own_test = options->own_test;
    enum ddp_status status = set_words(&merged, history->options, false);
    merged.global_batch = history->shards * history->batch_size;
    merged.batch_size = history->batch_size; /* which the number of samples may have decided */
    ddp_options_mark(ddp_train_option_table(), &merged.given, "global-batch");
    ddp_options_mark(ddp_train_option_table(), &merged.given, "batch-size");
    if (ddp_parse_int64(ddp_checkpoint_fact_value(&history->facts, "lanes"), 1, DDP_TRAIN_LANES,
                        &lanes))
        merged.lanes = lanes;
    const char *resumed = merged.resume_from;
    merged.resume_from = NULL;
    forget(&merged, "resume-from");
    if (status == DDP_OK)
        status = set_words(&merged, verify->own_words, true);
    if (status == DDP_OK && !merged.resume_from) {
        verify->places[0] = merged.checkpoint;
        verify->places[1] = resumed;
    }
    merged.checkpoint = NULL; /* it is read, and not written */
    forget(&merged, "checkpoint");
    merged.evaluate = false;
    merged.verify_step = history->step;
    *options = merged;
    return status;
}

/* --- the checkpoint that it begins with ------------------------------------------------------- */

/* The last whole checkpoint of a directory before a step, and not before another; -1: none. */
static int64_t last_before(const char *path, int64_t first, int64_t end)
{
    struct ddp_checkpoint_dir dir = {.path = (char *)(uintptr_t)path};
    int64_t *steps = NULL, found = -1;
    size_t count = 0;
    dir.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir.fd < 0)
        return -1;
    if (ddp_checkpoint_dir_list(&dir, &steps, &count) == DDP_OK)
        for (size_t i = 0; i < count && found < 0; i++) /* the highest comes first */
            if (steps[i] >= first && steps[i] < end && ddp_checkpoint_looks_whole(dir.fd, steps[i]))
                found = steps[i];
    free(steps);
    close(dir.fd);
    return found;
}

static char *checkpoint_path(const char *place, int64_t step)
{
    char name[DDP_CHECKPOINT_NAME], *path = NULL;
    return asprintf(&path, "%s/%s", place, ddp_checkpoint_name(name, step)) < 0 ? NULL : path;
}

static enum ddp_status fail_to_begin(const struct ddp_verify *verify)
{
    const struct ddp_history *history = &verify->history;
    char shown[DDP_TEXT_SHOWN];
    return ddp_fail(DDP_ERR_INVALID,
                    "%s: cannot compute step %" PRId64 " again: its run was resumed after step "
                    "%" PRId64 ", and %s%s has no checkpoint from there up to step %" PRId64
                    ": give one with --resume-from DIR, or another --step",
                    history->path, history->step, history->first_step,
                    verify->places[0] ? "" : "no directory is named that ",
                    verify->places[0] ? ddp_text_show(shown, verify->places[0]) : "",
                    history->step - 1);
}

/* A run that was resumed begins with that checkpoint or a later one: what was before may have had
 * other options. */
static enum ddp_status find_begin(struct ddp_verify *verify, struct ddp_train_options *options)
{
    const struct ddp_history *history = &verify->history;
    int64_t best = -1;
    if (options->resume_from)
        return DDP_OK;
    for (int i = 0; i < 2; i++) {
        const int64_t step =
            verify->places[i] ? last_before(verify->places[i], history->first_step, history->step)
                              : -1;
        if (step > best) {
            free(verify->from);
            verify->from = checkpoint_path(verify->places[i], step);
            best = step;
        }
    }
    if (best < 0 && history->first_step > 0 && verify->places[1]) {
        verify->from = strdup(verify->places[1]); /* DIR/step-..., the one that it resumed from */
        best = history->first_step;
    }
    if (best < 0 && history->first_step > 0)
        return fail_to_begin(verify);
    if (best != history->first_step || best == 0)
        options->extend = false; /* it was, before */
    options->resume_from = verify->from;
    return DDP_OK;
}

static enum ddp_status refuse(const char *name)
{
    return ddp_fail(DDP_ERR_INVALID,
                    "--%s: verify computes steps of an earlier run again, and does nothing else: "
                    "leave --%s out",
                    name, name);
}

static enum ddp_status check_task(const struct ddp_train_options *options)
{
    if (options->generate || options->plan)
        return refuse(options->plan ? "plan" : "generate");
    if (ddp_train_evaluates_only(options))
        return refuse(options->eval_only ? "eval-only" : "predict");
    return DDP_OK;
}

/* It writes nothing. */
static enum ddp_status check_own(const struct ddp_train_options *options)
{
    const char *name = ddp_train_given_of(options, DDP_OF_TRAINING);
    if (name || options->resume)
        return refuse(name ? name : "resume");
    return check_task(options);
}

enum ddp_status ddp_verify_open(struct ddp_verify *verify, const char *log,
                                struct ddp_train_options *options)
{
    *verify = (struct ddp_verify){.compared = 0};
    enum ddp_status status = check_own(options);
    if (status == DDP_OK)
        status = ddp_record_options(&verify->own_words, options);
    if (status == DDP_OK)
        status = ddp_history_read(&verify->history, log, options->verify_step);
    if (status == DDP_OK)
        status = merge_options(verify, options);
    if (status == DDP_OK)
        status = check_task(options); /* the log may say anything */
    if (status == DDP_OK)
        status = find_begin(verify, options);
    return status;
}

void ddp_verify_close(struct ddp_verify *verify)
{
    ddp_history_free(&verify->history);
    json_decref(verify->own_words);
    free(verify->from);
}

/* --- whether it is the same run --------------------------------------------------------------- */

/* Another version or processor may compute other bits: that is said, in case they are. */
static void note_place(const struct ddp_history *history, const struct ddp_run *run)
{
    const json_t *versions = json_object_get(history->run, "versions");
    const char *version = json_string_value(json_object_get(versions, "ddprun"));
    const char *device =
        json_string_value(json_object_get(json_object_get(history->run, "config"), "device"));
    const char *now = ddp_device_name(ddp_mode_device(run->mode));
    if (version && strcmp(version, ddp_version()) != 0)
        ddp_log(DDP_LOG_WARNING, "%s was written by version %s, and this is %s", history->path,
                version, ddp_version());
    if (device && strcmp(device, now) != 0)
        ddp_log(DDP_LOG_WARNING, "%s was written on %s, and this is %s", history->path, device,
                now);
}

static enum ddp_status match(const struct ddp_verify *verify, const struct ddp_run *run)
{
    const struct ddp_history *history = &verify->history;
    const struct ddp_train_plan *plan = &run->planned.plan;
    struct ddp_checkpoint_facts facts;
    char *text = NULL;
    if (plan->local.every > 1 && plan->world_size != history->world_size)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: with --sync-every the weights depend on the number of workers: "
                        "compute it again on %" PRId64 ", as it was, instead of %d",
                        history->path, history->world_size, plan->world_size);
    ddp_run_collect_facts(run, &facts);
    enum ddp_status status = ddp_checkpoint_differences(&text, history->seed, &history->facts,
                                                        run->planned.options->seed, &facts);
    if (text)
        status = ddp_fail(DDP_ERR_INVALID, "%s: this would be another run than that of the log: %s",
                          history->path, text);
    free(text);
    return status;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* The first tensor whose hash is not the line's; -1: there is none. */
static int first_other(const struct ddp_weights_hash *hash, const json_t *line)
{
    const json_t *tensors = json_object_get(line, DDP_RECORD_TENSORS);
    char text[DDP_SHA256_TEXT];
    for (int i = 0; i < hash->count; i++) {
        const char *brief = json_string_value(json_array_get(tensors, (size_t)i));
        if (!brief || strcmp(brief, ddp_weights_hash_brief(text, hash, i)) != 0)
            return i;
    }
    return -1;
}

/* If there is a checkpoint of this step, it has the weights as they were: says more of the tensor.
 *   text [out]  of `size` bytes */
static void compare_values(const struct ddp_verify *verify, const struct ddp_run *run,
                           const struct ddp_parameter *tensor, char *text, size_t size)
{
    struct ddp_checkpoint checkpoint = {.path = NULL};
    char unsaid[512];
    float *then = ddp_array_alloc((size_t)ddp_graph_flat_count(run->planned.graph), sizeof *then);
    char *path = verify->places[0] ? checkpoint_path(verify->places[0], run->step) : NULL;
    text[0] = '\0';
    ddp_log_hold(unsaid, sizeof unsaid); /* it may be gone, or damaged */
    const bool there =
        then && path && access(path, F_OK) == 0 &&
        ddp_checkpoint_read(&checkpoint, path) == DDP_OK &&
        ddp_checkpoint_take(&checkpoint, run->planned.graph, NULL, 0,
                            ddp_graph_flat_count(run->planned.graph), then) == DDP_OK;
    ddp_log_hold(NULL, 0);
    const float *now = run->weights + tensor->offset;
    int64_t at = 0;
    while (there && at < tensor->count &&
           memcmp(&then[tensor->offset + at], &now[at], sizeof *now) == 0)
        at++;
    if (there && at < tensor->count)
        snprintf(text, size, ", element %" PRId64 ": %.9g in %s, and now %.9g", at,
                 (double)then[tensor->offset + at], path, (double)now[at]);
    else if (there)
        snprintf(text, size, ", which is the same in %s: the log's hash is the odd one", path);
    ddp_checkpoint_free(&checkpoint);
    free(path);
    free(then);
}

/* Collective. */
static enum ddp_status fail_here(const struct ddp_verify *verify, struct ddp_run *run,
                                 const struct ddp_weights_hash *hash, const json_t *line)
{
    const bool says = run->planned.plan.rank == 0;
    const int other = first_other(hash, line);
    char more[PATH_MAX + 256], where[64];
    enum ddp_status status = ddp_run_fetch_weights(run, says);
    if (status == DDP_OK && says) {
        const struct ddp_parameter *tensor = other < 0 ? NULL : hash->tensors[other];
        more[0] = '\0';
        if (tensor)
            compare_values(verify, run, tensor, more, sizeof more);
        if (run->step > run->first_step)
            snprintf(where, sizeof where, "after step %" PRId64, run->step);
        else
            snprintf(where, sizeof where, "%s", run->is_resumed ? "of the checkpoint" : "at first");
        ddp_train_metrics_pause(run->metrics);
        (void)ddp_fail(DDP_ERR_DIFFERS,
                       "%s: the weights %s are not those of the log; the first of %d tensors that "
                       "differs is %s%s",
                       verify->history.path, where, hash->count, tensor ? tensor->name : "none",
                       more);
    }
    if (status == DDP_OK)
        status = ddp_comm_barrier(run->comm); /* no rank ends the job before it is said */
    if (status == DDP_OK)
        status = says ? DDP_ERR_DIFFERS : DDP_ERR_ABORTED;
    return status;
}

static enum ddp_status compare(struct ddp_verify *verify, struct ddp_run *run)
{
    const json_t *line = ddp_history_hash(&verify->history, run->step);
    struct ddp_weights_hash hash;
    if (!line)
        return DDP_OK;
    enum ddp_status status = ddp_weights_hash_take(&hash, run);
    if (status == DDP_OK &&
        strcmp(hash.text, json_string_value(json_object_get(line, DDP_RECORD_WEIGHTS))) != 0)
        status = fail_here(verify, run, &hash, line);
    verify->compared += status == DDP_OK;
    ddp_weights_hash_free(&hash);
    return status;
}

enum ddp_status ddp_verify_begin(struct ddp_verify *verify, struct ddp_run *run)
{
    const struct ddp_history *history = &verify->history;
    enum ddp_status status = run->planned.plan.rank == 0 ? match(verify, run) : DDP_OK;
    if (status == DDP_OK && run->planned.plan.rank == 0)
        note_place(history, run);
    if (status == DDP_OK && (run->step < history->first_step || run->step >= history->step))
        status = ddp_fail(DDP_ERR_INVALID,
                          "%s: step %" PRId64 " of a run that began after step %" PRId64
                          " cannot be computed again from a checkpoint of step %" PRId64,
                          history->path, history->step, history->first_step, run->step);
    return status == DDP_OK ? compare(verify, run) : status;
}

enum ddp_status ddp_verify_step(struct ddp_verify *verify, struct ddp_run *run)
{
    ddp_train_metrics_begin_aside(run->metrics);
    enum ddp_status status = compare(verify, run);
    ddp_train_metrics_end_aside(run->metrics, "hash");
    return status;
}

void ddp_verify_print(const struct ddp_verify *verify, const struct ddp_run *run)
{
    char log[DDP_TEXT_SHOWN], from[DDP_TEXT_SHOWN];
    if (run->out)
        ddp_terminal_print(
            run->out,
            "%s: equal after step %" PRId64 ", computed again from %s; %" PRId64 " hash%s agreed\n",
            ddp_text_show(log, verify->history.path), run->step,
            run->is_resumed ? ddp_text_show(from, run->resumed.path) : "the beginning",
            verify->compared, verify->compared == 1 ? "" : "es");
}
