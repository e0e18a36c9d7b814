/* SPDX-License-Identifier: MIT
 *
 * See repeats.h. Texts are compared by a hash, after the rank's own number was taken out of
 * libddp's "rank 2: ". */
#include "config.h"

#include "launcher/repeats.h"

#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"

#include <stdio.h>
#include <string.h>

#define SAME_NS INT64_C(10000000000) /* after this time it is another event */
#define NOTE_NS INT64_C(1000000000)

static bool starts_with(const char *line, size_t bytes, const char *word)
{
    return bytes >= strlen(word) && memcmp(line, word, strlen(word)) == 0;
}

size_t repeats_find_error(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at;
        const char *newline = memchr(line, '\n', bytes - at);
        const size_t length = newline ? (size_t)(newline - line) : bytes - at;
        if (starts_with(line, length, "Traceback (most recent call last)") ||
            starts_with(line, length, "usage: ") || starts_with(line, length, "Usage: ") ||
            memmem(line, length, "error: ", 7) || memmem(line, length, "Error: ", 7) ||
            memmem(line, length, ": No module named ", 18)) /* of python3 -m */
            return at;
        at += length + (newline != NULL);
    }
    return bytes;
}

/* Without the end of the last line: a worker may be ended between a message and its newline, which
 * Python writes apart. */
static size_t trimmed(const char *text, size_t bytes)
{
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    return bytes;
}

/* The hash of the text without the rank's own number. */
static uint64_t hash_of(int rank, const char *text, size_t bytes)
{
    char own[32];
    const size_t own_bytes = (size_t)snprintf(own, sizeof own, "rank %d: ", rank);
    uint64_t hash = 1;
    bytes = trimmed(text, bytes);
    for (size_t at = 0; at < bytes;) {
        const char *found = memmem(text + at, bytes - at, own, own_bytes);
        const size_t part = found ? (size_t)(found - text) - at : bytes - at;
        hash = hash * 31 + ddp_hash(text + at, part);
        at += part + (found ? own_bytes : 0);
    }
    return hash | 1;
}

/* The one with this hash, or the oldest. */
static struct repeat *slot_for(struct repeats *repeats, uint64_t hash)
{
    struct repeat *oldest = repeats->list;
    for (int i = 0; i < REPEATS; i++) {
        struct repeat *repeat = &repeats->list[i];
        if (repeat->hash == hash)
            return repeat;
        if (repeat->shown_ns < oldest->shown_ns)
            oldest = repeat;
    }
    return oldest;
}

static void note(struct repeat *repeat)
{
    enum { LISTED = 16 };
    char ranks[8 * LISTED + 8] = "";
    size_t used = 0;
    int count = 0;
    for (int rank = 0; rank < DDP_BOARD_MAX_WORLD; rank++)
        if (repeat->others[rank / 8] >> rank % 8 & 1 && count++ < LISTED)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, " %d", rank);
    ddp_log(DDP_LOG_INFO, "rank%s%s%s %s", count == 1 ? "" : "s", ranks,
            count > LISTED ? " ..." : "", repeat->words);
    repeat->repeated_ns = 0;
    memset(repeat->others, 0, sizeof repeat->others);
}

static void begin(struct repeat *repeat, uint64_t hash, int rank)
{
    if (repeat->repeated_ns)
        note(repeat);
    *repeat = (struct repeat){.hash = hash, .shown_ns = ddp_clock_ns(), .first = rank};
    snprintf(repeat->words, sizeof repeat->words, "wrote the same to standard error");
}

static void add(struct repeat *repeat, int rank)
{
    repeat->others[rank / 8] |= (unsigned char)(1 << rank % 8);
    repeat->repeated_ns = ddp_clock_ns();
}

bool repeats_has(struct repeats *repeats, int rank, const char *text, size_t bytes)
{
    const uint64_t hash = hash_of(rank, text, bytes);
    struct repeat *repeat = slot_for(repeats, hash);
    if (repeat->hash != hash || repeat->first == rank ||
        ddp_clock_ns() - repeat->shown_ns > SAME_NS) {
        begin(repeat, hash, rank);
        return false;
    }
    add(repeat, rank);
    return true;
}

void repeats_like_rank_0(struct repeats *repeats, int rank, const char *text, size_t bytes)
{
    bytes = trimmed(text, bytes);
    const char *newline = memrchr(text, '\n', bytes);
    const char *line = newline ? newline + 1 : text;
    const size_t length = bytes - (size_t)(line - text);
    const uint64_t hash = hash_of(rank, line, length);
    struct repeat *repeat = slot_for(repeats, hash);
    if (repeat->hash != hash) {
        begin(repeat, hash, 0);
        snprintf(repeat->words, sizeof repeat->words, "failed too: %.*s", (int)length, line);
    }
    add(repeat, rank);
}

bool repeats_note(struct repeats *repeats, bool now)
{
    bool left = false;
    for (int i = 0; i < REPEATS; i++) {
        struct repeat *repeat = &repeats->list[i];
        const bool due = now || ddp_clock_ns() - repeat->repeated_ns > NOTE_NS;
        if (repeat->repeated_ns && due)
            note(repeat);
        left = left || repeat->repeated_ns;
    }
    return left;
}
