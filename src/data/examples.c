/* SPDX-License-Identifier: MIT
 *
 * See examples.h. An example of n tokens takes n-1 positions of a row: its last token is only
 * predicted. */
#include "config.h"

#include "data/examples.h"

#include "core/label.h"
#include "core/log.h"
#include "core/memory.h"
#include "data/encode.h"
#include "data/packing.h"

#include <inttypes.h>
#include <stdlib.h>

const char *const ddp_packing_names[] = {"documents", "pad", NULL};
const char *const ddp_long_names[] = {"cut", "drop", "refuse", NULL};

struct examples {
    struct ddp_dataset base;
    struct ddp_encoded *encoded;
    uint64_t *begins;   /* (count) of the examples in use, tokens of `encoded` */
    int32_t *positions; /* (count) that they take */
    int64_t count;
    int64_t cut, dropped, empty; /* too long; without a target */
    struct ddp_packing packing;
    int32_t padding; /* token */
    char *notice;
};

/* --- reading ---------------------------------------------------------------------------------- */

/* One example from position `at` of a row on; labels NULL: not wanted. */
static enum ddp_status read_example(const struct examples *e, int64_t example, int64_t at,
                                    uint32_t *words, int32_t *x, int32_t *labels)
{
    const int64_t seq = e->base.info.label_count, count = e->positions[example];
    enum ddp_status status =
        ddp_encoded_read(e->encoded, e->begins[example], (size_t)count + 1, words);
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        x[at + i] = (int32_t)(words[i] & ~DDP_ENCODED_TRAINED);
        x[seq + at + i] = (int32_t)at;
        if (labels)
            labels[at + i] = words[i + 1] & DDP_ENCODED_TRAINED
                                 ? (int32_t)(words[i + 1] & ~DDP_ENCODED_TRAINED)
                                 : DDP_LABEL_NONE;
    }
    return status;
}

static enum ddp_status read_row(const struct examples *e, int64_t row, uint32_t *words, int32_t *x,
                                int32_t *labels)
{
    const int64_t seq = e->base.info.label_count;
    enum ddp_status status = DDP_OK;
    int64_t at = 0;
    for (int64_t i = e->packing.begins[row]; status == DDP_OK && i < e->packing.begins[row + 1];
         i++) {
        const int64_t example = e->packing.documents[i];
        status = read_example(e, example, at, words, x, labels);
        at += e->positions[example];
    }
    for (; at < seq; at++) {
        x[at] = e->padding;
        x[seq + at] = (int32_t)at;
        if (labels)
            labels[at] = DDP_LABEL_NONE;
    }
    return status;
}

static enum ddp_status examples_read(const ddp_dataset *dataset, const int64_t *indices,
                                     size_t count, void *x, int32_t *labels)
{
    const struct examples *e = (const struct examples *)dataset;
    const size_t seq = (size_t)dataset->info.label_count;
    enum ddp_status status = DDP_OK;
    uint32_t *words = ddp_array_alloc(seq + 1, sizeof *words);
    if (!words)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        status = read_row(e, indices[i], words, (int32_t *)x + i * dataset->info.sample_values,
                          labels ? labels + i * seq : NULL);
    free(words);
    return status;
}

static void examples_close(ddp_dataset *dataset)
{
    struct examples *e = (struct examples *)dataset;
    ddp_encode_close(e->encoded);
    ddp_packing_free(&e->packing);
    free(e->begins);
    free(e->positions);
    free(e->notice);
}

static const struct ddp_dataset_ops ops = {.read = examples_read, .close = examples_close};

/* --- which examples --------------------------------------------------------------------------- */

/* Where a row ends that an example is cut to: behind the last token that is trained.
 *   positions [out]  0: none is */
static enum ddp_status cut(const struct examples *e, uint64_t begin, uint32_t *words,
                           int64_t *positions)
{
    int64_t last = e->base.info.label_count;
    const enum ddp_status status = ddp_encoded_read(e->encoded, begin, (size_t)last + 1, words);
    while (status == DDP_OK && last > 0 && !(words[last] & DDP_ENCODED_TRAINED))
        last--;
    *positions = last;
    return status;
}

static enum ddp_status refuse(const struct ddp_encoded_document *document, int64_t tokens,
                              const struct ddp_data_names *files, int64_t seq)
{
    return ddp_fail(DDP_ERR_INVALID,
                    "%s: line %" PRIu32 ": %" PRId64 " tokens are more than --seq-len %" PRId64
                    " has room for: give a larger one, or --packing KIND,long=cut or drop",
                    files->at[document->file], document->line, tokens, seq);
}

