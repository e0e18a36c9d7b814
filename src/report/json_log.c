/* SPDX-License-Identifier: MIT
 *
 * --log FILE: one JSON object a line. A run begins with a line that says what it is, then come
 * steps and evaluations, and a last line with its end. A file that is there is continued. */
#include "config.h"

#include "report/metrics.h"

#include "core/append_file.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "report/sha256.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FORMAT 1 /* of the log: a higher one may mean other things by the same names */

struct json_log {
    const struct ddp_train_facts *facts;
    ddp_append_file *file;
    int64_t last_step;
    int64_t start_ns;
    bool ended_early;
    char chain[DDP_SHA256_TEXT]; /* of the last line, if lines are chained */
};

/* JSON knows no NaN and no infinity: null stands for them. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A line with its chain: it is as if the object had that member. */
static void write_chained(struct json_log *log, const char *text, size_t bytes)
{
    unsigned char digest[DDP_SHA256_BYTES];
    char *line = NULL;
    ddp_sha256(digest, log->chain, strlen(log->chain), text, bytes - 1);
    ddp_sha256_text(log->chain, digest);
    const int length =
        asprintf(&line, "%.*s" DDP_LOG_CHAIN "%s\"}\n", (int)(bytes - 1), text, log->chain);
    if (length > 0)
        ddp_append_file_write(log->file, line, (size_t)length);
    free(line);
}

static void write_object(struct json_log *log, json_t *object)
{
    char *text = object ? ddp_json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    size_t bytes = text ? strlen(text) : 0;
    if (text && log->facts->record) {
        write_chained(log, text, bytes);
    } else if (text) {
        text[bytes] = '\n'; /* in the place of the zero */
        ddp_append_file_write(log->file, text, bytes + 1);
    }
    free(text);
    json_decref(object);
}

/* The words of the command line, as the kernel keeps them; text that is not UTF-8 is left out. */
static json_t *command_line(void)
{
    char text[8192];
    json_t *words = json_array();
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[bytes] = '\0';
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1) {
        json_t *word = json_string(text + at);
        if (word)
            json_array_append_new(words, word);
    }
    return words;
}

static json_t *versions(void)
{
    struct utsname system = {0};
    uname(&system);
    return json_pack("{s:s, s:s, s:s, s:s}", "ddprun", ddp_version(), "jansson", JANSSON_VERSION,
                     "kernel", system.release, "machine", system.machine);
}

static json_t *memory_parts(const struct ddp_mode_memory *memory)
{
    json_t *parts =
        json_pack("{s:I, s:I, s:I, s:I}", "weights", (json_int_t)memory->weights, "gradients",
                  (json_int_t)memory->gradients, "optimizer", (json_int_t)memory->optimizer,
                  "activations", (json_int_t)memory->activations);
    if (parts && memory->frozen > 0)
        json_object_set_new(parts, "frozen_weights", json_integer((json_int_t)memory->frozen));
    return parts;
}

static json_t *header(const struct ddp_train_facts *facts)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    json_t *config = json_pack(
        "{s:s, s:I, s:o?, s:I, s:b, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:o?}",
        "model", facts->model, "parameters", (json_int_t)ddp_graph_element_count(facts->graph),
        "data", json_string(facts->data->path), "samples", (json_int_t)facts->data->sample_count,
        "shuffled", (int)facts->shuffled, "mode", ddp_mode_names[facts->mode], "device",
        facts->device, "threads", facts->threads, "batch_size", (json_int_t)facts->batch_size,
        "shards", (json_int_t)facts->global_shards, "global_batch",
        (json_int_t)(facts->batch_size * facts->global_shards), "steps_per_epoch",
        (json_int_t)facts->steps_per_epoch, "total_steps", (json_int_t)facts->total_steps,
        "flops_of_step", facts->step_flops, "learning_rate", facts->schedule.rate, "schedule",
        ddp_schedule_names[facts->schedule.kind], "seed", ddp_json_uint64(facts->seed));
    return json_pack("{s:s, s:i, s:f, s:s, s:I, s:i, s:i, s:i, s:i, s:o?, s:o?, s:f, s:o?, s:o?}",
                     "event", "run", "format", FORMAT, "time", ddp_clock_wall(), "host", host,
                     "first_step", (json_int_t)facts->first_step + 1, "world_size",
                     facts->world_size, "nodes", facts->nodes, "replicas", facts->replicas,
                     "stages", facts->stages, "config", config, "memory_bytes",
                     memory_parts(&facts->memory), "exchange_bytes", facts->exchange_bytes,
                     "versions", versions(), "command", command_line());
}

static enum ddp_status json_open(void **state, const struct ddp_train_facts *facts)
{
    if (!facts->options.log)
        return DDP_OK;
    struct json_log *log = ddp_array_alloc(1, sizeof *log);
    if (!log)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_append_file_open(&log->file, facts->options.log, true);
    if (status != DDP_OK) {
        free(log);
        return status;
    }
    log->facts = facts;
    log->last_step = facts->first_step;
    log->start_ns = ddp_clock_ns();
    json_t *first = header(facts);
    if (first && facts->record)
        json_object_update(first, facts->record);
    write_object(log, first);
    *state = log;
    return DDP_OK;
}

static void add_preferences(json_t *object, const char *prefix,
                            const struct ddp_preferences *preferences)
{
    char name[64];
    for (int i = 0; object && ddp_train_preference_names[i].name; i++) {
        const double value = ddp_train_preference(preferences, i);
        snprintf(name, sizeof name, "%s%s", prefix, ddp_train_preference_names[i].name);
        if (!isnan(value))
            json_object_set_new(object, name, real(value));
    }
}

