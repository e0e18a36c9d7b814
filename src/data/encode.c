/* SPDX-License-Identifier: MIT
 *
 * See encode.h. Lines are parsed and encoded by a pool, some hundreds at a time, and written in
 * their order. */
#include "config.h"

#include "data/encode.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/pool.h"
#include "core/thread.h"
#include "data/encode_answers.h"
#include "data/line_reader.h"
#include "data/record.h"
#include "data/text_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GROUP         512  /* lines that are worked on together */
#define MESSAGE_BYTES 1024 /* of a line that cannot be encoded */
#define MOST_THREADS  64

struct worked {
    struct ddp_line line;
    enum ddp_record_kind kind;
    size_t text_bytes; /* of a text */
    struct ddp_tokens tokens;
    struct ddp_buffer trained; /* a byte for each token */
    size_t second;             /* of a pair: where the rejected answer's tokens begin */
    bool bad;                  /* a rated answer */
    enum ddp_status status;
    char *message; /* with a status */
};

struct work {
    const struct ddp_encoding *encoding;
    ddp_encoded_writer *writer;
    ddp_pool *pool;
    const char *file; /* the one that is worked on, and its number */
    uint32_t file_number;
    bool decided; /* kind is that of all lines, in all files */
    enum ddp_record_kind kind;
    ddp_chat_template *chat;
    struct ddp_line lines[GROUP];
    struct worked worked[GROUP];
    int64_t text_bytes;
    uint64_t done, total; /* bytes of the files */
};

static enum ddp_status look(struct work *work, uint64_t more)
{
    const struct ddp_dataset_watch *watch = &work->encoding->watch;
    work->done += more;
    const double share = work->total ? (double)work->done / (double)work->total : 1;
    return !watch->goes_on || watch->goes_on(watch->arg, share < 1 ? share : 1) ? DDP_OK
                                                                                : DDP_ERR_ABORTED;
}

/* --- tokens of a record ----------------------------------------------------------------------- */

/* Both are encoded as one text; what begins with the completion is trained. */
static enum ddp_status encode_prompt(const struct ddp_record *record,
                                     const ddp_tokenizer *tokenizer, const char *where,
                                     struct ddp_tokens *tokens, size_t *first)
{
    const size_t bytes = record->text_bytes + record->completion_bytes;
    char *both = ddp_array_alloc(bytes + 1, 1);
    if (!both)
        return DDP_ERR_MEMORY;
    memcpy(both, record->text, record->text_bytes);
    memcpy(both + record->text_bytes, record->completion, record->completion_bytes);
    const struct ddp_text_part part = {.at = both, .bytes = bytes, .name = where};
    const enum ddp_status status = ddp_tokenizer_encode_marked(
        tokenizer, &part, DDP_ENCODE_BOS, &record->text_bytes, 1, tokens, first);
    free(both);
    return status;
}

/* Appends the tokens and, with them, which are trained: of a text all, of a prompt the completion,
 * of a chat what the assistant says; each with the token that ends it.
 *   chat     of a chat; else NULL is fine
 *   trained  as of ddp_chat_encode() */
