/* SPDX-License-Identifier: MIT
 *
 * The table of sources, how one is found for a path, and what is done with the sets of any. */
#include "config.h"

#include "data/dataset.h"

#include "core/log.h"
#include "core/text.h"
#include "data/data_names.h"
#include "data/image_list.h"
#include "data/mixture.h"
#include "data/text/tokenizer.h"
#include "data/normalize.h"
#include "data/split.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static const struct ddp_dataset_source *const sources[] = {
    &ddp_dataset_idx,
    &ddp_dataset_cifar,
    &ddp_dataset_npy,
    &ddp_dataset_images,
    &ddp_dataset_table,
    &ddp_dataset_sentences,
    /* Last: it accepts any file. */
    &ddp_dataset_tokens,
    &ddp_dataset_article,
};

#define SOURCE_COUNT (sizeof sources / sizeof sources[0])

const struct ddp_dataset_source *ddp_dataset_source_at(size_t i)
{
    return i < SOURCE_COUNT ? sources[i] : NULL;
}

static enum ddp_status find_by_name(const char *name, const struct ddp_dataset_source **source)
{
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (strcmp(sources[i]->name, name) == 0) {
            *source = sources[i];
            return DDP_OK;
        }
    return ddp_fail(DDP_ERR_INVALID, "there is no data source named '%s'", name);
}

/* A file of that name, or a directory with some, as data sets are downloaded. */
static bool is_parquet(const char *path)
{
    char pattern[PATH_MAX];
    if (ddp_text_ends_with(path, ".parquet"))
        return true;
    return ddp_data_directory_exists(path) &&
           ((snprintf(pattern, sizeof pattern, "%s/*.parquet", path) < PATH_MAX &&
             ddp_data_names_any(pattern)) ||
            (snprintf(pattern, sizeof pattern, "%s/data/*.parquet", path) < PATH_MAX &&
             ddp_data_names_any(pattern)));
}

static enum ddp_status refuse_parquet(const char *path)
{
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: Parquet is not read: convert each file to JSON lines, with  python3 -c "
                    "\"import pandas; pandas.read_parquet('IN.parquet').to_json('OUT.jsonl', "
                    "orient='records', lines=True)\"  or, for a table, with to_csv('OUT.csv', "
                    "index=False)",
                    path);
}

static enum ddp_status not_recognised(const char *path)
{
    char looked_for[512] = "", others[DDP_IMAGE_OTHERS_BYTES];
    size_t used = 0;
    struct stat info;
    if (stat(path, &info) < 0 && errno == ENOENT && strpbrk(path, "*?["))
        return ddp_fail(DDP_ERR_IO, "%s: no file matches this pattern", path);
    if (stat(path, &info) < 0)
        return ddp_fail_path(path, "open the data");
    if (!S_ISDIR(info.st_mode))
        return ddp_fail(DDP_ERR_IO, "%s: cannot read: not a regular file", path);
    if (is_parquet(path))
        return refuse_parquet(path);
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (sources[i]->looks_for && used < sizeof looked_for)
            used += (size_t)snprintf(looked_for + used, sizeof looked_for - used, "%s%s",
                                     used ? "; " : "", sources[i]->looks_for);
    return ddp_fail(DDP_ERR_IO, "%s: no data found in this directory. Looked for: %s%s", path,
                    looked_for, ddp_image_list_tell_others(path, others));
}

/* NULL: none. */
static const struct ddp_dataset_source *source_of(const char *path)
{
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (sources[i]->recognise && sources[i]->recognise(path))
            return sources[i];
    return NULL;
}

static enum ddp_status find_by_path(const char *path, const struct ddp_dataset_source **source)
{
    if (ddp_text_ends_with(path, ".parquet"))
        return refuse_parquet(path);
    *source = source_of(path);
    return *source ? DDP_OK : not_recognised(path);
}

/* Of several sets with weights, what the first is. */
static bool holds(const struct ddp_dataset_source *kind, const char *source, const char *path)
{
    struct ddp_mixture mixture;
    if (!source && path && ddp_mixture_read(&mixture, path))
        return source_of(mixture.paths[0]) == kind;
    return source ? strcmp(source, kind->name) == 0 : path && source_of(path) == kind;
}

bool ddp_dataset_holds_tokens(const char *source, const char *path)
{
    return holds(&ddp_dataset_tokens, source, path);
}

bool ddp_dataset_holds_images(const char *source, const char *path)
{
    return holds(&ddp_dataset_images, source, path);
}

bool ddp_dataset_holds_table(const char *source, const char *path)
{
    return holds(&ddp_dataset_table, source, path);
}

static enum ddp_status split(ddp_dataset **train, ddp_dataset **test, double amount)
{
    if (*test)
        return ddp_fail(DDP_ERR_INVALID,
                        "--val-split: %s has a test part of its own: leave --val-split out",
                        ddp_dataset_where(&(*train)->info));
    if ((*train)->info.label_count == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--val-split: %s has no labels, so there is nothing to evaluate",
                        ddp_dataset_where(&(*train)->info));
    ddp_dataset *whole = *train;
    if (whole->ops->cut)
        return whole->ops->cut(whole, test, amount);
    const enum ddp_status status = ddp_split(train, test, amount);
    return status == DDP_OK && whole->ops->split ? whole->ops->split(whole, *train, *test) : status;
}

