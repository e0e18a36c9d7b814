/* SPDX-License-Identifier: MIT
 *
 * Texts for encoders: JSON lines or tables with a text, or a pair of texts, and a label; or with
 * texts that belong together. They are encoded by WordPiece when they are opened, and kept in
 * memory. A text is three rows of T numbers: tokens, which of a pair's texts each is of, and, as
 * the first one of the third, how many tokens there are; what follows these is padding. */
#include "config.h"

#include "data/sentences.h"

#include "core/label.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/text/wordpiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PLANES 3
#define STEP   8 /* rows are a multiple of it long, unless that is too long */

/* One or two texts that are read as one. */
struct piece {
    size_t begin;     /* of its tokens */
    uint32_t size[2]; /* tokens of each */
};

struct label {
    enum ddp_sentence_label kind;
    double number;
    char *word; /* freed with free() */
};

struct sentences {
    struct ddp_dataset base;
    const ddp_wordpiece *wordpiece; /* while it is opened */
    int32_t *tokens;
    size_t token_count;
    struct piece *pieces; /* `texts` of each sample */
    size_t piece_count;
    int form, texts; /* of all lines; 0 texts: none yet */
    bool pairs, contrasts, lenient, embeds;
    struct label *labels;
    size_t label_count;
    char **names; /* of classes */
    char *description;
    int32_t specials[DDP_WORDPIECE_SPECIALS];
    int64_t length; /* T */
};

/* --- samples ---------------------------------------------------------------------------------- */

/* What is left of two texts in `most` tokens, as tokenizers' longest_first has it. */
static void cut(uint32_t size[2], int64_t most)
{
    const int longer = size[1] >= size[0];
    int64_t small = size[!longer], large = size[longer];
    if (small + large <= most)
        return;
    large = small > most ? small : most - small > small ? most - small : small;
    if (small + large > most) {
        small = most / 2;
        large = small + most % 2;
    }
    size[longer] = (uint32_t)large;
    size[!longer] = (uint32_t)small;
}

/* [CLS] a [SEP] or [CLS] a [SEP] b [SEP] */
static void put_piece(const struct sentences *s, const struct piece *piece, int32_t *x)
{
    int32_t *tokens = x, *types = x + s->length, *length = types + s->length;
    const int32_t *from = s->tokens + piece->begin;
    uint32_t size[2] = {piece->size[0], piece->size[1]};
    int64_t used = 0;
    if (s->pairs)
        cut(size, s->length - 3);
    else if (size[0] > s->length - 2)
        size[0] = (uint32_t)(s->length - 2);
    memset(x, 0, (size_t)(PLANES * s->length) * sizeof *x);
    tokens[used++] = s->specials[DDP_WORDPIECE_CLS];
    for (int i = 0; i < 1 + s->pairs; i++) {
        for (uint32_t k = 0; k < size[i]; k++, used++) {
            tokens[used] = from[k];
            types[used] = i;
        }
        types[used] = i;
        tokens[used++] = s->specials[DDP_WORDPIECE_SEP];
        from += piece->size[0];
    }
    length[0] = (int32_t)used;
    for (; used < s->length; used++)
        tokens[used] = s->specials[DDP_WORDPIECE_PAD];
}

static enum ddp_status sentences_read(const ddp_dataset *dataset, const int64_t *indices,
                                      size_t count, void *x, int32_t *labels)
{
    const struct sentences *s = (const struct sentences *)dataset;
    int32_t *to = x;
    for (size_t i = 0; i < count; i++) {
        const struct label *label = s->contrasts ? NULL : &s->labels[indices[i]];
        for (int t = 0; t < s->texts; t++, to += PLANES * s->length)
            put_piece(s, &s->pieces[indices[i] * s->texts + t], to);
        const float number = label ? (float)label->number : 0;
        if (labels && s->base.info.float_labels)
            memcpy(&labels[i], &number, sizeof number);
        else if (labels && label)
            labels[i] =
                label->kind == DDP_SENTENCE_UNLABELLED ? DDP_LABEL_NONE : (int32_t)label->number;
    }
    return DDP_OK;
}

