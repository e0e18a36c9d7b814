/* SPDX-License-Identifier: MIT
 *
 * See choices.h. What is scored, and how, is what lm-evaluation-harness does with tasks of multiple
 * choice: a space between prompt and answer, and what the tokens of both together have beyond as
 * many as the prompt alone. */
#include "config.h"

#include "data/choices.h"

#include "core/label.h"
#include "core/log.h"
#include "core/memory.h"
#include "data/encode.h"
#include "data/line_reader.h"
#include "data/packing.h"
#include "data/question.h"
#include "data/text_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct sequence {
    size_t begin;          /* in the tokens */
    int32_t prompt, count; /* tokens of the prompt, and with the answer */
    int32_t bytes;         /* of the answer */
};

struct question {
    size_t first; /* sequence */
    int32_t count, answer;
};

struct choices {
    struct ddp_dataset base;
    struct ddp_tokens tokens;
    struct sequence *sequences;
    size_t sequence_count;
    struct question *questions;
    size_t question_count;
    float *scores;              /* (sequence_count) */
    struct ddp_packing packing; /* of pairs of sequences: 2i and 2i+1 */
    int32_t padding;            /* token */
    char *notice;
};

/* --- reading ---------------------------------------------------------------------------------- */

/* The second of the last pair may be missing. */
static size_t sequence_of(const struct choices *c, int64_t pair, int which)
{
    const size_t at = 2 * (size_t)pair + (size_t)which;
    return at < c->sequence_count ? at : at - 1;
}

/* Returns the position behind it. */
static int64_t put_sequence(const struct choices *c, const struct sequence *s, int32_t role,
                            int64_t at, int32_t *x, int32_t *labels)
{
    const int64_t seq = c->base.info.dims[1], begin = at;
    const int32_t *ids = c->tokens.ids + s->begin;
    for (int32_t i = 0; i + 1 < s->count; i++, at++) {
        x[at] = ids[i];
        x[seq + at] = (int32_t)begin;
        if (labels) {
            labels[at] = ids[i + 1];
            labels[seq + at] =
                role | (i + 1 >= s->prompt ? DDP_ROLE_ANSWER : 0) | (i == 0 ? DDP_ROLE_FIRST : 0);
        }
    }
    return at;
}

static enum ddp_status choices_read(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *x, int32_t *labels)
{
    const struct choices *c = (const struct choices *)dataset;
    const struct ddp_dataset_info *info = &dataset->info;
    const int64_t seq = info->dims[1];
    for (size_t i = 0; i < count; i++) {
        int32_t *own = (int32_t *)x + i * info->sample_values;
        int32_t *own_labels = labels ? labels + i * (size_t)info->label_count : NULL;
        int64_t at = 0;
        if (own_labels)
            memset(own_labels, 0, (size_t)info->label_count * sizeof *own_labels);
        for (int64_t k = c->packing.begins[indices[i]]; k < c->packing.begins[indices[i] + 1]; k++)
            for (int which = 0; which < 2; which++)
                at = put_sequence(c, &c->sequences[sequence_of(c, c->packing.documents[k], which)],
                                  which ? DDP_ROLE_SECOND : 0, at, own, own_labels);
        for (; at < seq; at++) {
            own[at] = c->padding;
            own[seq + at] = (int32_t)at;
            if (own_labels)
                own_labels[at] = DDP_LABEL_NONE;
        }
    }
    return DDP_OK;
}

static void choices_close(ddp_dataset *dataset)
{
    struct choices *c = (struct choices *)dataset;
    ddp_packing_free(&c->packing);
    free(c->tokens.ids);
    free(c->sequences);
    free(c->questions);
    free(c->scores);
    free(c->notice);
}

static const struct ddp_dataset_ops ops = {.read = choices_read, .close = choices_close};

/* --- scores ----------------------------------------------------------------------------------- */

float *ddp_choices_scores(const ddp_dataset *dataset, int64_t *count)
{
    const struct choices *c = (const struct choices *)dataset;
    if (dataset->ops != &ops)
        return NULL;
    *count = (int64_t)c->sequence_count;
    return c->scores;
}

