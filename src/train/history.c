/* SPDX-License-Identifier: MIT
 *
 * See history.h. */
#include "config.h"

#include "train/history.h"

#include "core/input_file.h"
#include "core/log.h"
#include "report/sha256.h"
#include "report/metrics.h"
#include "train/record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOG_BYTES ((size_t)2 << 30) /* larger ones are something else */
#define STEP_MAX  DDP_COUNT_MAX

struct reader {
    struct ddp_history *history;
    int64_t wanted; /* 0: the last */
    size_t line;
    json_t *run, *hashes; /* that lines belong to now; NULL: a run without hashes, or none yet */
    int64_t last;         /* step of its last hash; 0: it has none */
    char chain[DDP_SHA256_TEXT];
    int64_t below, above; /* steps next to the wanted one that have a hash; 0: none */
    bool cut;             /* the line before was half a line, as a kill leaves it */
};

static enum ddp_status fail_line(const struct reader *reader, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s:%zu: %s", reader->history->path, reader->line, what);
}

/* --- one line --------------------------------------------------------------------------------- */

static bool read_count(const json_t *object, const char *name, int64_t least, int64_t *value)
{
    const json_t *member = json_object_get(object, name);
    *value = json_integer_value(member);
    return json_is_integer(member) && *value >= least && *value <= STEP_MAX;
}

static bool is_hash(const json_t *line)
{
    const json_t *tensors = json_object_get(line, DDP_RECORD_TENSORS), *brief;
    size_t i;
    json_array_foreach(tensors, i, brief)
    {
        if (!ddp_sha256_is_text(json_string_value(brief), DDP_HASH_BRIEF))
            return false;
    }
    return json_is_array(tensors) &&
           ddp_sha256_is_text(json_string_value(json_object_get(line, DDP_RECORD_WEIGHTS)),
                              DDP_SHA256_TEXT - 1);
}

static bool is_words(const json_t *words)
{
    const json_t *word;
    size_t i;
    json_array_foreach(words, i, word)
    {
        if (!json_is_string(word) || strncmp(json_string_value(word), "--", 2) != 0)
            return false;
    }
    return json_is_array(words);
}

/* The line's end must be the chain of what is before it. */
static bool follows(struct reader *reader, const char *line, size_t bytes)
{
    const size_t key = strlen(DDP_LOG_CHAIN), end = key + DDP_SHA256_TEXT - 1 + 2;
    unsigned char digest[DDP_SHA256_BYTES];
    if (bytes <= end || memcmp(line + bytes - end, DDP_LOG_CHAIN, key) != 0 ||
        memcmp(line + bytes - 2, "\"}", 2) != 0)
        return false;
    ddp_sha256(digest, reader->chain, strlen(reader->chain), line, bytes - end);
    ddp_sha256_text(reader->chain, digest);
    return memcmp(line + bytes - end + key, reader->chain, DDP_SHA256_TEXT - 1) == 0;
}

/* --- one run ---------------------------------------------------------------------------------- */

/* The run that ends here is the one, unless a later one has the step too. */
static void end_run(struct reader *reader)
{
    struct ddp_history *history = reader->history;
    char name[24];
    const int64_t step = reader->wanted ? reader->wanted : reader->last;
    snprintf(name, sizeof name, "%" PRId64, step);
    if (reader->run && json_object_get(reader->hashes, name)) {
        ddp_history_free(history);
        history->run = json_incref(reader->run);
        history->hashes = json_incref(reader->hashes);
        history->step = step;
    }
    json_decref(reader->run);
    json_decref(reader->hashes);
    reader->run = reader->hashes = NULL;
}

