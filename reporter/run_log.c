/* SPDX-License-Identifier: MIT
 *
 * See run_log.h. Members and events that are not known are skipped: later versions add some. */
#include "config.h"

#include "reporter/run_log.h"

#include "core/input_file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT     1                  /* the highest that is known; logs before 0.5 name none */
#define METRICS    64                 /* of a run, at most */
#define STEP_LIMIT (INT64_C(1) << 53) /* that a double can hold */

struct reader {
    struct run_log *log;
    const char *name;
    size_t line, at; /* its number, and where it begins */
    bool quietly;
    struct log_run *run; /* the one that lines belong to; NULL: none yet */
};

static enum ddp_status fail_line(const struct reader *reader, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s:%zu: %s", reader->name, reader->line, what);
}

/* --- members ---------------------------------------------------------------------------------- */

/* gnuplot cannot draw what is larger. */
static double number_of(const json_t *object, const char *key)
{
    const json_t *member = json_object_get(object, key);
    const double value = json_is_number(member) ? json_number_value(member) : NAN;
    return fabs(value) < 1e300 ? value : NAN;
}

static int64_t count_of(const json_t *object, const char *key)
{
    const double value = number_of(object, key);
    return value >= 0 && value < (double)STEP_LIMIT ? (int64_t)value : 0;
}

static void text_of(char *to, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    ddp_text_clean(to, size, text ? text : "", text ? strlen(text) : 0);
}

/* Steps count from 1, and only `least` 0 admits what came before the first one. */
static bool read_step(const json_t *object, const char *key, int64_t least, int64_t *step)
{
    const json_t *value = json_object_get(object, key);
    *step = json_integer_value(value);
    return json_is_integer(value) && *step >= least && *step < STEP_LIMIT;
}

/* --- runs ------------------------------------------------------------------------------------- */

static void read_header(struct log_run *run, const json_t *object)
{
    static const char *const parts[MEMORY_PARTS] = {"weights", "gradients", "optimizer",
                                                    "activations"};
    const json_t *config = json_object_get(object, "config");
    const json_t *memory = json_object_get(object, "memory_bytes");
    text_of(run->model, sizeof run->model, config, "model");
    text_of(run->data, sizeof run->data, config, "data");
    text_of(run->mode, sizeof run->mode, config, "mode");
    text_of(run->device, sizeof run->device, config, "device");
    run->parameters = count_of(config, "parameters");
    run->batch_size = count_of(config, "batch_size");
    run->global_batch = count_of(config, "global_batch");
    run->total_steps = count_of(config, "total_steps");
    run->seed_low = count_of(config, "seed");
    run->world_size = count_of(object, "world_size");
    run->replicas = count_of(object, "replicas");
    for (size_t i = 0; i < MEMORY_PARTS; i++)
        run->memory[i] = number_of(memory, parts[i]);
    run->exchange = number_of(object, "exchange_bytes");
    run->memory_peak = NAN;
    run->start = number_of(object, "time");
}

/* Does a run that begins where `next` does continue this one? Mode and workers may differ. A run
 * from the first step on after one that was complete is another. */
static bool continues(const struct log_run *run, const struct log_run *next, int64_t first_step)
{
    const bool complete = strcmp(run->status, "success") == 0;
    return strcmp(run->model, next->model) == 0 && strcmp(run->data, next->data) == 0 &&
           run->parameters == next->parameters && run->global_batch == next->global_batch &&
           run->seed_low == next->seed_low && (first_step > 1 || !complete);
}

/* What was done from `first_step` on is done again. */
static void forget_from(struct log_run *run, int64_t first_step)
{
    while (run->step_count > 0 && run->steps[run->step_count - 1].step >= first_step)
        run->step_count--;
    while (run->evaluation_count > 0 &&
           run->evaluations[run->evaluation_count - 1].step >= first_step)
        run->evaluation_count--;
    while (run->checkpoint_count > 0 &&
           run->checkpoints[run->checkpoint_count - 1].step >= first_step)
        run->checkpoint_count--;
    while (run->score_count > 0 && run->scores[run->score_count - 1].step >= first_step)
        run->score_count--;
}

