/* SPDX-License-Identifier: MIT
 *
 * Tokens for language models, from one file or many: sample i is tokens [i*T, i*T+T] of a run of
 * tokens, its first T are what the model sees, its last T what it is to say. Texts are one run;
 * files of tokens are a run each. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"
#include "data/choices.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/encode.h"
#include "data/examples.h"
#include "data/pairs.h"
#include "data/split.h"
#include "data/text_directory.h"
#include "data/text_file.h"
#include "data/token_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEQ_LEN (1 << 24)
#define TEXT_SPLIT  0.1 /* of a text is for the test set, as nanoGPT prepares Shakespeare's plays */

struct run {
    int64_t first_token, token_count; /* of the stream */
    int64_t first_sample;
};

struct tokens {
    struct ddp_dataset base;
    struct ddp_token_stream *stream;
    int64_t begin, end; /* the part of the stream that is ours */
    struct run *runs;
    size_t run_count;
    bool text; /* not files of tokens: as bytes, or encoded */
    char *notice;
};

/* --- reading ---------------------------------------------------------------------------------- */

static const struct run *find_run(const struct tokens *t, int64_t sample)
{
    size_t low = 0, high = t->run_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (t->runs[middle].first_sample <= sample)
            low = middle;
        else
            high = middle;
    }
    return &t->runs[low];
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
        const struct run *run = find_run(t, indices[i]);
        const int64_t at = run->first_token + (indices[i] - run->first_sample) * (int64_t)seq;
        status = ddp_token_stream_read(t->stream, at, seq + 1, dataset->info.class_count,
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
    ddp_token_stream_close(t->stream);
    free(t->runs);
    free(t->notice);
}

/* --- which samples ---------------------------------------------------------------------------- */

static int64_t samples_of(int64_t token_count, int64_t seq)
{
    return token_count > seq ? (token_count - 1) / seq : 0;
}

/* Divides the part that is ours into runs and counts the samples.
 *   what  is too short where there is none: "" or "the last tenth of ", for the message */
static enum ddp_status set_runs(struct tokens *t, const char *what)
{
    const struct ddp_token_stream *stream = t->stream;
    const int64_t seq = t->base.info.label_count;
    const size_t runs = stream->text ? 1 : stream->file_count;
    int64_t samples = 0, longest = 0;
    if (!t->runs && !(t->runs = ddp_array_alloc(runs, sizeof *t->runs)))
        return DDP_ERR_MEMORY;
    t->run_count = runs;
    for (size_t i = 0; i < runs; i++) {
        const struct ddp_token_stream_file *file = &stream->files[i];
        int64_t begin = stream->text ? 0 : file->first;
        int64_t end = stream->text ? stream->token_count : begin + file->tokens.count;
        begin = begin < t->begin ? t->begin : begin;
        end = end > t->end ? t->end : end;
        t->runs[i] = (struct run){begin, end > begin ? end - begin : 0, samples};
        samples += samples_of(t->runs[i].token_count, seq);
        longest = t->runs[i].token_count > longest ? t->runs[i].token_count : longest;
    }
    t->base.info.sample_count = samples;
    if (samples > 0)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s%s: %" PRId64 " tokens are too few: one sample of --seq-len %" PRId64
                    " takes %" PRId64,
                    what, t->base.path, longest, seq, seq + 1);
}

static const struct ddp_dataset_ops ops;

/* The rest of the stream as a dataset of its own. */
static enum ddp_status make_rest(const struct tokens *train, ddp_dataset **test, int64_t begin,
                                 const char *what)
{
    struct tokens *t = ddp_dataset_alloc(sizeof *t, &ops, train->base.path);
    if (!t)
        return DDP_ERR_MEMORY;
    *test = &t->base;
    t->base.info = train->base.info;
    t->base.info.path = t->base.path;
    t->base.info.notice = NULL;
    t->stream = train->stream;
    t->stream->users++;
    t->begin = begin;
    t->end = train->end;
    return set_runs(t, what);
}

/* The first token of the last `samples` samples; -1: there are not so many. */
static int64_t begin_of_last(const struct tokens *t, int64_t samples)
{
    const int64_t seq = t->base.info.label_count;
    for (size_t i = t->run_count; i-- > 0;) {
        const struct run *run = &t->runs[i];
        const int64_t here = samples_of(run->token_count, seq);
        if (here >= samples)
            return run->first_token + run->token_count - (samples * seq + 1);
        samples -= here;
    }
    return -1;
}

