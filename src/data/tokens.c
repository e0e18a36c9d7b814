/* SPDX-License-Identifier: MIT
 *
 * Tokens for language models, from one file or many: sample i is tokens [i*T, i*T+T] of a file, its
 * first T are what the model sees, its last T what it is to say. No sample crosses from one file to
 * the next. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/token_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEQ_LEN (1 << 24)
#define KEEP_OPEN   256 /* files; where there are more, each is opened when it is read */

struct part {
    struct ddp_token_file tokens;
    int64_t first_token, token_count; /* the part of the file that is ours */
    int64_t first_sample;
};

struct tokens {
    struct ddp_dataset base;
    struct part *parts;
    size_t part_count;
};

/* --- reading ---------------------------------------------------------------------------------- */

static const struct part *find_part(const struct tokens *t, int64_t sample)
{
    size_t low = 0, high = t->part_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (t->parts[middle].first_sample <= sample)
            low = middle;
        else
            high = middle;
    }
    return &t->parts[low];
}

static enum ddp_status tokens_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                   void *x, int32_t *labels)
{
    const struct tokens *t = (const struct tokens *)dataset;
    const size_t seq = dataset->info.sample_values;
    enum ddp_status status = DDP_OK;
    int32_t *both = ddp_array_alloc(seq + 1, 2 * sizeof *both); /* as numbers; and as read */
    if (!both)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const struct part *part = find_part(t, indices[i]);
        const int64_t at = part->first_token + (indices[i] - part->first_sample) * (int64_t)seq;
        status = ddp_token_file_read(&part->tokens, at, seq + 1, dataset->info.class_count,
                                     both + seq + 1, both);
        if (status != DDP_OK)
            break;
        memcpy((int32_t *)x + i * seq, both, seq * sizeof *both);
        if (labels)
            memcpy(labels + i * seq, both + 1, seq * sizeof *both);
    }
    free(both);
    return status;
}

static void tokens_close(ddp_dataset *dataset)
{
    struct tokens *t = (struct tokens *)dataset;
    for (size_t i = 0; t->parts && i < t->part_count; i++)
        ddp_token_file_close(&t->parts[i].tokens);
    free(t->parts);
}

static const struct ddp_dataset_ops ops = {.read = tokens_read, .close = tokens_close};

/* --- which files ------------------------------------------------------------------------------ */

/* The first of the names and patterns that a directory has; *path stays NULL without one. */
static enum ddp_status find_in(const char *directory, const char *const *names, char **path)
{
    for (int i = 0; names[i]; i++) {
        char *tried = ddp_data_path(directory, names[i]);
        if (!tried)
            return DDP_ERR_MEMORY;
        if (ddp_data_names_any(tried)) {
            *path = tried;
            return DDP_OK;
        }
        free(tried);
    }
    return DDP_OK;
}

/* nanoGPT's names, then those of llm.c's prepared data. */
static const char *const train_names[] = {"train.bin", "*_train.bin", "*_train_*.bin", NULL};
static const char *const val_names[] = {"val.bin", "*_val.bin", "*_val_*.bin", NULL};

/* --- making ----------------------------------------------------------------------------------- */

static enum ddp_status open_parts(struct tokens *t, const struct ddp_data_names *files,
                                  enum ddp_token_kind kind)
{
    const bool keep = files->count <= KEEP_OPEN;
    t->parts = ddp_array_alloc(files->count, sizeof *t->parts);
    if (!t->parts)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < files->count; i++) {
        struct part *part = &t->parts[i];
        enum ddp_status status = ddp_token_file_open(&part->tokens, files->at[i], kind, keep);
        if (status != DDP_OK)
            return status;
        t->part_count = i + 1;
        part->token_count = part->tokens.count;
    }
    return DDP_OK;
}

/* Counts the samples, after the parts have got their tokens. */
static enum ddp_status set_info(struct tokens *t, const struct ddp_dataset_options *options)
{
    const int64_t seq = options->seq_len;
    struct ddp_dataset_info *info = &t->base.info;
    int64_t samples = 0, vocabulary = 0, longest = 0;
    bool text = true;
    for (size_t i = 0; i < t->part_count; i++) {
        struct part *part = &t->parts[i];
        part->first_sample = samples;
        if (part->token_count > seq)
            samples += (part->token_count - 1) / seq;
        if (part->tokens.vocabulary > vocabulary)
            vocabulary = part->tokens.vocabulary;
        if (part->token_count > longest)
            longest = part->token_count;
        text = text && part->tokens.text;
    }
    if (samples == 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %" PRId64 " tokens are too few: one sample of --seq-len %" PRId64
                        " takes %" PRId64,
                        t->base.path, longest, seq, seq + 1);
    *info = (struct ddp_dataset_info){
        .source = "tokens",
        .path = t->base.path,
        .sample_count = samples,
        .class_count = options->class_count ? options->class_count : vocabulary,
        .label_count = seq,
        .x_dtype = DDP_I32,
        .dim_count = 1,
        .dims = {seq},
        .sample_values = (size_t)seq,
        .sample_bytes = (size_t)seq * sizeof(int32_t),
        .memory_bytes = t->part_count * sizeof *t->parts,
        .token_bytes = text ? 1 : 0,
        .shuffled = true,
        .channel_count = 1,
        .std = {1},
    };
    return DDP_OK;
}

