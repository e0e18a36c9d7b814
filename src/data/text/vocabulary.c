/* SPDX-License-Identifier: MIT
 *
 * See vocabulary.h. */
#include "config.h"

#include "data/text/vocabulary.h"

#include "core/hash.h"
#include "core/memory.h"

#include <inttypes.h>

void ddp_vocabulary_clear(struct ddp_vocabulary *vocabulary)
{
    free(vocabulary->tokens);
    free(vocabulary->texts.at);
    free(vocabulary->slots);
    free(vocabulary->merges);
    *vocabulary = (struct ddp_vocabulary){0};
}

/* The place of a text among the slots, or the empty one where it belongs. */
static size_t find_slot(const struct ddp_vocabulary *v, const char *text, size_t bytes)
{
    size_t i = (size_t)ddp_hash(text, bytes) & (v->slot_count - 1);
    for (; v->slots[i] >= 0; i = (i + 1) & (v->slot_count - 1)) {
        const struct ddp_token *token = &v->tokens[v->slots[i]];
        if (token->bytes == bytes && memcmp(v->texts.at + token->at, text, bytes) == 0)
            break;
    }
    return i;
}

int32_t ddp_vocabulary_find(const struct ddp_vocabulary *v, const char *text, size_t bytes)
{
    return v->slot_count > 0 ? v->slots[find_slot(v, text, bytes)] : -1;
}

static enum ddp_status grow_slots(struct ddp_vocabulary *v)
{
    if (v->slot_count > 2 * v->token_count)
        return DDP_OK;
    const size_t count = v->slot_count > 0 ? 2 * v->slot_count : 1024;
    int32_t *slots = malloc(count * sizeof *slots);
    if (!slots)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a vocabulary of %zu tokens",
                        v->token_count);
    memset(slots, 0xff, count * sizeof *slots);
    free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    for (size_t id = 0; id < v->ids; id++)
        if (v->tokens[id].present)
            slots[find_slot(v, v->texts.at + v->tokens[id].at, v->tokens[id].bytes)] = (int32_t)id;
    return DDP_OK;
}

static enum ddp_status grow_tokens(struct ddp_vocabulary *v, size_t ids)
{
    if (ids > v->token_room) {
        const size_t room = ids + ids / 2 + 256;
        struct ddp_token *tokens = calloc(room, sizeof *tokens); /* far from other ids: no memory */
        if (!tokens)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory: a vocabulary of %zu tokens", ids);
        if (v->ids > 0)
            memcpy(tokens, v->tokens, v->ids * sizeof *tokens);
        free(v->tokens);
        v->tokens = tokens;
        v->token_room = room;
    }
    if (ids > v->ids)
        v->ids = ids;
    return DDP_OK;
}

enum ddp_status ddp_vocabulary_add(struct ddp_vocabulary *v, const char *what, const char *text,
                                   size_t bytes, int64_t id)
{
    if (id < 0 || id >= DDP_TOKEN_MOST)
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" has id %" PRId64 ": ids are 0 to %d", what,
                        text, id, DDP_TOKEN_MOST - 1);
    if ((size_t)id < v->ids && v->tokens[id].present)
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" and \"%s\" both have id %" PRId64, what,
                        ddp_vocabulary_text(v, (int32_t)id), text, id);
    enum ddp_status status = grow_tokens(v, (size_t)id + 1);
    if (status == DDP_OK)
        status = grow_slots(v);
    if (status != DDP_OK)
        return status;
    const size_t slot = find_slot(v, text, bytes), at = v->texts.bytes;
    if (v->slots[slot] >= 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" has two ids, %d and %" PRId64, what, text,
                        v->slots[slot], id);
    status = ddp_buffer_append(&v->texts, text, bytes);
    if (status == DDP_OK)
        status = ddp_buffer_append(&v->texts, "", 1);
    if (status != DDP_OK)
        return status;
    v->tokens[id] = (struct ddp_token){.at = at,
                                       .normal_at = at,
                                       .bytes = (uint32_t)bytes,
                                       .normal_bytes = (uint32_t)bytes,
                                       .present = true};
    v->slots[slot] = (int32_t)id;
    v->token_count++;
    return DDP_OK;
}

enum ddp_status ddp_vocabulary_set_normal(struct ddp_vocabulary *v, int32_t id, const char *text,
                                          size_t bytes)
{
    v->tokens[id].normal_at = v->texts.bytes;
    v->tokens[id].normal_bytes = (uint32_t)bytes;
    enum ddp_status status = ddp_buffer_append(&v->texts, text, bytes);
    return status == DDP_OK ? ddp_buffer_append(&v->texts, "", 1) : status;
}

enum ddp_status ddp_vocabulary_reserve_merges(struct ddp_vocabulary *v, size_t count)
{
    size_t places = 16;
    for (v->merge_shift = 60; places < 2 * count; places *= 2)
        v->merge_shift--;
    v->merges = ddp_array_alloc(places, sizeof *v->merges);
    if (!v->merges)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < places; i++)
        v->merges[i].pair = UINT64_MAX;
    return DDP_OK;
}

bool ddp_vocabulary_add_merge(struct ddp_vocabulary *v, int32_t left, int32_t right, int32_t rank,
                              int32_t id)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t mask = SIZE_MAX >> v->merge_shift;
    size_t i = ddp_vocabulary_place(v, pair);
    for (; v->merges[i].pair != UINT64_MAX; i = (i + 1) & mask)
        if (v->merges[i].pair == pair)
            return false;
    v->merges[i] = (struct ddp_merge){pair, rank, id};
    return true;
}