/* The two parts have no token in common. test NULL: only the training set is wanted. */
static enum ddp_status cut(struct tokens *t, ddp_dataset **test, double amount,
                           const char *const what[2])
{
    const int64_t tokens = t->end - t->begin;
    const int64_t begin = amount < 1 ? t->end - ddp_split_count(amount, tokens)
                                     : begin_of_last(t, ddp_split_count(amount, 0));
    if (begin < 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--val-split %.0f: %s has %" PRId64
                        " samples, and at least one must be left for training",
                        amount, t->base.path, t->base.info.sample_count);
    enum ddp_status status = test ? make_rest(t, test, begin, what[1]) : DDP_OK;
    t->end = begin;
    return status == DDP_OK ? set_runs(t, what[0]) : status;
}

static enum ddp_status tokens_cut(ddp_dataset *train, ddp_dataset **test, double amount)
{
    return cut((struct tokens *)train, test, amount,
               (const char *const[]){"--val-split: the training part of ",
                                     "--val-split: the test part of "});
}

static const struct ddp_dataset_ops ops = {
    .read = tokens_read, .close = tokens_close, .cut = tokens_cut};

/* --- which files ------------------------------------------------------------------------------ */

/* Adds the files of the first of the names and patterns that a directory has.
 *   path [out]  that name, freed with free(); stays NULL without one */
static enum ddp_status find_in(const char *directory, const char *const *names, char **path,
                               struct ddp_data_names *files)
{
    for (int i = 0; names[i]; i++) {
        char *tried = ddp_path_in(directory, names[i]);
        if (!tried)
            return DDP_ERR_MEMORY;
        if (ddp_data_names_any(tried)) {
            *path = tried;
            return files ? ddp_data_names_list(files, tried) : DDP_OK;
        }
        free(tried);
    }
    return DDP_OK;
}

/* nanoGPT's names, then those of llm.c's prepared data. */
static const char *const train_names[] = {"train.bin", "*_train.bin", "*_train_*.bin", NULL};
static const char *const val_names[] = {"val.bin", "*_val.bin", "*_val_*.bin", NULL};

/* What --data or --val names. */
struct named {
    const char *path; /* as given */
    char *found;      /* in a directory; NULL: nothing by these names */
    struct ddp_data_names files;
};

static const char *shown(const struct named *named)
{
    return named->found ? named->found : named->path;
}

static void free_named(struct named *named)
{
    free(named->found);
    ddp_data_names_free(&named->files);
}

/* Lists the files for training.
 *   beside [out]  the files for the test that are in the same directory; NULL: all files count */
static enum ddp_status find_files(struct named *named, struct named *beside)
{
    const char *path = named->path;
    if (!ddp_data_directory_exists(path))
        return ddp_data_names_list(&named->files, path);
    enum ddp_status status = find_in(path, train_names, &named->found, &named->files);
    if (status == DDP_OK && named->found && beside)
        status = find_in(path, val_names, &beside->found, &beside->files);
    else if (status == DDP_OK && !named->found)
        status = ddp_text_directory_list(path, &named->files, beside ? &beside->files : NULL);
    if (beside && beside->files.count > 0)
        beside->path = path;
    if (status == DDP_OK && named->files.count == 0)
        status = ddp_fail(DDP_ERR_IO, "%s: there is no text%s in this directory", path,
                          beside ? " for training" : "");
    return status;
}

/* --- making ----------------------------------------------------------------------------------- */

