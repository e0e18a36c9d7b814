/* SPDX-License-Identifier: MIT
 *
 * See texts.h. */
#include "config.h"

#include "generate/texts.h"

#include "core/gguf.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"
#include "data/data_names.h"
#include "data/describe.h"
#include "weights/peft.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the tokenizer ---------------------------------------------------------------------------- */

/* The tokenizer in this directory, if there is one of a kind that is supported. */
static enum ddp_status open_in(ddp_tokenizer **tokenizer, const char *directory, bool tell)
{
    char said[1024] = "";
    if (!(ddp_gguf_is(directory) || ddp_path_is_in(directory, "tokenizer.json") ||
          (ddp_path_is_in(directory, "vocab.json") && ddp_path_is_in(directory, "merges.txt"))))
        return DDP_OK;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = ddp_tokenizer_open(tokenizer, directory);
    ddp_log_exchange(before);
    if (status == DDP_ERR_UNSUPPORTED) {
        if (tell)
            ddp_log(DDP_LOG_WARNING, "%s: texts cannot be encoded; token files can be used", said);
        return DDP_OK;
    }
    return status == DDP_OK ? status : ddp_fail(status, "%s", said);
}

void ddp_train_note_tokenizer(uint64_t tokenizer, const char *description)
{
    const uint64_t learned = ddp_dataset_tokenizer(description);
    if (tokenizer && learned && tokenizer != learned)
        ddp_log(DDP_LOG_WARNING,
                "the model learned the tokens of another tokenizer, whose hash is %016" PRIx64
                " and not %016" PRIx64 ": the same token may mean another text",
                learned, tokenizer);
}

enum ddp_status ddp_train_open_tokenizer(ddp_tokenizer **tokenizer,
                                         const struct ddp_train_options *options, bool tell)
{
    const bool bytes = options->tokens == DDP_TOKENS_BYTES;
    if (options->tokenizer && bytes)
        return ddp_fail(DDP_ERR_INVALID,
                        "--tokenizer and --tokens bytes exclude each other: give one");
    if (options->tokenizer)
        return ddp_tokenizer_open(tokenizer, options->tokenizer);
    if (!options->load || bytes)
        return DDP_OK;
    enum ddp_status status = open_in(tokenizer, options->load, tell);
    if (status != DDP_OK || *tokenizer || !ddp_peft_is(options->load))
        return status;
    struct ddp_peft peft; /* adapters alone: their base has it */
    status = ddp_peft_read(&peft, options->load, 0, NULL);
    if (status == DDP_OK && peft.base)
        status = open_in(tokenizer, peft.base, tell);
    ddp_peft_free(&peft);
    return status;
}

/* --- text for people -------------------------------------------------------------------------- */

enum ddp_status ddp_train_print_text(FILE *out, const char *text, size_t bytes)
{
    const size_t room = 6 * bytes + 1; /* a byte as \u009b */
    char *clean = ddp_array_alloc(room, 1);
    if (!clean)
        return DDP_ERR_MEMORY;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t line = end ? (size_t)(end - text) - at : bytes - at;
        fwrite(clean, 1, ddp_text_clean(clean, room, text + at, line), out);
        if (end)
            fputc('\n', out);
        at += line + (end != NULL);
    }
    free(clean);
    return DDP_OK;
}

/* --- what is trained -------------------------------------------------------------------------- */

#define GREEN "\033[32m"
#define PLAIN "\033[0m"

struct shown {
    FILE *out;
    ddp_decoder *decoder; /* NULL: tokens are bytes */
    bool colour, trained; /* the latter: the beginning of what is trained has been printed */
};

static void mark(struct shown *s, bool trained)
{
    if (trained != s->trained)
        fputs(s->colour ? trained ? GREEN : PLAIN : trained ? "[" : "]", s->out);
    s->trained = trained;
}

static enum ddp_status show_token(struct shown *s, int32_t token, bool trained)
{
    const char byte = (char)token, *text = &byte;
    size_t bytes = 1;
    enum ddp_status status = DDP_OK;
    if (s->decoder)
        status = ddp_decoder_next(s->decoder, &token, 1, &text, &bytes);
    if (status != DDP_OK || bytes == 0)
        return status;
    mark(s, trained);
    return ddp_train_print_text(s->out, text, bytes);
}