/* Takes those that have a target. */
static enum ddp_status choose(struct examples *e, const struct ddp_encoded_document *documents,
                              const struct ddp_data_names *files, enum ddp_long_kind kind)
{
    const int64_t seq = e->base.info.label_count, total = e->encoded->facts.document_count;
    uint32_t *words = ddp_array_alloc((size_t)seq + 1, sizeof *words);
    enum ddp_status status = words ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t i = 0; status == DDP_OK && i < total; i++) {
        const uint64_t begin = documents[i].begin;
        int64_t positions = (int64_t)(documents[i + 1].begin - begin) - 1;
        const bool is_long = positions > seq;
        if (is_long && kind == DDP_LONG_REFUSE)
            status = refuse(&documents[i], positions + 1, files, seq);
        else if (is_long && kind == DDP_LONG_CUT)
            status = cut(e, begin, words, &positions);
        if (is_long && kind == DDP_LONG_DROP)
            e->dropped++;
        else if (positions < 1)
            e->empty++;
        else if (status == DDP_OK) {
            e->cut += is_long;
            e->begins[e->count] = begin;
            e->positions[e->count++] = (int32_t)positions;
        }
    }
    free(words);
    return status;
}

static enum ddp_status set_notice(struct examples *e)
{
    const struct ddp_dataset_info *info = &e->base.info;
    const int64_t seq = info->label_count;
    char cut[64] = "", dropped[64] = "", empty[64] = "";
    double used = 0;
    for (int64_t i = 0; i < e->count; i++)
        used += e->positions[i];
    if (e->cut > 0)
        snprintf(cut, sizeof cut, "; %" PRId64 " longer than that are cut", e->cut);
    if (e->dropped > 0)
        snprintf(dropped, sizeof dropped, "; %" PRId64 " longer than that are left out",
                 e->dropped);
    if (e->empty > 0)
        snprintf(empty, sizeof empty, "; %" PRId64 " without a token to learn are left out",
                 e->empty);
    if (asprintf(&e->notice,
                 "%s: %" PRId64 " example%s in %" PRId64 " row%s of %" PRId64
                 " tokens, %.1f %% of them padding%s%s%s",
                 info->path, e->count, e->count == 1 ? "" : "s", info->sample_count,
                 info->sample_count == 1 ? "" : "s", seq,
                 100 * (1 - used / ((double)info->sample_count * (double)seq)), cut, dropped,
                 empty) < 0) {
        e->notice = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", info->path);
    }
    e->base.info.notice = e->notice;
    return DDP_OK;
}

static enum ddp_status check(const struct examples *e)
{
    const struct ddp_dataset_info *info = &e->base.info;
    const enum ddp_status status = ddp_encode_check(e->encoded, info);
    if (status != DDP_OK || e->count > 0)
        return status;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: no example has a token to learn within --seq-len %" PRId64 ": %" PRId64
                    " are too long, %" PRId64 " have no answer there",
                    info->path, info->label_count, e->dropped, e->empty);
}

/* --- making ----------------------------------------------------------------------------------- */

enum ddp_status ddp_examples_open(ddp_dataset **dataset, struct ddp_encoded *encoded,
                                  const char *path, const struct ddp_data_names *files,
                                  const struct ddp_dataset_options *options, int64_t class_count)
{
    struct ddp_encoded_document *documents = NULL;
    const size_t room = (size_t)encoded->facts.document_count + 1;
    const int32_t eos = ddp_tokenizer_eos(options->tokenizer);
    struct examples *e = ddp_dataset_alloc(sizeof *e, &ops, path);
    if (!e) {
        ddp_encode_close(encoded);
        return DDP_ERR_MEMORY;
    }
    *dataset = &e->base;
    e->encoded = encoded;
    e->padding = eos >= 0 && eos < class_count ? eos : 0;
    e->base.info = ddp_encode_row_info(e->base.path, options->seq_len, class_count);
    e->begins = ddp_array_alloc(room, sizeof *e->begins);
    e->positions = ddp_array_alloc(room, sizeof *e->positions);
    enum ddp_status status = e->begins && e->positions ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_encoded_documents(encoded, &documents);
    if (status == DDP_OK)
        status = choose(e, documents, files, options->long_samples);
    free(documents);
    if (status == DDP_OK)
        status = check(e);
    if (status == DDP_OK)
        status = ddp_packing_make(&e->packing, e->positions, e->count, options->seq_len,
                                  options->packing == DDP_PACKING_PAD);
    if (status != DDP_OK)
        return status;
    e->base.info.sample_count = e->packing.row_count;
    e->base.info.memory_bytes =
        (size_t)e->count * (sizeof *e->begins + sizeof *e->positions + 2 * sizeof(int64_t)) +
        (encoded->memory ? (size_t)encoded->blob.bytes : 0);
    return set_notice(e);
}