static enum ddp_status encode_record(const struct ddp_record *record,
                                     const ddp_tokenizer *tokenizer, const ddp_chat_template *chat,
                                     const char *where, struct ddp_tokens *tokens,
                                     struct ddp_buffer *trained)
{
    size_t first = tokens->count;
    enum ddp_status status;
    if (record->kind == DDP_RECORD_CHAT)
        return ddp_chat_encode(
            chat, tokenizer, where,
            &(struct ddp_chat){record->messages, record->message_count, record->tools, false},
            tokens, trained);
    if (record->kind == DDP_RECORD_PROMPT)
        status = encode_prompt(record, tokenizer, where, tokens, &first);
    else {
        const struct ddp_text_part part = {
            .at = record->text, .bytes = record->text_bytes, .name = where};
        status = ddp_tokenizer_encode(tokenizer, &part, DDP_ENCODE_BOS, tokens);
    }
    return status == DDP_OK ? ddp_encode_end(tokenizer, first, tokens, trained) : status;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* What follows the last token of an example that is trained changes nothing.
 *   tokens   get the bits of those that are trained
 *   trained  NULL: tokens of a stream */
static enum ddp_status write_tokens(struct work *work, int32_t *tokens, size_t count,
                                    const char *trained, uint32_t line, bool bad)
{
    const struct ddp_encoded_document place = {
        .file = work->file_number | (bad ? DDP_ENCODED_BAD : 0), .line = line};
    uint32_t *words = (uint32_t *)tokens;
    while (trained && count > 0 && !trained[count - 1])
        count--;
    for (size_t i = 0; trained && i < count; i++)
        words[i] |= trained[i] ? DDP_ENCODED_TRAINED : 0;
    return ddp_encoded_writer_add(work->writer, words, count, trained ? &place : NULL);
}

/* --- JSON lines ------------------------------------------------------------------------------- */

static enum ddp_status parse(const struct work *work, struct ddp_record *record,
                             const struct ddp_line *line, const char *where)
{
    const struct ddp_columns *columns = work->encoding->columns;
    return work->encoding->preferences
               ? ddp_record_parse_preference(record, columns, line->at, line->bytes, where)
               : ddp_record_parse(record, columns, line->at, line->bytes, where);
}

static enum ddp_status work_on(struct work *work, struct worked *w, const char *where)
{
    struct ddp_record record;
    enum ddp_status status = parse(work, &record, &w->line, where);
    w->kind = record.kind;
    w->bad = record.bad;
    w->text_bytes = record.text_bytes;
    if (status == DDP_OK && record.kind != work->kind)
        status =
            ddp_fail(DDP_ERR_FORMAT,
                     "%s: it has %s, and the first line %s: keep kinds in files of their own, "
                     "and train on one kind at a time",
                     where, ddp_record_kind_name(record.kind), ddp_record_kind_name(work->kind));
    if (status == DDP_OK && record.answers[0].messages && !work->chat)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: its answers are messages, and those of the first line strings: keep "
                          "them in files of their own",
                          where);
    if (status == DDP_OK && (work->encoding->preferences || record.answers[0].messages))
        status = ddp_encode_answers(&record, work->encoding->tokenizer, work->chat, where,
                                    &w->tokens, &w->trained, &w->second);
    else if (status == DDP_OK)
        status = encode_record(&record, work->encoding->tokenizer, work->chat, where, &w->tokens,
                               &w->trained);
    ddp_record_free(&record);
    return status;
}

/* A task of the pool. Its message waits for its turn: the first line that is wrong is named. */
static void work_on_line(void *arg, size_t index)
{
    struct work *work = arg;
    struct worked *w = &work->worked[index];
    char where[512], said[MESSAGE_BYTES] = "";
    snprintf(where, sizeof where, "%.450s: line %" PRIu32, work->file, w->line.number);
    w->tokens.count = w->trained.bytes = 0;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    w->status = work_on(work, w, where);
    ddp_log_exchange(before);
    if (w->status != DDP_OK)
        w->message = strdup(said);
}

/* What the first line is, all are. */
static enum ddp_status decide(struct work *work, const struct ddp_line *line)
{
    char where[512];
    struct ddp_record record;
    snprintf(where, sizeof where, "%.450s: line %" PRIu32, work->file, line->number);
    enum ddp_status status = parse(work, &record, line, where);
    const bool chat = record.kind == DDP_RECORD_CHAT || record.answers[0].messages;
    work->kind = record.kind;
    work->decided = true;
    ddp_record_free(&record);
    if (status == DDP_OK && chat)
        status =
            ddp_chat_template_choose(&work->chat, work->encoding->tokenizer, work->encoding->chat);
    return status;
}