/* A stream of tokens; t->stream is open. */
static enum ddp_status set_stream(struct tokens *t, const struct ddp_dataset_options *options,
                                  int64_t class_count)
{
    const struct ddp_encoded *encoded = t->stream->encoded;
    t->end = t->stream->token_count;
    t->text = t->stream->text || encoded;
    t->base.info = (struct ddp_dataset_info){
        .source = "tokens",
        .path = t->base.path,
        .class_count = class_count ? class_count
                       : encoded   ? ddp_tokenizer_ids(options->tokenizer)
                                   : t->stream->vocabulary,
        .label_count = options->seq_len,
        .x_dtype = DDP_I32,
        .dim_count = 1,
        .dims = {options->seq_len},
        .sample_values = (size_t)options->seq_len,
        .sample_bytes = (size_t)options->seq_len * sizeof(int32_t),
        .memory_bytes = t->stream->memory_bytes,
        .token_bytes =
            encoded ? (double)encoded->facts.text_bytes / (double)t->end : t->stream->text,
        .bytes = t->stream->text,
        .shuffled = true,
        .channel_count = 1,
        .std = {1},
    };
    if (encoded && ddp_encode_check(encoded, &t->base.info) != DDP_OK)
        return DDP_ERR_INVALID;
    if (t->stream->file_count > 1 && t->stream->text && t->base.info.class_count <= '\n')
        return ddp_fail(DDP_ERR_INVALID,
                        "--vocab-size %" PRId64 ": between two texts is a newline, which is token "
                        "%d",
                        t->base.info.class_count, '\n');
    return set_runs(t, "");
}

/* Has the tokenizer work to do? The first file says what all are. */
static enum ddp_status are_texts(const struct ddp_data_names *files,
                                 const struct ddp_dataset_options *options, bool *texts)
{
    const char *path = files->at[0];
    struct ddp_token_file file;
    *texts = false;
    if (!options->tokenizer || options->tokens != DDP_TOKENS_AUTO)
        return DDP_OK;
    if (ddp_text_is_jsonl(path) || ddp_text_ends_with(path, ".txt") ||
        ddp_text_ends_with(path, ".txt.gz")) {
        *texts = true;
        return DDP_OK;
    }
    const enum ddp_status status =
        ddp_token_file_open(&file, path, options->tokens, false, ddp_memory_total() / 2);
    *texts = status == DDP_OK && file.text;
    if (status == DDP_OK)
        ddp_token_file_close(&file);
    return status;
}

/* Texts through the tokenizer: examples are a dataset of their own kind.
 *   stream [out]  stays NULL with examples */
static enum ddp_status encode(ddp_dataset **result, struct ddp_token_stream **stream,
                              const struct named *named, const struct ddp_dataset_options *options,
                              int64_t class_count)
{
    struct ddp_encoded *encoded = NULL;
    struct ddp_columns columns;
    const struct ddp_encoding encoding = {.files = &named->files,
                                          .columns = options->columns ? &columns : NULL,
                                          .tokenizer = options->tokenizer,
                                          .chat = options->chat,
                                          .preferences = options->preferences,
                                          .watch = options->watch};
    enum ddp_status status =
        options->columns ? ddp_columns_read(&columns, options->columns) : DDP_OK;
    if (status == DDP_OK)
        status = ddp_encode_texts(&encoded, &encoding);
    if (status != DDP_OK)
        return status;
    if (encoded->facts.document_count == 0)
        return ddp_token_stream_take(stream, encoded);
    const int64_t classes = class_count ? class_count : ddp_tokenizer_ids(options->tokenizer);
    return options->preferences
               ? ddp_pairs_open(result, encoded, shown(named), &named->files, options, classes)
               : ddp_examples_open(result, encoded, shown(named), &named->files, options, classes);
}

/* All of the files. */
static enum ddp_status open_set(ddp_dataset **result, const struct named *named,
                                const struct ddp_dataset_options *options, int64_t class_count)
{
    struct ddp_token_stream *stream = NULL;
    bool texts;
    enum ddp_status status = are_texts(&named->files, options, &texts);
    if (status == DDP_OK && options->preferences && !texts)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: --objective learns from lines of preferences, in NAME.jsonl, which "
                        "the tokenizer of the model encodes (--tokenizer)%s",
                        shown(named), options->tokenizer ? "" : ", and there is none");
    if (status == DDP_OK && options->columns && !texts)
        status = ddp_fail(DDP_ERR_INVALID,
                          "--columns names what lines of JSON have (NAME.jsonl), for a tokenizer "
                          "(--tokenizer), and %s is read without one",
                          shown(named));
    if (status == DDP_OK && texts)
        status = encode(result, &stream, named, options, class_count);
    else if (status == DDP_OK)
        status = ddp_token_stream_open(&stream, &named->files, options->tokens);
    if (status != DDP_OK || *result)
        return status;
    struct tokens *t = ddp_dataset_alloc(sizeof *t, &ops, shown(named));
    if (!t) {
        ddp_token_stream_close(stream);
        return DDP_ERR_MEMORY;
    }
    *result = &t->base;
    t->stream = stream;
    return set_stream(t, options, class_count);
}