/* Leaves nine tenths of a text for training or the rest for the test set, as nanoGPT prepares
 * Shakespeare's plays. */
static void take_portion(struct part *part, bool test)
{
    const int64_t whole = part->tokens.count;
    const int64_t train = whole / 10 * 9 + whole % 10 * 9 / 10;
    part->first_token = test ? train : 0;
    part->token_count = test ? whole - train : train;
}

enum portion { ALL, FOR_TRAINING, FOR_TEST };

/* *split [out]  it is a single text, of which the test set may be a part; may be NULL. */
static enum ddp_status open_set(ddp_dataset **result, const char *path,
                                const struct ddp_dataset_options *options, enum portion portion,
                                bool *split)
{
    struct ddp_data_names files = {0};
    struct tokens *t = ddp_dataset_alloc(sizeof *t, &ops, path);
    if (!t)
        return DDP_ERR_MEMORY;
    *result = &t->base;
    enum ddp_status status = ddp_data_names_list(&files, path);
    if (status == DDP_OK)
        status = open_parts(t, &files, options->tokens);
    ddp_data_names_free(&files);
    const bool text = status == DDP_OK && t->part_count == 1 && t->parts[0].tokens.text;
    if (text && portion != ALL)
        take_portion(&t->parts[0], portion == FOR_TEST);
    if (split)
        *split = text;
    return status == DDP_OK ? set_info(t, options) : status;
}

/* Opens the files that the path and --val name, after directories are resolved. */
static enum ddp_status open_both(const char *path, const char *val,
                                 const struct ddp_dataset_options *options, ddp_dataset **train,
                                 ddp_dataset **test)
{
    bool split;
    /* A text gives its last tenth away also when there is to be no evaluation: whether one is
     * printed must not change what is learned. */
    enum ddp_status status = open_set(train, path, options, val ? ALL : FOR_TRAINING, &split);
    if (status != DDP_OK)
        return status;
    struct ddp_dataset_options same = *options;
    same.class_count = (*train)->info.class_count;
    if (test && val)
        status = open_set(test, val, &same, ALL, NULL);
    else if (test && split)
        status = open_set(test, path, &same, FOR_TEST, NULL);
    return status;
}

static enum ddp_status tokens_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                   ddp_dataset **test)
{
    char *found = NULL, *found_val = NULL;
    const char *path = options->path, *val = options->val;
    enum ddp_status status = DDP_OK;
    if (!path)
        return ddp_fail(DDP_ERR_INVALID, "give tokens with --data: a text, a file of tokens or a "
                                         "directory with train.bin and val.bin");
    if (options->seq_len < 1 || options->seq_len > MAX_SEQ_LEN)
        return ddp_fail(DDP_ERR_INVALID, "--seq-len %" PRId64 ": 1 to %d are possible",
                        options->seq_len, MAX_SEQ_LEN);
    if (ddp_data_directory_exists(path)) {
        status = find_in(path, train_names, &found);
        if (status == DDP_OK && !found)
            status = ddp_fail(DDP_ERR_IO,
                              "%s: neither train.bin nor *_train.bin nor *_train_*.bin is in this "
                              "directory",
                              path);
        if (status == DDP_OK && !val)
            status = find_in(path, val_names, &found_val);
    }
    if (status == DDP_OK)
        status = open_both(found ? found : path, found_val ? found_val : val, options, train, test);
    free(found);
    free(found_val);
    return status;
}

static bool tokens_recognise(const char *path)
{
    char *found = NULL;
    if (!ddp_data_directory_exists(path))
        return ddp_data_names_any(path);
    bool recognised = find_in(path, train_names, &found) == DDP_OK && found;
    free(found);
    return recognised;
}

const struct ddp_dataset_source ddp_dataset_tokens = {
    .name = "tokens",
    .help = "token files of llm.c and nanoGPT, or any text as bytes",
    .looks_for = "train.bin, *_train.bin or *_train_*.bin (tokens)",
    .takes_val = true,
    .recognise = tokens_recognise,
    .open = tokens_open,
};