void ddp_choices_take(const ddp_dataset *dataset, int64_t row, const int32_t *roles,
                      const float *values)
{
    const struct choices *c = (const struct choices *)dataset;
    int64_t sequence = 2 * c->packing.begins[row];
    for (int64_t t = 0; t < dataset->info.dims[1] && sequence < 2 * c->packing.begins[row + 1]; t++)
        if (roles[t] & DDP_ROLE_FIRST) {
            c->scores[sequence_of(c, c->packing.documents[sequence / 2], (int)(sequence % 2))] =
                values[t];
            sequence++;
        }
}

void ddp_choices_result(const ddp_dataset *dataset, struct ddp_choices_result *result)
{
    const struct choices *c = (const struct choices *)dataset;
    int64_t right = 0, right_normalized = 0;
    double loss = 0;
    for (size_t i = 0; i < c->question_count; i++) {
        const struct question *q = &c->questions[i];
        const float *scores = c->scores + q->first;
        int32_t best = 0, best_normalized = 0;
        for (int32_t k = 1; k < q->count; k++) {
            const double each = (double)scores[k] / c->sequences[q->first + (size_t)k].bytes;
            const double before = (double)scores[best_normalized] /
                                  c->sequences[q->first + (size_t)best_normalized].bytes;
            best = scores[k] > scores[best] ? k : best;
            best_normalized = each > before ? k : best_normalized;
        }
        right += best == q->answer;
        right_normalized += best_normalized == q->answer;
        loss -= (double)scores[q->answer];
    }
    *result = (struct ddp_choices_result){
        .questions = (int64_t)c->question_count,
        .accuracy = (double)right / (double)c->question_count,
        .normalized = (double)right_normalized / (double)c->question_count,
        .loss = loss / (double)c->question_count,
    };
}

/* --- questions -------------------------------------------------------------------------------- */

/* How questions come to tokens. */
struct reading {
    struct choices *choices;
    const struct ddp_dataset_options *options;
    const char *where; /* file and line */
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A prompt with an answer; spaces that end the prompt belong to the answer. */
static enum ddp_status add_sequence(struct reading *r, const json_t *prompt, const json_t *answer)
{
    struct choices *c = r->choices;
    const char *first = json_string_value(prompt), *then = json_string_value(answer);
    size_t before = json_string_length(prompt);
    const size_t bytes = json_string_length(answer);
    const bool apart = (before > 0 && is_space(first[before - 1])) || is_space(*then);
    struct sequence s = {.begin = c->tokens.count, .bytes = (int32_t)bytes};
    char *both = NULL;
    const int length = asprintf(&both, "%s%s%s", first, apart ? "" : " ", then);
    if (length < 0)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", r->where);
    while (before > 0 && is_space(first[before - 1]))
        before--;
    struct ddp_text_part part = {.at = both, .bytes = before, .name = r->where};
    enum ddp_status status =
        ddp_tokenizer_encode(r->options->tokenizer, &part, DDP_ENCODE_BOS, &c->tokens);
    s.prompt = (int32_t)(c->tokens.count - s.begin);
    c->tokens.count = s.begin;
    part.bytes = (size_t)length;
    if (status == DDP_OK)
        status = ddp_tokenizer_encode(r->options->tokenizer, &part, DDP_ENCODE_BOS, &c->tokens);
    s.count = (int32_t)(c->tokens.count - s.begin);
    free(both);
    if (status != DDP_OK)
        return status;
    if (s.prompt < 1 || s.count <= s.prompt)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the %s has no token of its own", r->where,
                        s.prompt < 1 ? "prompt" : "answer");
    if (s.count > r->options->seq_len / 2)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: %d tokens of a prompt and answer are more than half of --seq-len "
                        "%" PRId64 ": give a larger one",
                        r->where, s.count, r->options->seq_len);
    return ddp_array_append(&c->sequences, &c->sequence_count, &s, sizeof s);
}

static enum ddp_status take_question(struct reading *r, const struct ddp_question *asked)
{
    struct choices *c = r->choices;
    const struct question question = {c->sequence_count, asked->count, asked->answer};
    enum ddp_status status = DDP_OK;
    for (int32_t i = 0; status == DDP_OK && i < asked->count; i++)
        status = add_sequence(r, asked->prompt, json_array_get(asked->choices, (size_t)i));
    return status == DDP_OK
               ? ddp_array_append(&c->questions, &c->question_count, &question, sizeof question)
               : status;
}