static enum ddp_status begin_run(struct reader *reader, json_t *line)
{
    end_run(reader);
    reader->chain[0] = '\0';
    reader->last = 0;
    if (!json_object_get(line, DDP_RECORD_OPTIONS))
        return DDP_OK;
    reader->hashes = json_object();
    reader->run = json_incref(line);
    return reader->hashes ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

static enum ddp_status add_hash(struct reader *reader, json_t *line)
{
    char name[24];
    int64_t step;
    if (!reader->run || !read_count(line, "step", 1, &step) || !is_hash(line))
        return fail_line(reader, "this is no hash of the run's weights");
    reader->last = step;
    if (step < reader->wanted && step > reader->below)
        reader->below = step;
    if (step > reader->wanted && (reader->above == 0 || step < reader->above))
        reader->above = step;
    snprintf(name, sizeof name, "%" PRId64, step);
    return json_object_set(reader->hashes, name, line) == 0
               ? DDP_OK
               : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

static enum ddp_status use_line(struct reader *reader, json_t *line, const char *text, size_t bytes)
{
    const char *event = json_string_value(json_object_get(line, "event"));
    const bool begins = event && strcmp(event, "run") == 0;
    if (reader->cut && !begins)
        return fail_line(reader, "the line before is not one of a log");
    reader->cut = false;
    enum ddp_status status = begins ? begin_run(reader, line) : DDP_OK;
    if (status == DDP_OK && reader->run && !follows(reader, text, bytes))
        return fail_line(reader, "this line, or one before it, was edited or is missing: its chain "
                                 "of hashes does not agree");
    if (status == DDP_OK && event && strcmp(event, "hash") == 0)
        status = add_hash(reader, line);
    return status;
}

static enum ddp_status read_line(struct reader *reader, const char *text, size_t bytes)
{
    json_error_t error;
    json_t *line;
    reader->line++;
    enum ddp_status status = ddp_json_parse(&line, text, bytes, &error);
    if (status == DDP_ERR_FORMAT && reader->cut)
        return fail_line(reader, "this is not a line of a log");
    if (status == DDP_ERR_FORMAT) {
        reader->cut = true;
        return DDP_OK;
    }
    if (status != DDP_OK)
        return ddp_fail(status, "out of memory");
    status = use_line(reader, line, text, bytes);
    json_decref(line);
    return status;
}

/* --- the whole log ---------------------------------------------------------------------------- */

/* What is used of the run's first line. */
static enum ddp_status read_run(struct ddp_history *history)
{
    const json_t *config = json_object_get(history->run, "config");
    char reason[DDP_CHECKPOINT_REASON] = "its first line lacks a value, or has a wrong one";
    history->options = json_object_get(history->run, DDP_RECORD_OPTIONS);
    if (!is_words(history->options) || !is_hash(history->run) ||
        !ddp_json_read_uint64(json_object_get(config, "seed"), &history->seed) ||
        !read_count(history->run, "first_step", 1, &history->first_step) ||
        !read_count(history->run, "world_size", 1, &history->world_size) ||
        !read_count(config, "shards", 1, &history->shards) ||
        !read_count(config, "batch_size", 1, &history->batch_size) ||
        !ddp_checkpoint_facts_read(&history->facts, json_object_get(history->run, DDP_RECORD_RUN),
                                   reason))
        return ddp_fail(DDP_ERR_FORMAT, "%s: cannot compute its run again: %s", history->path,
                        reason);
    history->first_step--;
    return DDP_OK;
}

static enum ddp_status fail_step(const struct reader *reader)
{
    const char *path = reader->history->path;
    char below[32] = "", above[32] = "";
    if (reader->below == 0 && reader->above == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: it has no hashes of weights: train with --hash-every N to write them",
                        path);
    if (reader->below > 0)
        snprintf(below, sizeof below, " %" PRId64, reader->below);
    if (reader->above > 0)
        snprintf(above, sizeof above, "%s %" PRId64, reader->below > 0 ? " and" : "",
                 reader->above);
    return ddp_fail(DDP_ERR_INVALID,
                    "%s: it has no hash of the weights after step %" PRId64
                    "; the nearest are of step%s%s",
                    path, reader->wanted, below, above);
}

enum ddp_status ddp_history_parse(struct ddp_history *history, const char *path, const char *text,
                                  size_t bytes, int64_t step)
{
    struct reader reader = {.history = history, .wanted = step};
    const char *const end = text + bytes;
    enum ddp_status status = DDP_OK;
    *history = (struct ddp_history){.path = path};
    while (status == DDP_OK && text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t length = newline ? (size_t)(newline - text) : (size_t)(end - text);
        status = read_line(&reader, text, length);
        text += length + 1;
    }
    end_run(&reader);
    if (status == DDP_OK)
        status = history->run ? read_run(history) : fail_step(&reader);
    if (status != DDP_OK)
        ddp_history_free(history);
    return status;
}

enum ddp_status ddp_history_read(struct ddp_history *history, const char *path, int64_t step)
{
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status = ddp_input_file_read_whole(path, "a log", LOG_BYTES, &text, &bytes);
    if (status == DDP_OK)
        status = ddp_history_parse(history, path, text, bytes, step);
    free(text);
    return status;
}

void ddp_history_free(struct ddp_history *history)
{
    json_decref(history->run);
    json_decref(history->hashes);
    history->run = history->hashes = NULL;
}

const json_t *ddp_history_hash(const struct ddp_history *history, int64_t step)
{
    char name[24];
    snprintf(name, sizeof name, "%" PRId64, step);
    return step == history->first_step ? history->run : json_object_get(history->hashes, name);
}
