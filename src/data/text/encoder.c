/* SPDX-License-Identifier: MIT
 *
 * See encoder.h. A piece is cut into words: by the tokenizer's regular expressions one after
 * another, and where symbols are characters, also between two that no merge ever joins. The ids of
 * a word are looked up among those seen before, else merged. */
#include "config.h"

#include "data/text/encoder.h"

#include "core/memory.h"
#include "data/text/nfc.h"

#define WORDS      ((size_t)1 << 15)
#define WORD_SHIFT (64 - 15)
#define WORD_MOST  23 /* bytes of a word that is kept */
#define IDS_MOST   9

static void encoder_destroy(struct ddp_encoder *e)
{
    ddp_bpe_clear(&e->bpe);
    ddp_regex_memory_destroy(e->regex_memory);
    free(e->words);
    free(e->symbols.ids);
    free(e->name.at);
    free(e->normal[0].at);
    free(e->normal[1].at);
    free(e->piece.at);
    free(e);
}

enum ddp_status ddp_encoder_take(struct ddp_encoder **encoder, const ddp_tokenizer *tokenizer)
{
    pthread_mutex_lock(tokenizer->lock);
    struct ddp_encoder *e = *tokenizer->idle;
    if (e)
        *tokenizer->idle = e->next;
    pthread_mutex_unlock(tokenizer->lock);
    if (!e) {
        e = ddp_array_alloc(1, sizeof *e);
        if (!e)
            return DDP_ERR_MEMORY;
        e->tokenizer = tokenizer;
        e->words = ddp_array_alloc(WORDS, sizeof *e->words);
        enum ddp_status status =
            e->words ? ddp_regex_memory_create(&e->regex_memory) : DDP_ERR_MEMORY;
        if (status != DDP_OK) {
            encoder_destroy(e);
            return status;
        }
    }
    *encoder = e;
    return DDP_OK;
}

void ddp_encoder_give_back(struct ddp_encoder *encoder)
{
    if (!encoder)
        return;
    pthread_mutex_lock(encoder->tokenizer->lock);
    encoder->next = *encoder->tokenizer->idle;
    *encoder->tokenizer->idle = encoder;
    pthread_mutex_unlock(encoder->tokenizer->lock);
}

void ddp_encoders_destroy(const ddp_tokenizer *tokenizer)
{
    for (struct ddp_encoder *e = *tokenizer->idle, *next; e; e = next) {
        next = e->next;
        encoder_destroy(e);
    }
    *tokenizer->idle = NULL;
}

enum ddp_status ddp_tokens_reserve(struct ddp_tokens *tokens, size_t count)
{
    if (count <= tokens->room - tokens->count)
        return DDP_OK;
    const size_t room = tokens->count + tokens->count / 2 + count + 64;
    int32_t *grown =
        room < SIZE_MAX / sizeof *grown ? realloc(tokens->ids, room * sizeof *grown) : NULL;
    if (!grown)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: %zu tokens", room);
    tokens->ids = grown;
    tokens->room = room;
    return DDP_OK;
}

/* --- words ------------------------------------------------------------------------------------ */

/* The symbols of a word whose symbols are bytes. Sets *id when the word is a token that needs no
 * merges. */
static enum ddp_status byte_symbols(struct ddp_encoder *e, const char *word, size_t bytes,
                                    int32_t *id)
{
    const ddp_tokenizer *t = e->tokenizer;
    enum ddp_status status = DDP_OK;
    if (t->ignore_merges) {
        e->name.bytes = 0;
        status = ddp_buffer_reserve(&e->name, 2 * bytes);
        for (size_t i = 0; status == DDP_OK && i < bytes; i++)
            e->name.bytes += ddp_utf8_encode(ddp_byte_character((unsigned char)word[i]),
                                             e->name.at + e->name.bytes);
        if (status == DDP_OK)
            *id = ddp_vocabulary_find(&t->vocabulary, e->name.at, e->name.bytes);
    }
    for (size_t i = 0; status == DDP_OK && *id < 0 && i < bytes; i++) {
        const int32_t symbol = t->byte_ids[(unsigned char)word[i]];
        const bool known = symbol >= 0;
        const bool fused = !known && t->fuse_unknown && e->symbols.count > 0 &&
                           e->symbols.ids[e->symbols.count - 1] == t->unknown;
        if (known || (t->unknown >= 0 && !fused))
            e->symbols.ids[e->symbols.count++] = known ? symbol : t->unknown;
    }
    return status;
}