/* Takes the facts from `next`. */
static void restart(struct log_run *run, struct log_run *next, int64_t first_step)
{
    forget_from(run, first_step);
    run->total_steps = next->total_steps;
    run->world_size = next->world_size;
    run->replicas = next->replicas;
    run->status[0] = '\0';
    run->ended_early = false;
    memcpy(run->mode, next->mode, sizeof run->mode);
    memcpy(run->device, next->device, sizeof run->device);
    free(run->facts);
    run->facts = next->facts;
    run->fact_count = next->fact_count;
    run->restarted = run->step_count > 0;
    run->restart_time = next->start;
}

static enum ddp_status add_start(struct log_run *run, const json_t *object, int64_t first_step)
{
    const struct log_step *last = run->step_count > 0 ? &run->steps[run->step_count - 1] : NULL;
    const struct log_start start = {
        .first_step = first_step,
        .nodes = count_of(object, "nodes"),
        .workers = count_of(object, "world_size"),
        .before = last ? last->step : 0,
        .before_time = last ? last->time : NAN,
        .again = last && last->step >= first_step ? last->step - first_step + 1 : 0,
        .lost = NAN,
    };
    return ddp_array_append(&run->starts, &run->start_count, &start, sizeof start);
}

static enum ddp_status begin_run(struct reader *reader, const json_t *object)
{
    struct run_log *log = reader->log;
    struct log_run run = {.name = ""};
    int64_t first_step;
    const json_t *format = json_object_get(object, "format");
    if (format && (!json_is_integer(format) || json_integer_value(format) != FORMAT))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s:%zu: a log of format %" JSON_INTEGER_FORMAT
                        ", and this ddpreport reads format %d: use that of the ddprun which "
                        "wrote it",
                        reader->name, reader->line, json_integer_value(format), FORMAT);
    if (!json_is_object(json_object_get(object, "config")) ||
        !read_step(object, "first_step", 1, &first_step))
        return fail_line(reader, "the description of a run is incomplete: this is not a log of "
                                 "trainer, or not of this version");
    read_header(&run, object);
    enum ddp_status status = run_facts_read(&run, object);
    if (status == DDP_OK && reader->run && continues(reader->run, &run, first_step)) {
        status = add_start(reader->run, object, first_step);
        restart(reader->run, &run, first_step);
        return status;
    }
    if (status == DDP_OK)
        status = ddp_array_append(&log->runs, &log->count, &run, sizeof run);
    if (status != DDP_OK) {
        free(run.facts);
        return status;
    }
    reader->run = &log->runs[log->count - 1];
    return add_start(reader->run, object, first_step);
}

/* --- other lines ------------------------------------------------------------------------------ */

static enum ddp_status add_step(struct reader *reader, const json_t *object)
{
    struct log_run *run = reader->run;
    struct log_step step = {
        .time = number_of(object, "time"),
        .loss = number_of(object, "loss"),
        .norm = number_of(object, "gradient_norm"),
        .noise = number_of(object, "gradient_noise_scale"),
        .rate = number_of(object, "learning_rate"),
        .seconds = number_of(object, "seconds"),
        .waiting = number_of(object, "waiting_for_data"),
        .line = reader->at,
    };
    if (!read_step(object, "step", 1, &step.step))
        return fail_line(reader, "a step without its number");
    if (run->step_count > 0 && step.step <= run->steps[run->step_count - 1].step)
        return fail_line(reader, "steps go back without a restart: two programs have written here");
    run->tokens = json_object_get(object, "tokens_per_second") != NULL;
    step.speed = number_of(object, run->tokens ? "tokens_per_second" : "samples_per_second");
    step.items = round(step.speed * step.seconds);
    struct log_start *start = &run->starts[run->start_count - 1];
    if (start->before > 0 && isnan(start->lost) && step.step > start->before)
        start->lost = fmax(step.time - start->before_time - step.seconds, 0);
    if (run->restarted) {
        run->restarted = false;
        const struct log_mark mark = {step.step, run->restart_time};
        const enum ddp_status status =
            ddp_array_append(&run->restarts, &run->restart_count, &mark, sizeof mark);
        if (status != DDP_OK)
            return status;
    }
    return ddp_array_append(&run->steps, &run->step_count, &step, sizeof step);
}