static void sentences_close(ddp_dataset *dataset)
{
    struct sentences *s = (struct sentences *)dataset;
    for (size_t i = 0; i < s->label_count; i++)
        free(s->labels[i].word);
    free(s->description);
    free(s->names);
    free(s->labels);
    free(s->pieces);
    free(s->tokens);
}

static const struct ddp_dataset_ops ops = {.read = sentences_read, .close = sentences_close};

/* --- lines ------------------------------------------------------------------------------------ */

static enum ddp_status encode(struct sentences *s, const json_t *text, uint32_t *size,
                              const char *where)
{
    const size_t before = s->token_count;
    enum ddp_status status =
        ddp_wordpiece_encode(s->wordpiece, json_string_value(text), json_string_length(text),
                             &s->tokens, &s->token_count);
    if (status == DDP_OK && s->token_count - before > UINT32_MAX)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: a text is too long", where);
    *size = (uint32_t)(s->token_count - before);
    return status;
}

static enum ddp_status put_label(struct sentences *s, const struct ddp_sentence_line *line,
                                 const char *where)
{
    struct label label = {line->kind, line->number, NULL};
    if (line->kind == DDP_SENTENCE_UNLABELLED && !s->lenient)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: no \"label\": name yours with --columns label=NAME, or leave the line "
                        "out",
                        where);
    if (line->word && !(label.word = strdup(line->word)))
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
    enum ddp_status status = ddp_array_append(&s->labels, &s->label_count, &label, sizeof label);
    if (status != DDP_OK)
        free(label.word);
    return status;
}

static enum ddp_status put_line(void *arg, const struct ddp_sentence_line *line, const char *where)
{
    struct sentences *s = arg;
    enum ddp_status status = DDP_OK;
    const bool contrasts = line->contrasts || s->embeds;
    if (s->texts == 0) {
        s->form = line->form;
        s->contrasts = contrasts;
        s->pairs = !contrasts && line->text_count == 2;
        s->texts = contrasts ? line->text_count : 1;
    } else if (line->form != s->form ||
               (contrasts ? line->text_count != s->texts : (line->text_count == 2) != s->pairs)) {
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has other texts than the first line", where);
    }
    for (int i = 0; status == DDP_OK && i < line->text_count;) {
        struct piece piece = {.begin = s->token_count};
        for (int k = 0; status == DDP_OK && k < 1 + s->pairs; k++)
            status = encode(s, line->texts[i++], &piece.size[k], where);
        if (status == DDP_OK)
            status = ddp_array_append(&s->pieces, &s->piece_count, &piece, sizeof piece);
    }
    return status == DDP_OK && !s->contrasts ? put_label(s, line, where) : status;
}