static enum ddp_status write_line(struct work *work, const struct worked *w)
{
    const char *trained = w->kind == DDP_RECORD_TEXT ? NULL : w->trained.at;
    const size_t first = w->kind == DDP_RECORD_PAIR ? w->second : w->tokens.count;
    enum ddp_status status =
        write_tokens(work, w->tokens.ids, first, trained, w->line.number, w->bad);
    return status == DDP_OK && w->kind == DDP_RECORD_PAIR
               ? write_tokens(work, w->tokens.ids + first, w->tokens.count - first, trained + first,
                              w->line.number, true)
               : status;
}

static enum ddp_status write_group(struct work *work, size_t count)
{
    enum ddp_status status = DDP_OK;
    uint64_t bytes = 0;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        struct worked *w = &work->worked[i];
        status = w->status;
        bytes += w->line.bytes + 1;
        work->text_bytes += (int64_t)w->text_bytes;
        if (status != DDP_OK && w->message && *w->message)
            (void)ddp_fail(status, "%s", w->message);
        if (status == DDP_OK)
            status = write_line(work, w);
    }
    for (size_t i = 0; i < count; i++) {
        free(work->worked[i].message);
        work->worked[i].message = NULL;
    }
    return status == DDP_OK ? look(work, bytes) : status;
}

static enum ddp_status encode_lines(struct work *work)
{
    ddp_line_reader *reader = NULL;
    size_t count = 1;
    enum ddp_status status = ddp_line_reader_open(&reader, work->file);
    while (status == DDP_OK && count > 0) {
        status = ddp_line_reader_next(reader, work->lines, GROUP, &count);
        if (status == DDP_OK && count > 0 && !work->decided)
            status = decide(work, &work->lines[0]);
        if (status != DDP_OK || count == 0)
            break;
        for (size_t i = 0; i < count; i++)
            work->worked[i].line = work->lines[i];
        ddp_pool_run(work->pool, count, work_on_line, work);
        status = write_group(work, count);
    }
    ddp_line_reader_close(reader);
    return status;
}

/* --- text files ------------------------------------------------------------------------------- */

static enum ddp_status encode_text(struct work *work)
{
    struct ddp_text text = {0};
    struct ddp_tokens tokens = {0};
    const int32_t eos = ddp_tokenizer_eos(work->encoding->tokenizer);
    if (work->encoding->preferences)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a text: --objective learns from lines of preferences, in NAME.jsonl",
                        work->file);
    if (work->decided && work->kind != DDP_RECORD_TEXT)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a text, beside lines of %s: train on one kind at a time", work->file,
                        ddp_record_kind_name(work->kind));
    work->decided = true;
    work->kind = DDP_RECORD_TEXT;
    FILE *file = fopen(work->file, "rbe");
    if (!file)
        return ddp_fail_path(work->file, "open");
    enum ddp_status status = ddp_text_read(&text, file, work->file, false, ddp_memory_total() / 2);
    fclose(file);
    const struct ddp_text_part part = {
        .at = (const char *)text.at, .bytes = text.bytes, .name = work->file};
    if (status == DDP_OK)
        status = ddp_tokenizer_encode_many(work->encoding->tokenizer, &part, 1, DDP_ENCODE_BOS,
                                           ddp_pool_threads(work->pool), &tokens, NULL);
    if (status == DDP_OK)
        status = write_tokens(work, tokens.ids, tokens.count, NULL, 0, false);
    const uint32_t end = (uint32_t)eos;
    if (status == DDP_OK && eos >= 0)
        status = ddp_encoded_writer_add(work->writer, &end, 1, NULL);
    work->text_bytes += (int64_t)text.bytes;
    free(tokens.ids);
    free(text.at);
    return status == DDP_OK ? look(work, text.bytes) : status;
}

/* --- all files -------------------------------------------------------------------------------- */