static enum ddp_status add_score(struct log_run *run, int64_t step, const char *name, double value)
{
    enum ddp_status status = DDP_OK;
    struct log_metric metric;
    struct log_score score = {.step = step, .value = value};
    ddp_text_clean(metric.name, sizeof metric.name, name, strlen(name));
    while (score.metric < run->metric_count &&
           strcmp(run->metrics[score.metric].name, metric.name) != 0)
        score.metric++;
    if (score.metric == METRICS)
        return DDP_OK;
    if (score.metric == run->metric_count)
        status = ddp_array_append(&run->metrics, &run->metric_count, &metric, sizeof metric);
    if (status == DDP_OK)
        status = ddp_array_append(&run->scores, &run->score_count, &score, sizeof score);
    return status;
}

static enum ddp_status add_scores(struct log_run *run, int64_t step, const json_t *object)
{
    static const char prefix[] = "test_";
    enum ddp_status status = DDP_OK;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)object, key, member)
    {
        const double value = number_of(object, key);
        if (status == DDP_OK && strncmp(key, prefix, strlen(prefix)) == 0 && !isnan(value))
            status = add_score(run, step, key + strlen(prefix), value);
    }
    return status;
}

static enum ddp_status add_evaluation(struct reader *reader, const json_t *object)
{
    struct log_run *run = reader->run;
    struct log_evaluation evaluation = {
        .time = number_of(object, "time"),
        .loss = number_of(object, "test_loss"),
        .accuracy = number_of(object, "test_accuracy"),
        .line = reader->at,
    };
    if (!read_step(object, "step", 0, &evaluation.step))
        return fail_line(reader, "an evaluation without its step");
    const enum ddp_status status =
        ddp_array_append(&run->evaluations, &run->evaluation_count, &evaluation, sizeof evaluation);
    return status == DDP_OK ? add_scores(run, evaluation.step, object) : status;
}

static enum ddp_status add_checkpoint(struct reader *reader, const json_t *object)
{
    struct log_run *run = reader->run;
    struct log_mark mark = {.time = number_of(object, "time")};
    if (!read_step(object, "step", 0, &mark.step))
        return fail_line(reader, "a checkpoint without its step");
    return ddp_array_append(&run->checkpoints, &run->checkpoint_count, &mark, sizeof mark);
}

static enum ddp_status end_run(struct reader *reader, const json_t *object)
{
    struct log_run *run = reader->run;
    text_of(run->status, sizeof run->status, object, "status");
    run->memory_peak = number_of(object, "memory_peak_bytes");
    run->ended_early = json_is_true(json_object_get(object, "ended_early"));
    return DDP_OK;
}