/* --- labels ----------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* For those who predict with the weights alone. */
static enum ddp_status describe(struct sentences *s, size_t count)
{
    json_t *names = json_array();
    json_t *root = json_pack("{s:s, s:o}", "kind", "sentences", "classes", names);
    for (size_t i = 0; root && i < count; i++)
        json_array_append_new(names, json_string(s->names[i]));
    s->base.info.description = s->description = root ? ddp_json_text(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return s->description ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* Words in their order are the classes; of a test set, those of the training set. */
static enum ddp_status number_words(struct sentences *s, const struct sentences *train)
{
    char *const *names = train ? train->names : NULL;
    size_t count = train ? (size_t)train->base.info.class_count : 0;
    if (!train) {
        s->names = ddp_array_alloc(s->label_count, sizeof *s->names);
        if (!s->names)
            return DDP_ERR_MEMORY;
        for (size_t i = 0; i < s->label_count; i++)
            if (s->labels[i].kind == DDP_SENTENCE_WORD)
                s->names[count++] = s->labels[i].word;
        qsort(s->names, count, sizeof *s->names, by_text);
        size_t distinct = 0;
        for (size_t i = 0; i < count; i++)
            if (i == 0 || strcmp(s->names[i], s->names[distinct - 1]) != 0)
                s->names[distinct++] = s->names[i];
        count = distinct;
        names = s->names;
        s->base.info.class_names = (const char *const *)s->names;
    }
    for (size_t i = 0; i < s->label_count; i++) {
        char *const *found = names && s->labels[i].word
                                 ? bsearch(&s->labels[i].word, names, count, sizeof *names, by_text)
                                 : NULL;
        if (!found && s->labels[i].kind != DDP_SENTENCE_UNLABELLED)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: label %zu, '%s', is not one of the training part's", s->base.path,
                            i + 1, s->labels[i].word ? s->labels[i].word : "a number");
        s->labels[i].number = found ? (double)(found - names) : 0;
    }
    s->base.info.class_count = (int64_t)count;
    return train ? DDP_OK : describe(s, count);
}

/* Whole numbers or words are classes, other numbers are learned as they are. */
static enum ddp_status settle_labels(struct sentences *s, const struct sentences *train,
                                     int64_t classes)
{
    struct ddp_dataset_info *info = &s->base.info;
    bool seen[DDP_SENTENCE_WORD + 1] = {false};
    double most = 0, least = 0;
    info->label_count = 1;
    for (size_t i = 0; i < s->label_count; i++) {
        const struct label *label = &s->labels[i];
        seen[label->kind] = true;
        most = label->number > most ? label->number : most;
        least = label->number < least ? label->number : least;
    }
    if (s->label_count > 0 && !seen[DDP_SENTENCE_INTEGER] && !seen[DDP_SENTENCE_REAL] &&
        !seen[DDP_SENTENCE_WORD]) { /* they are to be predicted */
        info->label_count = 0;
        info->class_count = classes;
        return DDP_OK;
    }
    if (seen[DDP_SENTENCE_WORD] && (seen[DDP_SENTENCE_INTEGER] || seen[DDP_SENTENCE_REAL]))
        return ddp_fail(DDP_ERR_FORMAT, "%s: some labels are words, others numbers", info->path);
    info->float_labels =
        train ? train->base.info.float_labels : s->contrasts || seen[DDP_SENTENCE_REAL];
    if (info->float_labels && seen[DDP_SENTENCE_WORD])
        return ddp_fail(DDP_ERR_FORMAT, "%s: its labels are words, and those to train are numbers",
                        info->path);
    if (info->float_labels)
        return DDP_OK;
    if (seen[DDP_SENTENCE_WORD]) {
        enum ddp_status status = number_words(s, train);
        most = (double)info->class_count - 1;
        if (status != DDP_OK)
            return status;
    }
    const int64_t known = train ? train->base.info.class_count : classes;
    if (seen[DDP_SENTENCE_REAL] || least < 0 || most >= 1 << 20 ||
        (known > 0 && most >= (double)known))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: labels from %g to %g: classes are whole numbers from 0 to %" PRId64
                        ", and other numbers, such as 3.0, are learned as they are",
                        info->path, least, most, known > 0 ? known - 1 : (1 << 20) - 1);
    info->class_count = known > (int64_t)most ? known : (int64_t)most + 1;
    if (info->class_names && info->class_count > (int64_t)most + 1)
        info->class_names = NULL;
    return DDP_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Of the longest sample, with its special tokens. */
static int64_t longest(const struct sentences *s)
{
    int64_t most = 0;
    for (size_t i = 0; i < s->piece_count; i++) {
        const int64_t size = (int64_t)s->pieces[i].size[0] + s->pieces[i].size[1];
        most = size > most ? size : most;
    }
    return most + 2 + s->pairs;
}

static enum ddp_status open_set(ddp_dataset **result, const struct sentences *train,
                                const char *path, const struct ddp_dataset_options *options)
{
    struct ddp_columns columns;
    struct sentences *s = ddp_dataset_alloc(sizeof *s, &ops, path);
    if (!s)
        return DDP_ERR_MEMORY;
    *result = &s->base;
    s->wordpiece = options->wordpiece;
    s->lenient = options->unlabelled;
    s->embeds = options->embeds && options->unlabelled;
    for (int i = 0; i < DDP_WORDPIECE_SPECIALS; i++)
        s->specials[i] = ddp_wordpiece_special(s->wordpiece, (enum ddp_wordpiece_special)i);
    s->base.info = (struct ddp_dataset_info){.source = "sentences",
                                             .path = s->base.path,
                                             .x_dtype = DDP_I32,
                                             .shuffled = true,
                                             .vocabulary = ddp_wordpiece_ids(s->wordpiece)};
    enum ddp_status status =
        options->columns ? ddp_columns_read(&columns, options->columns) : DDP_OK;
    if (status == DDP_OK)
        status = ddp_sentences_walk(path, options->columns ? &columns : NULL, put_line, s);
    if (status == DDP_OK && s->piece_count == 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: it has no texts", s->base.path);
    if (status == DDP_OK && train && (train->texts != s->texts || train->pairs != s->pairs))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: it has other texts than %s", s->base.path,
                          train->base.path);
    s->wordpiece = NULL;
    return status == DDP_OK ? settle_labels(s, train, options->class_count) : status;
}

/* The share of rows of this length that texts fill. */
static double filled(const struct sentences *s, int64_t length)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < s->piece_count; i++) {
        const int64_t own = 2 + s->pairs + (int64_t)s->pieces[i].size[0] + s->pieces[i].size[1];
        tokens += own < length ? own : length;
    }
    return (double)tokens / ((double)s->piece_count * (double)length);
}