static bool fall_back(struct ddp_encoder *e, const char *character, size_t bytes)
{
    const ddp_tokenizer *t = e->tokenizer;
    bool all = t->byte_fallback;
    for (size_t i = 0; all && i < bytes; i++)
        all = t->byte_ids[(unsigned char)character[i]] >= 0;
    for (size_t i = 0; all && i < bytes; i++)
        e->symbols.ids[e->symbols.count++] = t->byte_ids[(unsigned char)character[i]];
    return all;
}

/* The same where symbols are characters. */
static void character_symbols(struct ddp_encoder *e, const char *word, size_t bytes, int32_t *id)
{
    const ddp_tokenizer *t = e->tokenizer;
    if (t->ignore_merges)
        *id = ddp_vocabulary_find(&t->vocabulary, word, bytes);
    for (size_t i = 0, length; *id < 0 && i < bytes; i += length) {
        ddp_utf8_decode(word + i, &length);
        const int32_t symbol = ddp_vocabulary_find(&t->vocabulary, word + i, length);
        if (symbol >= 0)
            e->symbols.ids[e->symbols.count++] = symbol;
        else if (!fall_back(e, word + i, length) && t->unknown >= 0 &&
                 !(t->fuse_unknown && e->symbols.count > 0 &&
                   e->symbols.ids[e->symbols.count - 1] == t->unknown))
            e->symbols.ids[e->symbols.count++] = t->unknown;
    }
}

static enum ddp_status merge_word(struct ddp_encoder *e, const char *word, size_t bytes)
{
    int32_t id = -1;
    e->symbols.count = 0;
    enum ddp_status status = ddp_tokens_reserve(&e->symbols, bytes);
    if (status == DDP_OK && e->tokenizer->byte_level)
        status = byte_symbols(e, word, bytes, &id);
    else if (status == DDP_OK)
        character_symbols(e, word, bytes, &id);
    if (status == DDP_OK && id >= 0)
        e->symbols.ids[e->symbols.count++] = id;
    else if (status == DDP_OK)
        status =
            ddp_bpe_merge(&e->bpe, &e->tokenizer->vocabulary, e->symbols.ids, &e->symbols.count);
    return status;
}