static enum ddp_status read_object(struct reader *reader, const json_t *object)
{
    static const struct {
        const char *event;
        enum ddp_status (*read)(struct reader *reader, const json_t *object);
    } events[] = {{"step", add_step},
                  {"evaluation", add_evaluation},
                  {"checkpoint", add_checkpoint},
                  {"end", end_run}};
    const char *event = json_string_value(json_object_get(object, "event"));
    if (!event)
        return fail_line(reader,
                         "no event of a training: is this a file that trainer --log wrote?");
    if (strcmp(event, "run") == 0)
        return begin_run(reader, object);
    if (!reader->run)
        return fail_line(reader,
                         "the log begins in the middle of a run: its first line is missing");
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (strcmp(event, events[i].event) == 0)
            return events[i].read(reader, object);
    return DDP_OK;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* A killed program leaves half a line; the next run ends it and begins its own. */
static bool begins_run(const char *text, size_t bytes)
{
    static const char start[] = "{\"event\":\"run\"";
    return bytes >= sizeof start - 1 && memcmp(text, start, sizeof start - 1) == 0;
}

/* One line, and whether what comes behind it shows that it was cut off. */
static enum ddp_status read_line(struct reader *reader, const char *line, size_t bytes, bool cut)
{
    json_t *object = NULL;
    json_error_t error;
    char why[200];
    enum ddp_status status =
        ddp_json_parse_flags(&object, line, bytes, JSON_REJECT_DUPLICATES, &error);
    if (status == DDP_OK) {
        status = read_object(reader, object);
        json_decref(object);
        return status;
    }
    if (status != DDP_ERR_FORMAT)
        return status;
    if (cut) {
        if (!reader->quietly)
            ddp_log(DDP_LOG_WARNING, "%s:%zu: this line is truncated and was ignored", reader->name,
                    reader->line);
        return DDP_OK;
    }
    snprintf(why, sizeof why, "not a line of a log: %.150s", error.text);
    return fail_line(reader, why);
}

static void name_runs(struct log_run *runs, size_t count, const char *text, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        const size_t used = ddp_text_clean(runs[i].name, sizeof runs[i].name - 24, text, bytes);
        if (count > 1)
            snprintf(runs[i].name + used, 24, " #%zu", i + 1);
    }
}

/* What the runs of a file are called: its name without directory and suffix, or the end of its path
 * where other runs are called that. */
static void name_new_runs(struct run_log *log, size_t first, const char *path)
{
    struct log_run *runs = log->runs + first;
    const size_t count = log->count - first, most = sizeof runs->name - 24;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    name_runs(runs, count, base, dot && dot > base ? (size_t)(dot - base) : strlen(base));
    for (size_t i = 0; i < first; i++)
        if (strcmp(log->runs[i].name, runs[0].name) == 0) {
            const size_t length = strlen(path), cut = length >= most ? length - most + 1 : 0;
            name_runs(runs, count, path + cut, length - cut);
            return;
        }
}

bool run_log_has_metric(const struct log_run *run, const char *name)
{
    for (size_t i = 0; i < run->metric_count; i++)
        if (strcmp(run->metrics[i].name, name) == 0)
            return true;
    return false;
}

enum ddp_status run_log_parse(struct run_log *log, const char *name, const char *text, size_t bytes,
                              bool quietly)
{
    struct reader reader = {.log = log, .name = name, .quietly = quietly};
    const size_t first = log->count;
    enum ddp_status status = DDP_OK;
    for (size_t at = 0; status == DDP_OK && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - text) - at : bytes - at;
        const size_t next = at + length + 1;
        reader.line++;
        reader.at = at;
        if (length > 0)
            status = read_line(&reader, text + at, length,
                               !end || (next < bytes && begins_run(text + next, bytes - next)));
        at = next;
    }
    if (status == DDP_OK && !reader.run)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s: trainer --log writes what is needed here", name,
                        bytes == 0 ? "the file is empty" : "there is no run in this file");
    if (status != DDP_OK)
        return status;
    name_new_runs(log, first, name);
    return DDP_OK;
}

enum ddp_status run_log_read(struct run_log *log, const char *path, bool quietly)
{
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "no log of a training", LOG_BYTES, &text, &bytes);
    if (status == DDP_OK)
        status = run_log_parse(log, path, text, bytes, quietly);
    free(text);
    return status;
}

void run_log_free(struct run_log *log)
{
    for (size_t i = 0; i < log->count; i++) {
        free(log->runs[i].steps);
        free(log->runs[i].evaluations);
        free(log->runs[i].scores);
        free(log->runs[i].metrics);
        free(log->runs[i].facts);
        free(log->runs[i].checkpoints);
        free(log->runs[i].restarts);
        free(log->runs[i].starts);
    }
    free(log->runs);
    *log = (struct run_log){.count = 0};
}