static enum ddp_status read_questions(struct choices *c, const char *path,
                                      const struct ddp_dataset_options *options)
{
    char where[512];
    struct ddp_line line;
    struct reading reading = {c, options, where};
    ddp_line_reader *lines = NULL;
    size_t count = 1;
    enum ddp_status status = ddp_line_reader_open(&lines, path);
    while (status == DDP_OK && count > 0) {
        struct ddp_question question;
        status = ddp_line_reader_next(lines, &line, 1, &count);
        if (status != DDP_OK || count == 0)
            break;
        snprintf(where, sizeof where, "%.450s: line %" PRIu32, path, line.number);
        status = ddp_question_parse(&question, line.at, line.bytes, where);
        if (status == DDP_OK)
            status = take_question(&reading, &question);
        json_decref(question.root);
        if (status == DDP_OK && options->watch.goes_on &&
            !options->watch.goes_on(options->watch.arg, 0.5))
            status = DDP_ERR_ABORTED;
    }
    ddp_line_reader_close(lines);
    return status;
}

bool ddp_choices_recognise(const char *path)
{
    char said[256];
    struct ddp_line line;
    ddp_line_reader *lines = NULL;
    struct ddp_question question = {.root = NULL};
    size_t count = 0;
    if (!ddp_text_is_jsonl(path))
        return false;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    if (ddp_line_reader_open(&lines, path) == DDP_OK &&
        ddp_line_reader_next(lines, &line, 1, &count) == DDP_OK && count > 0)
        (void)ddp_question_parse(&question, line.at, line.bytes, path);
    ddp_log_exchange(before);
    const bool recognised = json_object_get(question.root, "choices");
    json_decref(question.root);
    ddp_line_reader_close(lines);
    return recognised;
}

/* --- making ----------------------------------------------------------------------------------- */

static enum ddp_status pack(struct choices *c)
{
    const int64_t pairs = (int64_t)(c->sequence_count + 1) / 2, seq = c->base.info.dims[1];
    int32_t *lengths = ddp_array_alloc((size_t)pairs + 1, sizeof *lengths);
    if (!lengths)
        return DDP_ERR_MEMORY;
    for (int64_t i = 0; i < pairs; i++)
        lengths[i] =
            c->sequences[sequence_of(c, i, 0)].count + c->sequences[sequence_of(c, i, 1)].count - 2;
    const enum ddp_status status = ddp_packing_make(&c->packing, lengths, pairs, seq, false);
    free(lengths);
    return status;
}

static enum ddp_status check_tokens(const struct choices *c)
{
    for (size_t i = 0; i < c->tokens.count; i++)
        if (c->tokens.ids[i] >= c->base.info.class_count)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: encoded, it has token %d: the model's vocabulary has %" PRId64
                            " tokens, from 0: give the tokenizer of this model",
                            c->base.path, c->tokens.ids[i], c->base.info.class_count);
    return DDP_OK;
}

enum ddp_status ddp_choices_open(ddp_dataset **dataset, const char *path,
                                 const struct ddp_dataset_options *options, int64_t class_count)
{
    const int32_t eos = ddp_tokenizer_eos(options->tokenizer);
    struct choices *c = ddp_dataset_alloc(sizeof *c, &ops, path);
    if (!c)
        return DDP_ERR_MEMORY;
    *dataset = &c->base;
    c->padding = eos >= 0 && eos < class_count ? eos : 0;
    c->base.info = ddp_encode_row_info(c->base.path, options->seq_len, class_count);
    c->base.info.label_count *= DDP_ROLE_PLANES;
    enum ddp_status status = read_questions(c, path, options);
    if (status == DDP_OK && c->question_count == 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: no question in it", path);
    if (status == DDP_OK)
        status = check_tokens(c);
    if (status == DDP_OK)
        status = pack(c);
    if (status == DDP_OK && !(c->scores = ddp_array_alloc(c->sequence_count, sizeof *c->scores)))
        status = DDP_ERR_MEMORY;
    if (status != DDP_OK)
        return status;
    c->base.info.sample_count = c->packing.row_count;
    c->base.info.memory_bytes =
        c->tokens.count * sizeof *c->tokens.ids + c->sequence_count * sizeof *c->sequences;
    if (asprintf(&c->notice, "%s: %zu questions with %zu choices, in %" PRId64 " rows", path,
                 c->question_count, c->sequence_count, c->packing.row_count) < 0) {
        c->notice = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    }
    c->base.info.notice = c->notice;
    return DDP_OK;
}