/* The shape of samples, once the length of rows is known. */
static void settle_shape(struct sentences *s, int64_t length)
{
    struct ddp_dataset_info *info = &s->base.info;
    s->length = length;
    info->sample_count = (int64_t)(s->piece_count / (size_t)s->texts);
    info->dim_count = s->contrasts ? 3 : 2;
    info->compared = s->contrasts;
    info->filled = filled(s, length);
    info->dims[0] = s->contrasts ? s->texts : PLANES;
    info->dims[1] = s->contrasts ? PLANES : length;
    info->dims[2] = length;
    info->sample_values = (size_t)(s->texts * PLANES * length);
    info->sample_bytes = info->sample_values * sizeof(int32_t);
    info->memory_bytes = s->token_count * sizeof *s->tokens;
}

static enum ddp_status sentences_open(const struct ddp_dataset_options *options,
                                      ddp_dataset **train, ddp_dataset **test)
{
    if (!options->path || !options->wordpiece)
        return ddp_fail(DDP_ERR_INVALID,
                        "sentences: give texts with --data FILE.jsonl or FILE.csv, and an encoder, "
                        "with --load or with --model bert");
    enum ddp_status status = open_set(train, NULL, options->path, options);
    if (status == DDP_OK && test && options->val)
        status = open_set(test, (const struct sentences *)*train, options->val, options);
    if (status != DDP_OK)
        return status;
    struct sentences *all[] = {(struct sentences *)*train, test ? (struct sentences *)*test : NULL};
    int64_t length = longest(all[0]);
    if (all[1] && longest(all[1]) > length)
        length = longest(all[1]);
    length = (length + STEP - 1) / STEP * STEP;
    length = length < options->seq_len ? length : options->seq_len;
    if (length < 3 + all[0]->pairs)
        return ddp_fail(DDP_ERR_INVALID,
                        "--seq-len %" PRId64 ": a text has at least %d tokens with its marks",
                        options->seq_len, 3 + all[0]->pairs);
    for (int i = 0; i < 2 && all[i]; i++)
        settle_shape(all[i], length);
    return DDP_OK;
}

const struct ddp_dataset_source ddp_dataset_sentences = {
    .name = "sentences",
    .help = "texts with labels, or that belong together, for encoders: FILE.jsonl or FILE.csv",
    .takes_val = true,
    .open = sentences_open,
};
