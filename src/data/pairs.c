/* SPDX-License-Identifier: MIT
 *
 * See pairs.h. A sequence of n tokens takes n-1 positions of a row: its last token is only
 * predicted. */
#include "config.h"

#include "data/pairs.h"

#include "core/label.h"
#include "core/log.h"
#include "core/memory.h"
#include "data/encode.h"
#include "data/packing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct sequence {
    uint64_t prompt, answer;     /* where they begin, in tokens of `encoded` */
    int32_t prompt_count, count; /* tokens of the prompt, and with what is used of the answer */
};

struct pair {
    struct sequence of[2];
    bool bad; /* the rating of the first */
};

struct pairs {
    struct ddp_dataset base;
    struct ddp_encoded *encoded;
    struct pair *list; /* (count) */
    int64_t count;
    int64_t cut, dropped, filled; /* too long; by the prompt alone */
    struct ddp_packing packing;
    float *references; /* of both sequences of each pair, in the order of the rows */
    int32_t padding;   /* token */
    char *notice;
};

/* --- reading ---------------------------------------------------------------------------------- */

/* A row on its way. */
struct row {
    const struct pairs *pairs;
    uint32_t *words;
    int32_t *x, *labels; /* the latter NULL: not wanted */
    int64_t at;
};

static enum ddp_status read_sequence(struct row *row, const struct sequence *sequence, int32_t role,
                                     float reference)
{
    const int64_t seq = row->pairs->base.info.dims[1], begin = row->at;
    const size_t prompt = (size_t)sequence->prompt_count, count = (size_t)sequence->count;
    const struct ddp_encoded *encoded = row->pairs->encoded;
    enum ddp_status status = ddp_encoded_read(encoded, sequence->prompt, prompt, row->words);
    if (status == DDP_OK)
        status = ddp_encoded_read(encoded, sequence->answer, count - prompt, row->words + prompt);
    for (size_t i = 0; status == DDP_OK && i + 1 < count; i++, row->at++) {
        row->x[row->at] = (int32_t)(row->words[i] & ~DDP_ENCODED_TRAINED);
        row->x[seq + row->at] = (int32_t)begin;
        if (!row->labels)
            continue;
        row->labels[row->at] = (int32_t)(row->words[i + 1] & ~DDP_ENCODED_TRAINED);
        row->labels[seq + row->at] =
            role | (i + 1 >= prompt ? DDP_ROLE_ANSWER : 0) | (i == 0 ? DDP_ROLE_FIRST : 0);
        row->labels[2 * seq + row->at] = 0;
    }
    if (status == DDP_OK && row->labels)
        memcpy(&row->labels[2 * seq + begin], &reference, sizeof reference);
    return status;
}

static enum ddp_status read_row(struct row *row, int64_t number)
{
    const struct pairs *p = row->pairs;
    const int64_t seq = p->base.info.dims[1];
    enum ddp_status status = DDP_OK;
    for (int64_t i = p->packing.begins[number];
         status == DDP_OK && i < p->packing.begins[number + 1]; i++) {
        const struct pair *pair = &p->list[p->packing.documents[i]];
        const int32_t rating = pair->bad ? DDP_ROLE_BAD : 0;
        status = read_sequence(row, &pair->of[0], rating, p->references[2 * i]);
        if (status == DDP_OK)
            status = read_sequence(row, &pair->of[1], rating | DDP_ROLE_SECOND,
                                   p->references[2 * i + 1]);
    }
    for (; row->at < seq; row->at++) {
        row->x[row->at] = p->padding;
        row->x[seq + row->at] = (int32_t)row->at;
        if (!row->labels)
            continue;
        row->labels[row->at] = DDP_LABEL_NONE;
        row->labels[seq + row->at] = row->labels[2 * seq + row->at] = 0;
    }
    return status;
}

static enum ddp_status pairs_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                  void *x, int32_t *labels)
{
    const struct ddp_dataset_info *info = &dataset->info;
    enum ddp_status status = DDP_OK;
    uint32_t *words = ddp_array_alloc((size_t)info->dims[1], sizeof *words);
    if (!words)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        struct row row = {.pairs = (const struct pairs *)dataset,
                          .words = words,
                          .x = (int32_t *)x + i * info->sample_values,
                          .labels = labels ? labels + i * (size_t)info->label_count : NULL};
        status = read_row(&row, indices[i]);
    }
    free(words);
    return status;
}

static float *pairs_references(const ddp_dataset *dataset, int64_t sample, int64_t *count)
{
    const struct pairs *p = (const struct pairs *)dataset;
    const int64_t *begins = p->packing.begins;
    const int64_t first = sample < 0 ? 0 : begins[sample];
    const int64_t end = sample < 0 ? p->count : begins[sample + 1];
    *count = 2 * (end - first);
    return p->references + 2 * first;
}