/* Of an incomplete character. */
static enum ddp_status show_end(struct shown *s)
{
    const char *text = "";
    size_t bytes = 0;
    enum ddp_status status = s->decoder ? ddp_decoder_end(s->decoder, &text, &bytes) : DDP_OK;
    if (status == DDP_OK)
        status = ddp_train_print_text(s->out, text, bytes);
    mark(s, false);
    fputc('\n', s->out);
    return status;
}

/* The positions [begin, end) of a row, and the token that the last one predicts. */
static enum ddp_status show_document(struct shown *s, const int32_t *tokens, const int32_t *labels,
                                     int64_t begin, int64_t end)
{
    int64_t trained = 0;
    for (int64_t i = begin; i < end; i++)
        trained += labels[i] >= 0;
    fprintf(s->out, "- document at %" PRId64 ": %" PRId64 " tokens, %" PRId64 " trained\n", begin,
            end - begin + 1, trained);
    enum ddp_status status = show_token(s, tokens[begin], false);
    for (int64_t i = begin + 1; status == DDP_OK && i < end; i++)
        status = show_token(s, tokens[i], labels[i - 1] >= 0);
    if (status == DDP_OK && labels[end - 1] >= 0)
        status = show_token(s, labels[end - 1], true);
    return status == DDP_OK ? show_end(s) : status;
}

/* documents NULL: the row is one document, of a stream */
static enum ddp_status show_row(struct shown *s, const int32_t *tokens, const int32_t *documents,
                                const int32_t *labels, int64_t seq)
{
    enum ddp_status status = DDP_OK;
    int64_t padding = 0;
    for (int64_t begin = 0, end; status == DDP_OK && begin < seq; begin = end) {
        for (end = begin + 1; end < seq && (!documents || documents[end] == begin);)
            end++;
        if (end == begin + 1 && labels[begin] < 0)
            padding++;
        else
            status = show_document(s, tokens, labels, begin, end);
    }
    if (status == DDP_OK && padding > 0)
        fprintf(s->out, "- padding: %" PRId64 " tokens\n", padding);
    return status;
}

enum ddp_status ddp_train_show_masks(const ddp_dataset *data, const ddp_tokenizer *tokenizer,
                                     int64_t count, FILE *out)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(data);
    const int64_t seq = info->dims[info->dim_count - 1];
    struct shown shown = {.out = out, .colour = isatty(fileno(out))};
    if (info->x_dtype != DDP_I32)
        return ddp_fail(DDP_ERR_INVALID, "--show-masks belongs to texts, and %s holds numbers",
                        ddp_dataset_where(info));
    if (!tokenizer && !info->bytes)
        return ddp_fail(DDP_ERR_INVALID,
                        "--show-masks: %s holds tokens: name their tokenizer with --tokenizer",
                        ddp_dataset_where(info));
    int32_t *x = ddp_array_alloc(info->sample_values, sizeof *x);
    int32_t *labels = ddp_array_alloc((size_t)info->label_count, sizeof *labels);
    enum ddp_status status = x && labels ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK && !info->bytes)
        status = ddp_decoder_create(&shown.decoder, tokenizer, false);
    for (int64_t i = 0; status == DDP_OK && i < count && i < info->sample_count; i++) {
        status = ddp_dataset_read(data, &i, 1, x, labels);
        if (status != DDP_OK)
            break;
        for (int64_t t = 0; info->label_count > seq && t < seq; t++) /* of preferences */
            labels[t] = labels[seq + t] & DDP_ROLE_ANSWER ? labels[t] : DDP_LABEL_NONE;
        fprintf(out, "--- sample %" PRId64 " of %" PRId64 ": %" PRId64 " positions ---\n", i + 1,
                info->sample_count, seq);
        status = show_row(&shown, x, info->dim_count == 2 ? x + seq : NULL, labels, seq);
    }
    ddp_decoder_destroy(shown.decoder);
    free(labels);
    free(x);
    if (status == DDP_OK && (fflush(out) != 0 || ferror(out)))
        status = ddp_fail(DDP_ERR_IO, "cannot write the samples to standard output");
    return status;
}
