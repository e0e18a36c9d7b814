/* SPDX-License-Identifier: MIT
 *
 * See encode_answers.h. */
#include "config.h"

#include "data/encode_answers.h"

#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_encode_end(const ddp_tokenizer *tokenizer, size_t first,
                               struct ddp_tokens *tokens, struct ddp_buffer *trained)
{
    const int32_t eos = ddp_tokenizer_eos(tokenizer);
    if (eos < 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: the tokenizer names no token that ends a text: give its directory, "
                        "with a tokenizer_config.json that has eos_token",
                        ddp_tokenizer_path(tokenizer));
    const bool ended = tokens->count > first && tokens->ids[tokens->count - 1] == eos;
    enum ddp_status status = ddp_tokens_reserve(tokens, 1);
    if (status != DDP_OK)
        return status;
    if (!ended) /* by the text itself, or by what the tokenizer puts around it */
        tokens->ids[tokens->count++] = eos;
    status = ddp_buffer_reserve(trained, tokens->count - trained->bytes);
    if (status != DDP_OK)
        return status;
    memset(trained->at + trained->bytes, 0, first - trained->bytes);
    memset(trained->at + first, 1, tokens->count - first);
    trained->bytes = tokens->count;
    return DDP_OK;
}

struct work {
    const ddp_tokenizer *tokenizer;
    const ddp_chat_template *chat;
    const char *where;
    const json_t *tools;
};

/* What is said first, and then, as one text.
 *   then  NULL: nothing, which an answer follows */
static enum ddp_status encode_text(const struct work *work, const struct ddp_said *prompt,
                                   const struct ddp_said *then, struct ddp_tokens *tokens)
{
    const size_t bytes = prompt->bytes + (then ? then->bytes : 0);
    char *both = ddp_array_alloc(bytes + 1, 1);
    if (!both)
        return DDP_ERR_MEMORY;
    memcpy(both, prompt->text, prompt->bytes);
    if (then)
        memcpy(both + prompt->bytes, then->text, then->bytes);
    const struct ddp_text_part part = {.at = both, .bytes = bytes, .name = work->where};
    enum ddp_status status = ddp_tokenizer_encode(work->tokenizer, &part, DDP_ENCODE_BOS, tokens);
    free(both);
    return status;
}

static enum ddp_status encode_chat(const struct work *work, const struct ddp_said *prompt,
                                   const struct ddp_said *then, struct ddp_tokens *tokens,
                                   struct ddp_buffer *trained)
{
    const size_t first = prompt->message_count, count = first + (then ? then->message_count : 0);
    struct ddp_chat_message *all = ddp_array_alloc(count + 1, sizeof *all);
    if (!all)
        return DDP_ERR_MEMORY;
    memcpy(all, prompt->messages, first * sizeof *all);
    if (then)
        memcpy(all + first, then->messages, then->message_count * sizeof *all);
    const struct ddp_chat chat = {all, count, work->tools, !then};
    enum ddp_status status = count > 0 ? ddp_chat_encode(work->chat, work->tokenizer, work->where,
                                                         &chat, tokens, trained)
                                       : DDP_OK;
    free(all);
    return status;
}

static enum ddp_status encode(const struct work *work, const struct ddp_said *prompt,
                              const struct ddp_said *then, struct ddp_tokens *tokens,
                              struct ddp_buffer *trained)
{
    if (!prompt->text)
        return encode_chat(work, prompt, then, tokens, trained);
    const size_t before = tokens->count;
    enum ddp_status status = encode_text(work, prompt, then, tokens);
    return status == DDP_OK && then ? ddp_encode_end(work->tokenizer, before, tokens, trained)
                                    : status;
}

/* How many tokens from `begin` on are the prompt's. */
static size_t common(const struct ddp_tokens *prompt, const struct ddp_tokens *tokens, size_t begin,
                     size_t end)
{
    size_t same = 0;
    while (same < prompt->count && begin + same < end &&
           prompt->ids[same] == tokens->ids[begin + same])
        same++;
    return same;
}

static void mark(struct ddp_buffer *trained, size_t begin, size_t same, size_t end)
{
    memset(trained->at + begin, 0, same);
    memset(trained->at + begin + same, 1, end - begin - same);
}

enum ddp_status ddp_encode_answers(const struct ddp_record *record, const ddp_tokenizer *tokenizer,
                                   const ddp_chat_template *chat, const char *where,
                                   struct ddp_tokens *tokens, struct ddp_buffer *trained,
                                   size_t *second)
{
    const struct work work = {tokenizer, chat, where, record->tools};
    const bool pair = record->kind == DDP_RECORD_PAIR;
    const size_t begin = tokens->count;
    struct ddp_tokens prompt = {0};
    struct ddp_buffer unused = {0};
    enum ddp_status status = encode(&work, &record->prompt, NULL, &prompt, &unused);
    if (status == DDP_OK)
        status = encode(&work, &record->prompt, &record->answers[0], tokens, trained);
    *second = tokens->count;
    if (status == DDP_OK && pair)
        status = encode(&work, &record->prompt, &record->answers[1], tokens, trained);
    if (status == DDP_OK) {
        size_t same = common(&prompt, tokens, begin, *second);
        const size_t other = pair ? common(&prompt, tokens, *second, tokens->count) : same;
        same = other < same ? other : same;
        mark(trained, begin, same, *second);
        if (pair)
            mark(trained, *second, same, tokens->count);
    }
    free(prompt.ids);
    free(unused.at);
    return status;
}