static void pairs_close(ddp_dataset *dataset)
{
    struct pairs *p = (struct pairs *)dataset;
    ddp_encode_close(p->encoded);
    ddp_packing_free(&p->packing);
    free(p->list);
    free(p->references);
    free(p->notice);
}

static const struct ddp_dataset_ops ops = {
    .read = pairs_read, .references = pairs_references, .close = pairs_close};

/* --- which pairs ------------------------------------------------------------------------------ */

struct choice {
    struct pairs *pairs;
    const struct ddp_encoded_document *documents;
    const struct ddp_data_names *files;
    enum ddp_long_kind kind;
    uint32_t *words; /* (most) */
    int64_t most;    /* tokens of a sequence */
};

static const char *file_of(const struct choice *choice, int64_t document)
{
    return choice->files->at[choice->documents[document].file & ~DDP_ENCODED_BAD];
}

/* One document as a sequence, cut where it is too long.
 *   fits [out]  false: it is left out */
static enum ddp_status measure(const struct choice *choice, int64_t document,
                               struct sequence *sequence, bool *fits)
{
    const struct ddp_encoded_document *at = &choice->documents[document];
    struct pairs *p = choice->pairs;
    const int64_t all = (int64_t)(at[1].begin - at->begin);
    const int64_t count = all < choice->most ? all : choice->most;
    enum ddp_status status = ddp_encoded_read(p->encoded, at->begin, (size_t)count, choice->words);
    int64_t prompt = 0;
    while (status == DDP_OK && prompt < count && !(choice->words[prompt] & DDP_ENCODED_TRAINED))
        prompt++;
    *sequence =
        (struct sequence){at->begin, at->begin + (uint64_t)prompt, (int32_t)prompt, (int32_t)count};
    *fits = prompt < count && count > 1;
    if (status != DDP_OK)
        return status;
    if (all > count && choice->kind == DDP_LONG_REFUSE)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: line %" PRIu32 ": %" PRId64 " tokens are more than half of --seq-len "
                        "%" PRId64 ": give a larger one, or --packing KIND,long=cut or drop",
                        file_of(choice, document), at->line, all, p->base.info.dims[1]);
    if (!*fits)
        p->filled++;
    else if (all > count && choice->kind == DDP_LONG_DROP) {
        p->dropped++;
        *fits = false;
    } else
        p->cut += all > count;
    return DDP_OK;
}

static enum ddp_status choose_pairs(struct choice *choice)
{
    struct pairs *p = choice->pairs;
    const int64_t total = p->encoded->facts.document_count;
    enum ddp_status status = DDP_OK;
    for (int64_t i = 0; status == DDP_OK && i < total; i += 2) {
        const struct ddp_encoded_document *d = &choice->documents[i];
        struct pair *pair = &p->list[p->count];
        bool fits[2] = {false, false};
        if (i + 1 == total || (d[0].file & DDP_ENCODED_BAD) ||
            d[1].file != (d[0].file | DDP_ENCODED_BAD) || d[0].line != d[1].line)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: line %" PRIu32 ": a rated answer, which --objective kto learns "
                            "from: others need \"chosen\" and \"rejected\"",
                            file_of(choice, i), d->line);
        for (int64_t k = 0; status == DDP_OK && k < 2; k++)
            status = measure(choice, i + k, &pair->of[k], &fits[k]);
        p->count += fits[0] && fits[1];
    }
    return status;
}

/* The second of each is its prompt with the answer before it, in its group of the data's order: the
 * first one's is the last. */
static void mismatch(struct pairs *p, const int64_t *answers, int64_t group, int64_t most)
{
    for (int64_t begin = 0, end; begin < p->count; begin = end) {
        end = p->count - begin < group ? p->count : begin + group;
        for (int64_t i = begin; i < end; i++) {
            const int64_t other = i > begin ? i - 1 : end - 1;
            const int64_t count = p->list[i].of[0].prompt_count + answers[other];
            p->list[i].of[1] = p->list[i].of[0];
            p->list[i].of[1].answer = p->list[other].of[0].answer;
            p->list[i].of[1].count = (int32_t)(count < most ? count : most);
        }
    }
}

static enum ddp_status choose_rated(struct choice *choice, int64_t group)
{
    struct pairs *p = choice->pairs;
    const int64_t total = p->encoded->facts.document_count;
    int64_t *answers = ddp_array_alloc((size_t)total + 1, sizeof *answers); /* tokens, uncut */
    enum ddp_status status = answers ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t i = 0; status == DDP_OK && i < total; i++) {
        const struct ddp_encoded_document *d = &choice->documents[i];
        struct pair *pair = &p->list[p->count];
        bool fits;
        status = measure(choice, i, &pair->of[0], &fits);
        pair->bad = d->file & DDP_ENCODED_BAD;
        answers[p->count] = (int64_t)(d[1].begin - pair->of[0].answer);
        p->count += fits;
    }
    if (status == DDP_OK)
        mismatch(p, answers, group, choice->most);
    free(answers);
    return status;
}

