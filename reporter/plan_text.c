/* SPDX-License-Identifier: MIT
 *
 * See plan_text.h. */
#include "config.h"

#include "reporter/plan_text.h"

#include "core/json.h"
#include "core/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LABEL 9 /* letters, and spaces behind them */
#define LINE  512

static const char first_label[LABEL + 1] = "model    ";

bool plan_text_is(const char *text, size_t bytes)
{
    return bytes >= LABEL && memcmp(text, first_label, LABEL) == 0;
}

/* What follows the label of the first such line; "": there is none. */
static void line_of(char line[LINE], const char *text, size_t bytes, const char *label)
{
    const char *at = text, *end = text + bytes;
    line[0] = '\0';
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (stop - at > LABEL && memcmp(at, label, LABEL) == 0) {
            snprintf(line, LINE, "%.*s", (int)(stop - at < LINE ? stop - at : LINE) - LABEL,
                     at + LABEL);
            return;
        }
        at = stop + 1;
    }
}

/* The number behind a word, with the prefix of its unit; NaN: there is none. */
static double number_behind(const char *line, const char *word)
{
    static const char prefixes[] = "kMGTPE";
    const char *at = strstr(line, word), *prefix;
    char *end;
    if (!at)
        return NAN;
    at += strlen(word);
    double value = strtod(at, &end);
    if (end == at || !(value >= 0 && value < 1e30))
        return NAN;
    if (end[0] == ' ' && end[1] && (prefix = strchr(prefixes, end[1])))
        for (const char *p = prefixes; p <= prefix; p++)
            value *= 1000;
    return value;
}

/* A whole number, or 0. */
static json_int_t count_behind(const char *line, const char *word)
{
    const double value = number_behind(line, word);
    return value < 1e15 ? (json_int_t)value : 0;
}

/* The plan as the first line of a log. */
static json_t *header_of(const char *text, size_t bytes)
{
    char model[LINE], workers[LINE], batch[LINE], memory[LINE], compute[LINE];
    line_of(model, text, bytes, first_label);
    line_of(workers, text, bytes, "workers  ");
    line_of(batch, text, bytes, "batch    ");
    line_of(memory, text, bytes, "memory   ");
    line_of(compute, text, bytes, "compute  ");
    const char *mode = strstr(workers, ", mode ");
    const json_int_t units = count_behind(workers, ""), nodes = count_behind(workers, " on ");
    const bool replicas = strstr(workers, " replica");
    const double flops = number_behind(compute, "");
    const json_int_t samples = count_behind(batch, ""), shards = count_behind(batch, " x ");
    if (!mode || units < 1 || samples < 1 || shards < 1 || !(flops > 0))
        return NULL;
    mode += strlen(", mode ");
    json_t *config =
        json_pack("{s:s%, s:I, s:s%, s:s, s:I, s:I, s:I, s:f}", "model", model, strcspn(model, ","),
                  "parameters", count_behind(model, ", "), "mode", mode, strcspn(mode, ","),
                  "device", strstr(workers, " cpu thread") ? "cpu" : "gpu", "batch_size", samples,
                  "shards", shards, "global_batch", samples * shards, "flops_of_step", flops);
    json_t *parts = json_object();
    static const char *const names[] = {"weights", "gradients", "optimizer", "activations"};
    for (size_t i = 0; parts && i < sizeof names / sizeof names[0]; i++) {
        char word[16];
        snprintf(word, sizeof word, "%s ", names[i]);
        const double part = number_behind(memory, word);
        json_object_set_new(parts, names[i], isnan(part) ? json_null() : json_real(part));
    }
    return json_pack("{s:s, s:b, s:i, s:I, s:I, s:I, s:o?, s:o?}", "event", "run", "plan", 1,
                     "first_step", 1, "world_size", replicas ? (json_int_t)1 : units, "nodes",
                     nodes > 0 ? nodes : (json_int_t)1, "replicas",
                     replicas ? units : (json_int_t)1, "config", config, "memory_bytes", parts);
}

enum ddp_status plan_text_parse(struct run_log *log, const char *name, const char *text,
                                size_t bytes)
{
    json_t *header = header_of(text, bytes);
    char *line = header ? ddp_json_text(header, JSON_COMPACT) : NULL;
    enum ddp_status status =
        line ? run_log_parse(log, name, line, strlen(line), false)
             : ddp_fail(DDP_ERR_FORMAT,
                        "%s: a plan without its workers, batch or compute: keep all lines that "
                        "trainer --plan prints",
                        name);
    free(line);
    json_decref(header);
    return status;
}
