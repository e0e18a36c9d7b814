/* SPDX-License-Identifier: MIT
 *
 * See record.h. */
#include "config.h"

#include "train/record.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

static enum ddp_status no_memory(json_t *object)
{
    json_decref(object);
    return ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* "--name=value", "--name" or "--no-name" */
static enum ddp_status add_word(json_t *words, const struct ddp_option *row, const char *value)
{
    char *text = NULL;
    const bool off = !row->argument && value;
    if (asprintf(&text, "--%s%s%s%s", off ? "no-" : "", row->name, row->argument ? "=" : "",
                 row->argument ? value : "") < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    json_t *word = json_string(text);
    free(text);
    if (!word)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s: its value is not UTF-8, which a log with --hash-every cannot hold",
                        row->name);
    return json_array_append_new(words, word) == 0 ? DDP_OK
                                                   : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

enum ddp_status ddp_record_options(json_t **words, const struct ddp_train_options *options)
{
    const struct ddp_option *table = ddp_train_option_table();
    json_t *list = json_array();
    enum ddp_status status = list ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    for (const struct ddp_option *row = table; row->name && status == DDP_OK; row++)
        if (ddp_train_given(options, row->name) && !strchr(row->name, ' ')) /* no part of another */
            status = add_word(list, row, options->given.values[row - table]);
    if (status != DDP_OK) {
        json_decref(list);
        return status;
    }
    *words = list;
    return DDP_OK;
}

/* Adds the hash of the current weights on rank 0, where there is an object. */
static enum ddp_status add_hash(json_t *object, struct ddp_run *run)
{
    struct ddp_weights_hash hash;
    char text[DDP_SHA256_TEXT];
    json_t *tensors = NULL;
    enum ddp_status status = ddp_weights_hash_take(&hash, run);
    if (status == DDP_OK && object) {
        tensors = json_array();
        for (int i = 0; i < hash.count; i++)
            if (json_array_append_new(tensors,
                                      json_string(ddp_weights_hash_brief(text, &hash, i))) != 0)
                status = DDP_ERR_MEMORY;
        if (status != DDP_OK ||
            json_object_set_new(object, DDP_RECORD_WEIGHTS, json_string(hash.text)) != 0 ||
            json_object_set(object, DDP_RECORD_TENSORS, tensors) != 0)
            status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
        json_decref(tensors);
    }
    ddp_weights_hash_free(&hash);
    return status;
}

enum ddp_status ddp_record_begin(json_t **record, struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    struct ddp_checkpoint_facts facts;
    json_t *words = NULL, *object = NULL;
    enum ddp_status status = DDP_OK;
    *record = NULL;
    if (!options->report.hash_every)
        return DDP_OK;
    if (run->planned.plan.rank == 0) {
        status = ddp_record_options(&words, options);
        if (status != DDP_OK)
            return status;
        ddp_run_collect_facts(run, &facts);
        object = json_pack("{s:o, s:o}", DDP_RECORD_OPTIONS, words, DDP_RECORD_RUN,
                           ddp_checkpoint_facts_object(&facts));
        if (!object)
            return no_memory(NULL);
    }
    status = add_hash(object, run);
    if (status == DDP_OK)
        *record = object;
    else
        json_decref(object);
    return status;
}

enum ddp_status ddp_record_step(struct ddp_run *run)
{
    const int64_t every = run->planned.options->report.hash_every, step = run->step;
    if (every == 0 || step == run->first_step || (step % every != 0 && step != run->end_step))
        return DDP_OK;
    ddp_job_report(run->job, "hash", step - 1);
    ddp_train_metrics_begin_aside(run->metrics);
    json_t *object = run->planned.plan.rank == 0 ? json_object() : NULL;
    enum ddp_status status = object || run->planned.plan.rank != 0 ? DDP_OK : no_memory(NULL);
    if (status == DDP_OK)
        status = add_hash(object, run);
    if (status == DDP_OK && object)
        ddp_train_metrics_hash(run->metrics, step, object);
    else
        ddp_train_metrics_end_aside(run->metrics, "hash");
    json_decref(object);
    return status;
}