/* What is asked for of any source's sets. */
static enum ddp_status prepare(const struct ddp_dataset_options *options, ddp_dataset **train,
                               ddp_dataset **test)
{
    enum ddp_status status = DDP_OK;
    if (options->normalize && (*train)->info.x_dtype != DDP_F32)
        return ddp_fail(DDP_ERR_INVALID, "--normalize belongs to numbers, and %s holds tokens",
                        ddp_dataset_where(&(*train)->info));
    if (options->normalize && (*train)->info.word_count > 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--normalize belongs to numbers, and %s has words; its numbers are scaled "
                        "already",
                        ddp_dataset_where(&(*train)->info));
    if (options->val_split > 0)
        status = split(train, test, options->val_split);
    if (status == DDP_OK && options->normalize)
        status = ddp_normalize(train, test);
    return status;
}

/* Of one source. What was made is closed by the caller, also after a failure. */
static enum ddp_status open_one(const char *source, const struct ddp_dataset_options *options,
                                bool tested, ddp_dataset **train, ddp_dataset **test)
{
    const struct ddp_dataset_source *found = &ddp_dataset_idx;
    enum ddp_status status = DDP_OK;
    if (options->own)
        found = &ddp_dataset_custom;
    else if (source)
        status = find_by_name(source, &found);
    else if (options->path)
        status = find_by_path(options->path, &found);
    if (status == DDP_OK && options->val && ddp_text_ends_with(options->val, ".parquet"))
        status = refuse_parquet(options->val);
    if (status == DDP_OK && options->val && !found->takes_val)
        status =
            ddp_fail(DDP_ERR_INVALID, "--val: data of the kind %s have their own test set, or none",
                     found->name);
    if (status == DDP_OK && options->image_height && !found->takes_size)
        status = ddp_fail(DDP_ERR_INVALID,
                          "--image-size belongs to directories of images, and %s is data of the "
                          "kind %s",
                          options->path ? options->path : DDP_DATASET_DEFAULT_DIR, found->name);
    if (status == DDP_OK)
        status = found->open(options, train, tested || options->val_split > 0 ? test : NULL);
    return status == DDP_OK ? prepare(options, train, test) : status;
}

static void close_all(ddp_dataset **sets, int count)
{
    for (int i = 0; i < count; i++)
        ddp_dataset_close(sets[i]);
}

static enum ddp_status check_mixture(const struct ddp_mixture *mixture,
                                     const struct ddp_dataset_options *options)
{
    if (options->preferences)
        return ddp_fail(DDP_ERR_INVALID,
                        "--data: weights and --objective exclude each other: preferences come from "
                        "one file or pattern");
    for (int i = 0; i < mixture->count; i++)
        if (mixture->weights[i] == 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "--data %s: weights are numbers from 1e-6 to 1e6, such as "
                            "a.jsonl:2,b.jsonl:1",
                            options->path);
    return DDP_OK;
}

/* Each set with a test set of its own, unless --val names one for all. */
static enum ddp_status open_mixture(const struct ddp_mixture *mixture, const char *source,
                                    const struct ddp_dataset_options *options, bool tested,
                                    ddp_dataset **train, ddp_dataset **test)
{
    ddp_dataset *trains[DDP_MIXTURE_PARTS] = {NULL}, *tests[DDP_MIXTURE_PARTS] = {NULL};
    struct ddp_dataset_options of_part = *options;
    int opened = 0, with_test = 0;
    enum ddp_status status = check_mixture(mixture, options);
    for (; status == DDP_OK && opened < mixture->count; opened += status == DDP_OK) {
        const bool wanted = tested && (opened == 0 || !options->val);
        of_part.path = mixture->paths[opened];
        status =
            ddp_dataset_open(source, &of_part, &trains[opened], wanted ? &tests[with_test] : NULL);
        with_test += tests[with_test] != NULL;
    }
    if (status == DDP_OK)
        status = ddp_mixture_join(train, trains, opened, options->path, mixture->weights);
    else
        close_all(trains, opened);
    if (status == DDP_OK && with_test > 1)
        return ddp_mixture_join(test, tests, with_test, options->path, NULL);
    if (status == DDP_OK && with_test == 1) {
        *test = tests[0];
        return DDP_OK;
    }
    close_all(tests, with_test);
    return status;
}

/* Also of files of tokens: the tokenizer that is given with them says what they mean. */
static void note_tokenizer(ddp_dataset *set, const struct ddp_dataset_options *options)
{
    if (set && options->tokenizer && set->info.x_dtype == DDP_I32 && !set->info.bytes)
        set->info.tokenizer = ddp_tokenizer_hash(options->tokenizer);
}

enum ddp_status ddp_dataset_open(const char *source, const struct ddp_dataset_options *options,
                                 ddp_dataset **train, ddp_dataset **test)
{
    ddp_dataset *new_train = NULL, *new_test = NULL;
    struct ddp_mixture mixture;
    const bool mixed = !options->own && options->path && ddp_mixture_read(&mixture, options->path);
    const enum ddp_status status =
        mixed ? open_mixture(&mixture, source, options, test != NULL, &new_train, &new_test)
              : open_one(source, options, test != NULL, &new_train, &new_test);
    if (status != DDP_OK) {
        ddp_dataset_close(new_train);
        ddp_dataset_close(new_test);
        return status;
    }
    note_tokenizer(new_train, options);
    *train = new_train;
    if (test)
        *test = new_test;
    else
        ddp_dataset_close(new_test);
    return DDP_OK;
}