static enum ddp_status measure(struct work *work)
{
    for (size_t i = 0; i < work->encoding->files->count; i++) {
        struct ddp_input_file file = {.fd = -1};
        const enum ddp_status status =
            ddp_input_file_open(&file, work->encoding->files->at[i], false);
        if (status != DDP_OK)
            return status;
        work->total += file.bytes;
        ddp_input_file_close(&file);
    }
    return DDP_OK;
}

static void free_work(struct work *work)
{
    for (size_t i = 0; i < GROUP; i++) {
        free(work->worked[i].tokens.ids);
        free(work->worked[i].trained.at);
    }
    ddp_chat_template_close(work->chat);
    ddp_pool_destroy(work->pool);
    free(work);
}

enum ddp_status ddp_encode_into(ddp_encoded_writer *writer, const struct ddp_encoding *encoding,
                                int64_t *text_bytes)
{
    struct work *work = ddp_array_alloc(1, sizeof *work);
    int threads = encoding->threads ? encoding->threads : ddp_cpu_count();
    threads = threads > MOST_THREADS ? MOST_THREADS : threads < 1 ? 1 : threads;
    if (!work)
        return DDP_ERR_MEMORY;
    work->encoding = encoding;
    work->writer = writer;
    enum ddp_status status = measure(work);
    if (status == DDP_OK)
        status = ddp_pool_create(&work->pool, threads);
    for (size_t i = 0; status == DDP_OK && i < encoding->files->count; i++) {
        work->file = encoding->files->at[i];
        work->file_number = (uint32_t)i;
        status = ddp_text_is_jsonl(work->file) ? encode_lines(work) : encode_text(work);
    }
    *text_bytes = work->text_bytes;
    free_work(work);
    return status;
}

/* Has the file a line? If so, what its first one is. */
static bool find_kind(const char *path, const struct ddp_columns *columns,
                      enum ddp_record_kind *kind)
{
    struct ddp_line line;
    struct ddp_record record = {.kind = DDP_RECORD_TEXT};
    ddp_line_reader *reader = NULL;
    size_t count = 0;
    if (ddp_line_reader_open(&reader, path) == DDP_OK &&
        ddp_line_reader_next(reader, &line, 1, &count) == DDP_OK && count > 0) {
        (void)ddp_record_parse(&record, columns, line.at, line.bytes, path);
        *kind = record.kind;
        ddp_record_free(&record);
    }
    ddp_line_reader_close(reader);
    return count > 0;
}

/* Says nothing: what is wrong is said when the lines are encoded. */
bool ddp_encode_makes_examples(const struct ddp_encoding *encoding)
{
    const struct ddp_data_names *files = encoding->files;
    char said[MESSAGE_BYTES];
    enum ddp_record_kind kind = DDP_RECORD_TEXT;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    for (size_t i = 0; i < files->count; i++)
        if (!ddp_text_is_jsonl(files->at[i]) || find_kind(files->at[i], encoding->columns, &kind))
            break;
    ddp_log_exchange(before);
    return kind != DDP_RECORD_TEXT;
}

enum ddp_status ddp_encode_check(const struct ddp_encoded *encoded,
                                 const struct ddp_dataset_info *info)
{
    if (encoded->facts.largest < info->class_count)
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID,
                    "%s: encoded, it has token %" PRId64 ": the model's vocabulary has %" PRId64
                    " tokens, from 0: give the tokenizer of this model",
                    info->path, encoded->facts.largest, info->class_count);
}

struct ddp_dataset_info ddp_encode_row_info(const char *path, int64_t seq, int64_t class_count)
{
    return (struct ddp_dataset_info){
        .source = "tokens",
        .path = path,
        .class_count = class_count,
        .label_count = seq,
        .x_dtype = DDP_I32,
        .dim_count = 2,
        .dims = {2, seq},
        .sample_values = 2 * (size_t)seq,
        .sample_bytes = 2 * (size_t)seq * sizeof(int32_t),
        .shuffled = true,
        .channel_count = 1,
        .std = {1},
    };
}