static struct ddp_word *find_word(struct ddp_encoder *e, const char *word, size_t bytes,
                                  uint64_t key[3])
{
    unsigned char padded[24] = {0};
    memcpy(padded, word, bytes);
    padded[WORD_MOST] = (unsigned char)bytes;
    memcpy(key, padded, sizeof padded);
    const uint64_t sum = (key[0] * UINT64_C(0x9e3779b97f4a7c15)) ^
                         (key[1] * UINT64_C(0xc2b2ae3d27d4eb4f)) ^
                         (key[2] * UINT64_C(0x165667b19e3779f9));
    return &e->words[(sum ^ sum >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> WORD_SHIFT];
}

static bool same_key(const uint64_t a[3], const uint64_t b[3])
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

/* Appends the ids of a word.
 *   first  of this piece: two unknown characters side by side are one, across words too */
static enum ddp_status add_ids(const ddp_tokenizer *t, const int32_t *ids, size_t count,
                               size_t first, struct ddp_tokens *out)
{
    if (t->fuse_unknown && t->unknown >= 0 && count > 0 && ids[0] == t->unknown &&
        out->count > first && out->ids[out->count - 1] == t->unknown) {
        ids++;
        count--;
    }
    enum ddp_status status = ddp_tokens_reserve(out, count);
    if (status == DDP_OK && count > 0)
        memcpy(out->ids + out->count, ids, count * sizeof *ids);
    out->count += status == DDP_OK ? count : 0;
    return status;
}

static enum ddp_status encode_word(struct ddp_encoder *e, const char *word, size_t bytes,
                                   size_t first, struct ddp_tokens *out)
{
    uint64_t key[3];
    struct ddp_word *known = NULL;
    if (bytes <= WORD_MOST) {
        known = find_word(e, word, bytes, key);
        if (same_key(known->key, key))
            return add_ids(e->tokenizer, known->ids, known->count, first, out);
    }
    enum ddp_status status = merge_word(e, word, bytes);
    if (status != DDP_OK)
        return status;
    if (known && e->symbols.count <= IDS_MOST) {
        memcpy(known->key, key, sizeof key);
        known->count = (uint32_t)e->symbols.count;
        if (known->count > 0)
            memcpy(known->ids, e->symbols.ids, known->count * sizeof *known->ids);
    }
    return add_ids(e->tokenizer, e->symbols.ids, e->symbols.count, first, out);
}

/* --- cutting a piece into words --------------------------------------------------------------- */

/* Is there a border between the characters on both sides of a position? */
static bool is_junction_free(const ddp_tokenizer *t, const char *text, size_t at)
{
    size_t before = at - 1, length;
    while (before > 0 && ((unsigned char)text[before] & 0xc0) == 0x80)
        before--;
    const size_t bit =
        ddp_junction(ddp_utf8_decode(text + before, &length), ddp_utf8_decode(text + at, &length));
    return !(t->junctions[bit / 8] >> bit % 8 & 1);
}

/* Where the word that begins at a position ends. */
static size_t word_end(const ddp_tokenizer *t, const char *text, size_t bytes, size_t at)
{
    if (!t->junctions)
        return bytes;
    size_t length;
    uint32_t left = ddp_utf8_decode(text + at, &length);
    for (at += length; at < bytes; at += length) {
        const uint32_t right = ddp_utf8_decode(text + at, &length);
        const size_t bit = ddp_junction(left, right);
        if (!(t->junctions[bit / 8] >> bit % 8 & 1))
            break;
        left = right;
    }
    return at;
}

/* Cuts by the regular expressions from `level` on, the words of each part after the other; depth is
 * at most DDP_STEPS_MOST. */
static enum ddp_status encode_level(struct ddp_encoder *e, int level, const char *text,
                                    size_t bytes, size_t at, size_t limit, size_t *stopped,
                                    struct ddp_tokens *out);

static enum ddp_status encode_part(struct ddp_encoder *e, int level, const char *text, size_t bytes,
                                   struct ddp_tokens *out)
{
    size_t stopped;
    if (bytes == 0)
        return DDP_OK;
    if (level < e->tokenizer->regex_count || !e->tokenizer->byte_level)
        return encode_level(e, level, text, bytes, 0, bytes, &stopped, out);
    return encode_word(e, text, bytes, out->count, out);
}

static enum ddp_status encode_level(struct ddp_encoder *e, int level, const char *text,
                                    size_t bytes, size_t at, size_t limit, size_t *stopped,
                                    struct ddp_tokens *out)
{
    const ddp_tokenizer *t = e->tokenizer;
    const size_t first = out->count;
    enum ddp_status status = DDP_OK;
    if (level == t->regex_count) {
        while (status == DDP_OK && at < limit) {
            const size_t end = t->byte_level ? bytes : word_end(t, text, bytes, at);
            status = encode_word(e, text + at, end - at, first, out);
            at = end;
        }
        *stopped = at;
        return status;
    }
    while (status == DDP_OK && at < limit) {
        size_t begin, end;
        const int found =
            ddp_regex_match(t->regexes[level], e->regex_memory, text, bytes, at, &begin, &end);
        if (found < 0)
            return DDP_ERR_UNSUPPORTED;
        if (found == 0)
            begin = end = bytes;
        status = encode_part(e, level + 1, text + at, begin - at, out);
        at = begin;
        if (status == DDP_OK && begin < limit) {
            status = encode_part(e, level + 1, text + begin, end - begin, out);
            at = end;
        }
    }
    *stopped = at;
    return status;
}

enum ddp_status ddp_encoder_piece(struct ddp_encoder *encoder, const char *text, size_t bytes,
                                  size_t begin, size_t limit, size_t *stopped,
                                  struct ddp_tokens *out)
{
    return encode_level(encoder, 0, text, bytes, begin, limit, stopped, out);
}

/* Matches that begin anywhere soon fall into step with those that began at the beginning. */
size_t ddp_encoder_border(struct ddp_encoder *e, const char *text, size_t bytes, size_t guess)
{
    const ddp_tokenizer *t = e->tokenizer;
    while (guess < bytes && ((unsigned char)text[guess] & 0xc0) == 0x80)
        guess++;
    if (t->regex_count == 0) {
        while (t->junctions && guess > 0 && guess < bytes && !is_junction_free(t, text, guess))
            do
                guess++;
            while (guess < bytes && ((unsigned char)text[guess] & 0xc0) == 0x80);
        return t->junctions ? guess : bytes;
    }
    size_t begin = guess, end = guess;
    for (int i = 0; i < 4; i++)
        if (ddp_regex_match(t->regexes[0], e->regex_memory, text, bytes, end, &begin, &end) != 1)
            return bytes;
    return begin;
}