/* Says what was found in a directory of texts. */
static enum ddp_status set_notice(struct tokens *t, size_t files, size_t test_files)
{
    ddp_dataset *train = &t->base;
    const struct ddp_encoded *encoded = t->stream->encoded;
    const int64_t bytes = encoded ? encoded->facts.text_bytes : t->stream->token_count;
    char others[64] = "";
    if (test_files > 0)
        snprintf(others, sizeof others, " for training, %zu for evaluation", test_files);
    if (asprintf(&t->notice, "%s: %zu text%s, %" PRId64 " bytes%s", train->info.path, files,
                 files == 1 ? "" : "s", bytes, others) < 0) {
        t->notice = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", train->path);
    }
    train->info.notice = t->notice;
    return DDP_OK;
}

/* Has --val questions with choices? */
static bool is_questions(const struct named *val, const struct ddp_dataset_options *options)
{
    return val->path && val->files.count == 1 && options->tokenizer &&
           ddp_choices_recognise(val->files.at[0]);
}

static enum ddp_status open_both(struct named *train_files, struct named *val_files,
                                 const struct ddp_dataset_options *options, ddp_dataset **train,
                                 ddp_dataset **test)
{
    static const char *const tenth[2] = {"", "the last tenth, for evaluation, of "};
    enum ddp_status status = open_set(train, train_files, options, options->class_count);
    if (status != DDP_OK)
        return status;
    struct tokens *t = (*train)->ops == &ops ? (struct tokens *)*train : NULL;
    if (t && ddp_data_directory_exists(train_files->path) && !train_files->found)
        status = set_notice(t, train_files->files.count, val_files->files.count);
    if (status == DDP_OK && test && is_questions(val_files, options))
        return ddp_choices_open(test, val_files->files.at[0], options, (*train)->info.class_count);
    if (status == DDP_OK && val_files->path)
        return test ? open_set(test, val_files, options, (*train)->info.class_count) : DDP_OK;
    /* A text gives its last tenth away also when there is to be no evaluation: whether one is
     * printed must not change what is learned. */
    if (status == DDP_OK && t && t->text && options->val_split == 0)
        status = cut(t, test, TEXT_SPLIT, tenth);
    return status;
}

static enum ddp_status tokens_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                   ddp_dataset **test)
{
    struct named train_files = {.path = options->path}, beside = {0}, val = {.path = options->val};
    if (!options->path)
        return ddp_fail(DDP_ERR_INVALID, "give tokens with --data: a text, a file of tokens or a "
                                         "directory of texts or with train.bin and val.bin");
    if (options->seq_len < 1 || options->seq_len > MAX_SEQ_LEN)
        return ddp_fail(DDP_ERR_INVALID, "--seq-len %" PRId64 ": 1 to %d are possible",
                        options->seq_len, MAX_SEQ_LEN);
    enum ddp_status status = find_files(&train_files, &beside);
    if (status == DDP_OK && val.path)
        status = find_files(&val, NULL);
    if (status == DDP_OK)
        status = open_both(&train_files, val.path ? &val : &beside, options, train, test);
    free_named(&train_files);
    free_named(&beside);
    free_named(&val);
    return status;
}

/* By what is there. */
static bool tokens_recognise(const char *path)
{
    char *found = NULL;
    if (!ddp_data_directory_exists(path))
        return ddp_data_names_any(path);
    bool recognised = find_in(path, train_names, &found, NULL) == DDP_OK && found;
    free(found);
    return recognised || ddp_text_directory_any(path);
}

const struct ddp_dataset_source ddp_dataset_tokens = {
    .name = "tokens",
    .help = "token files of llm.c and nanoGPT, or texts, by a tokenizer or as bytes",
    .looks_for = "train.bin, *_train.bin or *_train_*.bin (tokens); *.txt, *.jsonl or *.gz of "
                 "them (texts)",
    .takes_val = true,
    .recognise = tokens_recognise,
    .open = tokens_open,
};
