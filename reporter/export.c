/* SPDX-License-Identifier: MIT
 *
 * ddpreport export --csv: a line for each step of a log, with all members that steps and
 * evaluations have there. Their lines are parsed again, so that a log takes no more memory here. */
#include "config.h"

#include "core/input_file.h"
#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "reporter/commands.h"
#include "reporter/run_log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct export
{
    const char *text; /* of the log */
    size_t bytes;
    /* The names of the members of both, in the order in which they first appear. */
    json_t *step_names, *evaluation_names;
};

/* NULL: there is no memory, which is logged; all lines have been parsed before. */
static json_t *parse_line(const struct export *export, size_t line)
{
    json_t *object = NULL;
    json_error_t error;
    const char *begin = export->text + line;
    const char *end = memchr(begin, '\n', export->bytes - line);
    ddp_json_parse(&object, begin, end ? (size_t)(end - begin) : export->bytes - line, &error);
    return object;
}

static enum ddp_status add_names(const struct export *export, size_t line, json_t *names)
{
    const char *key;
    json_t *member, *object = parse_line(export, line);
    enum ddp_status status = object ? DDP_OK : DDP_ERR_MEMORY;
    json_object_foreach(object, key,
                        member) if (strcmp(key, "event") != 0 && strcmp(key, "step") != 0 &&
                                    !json_is_object(member) && !json_is_array(member) &&
                                    !json_object_get(names, key) &&
                                    json_object_set_new(names, key, json_true()) < 0) status =
        ddp_fail(DDP_ERR_MEMORY, "out of memory");
    json_decref(object);
    return status;
}

static enum ddp_status list_names(const struct export *export, const struct run_log *log)
{
    enum ddp_status status = DDP_OK;
    for (size_t r = 0; r < log->count; r++) {
        const struct log_run *run = &log->runs[r];
        for (size_t i = 0; status == DDP_OK && i < run->step_count; i++)
            status = add_names(export, run->steps[i].line, export->step_names);
        for (size_t i = 0; status == DDP_OK && i < run->evaluation_count; i++)
            status = add_names(export, run->evaluations[i].line, export->evaluation_names);
    }
    return status;
}

/* In quotes; a quote is written twice. */
static void print_text(const char *prefix, const char *text)
{
    char shown[DDP_TEXT_SHOWN];
    printf("\"%s", prefix);
    for (const char *at = ddp_text_show(shown, text); *at; at++) {
        if (*at == '"')
            fputc('"', stdout);
        fputc(*at, stdout);
    }
    fputc('"', stdout);
}

/* As all names of trainer are, it needs no quotes, or else has them. */
static void print_name(const char *prefix, const char *name)
{
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (name[strspn(name, plain)] != '\0')
        print_text(prefix, name);
    else
        printf("%s%s", prefix, name);
}

static void print_value(const json_t *value)
{
    fputc(',', stdout);
    if (json_is_integer(value))
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        printf("%.15g", json_real_value(value)); /* as it was written */
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", stdout);
    else if (json_is_string(value))
        print_text("", json_string_value(value));
}

enum kind { STEP, EVALUATION, CHECKPOINT };

/* A line of the log. */
struct record {
    int64_t step;
    size_t line;
    enum kind kind;
};

static int compare_records(const void *a, const void *b)
{
    const struct record *one = a, *other = b;
    if (one->step != other->step)
        return one->step < other->step ? -1 : 1;
    return (one->line > other->line) - (one->line < other->line);
}

/* In the order of the steps; *count of them. NULL: no memory, which is logged. */
static struct record *list_records(const struct log_run *run, size_t *count)
{
    *count = run->step_count + run->evaluation_count + run->checkpoint_count;
    struct record *records = ddp_array_alloc(*count + 1, sizeof *records), *next = records;
    if (!records)
        return NULL;
    for (size_t i = 0; i < run->step_count; i++)
        *next++ = (struct record){run->steps[i].step, run->steps[i].line, STEP};
    for (size_t i = 0; i < run->evaluation_count; i++)
        *next++ = (struct record){run->evaluations[i].step, run->evaluations[i].line, EVALUATION};
    for (size_t i = 0; i < run->checkpoint_count; i++)
        *next++ = (struct record){run->checkpoints[i].step, 0, CHECKPOINT};
    qsort(records, *count, sizeof *records, compare_records);
    return records;
}

/* record  NULL: the step has none of these */
static enum ddp_status print_members(const struct export *export, const struct record *record,
                                     json_t *names)
{
    const char *key;
    json_t *member, *object = record ? parse_line(export, record->line) : NULL;
    json_object_foreach(names, key, member) print_value(json_object_get(object, key));
    json_decref(object);
    return record && !object ? DDP_ERR_MEMORY : DDP_OK;
}

/* Of several evaluations of a step the last one counts. */
static enum ddp_status print_run(const struct export *export, const struct log_run *run,
                                 size_t number)
{
    size_t count;
    struct record *records = list_records(run, &count);
    enum ddp_status status = records ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count;) {
        const struct record *last[CHECKPOINT + 1] = {NULL};
        const int64_t step = records[i].step;
        for (; i < count && records[i].step == step; i++)
            last[records[i].kind] = &records[i];
        printf("%zu,%" PRId64, number, step);
        status = print_members(export, last[STEP], export->step_names);
        if (status == DDP_OK)
            status = print_members(export, last[EVALUATION], export->evaluation_names);
        fputs(last[CHECKPOINT] ? ",1\n" : ",\n", stdout);
    }
    free(records);
    return status;
}

static void print_titles(const struct export *export)
{
    const char *key;
    json_t *member;
    fputs("run,step", stdout);
    json_object_foreach(export->step_names, key, member)
    {
        fputc(',', stdout);
        print_name("", key);
    }
    json_object_foreach(export->evaluation_names, key, member)
    {
        fputc(',', stdout);
        print_name(strncmp(key, "test_", 5) == 0 ? "" : "evaluation_", key);
    }
    fputs(",checkpoint\n", stdout);
}

enum ddp_status export_show(const struct settings *settings)
{
    struct run_log log = {.count = 0};
    char *text = NULL;
    struct export export = {.step_names = json_object(), .evaluation_names = json_object()};
    enum ddp_status status = export.step_names && export.evaluation_names
                                 ? DDP_OK
                                 : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK)
        status = ddp_input_file_read_whole(settings->files[0], "no log of a training", LOG_BYTES,
                                           &text, &export.bytes);
    export.text = text;
    if (status == DDP_OK)
        status = run_log_parse(&log, settings->files[0], text, export.bytes, false);
    if (status == DDP_OK)
        status = list_names(&export, &log);
    if (status == DDP_OK)
        print_titles(&export);
    for (size_t r = 0; status == DDP_OK && r < log.count; r++)
        status = print_run(&export, &log.runs[r], r + 1);
    json_decref(export.step_names);
    json_decref(export.evaluation_names);
    run_log_free(&log);
    free(text);
    return status;
}
