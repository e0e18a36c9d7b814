/* SPDX-License-Identifier: MIT
 *
 * Error texts that several ranks write alike, such as the stack of a Python exception: the first is
 * shown, of the others only which ranks they are. Used by the relay's thread alone. */
#ifndef DDP_LAUNCHER_REPEATS_H
#define DDP_LAUNCHER_REPEATS_H

#include "job/board.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPEATS 8 /* texts that are remembered */

struct repeat {
    uint64_t hash; /* 0: empty */
    int64_t shown_ns;
    int64_t repeated_ns; /* 0: no other rank has written it, or that is noted */
    int first;           /* the rank that was shown */
    unsigned char others[DDP_BOARD_MAX_WORLD / 8]; /* the ranks that repeated it: a bit for each */
    char words[200];                               /* what to say of them */
};

struct repeats {
    struct repeat list[REPEATS];
};

/* Where in these whole lines a text begins that reports an error: a Python stack, a usage message,
 * a line with "error: ". `bytes` when there is none. */
size_t repeats_find_error(const char *text, size_t bytes);

/* Whether another rank has shown the same text within the last ten seconds. Otherwise it is
 * remembered as `rank`'s. */
bool repeats_has(struct repeats *repeats, int rank, const char *text, size_t bytes);

/* Rank 0 has failed in the same way, with words of its own that nobody saw but the terminal: keeps
 * the last line of what `rank` wrote. */
void repeats_like_rank_0(struct repeats *repeats, int rank, const char *text, size_t bytes);

/* Logs which ranks have repeated what, a second after the last did or now. True: some are still
 * to be logged. */
bool repeats_note(struct repeats *repeats, bool now);

#endif