static void json_step(void *state, const struct ddp_train_event *step)
{
    struct json_log *log = state;
    log->last_step = step->step + 1;
    if (!step->logged)
        return;
    char rate_name[32];
    snprintf(rate_name, sizeof rate_name, "%s_per_second", step->unit);
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:f, s:o?, s:f, s:f, s:f, s:f}", "event", "step", "step",
                  (json_int_t)log->last_step, "epoch", (json_int_t)step->epoch + 1, "time",
                  ddp_clock_wall(), "loss", real(step->loss), "learning_rate", step->rate,
                  "seconds", step->seconds, rate_name, step->items / (step->seconds + 1e-9),
                  "waiting_for_data", step->wait_seconds / (step->seconds + 1e-9));
    if (object && ddp_graph_target_count(log->facts->graph) > 0)
        json_object_set_new(object, "counted", json_integer(step->counted));
    if (step->has_preferences)
        add_preferences(object, "", &step->preferences);
    if (object && !isnan(step->gradient_norm))
        json_object_set_new(object, "gradient_norm", real(step->gradient_norm));
    if (object && !isnan(step->noise_scale))
        json_object_set_new(object, "gradient_noise_scale", json_real(step->noise_scale));
    if (object && step->loss_scale > 0)
        json_object_set_new(object, "loss_scale", json_real(step->loss_scale));
    const double speed = step->flops / (step->seconds + 1e-9);
    if (object && step->flops > 0)
        json_object_set_new(object, "model_flops_per_second", json_real(speed));
    if (object && step->peak_flops > 0)
        json_object_set_new(object, "share_of_peak", json_real(speed / step->peak_flops));
    write_object(log, object);
}

static void json_evaluation(void *state, const struct ddp_train_evaluation *evaluation)
{
    struct json_log *log = state;
    const struct ddp_train_scores *scores = &evaluation->scores;
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:f, s:o?, s:o*, s:I, s:f}", "event", "evaluation", "step",
                  (json_int_t)evaluation->step + 1, "epoch", (json_int_t)evaluation->epoch + 1,
                  "time", ddp_clock_wall(), "test_loss", real(scores->loss), "test_accuracy",
                  isnan(scores->accuracy) ? NULL : json_real(scores->accuracy), "samples",
                  (json_int_t)scores->samples, "seconds", evaluation->seconds);
    if (object && scores->has_perplexity)
        json_object_set_new(object, "test_perplexity", real(scores->perplexity));
    if (object && scores->has_bits_per_byte)
        json_object_set_new(object, "test_bits_per_byte", real(scores->bits_per_byte));
    if (object && scores->has_errors) {
        json_object_set_new(object, "test_r2", real(scores->r2));
        json_object_set_new(object, "test_squared_error", real(scores->squared_error));
        json_object_set_new(object, "test_absolute_error", real(scores->absolute_error));
    }
    if (object && scores->has_choices)
        json_object_set_new(object, "test_accuracy_norm", json_real(scores->normalized));
    if (scores->has_preferences)
        add_preferences(object, "test_", &scores->preferences);
    if (object && evaluation->best_step > 0) {
        json_object_set_new(object, "best_step", json_integer(evaluation->best_step));
        json_object_set_new(object, "best_loss", json_real(evaluation->best_loss));
    }
    log->ended_early = evaluation->ends_run;
    write_object(log, object);
}

static void json_text(void *state, const struct ddp_train_text *text)
{
    write_object(state,
                 json_pack("{s:s, s:I, s:I, s:f, s:I, s:I, s:s, s:f}", "event", "sample", "step",
                           (json_int_t)text->step + 1, "epoch", (json_int_t)text->epoch + 1, "time",
                           ddp_clock_wall(), "sample", (json_int_t)text->index + 1, "samples",
                           (json_int_t)text->count, "text", text->text, "seconds", text->seconds));
}

static void json_checkpoint(void *state, int64_t steps)
{
    write_object(state, json_pack("{s:s, s:I, s:f}", "event", "checkpoint", "step",
                                  (json_int_t)steps, "time", ddp_clock_wall()));
}

static void json_hash(void *state, int64_t steps, json_t *hash)
{
    json_t *object = json_pack("{s:s, s:I, s:f}", "event", "hash", "step", (json_int_t)steps,
                               "time", ddp_clock_wall());
    if (object)
        json_object_update(object, hash);
    write_object(state, object);
}

static void json_close(void *state, enum ddp_status status)
{
    struct json_log *log = state;
    json_t *object =
        json_pack("{s:s, s:f, s:I, s:s, s:f}", "event", "end", "time", ddp_clock_wall(), "step",
                  (json_int_t)log->last_step, "status", ddp_status_string(status), "seconds",
                  (double)(ddp_clock_ns() - log->start_ns) * 1e-9);
    if (object && log->facts->memory_peak > 0)
        json_object_set_new(object, "memory_peak_bytes", json_real(log->facts->memory_peak));
    if (object && log->facts->restarts > 0) {
        json_object_set_new(object, "restarts", json_integer(log->facts->restarts));
        json_object_set_new(object, "steps_again", json_integer(log->facts->steps_again));
        json_object_set_new(object, "restart_seconds", json_real(log->facts->restart_seconds));
    }
    if (object && log->ended_early)
        json_object_set_new(object, "ended_early", json_true());
    write_object(log, object);
    ddp_append_file_close(log->file);
    free(log);
}

const struct ddp_train_sink_ops ddp_train_sink_json = {
    .open = json_open,
    .step = json_step,
    .evaluation = json_evaluation,
    .text = json_text,
    .checkpoint = json_checkpoint,
    .hash = json_hash,
    .close = json_close,
};
