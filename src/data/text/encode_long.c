/* SPDX-License-Identifier: MIT
 *
 * Encoding of a long piece of text by several threads. What a search for the next part finds
 * depends only on the place where it begins. So each thread begins at a guessed border; when the
 * one before it ends there, its part is right, else the part is done again from the true border. */
#include "config.h"

#include "core/memory.h"
#include "data/text/encode.h"

#define CHUNK ((size_t)1 << 18)

struct chunk {
    size_t begin, limit, stopped;
    struct ddp_tokens tokens;
    enum ddp_status status;
};

struct work {
    const ddp_tokenizer *tokenizer;
    const char *text;
    size_t bytes;
    struct chunk *chunks;
};

static void encode_chunk(void *arg, size_t index)
{
    const struct work *work = arg;
    struct chunk *chunk = &work->chunks[index];
    struct ddp_encoder *encoder = NULL;
    chunk->status = ddp_encoder_take(&encoder, work->tokenizer);
    if (chunk->status == DDP_OK)
        chunk->status = ddp_encoder_piece(encoder, work->text, work->bytes, chunk->begin,
                                          chunk->limit, &chunk->stopped, &chunk->tokens);
    ddp_encoder_give_back(encoder);
}

/* Appends what a chunk found, two unknown characters at its border being one. */
static enum ddp_status append(const ddp_tokenizer *t, const struct ddp_tokens *tokens, size_t first,
                              struct ddp_tokens *out)
{
    const size_t fused = t->fuse_unknown && t->regex_count == 0 && t->unknown >= 0 &&
                         tokens->count > 0 && out->count > first && tokens->ids[0] == t->unknown &&
                         out->ids[out->count - 1] == t->unknown;
    enum ddp_status status = ddp_tokens_reserve(out, tokens->count - fused);
    if (status != DDP_OK || tokens->count == fused)
        return status;
    memcpy(out->ids + out->count, tokens->ids + fused, (tokens->count - fused) * sizeof *out->ids);
    out->count += tokens->count - fused;
    return DDP_OK;
}

static size_t plan_chunks(struct ddp_encoder *encoder, const char *text, size_t bytes,
                          struct chunk *chunks)
{
    size_t count = 1;
    for (size_t guess = CHUNK; guess + CHUNK / 2 < bytes; guess += CHUNK) {
        if (guess <= chunks[count - 1].begin)
            continue;
        const size_t border = ddp_encoder_border(encoder, text, bytes, guess);
        if (border >= bytes)
            break;
        chunks[count - 1].limit = border;
        chunks[count++].begin = border;
    }
    chunks[count - 1].limit = bytes;
    return count;
}

enum ddp_status ddp_encode_long(struct ddp_encoder *encoder, ddp_pool *pool, const char *text,
                                size_t bytes, struct ddp_tokens *out)
{
    size_t at = 0;
    if (ddp_pool_threads(pool) == 1 || bytes < 2 * CHUNK)
        return ddp_encoder_piece(encoder, text, bytes, 0, bytes, &at, out);
    struct chunk *chunks = ddp_array_alloc(bytes / CHUNK + 1, sizeof *chunks);
    if (!chunks)
        return DDP_ERR_MEMORY;
    struct work work = {encoder->tokenizer, text, bytes, chunks};
    const size_t count = plan_chunks(encoder, text, bytes, chunks), first = out->count;
    ddp_pool_run(pool, count, encode_chunk, &work);
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        struct chunk *chunk = &chunks[i];
        if (at >= chunk->limit) /* it lies in the last part of the one before it */
            continue;
        if (at != chunk->begin) {
            chunk->tokens.count = 0;
            chunk->status = ddp_encoder_piece(encoder, text, bytes, at, chunk->limit,
                                              &chunk->stopped, &chunk->tokens);
        }
        status = chunk->status;
        if (status == DDP_OK)
            status = append(encoder->tokenizer, &chunk->tokens, first, out);
        at = chunk->stopped;
    }
    for (size_t i = 0; i < count; i++)
        free(chunks[i].tokens.ids);
    free(chunks);
    return status;
}