static enum ddp_status choose(struct pairs *p, const struct ddp_data_names *files,
                              const struct ddp_dataset_options *options)
{
    struct ddp_encoded_document *documents = NULL;
    struct choice choice = {
        .pairs = p, .files = files, .kind = options->long_samples, .most = options->seq_len / 2};
    enum ddp_status status = ddp_encoded_documents(p->encoded, &documents);
    choice.documents = documents;
    choice.words = ddp_array_alloc((size_t)choice.most + 1, sizeof *choice.words);
    if (status == DDP_OK && !choice.words)
        status = DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = options->preferences == DDP_PREFERENCES_RATED
                     ? choose_rated(&choice, options->group)
                     : choose_pairs(&choice);
    free(choice.words);
    free(documents);
    return status;
}

/* --- making ----------------------------------------------------------------------------------- */

static enum ddp_status pack(struct pairs *p, bool alone)
{
    const int64_t seq = p->base.info.dims[1];
    int32_t *lengths = ddp_array_alloc((size_t)p->count + 1, sizeof *lengths);
    double used = 0;
    if (!lengths)
        return DDP_ERR_MEMORY;
    for (int64_t i = 0; i < p->count; i++) {
        lengths[i] = p->list[i].of[0].count + p->list[i].of[1].count - 2;
        used += lengths[i];
    }
    enum ddp_status status = ddp_packing_make(&p->packing, lengths, p->count, seq, alone);
    free(lengths);
    if (status != DDP_OK)
        return status;
    struct ddp_dataset_info *info = &p->base.info;
    char cut[64] = "", dropped[64] = "", filled[64] = "";
    info->sample_count = p->packing.row_count;
    info->memory_bytes =
        (size_t)p->count * (sizeof *p->list + 2 * sizeof *p->references + 2 * sizeof(int64_t)) +
        (p->encoded->memory ? (size_t)p->encoded->blob.bytes : 0);
    if (p->cut > 0)
        snprintf(cut, sizeof cut, "; %" PRId64 " answers are cut", p->cut);
    if (p->dropped > 0)
        snprintf(dropped, sizeof dropped, "; %" PRId64 " that are longer are left out", p->dropped);
    if (p->filled > 0)
        snprintf(filled, sizeof filled, "; %" PRId64 " whose prompt fills them are left out",
                 p->filled);
    if (asprintf(&p->notice,
                 "%s: %" PRId64 " pair%s in %" PRId64 " row%s of %" PRId64 " tokens, half of which "
                 "each sequence may have, %.1f %% of them padding%s%s%s",
                 info->path, p->count, p->count == 1 ? "" : "s", info->sample_count,
                 info->sample_count == 1 ? "" : "s", seq,
                 100 * (1 - used / ((double)info->sample_count * (double)seq)), cut, dropped,
                 filled) < 0) {
        p->notice = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", info->path);
    }
    info->notice = p->notice;
    return DDP_OK;
}

static enum ddp_status check(const struct pairs *p)
{
    const struct ddp_dataset_info *info = &p->base.info;
    const enum ddp_status status = ddp_encode_check(p->encoded, info);
    if (status != DDP_OK || p->count > 0)
        return status;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: no pair fits into --seq-len %" PRId64 ", of which each sequence may have "
                    "half: %" PRId64 " are too long, the prompts of %" PRId64 " alone",
                    info->path, info->dims[1], p->dropped + p->filled, p->filled);
}

enum ddp_status ddp_pairs_open(ddp_dataset **dataset, struct ddp_encoded *encoded, const char *path,
                               const struct ddp_data_names *files,
                               const struct ddp_dataset_options *options, int64_t class_count)
{
    const size_t room = (size_t)encoded->facts.document_count + 1;
    const int32_t eos = ddp_tokenizer_eos(options->tokenizer);
    struct pairs *p = ddp_dataset_alloc(sizeof *p, &ops, path);
    if (!p) {
        ddp_encode_close(encoded);
        return DDP_ERR_MEMORY;
    }
    *dataset = &p->base;
    p->encoded = encoded;
    p->padding = eos >= 0 && eos < class_count ? eos : 0;
    p->base.info = ddp_encode_row_info(p->base.path, options->seq_len, class_count);
    p->base.info.label_count *= DDP_ROLE_PLANES;
    p->list = ddp_array_alloc(room, sizeof *p->list);
    p->references = ddp_array_alloc(2 * room, sizeof *p->references);
    enum ddp_status status = p->list && p->references ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = choose(p, files, options);
    if (status == DDP_OK)
        status = check(p);
    return status == DDP_OK ? pack(p, options->packing == DDP_PACKING_PAD) : status;
}
